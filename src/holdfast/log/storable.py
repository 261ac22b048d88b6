"""Values that can be encoded and stored, and the memory that they take."""

from __future__ import annotations

from typing import Any

import msgspec

from ..events import encode_event

_PER_ITEM = 64  # memory of one item of a list or an object, in characters


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
    """Return the memory that a value takes, in characters: the length of its JSON, plus an amount for each item."""
    try:
        text = encode_event(value)
    except Exception:  # noqa: BLE001 - a lone surrogate, or a value of a custom source: an estimate must not end the run
        text = ascii(value).encode()
    return len(text) + _PER_ITEM * (text.count(b",") + text.count(b"[") + text.count(b"{"))


def storable(value: Any) -> Any:
    """Return an event or a settlement without lone surrogates: half an emoji can be neither sent nor stored.

    Raise if it cannot be encoded for another reason.
    """
    try:
        encode_event(value)
    except UnicodeEncodeError:
        value = _without_surrogates(value)
        encode_event(value)
    return value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_without_surrogates, value))
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(field) for name, field in value.items()}
    if isinstance(value, msgspec.Struct):
        return type(value)(
            **{name: _without_surrogates(field) for name, field in msgspec.structs.asdict(value).items()}
        )
    return value
