"""Someone who is told how runs end, and what they must have heard: every end, and none twice unless a server died."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.server.features.notifications.deliveries import KIND
from holdfast.server.features.notifications.news import News
from holdfast.store import RunRecord

from .checker import is_accepted
from .store import peek

if TYPE_CHECKING:
    from .world import World


class Pager:
    """Hears of runs, and is out of reach now and then."""

    name = place = "the pager"
    hears_waits = False
    pause = 0.0
    gives_up = 1e9

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard: list[tuple[str, str]] = []
        """The runs that it was told of, and the ids of the events."""

    def expects(self, record: RunRecord) -> bool:
        """It wants to hear of every run."""
        return True

    async def tell(self, news: News) -> bool:
        """Hear of a run, unless it is out of reach."""
        await asyncio.sleep(0.05)
        if self.world.random() < 0.2:
            return False
        self.world.say(f"the pager hears of {news.run.id}: {news.type}")
        self.heard.append((news.run.id, news.id))
        return True

    def has_waited_for_all(self) -> bool:
        """Tell whether nothing is left to be told."""
        return not self.world.medium.sql("SELECT 1 FROM documents WHERE kind = :kind", kind=KIND)

    def check(self) -> Iterator[str]:
        """Yield what was not told, or told twice."""
        for run in self.world.history.runs.values():
            record = peek(self.world.medium.get_run(run.id))
            if not run.is_told_of or not is_accepted(record):
                continue
            ids = [id for run_id, id in self.heard if run_id == run.id]
            if not ids:
                yield f"{run.id}: nobody was told of its end"
            elif len(set(ids)) > 1:
                yield f"{run.id}: its end was told under several ids: {ids}"
            elif len(ids) > 1 and not self.world.disturbed:
                yield f"{run.id}: its end was told {len(ids)} times"
