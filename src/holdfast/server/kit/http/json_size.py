"""Counts the values in a JSON text by looking at its bytes, before any object is made of it.

20 MB of `[],[],[]` decode to millions of objects: a gigabyte of memory, and seconds in which no other request is
served. A text of the same size is one object. So the number of values is limited, besides the number of bytes.
"""

from __future__ import annotations

import asyncio

SMALL = 64 * 1024
"""Maximum size of a body, in bytes, that is not counted: it is too small for too many values."""
MOST_VALUES = 200_000
"""Maximum number of values in a body."""

_SLICE = 64 * 1024


class TooManyValues(Exception):
    """The text has more values than `MOST_VALUES`."""


async def check_values(text: bytes) -> None:
    """Raise `TooManyValues` for a JSON text with more values than allowed. Other tasks run between slices."""
    counter = _Counter()
    for start in range(0, len(text), _SLICE):
        counter.feed(text[start : start + _SLICE])
        if counter.values > MOST_VALUES:
            raise TooManyValues
        await asyncio.sleep(0)


class _Counter:
    """Counts `,`, `[` and `{` outside of strings, slice by slice."""

    def __init__(self) -> None:
        self.values = 0
        self._is_in_string = False
        self._carried = b""  # a backslash whose second half is in the next slice

    def feed(self, piece: bytes) -> None:
        piece = self._carried + piece
        trailing = len(piece) - len(piece.rstrip(b"\\"))
        self._carried = b"\\" if trailing % 2 else b""
        piece = piece[: len(piece) - len(self._carried)]
        between_quotes = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(between_quotes[self._is_in_string :: 2])
        self.values += len(outside) - len(outside.translate(None, b",[{"))
        self._is_in_string ^= len(between_quotes) % 2 == 0
