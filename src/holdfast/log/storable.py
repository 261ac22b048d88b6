"""Values that can be sent and stored, and the memory that they take."""

from __future__ import annotations

from typing import Any

import msgspec

from ..events import encode_event

_OF_AN_ITEM = 64  # as many characters take the memory of one item of a list or an object


def encodable(text: str) -> str:
    """Return a text without lone surrogates: half an emoji can be neither sent nor stored."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def characters(value: Any) -> int:
    """Return how many characters take the memory of a value: those of its JSON, and some for each item in it."""
    try:
        text = encode_event(value)
    except Exception:  # noqa: BLE001 - half an emoji, or what a source of one's own has put there: no run ends by that
        text = ascii(value).encode()
    return len(text) + _OF_AN_ITEM * (text.count(b",") + text.count(b"[") + text.count(b"{"))


def storable(said: Any) -> Any:
    """Return an event or a settlement without lone surrogates: half an emoji can be neither sent nor stored.

    What cannot be stored for another reason raises.
    """
    try:
        encode_event(said)
    except UnicodeEncodeError:
        said = _mended(said)
        encode_event(said)
    return said


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_mended, value))
    if isinstance(value, dict):
        return {_mended(name): _mended(field) for name, field in value.items()}
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: _mended(field) for name, field in msgspec.structs.asdict(value).items()})
    return value
