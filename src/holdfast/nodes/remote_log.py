"""The log of a run that another node works on, followed there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from ..concurrency.watchers import Watchers
from ..events import Event, Settled
from ..log.segment import NOTHING, Segment, segment_of
from ..runs.stored_log import StoredLog
from ..store import RunRecord, Store

SILENCE = 1.5
"""Seconds without a sign of the owner after which the store is asked."""
POLL = 0.25
"""Seconds between two looks at the store."""
AHEAD = 2_000
"""Events of the owner that may wait for the reader; then the connection waits."""
AGAIN = 1.0
"""Seconds between two tries to follow an owner."""

Take = Callable[[int, Segment], Awaitable[None]]
"""Called with events as they arrive and the number of the first; without any if the owner only shows that it lives."""


class Follow(Protocol):
    """Follows a log at the node that owns it, and returns or raises when that ends. `hold` stands for its client."""

    async def __call__(self, address: str, run_id: str, after: int, *, hold: bool, take: Take) -> None: ...


class RemoteLog(StoredLog):
    """Read like a live log, by one reader. What the owner shows is saved: the store can stand in at any time."""

    pause = POLL

    def __init__(self, store: Store, record: RunRecord, follow: Follow, address_of: Callable[[str], str]) -> None:
        super().__init__(store, record)
        self._follow = follow
        self._address_of = address_of
        self._watchers = Watchers()
        self._task: asyncio.Task[None] | None = None
        self._events: list[Event] = []
        self._after = 0
        self._heard_at = float("-inf")
        self._room = asyncio.Event()

    async def batch(self, after: int) -> Segment:
        """Return the next events after `after`: what the owner has sent, or what the store has."""
        if self._task is None and len(self._watchers) and not self.closed:
            self._task = asyncio.create_task(self._follow_owner(after))
        if 0 <= (known := after - self._after) < len(self._events):
            events, self._after, self._events = self._events[known:], self._after + len(self._events), []
            self._room.set()
            return segment_of(events)
        if self.is_followed and after == self._after + len(self._events):
            return NOTHING
        return await self._stored(after)

    async def _stored(self, after: int) -> Segment:
        return await super().batch(after)

    @property
    def is_followed(self) -> bool:
        """The owner was heard a moment ago."""
        return asyncio.get_running_loop().time() - self._heard_at < SILENCE

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, and every now and then, until the returned function is called."""
        unwatch, untime = self._watchers.watch(wake), super().watch(wake)

        def leave() -> None:
            unwatch()
            untime()
            if not len(self._watchers) and self._task is not None:
                self._task.cancel()

        return leave

    async def _follow_owner(self, after: int) -> None:
        """Follow the owner, which may become another, from the reader's place."""
        self._after, self._events = after, []
        while not self.closed:
            if address := await self._address():
                at = self._after + len(self._events)
                try:
                    await self._follow(address, self._record.id, at, hold=self.hold, take=self._take)
                except (OSError, EOFError, ValueError, TimeoutError):
                    self._heard_at = float("-inf")
            await asyncio.sleep(AGAIN)

    async def _address(self) -> str:
        """Return where the owner is now; empty if that is not known."""
        record = await self._store.get_run(self._record.id)
        return "" if record is None else self._address_of(record.keeper)

    async def _take(self, first: int, segment: Segment) -> None:
        """Keep events for the reader. A number that is not the next ends the connection."""
        self._heard_at = asyncio.get_running_loop().time()
        if not segment:
            return
        if first != self._after + len(self._events) + 1:
            raise ValueError(f"event {first} of run {self._record.id} is not the next")
        self._events += segment
        self.closed = isinstance(self._events[-1], Settled)
        self._watchers.notify()
        while len(self._events) > AHEAD:
            self._room.clear()
            await self._room.wait()
