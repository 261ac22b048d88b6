"""Engines and stores with a known mistake, each of which the checker must catch.

A simulation that finds nothing proves nothing until it has been seen to find what is there. Most of these mistakes were
made by real systems; some were our own, found here first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import fields
from dataclasses import replace as replace_plan
from typing import Any

from msgspec.structs import replace

from holdfast.concurrency.tasks import OwnedTasks
from holdfast.engine.engine import Engine, EngineClasses
from holdfast.engine.keeper import Keeper
from holdfast.engine.lease import Lease
from holdfast.engine.pump import Pump, Shared
from holdfast.engine.run import Run
from holdfast.engine.session_queue import SessionQueue
from holdfast.engine.watchdog import Watchdog
from holdfast.errors import HoldfastError, SessionBusy
from holdfast.events import (
    AnySettlement,
    Completed,
    Event,
    Failed,
    Finish,
    Interrupted,
    Settled,
    Stopped,
    Text,
    Yielded,
)
from holdfast.history import Message
from holdfast.log.intake import Intake
from holdfast.log.log import Log
from holdfast.log.segment import NOTHING, Segment, segment_of
from holdfast.log.settlement import StopIntent
from holdfast.store import Idempotency, RunRecord
from holdfast.store.memory import MemoryStore

from .scenario import Scenario, SendPlan, SourcePlan, Trouble, Weather
from .world import Design

BANK: list[Design] = []


# scenes: what a scenario is changed to where a mistake shows only when several misfortunes meet


def _sleeper_wakes_up(scenario: Scenario) -> None:
    """A server sleeps. The one that takes its run over cannot go on with it, and has a long run of its own."""
    first, second = _two_sends(scenario)
    first.again = "never"
    second.at = 7.0
    scenario.troubles = [Trouble(0.3, "pause", 9.5)]


def _sleeper_gets_its_run_back(scenario: Scenario) -> None:
    """A server sleeps. The one that takes its run over dies, and nobody has its place when the first wakes up."""
    first, _ = _two_sends(scenario)
    first.again = "yes"
    scenario.sends = [first]
    scenario.troubles = [Trouble(0.3, "pause", 19.0), Trouble(9.0, "crash", 30.0)]


def _two_sends(scenario: Scenario) -> tuple[SendPlan, SendPlan]:
    """Two sends that are kept and write for some twelve seconds; nothing else happens."""
    send = scenario.sends[0]
    slow = SourcePlan([(1.0, f"{number} ") for number in range(12)])
    plain = replace_plan(
        send,
        at=0.0,
        session=None,
        kept=True,
        lifetime="detached",
        source=slow,
        repeats=[],
        leaves=None,
        cut=None,
        stops=[],
    )
    scenario.sends = [plain, replace_plan(plain)]
    scenario.limits = replace(scenario.limits, idle=20.0, deadline=None)
    scenario.weather, scenario.session_stops, scenario.deletes = Weather(), [], []
    return scenario.sends[0], scenario.sends[1]


def bad(name: str, reason: str, origin: str, *, expects: str, **others: Any) -> Callable[[type], type]:
    """Add a design to the bank: an engine, a store, or one part of the engine with a mistake in it.

    `expects` is what it must be caught for, in the checker's words. `others` are further parts of the same mistake,
    by their place in the engine, and what else belongs to the design.
    """

    def add(mistake: type) -> type:
        made = {_place(mistake): mistake, **others}
        parts = {place: made.pop(place) for place in list(made) if place in _PLACES.values()}
        classes = EngineClasses(**parts)
        BANK.append(Design(name=name, reason=reason, origin=origin, expects=expects, classes=classes, **made))
        return mistake

    return add


_PLACES = {part.default: part.name for part in fields(EngineClasses)}


def _place(mistake: type) -> str:
    base = mistake.__mro__[1]
    return {Engine: "engine", MemoryStore: "store"}.get(base) or _PLACES[base]


# who settles


class _StaysAway(Keeper):
    def take(self, pump: Pump) -> None:
        pump.stop_timer()


def keeper_of(pump: Pump) -> Keeper:
    keeper = getattr(pump.shared.ended, "__self__", None)
    assert isinstance(keeper, Keeper)
    return keeper


@bad(
    "save-in-the-cancelled-task",
    "the task that is cancelled also saves, and one that is cancelled before its first step never enters its `finally`",
    "the naive handler; measured on three ASGI servers",
    keeper=_StaysAway,
    expects="it was never settled",
)
class _SavesInTheCancelledTask(Pump):
    async def read(self) -> None:
        try:
            await super().read()
        finally:
            self.closed_at = self.shared.clock()
            await keeper_of(self).keep(self)


class _CancelsTheKeeper(Pump):
    def end(self, cause: StopIntent | HoldfastError) -> bool:
        is_first = super().end(cause)
        if self.keeping is not None and isinstance(cause, StopIntent):
            self.keeping.cancel()
        return is_first


@bad(
    "shield-only",
    "a shield returns to a caller who is cancelled again before the save is done; the end is announced all the same",
    "asyncio.shield in a request's `finally`; LiteLLM PR #34496",
    pump=_CancelsTheKeeper,
    expects="a caller was told a settlement of .* that the store does not have",
)
class _ShieldOnly(Keeper):
    def take(self, pump: Pump) -> None:
        pump.stop_timer()
        if pump.keeping is None and pump.task is not None:
            pump.closed_at = self._shared.clock() if pump.task.done() else None
            pump.keeping = self._shared.tasks.spawn(self._save_shielded(pump))

    async def _save_shielded(self, pump: Pump) -> None:
        saving = self._shared.tasks.spawn(self.keep(pump))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            now = self._shared.clock()
            self.show(pump, self.judge(pump, now), now)


@bad(
    "keeper-starts-with-the-pump",
    "whoever cleans up is started by the first step of a task that may be cancelled before it",
    "the run manager of odysseus: a subscriber waits for ever",
    expects="it was never settled",
)
class _KeeperStartsWithThePump(Keeper):
    def take(self, pump: Pump) -> None:
        if pump.has_begun:
            super().take(pump)


class _LeavesStopsToTheCaller(Keeper):
    def take(self, pump: Pump) -> None:
        if not isinstance(pump.cause, StopIntent) or pump.cause.by != "user":
            super().take(pump)


def pump_of(engine: Engine, run_id: str) -> Pump | None:
    live = next((run.live for run in engine.live() if run.id == run_id), None)
    assert live is None or isinstance(live, Pump)
    return live


@bad(
    "caller-settles",
    "a stopped run is settled by the task that asked for it, which its own client can cancel",
    "save in the handler of Stop",
    keeper=_LeavesStopsToTheCaller,
    expects="it was never settled",
)
class _CallerSettles(Engine):
    async def stop_run(self, run: Run, by: Any) -> bool:
        is_first = await super().stop_run(run, by)
        pump = pump_of(self, run.id)
        if pump is None or pump.task is None or pump.cause is None:
            return is_first
        await asyncio.wait({pump.task}, timeout=self.limits.grace)
        if pump.keeping is None and pump.run.settlement is None:
            pump.stop_timer()
            pump.closed_at = self.now() if pump.task is not None and pump.task.done() else None
            await keeper_of(pump).keep(pump)
        return is_first


@bad(
    "caller-starts",
    "a run is accepted in its client's task: cancelled half-way, the store has a run that nobody runs",
    "LangGraph #8764: an accepted run lost before its first checkpoint",
    expects="it was never settled",
)
class _CallerStarts(OwnedTasks):
    async def run(self, coroutine: Coroutine[Any, Any, Any], **kwargs: Any) -> Any:
        return await coroutine


@bad(
    "stop-cancels-twice",
    "the second Stop cancels the cleanup that the first one has begun",
    "httpx leaked 10 of 15 upstreams under double cancel; encode/httpx #3782",
    expects="its source was cancelled 2 times",
)
class _StopCancelsTwice(Pump):
    def end(self, cause: StopIntent | HoldfastError) -> bool:
        if self.cause is not None and self.task is not None and isinstance(cause, StopIntent):
            self.task.cancel()
        return super().end(cause)


@bad(
    "waits-for-a-stubborn-source",
    "a source that ignores its cancel is waited for",
    "no grace period",
    expects="it was never settled",
)
class _WaitsForAStubbornSource(Pump):
    def abandon(self) -> None:
        pass


@bad(
    "no-idle-limit",
    "a source that falls silent is waited for",
    "Open WebUI #1166: a generation that never ends",
    expects="a client waits for ever",
)
class _NoIdleLimit(Watchdog):
    def check(self, pump: Pump, now: float) -> None:
        pump.touched = now


# what is shown


@bad(
    "publish-before-commit",
    "subscribers are shown what a crash can still lose",
    "publish to the live channel, then save",
    expects="an event of .* was shown before it was saved",
)
class _PublishesBeforeCommit(Log):
    def append(self, segment: Segment) -> None:
        super().append(segment)
        self.publish(self.seq)  # wakes the readers

    def slice(self, after: int) -> Segment:
        if after < self.seq:
            return super().slice(after)
        unsaved = [*self.pending()]
        return segment_of(unsaved[after - self.seq :])


@bad(
    "settlement-shown-before-it-is-durable",
    "the end is announced, then saved",
    "`yield done` before `await save()`",
    expects="a caller was told a settlement of .* that the store does not have",
)
class _ShowsTheSettlementFirst(Keeper):
    async def save(self, pump: Pump, settlement: AnySettlement, now: float) -> AnySettlement | None:
        pump.run.settle(settlement)
        return await super().save(pump, settlement, now)


@bad(
    "settles-over-pending-events",
    "the settlement does not wait for events that are still on their way to the store",
    "flush and finish on two paths",
    expects="it lost words",
)
class _SettlesOverPendingEvents(Pump):
    async def saved(self) -> None:
        pass


@bad(
    "replay-then-subscribe",
    "what comes between the end of the replay and the subscription is missed",
    "LibreChat PR #11710",
    expects="a subscriber missed events",
)
class _ReplaysThenSubscribes(Run):
    async def read(self, after: int = 0) -> AsyncGenerator[tuple[int, Event]]:
        while events := await self.log.batch(after):
            for event in events:
                after += 1
                yield after, event
        if self.log.closed:
            return
        await asyncio.sleep(0)
        last = self.log.seq  # live from here
        async for seq, event in super().read(last):
            yield seq, event


@bad(
    "subscribe-then-replay-without-a-cursor",
    "what comes while the replay is read is delivered twice",
    "LibreChat PR #14423",
    expects="a subscriber saw events again",
)
class _ReplaysTwice(Run):
    async def read(self, after: int = 0) -> AsyncGenerator[tuple[int, Event]]:
        subscribed = self.log.seq
        replayed = after
        while replayed < self.log.seq:
            replayed += 1
            yield replayed, (await self.log.batch(replayed - 1))[0]
            await asyncio.sleep(0)
        async for seq, event in super().read(max(after, subscribed)):
            yield seq, event


@bad(
    "watches-after-reading",
    "a wake-up between the look and the wait is lost",
    "the condition variable without its lock",
    expects="a subscriber did not see the end",
)
class _WatchesAfterReading(Run):
    async def read(self, after: int = 0) -> AsyncGenerator[tuple[int, Event]]:
        while True:
            events = await self.log.batch(after)
            for event in events:
                after += 1
                yield after, event
            if not events and self.log.closed:
                return
            await asyncio.sleep(0)
            if not events:
                grew = asyncio.Event()
                unwatch = self.log.watch(grew.set)
                try:
                    await grew.wait()
                finally:
                    unwatch()


@bad(
    "unsealed-log",
    "a source goes on writing after its run was stopped",
    "a late writer that nobody fences off",
    expects="it is called completed, and its source was cancelled",
)
class _NeverSeals(Log):
    def seal(self) -> None:
        self.sealed = self.closed


@bad(
    "trims-silently",
    "a cursor whose events are gone is answered with later ones",
    "a ring buffer without a gap event",
    expects="a subscriber saw something else than the log has",
)
class _TrimsSilently(Log):
    def slice(self, after: int) -> Segment:
        return super().slice(max(after, self.oldest - 1))


# what is said


class _ReadsTheOther(Keeper):
    def judge(self, pump: Pump, now: float) -> AnySettlement:
        return replace(super().judge(pump, now), text=getattr(pump, "heard", ""))


@bad(
    "two-accumulators",
    "the text of the settlement is collected beside the log, and the two differ",
    "text != log in 19 % of the naive schedules",
    keeper=_ReadsTheOther,
    expects="its log says .*, its settlement",
)
class _TwoAccumulators(Pump):
    def emit(self, events: Sequence[Yielded]) -> bool:
        for item in events:
            text = item if isinstance(item, str) else item.text if isinstance(item, Text) and not item.choice else ""
            self.heard = getattr(self, "heard", "") + text
        return super().emit(events)


@bad(
    "error-counts-as-completed",
    "a source that raised looks like one that is done",
    "`except Exception: break`",
    expects="it is called completed, and its source raised",
)
class _ErrorIsCompleted(Keeper):
    def judge(self, pump: Pump, now: float) -> AnySettlement:
        judged = super().judge(pump, now)
        return Completed(text=judged.text, usage=judged.usage) if isinstance(judged, Failed) else judged


@bad(
    "stop-counts-as-completed",
    "a stopped run looks like one that is done",
    "finish_reason: stop for a user's Stop",
    expects="it is called completed, and its source was cancelled",
)
class _StopIsCompleted(Keeper):
    def judge(self, pump: Pump, now: float) -> AnySettlement:
        judged = super().judge(pump, now)
        return Completed(text=judged.text, usage=judged.usage) if isinstance(judged, Stopped) else judged


@bad(
    "finish-before-its-words",
    "a source's last words are refused, but its Finish beside them counts: completed, with words missing",
    "ours, found by this simulation",
    expects="it is called completed, and its source was",
)
class _FinishBeforeItsWords(Pump):
    def take_in(self, events: Sequence[Yielded]) -> None:
        for item in events:
            if isinstance(item, Finish):
                self.intake.take([item])
        super().take_in(events)


@bad(
    "end-noted-after-the-close",
    "a Stop during a slow close makes a source that had raised look stopped",
    "ours, found by this simulation",
    expects="it is called stopped, and its source had raised before",
)
class _EndNotedAfterTheClose(Pump):
    def end(self, cause: StopIntent | HoldfastError) -> bool:
        if not self.log.sealed and self.is_reading:
            self.intake = Intake()
        return super().end(cause)


# the store


@bad(
    "blind-re-save",
    "a save whose answer was lost is simply done again",
    "Temporal's ExecuteAndTimeout; retry without a key",
    expects="its answer .* is there 2 times",
)
class _SavesBlindly(MemoryStore):
    async def settle(self, run_id: str, epoch: int, **kwargs: Any) -> AnySettlement | None:
        run, message = self._runs.get(run_id), kwargs["message"]
        if run is not None and run.record.settlement is not None and message is not None:
            self._leave(
                self._sessions[run.record.session_id or ""], run.record, replace(message, id=f"{message.id}_again")
            )
        return await super().settle(run_id, epoch, **kwargs)


@bad(
    "no-compare-and-set",
    "the last settlement wins, not the first",
    "UPDATE run SET state = ? WHERE id = ?",
    expects="it was settled 2 times",
)
class _LastSettlementWins(MemoryStore):
    async def settle(self, run_id: str, epoch: int, **kwargs: Any) -> AnySettlement | None:
        run = self._runs.get(run_id)
        if run is not None and run.record.settlement is not None:
            self._extend(run, [Settled(kwargs["settlement"])])
            run.record = replace(run.record, settlement=kwargs["settlement"])
        return await super().settle(run_id, epoch, **kwargs)


@bad(
    "no-fencing",
    "an owner who slept beyond its lease goes on writing",
    "Redis locks without fencing tokens",
    expects="its log is not what its source yielded|something follows its settlement",
)
class _NoFencing(MemoryStore):
    def _writable(self, run_id: str, epoch: int) -> Any:
        return self._runs.get(run_id)

    async def settle(self, run_id: str, epoch: int, **kwargs: Any) -> AnySettlement | None:
        run = self._runs.get(run_id)
        if run is not None and run.record.settlement is None:
            kwargs["seq"] = run.record.seq + 1
        return await super().settle(run_id, run.record.epoch if run is not None else epoch, **kwargs)


@bad(
    "append-is-not-idempotent",
    "an append whose answer was lost is added again",
    "at-least-once delivery",
    expects="it has begun twice",
)
class _AppendsTwice(MemoryStore):
    async def append(self, entries: Sequence[Any]) -> list[bool]:
        renumbered = [
            replace(entry, first=run.record.seq + 1) if (run := self._runs.get(entry.run_id)) else entry
            for entry in entries
        ]
        return await super().append(renumbered)


@bad(
    "non-atomic-idempotency", "the key is looked up first and written later", "check, then act", expects="one key made"
)
class _ForgetsKeys(MemoryStore):
    async def create_run(self, run: RunRecord, input: Sequence[Message] = (), **kwargs: Any) -> RunRecord:
        key: Idempotency | None = kwargs.pop("idempotency", None)
        made = await super().create_run(run, input, **kwargs)
        if key is not None:
            self._runs[made.id].key = key
        return made

    async def append(self, entries: Sequence[Any]) -> list[bool]:
        for entry in entries:
            run = self._runs.get(entry.run_id)
            if run is not None and run.key is not None:
                self._keys[run.key.owner, run.key.key] = run.key.digest, run.record.id
        return await super().append(entries)


# one run at a time


@bad(
    "stop-by-session",
    "Stop reaches whatever runs in the session now, not the run that was meant",
    "a stale tab",
    expects=r"it is called stopped, and nobody \(user\) asked for it",
)
class _StopsBySession(Engine):
    async def stop_run(self, run: Run, by: Any) -> bool:
        for other in self.of_session(run.record.session_id) if run.record.session_id else ():
            if (pump := pump_of(self, other.id)) is not None:
                pump.end(StopIntent(by, self.now()))
        return await super().stop_run(run, by)


class _StartsAnything(MemoryStore):
    async def start_queued(self, session_id: str, *, keeper: str, now: float) -> RunRecord | None:
        session = self._sessions.get(session_id)
        if session is None or not (queued := session.queued()):
            return None
        return self._begin(session, queued[0], queued[0].record.input, keeper=keeper, at=now)


@bad(
    "queue-promoted-before-the-settlement",
    "the next run starts when the source ends, not when the run has settled",
    "`finally: start_next()` before the save",
    store=_StartsAnything,
    expects="two runs are running in one session",
)
class _PromotesEarly(Keeper):
    async def keep(self, pump: Pump) -> None:
        if pump.run.record.session_id is not None:
            self._session_is_free(pump.run.record)
            await asyncio.sleep(0.01)
        await super().keep(pump)


class _InterruptsFreely(MemoryStore):
    def _busy(self, session: Any, if_busy: Any) -> Any:
        return None if if_busy == "interrupt" else super()._busy(session, if_busy)


@bad(
    "interrupt-does-not-wait",
    "a message that interrupts is added before the partial of the run that it stopped",
    "odysseus: cancel, then send at once",
    store=_InterruptsFreely,
    expects="its answer does not follow its question",
)
class _InterruptDoesNotWait(SessionQueue):
    async def stop_running(self, session_id: str, by: Any) -> list[Run]:
        running = [pump for pump in self._pumps.of_session(session_id) if pump.run.status == "running"]
        for pump in running:
            pump.end(StopIntent(by, self._shared.clock()))
        return [pump.run for pump in running]


class _NeverBusy(MemoryStore):
    def _busy(self, session: Any, if_busy: Any) -> Any:
        return None if if_busy == "reject" else super()._busy(session, if_busy)


@bad(
    "busy-check-outside-the-lock",
    "two sends both look, both find the session free, and both start",
    "odysseus double send: the current run stays `running` for ever in 11-24 % of schedules",
    store=_NeverBusy,
    expects="two runs are running in one session",
)
class _ChecksOutsideTheLock(SessionQueue):
    def lock(self, name: str) -> asyncio.Lock:
        return asyncio.Lock()

    async def create(self, pump: Pump, create: Any) -> RunRecord:
        if (session_id := pump.run.record.session_id) is not None:
            running = await self._store.list_runs(session_id=session_id, status="running")
            if running:
                raise SessionBusy(running[0].id)
        return await super().create(pump, create)


# recovery


@bad(
    "sequence-restart",
    "a run that another process takes over counts from 1 again",
    "LibreChat PR #14059",
    expects="a subscriber saw something else than the log has",
)
class _CountsAnew(MemoryStore):
    async def claim(self, keeper: str, now: float) -> list[RunRecord]:
        claimed = await super().claim(keeper, now)
        for record in claimed:
            run = self._runs[record.id]
            run.events.clear()
            run.record = replace(run.record, seq=0)
        return [self._runs[record.id].record for record in claimed]


@bad(
    "claims-the-living",
    "recovery settles the runs of a process that is alive",
    "LangGraph #7213: runs taken after 180 s",
    expects="it was taken over from a living process",
)
class _ClaimsTheLiving(MemoryStore):
    async def claim(self, keeper: str, now: float) -> list[RunRecord]:
        return await super().claim(keeper, float("inf"))


@bad(
    "recovery-drops-the-partial",
    "what was shown before the crash is not in the settlement",
    "LangGraph #5672",
    expects="its log says .*, its settlement ''",
)
class _DropsThePartial(Keeper):
    def judge(self, pump: Pump, now: float) -> AnySettlement:
        judged = super().judge(pump, now)
        return Interrupted() if isinstance(judged, Interrupted) else judged


class _Renaming:
    """A store that claims for somebody else than it is asked to."""

    def __init__(self, store: Any, keeper: str) -> None:
        self._store = store
        self._keeper = keeper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, keeper: str, now: float) -> Any:
        return self._store.claim(self._keeper, now)


@bad(
    "claims-for-itself",
    "runs that were claimed, but not settled because the store failed, belong to a living process that forgot them",
    "ours, found by this simulation",
    expects="it was never settled",
)
class _ClaimsForItself(Lease):
    def __init__(self, shared: Shared, *args: Any) -> None:
        super().__init__(shared, *args)
        self._store = _Renaming(shared.store, shared.node)  # type: ignore[assignment]

    async def inherit(self, orphan: RunRecord) -> None:
        await self.read_back(orphan.id)  # no second try
        await super().inherit(orphan)


class _LateClaim(_Renaming):
    def __init__(self, store: Any, clock: Callable[[], float]) -> None:
        super().__init__(store, "")
        self._clock = clock

    def claim(self, keeper: str, now: float) -> Any:
        return self._store.claim(keeper, self._clock())


@bad(
    "lease-and-claim-by-two-clocks",
    "where renewing takes long, or the clock jumps, an engine takes its own runs for orphans",
    "ours, found by this simulation",
    expects="it was taken over from a living process",
)
class _TwoClocks(Lease):
    def __init__(self, shared: Shared, *args: Any) -> None:
        super().__init__(shared, *args)
        self._store = _LateClaim(shared.store, shared.clock)  # type: ignore[assignment]


@bad(
    "recovery-holds-up-the-lease",
    "while it looks for a way to go on with an orphan, an engine forgets to say that it is alive",
    "ours, found by this simulation",
    expects="it was taken over from a living process",
    stage=_sleeper_wakes_up,
)
class _RecoveryHoldsUpTheLease(Lease):
    async def beat(self) -> None:
        await super().beat()
        await asyncio.sleep(0.01)  # until the pumps of what it has inherited look for their sources
        while len(self._shared.work):
            await self._shared.work.wait()
            await asyncio.sleep(0.01)

    async def resume(self, pump: Pump) -> Any:
        return await self._shared.work.run(super().resume(pump))


@bad(
    "inherits-what-it-has",
    "an engine that slept, lost a run and inherits it back, takes it for one that goes on here",
    "ours, found by this simulation",
    expects="a client waits for ever",
    stage=_sleeper_gets_its_run_back,
)
class _InheritsWhatItHas(Lease):
    async def inherit(self, orphan: RunRecord) -> None:
        if orphan.id in self._shared.pumps:
            await self._store.adopt(orphan.id, orphan.epoch, self._shared.node)
        else:
            await super().inherit(orphan)


@bad(
    "no-recovery",
    "what a dead process left stays as it is",
    "a run that shows `running` for ever after a restart",
    expects="it was never settled",
)
class _NoRecovery(MemoryStore):
    async def claim(self, keeper: str, now: float) -> list[RunRecord]:
        return []


# answers that get lost


@bad(
    "start-unheard",
    "a queued run that the store has started, but whose answer was lost, is started by nobody",
    "ours, found by this simulation",
    expects="it was never settled",
)
class _StartUnheard(SessionQueue):
    async def first_queued(self, session_id: str) -> RunRecord | None:
        now = self._shared.clock()
        return await self._retry(lambda: self._store.start_queued(session_id, keeper=self._shared.node, now=now))


@bad(
    "queue-taken-unnoticed",
    "a queued run that another process has started is waited for here",
    "ours, found by this simulation",
    expects="an idle engine holds on to something: 1 runs",
)
class _QueueTakenUnnoticed(SessionQueue):
    async def look_after(self, pump: Pump) -> None:
        pass


@bad(
    "creation-unheard",
    "a run that the store has accepted, but whose answer was lost, is settled by nobody",
    "an INSERT that timed out",
    expects="it was never settled",
)
class _CreationUnheard(SessionQueue):
    async def disown(self, run: Run) -> None:
        pass


# who leaves, and what is left


@bad(
    "leaving-before-the-answer",
    "an attached run whose client left while it was accepted goes on without one",
    "ours, found by this simulation",
    expects="the end of .*, whose client left took",
)
class _ForgetsWhoLeft(Engine):
    def stop_unheld(self, run: Run) -> None:
        pass


@bad(
    "watchers-are-not-told",
    "who watches a session learns of what happened only when it asks",
    "a signal forgotten",
    expects="who watches .* is not told of everything",
)
class _TellsNobody(SessionQueue):
    def touch(self, session_id: str | None, owner: str | None) -> None:
        pass


@bad(
    "stop-session-forgets-the-queue",
    "the next message starts as soon as all was stopped",
    "Stop, and it goes on",
    expects="although its session was stopped",
)
class _ForgetsTheQueue(SessionQueue):
    async def drop_all(self, session_id: str, by: Any) -> list[Run]:
        return []


# what a source says of its end


@bad(
    "first-word-counts",
    "a source that says it finished and then fails is called completed",
    "ours: the first `Finish` stood, and hid whatever was raised after it",
    expects="it is called completed, and its source raised",
)
class _FirstWordCounts(Intake):
    def take(self, yielded: Sequence[Yielded]) -> Segment:
        before = dict(self.finish)
        events = super().take(yielded)
        self.finish |= before
        self.is_open = 0 not in self.finish
        return events

    def fail(self, error: BaseException) -> Segment:
        return NOTHING if 0 in self.finish else super().fail(error)


@bad(
    "finish-ends-what-goes-on",
    "a run that was stopped in the middle of its answer is called completed, because the source had said `Finish` once",
    "ours: a `Finish` stood, whatever text followed",
    expects="it is called completed, and its source was cancelled",
)
class _FinishEndsWhatGoesOn(Intake):
    def take(self, yielded: Sequence[Yielded]) -> Segment:
        events = super().take(yielded)
        self.is_open = 0 not in self.finish
        return events


# sources


@bad(
    "unread-source-left-open",
    "a source that was never read is never closed",
    "a connection opened in vain",
    expects="its source was never closed",
)
class _LeavesUnreadSources(Pump):
    def discard_source(self) -> None:
        self.source = None


@bad(
    "source-left-open",
    "a source that is done with is not closed",
    "Starlette never calls aclose(); aelix #173",
    expects="its source was left open",
)
class _LeavesSources(Pump):
    async def close(self, source: Any) -> None:
        pass


@bad(
    "interrupt-hook-for-each-stop",
    "the hook is called for every Stop, not once",
    "two tabs press Stop",
    expects="its interrupt hook was called 2 times",
)
class _HookForEachStop(Pump):
    def end(self, cause: StopIntent | HoldfastError) -> bool:
        hook, again = self.interrupt, self.log.sealed
        is_first = super().end(cause)
        self.interrupt = hook
        if again and isinstance(cause, StopIntent):
            self.call_interrupt(cause.by)
            self.interrupt = hook
        return is_first
