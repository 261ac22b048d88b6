"""Settles a run when its pump has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from ..asks import beginning_of
from ..errors import HoldfastError, LogBehind, StaleEpoch, StoreFailed, StoreUnavailable
from ..events import AnySettlement, Failed
from ..history import Measured, Message, answer_message, figures_of
from ..log.settlement import judge
from ..store import RunEnd
from .committer import Committer
from .pump import Pump
from .recent import Recent
from .run import Run
from .shared import Shared

logger = logging.getLogger(__name__)

_Write = Callable[[], Awaitable[RunEnd | None]]


class Keeper:
    """Settles each run once: waits for its events, derives the settlement, stores and shows it. Never cancelled.

    It is called when the pump has ended, or has ignored its cancellation for the grace period. It never runs in the
    task that is cancelled.
    """

    def __init__(self, shared: Shared, committer: Committer, recent: Recent, settled: Callable[[Run], None]) -> None:
        self.shared = shared
        self._committer, self._recent = committer, recent
        self.settled = settled
        """Called with each run that this engine has settled."""

    def take(self, pump: Pump) -> None:
        """Settle a run whose pump has ended or was abandoned."""
        if pump.task is None:
            return  # the task was abandoned and settled before, and has ended now
        if pump.timer is not None:
            pump.stop_timer()
        if pump.task.done():
            pump.closed_at = self.shared.clock()
        if pump.keeping is None and not pump.log.closed:
            if pump.has_begun and not pump.run.kept:
                pump.log.seal()  # there is no write to wait for
                now = self.shared.clock()
                self.show(pump, self.judge(pump, now), now)
            else:
                pump.keeping = self.shared.tasks.spawn(self.keep(pump))

    async def keep(self, pump: Pump) -> None:
        """Wait until all events are saved, then derive, store and show the settlement."""
        pump.log.seal()
        if not pump.has_begun and (closing := pump.discard_source()):
            await asyncio.wait({closing}, timeout=self.shared.limits.grace)
            pump.closed_at = self.shared.clock() if closing.done() else None
        await pump.saved()
        if pump.log.closed:
            return  # the run was lost to another node
        now = self.shared.clock()
        settlement = self.judge(pump, now)
        end = await self.save(pump, settlement, now) if pump.run.kept else RunEnd(settlement)
        if end is None:
            self.lose(pump)
        else:
            pump.run.may_be_followed = end.may_be_followed
            self.show(pump, end.settlement, now)

    def judge(self, pump: Pump, now: float) -> AnySettlement:
        """Return the settlement of a run, with its cost."""
        try:
            settlement = judge(
                pump.log,
                intake=pump.intake,
                cause=pump.cause,
                closed_at=pump.closed_at,
                now=now,
                survivors=pump.run.survivors,
            )
            cost = self.shared.cost(pump.run.record, settlement)
            if cost is None:
                return settlement
            return msgspec.structs.replace(settlement, usage=msgspec.structs.replace(settlement.usage, cost=cost))
        except Exception:
            logger.exception("run %s: could not determine the outcome", pump.run.id)
            return Failed(text=pump.log.text, error=HoldfastError("Internal error. See the server log.").info().final())

    async def save(self, pump: Pump, settlement: AnySettlement, now: float) -> RunEnd | None:
        """Store the settlement, and return the end that the store has. None if another node owns the run.

        If the store cannot take the settlement, a plain failure is stored in its place, with retries until it succeeds.
        """
        try:
            return await self.shared.retry(self._settlement_write(pump, settlement, now))
        except Exception:
            logger.exception("run %s: could not store the outcome", pump.run.id)
        failed = Failed(text=pump.log.text, error=StoreFailed().info().final())
        return await self.shared.retry.always(self._settlement_write(pump, failed, now))

    def _settlement_write(self, pump: Pump, settlement: AnySettlement, now: float) -> _Write:
        """Return a write that can be repeated: its arguments are fixed."""
        record, seq, settle = pump.run.record, pump.log.seq + 1, self.shared.store.settle
        message = _message_of(pump, settlement, now)

        async def write() -> RunEnd | None:
            try:
                return await settle(record.id, record.epoch, seq=seq, settlement=settlement, message=message, now=now)
            except LogBehind as behind:
                await self._committer.send_again(pump, behind.end)
                raise StoreUnavailable("The store was rolled back, and has its log again.") from behind

        return write

    def show(self, pump: Pump, settlement: AnySettlement, now: float) -> None:
        """Show the settlement, which the store has by now if the run is kept, and release the run."""
        run = pump.run
        run.measured = measured(pump)
        self.release(pump)
        run.settle(settlement, msgspec.structs.replace(run.record, settled_at=now))
        pump.drop()
        if not run.kept:
            self._recent.add(run, pump.log)
        self.settled(run)

    def lose(self, pump: Pump) -> None:
        """Give up a run that another node owns: send readers to its log, and wait for the settlement there."""
        if not pump.log.closed:
            pump.end(StaleEpoch(pump.run.id))
            if pump.task is not None:
                self.shared.abandoned.hold(pump.task)
            pump.log.abandon(partial(self.shared.this_node.log_of, pump.run.record))
            self.release(pump)
            self.shared.tasks.start(self.shared.this_node.learn(pump.run))

    def release(self, pump: Pump) -> None:
        """Release what a run holds in the engine, once: its entry, its place, a source that was never read."""
        if self.shared.pumps.get(pump.run.id) is not pump:
            return
        del self.shared.pumps[pump.run.id]
        if pump.run.kept:
            self._committer.forget(pump)
        if pump.task is not None:
            self.shared.admission.give_back(pump.run.record.owner)
        else:
            pump.discard_source()


def _message_of(pump: Pump, settlement: AnySettlement, now: float) -> Message | None:
    """Return the message that a run adds to its session; None if it has no session."""
    record = pump.run.record
    if record.session_id is None or record.message_id is None:
        return None
    beginning = beginning_of(record.ask)
    return answer_message(
        pump.log,
        settlement,
        id=record.message_id,
        parent_id=record.parent_id,
        run_id=record.id,
        model=record.model,
        at=now,
        figures=figures_of(measured(pump), settlement.usage),
        edited=beginning is not None and beginning.edited,
    )


def measured(pump: Pump) -> Measured | None:
    """Return the times of a run so far; None if they are unknown, because it began on another node."""
    if pump.resumes or not pump.started:
        return None
    times, now = pump.times, pump.time()
    return Measured(
        started=pump.started,
        asked=times.asked_at or pump.started,
        first=times.first_at,
        last=pump.touched,
        ended=now,
        has_pace=pump.log.steps is None,
        thought=None if times.thought is None else times.thought + (now - (times.thinking_at or now)),
    )
