"""The limits on runs, counted on all nodes."""

from __future__ import annotations

import asyncio
import contextlib

from ..errors import RunLimitReached, StoreUnavailable
from ..runs.admission import Places
from ..runs.run import Run
from ..runs.shared import Shared
from ..store.nodes import RunsElsewhere
from .lease import PATIENCE

JOINED = 0.05
"""Seconds for which changes of unstored runs are collected into one renewal of the lease."""


class SharedPlaces:
    """The places of runs on all nodes: the limits also count the runs of other nodes.

    Stored runs are counted in the store when a run is about to start. A node reports its unstored runs when it renews
    its lease, and soon after each start and end of one. Without other nodes the store is not read.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._is_due = False

    async def reserve(self, owner: str, runs: int) -> Places:
        """Take the places of several runs that are about to start: all or none."""
        admission = self._shared.admission
        if not self._shared.others:
            return admission.reserve(owner, runs)
        elsewhere = await self._elsewhere(owner, runs)
        try:
            return admission.reserve(owner, runs, elsewhere)
        except RunLimitReached:
            if not elsewhere.runs:
                raise
        await asyncio.sleep(2 * JOINED)  # another node may not have reported yet that a run has ended
        return admission.reserve(owner, runs, await self._elsewhere(owner, runs))

    async def _elsewhere(self, owner: str, runs: int) -> RunsElsewhere:
        """Return the number of runs on other nodes; 0 if they cannot matter.

        Each node may use its share of half of the limit without a read of the store: together they stay below it.
        """
        shared, limits = self._shared, self._shared.limits
        reported = sum(node.counts.get("runs", 0) for node in shared.others)
        limit = min(limits.runs, limits.runs if limits.runs_per_owner is None else limits.runs_per_owner)
        share = limit / (2 * len(shared.others) + 2)
        if shared.admission.taken + reported + runs <= share:
            return RunsElsewhere()
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            if not shared.retry.waiting:
                async with asyncio.timeout(PATIENCE):
                    return await shared.store.running_elsewhere(owner, shared.node_id)
        return RunsElsewhere(reported)  # unstored runs start even without the store

    def changed(self, run: Run) -> None:
        """Handle the start or end of a run: if it is not stored, report it soon, together with other changes."""
        if self._shared.others and not run.kept and not self._is_due and not self._shared.admission.closed:
            self._is_due = True
            asyncio.get_running_loop().call_later(JOINED, self._report)

    def _report(self) -> None:
        self._is_due = False
        self._shared.tasks.start(self._report_now())

    async def _report_now(self) -> None:
        with contextlib.suppress(StoreUnavailable):  # the next renewal reports it
            await self._shared.this_node.renew()
