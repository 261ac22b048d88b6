"""Turns a source into a run: a numbered log that ends in exactly one settlement."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from weakref import WeakValueDictionary

import msgspec

from ..concurrency.closing import Closing
from ..errors import RunNotFound
from ..events import Failed, Source, StoppedBy
from ..history import Message
from ..ids import ModelName, NewId, new_id
from ..log.settlement import StopIntent
from ..nodes.handover import Elsewhere
from ..nodes.holds import Holds
from ..nodes.intents import Serve
from ..nodes.lease import Counts
from ..nodes.node import Node, NodeClasses, NodeOptions
from ..nodes.recovery import Again
from ..nodes.remote_log import Follow
from ..nodes.unstored import Unstored
from ..runs.admission import Admission, Places
from ..runs.pump import Pump
from ..runs.run import Cost, Interrupt, Limits, Observe, Run
from ..runs.runs import RunClasses, Runs
from ..runs.shared import Clock, Shared
from ..sessions.changes import ChangedSessions, SessionWatchers
from ..sessions.queue import Create, SessionQueue
from ..store import HEAD, Idempotency, IfBusy, Lifetime, RunRecord, Store, caller_key
from ..store.records import NodeDetails

_LAST_STEPS = 3.0  # seconds of a shutdown that follow the last settlement: other work, tasks, the release of the lease
_NO_SOURCE = "give the run a source, or the engine a way to make one"


class _NoStore:
    """Stands for the store of an engine that has none."""

    def __getattr__(self, name: str) -> Any:
        raise TypeError("this engine has no store: give it one to keep runs")


def _no_sources(run: Run) -> Source:
    raise TypeError(_NO_SOURCE)


@dataclass(frozen=True, kw_only=True)
class EngineClasses(RunClasses, NodeClasses):
    """The classes that an engine is made of. A test can replace any of them with a faulty one."""

    watchers: type[SessionWatchers] = SessionWatchers
    queue: type[SessionQueue] = SessionQueue


class Core:
    """Starts runs and settles them.

    A `Pump` reads the source of each run, and may be cancelled at any moment. The `Keeper` settles the run when the
    pump has ended; nothing ever cancels it. One `Committer` saves the new events of all runs together, and only then
    are they shown. Writes to the store run in `OwnedTasks`, never in the task of a caller.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        sources: Callable[[Run], Source] | None = None,
        again: Again | None = None,
        elsewhere: Elsewhere | None = None,
        limits: Limits | None = None,
        cost: Cost = lambda record, settlement: None,
        observe: Observe | None = None,
        lease: float = 15.0,
        node: NodeDetails | None = None,
        counts: Counts = dict,
        serve: Serve | None = None,
        follow: Follow | None = None,
        unstored: Unstored | None = None,
        clock: Clock = time.time,
        new_id: NewId = new_id,
        classes: EngineClasses | None = None,
    ) -> None:
        self.store, limits = store, limits or Limits()
        self._new_id, self._has_sources, self._observe = new_id, sources is not None, observe
        self._closed = False
        self.streams = Closing()
        self._keyed: WeakValueDictionary[tuple[str, str], Run] = WeakValueDictionary()  # those that are not stored
        classes = classes or EngineClasses()
        self._shared = shared = Shared(
            store=store if store is not None else cast(Store, _NoStore()),
            has_store=store is not None,
            node_id=new_id("eng"),
            limits=limits,
            clock=clock,
            sources=sources or _no_sources,
            admission=Admission(limits),
            cost=cost,
            work=classes.work("the engine"),
        )
        self._pumps, self._work, self._admission = shared.pumps, shared.work, shared.admission
        self._runs = Runs(self, shared, classes, self._settled)
        self._watchers = classes.watchers(shared)
        self._queue = classes.queue(self._runs, self._watchers, find=self._find_by_key, open_run=self.open)
        options = NodeOptions(lease, node or NodeDetails(), counts, serve, follow, unstored, again, elsewhere)
        self._node = shared.this_node = Node(self._runs, self._queue, self._watchers, new_id, options, classes)

    async def __aenter__(self) -> Core:
        """Take the lease, recover the runs of dead nodes, start queued runs."""
        await self._node.join()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the runs that still go on, and wait for every settlement."""
        await self.close()

    @property
    def limits(self) -> Limits:
        """Limits on durations and numbers. A change does not affect the places and the memory of ended runs."""
        return self._shared.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._shared.limits = limits

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
        think: bool = True,
        key: str | None = None,
        digest: str = "",
    ) -> Run:
        """Start a run that reads a source. `keep` saves its log in the store, so that it outlives the process.

        With `think` a leading `<think>…</think>` of an answer is reasoning; without, such tags are text.
        A `key` is the caller's idempotency key, unique for each owner. If it has started a run that can still be
        opened, that run is returned, and this source is closed unread. `IdempotencyConflict` if it had another
        `digest`. `find` returns the run of a key.
        """
        record = RunRecord(id=self._new_id("run"), owner=owner, model=ModelName(model), kind=kind, lifetime=lifetime)
        idempotency = None if key is None else caller_key(owner, key, digest)
        return await self.submit(
            record, source=source, keep=keep, interrupt=interrupt, think=think, idempotency=idempotency
        )

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
        think: bool = True,
    ) -> Run:
        """Start the run that a record describes, or queue it if its session is busy.

        Without a `source` the engine's `sources` makes one when the run starts, which may be later and in another
        process. A repeated idempotency key returns the run that it started the first time, and closes the source.
        `deadline` is the maximum duration of this run in seconds, if it is less than the limit. `think` applies to a
        given `source`: one that is made later declares it with `AnswerBegins`.
        """
        if source is None and not self._has_sources:
            raise TypeError(_NO_SOURCE)
        now = self._shared.clock()
        record = msgspec.structs.replace(record, node_id=self._shared.node_id, created_at=now, started_at=now)
        pump = self._runs.make(record, kept=keep, source=source, interrupt=interrupt, think=think)
        pump.run.idempotency = idempotency
        if deadline is not None:
            pump.run.deadline = min(deadline, pump.run.deadline or deadline)
        places = await self._admit(pump, idempotency)
        if isinstance(places, Run):
            return places
        if not keep and idempotency is None:
            return self._runs.launch(pump, places)
        create: Create = partial(self._create_unstored, pump.run)
        if keep:
            create = partial(
                self._shared.store.create_run,
                input=[msgspec.structs.replace(message, created_at=now) for message in input],
                parent=parent,
                expect_head=expect_head,
                if_busy=if_busy,
                idempotency=idempotency,
            )
        with places:
            accepting = self._queue.accept(pump, create, if_busy=if_busy, idempotency=idempotency)
            return await self._work.run(accepting, if_left=lambda: self.stop_unheld(pump.run))

    async def _admit(self, pump: Pump, key: Idempotency | None) -> Run | Places:
        """Return a place for a run, or the run that its key has started. Without a place its source is closed."""
        places = None
        try:
            if key is not None and (known := await self.repeated(key)) is not None:
                return known
            places = await self._node.places.reserve(pump.run.record.owner, 1)
            return places
        finally:
            if places is None:
                pump.discard_source()

    async def _create_unstored(self, run: Run, record: RunRecord) -> RunRecord:
        """Remember the key of a run that is not stored, as a store does for a stored run."""
        if run.idempotency is not None:
            self._keyed[run.idempotency.owner, run.idempotency.key] = run
        return record

    def _settled(self, run: Run) -> None:
        """Start the next run of the session, and report the settled one."""
        if run.record.session_id is not None:
            self._queue.free(run)
        self._node.changed(run)
        if self._observe is not None:
            self._observe(run)

    # other nodes

    async def look(self) -> None:
        """Look for work of this node: runs of dead nodes, requests to its runs, sessions with queued runs."""
        await self._node.look()

    async def ask_owner(self, run: Run, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the node that owns a run, and return its response. `OwnerSilent` if none comes in time."""
        return await self._node.intents.ask(run.id, kind, body)

    def is_elsewhere(self, run: Run) -> bool:
        """Return whether a run that has not settled is active on another node, or on none."""
        return self._node.is_elsewhere(run)

    async def reserve(self, owner: str, runs: int) -> Places:
        """Take places for several runs that are about to start: all of them, or none if there is no room."""
        return await self._node.places.reserve(owner, runs)

    @property
    def holds(self) -> Holds:
        """The work of this node other than runs."""
        return self._node.holds

    @property
    def is_alone(self) -> bool:
        """True if this node knows of no other node that shares the store."""
        return not self._shared.others

    # finding

    @property
    def node_id(self) -> str:
        """The id of this node in the store. A fenced node takes a new one."""
        return self._shared.node_id

    @property
    def closing(self) -> bool:
        """True if no new runs are started."""
        return self._admission.closed

    @property
    def store_is_away(self) -> bool:
        """True if a call waits for the store to return. An idle engine notices an outage at its next heartbeat."""
        return self._shared.retry.waiting > 0

    @property
    def failing(self) -> dict[str, str]:
        """The errors of background tasks that fail and are retried, by the name of the task."""
        return self._shared.background.failing

    @property
    def held(self) -> dict[str, int]:
        """Counts of what the engine holds, by kind; empty once all runs have ended."""
        counts = {
            "runs": len(self._pumps),
            "places": self._admission.taken,
            "unsaved": self._runs.unsaved,
            "work": len(self._work),
        }
        return {kind: count for kind, count in counts.items() if count}

    def now(self) -> float:
        """Return the wall clock's time."""
        return self._shared.clock()

    def store_now(self) -> float:
        """Return the time of the store's clock, which is the same on all nodes, or is late by a moment."""
        return self._node.store_now()

    async def check_store(self) -> None:
        """Write to the store now. Raise `StoreUnavailable` if that fails, for example because the disk is full."""
        await self._node.renew()

    def live(self) -> list[Run]:
        """Return the runs that are running on this node."""
        return [pump.run for pump in self._pumps.running()]

    async def running(self, owner: str) -> dict[str, Run]:
        """Return the runs that are running in the sessions of an owner, on any node, by session."""
        runs = {run.record.session_id: run for run in self.live() if run.record.session_id is not None}
        if self._shared.others:
            for record in await self._shared.store.list_runs(owner=owner, status="running"):
                if record.session_id is not None and record.session_id not in runs:
                    runs[record.session_id] = self._runs.stored(record)
        return runs

    async def open(self, run_id: str) -> Run:
        """Return a run that is queued, running or ended. `RunNotFound` if there is none."""
        if (run := self.here(run_id)) and not self._may_be_elsewhere(run):
            return run
        record = await self.store.get_run(run_id) if self.store is not None else None
        if record is not None:
            return self.run_of(record)
        if (run := self.here(run_id)) and run.status != "queued":  # it may have started during the read
            return run
        raise RunNotFound(run_id)

    def run_of(self, record: RunRecord) -> Run:
        """Return the run of a record that was just read, as `open` does."""
        run = self.here(record.id)
        return run if run and (run.status != "queued" or record.status == "queued") else self._runs.stored(record)

    async def list_runs(self, owner: str, *, before: str | None, limit: int) -> list[Run]:
        """Return a page of an owner's runs, the newest first: those of the store, or of this process without one."""
        if self.store is not None:
            records = await self.store.list_runs(owner=owner, before=before, limit=limit)
            return [self.run_of(record) for record in records]
        runs = {run.id: run for run in [*self.live(), *self._runs.recent.all()] if run.record.owner == owner}
        return [runs[id] for id in sorted(runs, reverse=True) if before is None or id < before][:limit]

    def _may_be_elsewhere(self, run: Run) -> bool:
        """Return whether another node may have started a run that is queued here."""
        return run.status == "queued" and run.kept and bool(self._shared.others)

    async def at(self, run: Run, seq: int) -> Run:
        """Return a run for a reader that has seen its events up to `seq`.

        This node may show fewer, while it is cut off from the store or before it notices that it was fenced. Then the
        reader gets the run from the store, which has the events that were seen on another node.
        """
        if run.kept and run.seq < seq:
            record = await self._shared.store.get_run(run.id)
            if record is not None and record.seq >= seq:
                return self._runs.stored(record)
        return run

    async def open_anywhere(self, run_id: str) -> Run:
        """Return a run as `open` does, or a run of another node that is not stored."""
        try:
            return await self.open(run_id)
        except RunNotFound:
            if (found := await self._node.unstored.find(run_id)) is None:
                raise
            return self._runs.with_log(*found, kept=False)

    def here(self, run_id: str) -> Run | None:
        """Return a run that is active on this node, or has ended here and is not stored."""
        return self._runs.here(run_id)

    async def find(self, key: str, *, owner: str = "") -> Run | None:
        """Return the run that was started with an idempotency key, running or ended; None if there is none."""
        return await self.repeated(caller_key(owner, key, None))

    async def repeated(self, key: Idempotency) -> Run | None:
        """Return the run that a key has started; None if it has started none that can still be opened.

        A refused start frees its key, so a repeated request waits until the first start is accepted or refused.
        """
        known = await self._find_by_key(key)
        if known is not None and (await self._queue.decided(known.id) or isinstance(known.settlement, Failed)):
            return await self._find_by_key(key)  # its start may have been refused since the first read
        return known

    async def _find_by_key(self, key: Idempotency) -> Run | None:
        run = self._keyed.get((key.owner, key.key))
        if run is not None and run.idempotency is not None and self.here(run.id) is run:
            key.check(run.idempotency.digest)
            return run
        record = await self.store.find_repeated(key) if self.store is not None else None
        with contextlib.suppress(RunNotFound):  # it may have been deleted since
            return None if record is None else await self.open(record.id)
        return None

    async def times_of(self, run_id: str) -> list[tuple[int, float]]:
        """Return when the events of a stored run arrived."""
        return await self._shared.store.read_times(run_id)

    async def learn(self, run: Run) -> None:
        """Wait for the settlement of a run that is active in another process."""
        await self._node.learn(run)

    def forget(self, run_id: str) -> None:
        """Drop an ended run that is not stored from memory now."""
        self._runs.recent.forget(run_id)

    # stopping

    async def stop_run(self, run: Run, by: StoppedBy) -> bool:
        """Tell a run to end, or take it out of its queue. True if nothing else had told it to end before."""
        await self._queue.accepted(run.id)
        pump = self._pumps.get(run.id)
        if (run if pump is None else pump.run).status == "queued":
            if await self._work.run(self._queue.stop_queued(run.record, by)):
                return True
            pump = self._pumps.get(run.id)  # it may have started instead
        if pump is not None:
            return pump.end(StopIntent(by, self._shared.clock()))
        return await self._node.stop(run, by)

    def stop_unheld(self, run: Run) -> None:
        """Stop an attached run whose client never opened its event stream."""
        if run.id in self._pumps and run.take_hold():
            self._shared.tasks.start(run.leave())

    # sessions

    async def of_session(self, session_id: str) -> list[Run]:
        """Return the runs that are running or queued in a session, on any node."""
        runs = [pump.run for pump in self._pumps.of_session(session_id)]
        if self._shared.others:
            store, here = self._shared.store, {run.id for run in runs}
            running = await store.list_runs(session_id=session_id, status="running")
            elsewhere = [*running, *await store.queued(session_id)]
            runs += [self._runs.stored(record) for record in elsewhere if record.id not in here]
        return runs

    async def stop_session(self, session_id: str, by: StoppedBy = "user") -> list[Run]:
        """Stop all runs of a session, the queued ones first so that none of them starts in between."""
        return await self._work.run(self._queue.stop_all(session_id, by))

    async def delete_session(self, session_id: str) -> None:
        """Stop all runs of a session and delete it. Nothing can start in it in between."""
        await self._work.run(self._queue.delete(session_id))

    def watch_session(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each change in a session, until the returned function is called."""
        return self._watchers.watch(session_id, wake)

    def touch(self, session_id: str | None, owner: str) -> None:
        """Notify the watchers of a session, and those of its owner's sessions, of a change."""
        self._watchers.touch(session_id, owner)

    def note_waiting(self, run: Run) -> None:
        """Notify the watchers of a run's session that the run began or ceased to wait for a person."""
        self.touch(run.record.session_id, run.record.owner)
        if run.kept:
            self._shared.tasks.start(self._queue.note_waiting(run))

    @property
    def changes(self) -> ChangedSessions:
        """Which sessions of each owner have changed."""
        return self._watchers.lists

    # shutdown

    async def close(self, *, drain: float = 0.0, within: float = 10.0) -> None:
        """Start no new runs, give runs `drain` seconds to end by themselves, stop the rest, wait for the settlements.

        Runs that cannot be settled in `within` more seconds (the store is unavailable) are left to the next process.
        So are, at once, runs that only wait for a person, and after `drain` those that another process can continue.
        Other nodes take them without waiting for the end of the lease. A second call does nothing.
        """
        if self._closed:
            return
        now = asyncio.get_running_loop().time()
        until = now + drain + within - min(_LAST_STEPS, within / 2)
        if not self._admission.closed:
            self._admission.closed = True
            await self._node.drain()
        await self._node.handover.leave_waiting()
        await self._runs.all_settled(now + drain)
        await self._node.handover.leave_all_that_others_continue()
        self._runs.stop_all()
        await self._runs.all_settled(until)
        await self.holds.close()
        await self._runs.close()
        self.streams.begin()  # those of other runs: of another node, or left waiting
        await self._node.leave()
        self._closed = True
