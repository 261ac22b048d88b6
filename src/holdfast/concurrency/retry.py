"""Retries: the pauses between tries, and calls to the store that are repeated until it answers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import StoreUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two tries to reach the store."""


class Backoff:
    """The pauses between the tries of one thing, in seconds. Each is twice the one before, up to the longest.

    `spread` has two factors: each pause is multiplied by a random number between them, so that the clients of a server
    that was away do not return at the same moment.
    """

    __slots__ = ("_first", "_longest", "_pause", "_spread")

    def __init__(self, first: float, longest: float, *, spread: tuple[float, float] | None = None) -> None:
        self._first = self._pause = first
        self._longest = longest
        self._spread = spread

    def next(self) -> float:
        """Return the pause before the next try."""
        pause, self._pause = self._pause, min(2 * self._pause, self._longest)
        return pause if self._spread is None else pause * random.uniform(*self._spread)

    def reset(self) -> None:
        """Begin with the first pause again, after a success."""
        self._pause = self._first


class Retry:
    """Repeats a call to the store until it answers. Every write can be repeated without harm."""

    def __init__(self) -> None:
        self.waiting = 0
        """Calls that wait for the store to come back."""
        self._is_closed = False

    async def __call__(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while the store is away. Any other error is raised."""
        try:
            return await ask()
        except StoreUnavailable as error:
            return await self._again(ask, error, StoreUnavailable)

    async def always(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until it succeeds, whatever it raises: without it a caller would wait for ever."""
        try:
            return await ask()
        except Exception as error:  # noqa: BLE001
            return await self._again(ask, error, Exception)

    def close(self) -> None:
        """Give up: from now on a call is tried once more at most, and then raises its error."""
        self._is_closed = True

    async def _again(self, ask: Callable[[], Awaitable[T]], error: Exception, expected: type[Exception]) -> T:
        backoff, is_new = Backoff(FIRST_PAUSE, LONGEST_PAUSE), not isinstance(error, StoreUnavailable)
        self.waiting += 1
        try:
            while not self._is_closed:
                pause = backoff.next()
                logger.warning(
                    "database unavailable, retrying in %.2f s: %s", pause, error, exc_info=error if is_new else None
                )
                await asyncio.sleep(pause)
                is_new = False
                try:
                    return await ask()
                except expected as again:
                    error = again
            raise error
        finally:
            self.waiting -= 1
