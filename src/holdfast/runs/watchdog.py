"""The idle limit and the deadline of every run."""

from __future__ import annotations

import asyncio
import logging
import math

from ..errors import DeadlineExceeded, HoldfastError
from ..log.waiting import stalled
from .pump import Pump
from .shared import Pumps

logger = logging.getLogger(__name__)


class Watchdog:
    """One timer for all runs. An event costs nothing here: a pump only records its time.

    The idle limit counts only while the source is expected to emit: not while it waits for the store or for a reader,
    nor while the `quiet` function of the run returns True.
    """

    def __init__(self, pumps: Pumps) -> None:
        self._pumps = pumps
        self._timer: asyncio.TimerHandle | None = None
        self._next_check = math.inf

    def watch(self, pump: Pump) -> None:
        """Watch a pump that has just started, or asks a model. It is rarely the first to reach a limit."""
        if (time := due(pump)) < self._next_check:
            self._check_by(time)

    def check(self, pump: Pump, now: float) -> None:
        """End a run that has reached its idle limit or its deadline."""
        run, wait = pump.run, pump.intake.wait
        idle = run.idle if wait is None else wait.limit
        if pump.is_far_behind or (run.quiet is not None and run.quiet()):
            pump.touched = now
        if run.deadline is not None and now >= pump.started + run.deadline:
            _end(pump, DeadlineExceeded(run.deadline))
        elif idle is not None and now >= pump.touched + idle:
            if wait is not None and wait.asked.give_up is not None and wait.asked.give_up():
                pump.touched = now  # the source goes on by itself
            else:
                _end(pump, stalled(wait, idle))

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_by(self, time: float) -> None:
        if time < self._next_check:
            if self._timer is not None:
                self._timer.cancel()
            self._next_check = time
            self._timer = asyncio.get_running_loop().call_at(time, self._check_all)

    def _check_all(self) -> None:
        now, running = asyncio.get_running_loop().time(), self._pumps.running()
        self._next_check, self._timer = math.inf, None
        for pump in running:
            self.check(pump, now)
        self._check_by(min(map(due, running), default=math.inf))


def _end(pump: Pump, error: HoldfastError) -> None:
    """End a run at a limit, and log it: nothing else on the server reports it."""
    record = pump.run.record
    if pump.end(error):
        model = record.model or "a source of its own"
        logger.warning("%s run %s (%s): %s: %s", record.kind, record.id, model, error.code, error)


def due(pump: Pump) -> float:
    """Return when a run reaches a limit, in the loop's time; infinity once it was told to end."""
    run = pump.run
    if pump.log.sealed or pump.task is None or pump.task.done():
        return math.inf
    idle = pump.touched + (run.idle or math.inf)
    if (wait := pump.intake.wait) is not None:
        idle = wait.next_look(pump.touched, pump.time())
    return idle if run.deadline is None else min(idle, pump.started + run.deadline)
