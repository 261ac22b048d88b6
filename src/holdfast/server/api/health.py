"""`/health` and `/ready`."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import ANYONE
from ...errors import HoldfastError, ShuttingDown, StoreUnavailable
from ..accounts.keys import KeysUnavailable
from ..errors import Json
from ..routing import Endpoint
from ..services import Parts


class TaskFailing(HoldfastError):
    """A background task of the server has failed, and is being retried."""

    code = "task_failing"
    status = 503
    retry_after = 2.0

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(f"Background tasks fail: {', '.join(sorted(names))}. The server's log says why.")


async def health(parts: Parts, request: Request) -> ASGIApp:
    """Return 200: the process is alive."""
    return Json({"status": "ok"})


async def ready(parts: Parts, request: Request) -> ASGIApp:
    """Return 200 if the store reads and writes and new runs are accepted. Without keys, with the number of runs."""
    if parts.engine.closing:
        raise ShuttingDown
    if parts.engine.store_is_away:
        raise StoreUnavailable("The store cannot be reached, or refuses to write. The server's log says why.")
    if parts.keys.is_stale:
        raise KeysUnavailable
    await parts.store.list_runs(status="running", limit=1)  # first: tasks fail if the store is not reachable
    if failing := parts.background.failing | parts.engine.failing:
        raise TaskFailing(failing)
    await parts.store_check.passes()
    return Json({"status": "ready", **({"runs": len(parts.engine.live())} if not parts.keys.is_needed else {})})


ENDPOINTS = [
    Endpoint("GET", "/health", health, who=ANYONE, answers={200: "alive"}),
    Endpoint("GET", "/ready", ready, who=ANYONE, answers={200: "ready", 503: "not ready"}),
]
