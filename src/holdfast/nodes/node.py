"""This engine as one of the nodes on a store: what it does for the others, and what it asks of them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from ..errors import StoreUnavailable
from ..events import Stopped, StoppedBy
from ..ids import NewId
from ..runs.run import Run
from ..runs.runs import Runs
from ..runs.stored_log import LOOK_AGAIN, StoredLog
from ..sessions.changes import SessionWatchers
from ..sessions.queue import SessionQueue
from ..store import RunRecord
from ..store.records import NodeDetails
from .handover import Elsewhere, Handover
from .holds import Holds
from .intents import Intents, Serve
from .lease import Counts, Lease
from .places import SharedPlaces
from .recovery import Again, Recovery
from .remote_log import Follow, RemoteLog
from .unstored import Unstored, UnstoredLog, UnstoredRuns


@dataclass(frozen=True, kw_only=True)
class NodeClasses:
    """The classes that a node is made of. A test can replace one by one with a mistake in it."""

    lease: type[Lease] = Lease
    recovery: type[Recovery] = Recovery
    intents: type[Intents] = Intents


@dataclass(frozen=True)
class NodeOptions:
    """What a program gives its engine for the case that other nodes share its store."""

    lease: float
    """Seconds after its last renewal at which this node is taken for dead."""
    details: NodeDetails
    counts: Counts
    serve: Serve | None
    follow: Follow | None
    unstored: Unstored | None
    again: Again | None
    elsewhere: Elsewhere | None


class Node:
    """The part of an engine that knows of other nodes. Without a store there are none.

    A loop renews the lease. Another one looks, three times in a lease, for what this node has to do. Hints make it
    prompt; a lost hint costs one look.
    """

    def __init__(
        self,
        runs: Runs,
        queue: SessionQueue,
        watchers: SessionWatchers,
        new_id: NewId,
        options: NodeOptions,
        classes: NodeClasses,
    ) -> None:
        self._shared, self._keeper, self._queue, self._watchers = runs.shared, runs.keeper, queue, watchers
        self._follow = options.follow
        self._is_looking = False
        shared, details, counts = runs.shared, options.details, options.counts
        self.lease = classes.lease(shared, options.lease, details, new_id, self._drop_all_of, self._hear, counts)
        self.holds, self.places = Holds(shared), SharedPlaces(shared)
        self.intents = classes.intents(shared, new_id, options.serve)
        self.unstored = UnstoredRuns(shared, options.unstored, options.follow)
        self.recovery = classes.recovery(runs, queue, self.intents, options.lease, options.again)
        self.handover = Handover(runs, options.elsewhere, self._find_others)
        # for its runs: no call is added on their way
        self.sure, self.renew, self.resume = self.lease.sure, self.lease.renew, self.recovery.resume
        self.ask_to_stop, self.changed = self.intents.stop, self.places.changed

    # its life

    async def join(self) -> None:
        """Hold the lease, settle what dead nodes left, go on with what was queued."""
        if self._shared.has_store:
            await self.lease.hold()
            await self._shared.retry(self.look)
            every = self.lease.seconds / 3
            self._shared.background.every(
                "look", every, lambda: self._shared.retry(self.look), first=every, longest_pause=every
            )

    async def look(self) -> None:
        """Find what this node has to do: what dead nodes left, requests to its runs, sessions in which a run waits."""
        await self._find_others()
        await self.recovery.look()
        await self.intents.look()
        await self._queue.look()
        await self.holds.look()

    async def _find_others(self) -> None:
        nodes = await self._shared.store.nodes()
        self._shared.others = [node for node in nodes if node.id != self._shared.node_id]

    def _hear(self, topic: str, id: str) -> None:
        """Take a hint of another node. An unknown one, or none of a kind, asks for a look at everything."""
        if topic == "session":
            self._queue.hear(self._watchers.hear(id))
        elif topic == "answer":
            self.intents.answered(id)
        elif topic == "intent":
            self.intents.hinted()
        elif topic == "held":
            self.holds.hear(id)
        elif topic in ("left", "joined"):
            self._look_soon()
        else:
            self._watchers.wake_all()
            self.intents.hinted()

    def _look_soon(self) -> None:
        """Look now, once for all hints of the moment: a node has left something."""
        if not self._is_looking:
            self._is_looking = True
            self._shared.tasks.start(self._look_now())

    async def _look_now(self) -> None:
        self._is_looking = False
        with contextlib.suppress(StoreUnavailable):  # the next look repeats it
            await self.look()

    def _drop_all_of(self, node: str) -> None:
        """Drop the runs and the work of an id of this node that was fenced: they belong to others."""
        self.holds.drop()
        for pump in self._shared.pumps.running():
            if pump.run.kept and pump.run.record.keeper == node:
                self._keeper.lose(pump)

    async def drain(self) -> None:
        """Tell the others that this node starts nothing new."""
        await self.handover.briefly(self.lease.renew)

    async def leave(self) -> None:
        """Release the lease."""
        if self._shared.has_store:
            await self.lease.release()

    # the runs of others

    def is_elsewhere(self, run: Run) -> bool:
        """Return whether a run that has not settled is worked on by another node, or by none."""
        return run.kept and run.settlement is None and run.id not in self._shared.pumps

    def log_of(self, record: RunRecord) -> StoredLog:
        """Return the log of a run that is not worked on here: followed at its owner, if it has one."""
        if self._follow is None or record.settlement is not None:
            return StoredLog(self._shared.store, record)
        return RemoteLog(self._shared.store, record, self._follow, self._address_of)

    def _address_of(self, keeper: str) -> str:
        """Return the address of another node; empty if it has none, or is not known yet."""
        return next((node.address for node in self._shared.others if node.id == keeper), "")

    async def stop(self, run: Run, by: StoppedBy) -> bool:
        """Stop a run of another node, and wait for its settlement. False if it was ending before."""
        if isinstance(run.log, UnstoredLog):
            return run.settlement is None and await self.unstored.stop(run.id, run.log, by)
        return self.is_elsewhere(run) and await self.intents.stop(run.id, by)

    async def learn(self, run: Run) -> None:
        """Wait for the settlement of a run that is not worked on here, and show it.

        A run that is missing was deleted with its session.
        """
        if isinstance(run.log, UnstoredLog):
            run.settle(await self.unstored.settlement(run.id, run.log))
        else:
            record = await self._settled(run.id)
            run.settle((record and record.settlement) or Stopped(by="user", text=run.text), record)

    async def _settled(self, run_id: str) -> RunRecord | None:
        """Look at a stored run until it has settled, and return it. None if it is gone."""
        ask, store = self._shared.retry.always, self._shared.store
        while (record := await ask(lambda: store.get_run(run_id))) and record.settlement is None:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN)
        return record
