"""A limit of the time that work takes, without the time in which it only waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class TimeLimit:
    """An `asyncio.timeout` that can pause. None is no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._pauses = 0
        self._left = 0.0

    async def __aenter__(self) -> TimeLimit:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, trace)

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self._timeout.expired()

    def pause(self) -> None:
        """Let no time pass until each pause has ended."""
        self._pauses += 1
        until = self._timeout.when()
        if self._pauses == 1 and until is not None and not self.is_over:
            self._left = until - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)

    def go_on(self) -> None:
        """End a pause."""
        self._pauses -= 1
        if not self._pauses and self._left and not self.is_over:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)
            self._left = 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no time pass in the block."""
        self.pause()
        try:
            yield
        finally:
            self.go_on()
