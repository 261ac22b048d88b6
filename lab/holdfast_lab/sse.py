"""Server-sent events, decoded from the bytes of a response by the WHATWG rules.

The lab has its own decoder on purpose: a fault of Holdfast's decoder must not hide in the tool that judges Holdfast.
"""

from __future__ import annotations

import re

from .http import Broken

__all__ = ["MAX_EVENT", "SSEDecoder"]

MAX_EVENT = 8 * 1024 * 1024
"""Bytes of one unfinished event; a server that sends more is not read any further."""
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class SSEDecoder:
    """Turns the reads of one response into `(event type, data)`; an event counts when its blank line has come."""

    def __init__(self) -> None:
        self._begun = False
        self._after_cr = False
        self._line = b""
        """The unfinished line."""
        self._type = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Decode one more read into the events that it completes."""
        data = self._skip_rest_of_crlf(data)
        *lines, self._line = _LINE_END.split(self._line + data)
        if lines and not self._begun:
            lines[0] = lines[0].removeprefix(_BOM)
            self._begun = True
        events = [event for line in lines if (event := self._take(line)) is not None]
        if self._size + len(self._line) > MAX_EVENT:
            raise Broken(f"an event of more than {MAX_EVENT} bytes")
        return events

    def _skip_rest_of_crlf(self, data: bytes) -> bytes:
        """Drop a line feed whose carriage return came with the read before."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r") if data else self._after_cr
        return data

    def _take(self, line: bytes) -> tuple[bytes, bytes] | None:
        """Take one line; return the event if the line ends one that has data."""
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
        elif field == b"event":
            self._type = value
        return None

    def _dispatch(self) -> tuple[bytes, bytes] | None:
        event = (self._type, b"\n".join(self._data)) if self._data else None
        self._type, self._data, self._size = b"", [], 0
        return event
