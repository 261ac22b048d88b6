"""Unguessable identifiers that sort by the time they were made, and the full names of models."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import NewType

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_ANY_DIGIT = bytes(ord(_DIGITS[byte & 31]) for byte in range(256))
_RANDOM = 25  # characters of five random bits each, after one that has three
_AT_ONCE = 64

NewId = Callable[[str], str]

ModelName = NewType("ModelName", str)
"""The full name of a model, `provider/model`, or of an agent, `agent/name`. Prices, rights, usage and metrics know
models by it alone. A lookup among the providers makes it of what a client wrote (`Providers.find`)."""


BLIND = "blind"
"""Stands for the provider in the name of a pane whose model is hidden, such as `blind/A`."""


def full_name(provider: str, model: str) -> ModelName:
    """Return the full name of a provider's model."""
    return ModelName(f"{provider}/{model}")


def new_id(prefix: str) -> str:
    """Return `prefix_…`: the time first, so that ids sort, then 128 random bits, so that ids cannot be guessed."""
    milliseconds = int(time.time() * 1000)
    if not _stock:
        _fill_stock()
    bits, rest = _stock.pop()
    seconds, quarter, last = _time(milliseconds >> 12), _PAIRS[(milliseconds >> 2) & 1023], (milliseconds & 3) << 3
    return f"{prefix}_{seconds}{quarter}{_DIGITS[last | bits]}{rest}"


_stock: list[tuple[int, str]] = []
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_stock.clear)  # else two processes would make the same ids


def _fill_stock() -> None:
    """Add 128 random bits for each of many ids: 3 as a number, and 125 as characters."""
    size = _RANDOM + 1
    fresh = os.urandom(size * _AT_ONCE)
    text = fresh.translate(_ANY_DIGIT).decode()
    _stock.extend((fresh[at] & 7, text[at + 1 : at + size]) for at in range(0, len(fresh), size))


@lru_cache(1)
def _time(upper: int) -> str:
    """Write the upper 36 of 48 bits of a time in milliseconds: they are the same for four seconds."""
    return "".join([_PAIRS[(upper >> shift) & 1023] for shift in (30, 20, 10, 0)])
