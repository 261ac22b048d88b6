"""A check that the store can write, at most once a second: its callers need no key."""

from __future__ import annotations

import asyncio

from ....engine.core import Core

KEPT = 1.0
"""Seconds for which the result of a check is valid."""


class StoreCheck:
    """The check, shared by concurrent callers."""

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
