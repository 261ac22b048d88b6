"""The active part of a run: reads the source, and is dropped at the end."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..concurrency.retry import Retry
from ..concurrency.tasks import OwnedTasks
from ..errors import BudgetSpent, HoldfastError, RunSettled, SourceCancelled, StaleEpoch
from ..events import LEFT_TO_OTHERS, RunStarted, Source, Text, Yielded, push_all
from ..log.intake import Intake
from ..log.log import Log
from ..log.segment import NOTHING, OutputTimes, Segment
from ..log.settlement import StopIntent
from ..redaction import redact, redacted_traceback
from .run import Interrupt, Limits, Run

logger = logging.getLogger(__name__)


class PumpNode(Protocol):
    """The methods of this node that a pump needs."""

    async def sure(self) -> None:
        """Wait until this node holds its lease, and so may work on its runs."""
        ...

    async def resume(self, pump: Pump) -> Source:
        """Return a source that continues a run of another node."""
        ...


class PumpKeeper(Protocol):
    """The method of the keeper that a pump needs."""

    def take(self, pump: Pump) -> None:
        """Settle a run whose pump has ended or was abandoned."""
        ...


class PumpShared(Protocol):
    """The shared state of the engine that a pump needs."""

    limits: Limits
    tasks: OwnedTasks
    abandoned: OwnedTasks
    retry: Retry
    keeper: PumpKeeper

    @property
    def this_node(self) -> PumpNode: ...

    def clock(self) -> float: ...

    def sources(self, run: Run, /) -> Source: ...

    def changed(self, pump: Pump, /) -> None: ...

    def watch(self, pump: Pump, /) -> None: ...


class Pump:
    """Reads the source of one run, in a task that may be cancelled at any moment, even before its first step.

    Only the first cause of an end counts, and the log is sealed before the task is cancelled.
    """

    def __init__(
        self,
        run: Run,
        log: Log,
        intake: Intake,
        shared: PumpShared,
        *,
        source: Source | None = None,
        interrupt: Interrupt | None = None,
        resumes: bool = False,
    ) -> None:
        # from the request to the settlement
        self.run = run
        self.log = log
        self.shared = shared
        self.resumes = resumes
        """True if the run continues one that began in another process."""
        # until the source is read
        self.source = source
        """The source given by the caller. If None, the pump makes one."""
        # while the source is read
        self.loop = asyncio.get_running_loop()  # kept: a lookup costs a system call
        self.time = self.loop.time
        self.intake = intake
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        """True once the task has run its first step. A task cancelled before that runs no `finally`."""
        self.started = self.touched = 0.0
        self.times = OutputTimes()
        self.interrupt = interrupt
        """Called once, when the run is told to end."""
        # from the end of the source to the settlement
        self.cause: StopIntent | HoldfastError | None = None
        self.closed_at: float | None = None
        self.keeping: asyncio.Task[None] | None = None  # the keeper's task
        self.timer: asyncio.TimerHandle | None = None  # abandons the source
        run.live = self

    # reading the source

    def start(self) -> None:
        """Start the task that reads the source. The log shows the run as started at once."""
        run = self.run
        if not self.resumes:
            self.append(Segment(None, (), (RunStarted(run.record.model, run.record.message_id),)))
        self.touched = self.started = self.time()
        self.task = self.loop.create_task(self.read())
        self.task.add_done_callback(lambda _: self.shared.keeper.take(self))

    async def read(self) -> None:
        """Read the source. Its outcome is recorded before it is closed: a slow or failing close cannot change that."""
        self.has_begun = True
        source = self.source
        try:
            if self.run.kept:
                await self.shared.retry(self.shared.this_node.sure)
            source = source or (
                await self.shared.this_node.resume(self) if self.resumes else self.shared.sources(self.run)
            )
            if callable(source):
                await source(self)
            else:
                await push_all(source, self)
            if not self.was_ended:
                self.append(self.intake.end())
        except asyncio.CancelledError:
            if not self.was_ended:
                self._take_error(SourceCancelled())
            raise
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit would end the loop, with every other run
            self._take_error(error)
        finally:
            if hasattr(source, "aclose"):
                await self.close(source)

    def emit(self, events: Sequence[Yielded]) -> bool:
        """Log events that arrived together, as one segment. If False, `await room()` before the next call.

        The pump is the outlet of its source, which calls this for each arrival.
        """
        log, kept, time = self.log, self.run.kept, self.time
        self.touched = time()
        text = events[0] if len(events) == 1 else None
        if type(text) is not str or not text or not text.isascii() or not self.intake.is_plain:
            self.take_in(events)
        elif kept:
            log.append(Segment(Text, (text,)))
            self.shared.changed(self)
        else:  # usually one token: every call in this branch counts
            clock = self.shared.clock
            log.append_published(Segment(Text, (text,)), clock())
        return not (self.is_far_behind if kept else log.is_full)

    async def room(self) -> None:
        """Wait until the store, or the client of an attached run, has caught up."""
        if self.is_far_behind:
            log = self.log
            await _wait_for(log, lambda: log.has_room() and log.seq >= log.appended)
            self.touched = self.time()  # the idle limit counts from here

    def take_in(self, events: Sequence[Yielded]) -> None:
        """Log what the source yielded: all of it, or nothing if an item is invalid. The intake keeps each `Finish`.

        Called by `emit`, except for a single plain token of an answer that has begun.
        """
        if self.log.sealed:
            raise RunSettled(self.run.id)
        segment = self.intake.take(events)
        if (wait := self.intake.wait) is not None and wait.since is None:
            wait.note(self.touched, self.shared.clock())
            if not wait.asked.first == wait.asked.silence == self.run.idle:
                self.shared.watch(self)
        if segment is not NOTHING:
            self.append(segment)
            times = self.times
            if times.first_at is None:
                times.note(segment, self.touched)
            if times.thinking_at is not None or segment.kind is not Text:
                times.think(segment, self.touched)
                self.intake.is_plain &= times.thinking_at is None  # what comes after it is looked at here

    def append(self, segment: Segment) -> None:
        """Add a segment to the log. Readers see it at once or, if the run is kept, once it is saved.

        Called by the engine for its own events, and by `take_in` for those of the source.
        """
        if segment is NOTHING:
            return
        if self.run.kept:
            self.log.append(segment)
            self.shared.changed(self)
        else:
            self.log.append_published(segment, self.shared.clock())

    def _take_error(self, error: BaseException) -> None:
        """Log an error that the source raised. It is the outcome, unless the run was told to end before."""
        run = self.run
        if not self.was_ended:
            self.append(self.intake.fail(error))
        elif isinstance(error, RunSettled):
            return  # the source emitted after the stop, and the sealed log refused it
        which = f"{run.record.kind} run {run.id} ({run.record.model or 'a source of its own'})"
        if isinstance(error, (HoldfastError, BudgetSpent)):
            logger.info("%s: the source ended with %s: %s", which, type(error).__name__, redact(str(error)))
        else:
            logger.error("%s: the source raised\n%s", which, redacted_traceback(error))

    async def close(self, source: Source | None) -> None:
        """Close a generator in the task that iterated it. Other iterators may have no `aclose`."""
        close = getattr(source, "aclose", None)
        if close is not None:
            try:
                await close()
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException:  # as in `read`: an error of a source affects only its own run
                logger.exception("could not close the source of run %s", self.run.id)

    def discard_source(self) -> asyncio.Task[None] | None:
        """Close a source that was never read, in a separate task: the close may never return."""
        source, self.source = self.source, None
        return None if source is None else self.shared.tasks.spawn(self.close(source))

    # state

    @property
    def is_far_behind(self) -> bool:
        """True if the store or the attached reader is behind by more than the limit: the source has to wait."""
        log = self.log
        return log.is_full or log.appended - log.seq > self.shared.limits.unsaved

    @property
    def was_ended(self) -> bool:
        """True if the run was told to end or has ended, here or in another process."""
        return self.cause is not None or self.log.sealed

    async def saved(self) -> None:
        """Wait until all appended events are saved and shown, or another process owns the run."""
        log = self.log
        await _wait_for(log, lambda: log.seq >= log.appended)

    # ending

    def end(self, cause: StopIntent | HoldfastError) -> bool:
        """Interrupt the source, once. Only the first cause counts, and none once the source has ended.

        False if the run had ended, or was told to end before.
        """
        if self.log.sealed or self.task is None or self.task.done():
            return False
        self.cause = self.cause or cause
        self.log.seal()
        self.call_interrupt(cause.by if isinstance(cause, StopIntent) else cause.code)
        self.task.cancel(LEFT_TO_OTHERS if isinstance(cause, StaleEpoch) else None)
        self.stop_timer()
        self.timer = self.loop.call_later(self.run.grace, self.abandon)
        return True

    def fail(self, error: HoldfastError) -> None:
        """Fail a run whose new events cannot be saved, and drop them. A `Finish` of the source no longer counts."""
        self.intake.fail(error)
        self.end(error)
        self.log.drop_unpublished()

    def call_interrupt(self, reason: str) -> None:
        """Call the interrupt hook, once."""
        hook, self.interrupt = self.interrupt, None
        if hook is not None:
            self.shared.tasks.start(_call(hook, reason, self.run.id))

    def abandon(self) -> None:
        """Settle a run whose source ignores its cancellation. The sealed log refuses what the source still emits."""
        assert self.task is not None
        logger.warning("run %s: source ignored the stop for %g s; abandoned", self.run.id, self.run.grace)
        self.shared.abandoned.hold(self.task)
        self.shared.keeper.take(self)

    def stop_timer(self) -> None:
        """Cancel the timer that abandons the source."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def drop(self) -> None:
        """Clear all references, so that reference counting frees them. The traceback of an error refers to the locals
        of the source, and often to the error itself: a reference cycle."""
        if self.intake.error is not None:
            self.intake.error.__traceback__ = None
            self.intake.error = None
        self.source = self.task = self.keeping = self.cause = self.interrupt = None


async def left_this_node(pump: Pump) -> None:
    """Wait until a run is no longer active on this node: it has settled, or another process owns it."""
    await _wait_for(pump.log, lambda: pump.log.closed)


async def _wait_for(log: Log, condition: Callable[[], bool]) -> None:
    """Wait until a condition is true. It is checked whenever the log grows."""
    grew = asyncio.Event()
    unwatch = log.watch(grew.set)
    try:
        while not condition():
            grew.clear()
            await grew.wait()
    finally:
        unwatch()


async def _call(hook: Interrupt, reason: str, run_id: str) -> None:
    try:
        result: Any = hook(reason)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("the interrupt hook of run %s failed", run_id)
