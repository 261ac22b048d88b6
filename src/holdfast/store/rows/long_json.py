"""JSON of many megabytes as the store keeps it, encoded and decoded in pieces.

One call of the encoder or the decoder holds Python's lock until it returns: on whatever thread it runs, the event loop
waits. Between two pieces it can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ...events import AnySettlement, decode_settlement, encode_settlement
from ...history import Message
from ...json_pieces import PIECE, in_pieces

_LONG = 4 * PIECE
"""Bytes and characters from which a text is handled in pieces."""
_SYMBOL = len(r"\ud83c\udf0a")
"""Maximum number of bytes of one character in a JSON string."""

S = TypeVar("S", bound=msgspec.Struct)

_decode_str = msgspec.json.Decoder(str).decode
_decode_short_message = msgspec.json.Decoder(Message).decode


def encode_ending(settlement: AnySettlement) -> bytes:
    """Return a settlement as JSON."""
    return _encoded(settlement, settlement.text)


def encode_message(message: Message) -> bytes:
    """Return a message as JSON."""
    return _encoded(message, message.content)


def _encoded(value: msgspec.Struct, text: Any) -> bytes:
    is_long = isinstance(text, str) and len(text) > _LONG
    return b"".join(in_pieces(msgspec.to_builtins(value))) if is_long else encode_settlement(value)


def decode_ending(stored: bytes) -> AnySettlement:
    """Return the settlement that was encoded."""
    ending: AnySettlement = _decoded(stored, decode_settlement, "text", _Text)
    return ending


def decode_message(stored: bytes) -> Message:
    """Return the message that was encoded."""
    return _decoded(stored, _decode_short_message, "content", _Content)


class _Text(msgspec.Struct):
    text: msgspec.Raw


class _Content(msgspec.Struct):
    content: msgspec.Raw


def _decoded(stored: bytes, decode: Callable[[bytes], S], name: str, field: type[_Text | _Content]) -> S:
    """Return a struct. If the field is a long string, it is cut out, and decoded in pieces."""
    if len(stored) <= _LONG:
        return decode(stored)
    text = memoryview(getattr(msgspec.json.decode(stored, type=field), name))
    start = stored.find(b'"%b":"' % name.encode()) + len(name) + 3  # quotes within a string are escaped
    if len(text) <= _LONG or stored[start : start + PIECE] != text[:PIECE]:
        return decode(stored)
    shell = b'%b""%b' % (stored[:start], stored[start + len(text) :])
    return replace(decode(shell), **{name: "".join(string_pieces(text))})


def string_pieces(string: memoryview) -> Iterator[str]:
    """Yield a string of JSON, which begins and ends with its quotes, some of its characters at a time."""
    at, end = 1, len(string) - 1
    while at < end:
        piece, at = _piece(string, at, min(at + PIECE, end))
        yield piece


def _piece(string: memoryview, at: int, upto: int) -> tuple[str, int]:
    """Return the characters between two places, and where they end: the last may be cut, and is left for the next."""
    for last in range(upto, max(upto - _SYMBOL, at), -1):
        try:
            return _decode_str(b"".join((b'"', string[at:last], b'"'))), last
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    raise msgspec.DecodeError("a string is damaged")
