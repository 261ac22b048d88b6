"""The limits on runs, counted on all nodes."""

from __future__ import annotations

import asyncio
import contextlib

from ..errors import RunLimitReached, StoreUnavailable
from ..runs.admission import Places
from ..runs.pump import Shared
from ..runs.run import Run
from ..store.nodes import RunsElsewhere
from .lease import PATIENCE

JOINED = 0.05
"""Seconds in which changes of the runs that are not stored become one renewal of the lease."""


class SharedPlaces:
    """The places of all nodes: limits count the runs of the others, too.

    Stored runs are counted in the store when a run is about to start. A node tells of the others when it renews its
    lease, and a moment after each start and end of one. Without other nodes nothing is asked.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._is_due = False

    async def reserve(self, owner: str, runs: int) -> Places:
        """Take the places of several runs that are about to start: all of them, or none if there is no room."""
        admission = self._shared.admission
        if not self._shared.others:
            return admission.reserve(owner, runs)
        elsewhere = await self._elsewhere(owner, runs)
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
        if shared.admission.taken + told + runs <= share:
            return RunsElsewhere()
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            if not shared.retry.waiting:
                async with asyncio.timeout(PATIENCE):
                    return await shared.store.running_elsewhere(owner, shared.node_id)
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
            await self._shared.this_node.renew()
