"""Creates, starts and settles the runs of one process. Sessions and nodes are built on it."""

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
    """The classes that work on runs. A test can replace any of them with a faulty one."""

    run: type[Run] = Run
    log: type[Log] = Log
    intake: type[Intake] = Intake
    pump: type[Pump] = Pump
    keeper: type[Keeper] = Keeper
    committer: type[Committer] = Committer
    watchdog: type[Watchdog] = Watchdog
    work: type[OwnedTasks] = OwnedTasks


class Runs:
    """The parts that work on runs, connected to each other.

    `settled` is called with each run that has settled here. The `engine` is called by the runs themselves.
    """

    def __init__(self, engine: RunEngine, shared: Shared, classes: RunClasses, settled: Callable[[Run], None]) -> None:
        self.shared, self._engine, self._classes = shared, engine, classes
        self._stops_all = False
        self.recent = Recent(shared.limits.recent)
        self._watchdog = classes.watchdog(shared.pumps)
        self._committer = classes.committer(shared, lambda pump: self.keeper.lose(pump))
        self.keeper = classes.keeper(shared, self._committer, self.recent, settled)
        shared.changed, shared.keeper = self._committer.changed, self.keeper
        shared.watch = self._watchdog.watch

    @property
    def unsaved(self) -> int:
        """Number of runs with unsaved events."""
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
        """Make a run that will start or wait on this node. With a `log` it continues a run of another process."""
        classes, resumes = self._classes, log is not None
        log = log or classes.log(record.id, limit=None if kept else self.shared.limits.log)
        run = classes.run(self._engine, record, log, self.shared.limits, kept=kept)
        return classes.pump(
            run, log, classes.intake(think), self.shared, source=source, interrupt=interrupt, resumes=resumes
        )

    def launch(self, pump: Pump, reserved: Places | None = None) -> Run:
        """Start a run, in one of the `reserved` places or in an additional one."""
        run = pump.run
        run.status = "running"
        self.shared.pumps[run.id] = pump
        if reserved is None:
            self.shared.admission.take(run.record.owner)
        else:
            reserved.transfer_one()
        pump.start()
        self._watchdog.watch(pump)
        self.shared.this_node.changed(run)
        if self._stops_all:
            pump.end(StopIntent("shutdown", self.shared.clock()))
        return run

    def adopt(self, record: RunRecord, log: Log) -> Pump:
        """Continue a run of another node."""
        pump = self.make(record, log=log)
        self.launch(pump)
        return pump

    def stored(self, record: RunRecord) -> Run:
        """Return a stored run that is not active on this node."""
        return self.with_log(record, self.shared.this_node.log_of(record), kept=True)

    def with_log(self, record: RunRecord, log: StoredLog, *, kept: bool) -> Run:
        """Return a run that is not active on this node, with its log."""
        return self._classes.run(self._engine, record, log, self.shared.limits, kept=kept)

    def here(self, run_id: str) -> Run | None:
        """Return a run that is active on this node, or has ended here and is not stored."""
        pump = self.shared.pumps.get(run_id)
        return pump.run if pump is not None else self.recent.get(run_id)

    # shutdown

    def stop_all(self) -> None:
        """Stop all runs, and those that start from now on: the process shuts down."""
        self._stops_all = True
        for pump in self.shared.pumps.running():
            pump.end(StopIntent("shutdown", self.shared.clock()))

    async def all_settled(self, until: float) -> None:
        """Wait until all started and starting runs have settled, at most until a time of the loop's clock."""
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
