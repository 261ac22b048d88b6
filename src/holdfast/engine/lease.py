"""The lease of this process, and the runs that a dead process has left.

A process renews one lease, and every run that it owns lives by it. A run whose owner's lease has ended is adopted
under the next epoch: the old owner, should it only have slept, can no longer write to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..errors import AnswerLost
from ..events import Notice, Source
from ..log.log import Log
from ..log.segment import segment_of
from ..store import RunRecord
from .keeper import Keeper
from .pump import Pump, Shared

logger = logging.getLogger("holdfast")

NOBODY = ""
"""An owner without a lease. What is claimed for it, and then left because the store fails, can be claimed again."""

Again = Callable[[RunRecord, Log], Awaitable[Source | None]]
"""Makes a source that goes on with a run which another process has left. None if it cannot go on."""


class Lease:
    """Says that this process is alive, and takes over the runs of processes that no longer say so.

    Epochs only grow.
    """

    def __init__(
        self,
        shared: Shared,
        keeper: Keeper,
        seconds: float,
        again: Again | None,
        adopt: Callable[[RunRecord, Log], None],
        start_next: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self._shared = shared
        self._store, self._retry = shared.store, shared.retry
        self._keeper = keeper
        self._seconds = seconds
        self._again = again
        self._adopt = adopt
        self._start_next = start_next

    async def hold(self) -> None:
        """Take the lease and settle what dead processes have left, now and then three times in each lease."""
        await self._retry(self.beat)
        every = self._seconds / 3
        self._shared.background.every("lease", every, lambda: self._retry(self.beat), first=every, longest_pause=every)

    async def renew(self) -> None:
        """Say that this process is alive."""
        await self._store.renew(self._shared.node, self._shared.clock() + self._seconds)

    async def release(self) -> None:
        """End the lease, so that whatever is left may be adopted at once. If that fails, it ends by itself."""
        try:
            await self._store.renew(self._shared.node, 0.0)
        except Exception as error:  # noqa: BLE001
            logger.warning("could not release the lease of this process: %s", error)

    async def beat(self) -> None:
        """Renew the lease, then find the runs of those who did not, and what waits. Other tasks do the rest.

        One look at the clock serves both: if it jumped in between, this process would take its own runs for orphans.
        """
        now = self._shared.clock()
        await self._store.renew(self._shared.node, now + self._seconds)
        for orphan in await self._store.claim(NOBODY, now):
            self._shared.work.start(self.inherit(orphan))
        waiting = [
            pump.run.record.session_id or "" for pump in self._shared.pumps.values() if pump.run.status == "queued"
        ]
        for session_id in dict.fromkeys([*waiting, *await self._store.waiting_sessions()]):
            self._shared.work.start(self._start_next(session_id))

    async def inherit(self, orphan: RunRecord) -> None:
        """Take over a run that a dead process left, with everything that anybody can have seen of it."""
        log = await self._retry(lambda: self.read_back(orphan.id))
        record = await self._retry(lambda: self._store.adopt(orphan.id, orphan.epoch, self._shared.node))
        if record is None:
            return  # another process has it
        if (slept := self._shared.pumps.get(record.id)) is not None:
            self._keeper.lose(slept)  # it was ours before, and taken from us while we slept
        logger.warning("run %s interrupted by an earlier crash", record.id)
        self._adopt(record, log)

    async def read_back(self, run_id: str) -> Log:
        """Return a run's log as the store has it."""
        log = Log(run_id)
        while events := await self._store.read_log(run_id, log.seq):
            log.append(segment_of(events))
            log.publish(log.appended)
        return log

    async def resume(self, pump: Pump) -> Source:
        """Return a source that goes on where a dead process stopped. Without one the run is interrupted."""
        source = None
        try:
            async with asyncio.timeout(self._seconds):
                source = await self._again(pump.run.record, pump.log) if self._again is not None else None
        except Exception:
            logger.exception("run %s could not be resumed", pump.run.id)
        if source is None:
            raise AnswerLost("The server ended while the answer was being generated.")
        pump.append(segment_of([Notice("resumed", "The server was started again, and the answer goes on.")]))
        return source
