"""For operators: is it alive, and is it ready for work."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..errors import ShuttingDown, StoreUnavailable
from .context import Endpoint, Parts
from .errors import Json


async def health(parts: Parts, request: Request) -> Response:
    """Say that the process is alive."""
    return Json({"status": "ok"})


async def ready(parts: Parts, request: Request) -> Response:
    """Say that the store answers, writes too, and new runs are taken."""
    if parts.engine.closing:
        raise ShuttingDown
    if parts.engine.store_is_away:
        raise StoreUnavailable("The store refuses to write. The server's log says why, and what to do.")
    await parts.store.list_runs(status="running", limit=1)
    runs = len(parts.engine.live())
    if parts.board is None:
        return Json({"status": "ready", "runs": runs})
    return Json({"status": "ready", "runs": runs + parts.board.elsewhere("")[0], "workers": parts.board.up})


ENDPOINTS = [
    Endpoint("GET", "/health", health, answers={200: "alive"}),
    Endpoint("GET", "/ready", ready, answers={200: "ready", 503: "not ready"}),
]
