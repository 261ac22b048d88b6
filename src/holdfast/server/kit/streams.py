"""The event streams of the server: all send heartbeats, and all end when the server ends."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from ...asgi import events
from ...asgi.event_stream import EventStream, Frames
from ...concurrency.closing import Closing
from ...runs.run import Run
from ..config.current import CurrentSettings


class Streams:
    """Makes event streams."""

    def __init__(self, current: CurrentSettings, closing: Closing) -> None:
        self._current, self.closing = current, closing

    def stream(self, frames: Frames, **options: Any) -> EventStream:
        """Return a response with frames as they come. The options are those of `EventStream`."""
        now = self._current.now
        return EventStream(frames, self.closing, heartbeat=now.heartbeat, send_timeout=now.send_timeout, **options)

    def of_run(self, run: Run, request: Request) -> ASGIApp:
        """Return a run's events as a response."""
        now = self._current.now
        return events(run, request, heartbeat=now.heartbeat, send_timeout=now.send_timeout)
