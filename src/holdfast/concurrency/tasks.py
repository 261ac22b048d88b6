"""Tasks that an object owns: each is held until it ends, and each failure is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..errors import HoldfastError, ShuttingDown

logger = logging.getLogger(__name__)
T = TypeVar("T")


class OwnedTasks:
    """The tasks of one owner, which `owner` names in the log. asyncio itself holds tasks only weakly."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their start, which a set does not keep

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in a task."""
        self.hold(asyncio.create_task(work))

    def hold(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until it ends, and log its failure."""
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in a task, and return the task."""
        task = asyncio.create_task(work)
        self.hold(task)
        return task

    async def run(self, work: Coroutine[Any, Any, T], *, if_left: Callable[[], None] | None = None) -> T:
        """Run a coroutine to its end, and wait for it. A cancel of the caller does not reach it.

        `if_left` is called at the end of the work if the caller was cancelled before.
        A `HoldfastError` is for the caller, and is never logged. `ShuttingDown` if the work is cut short by `cancel`.
        """
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._answered)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ShuttingDown from None
            if if_left is not None:
                task.add_done_callback(lambda _: if_left())
            raise

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until the tasks of this moment have ended, or until the timeout."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout)

    async def cancel(self) -> None:
        """Cancel every task, and wait until they have ended."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait()

    def _answered(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HoldfastError):
            self._log(error)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log(error)

    def _log(self, error: BaseException) -> None:
        known = isinstance(error, HoldfastError)  # its message is enough
        logger.error("a task of %s failed: %s", self._owner, error, exc_info=None if known else error)
