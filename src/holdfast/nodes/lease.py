"""The lease of this node: every run that it owns lives by it, and every piece of work that it holds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable

from ..errors import StoreUnavailable
from ..ids import NewId
from ..runs.pump import Shared
from ..store.nodes import UNSTORED
from ..store.records import NodeDetails

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a start waits for the number of runs at other nodes, and an end for the release of its lease."""
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
        every = self.seconds / 3
        self._shared.background.every(
            "lease", every, lambda: self._shared.retry(self.renew), first=every, longest_pause=every
        )
        with contextlib.suppress(StoreUnavailable):
            await self._store.hint("joined", [self._shared.node_id])  # limits of the others count its runs from now on

    async def renew(self) -> None:
        """Say that this node is alive. A fenced node begins anew."""
        asked, node = asyncio.get_running_loop().time(), self._shared.node_id
        if self._unlisten is None:
            self._unlisten = self._store.listen(node, self._hear)
        if await self._store.renew(node, self.seconds, self._told()) is not None:
            self._until = max(self._until, asked + self.seconds)
        elif node == self._shared.node_id:
            self._begin_anew(node)
            await self.renew()

    def _told(self) -> NodeDetails:
        counts = {**self._counts(), **counts_of_node(self._shared)}
        return NodeDetails(address=self._details.address, version=self._details.version, counts=counts)

    def _begin_anew(self, node: str) -> None:
        logger.warning("this node was taken for dead: its runs belong to others, and it takes a new id")
        self._until = 0.0
        self._shared.node_id = self._new_id("eng")
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
                await self._store.release(self._shared.node_id)
                await self._store.hint("left", [self._shared.node_id])
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
