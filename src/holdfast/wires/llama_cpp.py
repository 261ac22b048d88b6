"""llama.cpp's resumable dialect: OpenAI's chunks, found by a conversation's name, and read from any byte on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..log.segment import Segment

_Render = Callable[[int, Segment], bytes]


class FromByte:
    """Renders from the start, and skips the first bytes."""

    def __init__(self, render: _Render, skip: int) -> None:
        self._render = render
        self._skip = skip

    def render(self, first: int, segment: Segment) -> bytes:
        """Return the frames of the next segment, without the skipped bytes."""
        frames = self._render(first, segment)
        rest = frames[self._skip :]
        self._skip = max(0, self._skip - len(frames))
        return rest


def llama_cpp_stream(
    name: str, *, is_done: bool, size: int, started_at: float, settled_at: float | None
) -> dict[str, Any]:
    """Return the status of one conversation. Times are Unix seconds, 0 for what has not happened."""
    return {
        "conversation_id": name,
        "is_done": is_done,
        "total_bytes": size,
        "started_at": int(started_at),
        "completed_at": int(settled_at or 0) if is_done else 0,
    }
