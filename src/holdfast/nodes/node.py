"""This engine as one of the nodes on a store: its lease, and its work for and requests to the others."""

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
    """The classes of a node's parts. A test can replace a class by one with a mistake."""

    lease: type[Lease] = Lease
    recovery: type[Recovery] = Recovery
    intents: type[Intents] = Intents


@dataclass(frozen=True)
class NodeOptions:
    """The options of an engine whose store other nodes may share."""

    lease: float
    """Seconds after its last renewal until this node counts as dead."""
    details: NodeDetails
    counts: Counts
    serve: Serve | None
    follow: Follow | None
    unstored: Unstored | None
    again: Again | None
    elsewhere: Elsewhere | None


class Node:
    """The part of an engine that deals with other nodes. Without a store there are none.

    A loop renews the lease. Another one checks, three times per lease, for work of this node. Hints make it
    prompt; a lost hint delays it until the next check.
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
        self.lease = classes.lease(shared, options.lease, details, new_id, self._drop_all_of, self._on_hint, counts)
        self.holds, self.places = Holds(shared), SharedPlaces(shared)
        self.intents = classes.intents(shared, new_id, options.serve)
        self.unstored = UnstoredRuns(shared, options.unstored, options.follow)
        self.recovery = classes.recovery(runs, queue, self.intents, options.lease, options.again)
        self.handover = Handover(runs, options.elsewhere)
        # bound here, so that runs call them without another hop
        self.sure, self.renew, self.resume = self.lease.sure, self.lease.renew, self.recovery.resume
        self.store_now = self.lease.store_now
        self.ask_to_stop, self.changed = self.intents.stop, self.places.changed

    # joining and leaving

    async def join(self) -> None:
        """Hold the lease, take over the runs of dead nodes, and start queued runs."""
        if self._shared.has_store:
            await self.lease.hold()
            await self._shared.retry(self.look)
            every = self.lease.seconds / 3
            self._shared.background.every(
                "look", every, lambda: self._shared.retry(self.look), first=every, longest_pause=every
            )

    async def look(self) -> None:
        """Check for work: runs of dead nodes, requests to the runs of this node, sessions with queued runs."""
        await self._find_others()
        await self.recovery.look()
        await self.intents.look()
        await self._queue.look()
        await self.holds.look()

    async def _find_others(self) -> None:
        nodes = await self._shared.store.nodes()
        self._shared.others = [node for node in nodes if node.id != self._shared.node_id]

    def _on_hint(self, topic: str, id: str) -> None:
        """Handle a hint of another node. An empty or unknown topic means: check everything."""
        if topic == "session":
            self._queue.on_hint(self._watchers.apply(id))
        elif topic == "answer":
            self.intents.answered(id)
        elif topic == "intent":
            self.intents.hinted()
        elif topic == "held":
            self.holds.on_hint(id)
        elif topic in ("left", "joined"):
            self._look_soon()
        else:
            self._watchers.wake_all()
            self.intents.hinted()

    def _look_soon(self) -> None:
        """Check now, once for several hints: a node has joined or left."""
        if not self._is_looking:
            self._is_looking = True
            self._shared.tasks.start(self._look_now())

    async def _look_now(self) -> None:
        self._is_looking = False
        with contextlib.suppress(StoreUnavailable):  # the next check repeats it
            await self.look()

    def _drop_all_of(self, node: str) -> None:
        """Drop the runs and the work of a fenced id of this node: they belong to other nodes."""
        self.holds.drop()
        for pump in self._shared.pumps.running():
            if pump.run.kept and pump.run.record.node_id == node:
                self._keeper.lose(pump)

    async def drain(self) -> None:
        """Report to the other nodes that this one starts nothing new."""
        await self.handover.briefly(self.lease.renew)

    async def leave(self) -> None:
        """Release the lease."""
        if self._shared.has_store:
            await self.lease.release()

    # runs of other nodes

    def is_elsewhere(self, run: Run) -> bool:
        """Return whether an unsettled run belongs to another node, or to none."""
        return run.kept and run.settlement is None and run.id not in self._shared.pumps

    def log_of(self, record: RunRecord) -> StoredLog:
        """Return the log of a run that is not active here: followed at its owner, if it has one."""
        if self._follow is None or record.settlement is not None:
            return StoredLog(self._shared.store, record)
        return RemoteLog(self._shared.store, record, self._follow, self._address_of)

    def _address_of(self, node_id: str) -> str:
        """Return the address of another node; empty if it has none, or the node is not known yet."""
        return next((node.address for node in self._shared.others if node.id == node_id), "")

    async def stop(self, run: Run, by: StoppedBy) -> bool:
        """Stop a run of another node, and wait for its settlement. False if it was already ending."""
        if isinstance(run.log, UnstoredLog):
            return run.settlement is None and await self.unstored.stop(run.id, run.log, by)
        return self.is_elsewhere(run) and await self.intents.stop(run.id, by)

    async def learn(self, run: Run) -> None:
        """Wait for the settlement of a run that is not active here, and show it.

        A run that is missing was deleted with its session.
        """
        if isinstance(run.log, UnstoredLog):
            run.settle(await self.unstored.settlement(run.id, run.log))
        else:
            record = await self._settled(run.id)
            run.settle((record and record.settlement) or Stopped(by="user", text=run.text), record)

    async def _settled(self, run_id: str) -> RunRecord | None:
        """Poll a stored run until it has settled, and return it. None if it was deleted."""
        ask, store = self._shared.retry.always, self._shared.store
        while (record := await ask(lambda: store.get_run(run_id))) and record.settlement is None:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN)
        return record
