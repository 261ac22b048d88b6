"""`/health` and `/ready`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ANYONE
from ....engine.core import Core
from ....errors import HoldfastError, ShuttingDown, StoreUnavailable
from ....store import Store
from ...config.current import CurrentSettings
from ...kit.chores import Chores
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ..accounts.keys import Keys, KeysUnavailable

KEPT = 1.0
"""Seconds for which the result of a check is valid."""


class StoreCheck:
    """A check that the store can write, at most once a second and shared by concurrent callers: they need no key."""

    def __init__(self, engine: Core) -> None:
        self._engine = engine
        self._checking: asyncio.Task[None] | None = None
        self._began = 0.0

    async def passes(self) -> None:
        """Return if the store can write, else raise `StoreUnavailable`."""
        now = asyncio.get_running_loop().time()
        if self._checking is None or (self._checking.done() and now - self._began >= KEPT):
            self._began = now
            self._checking = asyncio.create_task(self._engine.check_store())
            self._checking.add_done_callback(lambda task: task.cancelled() or task.exception())  # retrieves it
        await asyncio.shield(self._checking)


class TaskFailing(HoldfastError):
    """A background task of the server has failed, and is being retried."""

    code = "task_failing"
    status = 503
    retry_after = 2.0

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(f"Background tasks fail: {', '.join(sorted(names))}. The server's log says why.")


class HealthApi(Feature):
    """Tells whether the server works."""

    def __init__(self, current: CurrentSettings, keys: Keys, chores: Chores, engine: Core, store: Store) -> None:
        self._current, self._keys = current, keys
        self._chores, self._engine, self._store = chores, engine, store
        self._store_check = StoreCheck(engine)

    @Endpoint("GET", "/health", who=ANYONE)
    async def health(self, request: Request) -> ASGIApp:
        """Return 200: the process is alive. Through the socket in the data folder, with the URL of its port."""
        is_by_socket = request.client is None
        return Json({"status": "ok", **({"url": self._current.url} if is_by_socket and self._current.url else {})})

    @Endpoint("GET", "/ready", who=ANYONE, answers={503: "not ready"})
    async def ready(self, request: Request) -> ASGIApp:
        """Return 200 if the store reads and writes and new runs are accepted. Without keys, with the number of runs."""
        if self._engine.closing:
            raise ShuttingDown
        if self._engine.store_is_away:
            raise StoreUnavailable("The store cannot be reached, or refuses to write. The server's log says why.")
        if self._keys.is_stale:
            raise KeysUnavailable
        await self._store.list_runs(status="running", limit=1)  # first: tasks fail if the store is not reachable
        if failing := self._chores.failing | self._engine.failing:
            raise TaskFailing(failing)
        await self._store_check.passes()
        return Json({"status": "ready", **({"runs": len(self._engine.live())} if not self._keys.is_needed else {})})
