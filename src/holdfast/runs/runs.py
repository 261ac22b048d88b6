"""The runs of one process: made, started, settled. Sessions and other nodes are built on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from ..concurrency.tasks import OwnedTasks
from ..events import Source
from ..log.intake import Intake
from ..log.log import Log
from ..log.settlement import StopIntent
from ..store import RunRecord
from .admission import Places
from .committer import Committer
from .keeper import Keeper
from .pump import Pump
from .recent import Recent
from .run import Interrupt, Run, RunEngine
from .shared import Shared
from .stored_log import StoredLog
from .watchdog import Watchdog


@dataclass(frozen=True, kw_only=True)
class RunClasses:
    """The classes that work on runs. A test can replace one by one with a mistake in it."""

    run: type[Run] = Run
    log: type[Log] = Log
    intake: type[Intake] = Intake
    pump: type[Pump] = Pump
    keeper: type[Keeper] = Keeper
    committer: type[Committer] = Committer
    watchdog: type[Watchdog] = Watchdog
    work: type[OwnedTasks] = OwnedTasks


class Runs:
    """The parts that work on runs, put together.

    `settled` is called with each run that has settled here. The `engine` is what the runs themselves call.
    """

    def __init__(self, engine: RunEngine, shared: Shared, classes: RunClasses, settled: Callable[[Run], None]) -> None:
        self.shared, self._engine, self._classes = shared, engine, classes
        self._stops_all = False
        self.recent = Recent(shared.limits.recent)
        self._watchdog = classes.watchdog(shared.pumps)
        self._committer = classes.committer(shared, lambda pump: self.keeper.lose(pump))
        self.keeper = classes.keeper(shared, self._committer, self.recent, settled)
        shared.changed, shared.keeper = self._committer.changed, self.keeper

    @property
    def unsaved(self) -> int:
        """The runs with events that are not saved."""
        return self._committer.unsaved

    def make(
        self,
        record: RunRecord,
        *,
        kept: bool = True,
        source: Source | None = None,
        interrupt: Interrupt | None = None,
        think: bool = True,
        log: Log | None = None,
    ) -> Pump:
        """Make a run that is to go on here, or to wait. With a `log` it goes on with what another process left."""
        classes, resumes = self._classes, log is not None
        log = log or classes.log(record.id, limit=None if kept else self.shared.limits.log)
        run = classes.run(self._engine, record, log, self.shared.limits, kept=kept)
        return classes.pump(
            run, log, classes.intake(think), self.shared, source=source, interrupt=interrupt, resumes=resumes
        )

    def launch(self, pump: Pump, reserved: Places | None = None) -> Run:
        """Start a run, in a place that was `reserved` for it, or in one more."""
        run = pump.run
        run.status = "running"
        self.shared.pumps[run.id] = pump
        if reserved is None:
            self.shared.admission.take(run.record.owner)
        else:
            reserved.pass_one_on()
        pump.start()
        self._watchdog.watch(pump)
        self.shared.this_node.changed(run)
        if self._stops_all:
            pump.end(StopIntent("shutdown", self.shared.clock()))
        return run

    def adopt(self, record: RunRecord, log: Log) -> Pump:
        """Go on with a run that another node has left."""
        pump = self.make(record, log=log)
        self.launch(pump)
        return pump

    def stored(self, record: RunRecord) -> Run:
        """Return a stored run that is not worked on here."""
        return self.with_log(record, self.shared.this_node.log_of(record), kept=True)

    def with_log(self, record: RunRecord, log: StoredLog, *, kept: bool) -> Run:
        """Return a run that is not worked on here, with its log."""
        return self._classes.run(self._engine, record, log, self.shared.limits, kept=kept)

    def here(self, run_id: str) -> Run | None:
        """Return a run that is worked on here, or has ended here and is not stored."""
        pump = self.shared.pumps.get(run_id)
        return pump.run if pump is not None else self.recent.get(run_id)

    # the end

    def stop_all(self) -> None:
        """Stop what runs, and what is started from now on: the process ends."""
        self._stops_all = True
        for pump in self.shared.pumps.running():
            pump.end(StopIntent("shutdown", self.shared.clock()))

    async def all_settled(self, until: float) -> None:
        """Wait for what goes on, and for what is about to, until a time of the loop's clock."""
        work, pumps = self.shared.work, self.shared.pumps
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while len(work) or pumps.running():
                    await work.wait()
                    for pump in pumps.running():
                        await pump.run.settled()

    async def close(self) -> None:
        """Give all tasks the grace period, then cancel the engine's own. Abandoned sources were cancelled before."""
        groups = self.shared.work, self.shared.tasks, self.shared.abandoned
        await asyncio.gather(*(group.wait(self.shared.limits.grace) for group in groups))
        for group in groups[:2]:
            await group.cancel()
        self._watchdog.close()
        await self.shared.background.close()
