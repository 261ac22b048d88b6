"""Engines and stores with a known mistake, each of which the checker must catch.

A simulation that finds nothing proves nothing until it has been seen to find what is there. Most of these mistakes were
made by real systems; some were our own, found here first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.engine import Engine
from holdfast.errors import HoldfastError, SessionBusy
from holdfast.events import AnySettlement, Completed, Event, Failed, Finish, Interrupted, Settled, Stopped, Text
from holdfast.history import Message
from holdfast.judgement import StopIntent
from holdfast.log import Log
from holdfast.recovery import read_back
from holdfast.run import Run
from holdfast.store import Idempotency, RunRecord, Store
from holdfast.store.memory import MemoryStore

from .world import Design

BANK: list[Design] = []


def bad(name: str, reason: str, origin: str, **patches: Any) -> Callable[[type], type]:
    """Add a design to the bank: an engine, a store, a run or a log with a mistake in it."""

    def add(mistake: type) -> type:
        kind = {Engine: "engine", MemoryStore: "store"}.get(mistake.__mro__[1])
        made = {kind: mistake} if kind else {"patches": {mistake.__mro__[1].__name__: mistake}}
        BANK.append(Design(name=name, reason=reason, origin=origin, **{**made, **patches}))
        return mistake

    return add


# who settles


@bad(
    "save-in-the-cancelled-task",
    "the task that is cancelled also saves, and one that is cancelled before its first step never enters its `finally`",
    "the naive handler; measured on three ASGI servers",
)
class _SavesInTheCancelledTask(Engine):
    async def _pump(self, run: Run) -> None:
        try:
            await super()._pump(run)
        finally:
            await self._keep(run)

    def _call_keeper(self, run: Run) -> None:
        run._set_timer(None)

    def _judge(self, run: Run, now: float) -> AnySettlement:
        run._closed_at = self._clock()
        return super()._judge(run, now)


@bad(
    "shield-only",
    "a shield returns to a caller who is cancelled again before the save is done; the end is announced all the same",
    "asyncio.shield in a request's `finally`; LiteLLM PR #34496",
)
class _ShieldOnly(Engine):
    def _call_keeper(self, run: Run) -> None:
        run._set_timer(None)
        if run._keeper is None:
            run._closed_at = self._clock() if run._pump is not None and run._pump.done() else None
            run._keeper = asyncio.create_task(self._save_shielded(run))
            self._hold(run._keeper)

    async def _save_shielded(self, run: Run) -> None:
        saving = asyncio.create_task(self._keep(run))
        self._hold(saving)
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            self._conclude(run, self._judge(run, self._clock()), self._clock())

    def _end(self, run: Run, cause: StopIntent | HoldfastError) -> None:
        super()._end(run, cause)
        if run._keeper is not None and isinstance(cause, StopIntent):
            run._keeper.cancel()


@bad(
    "keeper-starts-with-the-pump",
    "whoever cleans up is started by the first step of a task that may be cancelled before it",
    "the run manager of odysseus: a subscriber waits for ever",
)
class _KeeperStartsWithThePump(Engine):
    def _call_keeper(self, run: Run) -> None:
        if run._entered:
            super()._call_keeper(run)


@bad(
    "caller-settles",
    "a stopped run is settled by the task that asked for it, which its own client can cancel",
    "save in the handler of Stop",
)
class _CallerSettles(Engine):
    def _call_keeper(self, run: Run) -> None:
        if not isinstance(run._cause, StopIntent) or run._cause.by != "user":
            super()._call_keeper(run)

    async def _stop(self, run: Run, by: Any) -> None:
        await super()._stop(run, by)
        live = self._runs.get(run.id)
        if live is not None and live._pump is not None and live._cause is not None:
            await asyncio.wait({live._pump}, timeout=self.limits.grace)
            if live._keeper is None and live.settlement is None:
                live._closed_at = self._clock() if live._pump.done() else None
                await self._keep(live)


@bad(
    "caller-starts",
    "a run is accepted in its client's task: cancelled half-way, the store has a run that nobody runs",
    "LangGraph #8764: an accepted run lost before its first checkpoint",
)
class _CallerStarts(Engine):
    async def _accepted(self, *args: Any) -> Run:
        return await self._accept(*args)


@bad(
    "stop-cancels-twice",
    "the second Stop cancels the cleanup that the first one has begun",
    "httpx leaked 10 of 15 upstreams under double cancel; encode/httpx #3782",
)
class _StopCancelsTwice(Engine):
    def _end(self, run: Run, cause: StopIntent | HoldfastError) -> None:
        if run._cause is not None and run._pump is not None and isinstance(cause, StopIntent):
            run._pump.cancel()
        super()._end(run, cause)


@bad("waits-for-a-stubborn-source", "a source that ignores its cancel is waited for", "no grace period")
class _WaitsForAStubbornSource(Engine):
    def _abandon(self, run: Run) -> None:
        pass


@bad("no-idle-limit", "a source that falls silent is waited for", "Open WebUI #1166: a generation that never ends")
class _NoIdleLimit(Engine):
    def _check_time(self, run: Run) -> None:
        pass


# what is shown


@bad(
    "publish-before-commit",
    "subscribers are shown what a crash can still lose",
    "publish to the live channel, then save",
)
class _PublishesBeforeCommit(Engine):
    def _append(self, run: Run, events: Sequence[Event]) -> None:
        super()._append(run, events)
        if run.kept and events:
            for wake in tuple(run._log._watchers):
                wake()


class _EagerLog(Log):
    def slice(self, after: int) -> Sequence[Event]:
        return self._tape.read(after, self._tape.end)


BANK[-1] = Design(**{**vars(BANK[-1]), "patches": {"Log": _EagerLog}})


@bad(
    "settlement-shown-before-it-is-durable",
    "the end is announced, then saved",
    "`yield done` before `await save()`",
)
class _ShowsTheSettlementFirst(Engine):
    async def _settle(self, run: Run, settlement: AnySettlement, now: float) -> AnySettlement | None:
        run.settlement = settlement
        run._done.set()
        return await super()._settle(run, settlement, now)


@bad(
    "settles-over-pending-events",
    "the settlement does not wait for events that are still on their way to the store",
    "flush and finish on two paths",
)
class _SettlesOverPendingEvents(Engine):
    async def _saved(self, run: Run) -> None:
        pass


@bad(
    "replay-then-subscribe",
    "what comes between the end of the replay and the subscription is missed",
    "LibreChat PR #11710",
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


@bad("unsealed-log", "a source goes on writing after its run was stopped", "a late writer that nobody fences off")
class _NeverSeals(Log):
    def seal(self) -> None:
        self.sealed = self.closed


BANK[-1] = Design(**{**vars(BANK[-1]), "patches": {"Log": _NeverSeals}})


@bad(
    "trims-silently", "a cursor whose events are gone is answered with later ones", "a ring buffer without a gap event"
)
class _TrimsSilently(Log):
    def slice(self, after: int) -> Sequence[Event]:
        return super().slice(max(after, self.oldest - 1))


# what is said


@bad(
    "two-accumulators",
    "the text of the settlement is collected beside the log, and the two differ",
    "text != log in 19 % of the naive schedules",
)
class _TwoAccumulators(Engine):
    def _take_in(self, run: Run, yielded: Any) -> None:
        heard = self.__dict__.setdefault("heard", {})
        for item in yielded if isinstance(yielded, list) else (yielded,):
            text = item if isinstance(item, str) else item.text if isinstance(item, Text) and not item.choice else ""
            heard[run.id] = heard.get(run.id, "") + text
        super()._take_in(run, yielded)

    def _judge(self, run: Run, now: float) -> AnySettlement:
        return replace(super()._judge(run, now), text=self.__dict__.get("heard", {}).get(run.id, ""))


@bad("error-counts-as-completed", "a source that raised looks like one that is done", "`except Exception: break`")
class _ErrorIsCompleted(Engine):
    def _judge(self, run: Run, now: float) -> AnySettlement:
        judged = super()._judge(run, now)
        return Completed(text=judged.text, usage=judged.usage) if isinstance(judged, Failed) else judged


@bad("stop-counts-as-completed", "a stopped run looks like one that is done", "finish_reason: stop for a user's Stop")
class _StopIsCompleted(Engine):
    def _judge(self, run: Run, now: float) -> AnySettlement:
        judged = super()._judge(run, now)
        return Completed(text=judged.text, usage=judged.usage) if isinstance(judged, Stopped) else judged


@bad(
    "finish-before-its-words",
    "a source's last words are refused, but its Finish beside them counts: completed, with words missing",
    "ours, found by this simulation",
)
class _FinishBeforeItsWords(Engine):
    def _take_in(self, run: Run, yielded: Any) -> None:
        for item in yielded if isinstance(yielded, list) else (yielded,):
            if isinstance(item, Finish):
                run._finish.setdefault(item.choice, item)
        super()._take_in(run, yielded)


@bad(
    "end-noted-after-the-close",
    "a Stop during a slow close makes a source that had raised look stopped",
    "ours, found by this simulation",
)
class _EndNotedAfterTheClose(Engine):
    def _end(self, run: Run, cause: StopIntent | HoldfastError) -> None:
        if not run._log.sealed and run._pump is not None and not run._pump.done():
            run._cause = cause
            run._finish.pop(0, None)
        super()._end(run, cause)


# the store


@bad(
    "blind-re-save",
    "a save whose answer was lost is simply done again",
    "Temporal's ExecuteAndTimeout; retry without a key",
)
class _SavesBlindly(MemoryStore):
    async def settle(self, run_id: str, epoch: int, **kwargs: Any) -> AnySettlement | None:
        run, message = self._runs.get(run_id), kwargs["message"]
        if run is not None and run.record.settlement is not None and message is not None:
            self._leave(
                self._sessions[run.record.session_id or ""], run.record, replace(message, id=f"{message.id}_again")
            )
        return await super().settle(run_id, epoch, **kwargs)


@bad("no-compare-and-set", "the last settlement wins, not the first", "UPDATE run SET state = ? WHERE id = ?")
class _LastSettlementWins(MemoryStore):
    async def settle(self, run_id: str, epoch: int, **kwargs: Any) -> AnySettlement | None:
        run = self._runs.get(run_id)
        if run is not None and run.record.settlement is not None:
            self._extend(run, [Settled(kwargs["settlement"])])
            run.record = replace(run.record, settlement=kwargs["settlement"])
        return await super().settle(run_id, epoch, **kwargs)


@bad("no-fencing", "an owner who slept beyond its lease goes on writing", "Redis locks without fencing tokens")
class _NoFencing(MemoryStore):
    def _writable(self, run_id: str, epoch: int) -> Any:
        return self._runs.get(run_id)

    async def settle(self, run_id: str, epoch: int, **kwargs: Any) -> AnySettlement | None:
        run = self._runs.get(run_id)
        if run is not None and run.record.settlement is None:
            kwargs["seq"] = run.record.seq + 1
        return await super().settle(run_id, run.record.epoch if run is not None else epoch, **kwargs)


@bad("append-is-not-idempotent", "an append whose answer was lost is added again", "at-least-once delivery")
class _AppendsTwice(MemoryStore):
    async def append(self, entries: Sequence[Any]) -> list[bool]:
        renumbered = [
            replace(entry, first=run.record.seq + 1) if (run := self._runs.get(entry.run_id)) else entry
            for entry in entries
        ]
        return await super().append(renumbered)


@bad("non-atomic-idempotency", "the key is looked up first and written later", "check, then act")
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


@bad("stop-by-session", "Stop reaches whatever runs in the session now, not the run that was meant", "a stale tab")
class _StopsBySession(Engine):
    async def _stop(self, run: Run, by: Any) -> None:
        for other in self.of_session(run.record.session_id) if run.record.session_id else ():
            self._end(other, StopIntent(by, self._clock()))
        await super()._stop(run, by)


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
)
class _PromotesEarly(Engine):
    async def _keep(self, run: Run) -> None:
        if run.record.session_id is not None:
            await self._start_next(run.record.session_id)
        await super()._keep(run)


class _InterruptsFreely(MemoryStore):
    def _busy(self, session: Any, if_busy: Any) -> Any:
        return None if if_busy == "interrupt" else super()._busy(session, if_busy)


@bad(
    "interrupt-does-not-wait",
    "a message that interrupts is added before the partial of the run that it stopped",
    "odysseus: cancel, then send at once",
    store=_InterruptsFreely,
)
class _InterruptDoesNotWait(Engine):
    async def _stop_running(self, session_id: str, by: Any) -> list[Run]:
        running = [run for run in self.of_session(session_id) if run.status == "running"]
        for run in running:
            self._end(run, StopIntent(by, self._clock()))
        return running


class _NeverBusy(MemoryStore):
    def _busy(self, session: Any, if_busy: Any) -> Any:
        return None if if_busy == "reject" else super()._busy(session, if_busy)


@bad(
    "busy-check-outside-the-lock",
    "two sends both look, both find the session free, and both start",
    "odysseus double send: the current run stays `running` for ever in 11-24 % of schedules",
    store=_NeverBusy,
)
class _ChecksOutsideTheLock(Engine):
    def _lock(self, session_id: str) -> asyncio.Lock:
        return asyncio.Lock()

    async def _created(self, run: Run, create: Any) -> RunRecord:
        store, session_id = self._require_store(), run.record.session_id
        if session_id is not None:
            running = await store.list_runs(session_id=session_id, status="running")
            if running:
                raise SessionBusy(running[0].id)
        return await super()._created(run, create)


# recovery


@bad("sequence-restart", "a run that another process takes over counts from 1 again", "LibreChat PR #14059")
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
)
class _ClaimsTheLiving(MemoryStore):
    async def claim(self, keeper: str, now: float) -> list[RunRecord]:
        return await super().claim(keeper, float("inf"))


@bad("recovery-drops-the-partial", "what was shown before the crash is not in the settlement", "LangGraph #5672")
class _DropsThePartial(Engine):
    def _judge(self, run: Run, now: float) -> AnySettlement:
        judged = super()._judge(run, now)
        return Interrupted() if isinstance(judged, Interrupted) else judged


@bad(
    "claims-for-itself",
    "runs that were claimed, but not settled because the store failed, belong to a living process that forgot them",
    "ours, found by this simulation",
)
class _ClaimsForItself(Engine):
    async def _beat(self, store: Store) -> None:
        await super()._beat(_Renaming(store, self.keeper))  # type: ignore[arg-type]

    async def _inherit(self, store: Store, orphan: RunRecord) -> None:
        assert self.store is not None
        await read_back(self.store, orphan.id)  # no second try
        await super()._inherit(store, orphan)


class _Renaming:
    def __init__(self, store: Store, keeper: str) -> None:
        self._store = store
        self._keeper = keeper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, keeper: str, now: float) -> Any:
        return self._store.claim(self._keeper, now)


@bad(
    "lease-and-claim-by-two-clocks",
    "where renewing takes long, or the clock jumps, an engine takes its own runs for orphans",
    "ours, found by this simulation",
)
class _TwoClocks(Engine):
    async def _beat(self, store: Store) -> None:
        await super()._beat(_LateClaim(store, self._clock))  # type: ignore[arg-type]


class _LateClaim(_Renaming):
    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        super().__init__(store, "")
        self._clock = clock

    def claim(self, keeper: str, now: float) -> Any:
        return self._store.claim(keeper, self._clock())


@bad(
    "recovery-holds-up-the-lease",
    "while it looks for a way to go on with an orphan, an engine forgets to say that it is alive",
    "ours, found by this simulation",
)
class _RecoveryHoldsUpTheLease(Engine):
    async def _beat(self, store: Store) -> None:
        await super()._beat(store)
        while self._work:
            await asyncio.wait(set(self._work))

    async def _inherit(self, store: Store, orphan: RunRecord) -> None:
        if self._again is not None:
            await self._again(orphan, await read_back(store, orphan.id))
        await super()._inherit(store, orphan)


@bad(
    "inherits-what-it-has",
    "an engine that slept, lost a run and inherits it back, takes it for one that goes on here",
    "ours, found by this simulation",
)
class _InheritsWhatItHas(Engine):
    async def _inherit(self, store: Store, orphan: RunRecord) -> None:
        if orphan.id in self._runs:
            await store.adopt(orphan.id, orphan.epoch, self.keeper)
        else:
            await super()._inherit(store, orphan)


@bad("no-recovery", "what a dead process left stays as it is", "a run that shows `running` for ever after a restart")
class _NoRecovery(MemoryStore):
    async def claim(self, keeper: str, now: float) -> list[RunRecord]:
        return []


# answers that get lost


@bad(
    "start-unheard",
    "a queued run that the store has started, but whose answer was lost, is started by nobody",
    "ours, found by this simulation",
)
class _StartUnheard(Engine):
    async def _first_queued(self, session_id: str) -> RunRecord | None:
        store = self._require_store()
        start = partial(store.start_queued, session_id, keeper=self.keeper, now=self._clock())
        started: RunRecord | None = await self._insist(start)
        return started


@bad(
    "queue-taken-unnoticed",
    "a queued run that another process has started is waited for here",
    "ours, found by this simulation",
)
class _QueueTakenUnnoticed(Engine):
    async def _look_after(self, run: Run) -> None:
        pass


@bad(
    "creation-unheard",
    "a run that the store has accepted, but whose answer was lost, is settled by nobody",
    "an INSERT that timed out",
)
class _CreationUnheard(Engine):
    async def _disown(self, run: Run) -> None:
        pass


# who leaves, and what is left


@bad(
    "leaving-before-the-answer",
    "an attached run whose client left while it was accepted goes on without one",
    "ours, found by this simulation",
)
class _ForgetsWhoLeft(Engine):
    def stop_unheld(self, run: Run) -> None:
        pass


@bad("watchers-are-not-told", "who watches a session learns of what happened only when it asks", "a signal forgotten")
class _TellsNobody(Engine):
    def touch(self, session_id: str | None) -> None:
        pass


@bad("stop-session-forgets-the-queue", "the next message starts as soon as all was stopped", "Stop, and it goes on")
class _ForgetsTheQueue(Engine):
    async def _drop_all_queued(self, session_id: str, by: Any) -> list[Run]:
        return []


# sources


@bad("unread-source-left-open", "a source that was never read is never closed", "a connection opened in vain")
class _LeavesUnreadSources(Engine):
    def _discard_source(self, run: Run) -> None:
        run._source = None


@bad("source-left-open", "a source that is done with is not closed", "Starlette never calls aclose(); aelix #173")
class _LeavesSources(Engine):
    pass


async def _leave_open(source: Any, run_id: str) -> None:
    pass


BANK[-1] = Design(**{**vars(BANK[-1]), "patches": {"_close": _leave_open}})


@bad("interrupt-hook-for-each-stop", "the hook is called for every Stop, not once", "two tabs press Stop")
class _HookForEachStop(Engine):
    def _end(self, run: Run, cause: StopIntent | HoldfastError) -> None:
        hook, again = run._interrupt, run._log.sealed
        super()._end(run, cause)
        run._interrupt = hook
        if again and isinstance(cause, StopIntent):
            self._call_interrupt(run, cause.by)
            run._interrupt = hook
