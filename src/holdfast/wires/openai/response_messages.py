"""OpenAI's Responses over a WebSocket: each event of the stream as a message, and exactly one last message."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any

import msgspec

from ...events import AnySettlement, ErrorInfo, Failed, Interrupted, Stopped
from .. import native
from ..outcome import verdict
from .response_output import ResponseEvent
from .responses import Response, ResponseFrames, response_id

_encode = msgspec.json.Encoder().encode
CONFLICT = 409
"""Status of a response that was stopped."""


def refusal_message(info: ErrorInfo, lane: str | None) -> bytes:
    """Return the error of a request that has no response."""
    wait = {} if info.retry_after is None else {"headers": {"retry-after": str(max(0, ceil(info.retry_after)))}}
    return _encode({"type": "error", "status": info.status, "error": {**native.error(info), **wait}, **_named(lane)})


def steer_message(outcome: str, number: int, lane: str | None, **fields: Any) -> bytes:
    """Return the outcome of an input that steers a response. `number` counts these messages of a connection."""
    return _encode({"type": f"response.steer.{outcome}", **fields, "sequence_number": number, **_named(lane)})


def _named(lane: str | None) -> dict[str, Any]:
    return {} if lane is None else {"stream_id": lane}


class ResponseMessages(ResponseFrames):
    """Renders one run as messages, in order from its first: one JSON object each, with the lane of the request.

    A connection has no end of a stream, so the last message is one that clients know as the last: `response.completed`,
    `response.incomplete` and `response.failed`, and `error` for a response that was stopped.
    """

    def __init__(self, run: str, response: Response, lane: str | None) -> None:
        super().__init__(response)
        self._run = run
        self._lane = lane

    def output(self) -> list[dict[str, Any]]:
        """Return the items so far."""
        return self._response.output.items()

    def _frame(self, kind: str, data: bytes) -> bytes:
        return data if self._lane is None else data[:-1] + b',"stream_id":%b}' % _encode(self._lane)

    def _text(self, message: Any, text: str) -> bytes:
        return next(iter(self._render([message.add_text(text)])))

    def _ending(self, settled: AnySettlement) -> Iterable[ResponseEvent]:
        if isinstance(settled, Stopped):
            self._response.output.end(settled)
            yield "error", {"status": CONFLICT, "error": self._stopped(settled), **verdict(settled, self._run)}
            return
        for step in super()._ending(settled):
            if not (isinstance(settled, (Failed, Interrupted)) and step[0] == "error"):
                yield step

    def _stopped(self, settled: Stopped) -> Any:
        message = f"Response {response_id(self._run)} was stopped (by {settled.by}). It is not complete."
        return native.error(ErrorInfo("response_cancelled", message, "invalid_request_error", status=CONFLICT))
