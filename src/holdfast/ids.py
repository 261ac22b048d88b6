"""Unguessable identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import lru_cache

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_ANY_DIGIT = bytes(ord(_DIGITS[byte & 31]) for byte in range(256))
_RANDOM = 25  # characters of five random bits each, after one that has three
_LENGTH = 11 + _RANDOM  # characters of time and chance
_AT_ONCE = 64

NewId = Callable[[str], str]


def new_id(prefix: str) -> str:
    """Return `prefix_…`: time first so that ids sort, then 128 random bits so that nobody can guess one."""
    milliseconds = int(time.time() * 1000)
    bits, rest = _random()
    return f"{prefix}_{_time(milliseconds >> 2)}{_DIGITS[(milliseconds & 3) << 3 | bits]}{rest}"


def marked(run_id: str, process: int) -> str:
    """Return the id of a run that is in a process other than the one with the store: it has a character more."""
    return run_id + _DIGITS[process] if process else run_id


def mark_of(characters: str) -> int:
    """Return the process whose run it is, by what follows an id's prefix; 0 for that with the store."""
    mark = characters[_LENGTH:]
    return max(0, _DIGITS.find(mark)) if len(mark) == 1 else 0


_stock: list[tuple[int, str]] = []
if hasattr(os, "register_at_fork"):  # which Windows has no use for
    os.register_at_fork(after_in_child=_stock.clear)  # or two processes would give out the same


def _random() -> tuple[int, str]:
    """Return what nobody can guess: 3 bits, and 125 as characters. The kernel is asked for many at once."""
    if not _stock:
        size = _RANDOM + 1
        fresh = os.urandom(size * _AT_ONCE)
        text = fresh.translate(_ANY_DIGIT).decode()
        _stock.extend((fresh[at] & 7, text[at + 1 : at + size]) for at in range(0, len(fresh), size))
    return _stock.pop()


@lru_cache(1)
def _time(quarter: int) -> str:
    """Write the upper 46 of 48 bits of a time in milliseconds: it is the same for four of them."""
    return "".join([_PAIRS[(quarter >> shift) & 1023] for shift in (40, 30, 20, 10, 0)])
