"""llama.cpp's resumable dialect: OpenAI's chunks, found again by a name and read on from any byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..events import Event

Render = Callable[[int, Sequence[Event]], bytes]


class FromByte:
    """Renders from the start, as it must, and leaves out the first bytes."""

    def __init__(self, render: Render, skip: int) -> None:
        self._render = render
        self._skip = skip

    def render(self, first: int, events: Sequence[Event]) -> bytes:
        """Return what follows of the next events' frames."""
        frames = self._render(first, events)
        rest = frames[self._skip :]
        self._skip = max(0, self._skip - len(frames))
        return rest


def stream(name: str, *, is_done: bool, size: int, started_at: float, settled_at: float | None) -> dict[str, Any]:
    """Return what a lookup tells of one conversation. Times are whole Unix seconds, 0 for what has not happened."""
    return {
        "conversation_id": name,
        "is_done": is_done,
        "total_bytes": size,
        "started_at": int(started_at),
        "completed_at": int(settled_at or 0) if is_done else 0,
    }
