"""The log of a run of another node, followed there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from ..events import Event, Settled
from ..log.segment import NOTHING, Segment
from ..runs.stored_log import StoredLog
from ..store import RunRecord, Store
from ..watchers import Watchers

SILENCE = 1.5
"""Seconds without a message of the owner after which the store is read."""
POLL = 0.25
"""Seconds between two reads of the store."""
AHEAD = 2_000
"""Maximum number of buffered events. Then reading from the owner pauses."""
AGAIN = 1.0
"""Seconds between two attempts to follow an owner."""

Take = Callable[[int, Segment], Awaitable[None]]
"""Called with events as they arrive and the seq of the first; without events for a heartbeat of the owner."""


class Follow(Protocol):
    """Follows a log at the node that owns it, and returns or raises when that ends. `hold` counts as its client."""

    async def __call__(self, address: str, run_id: str, after: int, *, hold: bool, take: Take) -> None: ...


class RemoteLog(StoredLog):
    """Read like a live log, by one reader. The owner sends saved events only, so the store can always replace it."""

    pause = POLL

    def __init__(self, store: Store, record: RunRecord, follow: Follow, address_of: Callable[[str], str]) -> None:
        super().__init__(store, record)
        self._follow = follow
        self._address_of = address_of
        self._watchers = Watchers()
        self._task: asyncio.Task[None] | None = None
        self._events: list[Event] = []
        self._after = 0
        self._last_sign_at = float("-inf")
        self._room = asyncio.Event()

    async def batch(self, after: int) -> Segment:
        """Return the next events after `after`, from the owner or else from the store."""
        if self._task is None and len(self._watchers) and not self.closed:
            self._task = asyncio.create_task(self._follow_owner(after))
        if 0 <= (skipped := after - self._after) < len(self._events):
            events, self._after, self._events = self._events[skipped:], self._after + len(self._events), []
            self._room.set()
            return await self._with_end(events)
        if self.is_followed and after == self._after + len(self._events):
            return NOTHING
        return await self._stored(after)

    async def _stored(self, after: int) -> Segment:
        return await super().batch(after)

    @property
    def is_followed(self) -> bool:
        """True if a message of the owner came in the last `SILENCE` seconds."""
        return asyncio.get_running_loop().time() - self._last_sign_at < SILENCE

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, and at intervals, until the returned function is called."""
        unwatch, untime = self._watchers.watch(wake), super().watch(wake)

        def leave() -> None:
            unwatch()
            untime()
            if not len(self._watchers) and self._task is not None:
                self._task.cancel()

        return leave

    async def _follow_owner(self, after: int) -> None:
        """Follow the owner, which may change, from the reader's position."""
        self._after, self._events = after, []
        while not self.closed:
            if address := await self._address():
                at = self._after + len(self._events)
                try:
                    await self._follow(address, self.record.id, at, hold=self.hold, take=self._take)
                except (OSError, EOFError, ValueError, TimeoutError):
                    self._last_sign_at = float("-inf")
            await asyncio.sleep(AGAIN)

    async def _address(self) -> str:
        """Return the address of the current owner; empty if it is not known."""
        record = await self._store.get_run(self.record.id)
        return "" if record is None else self._address_of(record.node_id)

    async def _take(self, first: int, segment: Segment) -> None:
        """Buffer events for the reader. A wrong seq ends the connection."""
        self._last_sign_at = asyncio.get_running_loop().time()
        if not segment:
            return
        if first != self._after + len(self._events) + 1:
            raise ValueError(f"event {first} of run {self.record.id} is not the next")
        self._events += segment
        self.closed = isinstance(self._events[-1], Settled)
        self._watchers.notify()
        while len(self._events) > AHEAD:
            self._room.clear()
            await self._room.wait()
