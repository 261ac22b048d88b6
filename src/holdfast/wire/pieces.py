"""JSON in pieces: a text of many megabytes, made in one go, would hold up every other stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

PIECE = 64 * 1024
"""Characters of a text that are encoded at once."""

_encode = msgspec.json.Encoder().encode


def in_pieces(value: Any) -> Iterator[bytes]:
    """Yield a value's JSON, which is made from one piece to the next: none is empty or has more than some of a long
    text."""
    piece = bytearray()
    for part in _parts(value):
        piece += part
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, str) and len(value) > PIECE:
        yield b'"'
        for start in range(0, len(value), PIECE):
            yield _encode(value[start : start + PIECE])[1:-1]
        yield b'"'
    elif isinstance(value, dict) and value:
        yield from _fields(value)
    elif isinstance(value, list) and value:
        yield from _items(value)
    else:
        yield _encode(value)


def _fields(fields: dict[str, Any]) -> Iterator[bytes]:
    before = b"{"
    for name, value in fields.items():
        yield b"%b%b:" % (before, _encode(name))
        yield from _parts(value)
        before = b","
    yield b"}"


def _items(items: list[Any]) -> Iterator[bytes]:
    before = b"["
    for item in items:
        yield before
        yield from _parts(item)
        before = b","
    yield b"]"
