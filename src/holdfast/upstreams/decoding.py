"""Shared parts of the decoders: limits, split surrogate pairs, and invalid values from upstreams."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MAX_EVENT = 8 * 1024 * 1024
"""Maximum size of one event, or of a body that is not an event stream, in bytes."""
MAX_TEXT = 64 * 1024 * 1024
"""Maximum length of one answer with its reasoning and tool calls, in characters."""

_MOST_TOKENS = 2**53
_ORDER = ("thinking", "text", "refusal", "input")  # of the fields of an answer


_Place = tuple[int, int, str]
"""A choice, a block in it, and a field."""


class Halves:
    """High surrogates that wait for their low surrogate: some upstreams cut text in the middle of an emoji."""

    def __init__(self) -> None:
        self._waiting: dict[_Place, str] = {}

    def join(self, place: _Place, text: str) -> str:
        """Join surrogate pairs. A final high surrogate is held back, other lone surrogates are replaced."""
        text = self._waiting.pop(place, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._waiting[place] = text[-1]
            text = text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def give_up(self, block: int | None, choice: int | None) -> list[tuple[int, str]]:
        """Drop the surrogates that were held back, in a block, a choice or all. Return their choices and fields."""
        found = [at for at in self._waiting if choice in (None, at[0]) and block in (None, at[1])]
        for place in found:
            del self._waiting[place]
        return [(choice, field) for choice, _, field in sorted(found, key=lambda at: _ORDER.index(at[2]))]


def error_message(value: Any, depth: int = 4) -> str:
    """Return the message of an upstream's error, in any of the usual shapes; empty if there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and depth:
        return error_message(value[0], depth - 1)
    if isinstance(value, dict) and depth:
        for field in ("error", "message", "detail", "msg"):
            if message := error_message(value.get(field), depth - 1):
                return message
    return ""


def loosely(data: bytes, hook: Callable[[Any], Any] | None = None) -> Any:
    """Decode JSON that may have invalid UTF-8; None if it is not JSON. `hook` replaces each object."""
    try:
        return json.loads(data.decode("utf-8", "replace"), object_hook=hook)
    except (ValueError, RecursionError):
        return None


def count(tokens: int | float | None) -> int:
    """Return an upstream's number of tokens as an integer from 0 to 2**53. Missing and invalid numbers are 0."""
    return int(min(tokens, _MOST_TOKENS)) if tokens and tokens > 0 else 0  # NaN is not more than 0 either
