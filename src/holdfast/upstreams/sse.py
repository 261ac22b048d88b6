"""Server-sent events from an upstream's bytes, by the WHATWG rules.

The decoder works on bytes: only CR, LF and CRLF end a line, and neither U+2028 nor U+0085 inside a JSON string does.
Nearly all upstreams send nothing but `data: {...}` lines and blank lines, many in one read. Such a read is cut
by one `bytes.split`; anything else is decoded block by block.

Three things differ from the browser's rules: `id` and `retry` are ignored like unknown fields, since upstreams are not
resumed; the default event type is `b""` and not `message`; and `finish` returns an event whose blank line is missing.

Cost: linear in the bytes, however they are cut. Memory: the unfinished event, and one read.
"""

from __future__ import annotations

import re
from itertools import repeat
from typing import NoReturn

__all__ = ["LEFT_OUT", "MOST_LEFT_OUT", "EventTooLarge", "SSEDecoder", "ServerSentEvent", "without_data"]

ServerSentEvent = tuple[bytes, bytes]
"""The event type, `b""` if none was sent, and the data."""

_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "
_SHORT = 4096  # a longer unfinished event is not returned: it would be copied with each piece


LEFT_OUT = b"~left-out~"
"""Stands for data in base64 that was left out. No base64 has a tilde, so nothing takes the rest for data."""
MOST_LEFT_OUT = 8
"""Maximum size of what is left out of one response, as a multiple of that of an event."""
_LONG_DATA = re.compile(rb"(?:~left-out~)?[A-Za-z0-9+/=\\_-]{65536,}")


def without_data(block: bytes | bytearray) -> bytes:
    """Return an event that is too large without its long data, such as a picture. Its texts stay."""
    return _LONG_DATA.sub(LEFT_OUT, block)


class EventTooLarge(ValueError):
    """An event, or a line, exceeds the limit."""


class SSEDecoder:
    """Turns the reads of one response into events.

    `max_event` is the maximum number of bytes between two blank lines. A larger event loses its long data in base64
    (`left_out` is its size). If it is still larger, the decoder returns the events before it, and raises
    `EventTooLarge` at the next call, or at this one if there were none.
    """

    __slots__ = ("_after_cr", "_begun", "_broken", "_max_event", "_start", "_tail", "left_out")

    def __init__(self, max_event: int = 8 * 1024 * 1024) -> None:
        self._max_event = max_event
        self._tail = bytearray()  # the unfinished event; holds no blank line
        self._start = b""  # what may be the beginning of a byte order mark
        self._begun = False
        self._after_cr = False
        self._broken = False
        self.left_out = 0

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Decode one more read into the events that it completes."""
        if self._broken:
            self._refuse()
        if not self._begun:
            data = self._skip_bom(data)
        if self._after_cr or b"\r" in data:
            data = self._end_lines_with_lf(data)
        blocks = self._complete(data)
        events = self._decode(blocks) if blocks else []
        if len(self._tail) > self._max_event and self._too_large(self._tail):
            self._tail[:] = self._cut(self._tail)
            self._broken = self._too_large(self._tail)
        if self._broken and not events:
            self._refuse()
        return events

    def take_back(self) -> bytes | None:
        """Return the unfinished event for a faster decoder; None if that is not possible."""
        if not self._begun or self._after_cr or self._broken or self.left_out or len(self._tail) > _SHORT:
            return None
        tail = bytes(self._tail)
        self._tail.clear()
        return tail

    def finish(self) -> list[ServerSentEvent]:
        """Decode what is left when the upstream has ended.

        Browsers drop an event that is not followed by a blank line, but some upstreams send none after `data: [DONE]`.
        The last line may be incomplete: JSON that was cut off fails in its parser. An event without data is dropped,
        as it may be the first half of a line.
        """
        if self._broken:
            self._refuse()
        event = _decode_block(bytes(self._tail))
        self._tail = bytearray()
        return [event] if event and event[1] else []

    def _complete(self, data: bytes) -> bytes:
        """Take the blocks that are complete, without the last blank line, and keep the rest."""
        end = data.rfind(b"\n\n")
        if end >= 0:
            blocks = data[:end]
            if self._tail:
                blocks = bytes(self._tail) + blocks
                self._tail.clear()
            if end + 2 < len(data):
                self._tail += data[end + 2 :]
            return blocks
        if data.startswith(b"\n") and self._tail.endswith(b"\n"):
            blocks = bytes(self._tail)[:-1]
            self._tail[:] = data[1:]
            return blocks
        self._tail += data
        return b""

    def _decode(self, blocks: bytes) -> list[ServerSentEvent]:
        if len(blocks) > self._max_event:
            return self._decode_warily(blocks)
        if blocks.startswith(_DATA):
            if b"\n" not in blocks:
                return [(b"", blocks[len(_DATA) :])]
            payloads = blocks.split(b"\n\n" + _DATA)
            # No line end but those between the blocks: each block is one data line.
            if blocks.count(b"\n") == 2 * len(payloads) - 2:
                payloads[0] = payloads[0][len(_DATA) :]
                return list(zip(repeat(b""), payloads))
        return [event for block in blocks.split(b"\n\n") if (event := _decode_block(block))]

    def _decode_warily(self, blocks: bytes) -> list[ServerSentEvent]:
        """Decode a read in which some event may be too large, up to that event."""
        events = []
        for block in blocks.split(b"\n\n"):
            rest = self._cut(block) if self._too_large(block) else block
            if self._too_large(rest):
                self._broken = True
                break
            if event := _decode_block(rest):
                events.append(event)
        return events

    def _cut(self, block: bytes | bytearray) -> bytes:
        rest = without_data(block)
        self.left_out += len(block) - len(rest)
        return rest if self.left_out <= MOST_LEFT_OUT * self._max_event else bytes(block)

    def _too_large(self, block: bytes | bytearray) -> bool:
        # Whether the line end of a blank line lies inside the block depends on how the reads were cut: do not count it.
        return len(block) > self._max_event and len(block.strip(b"\n")) > self._max_event

    def _refuse(self) -> NoReturn:
        self._tail = bytearray()
        raise EventTooLarge(f"an upstream event is larger than {self._max_event} bytes")

    def _skip_bom(self, data: bytes) -> bytes:
        data = self._start + data
        self._begun = len(data) >= len(_BOM) or not _BOM.startswith(data)
        self._start = b"" if self._begun else data
        return data.removeprefix(_BOM) if self._begun else b""

    def _end_lines_with_lf(self, data: bytes) -> bytes:
        """Make every line end an LF. A CR at the end of a read ends its line at once, and an LF after it is skipped."""
        if not data:
            return data
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _decode_block(block: bytes) -> ServerSentEvent | None:
    """Decode the lines between two blank lines; without a data line they are not an event."""
    if block.startswith(_DATA) and b"\n" not in block:
        return b"", block[len(_DATA) :]
    event = b""
    data = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            event = value.removeprefix(b" ")
    return (event, b"\n".join(data)) if data else None
