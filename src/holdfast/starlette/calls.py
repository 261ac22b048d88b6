"""The calls about the runs of an engine, for routes of any framework. Each is for one owner."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..asgi import Frame, events
from ..asgi.idempotency import request_digest
from ..embedding.engine import Engine
from ..errors import BadRequest
from ..events import Source
from ..runs.run import Run
from ..runs.stored_log import StoredLog
from ..wires import native
from ..wires.shapes import RunJson


def checked_owner(name: Any) -> str:
    """Return an owner, as an app told it. An app that does not know its caller has to refuse the request."""
    if not isinstance(name, str):
        raise TypeError(f"the owner of a request must be a string, not {name!r}")
    if not name:
        raise BadRequest("This app does not know who you are. Sign in first.", code="unauthorized", status=401)
    return name


async def keep_body(request: Request) -> None:
    """Read the body of a request with an Idempotency-Key, which tells it from another, before an app takes it apart."""
    if "idempotency-key" in request.headers:
        await request.body()


class RunCalls:
    """Starts, lists, shows, reads and stops runs. What belongs to another owner does not exist."""

    def __init__(self, engine: Engine, frame: Frame | None) -> None:
        self._engine = engine
        self._frame = frame

    async def start(self, owner: str, source: Source, request: Request) -> Response:
        """Start a run; 202 with the run. With an Idempotency-Key `keep_body` has to be called before."""
        key = request.headers.get("idempotency-key")
        digest = "" if key is None else request_digest(request, await request.body())
        try:
            run = await self._engine.start(source, owner=owner, key=key, digest=digest)
        except ValueError as error:
            raise BadRequest(f"Idempotency-Key: {error}") from None
        return _json(await _shown(run), 202)

    async def list(self, owner: str, before: str | None) -> Response:
        """Return a page of runs, the newest first, with the beginnings of their texts."""
        runs = await self._engine.list(owner=owner, before=before)
        return _json({"runs": [native.listed_run(await _shown(run)) for run in runs]})

    async def show(self, owner: str, run_id: str) -> Response:
        """Return a run."""
        return _json(await _shown(await self._engine.open(run_id, owner=owner)))

    async def read(self, owner: str, run_id: str, request: Request) -> Response:
        """Return the events of a run, after the request's cursor, as a stream."""
        return events(await self._engine.open(run_id, owner=owner), request, frame=self._frame)

    async def stop(self, owner: str, run_id: str) -> Response:
        """Stop a run; it is returned with its settlement."""
        run = await self._engine.open(run_id, owner=owner)
        _, stopped_now = await run.stop()
        return _json({**await _shown(run), "stopped_now": stopped_now})


async def _shown(run: Run) -> RunJson:
    """Return a run as JSON. The text so far of a run that is active in another process is read first."""
    if isinstance(run.log, StoredLog):
        await run.log.look()
    return native.run_object(run.record, status=run.status, seq=run.seq, text=run.text, settled=run.settlement)


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, {"cache-control": "no-store"}, "application/json")
