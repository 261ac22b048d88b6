"""Frames of an event stream that an application renders itself, instead of those of the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from ..events import ErrorInfo, Event, Settled
from ..log.segment import Segment
from ..wires import native, sse

Frame = Callable[[int, Event], Any]
"""Returns what a stream sends for an event and its `seq`.

- None: nothing.
- `str`: the data of a frame; `id` is the `seq`.
- `bytes`: a whole frame, or several, sent as they are. To be resumable it has a line `id: <seq>`.
- Anything else: encoded as JSON, the data of a frame.
"""

_LINE_END = re.compile(r"\r\n|\r|\n")
_encode = msgspec.json.Encoder().encode


def own_rendering(frame: Frame) -> Callable[[int, Segment], bytes]:
    """Return a function that renders a segment, whose first event has the number `first`, by `frame`."""

    def render(first: int, segment: Segment) -> bytes:
        return b"".join(_framed(seq, event, frame(seq, event)) for seq, event in enumerate(segment, first))

    return render


def _framed(seq: int, event: Event, rendered: Any) -> bytes:
    if rendered is None:
        # A frame without data only moves the cursor of an EventSource, whose next request is then answered with 204.
        return b"id: %d\n\n" % seq if type(event) is Settled else b""
    if isinstance(rendered, bytes):
        return rendered
    lines = _LINE_END.split(rendered) if isinstance(rendered, str) else [_encode(rendered).decode()]
    return b"id: %d\n%b\n" % (seq, "".join(f"data: {line}\n" for line in lines).encode())


def stream_error(info: ErrorInfo) -> bytes:
    """Return the frame that ends a stream that cannot continue. It does not mean that the run has failed."""
    return b"event: stream.error\n" + sse.data(_encode({"error": native.error(info)}))
