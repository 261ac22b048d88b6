"""Lines of JSON (NDJSON) from an upstream's bytes: one frame to a line.

Cost: linear in the bytes, however they are cut. Memory: the unfinished line, and one read.
"""

from __future__ import annotations

from itertools import takewhile

from .sse import MOST_LEFT_OUT, EventTooLarge, ServerSentEvent, without_data

__all__ = ["LineDecoder"]


class LineDecoder:
    """Turns the reads of one response into lines, as frames without a type.

    `max_line` is the maximum size of a line in bytes. A longer one loses its long data in base64 (`left_out` is its
    size). If it is still longer, the decoder returns the lines before it, and raises `EventTooLarge` at the next call,
    or at this one if there were none.
    """

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._tail = bytearray()
        self._is_broken = False
        self.left_out = 0

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Return the lines that one more read completes."""
        whole, newline, rest = data.rpartition(b"\n")
        lines = [self._fit(line) for line in (bytes(self._tail) + whole).split(b"\n")] if newline else []
        if newline:
            self._tail.clear()
        self._tail += rest
        if len(self._tail) > self._max_line:
            self._tail[:] = self._fit(bytes(self._tail))
        sound = list(takewhile(lambda line: len(line) <= self._max_line, lines))
        self._is_broken = self._is_broken or len(sound) < len(lines) or len(self._tail) > self._max_line
        if not sound:
            self._refuse_if_broken()
        return [(b"", line) for line in sound]

    def _fit(self, line: bytes) -> bytes:
        if len(line) <= self._max_line:
            return line
        rest = without_data(line)
        self.left_out += len(line) - len(rest)
        return rest if self.left_out <= MOST_LEFT_OUT * self._max_line else line

    def finish(self) -> list[ServerSentEvent]:
        """Return the last line, if no newline follows it."""
        self._refuse_if_broken()
        last, self._tail = bytes(self._tail), bytearray()
        return [(b"", last)] if last.strip() else []

    def _refuse_if_broken(self) -> None:
        if self._is_broken:
            self._tail = bytearray()
            raise EventTooLarge(f"an upstream line is larger than {self._max_line} bytes")
