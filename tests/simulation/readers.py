"""People who read a session on several devices: what they have seen is one cursor, and it never goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from holdfast.engine.core import Core

from .scenario import ReaderPlan
from .store import peek

if TYPE_CHECKING:
    from .world import World

READER = "me"


class Reading:
    """One person who reads one session."""

    def __init__(self, world: World, plan: ReaderPlan) -> None:
        self.world, self.session_id = world, f"ses_{plan.session}"
        self.plan = plan
        self.noted = 0
        """The furthest place of which a server has said that it is noted."""

    async def read(self) -> None:
        """Read on every device."""
        await asyncio.gather(*(self._device(moves) for moves in self.plan.devices))

    async def _device(self, moves: list[tuple[float, int]]) -> None:
        for pause, lag in moves:
            await asyncio.sleep(pause)
            await self.world.request(partial(self._note, lag))

    async def _note(self, lag: int, engine: Core) -> None:
        """Note what this device shows, which may be less than another one has shown; then look."""
        assert engine.store is not None
        entries = await engine.store.read_feed(self.session_id, 0)
        seen = max(0, len(entries) - lag)
        await engine.store.note_reader(self.session_id, READER, seen=seen)
        self.noted = max(self.noted, seen)
        before = self.noted
        standings = await engine.store.standings(READER, [self.session_id])
        if (standing := standings.get(self.session_id)) is not None:
            self._judge(standing.seen, before)

    def _judge(self, seen: int, before: int) -> None:
        if self.session_id not in self.world.history.deleted and seen < before:
            self.world.history.violate(f"what a reader of {self.session_id} has seen went back from {before} to {seen}")

    def check(self) -> Iterator[str]:
        """Yield what is wrong in the end."""
        standing = peek(self.world.medium.standings(READER, [self.session_id])).get(self.session_id)
        if standing is not None and self.session_id not in self.world.history.deleted and standing.seen < self.noted:
            yield f"what a reader of {self.session_id} has seen was {self.noted}, and is {standing.seen}"
        if standing is not None and standing.seen > standing.end:
            yield f"a reader of {self.session_id} has seen {standing.seen} entries of {standing.end}"
