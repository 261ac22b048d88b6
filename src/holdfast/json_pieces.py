"""JSON in pieces: encoding many megabytes at once would block every other stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

PIECE = 64 * 1024
"""Maximum number of characters encoded at once."""

_MANY = 256
"""Maximum number of entries of a list or an object encoded at once."""

_encode = msgspec.json.Encoder().encode


def in_pieces(value: Any) -> Iterator[bytes]:
    """Yield a value's JSON in pieces, encoded one by one: none is empty, and none has all of a long text."""
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
    elif isinstance(value, dict) and is_long(value):
        yield from _fields(value)
    elif isinstance(value, list) and is_long(value):
        yield from _items(value)
    else:
        yield _encode(value)


def is_long(value: Any) -> bool:
    """Return whether a value should be encoded in pieces: it has a long text, or many entries."""
    if isinstance(value, str):
        return len(value) > PIECE
    if isinstance(value, (dict, list)):
        return len(value) > _MANY or any(map(is_long, value.values() if isinstance(value, dict) else value))
    return False


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
