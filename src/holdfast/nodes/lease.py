"""The lease of this node, which covers every run that it owns and every piece of work that it holds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable

from ..errors import StoreUnavailable
from ..ids import NewId
from ..runs.shared import Shared
from ..store.nodes import UNSTORED, OnHint
from ..store.records import NodeDetails

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Timeout, in seconds, of counting the runs on other nodes before a start, and of releasing the lease."""
DRAINING = "draining"
"""The name of the count that is 1 while a node drains: it starts nothing new."""

Counts = Callable[[], dict[str, int]]
"""Returns the counts that this node reports with each renewal, besides those of the engine."""


class Lease:
    """Renews the lease of this node, in a separate loop that no other work can delay.

    Here a lease ends no later than in the store: it is counted from before the request of the renewal, on a monotonic
    clock. A node that was fenced drops its runs and continues under a new id.
    """

    def __init__(
        self,
        shared: Shared,
        seconds: float,
        details: NodeDetails,
        new_id: NewId,
        drop: Callable[[str], None],
        on_hint: OnHint,
        counts: Counts = dict,
    ) -> None:
        self.shared = shared
        self._counts = counts
        self._store = shared.store
        self.seconds = seconds
        self._details = details
        self._new_id = new_id
        self._drop = drop
        self._on_hint = on_hint
        self._until = 0.0
        self._store_time: tuple[float, float] | None = None
        """A time of the store's clock, and the time of the loop at which this node learned it."""
        self._unlisten: Callable[[], None] | None = None

    @property
    def is_held(self) -> bool:
        """True while no other node can have fenced this one."""
        return asyncio.get_running_loop().time() < self._until

    def store_now(self) -> float:
        """Return the time of the store's clock, which all nodes share: that of the last renewal, counted on.

        It is late by what the renewal's reply took, and never early. Before the first renewal it is this node's time.
        """
        if self._store_time is None:
            return self.shared.clock()
        then, learned_at = self._store_time
        return then + asyncio.get_running_loop().time() - learned_at

    async def hold(self) -> None:
        """Take the lease, and renew it three times per lease."""
        await self.shared.retry(self.renew)
        every = self.seconds / 3
        self.shared.background.every(
            "lease", every, lambda: self.shared.retry(self.renew), first=every, longest_pause=every
        )
        with contextlib.suppress(StoreUnavailable):
            await self._store.hint("joined", [self.shared.node_id])  # the limits of others count its runs now

    async def renew(self) -> None:
        """Renew the lease. A fenced node takes a new id."""
        requested_at, node = asyncio.get_running_loop().time(), self.shared.node_id
        if self._unlisten is None:
            self._unlisten = self._store.listen(node, self._on_hint)
        if (record := await self._store.renew(node, self.seconds, self._current_details())) is not None:
            self._until = max(self._until, requested_at + self.seconds)
            self._store_time = record.until - record.seconds, asyncio.get_running_loop().time()
        elif node == self.shared.node_id:
            self._begin_anew(node)
            await self.renew()

    def _current_details(self) -> NodeDetails:
        counts = {**self._counts(), **counts_of_node(self.shared)}
        return NodeDetails(address=self._details.address, version=self._details.version, counts=counts)

    def _begin_anew(self, node: str) -> None:
        logger.warning("this node was taken for dead: its runs belong to others, and it takes a new id")
        self._until = 0.0
        self.shared.node_id = self._new_id("eng")
        self._end_listening()
        self._drop(node)

    async def sure(self) -> None:
        """Renew the lease if it may have ended: after a long pause of this process its runs may belong to others."""
        if not self.is_held:
            await self.shared.tasks.run(self.renew())

    async def release(self) -> None:
        """End the lease, so that other nodes can take over at once. If that fails, it ends by itself."""
        self._end_listening()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._store.release(self.shared.node_id)
                await self._store.hint("left", [self.shared.node_id])
        except Exception as error:  # noqa: BLE001
            logger.warning("could not release the lease of this node: %s", error)

    def _end_listening(self) -> None:
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None


def counts_of_node(shared: Shared) -> dict[str, int]:
    """Return the counts of a node's runs. Only the node itself can count those that are not stored."""
    unstored = [pump.run.record.owner for pump in shared.pumps.running() if not pump.run.kept]
    counts = {"runs": len(shared.pumps), DRAINING: int(shared.admission.closed), UNSTORED: len(unstored)}
    if shared.limits.runs_per_owner is not None:
        counts |= {f"{UNSTORED} {owner}": count for owner, count in Counter(unstored).items()}
    return counts
