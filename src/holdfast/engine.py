"""Turns a source into a run: a numbered log that ends in exactly one settlement."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, cast
from weakref import WeakValueDictionary

import msgspec

from .errors import (
    AnswerLost,
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
    Event,
    Failed,
    Finish,
    Flow,
    Notice,
    Receipt,
    RunStarted,
    Settled,
    Source,
    Stopped,
    StoppedBy,
    Text,
    Yielded,
    are_words,
)
from .history import Message
from .ids import NewId, new_id
from .judgement import StopIntent, heard, judge
from .log import Log
from .recovery import NOBODY, Clock, message_of, read_back
from .run import LOOK_AGAIN, SPOKEN, Interrupt, Limits, Run, StoredLog
from .store import HEAD, Append, Idempotency, IfBusy, Lifetime, RunRecord, Store

logger = logging.getLogger("holdfast")


class Places:
    """Room for runs that are about to start. Each gives one back the moment before it starts, and takes its own."""

    def __init__(self, left: int, give_back: Callable[[], None]) -> None:
        self._left = left
        self._give_back = give_back

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._left:
            self.give_back()

    def give_back(self) -> None:
        """Give one place back, where there is one left."""
        if self._left:
            self._left -= 1
            self._give_back()

    def handed_over(self) -> Places:
        """Return the places for somebody else to give back."""
        left, self._left = self._left, 0
        return Places(left, self._give_back)


class Tally(Protocol):
    """Counts runs over several processes that have the same limits."""

    def count(self, owner: str, change: int) -> None:
        """Say that so many runs more go on here."""
        ...

    def elsewhere(self, owner: str) -> tuple[int, int]:
        """Return how many go on in other processes, and how many of them are this owner's."""
        ...


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
        again: Callable[[RunRecord, Log], Awaitable[Source | None]] | None = None,
        limits: Limits | None = None,
        lease: float = 15.0,
        clock: Clock = time.time,
        new_id: NewId = new_id,
    ) -> None:
        self.limits = limits or Limits()
        self.store = store
        self.closing = False
        self._closed = False
        self._insisting = 0
        self.keeper = new_id("eng")
        self._sources = sources
        self._again = again
        self._lease = lease
        self._clock = clock
        self._new_id = new_id
        self._runs: dict[str, Run] = {}
        self._places: dict[str, int] = {}
        self.tally: Tally | None = None
        """Counts the runs of other processes that have the same limits."""
        self._taken = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf
        self._recent: OrderedDict[str, Run] = OrderedDict()
        self._recent_weight = 0
        self._dirty: dict[Run, None] = {}
        self._more = asyncio.Event()
        self._committer: asyncio.Task[None] | None = None
        self._leaser: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._work: set[asyncio.Task[Any]] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._watchers: dict[str, dict[Callable[[], None], None]] = {}

    async def __aenter__(self) -> Engine:
        """Settle what a dead process left, go on with what was queued, and hold the lease."""
        if self.store is not None:
            store = self.store
            await self._insist(lambda: self._beat(store))
            self._leaser = asyncio.create_task(self._hold_lease(store))
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
        deadline: float | None = None,
    ) -> Run:
        """Start the run that a record describes, or queue it where its session is busy.

        Without a `source` the engine's `sources` makes one when the run starts, which may be later and in another
        process. A repeated idempotency key gives the run that it started the first time, and closes the source.
        `deadline` is the seconds that this run may take, where they are fewer than the limit of all.
        """
        if source is None:
            self._require_sources()
        now = self._clock()
        record = msgspec.structs.replace(record, keeper=self.keeper, created_at=now, started_at=now)
        self._require_room(record.owner)
        run = Run(self, record, kept=keep, source=source, interrupt=interrupt)
        if deadline is not None:
            run.deadline = min(deadline, run.deadline or deadline)
        if not keep:
            return self._launch(run)
        self._take_places(record.owner)
        try:
            input = [msgspec.structs.replace(message, created_at=now) for message in input]
            create = partial(
                self._require_store().create_run,
                record,
                input,
                parent=parent,
                expect_head=expect_head,
                if_busy=if_busy,
                idempotency=idempotency,
            )
            return await self._accepted(run, create, if_busy, idempotency)
        finally:
            self._give_place_back(record.owner)

    async def _accepted(
        self, run: Run, create: Callable[[], Awaitable[RunRecord]], if_busy: IfBusy, idempotency: Idempotency | None
    ) -> Run:
        """Wait for a run to be accepted. A client who leaves before it is has left its attached run."""
        accepting = asyncio.create_task(self._accept(run, create, if_busy, idempotency))
        self._hold_work(accepting)
        try:
            return await asyncio.shield(accepting)
        except asyncio.CancelledError:
            accepting.add_done_callback(lambda _: self.stop_unheld(run))
            raise

    async def _accept(
        self, run: Run, create: Callable[[], Awaitable[RunRecord]], if_busy: IfBusy, idempotency: Idempotency | None
    ) -> Run:
        store, session_id = self._require_store(), run.record.session_id
        try:
            async with self._lock(session_id or (idempotency.key if idempotency else run.id)):
                if self.closing:
                    raise ShuttingDown
                if idempotency and (known := await store.find_repeated(idempotency)):
                    return await self.open(known.id)
                if session_id and if_busy == "interrupt":
                    await self._stop_running(session_id, by="replaced")
                if session_id and if_busy == "queue" and len(await store.queued(session_id)) >= self.limits.queue:
                    raise RunLimitReached(self.limits.queue)
                made = await self._created(run, create)
                if made.id != run.id:
                    return await self.open(made.id)
                self._take_on(run, made)
        finally:
            if run.id not in self._runs:
                self._discard_source(run)
        self.touch(session_id)
        return run

    async def _created(self, run: Run, create: Callable[[], Awaitable[RunRecord]]) -> RunRecord:
        try:
            return await create()
        except StoreUnavailable:
            self._hold_work(asyncio.create_task(self._disown(run)))
            raise

    def _take_on(self, run: Run, record: RunRecord) -> None:
        """Start a run as the store has it, or let it wait for its turn."""
        run.record = record
        run.status = record.status
        run.log = run._log
        self._runs[run.id] = run
        if record.status == "running":
            self._launch(run)

    async def _disown(self, run: Run) -> None:
        """Settle a run whose creation failed for the caller but may have reached the store all the same."""
        store, session_id = self._require_store(), run.record.session_id
        failed = Failed(error=StoreUnavailable("The store did not confirm the start of this run.").info())
        async with self._lock(session_id or run.id):
            await self._insist(lambda: store.drop_queued(run.id, failed, self._clock()))
            made = await self._insist(lambda: store.get_run(run.id))
            if made is None or made.keeper != self.keeper or made.id in self._runs:
                return  # never made, dropped, or started all the same, out of the queue
            await self._insist(
                lambda: store.settle(made.id, made.epoch, seq=1, settlement=failed, message=None, now=self._clock())
            )
        if session_id is not None:
            await self._start_next(session_id)

    def _launch(self, run: Run) -> Run:
        run.status = "running"
        self._runs[run.id] = run
        self._take_places(run.record.owner)
        if not run._resumes:
            self._append(run, [RunStarted(run.record.model, run.record.message_id)])
        loop = asyncio.get_running_loop()
        run._touched = run._started = loop.time()
        run._pump = loop.create_task(self._pump(run))
        run._pump.add_done_callback(lambda _: self._call_keeper(run))
        self._look_by(_due(run))
        if self.closing:
            self._end(run, StopIntent("shutdown", self._clock()))
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

    def reserve(self, owner: str, runs: int) -> Places:
        """Take the places of several runs that are about to start: of all or, where there is no room, of none."""
        self._require_room(owner, runs)
        self._take_places(owner, runs)
        return Places(runs, lambda: self._give_place_back(owner))

    def _require_room(self, owner: str, runs: int = 1) -> None:
        if self.closing:
            raise ShuttingDown
        elsewhere, of_owner = self.tally.elsewhere(owner) if self.tally is not None else (0, 0)
        if self._taken + elsewhere + runs > self.limits.runs:
            raise RunLimitReached(self.limits.runs)
        of_owner += self._places.get(owner, 0)
        if self.limits.runs_per_owner is not None and of_owner + runs > self.limits.runs_per_owner:
            raise RunLimitReached(self.limits.runs_per_owner)

    def _take_places(self, owner: str, runs: int = 1) -> None:
        if self.tally is not None:
            self.tally.count(owner, runs)
        self._taken += runs
        self._places[owner] = self._places.get(owner, 0) + runs

    def _give_place_back(self, owner: str) -> None:
        if self.tally is not None:
            self.tally.count(owner, -1)
        self._taken -= 1
        self._places[owner] -= 1
        if not self._places[owner]:
            del self._places[owner]

    def _lock(self, session_id: str) -> asyncio.Lock:
        """Return the lock under which a session's next run is decided: first come, first served."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    # the pump

    async def _pump(self, run: Run) -> None:
        """Read the source, and note how it ended before closing it: a slow or broken close changes that no more."""
        run._entered = True
        loop, source = asyncio.get_running_loop(), run._source
        try:
            source = source or (await self._found_again(run) if run._resumes else self._require_sources()(run))
            async for yielded in source:
                if hasattr(yielded, "pour"):
                    await self._drink(run, cast(Flow, yielded))
                    continue
                run._touched = loop.time()
                self._take_in(run, yielded)
                if self._is_far_behind(run):
                    await self._caught_up(run)
            if run._cause is None:
                run._finish.setdefault(0, Finish("stop"))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - and SystemExit would end the loop, with every other run
            run._cause = run._cause or error
        finally:
            await _close(source, run.id)

    async def _drink(self, run: Run, flow: Flow) -> None:
        """Take in what flows, and let it wait where the store or its reader is far behind."""
        loop = asyncio.get_running_loop()

        def take(yielded: Sequence[Yielded]) -> bool:
            run._touched = loop.time()
            is_word = type(yielded) is list and type(yielded[0]) is Text and len(yielded) == 1  # mostly, and no call
            if run._first_at is None or not (is_word or are_words(yielded)):
                self._take_in(run, yielded)
            elif run.kept or run._log.steps is not None:
                self._append(run, yielded)  # type: ignore[arg-type]
            else:
                run._log.say_words(yielded, self._clock())  # type: ignore[arg-type]
            return not (self._is_far_behind(run) if run.kept else run._log.is_full)

        while not flow.is_over:
            await flow.pour(take)
            if self._is_far_behind(run):
                await self._caught_up(run)

    def _take_in(self, run: Run, yielded: Yielded | Sequence[Yielded]) -> None:
        """Log what a source yielded, all of it or nothing; how it ended is remembered for the judgement."""
        said = heard(yielded)
        if said.input_tokens is not None:
            run._input_tokens = said.input_tokens
        if said.events or run._log.sealed:
            self._append(run, said.events)
        if run._first_at is None and not SPOKEN.isdisjoint(map(type, said.events)):
            run._first_at = run._touched
        for finish in said.finish:
            run._finish.setdefault(finish.choice, finish)

    def _append(self, run: Run, events: Sequence[Event]) -> None:
        if events and not run.kept:
            run._log.say(events, self._clock())
            return
        run._log.append(events)
        if not events:
            return
        self._dirty[run] = None
        self._more.set()
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit())

    def _is_far_behind(self, run: Run) -> bool:
        return run._log.is_full or run._log.appended - run._log.seq > self.limits.unsaved

    # the committer

    async def _commit(self) -> None:
        """Save the new events of all runs together, then show them. One commit carries what came during the last."""
        while True:
            await self._more.wait()
            self._more.clear()
            runs, self._dirty = self._dirty, {}
            at = self._clock()
            parts = [
                (run, Append(run.id, run.record.epoch, first, events, at))
                for run in runs
                for first, events in run._log.pending()
            ]
            for (run, entry), saved in zip(parts, await self._save([entry for _, entry in parts]), strict=True):
                if saved:
                    self._publish(run, entry.first + len(entry.events) - 1)
                else:
                    self._lose(run)

    async def _save(self, entries: list[Append]) -> list[bool]:
        store = self._require_store()
        saved: list[bool] = await self._insist(lambda: store.append(entries))
        return saved

    def _publish(self, run: Run, upto: int) -> None:
        if run._log.closed:
            return  # it was lost while this was saved, and its log has forgotten what nobody saw
        run._log.publish(upto)
        if run._log.appended > upto:
            self._dirty[run] = None
            self._more.set()

    async def _insist(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat until the store has answered: every write can be repeated without harm."""
        try:
            return await ask()
        except StoreUnavailable as error:
            self._insisting += 1
            try:
                return await self._ask_again(ask, error)
            finally:
                self._insisting -= 1

    async def _ask_again(self, ask: Callable[[], Awaitable[Any]], error: StoreUnavailable) -> Any:
        pause = 0.02
        while True:
            logger.warning("the store is away, trying again in %.2f s: %s", pause, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
            try:
                return await ask()
            except StoreUnavailable as again:
                error = again

    async def _saved(self, run: Run) -> None:
        """Wait until everything appended has been saved and shown, or the run belongs to someone else."""
        await _until(run._log, lambda: run._log.seq >= run._log.appended)

    async def _caught_up(self, run: Run) -> None:
        """Wait for the store, or for the client that an attached run lives by: nothing is lost that it has not seen."""
        await _until(run._log, lambda: run._log.has_room() and run._log.seq >= run._log.appended)
        run._touched = asyncio.get_running_loop().time()  # from here on it is the source that is waited for

    # stopping

    async def _stop(self, run: Run, by: StoppedBy) -> None:
        if self._runs.get(run.id, run).status == "queued":
            await self._own(self._stop_queued(run, by))
        live = self._runs.get(run.id, run)  # it may have started since `open` made this one
        if live._pump is not None:
            self._end(live, StopIntent(by, self._clock()))

    def stop_unheld(self, run: Run) -> None:
        """Stop an attached run whose client never came for its events."""
        if run.id in self._runs and run.take_hold():
            self._hold(asyncio.create_task(run.leave()))

    async def _stop_queued(self, run: Run, by: StoppedBy) -> None:
        async with self._lock(run.record.session_id or run.id):
            await self._drop_queued(run, by)

    async def _drop_queued(self, run: Run, by: StoppedBy) -> None:
        """Settle a run that has not started, unless it has started in the meantime."""
        run = self._runs.get(run.id, run)
        if run.status != "queued" or run._log.closed:
            return
        self._runs[run.id] = run
        store, now = self._require_store(), self._clock()
        stopped = Stopped(by=by, receipt=Receipt(now, now, now))
        if await self._insist(lambda: store.drop_queued(run.id, stopped, now)) is not None:
            self._conclude(run, stopped, now)
        else:
            await self._look_after(run)

    async def _look_after(self, run: Run) -> None:
        """See that a queued run still waits: another process may have started it, or deleted its session."""
        store = self._require_store()
        record = await self._insist(lambda: store.get_run(run.id))
        if record is None or record.status != "queued":
            self._lose(run)

    def _end(self, run: Run, cause: StopIntent | HoldfastError) -> None:
        """Interrupt the source, once. The first cause stands, and so does an ending that is already there."""
        if run._log.sealed or run._pump is None or run._pump.done():
            return
        run._cause = run._cause or cause
        run._log.seal()
        self._call_interrupt(run, cause.by if isinstance(cause, StopIntent) else cause.code)
        run._pump.cancel()
        run._set_timer(run.grace, self._abandon)

    def _call_interrupt(self, run: Run, reason: str) -> None:
        hook, run._interrupt = run._interrupt, None
        if hook is not None:
            self._hold(asyncio.create_task(_call(hook, reason, run.id)))

    def _abandon(self, run: Run) -> None:
        """Settle although the source has ignored its cancel: the sealed log refuses whatever it still says."""
        assert run._pump is not None
        logger.warning("run %s: its source ignored the stop for %g s and is abandoned", run.id, run.grace)
        self._set_aside(run._pump)
        self._call_keeper(run)

    def _set_aside(self, pump: asyncio.Task[None]) -> None:
        """Hold on to a pump that no run waits for any more."""
        self._abandoned.add(pump)
        pump.add_done_callback(self._abandoned.discard)

    # the idle limit and the deadline: one timer for all runs, which events only move by writing down their time

    def _look_by(self, due: float) -> None:
        """Look at the runs' times not later than that. A run that starts is hardly ever the first that may be due."""
        if due < self._looks_at:
            if self._timer is not None:
                self._timer.cancel()
            self._looks_at = due
            self._timer = asyncio.get_running_loop().call_at(due, self._check_times)

    def _check_times(self) -> None:
        now, live = asyncio.get_running_loop().time(), self.live()
        self._looks_at, self._timer = math.inf, None
        for run in live:
            self._check_time(run, now)
        self._look_by(min(map(_due, live), default=math.inf))

    def _check_time(self, run: Run, now: float) -> None:
        if self._is_far_behind(run):
            run._touched = now  # it is our store, or its reader, that keeps the source waiting
        if run.deadline is not None and now >= run._started + run.deadline:
            self._end(run, DeadlineExceeded(run.deadline))
        elif run.idle is not None and now >= run._touched + run.idle:
            self._end(run, SourceStalled(run.idle))

    # the keeper

    def _call_keeper(self, run: Run) -> None:
        if run._pump is None:
            return  # it was abandoned, and has ended since
        run._set_timer(None)
        if run._pump.done():
            run._closed_at = self._clock()
        if run._keeper is None and not run._log.closed:
            if run._entered and not run.kept:
                self._settle_at_once(run)  # nothing has to be waited for
            else:
                run._keeper = asyncio.create_task(self._keep(run))
                self._hold(run._keeper)

    def _settle_at_once(self, run: Run) -> None:
        run._log.seal()
        now = self._clock()
        self._conclude(run, self._judge(run, now), now)

    async def _keep(self, run: Run) -> None:
        run._log.seal()
        if not run._entered and (closing := self._discard_source(run)):
            await asyncio.wait({closing}, timeout=self.limits.grace)
            run._closed_at = self._clock() if closing.done() else None
        await self._saved(run)
        if run._log.closed:
            return  # it was lost to another owner
        now = self._clock()
        settlement = self._judge(run, now)
        standing = await self._settle(run, settlement, now) if run.kept else settlement
        if standing is None:
            self._lose(run)
        else:
            self._conclude(run, standing, now)

    def _judge(self, run: Run, now: float) -> AnySettlement:
        return judge(
            run._log,
            finish=run._finish,
            cause=run._cause,
            input_tokens=run._input_tokens,
            closed_at=run._closed_at,
            now=now,
            refused=run.refused,
        )

    async def _settle(self, run: Run, settlement: AnySettlement, now: float) -> AnySettlement | None:
        store = self._require_store()
        message = message_of(run.record, run._log, settlement, now, run.figures(settlement.usage))
        standing: AnySettlement | None = await self._insist(
            lambda: store.settle(
                run.id, run.record.epoch, seq=run._log.seq + 1, settlement=settlement, message=message, now=now
            )
        )
        return standing

    def _conclude(self, run: Run, settlement: AnySettlement, now: float) -> None:
        """Show the settlement, which is durable by now, and let go of the run."""
        self._let_go(run)
        run.settlement = settlement
        run.status = "settled"
        run.record = msgspec.structs.replace(run.record, settled_at=now)
        run._log.close(Settled(settlement))
        run._done.set()
        run._forget_its_making()
        if not run.kept:
            self._remember(run)
        if run.record.session_id is not None:
            self.touch(run.record.session_id)
            self._hold_work(asyncio.create_task(self._start_next(run.record.session_id)))

    def _lose(self, run: Run) -> None:
        """Another owner has the run: readers are sent to the store, and whoever waits learns its settlement."""
        if not run._log.closed:
            self._end(run, StaleEpoch(run.id))
            if run._pump is not None:
                self._set_aside(run._pump)
            run._log.abandon()
            self._let_go(run)
            self._hold(asyncio.create_task(self._learn(run)))

    async def _learn(self, run: Run) -> None:
        """Look at a run that does not go on here until it has ended. A run that is gone went with its session."""
        store = self._require_store()
        while (record := await self._insist(lambda: store.get_run(run.id))) and record.settlement is None:  # noqa: ASYNC110 - in another process
            await asyncio.sleep(LOOK_AGAIN)
        run.settlement = record.settlement if record else Stopped(by="user", text=run.text)
        run.status = "settled"
        run._done.set()

    def _let_go(self, run: Run) -> None:
        self._runs.pop(run.id, None)
        self._dirty.pop(run, None)
        if run._pump is not None:
            self._give_place_back(run.record.owner)
        else:
            self._discard_source(run)

    def _remember(self, run: Run) -> None:
        """Keep an ended run that is not stored for a while, so that a client can still read it to its end."""
        self._recent[run.id] = run
        self._recent_weight += run._weigh()
        while self._recent_weight > self.limits.recent and len(self._recent) > 1:
            self._recent_weight -= self._recent.popitem(last=False)[1]._weight

    # finding

    def now(self) -> float:
        """Return the wall clock's time."""
        return self._clock()

    @property
    def store_is_away(self) -> bool:
        """Whether something waits for the store to come back. An idle engine learns of it with its next heartbeat."""
        return self._insisting > 0

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

    async def times_of(self, run_id: str) -> list[tuple[int, float]]:
        """Return when the events of a stored run came."""
        return await self._require_store().read_times(run_id)

    def forget(self, run_id: str) -> None:
        """Let go of an ended run that is not stored, before its time."""
        if (forgotten := self._recent.pop(run_id, None)) is not None:
            self._recent_weight -= forgotten._weight

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
            queued = await self._drop_all_queued(session_id, by)
            return await self._stop_running(session_id, by) + queued

    async def _drop_all_queued(self, session_id: str, by: StoppedBy) -> list[Run]:
        """Settle what waits in a session; the store knows of runs that another process has queued, too."""
        store = self._require_store()
        records = await self._insist(lambda: store.queued(session_id))
        queued = [self._runs.get(record.id) or Run(self, record, kept=True) for record in records]
        for run in queued:
            await self._drop_queued(run, by)
        return queued

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
        store = self._require_store()
        async with self._lock(session_id):
            await self._drop_all_queued(session_id, "user")
            await self._stop_running(session_id, "user")
            await self._insist(lambda: store.delete_session(session_id))

    async def _start_next(self, session_id: str) -> None:
        """Start the first queued run of a session, if nothing is running in it."""
        async with self._lock(session_id):
            if self.closing:
                return
            record = await self._first_queued(session_id)
            if record is not None:
                self._take_on(self._runs.get(record.id) or Run(self, record, kept=True), record)
            for run in self._waiting(session_id):
                await self._look_after(run)
        self.touch(session_id)

    async def _first_queued(self, session_id: str) -> RunRecord | None:
        """Take the first run from a session's queue. Where the answer is lost, it is what runs for us, but not here."""
        store = self._require_store()
        start = partial(store.start_queued, session_id, keeper=self.keeper, now=self._clock())
        try:
            return await start()
        except StoreUnavailable:
            started: RunRecord | None = await self._insist(start)
        if started is not None:
            return started
        before = self.live()
        running = await self._insist(lambda: store.list_runs(session_id=session_id, status="running"))
        here = {run.id for run in (*before, *self.live())}  # the answer may be older than what happened here
        ours = [record for record in running if record.keeper == self.keeper and record.epoch == 1]  # not inherited
        return next((record for record in ours if record.id not in here), None)

    def _waiting(self, session_id: str) -> list[Run]:
        return [run for run in self.of_session(session_id) if run.status == "queued"]

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

    async def _hold_lease(self, store: Store) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            await self._insist(lambda: self._beat(store))

    async def _beat(self, store: Store) -> None:
        """Renew the lease, then find the runs of those who did not, and what waits. All else is done by other tasks.

        One look at the clock serves both: if it jumped in between, an engine would take its own runs for orphans.
        """
        now = self._clock()
        await store.renew(self.keeper, now + self._lease)
        for orphan in await store.claim(NOBODY, now):
            self._hold_work(asyncio.create_task(self._inherit(store, orphan)))
        waiting = [run.record.session_id or "" for run in self._runs.values() if run.status == "queued"]
        for session_id in dict.fromkeys([*waiting, *await store.waiting_sessions()]):
            self._hold_work(asyncio.create_task(self._start_next(session_id)))

    async def _inherit(self, store: Store, orphan: RunRecord) -> None:
        """Take over a run that a dead process left, with what was seen of it."""
        log = await self._insist(lambda: read_back(store, orphan.id))
        record = await self._insist(lambda: store.adopt(orphan.id, orphan.epoch, self.keeper))
        if record is None:
            return  # someone else has it
        if (slept := self._runs.get(record.id)) is not None:
            self._lose(slept)  # it was ours before, and taken from us while we slept
        logger.warning("run %s was left by a process that is gone", record.id)
        run = Run(self, record, kept=True)
        run._resumes = True
        run.log = run._log = log
        self._launch(run)

    async def _found_again(self, run: Run) -> Source:
        """Return what goes on where a dead process stopped. If nobody knows how to, its run is interrupted."""
        source = None
        try:
            async with asyncio.timeout(self._lease):
                source = await self._again(run.record, run._log) if self._again is not None else None
        except Exception:
            logger.exception("run %s cannot go on", run.id)
        if source is None:
            raise AnswerLost("The server ended, and nobody could go on.")
        self._append(run, [Notice("resumed", "The server was started again, and the answer goes on.")])
        return source

    async def close(self, *, drain: float = 0.0, within: float = 10.0) -> None:
        """Start nothing new, give runs `drain` seconds to end by themselves, stop the rest, see all of them settled.

        What cannot be settled `within` that many seconds (the store is away) is left to the next process, and so
        is what only waits for a person. Twice is harmless.
        """
        if self._closed:
            return
        self.closing = True
        self._leave_waiting()
        await self._all_settled(drain)
        self._leave_waiting()
        for run in self.live():
            self._end(run, StopIntent("shutdown", self._clock()))
        await self._all_settled(within)
        if ending := self._tasks | self._abandoned:
            await asyncio.wait(ending, timeout=self.limits.grace)
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._tasks, self._committer, self._leaser):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if self.store is not None:
            with contextlib.suppress(StoreUnavailable):  # then the lease ends by itself
                await self.store.renew(self.keeper, 0.0)
        self._closed = True

    def _leave_waiting(self) -> None:
        """Leave the runs that only wait for a person as they are: the next process goes on waiting."""
        for run in self.live():
            if run.waits and run.kept and run.record.lifetime == "detached":
                self._lose(run)

    async def _all_settled(self, within: float) -> None:
        """Wait for what goes on, and for what is about to."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._work or self.live():
                    if self._work:
                        await asyncio.wait(set(self._work))
                    for run in self.live():
                        await run.settled()

    # tasks of the engine's own

    async def _own(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do work in a task that no caller's cancel can reach, and wait for it."""
        task = asyncio.create_task(work)
        self._hold_work(task)
        return await asyncio.shield(task)

    def _hold_work(self, task: asyncio.Task[Any]) -> None:
        """Hold on to a task that may start or settle a run: the end of the engine waits for it."""
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        self._hold(task)

    def _hold(self, task: asyncio.Task[Any]) -> None:
        """Hold on to a task: asyncio itself would let it be collected in mid-flight."""
        self._tasks.add(task)
        task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[Any]) -> None:
        """Let go of a task. Its caller may have left: then an error of ours is nobody's, and a bug is still a bug."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HoldfastError):
            logger.error("a task of the engine failed", exc_info=error)

    def _discard_source(self, run: Run) -> asyncio.Future[None] | None:
        """Close a source that was never read, in a task of its own: it may never come back from that."""
        if run._source is None:
            return None
        closing = asyncio.create_task(_close(run._source, run.id))
        run._source = None
        self._hold(closing)
        return closing


def _due(run: Run) -> float:
    """Return when a run has been silent, or has gone on, for too long; never, once it has been told to end."""
    if run._log.sealed or run._pump is None or run._pump.done():
        return math.inf
    idle = math.inf if run.idle is None else run._touched + run.idle
    return idle if run.deadline is None else min(idle, run._started + run.deadline)


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


async def _close(source: Source | None, run_id: str) -> None:
    """Close a generator in the task that iterated it; an iterator of another kind may have nothing to close."""
    close = getattr(source, "aclose", None)
    if close is not None:
        try:
            await close()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # as in the pump: a source ends its run, and nothing else
            logger.exception("the source of run %s could not be closed", run_id)


async def _call(hook: Interrupt, reason: str, run_id: str) -> None:
    try:
        called = hook(reason)
        if inspect.isawaitable(called):
            await called
    except Exception:
        logger.exception("the interrupt hook of run %s failed", run_id)
