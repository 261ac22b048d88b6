"""What the decoders of all dialects share: limits, half surrogate pairs, and odd values from upstreams."""

from __future__ import annotations

import json
from typing import Any

MAX_EVENT = 8 * 1024 * 1024
"""Bytes of one event, and of a body that is no event stream."""
MAX_TEXT = 64 * 1024 * 1024
"""Characters of one answer, with its reasoning and tool calls."""

_MOST_TOKENS = 2**53


class Halves:
    """Halves of surrogate pairs that wait for the other half: upstreams cut text in the middle of an emoji."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, str], str] = {}

    def join(self, place: tuple[int, str], text: str) -> str:
        """Return the text with its halves joined, those that cannot be replaced, and the last one kept back."""
        text = self._waiting.pop(place, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._waiting[place] = text[-1]
            text = text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def give_up(self, place: tuple[int, str]) -> str:
        """Return what stands for a half whose other half never came."""
        return "\ufffd" if self._waiting.pop(place, "") else ""

    def places(self) -> set[int]:
        """Return where halves still wait."""
        return {index for index, _ in self._waiting}


def error_message(value: Any, depth: int = 4) -> str:
    """Return what an upstream's error says, in any of the shapes that are in use; empty if it says nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and depth:
        return error_message(value[0], depth - 1)
    if isinstance(value, dict) and depth:
        for field in ("error", "message", "detail", "msg"):
            if message := error_message(value.get(field), depth - 1):
                return message
    return ""


def loosely(data: bytes) -> Any:
    """Decode JSON as well as possible; None if it is none."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def count(tokens: int | float | None) -> int:
    """Return a number of tokens that makes sense, whatever an upstream says."""
    return int(min(tokens, _MOST_TOKENS)) if tokens and tokens > 0 else 0  # NaN is not more than 0 either
