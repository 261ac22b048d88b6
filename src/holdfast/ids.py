"""Unguessable identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 128
_SHIFTS = range(170, -1, -10)  # 48 bits of milliseconds and 128 random bits, ten to a pair of characters
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]

NewId = Callable[[str], str]


def new_id(prefix: str) -> str:
    """Return `prefix_…`: time first so that ids sort, then 128 random bits so that nobody can guess one."""
    return f"{prefix}_{encode(int(time.time() * 1000), _random_bits())}"


_stock: list[int] = []
os.register_at_fork(after_in_child=_stock.clear)  # or two processes would give out the same


def _random_bits() -> int:
    """Return bits that nobody can guess. The kernel is asked for many at once: it takes as long as for a few."""
    try:
        return _stock.pop()
    except IndexError:
        size = _RANDOM_BITS // 8
        fresh = os.urandom(size * 64)
        _stock.extend(int.from_bytes(fresh[at : at + size], "big") for at in range(size, len(fresh), size))
        return int.from_bytes(fresh[:size], "big")


def encode(milliseconds: int, random_bits: int) -> str:
    """Write a time and random bits as 36 characters whose alphabetical order is the order of the times."""
    number = (milliseconds << _RANDOM_BITS) | random_bits
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])
