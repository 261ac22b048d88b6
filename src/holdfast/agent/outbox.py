"""What an agent at work has to say, on its way to the run."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from ..errors import RunSettled
from ..events import ToolProgress, Yielded

MOST = 64
"""Sayings that may wait; then the speaker waits too, as it must while the store is away."""
PROGRESS_EVERY = 0.1
"""Seconds between two reports of one call. What comes in between is left out."""

Saying = tuple[Sequence[Yielded], asyncio.Future[None] | None]


class Outbox:
    """Model, tools and people speak into it at any time; the run's source reads it in order."""

    def __init__(self, run_id: str = "") -> None:
        self._run_id = run_id
        self._waiting: deque[Saying] = deque()
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._reported: dict[str, float] = {}
        self._taken: list[asyncio.Future[None]] = []
        self._is_over = False

    def put(self, *events: Yielded) -> None:
        """Say something, now."""
        self._waiting.append((events, None))
        self._more.set()

    async def say(self, events: Sequence[Yielded]) -> None:
        """Say something as soon as there is room."""
        while len(self._waiting) >= MOST:
            self._room.clear()
            await self._room.wait()
        self.put(*events)

    async def tell(self, *events: Yielded) -> None:
        """Say something, now, and wait until the run has taken it. `RunSettled` where it never will."""
        if self._is_over:
            raise RunSettled(self._run_id)
        taken = asyncio.get_running_loop().create_future()
        self._waiting.append((events, taken))
        self._more.set()
        await taken

    def report(self, progress: ToolProgress) -> None:
        """Say how far a call is, unless it has been said only just now."""
        now = time.monotonic()
        if now - self._reported.get(progress.id, 0.0) >= PROGRESS_EVERY:
            self._reported[progress.id] = now
            self.put(progress)

    def end(self) -> None:
        """Say that nothing more will come."""
        self._is_over = True
        self._more.set()

    async def next(self, beat: float) -> list[Yielded] | None:
        """Return what has been said since the last time; nothing after `beat` seconds of silence, None at the end."""
        self._confirm()
        if not self._waiting and not self._is_over:
            self._more.clear()
            try:
                async with asyncio.timeout(beat):
                    await self._more.wait()
            except TimeoutError:
                return []
        if not self._waiting:
            return None
        return self._take_all()

    def _take_all(self) -> list[Yielded]:
        events: list[Yielded] = []
        while self._waiting:
            said, taken = self._waiting.popleft()
            events += said
            if taken is not None:
                self._taken.append(taken)
        self._room.set()
        return events

    def _confirm(self) -> None:
        """Tell those who wait that the run has taken what was read last: it asks for more."""
        for taken in self._taken:
            if not taken.done():
                taken.set_result(None)
        self._taken.clear()

    def close(self) -> None:
        """Tell those who still wait that nobody reads any more."""
        self._is_over = True
        unheard = [taken for _, taken in self._waiting if taken is not None]
        self._waiting.clear()
        self._room.set()
        for taken in (*self._taken, *unheard):
            if not taken.done():
                taken.set_exception(RunSettled(self._run_id))
                taken.exception()  # whoever waited may have been cancelled
        self._taken.clear()
