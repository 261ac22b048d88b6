"""Engines and stores with a known mistake, each of which the checker must catch.

A simulation that finds nothing proves nothing until it has been seen to find what is there. Most of these mistakes were
made by real systems; some were our own, found here first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from dataclasses import fields
from dataclasses import replace as replace_plan
from typing import Any, TypeVar

from msgspec import json
from msgspec.structs import asdict, replace

from holdfast.concurrency.tasks import OwnedTasks
from holdfast.engine.core import Core, EngineClasses
from holdfast.errors import HoldfastError, SessionBusy, StoreUnavailable
from holdfast.events import (
    AnySettlement,
    Completed,
    Event,
    Failed,
    Finish,
    Interrupted,
    Stopped,
    Text,
    Yielded,
)
from holdfast.log.intake import Intake
from holdfast.log.log import Log
from holdfast.log.segment import NOTHING, Segment, segment_of
from holdfast.log.settlement import StopIntent
from holdfast.nodes.intents import Intents
from holdfast.nodes.lease import Lease
from holdfast.nodes.node import Node
from holdfast.nodes.recovery import Recovery
from holdfast.runs.keeper import Keeper
from holdfast.runs.pump import Pump
from holdfast.runs.run import Run
from holdfast.runs.shared import Shared
from holdfast.runs.stored_log import read_back
from holdfast.runs.watchdog import Watchdog
from holdfast.server.features.notifications.deliveries import Deliveries
from holdfast.server.features.schedules.schedules import Schedules
from holdfast.server.sources.agents import AgentSources
from holdfast.server.sources.breaks.legs import Legs
from holdfast.server.sources.chat import ChatSources
from holdfast.sessions.changes import SessionWatchers
from holdfast.sessions.queue import SessionQueue
from holdfast.store import Append, Idempotency, LogEnd, RunEnd, RunRecord
from holdfast.store import semantics as rules
from holdfast.store.files import Parted
from holdfast.store.rows import Querying, Row, first
from holdfast.store.rows.structs import rows_of
from holdfast.store.rows.transactions import Writing

from .scenario import LEASE, Cut, Scenario, SendPlan, SourcePlan, StopPlan, Trouble, Weather
from .store import Medium
from .world import EPOCH, Design

BANK: list[Design] = []

T = TypeVar("T")


# scenes: what a scenario is changed to where a mistake shows only when several misfortunes meet


def _sleeper_wakes_up(scenario: Scenario) -> None:
    """A server sleeps. The one that takes its run over cannot go on with it, and has a long run of its own."""
    first, second = _two_sends(scenario)
    first.again = "never"
    second.at = 7.0
    scenario.troubles = [Trouble(0.3, "pause", 9.5)]


def _client_leaves_early(scenario: Scenario) -> None:
    """The client of an attached run leaves while the store accepts it."""
    first, _ = _two_sends(scenario)
    first.lifetime, first.cut = "attached", Cut(seconds=0.15)
    scenario.sends, scenario.nodes, scenario.troubles = [first], 1, []
    scenario.weather = Weather(delays=(0.1,))


def _replies_get_lost(scenario: Scenario) -> None:
    """A run waits for another in its session, and the store's replies get lost."""
    first, second = _two_sends(scenario)
    scenario.sessions, scenario.nodes, scenario.troubles = 1, 1, []
    first.session = second.session = 0
    second.at, second.if_busy = 0.1, "queue"
    scenario.weather = Weather(delays=(0.0, 0.01), fails_after=0.5)


def _many_find_an_orphan(scenario: Scenario) -> None:
    """A server sleeps, and the store is slow for the four others that find its run."""
    first, _ = _two_sends(scenario)
    scenario.sends = [first]
    scenario.nodes = 5
    scenario.weather = Weather(delays=(0.1, 0.5))
    scenario.troubles = [Trouble(7.0, "pause", 30.0)]


def _stop_through_another_node(scenario: Scenario) -> None:
    """A long run is stopped through one of three servers, and no hint arrives."""
    first, _ = _two_sends(scenario)
    first.stops = [StopPlan(at=1.0, how="open")]
    scenario.sends, scenario.nodes, scenario.troubles = [first], 3, []
    scenario.weather = Weather(loses_hints=1.0)


def _interrupts_what_is_half_made(scenario: Scenario) -> None:
    """The reply to the start of a run is lost, and the next message interrupts it."""
    first, second = _two_sends(scenario)
    scenario.sessions, scenario.nodes, scenario.troubles = 1, 1, []
    first.session = second.session = 0
    second.at, second.if_busy = 0.01, "interrupt"
    scenario.weather = Weather(delays=(0.0, 0.01), fails_after=0.3)


def _clock_is_set_forward(scenario: Scenario) -> None:
    """The clock of the only server is set forward by an hour, and then it dies."""
    _two_sends(scenario)
    scenario.nodes = 1
    scenario.troubles = [Trouble(0.1, "jump", 3600.0), Trouble(3.0, "crash", 0.1)]


def _store_is_away_for_longer_than_a_lease(scenario: Scenario) -> None:
    """Nothing else happens to three servers."""
    _two_sends(scenario)
    scenario.nodes = 3
    scenario.weather = Weather(outages=[(1.0, 9.0)])


def _sleeper_falls_silent(scenario: Scenario) -> None:
    """A server sleeps, and its source says nothing more. Another takes the run over; whoever has it is told to stop."""
    first, _ = _two_sends(scenario)
    first.source.items = [(0.1, "one "), (1000.0, "two ")]
    scenario.sends = [first]
    first.stops = [StopPlan(at=35.0, how="open")]
    scenario.limits = replace(scenario.limits, idle=None, deadline=None)
    scenario.troubles = [Trouble(0.3, "pause", 20.0)]


def _sleeps_before_the_start(scenario: Scenario) -> None:
    """A server sleeps at the moment in which it starts a run."""
    moment = scenario.sends[0].at
    _two_sends(scenario)
    scenario.weather = Weather(delays=(0.05, 0.1))
    scenario.troubles = [Trouble(0.8 + moment, "pause", 20.0)]


def _fenced_while_it_stops(scenario: Scenario) -> None:
    """A server loses sight of the store while it stops a run. The one that takes the run over dies before the end."""
    first, _ = _two_sends(scenario)
    scenario.sends, scenario.sessions, first.session = [first], 1, 0
    first.again, first.source.on_cancel = "never", "never ends"
    scenario.session_stops = [(0.9, 0, None)]
    scenario.weather = Weather(partitions=[(0, 1.0, 9.0)])
    scenario.troubles = [Trouble(9.5, "crash", 30.0)]


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
    scenario.schedules, scenario.readers = [], []
    scenario.nodes = 2
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
_BESIDE: dict[type, str] = {
    Core: "engine",
    Medium: "store",
    Writing: "transactions",
    ChatSources: "chats",
    Legs: "legs",
    AgentSources: "agents",
    Schedules: "schedules",
    Deliveries: "deliveries",
}


def _place(mistake: type) -> str:
    base = mistake.__mro__[1]
    return _BESIDE.get(base) or _PLACES[base]


def seeing(steps: Querying[T], query: str, change: Callable[[list[Row]], list[Any]]) -> Querying[T]:
    """Run the steps of a transaction that sees other rows than a query returns."""
    try:
        asked = next(steps)
        while True:
            rows = yield asked
            asked = steps.send(change(list(rows)) if asked[0] == query else rows)
    except StopIteration as end:
        result: T = end.value
        return result


def nothing(rows: list[Row]) -> list[Any]:
    return []


def queued_only(rows: list[Row]) -> list[Any]:
    return [row for row in rows if row["status"] == "queued"]


class _SeveralMayRun(Medium):
    """The schema allows several running runs in a session."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sql("DROP INDEX one_running_run")


# who settles


class _StaysAway(Keeper):
    def take(self, pump: Pump) -> None:
        pump.stop_timer()


def keeper_of(pump: Pump) -> Keeper:
    assert isinstance(pump.shared.keeper, Keeper)
    return pump.shared.keeper


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
            pump.closed_at = self.shared.clock() if pump.task.done() else None
            pump.keeping = self.shared.tasks.spawn(self._save_shielded(pump))

    async def _save_shielded(self, pump: Pump) -> None:
        saving = self.shared.tasks.spawn(self.keep(pump))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            now = self.shared.clock()
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


def pump_of(engine: Core, run_id: str) -> Pump | None:
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
class _CallerSettles(Core):
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
    expects="it is called interrupted, and nobody has taken it over",
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
    async def save(self, pump: Pump, settlement: AnySettlement, now: float) -> RunEnd | None:
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
        if not self.log.sealed and self.task is not None and not self.task.done():
            self.intake = Intake()
        return super().end(cause)


# the store


@bad(
    "blind-re-save",
    "a save whose answer was lost is simply done again",
    "Temporal's ExecuteAndTimeout; retry without a key",
    expects="its answer .* is there 2 times",
)
class _SavesBlindly(Writing):
    def settle(
        self, run_id: str, epoch: int, seq: int, settlement: AnySettlement, left: Parted, now: float
    ) -> Querying[RunEnd | None]:
        run = yield from self.run(run_id)
        if run is not None and run.settlement is not None:
            left = Parted(
                files=left.files, messages=tuple(replace(each, id=f"{each.id}_again") for each in left.messages)
            )
        steps = super().settle(run_id, epoch, seq, settlement, left, now)
        return (yield from seeing(steps, "run_to_change", _unsettled))


def _unsettled(rows: list[Row]) -> list[Any]:
    whole = [dict(row) for row in rows]  # type: ignore[call-overload]
    again = {"status": "running", "settlement": None}
    return [_ChangedRow(row | again | {"seq": row["seq"] - bool(row["settlement"])}) for row in whole]


class _ChangedRow(dict[str, Any]):
    """As a driver gives rows: by name, and one value after the other."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())


@bad(
    "no-compare-and-set",
    "the last settlement wins, not the first",
    "UPDATE run SET state = ? WHERE id = ?",
    expects="the feed says 2 times run.settled",
)
class _LastSettlementWins(Writing):
    def settle(self, run_id: str, *args: Any) -> Querying[RunEnd | None]:
        return seeing(super().settle(run_id, *args), "run_to_change", _unsettled)


@bad(
    "no-fencing",
    "an owner who slept beyond its lease goes on writing",
    "Redis locks without fencing tokens",
    expects="a subscriber saw something else than the log|its log is not what its source yielded|something follows",
)
class _NoFencing(Writing):
    def append(self, node_id: str, entries: Sequence[Append]) -> Querying[list[LogEnd]]:
        return (yield from append_unchecked(self, entries))

    def settle(self, run_id: str, epoch: int, seq: int, *args: Any) -> Querying[RunEnd | None]:
        run = yield from self.run(run_id)
        if run is not None and run.settlement is None:
            seq = run.seq + 1
        return (yield from super().settle(run_id, run.epoch if run is not None else epoch, seq, *args))


def append_unchecked(rows: Writing, entries: Sequence[Append], *, at_end: bool = False) -> Querying[list[LogEnd]]:
    """Add events to the logs of running runs, whoever owns them, and with `at_end` whatever is there already."""
    answers: list[LogEnd] = []
    for entry in entries:
        found = list((yield "ends_of_logs", {"ids": json.encode([entry.run_id])}))
        if not found:
            answers.append("lost")
            continue
        _, _, run, last = found[0]
        end: int = last or 0
        entry = replace(entry, first=end + 1) if at_end else entry
        if rules.extends(entry, end):
            yield "append", [*rows_of(run, end + 1, entry)]
            end = entry.first + len(entry.events) - 1
        answers.append(end)
    return answers


@bad(
    "append-is-not-idempotent",
    "an append whose answer was lost is added again",
    "at-least-once delivery",
    expects="it has begun twice",
)
class _AppendsTwice(Writing):
    def append(self, node_id: str, entries: Sequence[Append]) -> Querying[list[LogEnd]]:
        runs = []
        for entry in entries:
            runs.append((yield from self.run(entry.run_id)))
        both = zip(entries, runs, strict=True)
        again = [entry if run is None else replace(entry, first=run.seq + 1) for entry, run in both]
        return (yield from super().append(node_id, again))


@bad(
    "non-atomic-idempotency", "the key is looked up first and written later", "check, then act", expects="one key made"
)
class _ForgetsKeys(Writing):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._later: dict[str, Idempotency] = {}

    def create_run(self, *args: Any) -> Querying[RunRecord]:
        *others, key = args
        made = yield from super().create_run(*others, None)
        if key is not None:
            self._later[made.id] = key
        return made

    def append(self, node_id: str, entries: Sequence[Append]) -> Querying[list[LogEnd]]:
        for entry in entries:
            key = self._later.pop(entry.run_id, None)
            if key is not None and first((yield "key", {"owner": key.owner, "key": key.key})) is None:
                yield "insert_key", asdict(key) | {"run_id": entry.run_id}
        return (yield from super().append(node_id, entries))


# one run at a time


@bad(
    "stop-by-session",
    "Stop reaches whatever runs in the session now, not the run that was meant",
    "a stale tab",
    expects=r"it is called stopped, and nobody \(user\) asked for it",
)
class _StopsBySession(Core):
    async def stop_run(self, run: Run, by: Any) -> bool:
        for other in await self.of_session(run.record.session_id) if run.record.session_id else ():
            if (pump := pump_of(self, other.id)) is not None:
                pump.end(StopIntent(by, self.now()))
        return await super().stop_run(run, by)


class _StartsAnything(Writing):
    def start_queued(self, *args: Any) -> Querying[RunRecord | None]:
        return seeing(super().start_queued(*args), "unsettled", queued_only)


@bad(
    "queue-promoted-before-the-settlement",
    "the next run starts when the source ends, not when the run has settled",
    "`finally: start_next()` before the save",
    store=_SeveralMayRun,
    transactions=_StartsAnything,
    expects="two runs are running in one session",
)
class _PromotesEarly(Keeper):
    async def keep(self, pump: Pump) -> None:
        if pump.run.record.session_id is not None:
            self.settled(pump.run)
            await asyncio.sleep(0.01)
        await super().keep(pump)


class _InterruptsFreely(Writing):
    def create_run(self, *args: Any) -> Querying[RunRecord]:
        steps = super().create_run(*args)
        return seeing(steps, "unsettled", nothing) if args[4] == "interrupt" else steps


@bad(
    "interrupt-does-not-wait",
    "a message that interrupts is added before the partial of the run that it stopped",
    "odysseus: cancel, then send at once",
    store=_SeveralMayRun,
    transactions=_InterruptsFreely,
    expects="its answer does not follow its question",
)
class _InterruptDoesNotWait(SessionQueue):
    async def stop_running(self, session_id: str, by: Any) -> list[Run]:
        running = [pump for pump in self.shared.pumps.of_session(session_id) if pump.run.status == "running"]
        for pump in running:
            pump.end(StopIntent(by, self.shared.clock()))
        return [pump.run for pump in running]


class _NeverBusy(Writing):
    def create_run(self, *args: Any) -> Querying[RunRecord]:
        steps = super().create_run(*args)
        return seeing(steps, "unsettled", nothing) if args[4] == "reject" else steps


@bad(
    "busy-check-outside-the-lock",
    "two sends both look, both find the session free, and both start",
    "odysseus double send: the current run stays `running` for ever in 11-24 % of schedules",
    store=_SeveralMayRun,
    transactions=_NeverBusy,
    expects="two runs are running in one session",
)
class _ChecksOutsideTheLock(SessionQueue):
    def lock(self, name: str) -> asyncio.Lock:
        return asyncio.Lock()

    async def create(self, pump: Pump, create: Any) -> RunRecord:
        if (session_id := pump.run.record.session_id) is not None:
            running = await self.shared.store.list_runs(session_id=session_id, status="running")
            if running:
                raise SessionBusy(running[0].id)
        return await super().create(pump, create)


# recovery


def lease_of(shared: Shared) -> Lease:
    assert isinstance(shared.this_node, Node)
    return shared.this_node.lease


class _AdoptsLater(Recovery):
    async def inherit(self, run_id: str, epoch: int) -> None:
        await self.shared.retry(lambda: read_back(self.shared.store, run_id))
        medium: Medium = self.shared.store.medium  # type: ignore[attr-defined]
        medium.sql("UPDATE runs SET keeper = :node WHERE id = :id AND keeper = ''", node=self.shared.node_id, id=run_id)
        await super().inherit(run_id, epoch)


@bad(
    "sequence-restart",
    "a run that another node takes over counts from 1 again",
    "LibreChat PR #14059",
    expects="a subscriber saw something else than the log has",
)
class _CountsAnew(Writing):
    def claim(self, node_id: str, unbroken: float) -> Querying[dict[str, int]]:
        before = yield from _epochs(self)
        owned = yield from super().claim(node_id, unbroken)
        for run_id in _taken(before, owned):
            row = first((yield "log", {"id": run_id}))
            assert row is not None
            yield "trim_events", [(row["n"],)]
        return owned


def _epochs(rows: Writing) -> Querying[dict[str, int]]:
    running = yield from rows.list_runs(None, None, "running", "", None, 1_000)
    return {run.id: run.epoch for run in running}


def _taken(before: dict[str, int], owned: dict[str, int]) -> list[str]:
    return [run_id for run_id, epoch in owned.items() if epoch != before[run_id]]


@bad(
    "claims-the-living",
    "recovery settles the runs of a node that is alive",
    "LangGraph #7213: runs taken after 180 s",
    expects="it was taken over from a living process",
)
class _ClaimsTheLiving(Writing):
    def claim(self, node_id: str, unbroken: float) -> Querying[dict[str, int]]:
        for node in (yield from self.nodes()):
            if node.id != node_id:
                yield "release", {"id": node.id}
        return (yield from super().claim(node_id, unbroken))


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


@bad(
    "forgets-what-it-claimed",
    "a run that was claimed, but not taken up because the store failed, belongs to a living node that forgot it",
    "ours, found by this simulation",
    expects="it was never settled",
)
class _ForgetsWhatItClaimed(Recovery):
    async def inherit(self, run_id: str, epoch: int) -> None:
        try:
            await read_back(self.shared.store, run_id)  # no second try, now or at another look
        except StoreUnavailable:
            return
        await super().inherit(run_id, epoch)


@bad(
    "claims-for-nobody",
    "a run is claimed without an owner first, and claimed again by another node while the first reads its log",
    "ours: 650 of 760 claims were repeats with five nodes",
    expects="it was taken over \\d times",
    recovery=_AdoptsLater,
    stage=_many_find_an_orphan,
)
class _ClaimsForNobody(Writing):
    def claim(self, node_id: str, unbroken: float) -> Querying[dict[str, int]]:
        before = yield from _epochs(self)
        owned = yield from super().claim(node_id, unbroken)
        for run_id in _taken(before, owned):
            yield "give_up", {"node_id": node_id, "id": run_id}
        running = yield from self.list_runs(None, None, "running", "", None, 1_000)
        return owned | {run.id: run.epoch for run in running if not run.node_id}


class _RenewsNothingMore(Lease):
    async def hold(self) -> None:
        await self.shared.retry(self.renew)


@bad(
    "serial-heartbeat",
    "while it looks for a way to go on with an orphan, a node does not say that it is alive",
    "ours, found by this simulation",
    expects="it was taken over from a living process",
    lease=_RenewsNothingMore,
    stage=_sleeper_wakes_up,
)
class _SerialHeartbeat(Recovery):
    async def look(self) -> None:
        await lease_of(self.shared).renew()
        await super().look()
        await asyncio.sleep(0.01)  # until the pumps of what it has inherited look for their sources
        while len(self.shared.work):
            await self.shared.work.wait()
            await asyncio.sleep(0.01)

    async def resume(self, pump: Pump) -> Any:
        return await self.shared.work.run(super().resume(pump))


@bad(
    "clients-clock",
    "a lease ends by the clock of the node that holds it, which was set forward: the dead look alive",
    "leases by `time.time()`",
    expects="it was never settled",
    stage=_clock_is_set_forward,
)
class _ClientsClock(Lease):
    async def renew(self) -> None:
        usual, self.seconds = self.seconds, self.shared.clock() - asyncio.get_running_loop().time() - EPOCH + LEASE
        try:
            await super().renew()
        finally:
            self.seconds = usual


@bad(
    "no-guard-after-an-outage",
    "when the store comes back, the first node to reach it takes the runs of the others, whose leases ended meanwhile",
    "ours: 20 of 60 runs were taken from living nodes when PostgreSQL was away for 8 s",
    expects="it was taken over from a living process",
    stage=_store_is_away_for_longer_than_a_lease,
)
class _NoGuard(Recovery):
    async def claim(self) -> dict[str, int]:
        return await self.shared.store.claim(self.shared.node_id, 0.0)


@bad(
    "fenced-node-keeps-its-runs",
    "a node that was taken for dead goes on with its runs under its new id",
    "a lease that is only checked by those who take over",
    expects="an idle engine holds on to something",
    stage=_sleeper_falls_silent,
)
class _KeepsItsRuns(Lease):
    def __init__(self, shared: Shared, seconds: float, details: Any, new_id: Any, drop: Any, *others: Any) -> None:
        super().__init__(shared, seconds, details, new_id, lambda node: None, *others)


@bad(
    "starts-without-its-lease",
    "a node that slept between the reply of the store and the start begins a source of a run that another has",
    "ours, found by this simulation",
    expects="began in a server that does not own it",
    stage=_sleeps_before_the_start,
)
class _StartsWithoutItsLease(Lease):
    async def sure(self) -> None:
        pass


@bad(
    "no-recovery",
    "what a dead process left stays as it is",
    "a run that shows `running` for ever after a restart",
    expects="it was never settled",
)
class _NoRecovery(Writing):
    def claim(self, node_id: str, unbroken: float) -> Querying[dict[str, int]]:
        yield from ()
        return {}


# other nodes


@bad(
    "stop-as-a-signal-only",
    "a stop is a message to the node that runs the run, and lost with the message",
    "Open WebUI #14340 to #27104: for 14 months Stop was a lossy signal",
    expects="the owner of the run was not reached",
    stage=_stop_through_another_node,
)
class _StopAsASignal(Intents):
    def hinted(self) -> None:
        self.shared.tasks.start(super().look())

    async def look(self) -> None:
        pass


@bad(
    "check-without-a-lock",
    "the store looks whether a node may write, and writes later: in between the node is fenced",
    "a SELECT before the INSERT; shown with PostgreSQL",
    expects="its log is not what its source yielded|something follows its settlement|it was never settled",
    stage=_sleeper_wakes_up,
)
class _ChecksWithoutALock(Medium):
    async def append(self, node_id: str, entries: Sequence[Append]) -> list[LogEnd]:
        may = bool(self.sql("SELECT 1 FROM keepers WHERE id = :id AND NOT fenced", id=node_id))
        epochs = dict(map(tuple, self.sql("SELECT id, epoch FROM runs")))
        await asyncio.sleep(0.3)
        if not may or any(entry.epoch != epochs.get(entry.run_id) for entry in entries):
            return await super().append(node_id, entries)
        return self.transact(lambda rows: append_unchecked(rows, entries, at_end=True))


@bad(
    "waits-under-the-lock",
    "who interrupts waits for a run that was half made here, and whose end needs the session's lock",
    "ours, found by this simulation",
    expects="a client waits for ever",
    stage=_interrupts_what_is_half_made,
)
class _WaitsUnderTheLock(SessionQueue):
    async def make_way(self, session_id: str, if_busy: Any) -> None:
        await super().make_way(session_id, if_busy)
        while if_busy == "interrupt" and await self._is_busy(session_id):  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def _is_busy(self, session_id: str) -> bool:
        return bool(
            await self.shared.retry(lambda: self.shared.store.list_runs(session_id=session_id, status="running"))
        )


@bad(
    "waits-for-a-settlement-under-the-lock",
    "who stops a session waits for the settlement under its lock; a fenced node that claims the run needs that lock",
    "ours, found by reading",
    expects="a client waits for ever",
    stage=_fenced_while_it_stops,
)
class _WaitsForTheSettlement(SessionQueue):
    async def stop_running(self, session_id: str, by: Any) -> list[Run]:
        running = [pump for pump in self.shared.pumps.of_session(session_id) if pump.run.status == "running"]
        for pump in running:
            pump.end(StopIntent(by, self.shared.clock()))
        runs = [pump.run for pump in running]
        for run in runs:
            await run.settled()
        return runs


# answers that get lost


@bad(
    "start-unheard",
    "a queued run that the store has started, but whose answer was lost, is started by nobody",
    "ours, found by this simulation",
    expects="it is called interrupted, and nobody has taken it over",
    stage=_replies_get_lost,
)
class _StartUnheard(SessionQueue):
    async def first_queued(self, session_id: str) -> RunRecord | None:
        now = self.shared.clock()
        return await self.shared.retry(
            lambda: self.shared.store.start_queued(session_id, node_id=self.shared.node_id, now=now)
        )


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
    expects="it is called interrupted, and nobody has taken it over",
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
    stage=_client_leaves_early,
)
class _ForgetsWhoLeft(Core):
    def stop_unheld(self, run: Run) -> None:
        pass


@bad(
    "watchers-are-not-told",
    "who watches a session learns of what happened only when it asks",
    "a signal forgotten",
    expects="who watches .* is not told of everything",
)
class _TellsNobody(SessionWatchers):
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
