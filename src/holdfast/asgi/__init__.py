"""Runs as event streams in any ASGI app. Each stream notices when its client disconnects.

@app.get("/runs/{run_id}/events")
async def read(run_id: str, request: Request, user: CurrentUser):
    return events(await engine.open(run_id, owner=user), request)
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..errors import HoldfastError, ResumeGap
from ..events import Notice
from ..log.segment import segment_of
from ..runs.run import Run
from ..wires import native, sse
from .cursor import Begin, RunFrames, shared_rendering
from .event_stream import EventStream
from .frames import Frame, own_rendering, stream_error

__all__ = ["Frame", "events", "on_error"]


def events(
    run: Run,
    request: Request,
    *,
    frame: Frame | None = None,
    heartbeat: float = 10.0,
    send_timeout: float = 30.0,
) -> Response:
    """Return a run's events as a response: those after the request's cursor, then live ones, to the settlement.

    The cursor is `?after=` or `Last-Event-ID`. A client that has seen the settlement gets 204, so that an EventSource
    does not reconnect. `frame` replaces the frames of the protocol. An attached run ends with its first stream. When
    the engine is closed, its streams end: with the settlement, or with the time after which a client may come back.
    """
    begin = partial(_snapshot, run, frame) if _requested_cursor(request) == "snapshot" else None
    after, opening = _cursor(run, request, frame) if begin is None else (0, b"")
    if after < run.log.oldest - 1 and begin is None:
        raise ResumeGap(run.log.oldest)
    if run.log.closed and after >= run.log.seq and not opening and begin is None:
        return _no_content(run)
    is_held = run.take_hold()
    return EventStream(
        _frames(run, after, frame, is_held, begin),
        run.engine.streams,
        headers=[(b"x-run-id", run.id.encode())],
        opening=opening,
        farewell=sse.farewell(1000),
        broken=None if frame is None else stream_error,
        on_leave=run.leave if is_held else None,
        heartbeat=heartbeat,
        send_timeout=send_timeout,
    )


def _no_content(run: Run) -> Response:
    ended = Response(status_code=204, headers={"x-run-id": run.id})
    ended.raw_headers += [header for header in sse.HEADERS if header[0] != b"content-type"]
    return ended


def _frames(run: Run, after: int, frame: Frame | None, is_held: bool, begin: Begin | None) -> RunFrames:
    if frame is not None:
        return RunFrames(run, own_rendering(frame), after, attached=is_held, begin=begin)
    pieces = partial(native.settled_pieces, run.id)
    return RunFrames(run, shared_rendering(run), after, pieces, attached=is_held, begin=begin)


async def _snapshot(run: Run, frame: Frame | None) -> tuple[int, bytes]:
    """Return the last seq of a snapshot, and its frame."""
    seq, snapshot = await run.log.snapshot()
    return seq, (native.frames(run.id) if frame is None else own_rendering(frame))(seq, segment_of([snapshot]))


async def on_error(request: Request, error: Exception) -> Response:
    """Answer an error of the engine with its status: `app.add_exception_handler(HoldfastError, on_error)`."""
    assert isinstance(error, HoldfastError)
    body: dict[str, Any] = {"error": native.error(error.info())}
    if isinstance(error, ResumeGap):
        body["oldest"] = error.oldest
    wait = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
    return Response(msgspec.json.encode(body), error.status, wait, "application/json")


def _cursor(run: Run, request: Request, frame: Frame | None) -> tuple[int, bytes]:
    """Return the seq to continue after, and the frames to send first."""
    requested = _requested_cursor(request)
    if _is_number(requested) and int(requested) <= run.seq:
        return int(requested), b""
    reset = Notice("cursor_reset", "The cursor was not one of this run: here it is from its start.")
    return 0, _reset(run, reset) if frame is None else own_rendering(frame)(0, segment_of([reset]))


def last_seen(request: Request) -> int:
    """Return the seq in the cursor of a request; 0 if it has none."""
    return int(_requested_cursor(request)) if _is_number(_requested_cursor(request)) else 0


def _requested_cursor(request: Request) -> str:
    """Return the cursor of a request. A browser that reconnects sends its first URL: the newer header counts."""
    return (request.headers.get("last-event-id") or request.query_params.get("after", "0")).strip()


def _is_number(cursor: str) -> bool:
    return cursor.isascii() and cursor.isdigit() and len(cursor) < 16


def _reset(run: Run, reset: Notice) -> bytes:
    """Return a frame without an id: the cursor was invalid, and the run is sent from its start."""
    kind, rest = native.body(reset)
    return b"event: %b\n" % kind + sse.data(b'{"run":"%b",%b' % (run.id.encode(), rest))
