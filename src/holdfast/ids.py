"""Unguessable identifiers that sort by the time they were made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 128
_LENGTH = 36  # 48 bits of milliseconds and 128 random bits, five to a character

NewId = Callable[[str], str]


def new_id(prefix: str) -> str:
    """Return `prefix_…`: time first so that ids sort, then 128 random bits so that nobody can guess one."""
    return f"{prefix}_{encode(int(time.time() * 1000), int.from_bytes(os.urandom(_RANDOM_BITS // 8), 'big'))}"


def encode(milliseconds: int, random_bits: int) -> str:
    """Write a time and random bits as 36 characters whose alphabetical order is the order of the times."""
    number = (milliseconds << _RANDOM_BITS) | random_bits
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range((_LENGTH - 1) * 5, -1, -5))
