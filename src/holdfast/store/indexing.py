"""The search index of a store, completed while the store is used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ..errors import StoreUnavailable

logger = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds: what is indexed together costs less


class Indexer:
    """Adds words to the index soon after messages are stored, so that a search finds little left to add.

    A task begins with a write and ends when there are no more: none is left while nothing is written. Nothing depends
    on it. A search adds what is missing itself, also what a process left that was killed.
    """

    def __init__(self, index: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._index = index
        self._task: asyncio.Task[None] | None = None
        self._is_due = False

    def begin(self) -> None:
        """Index what was stored: now, or after the pause if that was done a moment ago."""
        self._is_due = True
        if self._own_task() is None:
            self._task = asyncio.create_task(self._work())

    async def end(self) -> None:
        """End the task. What it is writing is written, and the rest is left."""
        if (task := self._own_task()) is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _own_task(self) -> asyncio.Task[None] | None:
        """Return the task that is at work. One of another event loop may never end: that loop may have ended."""
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return None
        return task

    async def _work(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                await self._index()
            except StoreUnavailable as error:
                logger.debug("the search index is not complete; the next search tries again: %s", error)
            await asyncio.sleep(_PAUSE)
