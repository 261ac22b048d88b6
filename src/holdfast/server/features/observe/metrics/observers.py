"""The observers of a server's runs: its activity, and metrics and traces if they are on."""

from __future__ import annotations

from collections.abc import Callable

from .....engine.core import Core
from .....nodes.recovery import Again
from .....runs.run import Observe, Run
from .....store import RunRecord, Store
from .....task_context.logged_run import LOGGED_RUN
from ....config.settings import Settings
from ..traces import Traces, traces_of
from . import Metrics, metrics_of
from .activity import Activity


class Observers:
    """Passes events to each observer that is on."""

    def __init__(self, activity: Activity, metrics: Metrics | None = None, traces: Traces | None = None) -> None:
        self.activity = activity
        self.metrics = metrics
        """None if metrics are off."""
        self.traces = traces
        """None if traces are off."""
        parts = (activity, metrics, traces)
        self._settled: list[Observe] = [part.settled for part in parts if part is not None]
        self._begun: list[Callable[[RunRecord], object]] = [] if traces is None else [traces.begin]

    def store(self, store: Store) -> Store:
        """Return the store, measured and traced."""
        store = store if self.metrics is None else self.metrics.timed(store)
        return store if self.traces is None else self.traces.stored(store)

    def again(self, again: Again) -> Again:
        """Return the function that resumes runs, traced."""
        return again if self.traces is None else self.traces.again(again)

    def watch(self, engine: Core) -> None:
        """Observe the runs of an engine."""
        if self.traces is not None:
            self.traces.watch(engine)

    def listen(self, *, begun: Callable[[RunRecord], object], settled: Observe) -> None:
        """Call functions with each run that begins and settles here. They must not block."""
        self._begun.append(begun)
        self._settled.append(settled)

    def enter(self, record: RunRecord) -> None:
        """Begin a run, in the task that reads its source."""
        LOGGED_RUN.set((record.id, record.session_id))  # the task is the run's own
        for begun in self._begun:
            begun(record)

    def settled(self, run: Run) -> None:
        """Count a run that has settled here."""
        for settled in self._settled:
            settled(run)


def observers_of(settings: Settings) -> Observers:
    """Return the observers that the settings turn on."""
    return Observers(Activity(), metrics_of(settings), traces_of(settings))
