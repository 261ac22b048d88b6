"""AWS's binary event stream: frames of headers and a payload, each with two checksums.

A frame is its total length, the length of its headers and a CRC32 of these (4 bytes each), the headers, the payload,
and a CRC32 of all that. Only headers of text (type 7) matter; the others are skipped by their size.

Cost: linear in the bytes. Memory: the unfinished frame, and one read.
"""

from __future__ import annotations

import struct
import zlib

from ..sse import EventTooLarge, ServerSentEvent

__all__ = ["EventStreamDecoder"]

_PRELUDE = 12
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # bytes of a value of each type; 6 and 7 have a length field
_BYTES, _TEXT = 6, 7


class EventStreamDecoder:
    """Turns the reads of one response into frames: the kind of event or exception, and its JSON.

    Nothing is left out of a frame: its checksum is one of all of it. A damaged frame is returned as a payload that is
    not JSON, so that decoding it fails.
    """

    def __init__(self, max_event: int) -> None:
        self.left_out = 0
        self._max_event = max_event
        self._tail = bytearray()
        self._is_broken = False

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Return the frames that one more read completes. Raises `EventTooLarge`."""
        self._tail += data
        frames: list[ServerSentEvent] = []
        while not self._is_broken and len(self._tail) >= _PRELUDE:
            total, headers, checksum = struct.unpack_from(">III", self._tail)
            if zlib.crc32(self._tail[:8]) != checksum or total < _PRELUDE + headers + 4:
                self._is_broken = True
                frames.append((b"", b"a frame with a wrong checksum"))
                break
            if total > 2 * self._max_event:  # a frame of AWS has 16 MiB at most
                raise EventTooLarge(f"an upstream frame is larger than {2 * self._max_event} bytes")
            if len(self._tail) < total:
                break
            frames.append(_frame(bytes(self._tail[:total]), headers))
            del self._tail[:total]
        return frames

    def finish(self) -> list[ServerSentEvent]:
        """Return no frames: an incomplete frame is dropped."""
        self._tail.clear()
        return []


def _frame(frame: bytes, size: int) -> ServerSentEvent:
    if zlib.crc32(frame[:-4]) != struct.unpack_from(">I", frame, len(frame) - 4)[0]:
        return b"", b"a frame with a wrong checksum"
    headers = _headers(frame[_PRELUDE : _PRELUDE + size])
    kind = headers.get(b":exception-type") or headers.get(b":error-code") or headers.get(b":event-type", b"")
    payload = frame[_PRELUDE + size : -4]
    if headers.get(b":message-type", b"event") != b"event":
        return b"exception:" + kind, payload or headers.get(b":error-message", b"") or b"{}"
    return kind, payload or b"{}"


def _headers(data: bytes) -> dict[bytes, bytes]:
    """Return the headers whose values are text."""
    headers: dict[bytes, bytes] = {}
    at = 0
    while at + 1 < len(data):
        name, at = data[at + 1 : at + 1 + data[at]], at + 1 + data[at]
        kind, at = data[at] if at < len(data) else 0, at + 1
        if kind in (_BYTES, _TEXT):
            length = int.from_bytes(data[at : at + 2], "big")
            headers[name] = data[at + 2 : at + 2 + length]
            at += 2 + length
        else:
            at += _SIZES.get(kind, len(data))
    return headers
