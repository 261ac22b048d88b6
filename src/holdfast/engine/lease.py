"""The lease of this node: every run that it owns lives by it, and every piece of work that it holds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ..errors import RunLimitReached, StoreUnavailable
from ..ids import NewId
from ..runs.admission import Places
from ..runs.pump import Shared
from ..runs.run import Run
from ..store.nodes import UNSTORED, RunsElsewhere
from ..store.records import NodeDetails

logger = logging.getLogger(__name__)

JOINED = 0.05
"""Seconds in which changes of the runs that are not stored become one renewal of the lease."""
PATIENCE = 1.0
"""Seconds that a start waits for the number of runs at other nodes, and an end for the release of its lease."""
LAST_STEPS = 3.0
"""Seconds that the end of a node may take after the last settlement: other work, tasks, the release of its lease."""
DRAINING = "draining"
"""The count of a node that is 1 while it ends: it starts nothing new."""

Counts = Callable[[], dict[str, int]]
"""Returns what this node tells the others of itself with each renewal, besides what the engine tells."""

Hear = Callable[[str, str], None]
"""Called with the topic and the id of a hint. Both are empty if hints may have been lost."""


class Lease:
    """Says that this node is alive, in a loop of its own that nothing else can delay.

    Here a lease ends no later than in the store: it is counted from before the renewal was asked for, on a clock that
    never jumps. A node that was fenced drops its runs and goes on under a new id.
    """

    def __init__(
        self,
        shared: Shared,
        seconds: float,
        details: NodeDetails,
        new_id: NewId,
        drop: Callable[[str], None],
        hear: Hear,
        counts: Counts = dict,
    ) -> None:
        self._shared = shared
        self._counts = counts
        self._store = shared.store
        self.seconds = seconds
        self._details = details
        self._new_id = new_id
        self._drop = drop
        self._hear = hear
        self._until = 0.0
        self._unlisten: Callable[[], None] | None = None

    @property
    def is_held(self) -> bool:
        """No other node can have fenced this one."""
        return asyncio.get_running_loop().time() < self._until

    async def hold(self) -> None:
        """Take the lease, and renew it three times in its length."""
        await self._shared.retry(self.renew)
        with contextlib.suppress(StoreUnavailable):
            await self._store.hint("joined", [self._shared.node])  # limits of the others count its runs from now on
        every = self.seconds / 3
        self._shared.background.every(
            "lease", every, lambda: self._shared.retry(self.renew), first=every, longest_pause=every
        )

    async def renew(self) -> None:
        """Say that this node is alive. A fenced node begins anew."""
        asked, node = asyncio.get_running_loop().time(), self._shared.node
        if self._unlisten is None:
            self._unlisten = self._store.listen(node, self._hear)
        if await self._store.renew(node, self.seconds, self._told()) is not None:
            self._until = max(self._until, asked + self.seconds)
        elif node == self._shared.node:
            self._begin_anew(node)
            await self.renew()

    def _told(self) -> NodeDetails:
        counts = {**self._counts(), **counts_of_node(self._shared)}
        return NodeDetails(address=self._details.address, version=self._details.version, counts=counts)

    def _begin_anew(self, node: str) -> None:
        logger.warning("this node was taken for dead: its runs belong to others, and it takes a new id")
        self._until = 0.0
        self._shared.node = self._new_id("eng")
        self._end_listening()
        self._drop(node)

    async def sure(self) -> None:
        """Renew the lease if it may have ended: after a long pause of this process its runs may belong to others."""
        if not self.is_held:
            await self._shared.tasks.run(self.renew())

    async def release(self) -> None:
        """End the lease, so that others may take what is left at once. If that fails, it ends by itself."""
        self._end_listening()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._store.release(self._shared.node)
                await self._store.hint("left", [self._shared.node])
        except Exception as error:  # noqa: BLE001
            logger.warning("could not release the lease of this node: %s", error)

    def _end_listening(self) -> None:
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None


def counts_of_node(shared: Shared) -> dict[str, int]:
    """Return what a node tells of its runs. Those that are not stored are known to it alone."""
    unstored = [pump.run.record.owner for pump in shared.pumps.running() if not pump.run.kept]
    counts = {"runs": len(shared.pumps), DRAINING: int(shared.admission.closed), UNSTORED: len(unstored)}
    if shared.limits.runs_per_owner is not None:
        counts |= {f"{UNSTORED} {owner}": count for owner, count in Counter(unstored).items()}
    return counts


class SharedPlaces:
    """The places of all nodes: limits count the runs of the others, too.

    Stored runs are counted in the store when a run is about to start. A node tells of the others when it renews its
    lease, and a moment after each start and end of one. Without other nodes nothing is asked.
    """

    def __init__(self, shared: Shared, renew: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._shared = shared
        self._renew = renew
        self._is_due = False

    async def reserve(self, owner: str, runs: int) -> Places:
        """Take the places of several runs that are about to start: all of them, or none if there is no room."""
        admission, elsewhere = self._shared.admission, await self._elsewhere(owner, runs)
        try:
            return admission.reserve(owner, runs, elsewhere)
        except RunLimitReached:
            if not elsewhere.runs:
                raise
        await asyncio.sleep(2 * JOINED)  # its node may not have told yet that a run has ended
        return admission.reserve(owner, runs, await self._elsewhere(owner, runs))

    async def _elsewhere(self, owner: str, runs: int) -> RunsElsewhere:
        """Return how many runs other nodes have, as far as it matters.

        Each node may take its share of half of the limit without asking: together they stay below it.
        """
        shared, limits = self._shared, self._shared.limits
        told = sum(node.counts.get("runs", 0) for node in shared.others)
        limit = min(limits.runs, limits.runs if limits.runs_per_owner is None else limits.runs_per_owner)
        share = limit / (2 * len(shared.others) + 2)
        if not shared.others or shared.admission.taken + told + runs <= share:
            return RunsElsewhere()
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            if not shared.retry.waiting:
                async with asyncio.timeout(PATIENCE):
                    return await shared.store.running_elsewhere(owner, shared.node)
        return RunsElsewhere(told)  # runs that are not stored start without the store, too

    def changed(self, run: Run) -> None:
        """A run has started or ended: if it is not stored, tell the others in a moment, once for all that changes."""
        if self._shared.others and not run.kept and not self._is_due and not self._shared.admission.closed:
            self._is_due = True
            asyncio.get_running_loop().call_later(JOINED, self._tell)

    def _tell(self) -> None:
        self._is_due = False
        self._shared.tasks.start(self._tell_now())

    async def _tell_now(self) -> None:
        with contextlib.suppress(StoreUnavailable):  # the next renewal tells it
            await self._renew()


class HeldWork(Protocol):
    """Work of one kind besides runs: batches, deliveries of webhooks, rounds of comparisons."""

    async def take_up(self, id: str) -> None:
        """Go on with a piece of work that this node holds now, or let go of it if nothing is left to do."""
        ...

    def heed(self, id: str) -> None:
        """Look at a piece of work that another node has changed."""
        ...

    def drop(self) -> None:
        """End all work: this node was fenced, and others take it up."""
        ...

    async def close(self) -> None:
        """End all work in good order: this node ends, and others take up the rest."""
        ...


class Holds:
    """The pieces of work besides runs that this node has. One node has each; what a fenced one had, another takes."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._store = shared.store
        self._kinds: dict[str, HeldWork] = {}
        self._again: set[tuple[str, str]] = set()

    def add(self, kind: str, work: HeldWork) -> None:
        """Add a kind of work, which is taken up from now on."""
        self._kinds[kind] = work

    async def take(self, kind: str, id: str) -> bool:
        """Take a piece of work. False if another node has it, or if this one ends."""
        if self._shared.admission.closed:
            return False
        await self._shared.sure()
        return await self._store.hold(kind, id, self._shared.node)

    async def let_go(self, kind: str, id: str) -> None:
        """Give back a piece of work that is done."""
        await self._store.let_go(kind, id, self._shared.node)

    async def is_elsewhere(self, kind: str, id: str) -> bool:
        """Return whether another node has a piece of work."""
        return await self._store.holder(kind, id) not in ("", self._shared.node)

    async def tell(self, kind: str, id: str) -> None:
        """Hint at a change of a piece of work to the node that has it. It may be lost: the holder looks by itself."""
        with contextlib.suppress(StoreUnavailable):
            await self._store.hint("held", [f"{kind}\n{id}"])

    def hear(self, changed: str) -> None:
        """Take a hint at a change of a piece of work."""
        kind, _, id = changed.partition("\n")
        if (work := self._kinds.get(kind)) is not None:
            work.heed(id)

    async def look(self) -> None:
        """Take what fenced nodes have left, and try again what could not be taken up."""
        left = [(kind, id) for kind in self._kinds for id in await self._store.left_over(kind)]
        pieces, self._again = self._again.union(left), set()
        try:
            for kind, id in sorted(pieces):
                if await self.take(kind, id):
                    self._shared.tasks.start(self._take_up(kind, id))
                pieces.discard((kind, id))
        finally:
            self._again |= pieces  # if only the reply was lost, this node has the piece, and it is not left over

    async def _take_up(self, kind: str, id: str) -> None:
        try:
            await self._kinds[kind].take_up(id)
        except Exception:
            logger.exception("%s %s could not be taken up, and is tried again", kind, id)
            self._again.add((kind, id))

    def drop(self) -> None:
        """Drop everything: this node was fenced."""
        self._again.clear()
        for work in self._kinds.values():
            work.drop()

    async def close(self) -> None:
        """End all work in good order, while the lease is held."""
        await asyncio.gather(*(work.close() for work in self._kinds.values()))
