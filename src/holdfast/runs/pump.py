"""The live half of a run: reads the source, and is dropped at the end."""

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
    """This process as one of the nodes on a store, as a pump needs it."""

    async def sure(self) -> None:
        """Return once the lease is held, so that this node may work on its runs."""
        ...

    async def resume(self, pump: Pump) -> Source:
        """Make the source of a run that another node has left."""
        ...


class PumpKeeper(Protocol):
    """The keeper, as a pump needs it."""

    def take(self, pump: Pump) -> None:
        """Settle a run whose pump has ended, or is abandoned."""
        ...


class PumpShared(Protocol):
    """The shared state of the engine, as a pump needs it."""

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


class Pump:
    """Reads the source of one run, in a task that may be cancelled at any moment, before its first step too.

    The first cause of an end stands, and the log is sealed before the cancel.
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
        # for the whole of it, from the request to the settlement
        self.run = run
        self.log = log
        self.shared = shared
        self.resumes = resumes
        """It goes on with what another process has left."""
        # until the source is read
        self.source = source
        """A source that was given. The pump makes one otherwise."""
        # while the source is read
        self.time = asyncio.get_running_loop().time
        self.intake = intake
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        """The task has taken its first step. One that is cancelled before it never reaches a `finally`."""
        self.started = self.touched = 0.0
        self.times = OutputTimes()
        self.interrupt = interrupt
        """Called once, when the run is told to end."""
        # from the end of the source to the settlement
        self.cause: StopIntent | HoldfastError | None = None
        self.closed_at: float | None = None
        self.keeping: asyncio.Task[None] | None = None  # the keeper's task
        self._timer: asyncio.TimerHandle | None = None
        run.live = self

    # reading the source

    def start(self) -> None:
        """Begin to read. The run appears as begun at once."""
        run, loop = self.run, asyncio.get_running_loop()
        if not self.resumes:
            self.append(Segment(None, (), (RunStarted(run.record.model, run.record.message_id),)))
        self.touched = self.started = self.time()
        self.task = loop.create_task(self.read())
        self.task.add_done_callback(lambda _: self.shared.keeper.take(self))

    async def read(self) -> None:
        """Read the source. Note how it ended before closing it: a slow or broken close no longer changes that."""
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
            await self.close(source)

    def emit(self, events: Sequence[Yielded]) -> bool:
        """Log events that arrived together, as one segment. False: enough for now, then `await room()`.

        Called by the source, whose outlet the pump is, for each arrival.
        """
        log, kept, time = self.log, self.run.kept, self.time
        self.touched = time()
        text = events[0] if len(events) == 1 else None
        if type(text) is not str or not text or not text.isascii() or not self.intake.is_plain:
            self.take_in(events)
        elif kept:
            log.append(Segment(Text, (text,)))
            self.shared.changed(self)
        else:  # one more token, mostly: each call shows
            clock = self.shared.clock
            log.append_published(Segment(Text, (text,)), clock())
        return not (self.is_far_behind if kept else log.is_full)

    async def room(self) -> None:
        """Wait for the store, or for the client that an attached run lives by."""
        if self.is_far_behind:
            log = self.log
            await _until(log, lambda: log.has_room() and log.seq >= log.appended)
            self.touched = self.time()  # silence counts from here

    def take_in(self, events: Sequence[Yielded]) -> None:
        """Log what the source yielded, all of it or nothing. What it says of its end is for the judgement.

        Called by `emit`, unless the events are one plain token of an answer that has begun.
        """
        if self.log.sealed:
            raise RunSettled(self.run.id)
        segment = self.intake.take(events)
        if segment is not NOTHING:
            self.append(segment)
        self.times.note(segment, self.touched)

    def append(self, segment: Segment) -> None:
        """Add a segment to the log: shown at once, or once it is saved.

        Called by the engine for events of its own, and by `take_in` for those of the source.
        """
        if segment is NOTHING:
            return
        if self.run.kept:
            self.log.append(segment)
            self.shared.changed(self)
        else:
            self.log.append_published(segment, self.shared.clock())

    def _take_error(self, error: BaseException) -> None:
        """Log what the source raised. If the run had not been told to end, this is how it ended."""
        run = self.run
        if not self.was_ended:
            self.append(self.intake.fail(error))
        elif isinstance(error, RunSettled):
            return  # the source went on after its stop, and the sealed log refused that
        which = f"{run.record.kind} run {run.id} ({run.record.model or 'a source of its own'})"
        if isinstance(error, (HoldfastError, BudgetSpent)):
            logger.info("%s: the source ended with %s: %s", which, type(error).__name__, redact(str(error)))
        else:
            logger.error("%s: the source raised\n%s", which, redacted_traceback(error))

    async def close(self, source: Source | None) -> None:
        """Close a generator in the task that iterated it. An iterator of another kind may have nothing to close."""
        close = getattr(source, "aclose", None)
        if close is not None:
            try:
                await close()
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException:  # as in `read`: a source ends its own run, and nothing else
                logger.exception("could not close the source of run %s", self.run.id)

    def discard_source(self) -> asyncio.Task[None] | None:
        """Close a source that was never read, in a task of its own, which may never end."""
        source, self.source = self.source, None
        return None if source is None else self.shared.tasks.spawn(self.close(source))

    # what is so of it

    @property
    def is_reading(self) -> bool:
        """The task has not ended."""
        return self.task is not None and not self.task.done()

    @property
    def is_far_behind(self) -> bool:
        """The store, or the reader that is waited for, is further behind than it may be: the source has to wait."""
        log = self.log
        return log.is_full or log.appended - log.seq > self.shared.limits.unsaved

    @property
    def was_ended(self) -> bool:
        """The run was told to end, or has ended already, here or in another process."""
        return self.cause is not None or self.log.sealed

    async def saved(self) -> None:
        """Wait until everything appended is saved and shown, or the run belongs to another process."""
        log = self.log
        await _until(log, lambda: log.seq >= log.appended)

    # ending it

    def end(self, cause: StopIntent | HoldfastError) -> bool:
        """Interrupt the source, once. The first cause stands, and so does an end that is already there.

        False if the run had ended, or was told to end before.
        """
        if self.log.sealed or self.task is None or self.task.done():
            return False
        self.cause = self.cause or cause
        self.log.seal()
        self.call_interrupt(cause.by if isinstance(cause, StopIntent) else cause.code)
        self.task.cancel(LEFT_TO_OTHERS if isinstance(cause, StaleEpoch) else None)
        self.stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self.run.grace, self.abandon)
        return True

    def fail(self, error: HoldfastError) -> None:
        """End a run whose new events cannot be saved: drop them, and fail whatever the source said of its end."""
        self.intake.fail(error)
        self.end(error)
        self.log.drop_unpublished()

    def call_interrupt(self, reason: str) -> None:
        """Call the hook, once."""
        hook, self.interrupt = self.interrupt, None
        if hook is not None:
            self.shared.tasks.start(_call(hook, reason, self.run.id))

    def abandon(self) -> None:
        """Settle although the source ignores its cancel: the sealed log refuses whatever it still says."""
        assert self.task is not None
        logger.warning("run %s: source ignored the stop for %g s; abandoned", self.run.id, self.run.grace)
        self.shared.abandoned.hold(self.task)
        self.shared.keeper.take(self)

    def stop_timer(self) -> None:
        """Do not abandon the source any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drop(self) -> None:
        """Let go of everything, so that reference counting frees it. An error's traceback holds all that the source
        has used, and often the error itself."""
        if self.intake.error is not None:
            self.intake.error.__traceback__ = None
            self.intake.error = None
        self.source = self.task = self.keeping = self.cause = self.interrupt = None


async def left_this_node(pump: Pump) -> None:
    """Wait until a run is no longer worked on here: it has settled, or belongs to another process."""
    await _until(pump.log, lambda: pump.log.closed)


async def _until(log: Log, is_so: Callable[[], bool]) -> None:
    """Wait until something is so of a log."""
    grew = asyncio.Event()
    unwatch = log.watch(grew.set)
    try:
        while not is_so():
            grew.clear()
            await grew.wait()
    finally:
        unwatch()


async def _call(hook: Interrupt, reason: str, run_id: str) -> None:
    try:
        called: Any = hook(reason)
        if inspect.isawaitable(called):
            await called
    except Exception:
        logger.exception("the interrupt hook of run %s failed", run_id)
