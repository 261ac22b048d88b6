"""Turns a source into a run: a numbered log that ends in exactly one settlement."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, get_args
from weakref import WeakValueDictionary

import msgspec

from .errors import (
    DeadlineExceeded,
    HoldfastError,
    RunLimitReached,
    RunNotFound,
    ShuttingDown,
    SourceStalled,
    StaleEpoch,
    StoreUnavailable,
)
from .events import (
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Finish,
    Reasoning,
    Receipt,
    RunStarted,
    Settled,
    Snapshot,
    Source,
    Stopped,
    StoppedBy,
    Text,
    Truncated,
    Usage,
    Yielded,
    encode_event,
)
from .history import Message
from .ids import NewId, new_id
from .log import Log
from .recovery import Clock, message_of, settle_orphans, usage_so_far
from .store import HEAD, Append, Idempotency, IfBusy, Lifetime, RunRecord, Status, Store

logger = logging.getLogger("holdfast")

Interrupt = Callable[[str], Any]
"""Called once, with a reason, when a run is stopped, left or out of time: for sources that need more than a cancel."""

TRUNCATED = frozenset({"length", "max_tokens", "content_filter", "safety", "refusal"})
FAILED = frozenset({"error", "failed", "abort", "insufficient_system_resource"})


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how many. None means no limit."""

    idle: float | None = 120.0
    """Seconds without an event after which a run has failed."""
    deadline: float | None = 3600.0
    """Seconds that a run may take in all."""
    grace: float = 1.0
    """Seconds that a stopped source may take to end before it is abandoned."""
    runs: int = 2000
    """Runs going on at once."""
    runs_per_owner: int | None = None
    queue: int = 32
    """Runs waiting in one session."""
    unsaved: int = 20_000
    """Events of one run that may wait for a store that is away; then its source waits too."""
    log: int = 200_000
    """Events kept in the memory of a run that nobody asked to keep."""
    recent: int = 500_000
    """Events of ended runs that nobody asked to keep, all together: they can be replayed for a while."""


class StopIntent(msgspec.Struct, frozen=True):
    """Someone wants the run to end."""

    by: StoppedBy
    at: float


class StoredLog:
    """The log of a run that lives in the store only, read the same way as a live one."""

    closed = True

    def __init__(self, store: Store, record: RunRecord) -> None:
        self._store = store
        self._record = record
        self.seq = record.seq
        self.oldest = record.oldest
        self.text = record.settlement.text if record.settlement else ""

    async def batch(self, after: int) -> Sequence[Event]:
        """Return the next events after `after`."""
        return await self._store.read_log(self._record.id, after)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Nothing more will come."""
        return lambda: None

    def snapshot(self) -> tuple[int, Snapshot]:
        """Return what was visible before the settlement."""
        return max(self.seq - 1, 0), Snapshot(self.text)


class Run:
    """One generation, from start to settlement.

    Costs one task while it goes on, and its log. Everything that belongs to it lives here and dies with it.
    """

    __slots__ = (
        "__weakref__",
        "_cause",
        "_closed_at",
        "_done",
        "_engine",
        "_entered",
        "_finish",
        "_input_tokens",
        "_interrupt",
        "_is_held",
        "_keeper",
        "_log",
        "_pump",
        "_source",
        "_started",
        "_timer",
        "_touched",
        "deadline",
        "idle",
        "kept",
        "log",
        "record",
        "settlement",
        "status",
    )

    def __init__(self, engine: Engine, record: RunRecord, *, kept: bool) -> None:
        self.record = record
        self.kept = kept
        self.status: Status = record.status
        self.settlement: AnySettlement | None = record.settlement
        self._log = Log(record.id, limit=None if kept else engine.limits.log)
        self.log: Log | StoredLog = self._log
        self.idle = engine.limits.idle
        self.deadline = engine.limits.deadline
        self._engine = engine
        self._done = asyncio.Event()
        self._source: Source | None = None
        self._pump: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._cause: StopIntent | HoldfastError | None = None
        self._finish: dict[int, Finish] = {}
        self._interrupt: Interrupt | None = None
        self._input_tokens = 0
        self._entered = False
        self._is_held = False
        self._closed_at: float | None = None
        self._started = self._touched = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        """`run_…`: unguessable, sorts by time."""
        return self.record.id

    @property
    def text(self) -> str:
        """The visible text so far."""
        return self.log.text

    @property
    def seq(self) -> int:
        """The last seq that a reader can see."""
        return self.log.seq

    async def read(self, after: int = 0) -> AsyncGenerator[tuple[int, Event]]:
        """Yield every event with a `seq` greater than `after`, then live ones, up to the settlement."""
        grew = asyncio.Event()
        unwatch = self.log.watch(grew.set)
        try:
            while True:
                grew.clear()
                events = await self.log.batch(after)
                for event in events:
                    after += 1
                    yield after, event
                if events:
                    await asyncio.sleep(0)  # a replay of a million events leaves the loop to others
                elif self.log.closed:
                    return
                else:
                    await grew.wait()
        finally:
            unwatch()

    async def stop(self, by: StoppedBy = "user") -> AnySettlement:
        """End the run, even in the middle of an await, and wait for the settlement.

        Stopping twice, or after the end, is harmless: the first ending stands.
        """
        await self._engine._stop(self, by)
        return await self.settled()

    def take_hold(self) -> bool:
        """Become the client by whose stay an attached run lives. True for the first who asks."""
        first, self._is_held = not self._is_held, True
        return first and self.record.lifetime == "attached"

    async def leave(self) -> None:
        """Say that the client who started the run has left: an attached run stops, a detached one goes on."""
        if self.record.lifetime == "attached":
            await self.stop(by="disconnect")

    async def settled(self) -> AnySettlement:
        """Wait until the run has ended, however it ends."""
        await self._done.wait()
        assert self.settlement is not None
        return self.settlement

    def _set_timer(self, seconds: float | None, then: Callable[[Run], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and then is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, then, self)


class Engine:
    """Starts runs and sees them settled.

    The *pump* reads the source, and may be cancelled at any moment. The *keeper* comes when the pump has ended (or
    has ignored its cancel for too long), and nothing ever cancels it: no Stop, disconnect or timeout can interrupt
    the write of a settlement. One *committer* saves the new events of all runs together, and only then are they
    shown. Whatever writes to the store runs in a task of the engine's own, never in that of a caller.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        sources: Callable[[Run], Source] | None = None,
        limits: Limits | None = None,
        lease: float = 15.0,
        clock: Clock = time.time,
        new_id: NewId = new_id,
    ) -> None:
        self.limits = limits or Limits()
        self.store = store
        self.closing = False
        self.keeper = new_id("eng")
        self._sources = sources
        self._lease = lease
        self._clock = clock
        self._new_id = new_id
        self._runs: dict[str, Run] = {}
        self._places: Counter[str] = Counter()
        self._recent: OrderedDict[str, Run] = OrderedDict()
        self._recent_events = 0
        self._dirty: dict[Run, None] = {}
        self._more = asyncio.Event()
        self._committer: asyncio.Task[None] | None = None
        self._leaser: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._watchers: dict[str, dict[Callable[[], None], None]] = {}

    async def __aenter__(self) -> Engine:
        """Settle what a dead process left, go on with what was queued, and hold the lease."""
        if self.store is not None:
            await self.store.renew(self.keeper, self._clock() + self._lease)
            await self._recover(self.store)
            self._leaser = asyncio.create_task(self._hold_lease(self.store))
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop what still runs and wait for every settlement."""
        await self.close()

    # starting

    async def start(
        self,
        source: Source,
        *,
        lifetime: Lifetime = "detached",
        keep: bool = False,
        model: str = "",
        kind: str = "chat",
        owner: str = "",
        interrupt: Interrupt | None = None,
    ) -> Run:
        """Make a run of a source. `keep` saves its log in the store, so that it outlives the process."""
        record = RunRecord(id=self._new_id("run"), owner=owner, model=model, kind=kind, lifetime=lifetime)
        return await self.submit(record, source=source, keep=keep, interrupt=interrupt)

    async def submit(
        self,
        record: RunRecord,
        input: Sequence[Message] = (),
        *,
        source: Source | None = None,
        keep: bool = True,
        parent: str | None = HEAD,
        expect_head: str | None = HEAD,
        if_busy: IfBusy = "reject",
        idempotency: Idempotency | None = None,
        interrupt: Interrupt | None = None,
    ) -> Run:
        """Start the run that a record describes, or queue it where its session is busy.

        Without a `source` the engine's `sources` makes one when the run starts, which may be later and in another
        process. A repeated idempotency key gives the run that it started the first time.
        """
        now = self._clock()
        record = msgspec.structs.replace(record, keeper=self.keeper, created_at=now, started_at=now)
        input = [msgspec.structs.replace(message, created_at=now) for message in input]
        self._take_place(record.owner)
        try:
            if not keep:
                return self._launch(Run(self, record, kept=False), source, interrupt)
            create = partial(
                self._require_store().create_run,
                record,
                input,
                parent=parent,
                expect_head=expect_head,
                if_busy=if_busy,
                idempotency=idempotency,
            )
            run: Run = await self._own(self._accept(record, create, if_busy, idempotency, source, interrupt))
            return run
        finally:
            self._give_place_back(record.owner)

    async def _accept(
        self,
        record: RunRecord,
        create: Callable[[], Awaitable[RunRecord]],
        if_busy: IfBusy,
        idempotency: Idempotency | None,
        source: Source | None,
        interrupt: Interrupt | None,
    ) -> Run:
        store, session_id = self._require_store(), record.session_id
        async with self._lock(session_id or record.id):
            if idempotency and (known := await store.find_repeated(idempotency)):
                return await self.open(known.id)
            if session_id and if_busy == "interrupt":
                await self._stop_running(session_id, by="replaced")
            if session_id and if_busy == "queue" and len(await store.queued(session_id)) >= self.limits.queue:
                raise RunLimitReached(self.limits.queue)
            try:
                made = await create()
            except StoreUnavailable:
                self._hold(asyncio.create_task(self._disown(record)))
                raise
            if made.id != record.id:
                return await self.open(made.id)
            run = Run(self, made, kept=True)
            run._interrupt = interrupt
            if made.status == "queued":
                self._runs[run.id] = run
            else:
                self._launch(run, source)
        self.touch(session_id)
        return run

    async def _disown(self, record: RunRecord) -> None:
        """Settle a run whose creation failed for the caller but may have reached the store all the same."""
        store = self._require_store()
        made = await self._insist(lambda: store.get_run(record.id))
        if made is not None and made.status == "queued":
            await self._insist(lambda: store.drop_queued(made.id, Stopped(by="shutdown"), self._clock()))
        elif made is not None:
            failed = Failed(error=StoreUnavailable("The store did not confirm the start of this run.").info())
            await self._insist(
                lambda: store.settle(made.id, made.epoch, seq=1, settlement=failed, message=None, now=self._clock())
            )

    def _launch(self, run: Run, source: Source | None = None, interrupt: Interrupt | None = None) -> Run:
        run._source = source if source is not None else self._require_sources()(run)
        run._interrupt = interrupt or run._interrupt
        run.status = "running"
        self._runs[run.id] = run
        self._places[run.record.owner] += 1
        self._append(run, [RunStarted(run.record.model, run.record.message_id)])
        run._pump = asyncio.create_task(self._pump(run, run._source))
        run._pump.add_done_callback(lambda _: self._call_keeper(run))
        run._touched = run._started = asyncio.get_running_loop().time()
        self._set_timer(run)
        return run

    def _require_store(self) -> Store:
        if self.store is None:
            raise TypeError("this engine has no store: give it one to keep runs")
        return self.store

    def _require_sources(self) -> Callable[[Run], Source]:
        if self._sources is None:
            raise TypeError("give the run a source, or the engine a way to make one")
        return self._sources

    # admission

    def _take_place(self, owner: str) -> None:
        if self.closing:
            raise ShuttingDown
        if self._places.total() >= self.limits.runs:
            raise RunLimitReached(self.limits.runs)
        if self.limits.runs_per_owner is not None and self._places[owner] >= self.limits.runs_per_owner:
            raise RunLimitReached(self.limits.runs_per_owner)
        self._places[owner] += 1

    def _give_place_back(self, owner: str) -> None:
        self._places[owner] -= 1
        if not self._places[owner]:
            del self._places[owner]

    def _lock(self, session_id: str) -> asyncio.Lock:
        """Return the lock under which a session's next run is decided: first come, first served."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    # the pump

    async def _pump(self, run: Run, source: Source) -> None:
        run._entered = True
        loop = asyncio.get_running_loop()
        try:
            async for yielded in source:
                run._touched = loop.time()
                self._append(run, self._take_in(run, yielded))
                if self._is_far_behind(run):
                    await self._saved(run)
        finally:
            await _close(source)

    def _take_in(self, run: Run, yielded: Yielded | Sequence[Yielded]) -> list[Event]:
        """Return the events of what a source yielded; how it ended is remembered for the judgement."""
        events: list[Event] = []
        for item in yielded if isinstance(yielded, (list, tuple)) else (yielded,):
            if isinstance(item, str):
                item = Text(item)
            if isinstance(item, (Text, Reasoning)):
                if item.text:
                    events.append(item if item.text.isascii() else storable(item))
            elif isinstance(item, Finish):
                run._finish.setdefault(item.choice, item)
            elif isinstance(item, Usage) and item.source == "estimated":
                run._input_tokens = item.input_tokens
            elif type(item) in _MAY_YIELD:
                events.append(storable(item))
            else:
                raise TypeError(f"a source may yield events and strings, not {type(item).__name__}")
        return events

    def _append(self, run: Run, events: Sequence[Event]) -> None:
        if not events:
            return
        run._log.append(events)
        if not run.kept:
            run._log.publish(run._log.appended)
            return
        self._dirty[run] = None
        self._more.set()
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit())

    def _is_far_behind(self, run: Run) -> bool:
        return run._log.appended - run._log.seq > self.limits.unsaved

    # the committer

    async def _commit(self) -> None:
        """Save the new events of all runs together, then show them. One commit carries what came during the last."""
        while True:
            await self._more.wait()
            self._more.clear()
            runs, self._dirty = self._dirty, {}
            entries = [Append(run.id, run.record.epoch, run._log.seq + 1, run._log.pending()) for run in runs]
            for run, entry, saved in zip(runs, entries, await self._save(entries), strict=True):
                if saved:
                    self._publish(run, entry.first + len(entry.events) - 1)
                else:
                    self._lose(run)

    async def _save(self, entries: list[Append]) -> list[bool]:
        store = self._require_store()
        saved: list[bool] = await self._insist(lambda: store.append(entries))
        return saved

    def _publish(self, run: Run, upto: int) -> None:
        run._log.publish(upto)
        if run._log.appended > upto:
            self._dirty[run] = None
            self._more.set()

    async def _insist(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat until the store has answered: every write can be repeated without harm."""
        pause = 0.02
        while True:
            try:
                return await ask()
            except StoreUnavailable as error:
                logger.warning("the store is away, trying again in %.2f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)

    async def _saved(self, run: Run) -> None:
        """Wait until everything appended has been saved and shown, or the run belongs to someone else."""
        grew = asyncio.Event()
        unwatch = run._log.watch(grew.set)
        try:
            while run._log.seq < run._log.appended:
                grew.clear()
                await grew.wait()
        finally:
            unwatch()

    # stopping

    async def _stop(self, run: Run, by: StoppedBy) -> None:
        if run.status == "queued":
            await self._own(self._stop_queued(run, by))
        if run._pump is not None:
            self._end(run, StopIntent(by, self._clock()))

    def stop_unheld(self, run: Run) -> None:
        """Stop an attached run whose client never came for its events."""
        if run.take_hold() and run.status != "settled":
            self._hold(asyncio.create_task(run.leave()))

    async def _stop_queued(self, run: Run, by: StoppedBy) -> None:
        async with self._lock(run.record.session_id or run.id):
            await self._drop_queued(run, by)

    async def _drop_queued(self, run: Run, by: StoppedBy) -> None:
        """Settle a run that has not started, unless it has started in the meantime."""
        if run.status != "queued":
            return
        store, now = self._require_store(), self._clock()
        stopped = Stopped(by=by, receipt=Receipt(now, now, now))
        record = await self._insist(lambda: store.drop_queued(run.id, stopped, now))
        record = record or await self._insist(lambda: store.get_run(run.id))
        self._conclude(run, record.settlement if record and record.settlement else stopped)

    def _end(self, run: Run, cause: StopIntent | HoldfastError) -> None:
        """Interrupt the source, once. The first cause stands, and so does an ending that is already there."""
        if run._cause is not None or run._keeper is not None or run._pump is None or run._pump.done():
            return
        run._cause = cause
        run._log.seal()
        self._call_interrupt(run, cause.by if isinstance(cause, StopIntent) else cause.code)
        run._pump.cancel()
        run._set_timer(self.limits.grace, self._abandon)

    def _call_interrupt(self, run: Run, reason: str) -> None:
        hook, run._interrupt = run._interrupt, None
        if hook is not None:
            self._hold(asyncio.create_task(_call(hook, reason, run.id)))

    def _abandon(self, run: Run) -> None:
        """Settle although the source has ignored its cancel: the sealed log refuses whatever it still says."""
        assert run._pump is not None
        logger.warning("run %s: its source ignored the stop for %g s and is abandoned", run.id, self.limits.grace)
        self._hold(run._pump)
        self._call_keeper(run)

    # the idle limit and the deadline: one timer for each run, which events only move by writing down their time

    def _set_timer(self, run: Run) -> None:
        idle = math.inf if run.idle is None else run._touched + run.idle
        deadline = math.inf if run.deadline is None else run._started + run.deadline
        if (due := min(idle, deadline)) < math.inf:
            run._set_timer(due - asyncio.get_running_loop().time(), self._check_time)

    def _check_time(self, run: Run) -> None:
        now = asyncio.get_running_loop().time()
        if self._is_far_behind(run):
            run._touched = now  # it is our store that keeps the source waiting
        if run.deadline is not None and now >= run._started + run.deadline:
            self._end(run, DeadlineExceeded(run.deadline))
        elif run.idle is not None and now >= run._touched + run.idle:
            self._end(run, SourceStalled(run.idle))
        else:
            self._set_timer(run)

    # the keeper

    def _call_keeper(self, run: Run) -> None:
        assert run._pump is not None
        run._set_timer(None)
        if run._keeper is None:
            run._closed_at = self._clock() if run._pump.done() else None
            run._keeper = asyncio.create_task(self._keep(run))
            self._hold(run._keeper)

    async def _keep(self, run: Run) -> None:
        run._log.seal()
        if not run._entered and run._source is not None:
            await _close(run._source)
        await self._saved(run)
        if run._log.closed:
            return  # it was lost to another owner
        settlement = self._judge(run)
        standing = await self._settle(run, settlement) if run.kept else settlement
        if standing is None:
            self._lose(run)
        else:
            self._conclude(run, standing)

    def _judge(self, run: Run) -> AnySettlement:
        """Decide how the run ended: by what the source said of its end, else by who ended it, else by what broke."""
        assert run._pump is not None
        said: dict[str, Any] = {"text": run._log.text, "usage": usage_so_far(run._log, run._input_tokens)}
        if 0 in run._finish:
            return _as_said(run._finish, said)
        if isinstance(run._cause, StopIntent):
            return Stopped(**said, by=run._cause.by, receipt=Receipt(run._cause.at, run._closed_at, self._clock()))
        error = run._cause or (None if run._pump.cancelled() else run._pump.exception())
        if error is not None:
            return Failed(**said, error=_explain(run, error))
        if run._pump.cancelled():
            return Failed(**said, error=ErrorInfo("source_cancelled", "The source was cancelled from outside."))
        return Completed(**said, finish_reason="stop")

    async def _settle(self, run: Run, settlement: AnySettlement) -> AnySettlement | None:
        store, now = self._require_store(), self._clock()
        message = message_of(run.record, run._log, settlement, now)
        standing: AnySettlement | None = await self._insist(
            lambda: store.settle(
                run.id, run.record.epoch, seq=run._log.seq + 1, settlement=settlement, message=message, now=now
            )
        )
        return standing

    def _conclude(self, run: Run, settlement: AnySettlement) -> None:
        """Show the settlement, which is durable by now, and let go of the run."""
        self._let_go(run)
        run.settlement = settlement
        run.status = "settled"
        run.record = msgspec.structs.replace(run.record, settled_at=self._clock())
        run._log.close(Settled(settlement))
        run._done.set()
        if not run.kept:
            self._remember(run)
        if run.record.session_id is not None:
            self.touch(run.record.session_id)
            self._hold(asyncio.create_task(self._start_next(run.record.session_id)))

    def _lose(self, run: Run) -> None:
        """Another owner has the run: readers are sent to the store, and whoever waits learns its settlement."""
        if not run._log.closed:
            run._log.abandon()
            run._cause = run._cause or StaleEpoch(run.id)
            if run._pump is not None and not run._pump.done():
                run._pump.cancel()
            self._let_go(run)
            self._hold(asyncio.create_task(self._learn(run)))

    async def _learn(self, run: Run) -> None:
        store = self._require_store()
        record: RunRecord | None = None
        while record is None or record.settlement is None:
            record = await self._insist(lambda: store.get_run(run.id))
            if record is None:
                break
            await asyncio.sleep(self._lease / 4)
        run.settlement = record.settlement if record else Stopped(by="user", text=run.text)
        run.status = "settled"
        run._done.set()

    def _let_go(self, run: Run) -> None:
        self._runs.pop(run.id, None)
        self._dirty.pop(run, None)
        run._source = None
        if run._pump is not None:
            self._give_place_back(run.record.owner)

    def _remember(self, run: Run) -> None:
        """Keep an ended run that is not stored for a while, so that a client can still read it to its end."""
        self._recent[run.id] = run
        self._recent_events += run.seq
        while self._recent_events > self.limits.recent and len(self._recent) > 1:
            self._recent_events -= self._recent.popitem(last=False)[1].seq

    # finding

    def now(self) -> float:
        """Return the wall clock's time."""
        return self._clock()

    def live(self) -> list[Run]:
        """Return the runs that are going on here."""
        return [run for run in self._runs.values() if run.status == "running"]

    async def open(self, run_id: str) -> Run:
        """Return a run, queued, going on or ended. `RunNotFound` where there is none."""
        if run := self._runs.get(run_id) or self._recent.get(run_id):
            return run
        record = await self.store.get_run(run_id) if self.store is not None else None
        if run := self._runs.get(run_id):  # it started while we looked
            return run
        if record is None or self.store is None:
            raise RunNotFound(run_id)
        run = Run(self, record, kept=True)
        run.log = StoredLog(self.store, record)
        if record.settlement is not None:
            run._done.set()
        return run

    # sessions

    def of_session(self, session_id: str) -> list[Run]:
        """Return the runs that are going on or queued in a session."""
        return [run for run in self._runs.values() if run.record.session_id == session_id]

    async def stop_session(self, session_id: str, by: StoppedBy = "user") -> list[Run]:
        """Stop all runs of a session, the queued ones first so that none of them starts in between."""
        stopped: list[Run] = await self._own(self._stop_all(session_id, by))
        return stopped

    async def _stop_all(self, session_id: str, by: StoppedBy) -> list[Run]:
        async with self._lock(session_id):
            queued = [run for run in self.of_session(session_id) if run.status == "queued"]
            for run in queued:
                await self._drop_queued(run, by)
            return await self._stop_running(session_id, by) + queued

    async def _stop_running(self, session_id: str, by: StoppedBy) -> list[Run]:
        running = [run for run in self.of_session(session_id) if run.status == "running"]
        for run in running:
            self._end(run, StopIntent(by, self._clock()))
        for run in running:
            await run.settled()
        return running

    async def delete_session(self, session_id: str) -> None:
        """Stop all runs of a session and delete it; nothing can start in it in between."""
        await self._own(self._delete(session_id))
        self.touch(session_id)

    async def _delete(self, session_id: str) -> None:
        await self._stop_all(session_id, "user")
        async with self._lock(session_id):
            await self._stop_running(session_id, "user")
            store = self._require_store()
            await self._insist(lambda: store.delete_session(session_id))

    async def _start_next(self, session_id: str) -> None:
        """Start the first queued run of a session, if nothing is running in it."""
        store = self._require_store()
        async with self._lock(session_id):
            if self.closing:
                return
            record = await self._insist(lambda: store.start_queued(session_id, keeper=self.keeper, now=self._clock()))
            if record is None:
                return
            run = self._runs.get(record.id) or Run(self, record, kept=True)
            run.record = record
            self._launch(run)
        self.touch(session_id)

    def watch_session(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever something happened in a session, until the returned function is called."""
        self._watchers.setdefault(session_id, {})[wake] = None

        def unwatch() -> None:
            watchers = self._watchers.get(session_id, {})
            watchers.pop(wake, None)
            if not watchers:
                self._watchers.pop(session_id, None)

        return unwatch

    def touch(self, session_id: str | None) -> None:
        """Tell those who watch a session that something happened in it."""
        for wake in tuple(self._watchers.get(session_id or "", ())):
            wake()

    # leases and the end

    async def _recover(self, store: Store) -> None:
        for orphan in await settle_orphans(store, self.keeper, self._clock):
            logger.warning("run %s was left by a process that is gone: settled as interrupted", orphan.id)
        for session_id in await store.waiting_sessions():
            for record in await store.queued(session_id):
                self._runs.setdefault(record.id, Run(self, record, kept=True))
            await self._start_next(session_id)

    async def _hold_lease(self, store: Store) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            await self._insist(lambda: store.renew(self.keeper, self._clock() + self._lease))
            await self._insist(lambda: self._recover(store))

    async def close(self, *, drain: float = 0.0, within: float = 10.0) -> None:
        """Start nothing new, give runs `drain` seconds to end by themselves, stop the rest, see all of them settled.

        What cannot be settled `within` that many seconds (the store is away) is left to the next process.
        """
        self.closing = True
        await self._all_settled(drain)
        for run in self.live():
            self._end(run, StopIntent("shutdown", self._clock()))
        await self._all_settled(within)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self.limits.grace)
        for task in (self._committer, self._leaser):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if self.store is not None:
            await self.store.renew(self.keeper, 0.0)

    async def _all_settled(self, within: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                for run in self.live():
                    await run.settled()

    # tasks of the engine's own

    async def _own(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do work in a task that no caller's cancel can reach, and wait for it."""
        task = asyncio.create_task(work)
        self._hold(task)
        return await asyncio.shield(task)

    def _hold(self, task: asyncio.Future[Any]) -> None:
        """Hold on to a task: asyncio itself would let it be collected in mid-flight."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _close(source: Source) -> None:
    """Close a generator in the task that iterated it; an iterator of another kind may have nothing to close."""
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


async def _call(hook: Interrupt, reason: str, run_id: str) -> None:
    try:
        called = hook(reason)
        if inspect.isawaitable(called):
            await called
    except Exception:
        logger.exception("the interrupt hook of run %s failed", run_id)


def storable(event: Any) -> Any:
    """Return the event without lone surrogates: half an emoji can be neither sent nor stored."""
    try:
        encode_event(event)
    except UnicodeEncodeError:
        mended = {
            name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
            for name, value in msgspec.structs.asdict(event).items()
        }
        return type(event)(**mended)
    return event


def _as_said(finish: dict[int, Finish], said: dict[str, Any]) -> AnySettlement:
    """Return the settlement that the source's own words amount to."""
    first = finish[0]
    said["finish_reason"] = first.reason
    if len(finish) > 1:
        said["finish_reasons"] = tuple(finish[choice].reason for choice in sorted(finish))
    if first.error is not None or first.reason in FAILED:
        error = first.error or ErrorInfo("source_failed", f"The source ended with {first.reason!r}.", status=502)
        return Failed(**said, error=error)
    return Truncated(**said) if first.reason in TRUNCATED else Completed(**said)


def _explain(run: Run, error: BaseException) -> ErrorInfo:
    """Return what a reader may know of an error: our own words, or nothing of a stranger's."""
    if isinstance(error, HoldfastError):
        return error.info()
    logger.error("the source of run %s raised", run.id, exc_info=error)
    return ErrorInfo("source_failed", f"The source failed with {type(error).__name__}. The server's log has more.")


_MAY_YIELD = frozenset(get_args(Event)) - {RunStarted, Snapshot, Settled}
