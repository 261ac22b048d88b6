"""The run of a session that a reader of the session follows."""

from __future__ import annotations

from ...asgi.cursor import as_many_as_fit
from ...concurrency.watchers import Wake
from ...engine.engine import Engine
from ...errors import RunNotFound
from ...log.segment import NOTHING, Segment
from ...runs.run import Run
from ...store import FeedEntry


class FollowedRun:
    """A cursor on the active run of a session: at most one run at a time, entered at its start and left at its end."""

    def __init__(self, engine: Engine, seq: int = 0) -> None:
        self._engine = engine
        self.run: Run | None = None
        self.seq = seq
        self._wake: Wake | None = None
        """None until the reader waits: nothing is watched before."""
        self._unwatch: Wake | None = None

    def watch(self, wake: Wake) -> None:
        """Call `wake` at every change of the run, and of those that are entered later."""
        self._wake = wake
        if self.run is not None:
            self._unwatch = self.run.log.watch(wake)

    async def enter(self, run_id: str, seq: int = 0, *, has_ended: bool = False) -> None:
        """Read a run from a place. The log of one that `has_ended` may be behind the store here, by its last words."""
        self.leave()
        try:
            run = await self._engine.open(run_id)
        except RunNotFound:
            return  # deleted with its session
        is_behind = run.status == "queued" or (has_ended and run.settlement is None)  # it has begun, elsewhere
        self.run = run = await self._engine.at(run, run.seq + 1 if is_behind else seq)
        self.seq = max(seq if seq <= run.seq else 0, run.log.oldest - 1)
        self._unwatch = None if self._wake is None else run.log.watch(self._wake)

    def leave(self) -> None:
        """Read no run, until the next is entered."""
        if self._unwatch is not None:
            self._unwatch()
        self.run = self._unwatch = None
        self.seq = 0

    def is_ended_by(self, entry: FeedEntry) -> bool:
        """Return whether an entry of the feed is the end of the run."""
        return self.run is not None and entry.type == "run.settled" and entry.data["run_id"] == self.run.id

    async def batch(self) -> Segment:
        """Return the next events of the run, if it has any, also after another node has taken it over."""
        if self.run is not None and self.run.log.successor is not None:
            await self.enter(self.run.id, self.seq)
        return NOTHING if self.run is None else as_many_as_fit(await self.run.log.batch(self.seq))
