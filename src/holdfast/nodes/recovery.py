"""The runs of dead nodes: taken over, and gone on with or settled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from ..errors import AnswerLost, StoreUnavailable
from ..events import Notice, Source
from ..log.log import Log
from ..log.segment import segment_of
from ..runs.keeper import Keeper
from ..runs.pump import Pump, Shared
from ..runs.stored_log import read_back
from ..sessions.queue import SessionQueue
from ..store import RunRecord
from .intents import Intents
from .lease import DRAINING

logger = logging.getLogger(__name__)

BRIEF = 1.0
"""Seconds that a node which ends waits for the answer to a question."""

Again = Callable[[RunRecord, Log], Awaitable[Source | None]]
"""Makes a source that goes on with a run which another node has left. None if it cannot go on."""

Elsewhere = Callable[[RunRecord, Log], Awaitable[bool]]
"""Returns whether another node could go on with a run, because its upstream goes on without this one."""


class Recovery:
    """Takes up every run that this node owns and does not work on. Epochs only grow.

    Such a run was claimed from a dead node, or its start or claim was done by the store and the reply was lost.
    """

    def __init__(
        self,
        shared: Shared,
        keeper: Keeper,
        queue: SessionQueue,
        intents: Intents,
        lease: float,
        again: Again | None,
        elsewhere: Elsewhere | None,
        adopt: Callable[[RunRecord, Log], Pump],
    ) -> None:
        self._shared = shared
        self._store, self._retry, self._pumps = shared.store, shared.retry, shared.pumps
        self._keeper = keeper
        self._queue = queue
        self._intents = intents
        self._lease = lease
        self._again = again
        self._elsewhere = elsewhere
        self._adopt = adopt
        self._at_work: set[str] = set()

    async def look(self) -> None:
        """Claim the runs of dead nodes, and take up all that is not worked on here. Other tasks do the rest."""
        if self._shared.admission.closed:
            return
        owned = await self._store.claim(self._shared.node, self._lease * 2 / 3)
        for run_id, epoch in owned.items():
            if not self._is_here(run_id, epoch) and run_id not in self._at_work:
                self._at_work.add(run_id)
                self._shared.work.start(self.inherit(run_id, epoch))

    def _is_here(self, run_id: str, epoch: int) -> bool:
        pump = self._pumps.get(run_id)
        is_known = pump is not None and pump.run.status == "running" and pump.run.record.epoch >= epoch
        return is_known or self._queue.is_accepting(run_id)

    async def inherit(self, run_id: str, epoch: int) -> None:
        """Take up a run, unless it is worked on here after all. Under the session's lock none can start meanwhile."""
        try:
            record = await self._retry(lambda: self._store.get_run(run_id))
            if record is not None:
                async with self._queue.lock(record.session_id or run_id):
                    if not self._is_here(run_id, epoch):
                        await self._inherit(run_id)
        finally:
            self._at_work.discard(run_id)

    async def _inherit(self, run_id: str) -> None:
        log = await self._retry(lambda: self.read_back(run_id))
        record = await self._retry(lambda: self._store.get_run(run_id))
        stop = None if record is None else await self._intents.take_stop(record)
        if record is None or record.status != "running" or record.keeper != self._shared.node:
            return  # it has settled, or another node has it
        if self._shared.admission.closed:
            return
        if (slept := self._pumps.get(run_id)) is not None:
            self._keeper.lose(slept)
        logger.warning("run %s interrupted by an earlier crash", run_id)
        pump = self._adopt(record, log)
        if stop is not None:
            self._intents.stop_now(pump, stop)
        self._intents.hinted()  # for what else is asked of it

    # leaving

    async def leave_waiting(self) -> None:
        """Leave the runs that only wait for a person: another process goes on waiting."""
        await self._leave(self._waiting())

    async def leave_all_that_others_continue(self, find_others: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Leave the runs that wait, and those that another node can continue, if there is one that does not drain."""
        await self.briefly(find_others)
        pumps = self._waiting()
        if not all(node.counts.get(DRAINING) for node in self._shared.others):
            running = [pump for pump in self._pumps.running() if pump not in pumps]
            can_leave = await asyncio.gather(*map(self._can_leave, running))
            pumps += [pump for pump, can in zip(running, can_leave, strict=True) if can]
        await self._leave(pumps)

    def _waiting(self) -> list[Pump]:
        running = [pump for pump in self._pumps.running() if pump.run.waits and pump.run.kept]
        return [pump for pump in running if pump.run.record.lifetime == "detached"]

    async def _can_leave(self, pump: Pump) -> bool:
        """Return whether another node can go on with a run."""
        run = pump.run
        if self._elsewhere is None or not run.kept or run.record.lifetime != "detached":
            return False
        with contextlib.suppress(Exception):  # a run without a way to go on is stopped
            async with asyncio.timeout(BRIEF):
                return await self._elsewhere(run.record, pump.log)
        return False

    async def _leave(self, pumps: Sequence[Pump]) -> None:
        """Leave runs as they are to the other nodes, now. If the store is away, they follow when the lease ends.

        A run that was stopped, or has ended, meanwhile settles here: another node would go on with it.
        """
        left = [pump for pump in pumps if not pump.was_ended]
        for pump in left:
            self._keeper.lose(pump)
        if left:
            await self.briefly(lambda: self._give_up(left))

    async def _give_up(self, pumps: Sequence[Pump]) -> None:
        await self._store.give_up(self._shared.node, [pump.run.id for pump in pumps])
        await self._store.hint("left", [self._shared.node])

    async def briefly(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Ask something of the store, if there is one, that an ending node does not wait long for."""
        if self._shared.has_store:
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(BRIEF):
                    await self._shared.tasks.run(work())

    async def read_back(self, run_id: str) -> Log:
        """Return a run's log as the store has it."""
        return await read_back(self._store, run_id)

    async def resume(self, pump: Pump) -> Source:
        """Return a source that goes on where a dead node stopped. Without one the run is interrupted."""
        source = None
        try:
            async with asyncio.timeout(self._lease):
                source = await self._again(pump.run.record, pump.log) if self._again is not None else None
        except Exception:
            logger.exception("run %s could not be resumed", pump.run.id)
        if source is None:
            raise AnswerLost("The server ended while the answer was being generated.")
        pump.append(segment_of([Notice("resumed", "The server was started again, and the answer goes on.")]))
        return source
