"""The runs that a node leaves to other nodes, or to the next start, when it shuts down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from ..errors import StoreUnavailable
from ..log.log import Log
from ..runs.pump import Pump
from ..runs.runs import Runs
from ..store import RunRecord

logger = logging.getLogger(__name__)

BRIEF = 1.0
"""Timeout of a request of a node that shuts down, in seconds."""

Elsewhere = Callable[[RunRecord, Log], Awaitable[bool]]
"""Returns whether another process could continue a run: its upstream works on without this one, or is asked again."""


class Handover:
    """Leaves runs to other processes without settling them. The engine stops those that none can continue."""

    def __init__(
        self,
        runs: Runs,
        elsewhere: Elsewhere | None,
    ) -> None:
        self._runs, self._shared = runs, runs.shared
        self._store, self._pumps = runs.shared.store, runs.shared.pumps
        self._elsewhere = elsewhere

    async def leave_waiting(self) -> None:
        """Leave the runs that only wait for a person: another process keeps waiting."""
        await self._leave(self._waiting())

    async def leave_all_that_others_continue(self) -> None:
        """Leave the runs that wait for a person, and those that another node or the next start can continue."""
        pumps = self._waiting()
        running = [pump for pump in self._pumps.running() if pump not in pumps]
        can_leave = await asyncio.gather(*map(self._can_leave, running))
        await self._leave(pumps + [pump for pump, can in zip(running, can_leave, strict=True) if can])

    def _waiting(self) -> list[Pump]:
        running = [pump for pump in self._pumps.running() if pump.run.waits and pump.run.kept]
        return [pump for pump in running if pump.run.record.lifetime == "detached"]

    async def _can_leave(self, pump: Pump) -> bool:
        """Return whether another process can continue a run."""
        run = pump.run
        if self._elsewhere is None or not run.kept or run.record.lifetime != "detached":
            return False
        try:
            async with asyncio.timeout(BRIEF):
                return await self._elsewhere(run.record, pump.log)
        except Exception:
            logger.exception("whether another process can continue run %s is not known: it is stopped", run.id)
            return False

    async def _leave(self, pumps: Sequence[Pump]) -> None:
        """Leave runs to other nodes now. If the store is not reachable, they take them when the lease ends.

        A run that was stopped or has ended meanwhile settles here: another process would continue it.
        """
        left = [pump for pump in pumps if not pump.was_ended]
        for pump in left:
            self._runs.keeper.lose(pump)
        if left:
            await self.briefly(lambda: self._give_up(left))

    async def _give_up(self, pumps: Sequence[Pump]) -> None:
        await self._store.give_up(self._shared.node_id, [pump.run.id for pump in pumps])
        await self._store.hint("left", [self._shared.node_id])

    async def briefly(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` on the store, if there is one, for at most `BRIEF` seconds."""
        if self._shared.has_store:
            try:
                async with asyncio.timeout(BRIEF):
                    await self._shared.tasks.run(work())
            except (StoreUnavailable, TimeoutError) as error:
                logger.warning("the store did not answer while this node hands over its runs: %r", error)
