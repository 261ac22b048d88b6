"""Background tasks: one that fails is logged, reported, and tried again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..errors import HoldfastError
from .retry import Backoff

logger = logging.getLogger(__name__)

PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""First and longest pause between a failure and the next try, in seconds."""

_Step = Callable[[], Awaitable[None]]


class Background:
    """The background tasks of a server, each under a name. Costs one task for each.

    A task is a step that is done once, or at intervals. A task whose last step failed is reported, until a step
    succeeds.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failing: dict[str, str] = {}

    @property
    def failing(self) -> dict[str, str]:
        """The errors of the tasks whose last step failed, by name."""
        return dict(self._failing)

    def once(self, name: str, step: _Step) -> None:
        """Do a step until it has succeeded once."""
        self._tasks[name] = asyncio.create_task(self._repeat(name, step, None, LONGEST_PAUSE))

    def every(
        self, name: str, seconds: float, step: _Step, *, first: float = 0.0, longest_pause: float = LONGEST_PAUSE
    ) -> None:
        """Do a step after `first` seconds, and then every so many seconds."""
        self._tasks[name] = asyncio.create_task(self._repeat(name, step, seconds, longest_pause, first))

    async def close(self, *names: str) -> None:
        """End the tasks that are named, or all."""
        tasks = [self._tasks.pop(name) for name in names or tuple(self._tasks) if name in self._tasks]  # in order
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _repeat(
        self, name: str, step: _Step, seconds: float | None, longest_pause: float, first: float = 0.0
    ) -> None:
        failures, backoff = 0, Backoff(PAUSE, longest_pause)
        await asyncio.sleep(first)
        while True:
            if await self._succeeds(name, step, failures):
                failures = 0
                backoff.reset()
                if seconds is None:
                    return
                await asyncio.sleep(seconds)
            else:
                failures += 1
                await asyncio.sleep(backoff.next())

    async def _succeeds(self, name: str, step: _Step, failures: int) -> bool:
        """Do a step; False if it failed. Only `close` ends the task."""
        task = asyncio.current_task()
        try:
            await step()
        except (Exception, asyncio.CancelledError) as error:
            if task is not None and task.cancelling():
                raise
            self._failing[name] = str(error) or type(error).__name__
            _log(name, error, failures + 1)
            return False
        if self._failing.pop(name, None) is not None:
            logger.warning("background task %s: recovered after %d failures", name, failures)
        return True


def _log(name: str, error: BaseException, failures: int) -> None:
    """Log the first failure in full, and of the further ones the 2nd, 4th, 8th and so on."""
    if failures & (failures - 1):
        return
    known = isinstance(error, HoldfastError)  # its message is enough
    logger.error("background task %s failed (%d times): %s", name, failures, error, exc_info=None if known else error)
