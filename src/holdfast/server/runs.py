"""Runs: look at one, read its events, stop it."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..asgi import EventStream, events
from ..errors import BadRequest, Conflict, NotFound, StoreUnavailable
from ..events import StoppedBy
from ..run import Run
from ..wire import native
from .context import Endpoint, Parts, decode, own_run, owner_of, read_body, run_headers, shown, whole_number
from .errors import Json

STOP_PATIENCE = 8.0  # seconds that a caller waits for a settlement when the store is away


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer to a tool approval."""

    decision: Literal["allow", "deny"]
    note: str = ""


class Steering(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for a running agent."""

    input: str


async def list_runs(parts: Parts, request: Request) -> Response:
    """List runs that are kept, the newest first."""
    status = request.query_params.get("status")
    if status not in (None, "queued", "running", "settled"):
        raise BadRequest("status is queued, running or settled.", param="status")
    limit = whole_number(request, "limit", 50, 200)
    records = await parts.store.list_runs(
        owner=owner_of(request),
        session_id=request.query_params.get("session_id"),
        status=status,  # type: ignore[arg-type]
        before=request.query_params.get("before"),
        limit=limit,
    )
    runs = [shown(await parts.engine.open(record.id)) for record in records]
    return Json({"runs": runs, "next": runs[-1]["id"] if len(runs) == limit else None})


async def get_run(parts: Parts, request: Request) -> Response:
    """Return a run, while it runs and after."""
    run = await own_run(parts, request)
    return Json(shown(run), headers=run_headers(run))


async def read_events(parts: Parts, request: Request) -> Response:
    """Send every event after a cursor, then live ones, to the settlement."""
    return events_of(parts, await own_run(parts, request), request)


async def read_timeline(parts: Parts, request: Request) -> Response:
    """Return when each event came: what a reader needs to see a run again at its own pace."""
    run = await own_run(parts, request)
    times = [[seq, native.moment(at)] for seq, at in await run.times() if at]
    return Json({"run": run.id, "times": times}, headers=run_headers(run))


def events_of(parts: Parts, run: Run, request: Request) -> EventStream:
    """Return a run's own events as a stream."""
    settings = parts.settings
    return events(run, request, parts.closing, heartbeat=settings.heartbeat, send_timeout=settings.send_timeout)


async def stop_run(parts: Parts, request: Request) -> Response:
    """Stop a run and return it settled. The first ending stands."""
    run = await own_run(parts, request)
    await stop_within(run)
    return Json(shown(run), headers=run_headers(run))


async def stop_within(run: Run, by: StoppedBy = "user") -> None:
    """Stop a run; say so where its settlement cannot be saved yet."""
    try:
        async with asyncio.timeout(STOP_PATIENCE):
            await run.stop(by=by)
    except TimeoutError:
        raise StoreUnavailable(
            f"Run {run.id} was told to stop, but its settlement cannot be saved yet. It will be when the store is back."
        ) from None


async def steer_run(parts: Parts, request: Request) -> Response:
    """Refuse: a chat run has no boundary at which it could take a message."""
    run = await own_run(parts, request)
    decode(await read_body(parts, request), Steering)
    raise Conflict(f"Run {run.id} is a chat run, which takes no messages while it runs. Queue it or interrupt instead.")


async def decide(parts: Parts, request: Request) -> Response:
    """Refuse: a chat run asks for no approvals."""
    run = await own_run(parts, request)
    decode(await read_body(parts, request), Decision)
    raise NotFound(f"Run {run.id} has not asked for an approval {request.path_params['approval_id']!r}.")


ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/runs",
        list_runs,
        query={"status": "queued, running or settled", "session_id": "", "before": "", "limit": "1 to 200"},
        answers={200: "runs, and the id to go on from", 400: "a bad query"},
    ),
    Endpoint("GET", "/api/runs/{run_id}", get_run, answers={200: "the run", 404: "no such run"}),
    Endpoint(
        "GET",
        "/api/runs/{run_id}/events",
        read_events,
        query={"after": "the last seq seen, or snapshot"},
        answers={200: "events, live to the settlement", 404: "no such run", 410: "the log was trimmed"},
        streams=True,
    ),
    Endpoint(
        "GET",
        "/api/runs/{run_id}/timeline",
        read_timeline,
        answers={200: "when its events came", 404: "no such run"},
    ),
    Endpoint("POST", "/api/runs/{run_id}/stop", stop_run, answers={200: "the settled run", 404: "no such run"}),
    Endpoint(
        "POST",
        "/api/runs/{run_id}/steer",
        steer_run,
        takes=Steering,
        answers={400: "bad input", 404: "no such run", 409: "it cannot be steered", 413: "too large"},
    ),
    Endpoint(
        "POST",
        "/api/runs/{run_id}/approvals/{approval_id}",
        decide,
        takes=Decision,
        answers={400: "bad input", 404: "no such run or approval", 413: "too large"},
    ),
]
