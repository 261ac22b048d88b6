"""The runs of dead nodes: taken over, then continued or settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..errors import AnswerLost
from ..events import Notice, Source
from ..log.log import Log
from ..log.segment import segment_of
from ..runs.pump import Pump
from ..runs.runs import Runs
from ..runs.stored_log import read_back
from ..sessions.queue import SessionQueue
from ..store import RunRecord
from .intents import Intents

logger = logging.getLogger(__name__)

Again = Callable[[RunRecord, Log], Awaitable[Source | None]]
"""Returns a source that continues the run of another node; None if it cannot be continued."""


class Recovery:
    """Takes up every run that this node owns and that is not active in it. Epochs only grow.

    Such a run was claimed from a dead node, or the store's reply to its start or claim was lost.
    """

    def __init__(
        self,
        runs: Runs,
        queue: SessionQueue,
        intents: Intents,
        lease: float,
        again: Again | None,
    ) -> None:
        self._runs, self.shared = runs, runs.shared
        self._store, self._retry, self._pumps = runs.shared.store, runs.shared.retry, runs.shared.pumps
        self._queue = queue
        self._intents = intents
        self._lease = lease
        self._again = again
        self._at_work: set[str] = set()

    async def look(self) -> None:
        """Claim the runs of dead nodes, and take up, in tasks, all that are not active here."""
        if self.shared.admission.closed:
            return
        for run_id, epoch in (await self.claim()).items():
            if not self._is_here(run_id, epoch) and run_id not in self._at_work:
                self._at_work.add(run_id)
                self.shared.work.start(self.inherit(run_id, epoch))

    async def claim(self) -> dict[str, int]:
        """Take over the runs of dead nodes, and return the epochs of all runs that this node then owns.

        No node is taken for dead until this one has renewed its lease for a while: after an outage of the store the
        others need as long to renew theirs.
        """
        return await self._store.claim(self.shared.node_id, self._lease * 2 / 3)

    def _is_here(self, run_id: str, epoch: int) -> bool:
        pump = self._pumps.get(run_id)
        is_known = pump is not None and pump.run.status == "running" and pump.run.record.epoch >= epoch
        return is_known or self._queue.is_accepting(run_id)

    async def inherit(self, run_id: str, epoch: int) -> None:
        """Take up a run, unless it is active here. Under the session's lock no other can start meanwhile."""
        try:
            record = await self._retry(lambda: self._store.get_run(run_id))
            if record is not None:
                async with self._queue.lock(record.session_id or run_id):
                    if not self._is_here(run_id, epoch):
                        await self._inherit(run_id)
        finally:
            self._at_work.discard(run_id)

    async def _inherit(self, run_id: str) -> None:
        log = await self._retry(lambda: read_back(self._store, run_id))
        record = await self._retry(lambda: self._store.get_run(run_id))
        stop = None if record is None else await self._intents.take_stop(record)
        if record is None or record.status != "running" or record.node_id != self.shared.node_id:
            return  # it has settled, or belongs to another node
        if self.shared.admission.closed:
            return
        if (slept := self._pumps.get(run_id)) is not None:
            self._runs.keeper.lose(slept)
        logger.warning("run %s was left by a server that has ended", run_id)
        pump = self._runs.adopt(record, log)
        if stop is not None:
            self._intents.stop_now(pump, stop)
        self._intents.hinted()  # other requests to it may be open

    async def resume(self, pump: Pump) -> Source:
        """Return a source that continues where a dead node stopped. Without one the run is interrupted."""
        source = None
        try:
            async with asyncio.timeout(self._lease):
                source = await self._again(pump.run.record, pump.log) if self._again is not None else None
        except Exception:
            logger.exception("run %s could not be resumed", pump.run.id)
        if source is None:
            raise AnswerLost("The server ended while the response was being generated.")
        pump.append(segment_of([Notice("resumed", "The server was started again, and the answer goes on.")]))
        return source
