"""The runs of a session: one at a time, in the order in which they came."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from ..errors import HoldfastError, OwnerSilent, RunLimitReached, SessionBusy, ShuttingDown, StoreUnavailable
from ..events import Failed, Receipt, Stopped, StoppedBy
from ..log.settlement import StopIntent
from ..runs.pump import Pump, left_this_node
from ..runs.run import Run
from ..runs.runs import Runs
from ..store import Idempotency, IfBusy, RunRecord
from .changes import SessionWatchers

logger = logging.getLogger(__name__)

PATIENCE = 8.0
"""Seconds in which a run that interrupts those of other nodes has started, or has failed."""
_LOOK = 1.0  # seconds between two attempts to start it; a hint comes sooner, unless it is lost
_DELETES = 3  # attempts to stop a run that another node has started meanwhile

Create = Callable[[RunRecord], Awaitable[RunRecord]]
"""Adds a run to the store: it starts, waits in its session's queue, or is an earlier one with the same key."""


class SessionQueue:
    """At most one run of a session is running; first come, first served.

    Code that decides on a session's next run holds the session's lock. The lock is local to the node: between nodes the
    store decides. So no code waits for another node while it holds the lock.
    """

    def __init__(
        self,
        runs: Runs,
        watchers: SessionWatchers,
        *,
        find: Callable[[Idempotency], Awaitable[Run | None]],
        open_run: Callable[[str], Awaitable[Run]],
    ) -> None:
        # for the life of the engine
        self._runs, self.shared, self._watchers = runs, runs.shared, watchers
        self._store, self._pumps, self._retry = runs.shared.store, runs.shared.pumps, runs.shared.retry
        self._find = find
        self._open = open_run
        # while a run is being accepted
        self._accepting: dict[str, asyncio.Event] = {}
        self._disowned: dict[str, asyncio.Event] = {}
        # while a task holds or waits for it
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # while its next run is being started
        self._starting: set[str] = set()

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a session, or of a run without one."""
        return self._locks.setdefault(name, asyncio.Lock())

    # accepting

    async def accept(self, pump: Pump, create: Create, *, if_busy: IfBusy, idempotency: Idempotency | None) -> Run:
        """Add a run to the store, and start it unless it has to wait. Return it, or an earlier one with its key."""
        run = pump.run
        session_id = run.record.session_id
        done = self._accepting[run.id] = asyncio.Event()
        try:
            if run.kept:
                await self.shared.this_node.sure()
                if run.record.node_id != self.shared.node_id:  # this node has a new id: it was fenced
                    run.record = msgspec.structs.replace(run.record, node_id=self.shared.node_id)
            async with self.lock(session_id or (idempotency.key if idempotency else run.id)):
                accepted = await self._admit(pump, create, if_busy, idempotency)
        finally:
            del self._accepting[run.id]
            done.set()
            if run.id not in self._pumps:
                pump.discard_source()
        self._watchers.touch(session_id, run.record.owner)
        if session_id and accepted is run and run.status == "queued" and if_busy == "interrupt":
            return await self._interrupt(pump, session_id)
        return accepted

    async def _admit(self, pump: Pump, create: Create, if_busy: IfBusy, idempotency: Idempotency | None) -> Run:
        run = pump.run
        if self.shared.admission.closed:
            raise ShuttingDown
        if idempotency and (known := await self._find(idempotency)):
            if known.id in self._disowned:  # not waited for: its end needs the lock
                raise StoreUnavailable("An earlier request with this idempotency key is being withdrawn. Try again.")
            return known
        if run.record.session_id:
            await self.make_way(run.record.session_id, if_busy)
        made = await self.create(pump, create)
        if made.id != run.id:
            return await self._open(made.id)
        self._take_on(pump, made)
        return run

    async def _interrupt(self, pump: Pump, session_id: str) -> Run:
        """Stop the run of another node in a session, and start a run that waits ahead of its queue.

        If the owner of the other run does not answer, this run fails.
        """
        run = pump.run
        try:
            await self._take_turn(pump, session_id)
        except HoldfastError as error:
            async with self.lock(session_id):
                if await self._drop(pump, Failed(error=error.info())):
                    raise
        return run if run.id in self._pumps or run.settlement is not None else await self._open(run.id)

    async def _take_turn(self, pump: Pump, session_id: str) -> None:
        """Stop what runs in a session until a run that waits in it has started.

        Other nodes may have runs in line that interrupt, too: each is started by its own node, and replaced by the
        next one. A change of the session is the sign to try again.
        """
        changed, until = asyncio.Event(), asyncio.get_running_loop().time() + PATIENCE
        unwatch = self._watchers.watch(session_id, changed.set)
        try:
            while True:
                changed.clear()
                await self._replace_running(session_id, pump.run)
                await self.start_next(session_id)
                if self._pumps.get(pump.run.id) is not pump or pump.run.status != "queued":
                    return
                if self.shared.admission.closed:
                    return  # another node starts it
                if asyncio.get_running_loop().time() >= until:
                    raise OwnerSilent(await self._in_the_way(session_id, pump.run.id), taken=False)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await changed.wait()
        finally:
            unwatch()

    async def _in_the_way(self, session_id: str, run_id: str) -> str:
        """Return the run of a session for which another one waits."""
        running = await self._retry(lambda: self._store.list_runs(session_id=session_id, status="running"))
        queued = await self._retry(lambda: self._store.queued(session_id))
        return next((record.id for record in (*running, *queued) if record.id != run_id), run_id)

    async def _replace_running(self, session_id: str, by: Run) -> None:
        """Stop the running run of a session on any node, and wait until it has ended."""
        for record in await self._retry(lambda: self._store.list_runs(session_id=session_id, status="running")):
            if record.id == by.id or self.is_accepting(record.id):
                continue
            if (pump := self._pumps.get(record.id)) is not None and pump.run.status == "running":
                pump.end(StopIntent("replaced", self.shared.clock()))
                await left_this_node(pump)
            else:
                await self.shared.this_node.ask_to_stop(record.id, "replaced")

    def is_accepting(self, run_id: str) -> bool:
        """Return whether a run is being added to the store, or its creation is being undone."""
        return run_id in self._accepting or run_id in self._disowned

    async def accepted(self, run_id: str) -> None:
        """Wait for a run that is being accepted: callers may find it in the store before it has started here."""
        if (done := self._accepting.get(run_id)) is not None:
            await done.wait()

    async def decided(self, run_id: str) -> bool:
        """Wait for a run that is being added, or whose creation is being undone. False if it is neither.

        The caller does not hold the session's lock, which these need.
        """
        if not self.is_accepting(run_id):
            return False
        await self.accepted(run_id)
        if (done := self._disowned.get(run_id)) is not None:
            await done.wait()
        return True

    async def make_way(self, session_id: str, if_busy: IfBusy) -> None:
        """Stop what a new run of a session interrupts, or refuse the run if too many wait. The lock is held."""
        if if_busy == "interrupt":
            await self.stop_running(session_id, "replaced")
        elif if_busy == "queue" and len(await self._store.queued(session_id)) >= self.shared.limits.queue:
            raise RunLimitReached(self.shared.limits.queue)

    async def create(self, pump: Pump, create: Create) -> RunRecord:
        """Add a run to the store. If the store's reply is lost, the run may exist all the same."""
        try:
            return await create(pump.run.record)
        except Exception as error:
            if isinstance(error, StoreUnavailable) or not isinstance(error, HoldfastError):
                self._disowned[pump.run.id] = asyncio.Event()
                self.shared.work.start(self._disown(pump.run))
            raise

    def _take_on(self, pump: Pump, record: RunRecord) -> None:
        """Start a run by its stored record, or let it wait in the queue."""
        pump.run.record = record
        self._pumps[record.id] = pump
        if record.status != "running":
            pump.run.status = record.status
        elif record.node_id == self.shared.node_id:
            self._runs.launch(pump)
        else:
            self._runs.keeper.lose(pump)  # this node was fenced in between

    async def _disown(self, run: Run) -> None:
        try:
            await self.disown(run)
        finally:
            self._disowned.pop(run.id).set()

    async def disown(self, run: Run) -> None:
        """Settle a run whose creation failed for the caller but may have reached the store."""
        session_id, ask, node = run.record.session_id, self._retry.always, run.record.node_id
        failed = Failed(error=StoreUnavailable("The store did not confirm the start of this run.").info())
        async with self.lock(session_id or run.id):
            if run.id in self._pumps:
                return  # it was started from the queue
            await ask(lambda: self._store.refuse_start(run.id, node, failed, self.shared.clock()))
        self._watchers.touch(session_id, run.record.owner)
        if session_id is not None:
            await self.start_next(session_id)

    # the next one

    def free(self, ended: Run) -> None:
        """Handle the end of a run of a session: wake the watchers, and start the next if one may wait."""
        session_id = ended.record.session_id
        assert session_id is not None
        self._watchers.touch(session_id, ended.record.owner)
        if ended.may_be_followed or self._pumps.of_session(session_id):
            self.shared.work.start(self.start_next(session_id))

    async def start_next(self, session_id: str) -> None:
        """Start the first queued run of a session, if none is running in it."""
        async with self.lock(session_id):
            if self.shared.admission.closed:
                self._watchers.leave(session_id)
                return
            await self._retry(self.shared.this_node.sure)
            record = await self.first_queued(session_id)
            if record is not None:
                self._take_on(self._pumps.get(record.id) or self._runs.make(record), record)
            await self._look_after_all(session_id)
        if record is not None:  # or else each node would hint at what the others have just looked at
            self._watchers.touch(session_id, record.owner)

    async def first_queued(self, session_id: str) -> RunRecord | None:
        """Take the first run from a session's queue.

        If the store's reply was lost, find the run it started: running under our lease, unknown to this process.
        """
        store = self._store
        start = partial(store.start_queued, session_id, node_id=self.shared.node_id, now=self.shared.clock())
        try:
            return await start()
        except StoreUnavailable:
            started = await self._retry(start)
        except Exception:  # a bug in the store, which may have started a run all the same
            logger.exception("could not start the next run of session %s", session_id)
            started = None
        if started is not None:
            return started
        before = self._pumps.running()
        running = await self._retry(lambda: store.list_runs(session_id=session_id, status="running"))
        here = {pump.run.id for pump in (*before, *self._pumps.running())}  # the list may be older than the runs here
        ours = [
            record for record in running if record.node_id == self.shared.node_id and record.epoch == 1
        ]  # not inherited
        return next((record for record in ours if record.id not in here), None)

    # stopping

    async def stop_all(self, session_id: str, by: StoppedBy) -> list[Run]:
        """Stop all runs of a session, the queued ones first so that none of them starts in between."""
        async with self.lock(session_id):
            queued = await self.drop_all(session_id, by)
            here = await self.stop_running(session_id, by)
        settled = [run for run in here if run.settlement is not None]
        lost = {run.id for run in here if run.settlement is None}
        return settled + await self.stop_elsewhere(session_id, by, lost) + queued

    async def stop_elsewhere(self, session_id: str, by: StoppedBy, lost: Collection[str] = ()) -> list[Run]:
        """Stop the runs of other nodes in a session, and wait for them. The caller does not hold the session's lock.

        `lost` are runs that this node stopped and lost before they settled: it may have taken them up again.
        """
        running = await self._retry(lambda: self._store.list_runs(session_id=session_id, status="running"))
        here = {pump.run.id for pump in self._pumps.running()}  # one that is queued here may run elsewhere
        here.difference_update(lost)
        stopped = [record for record in running if record.id not in here and not self.is_accepting(record.id)]
        for record in stopped:
            await self.shared.this_node.ask_to_stop(record.id, by)
        return [await self._open(record.id) for record in stopped]

    async def delete(self, session_id: str) -> None:
        """Stop all runs of a session and delete it. On this node no run can start in between.

        Other nodes may start one, so this is repeated some times.
        """
        for times_left in reversed(range(_DELETES)):
            await self.stop_all(session_id, "user")
            async with self.lock(session_id):
                await self.drop_all(session_id, "user")
                await self.stop_running(session_id, "user")
                running = await self._retry(lambda: self._store.list_runs(session_id=session_id, status="running"))
                if not running:
                    await self._retry(lambda: self._store.delete_session(session_id))
                    break
                if not times_left:
                    raise SessionBusy(running[0].id)
        self._watchers.touch(session_id, None)

    async def stop_running(self, session_id: str, by: StoppedBy) -> list[Run]:
        """Stop the running run of a session, and wait until it has settled, or this node has lost it.

        The settlement of a lost run is not waited for: this node may be the one that takes it over, and needs the lock.
        """
        running = [pump for pump in self._pumps.of_session(session_id) if pump.run.status == "running"]
        for pump in running:
            pump.end(StopIntent(by, self.shared.clock()))
        for pump in running:
            await left_this_node(pump)
        return [pump.run for pump in running]

    async def drop_all(self, session_id: str, by: StoppedBy) -> list[Run]:
        """Settle all queued runs of a session. The store also has those that another process has queued."""
        records = await self._retry(lambda: self._store.queued(session_id))
        queued = [self._pumps.get(record.id) or self._runs.make(record) for record in records]
        for pump in queued:
            await self._drop(pump, self._stopped(by))
        return [pump.run for pump in queued]

    async def stop_queued(self, record: RunRecord, by: StoppedBy) -> bool:
        """Settle a queued run. False if it has started in the meantime, or was dropped elsewhere."""
        async with self.lock(record.session_id or record.id):
            return await self._drop(self._pumps.get(record.id) or self._runs.make(record), self._stopped(by))

    def _stopped(self, by: StoppedBy) -> Stopped:
        now = self.shared.clock()
        return Stopped(by=by, receipt=Receipt(now, now, now))

    async def _drop(self, pump: Pump, settlement: Stopped | Failed) -> bool:
        run = pump.run
        if run.status != "queued" or pump.log.closed:
            return False
        self._pumps[run.id] = pump
        store, now = self._store, self.shared.clock()
        drop = partial(store.drop_queued, run.id, settlement, now)
        if isinstance(settlement, Failed):
            drop = partial(store.refuse_start, run.id, self.shared.node_id, settlement, now)
        if await self._retry(drop) is not None:
            self._runs.keeper.show(pump, settlement, now)
            return True
        await self.look_after(pump)
        return False

    async def look_after(self, pump: Pump) -> None:
        """Check that a queued run is still queued: another process may have started it, or deleted its session."""
        record = await self._retry(lambda: self._store.get_run(pump.run.id))
        if record is None or record.status != "queued":
            self._runs.keeper.lose(pump)

    def on_hint(self, session_id: str) -> None:
        """Handle a hint about a changed session: another node may have started a run that is queued here.

        A run that interrupts is started by its own node only, as soon as it is the first in line.
        """
        queued = [pump.run for pump in self._pumps.of_session(session_id) if pump.run.status == "queued"]
        if any(run.record.ahead for run in queued):
            self.shared.work.start(self.start_next(session_id))
        elif queued:
            self.shared.work.start(self._check_waiting(session_id))

    async def _check_waiting(self, session_id: str) -> None:
        async with self.lock(session_id):
            await self._look_after_all(session_id)

    async def _look_after_all(self, session_id: str) -> None:
        """Check that the queued runs of a session are still queued. The caller holds the session's lock."""
        for pump in self._pumps.of_session(session_id):
            if pump.run.status == "queued":
                await self.look_after(pump)

    async def note_waiting(self, run: Run) -> None:
        """Store whether a run waits for a person, and send a hint: the lists of all nodes show it."""
        record = run.record
        async with self.lock(record.session_id or record.id):  # the last value is stored last
            await self._retry(lambda: self._store.note_waiting(record.id, record.epoch, waits=run.waits))
        self._watchers.hint(record.session_id, record.owner)

    async def look(self) -> None:
        """Start queued runs, unless this node shuts down. Wake all watchers if there are other nodes."""
        if not self.shared.admission.closed:
            await self._start_what_waits()
        if self.shared.others:
            self._watchers.wake_all()

    async def _start_what_waits(self) -> None:
        queued = [pump.run.record.session_id or "" for pump in self._pumps.values() if pump.run.status == "queued"]
        for session_id in dict.fromkeys([*queued, *await self._store.waiting_sessions()]):
            if session_id not in self._starting:
                self._starting.add(session_id)
                self.shared.work.start(self._start_once(session_id))

    async def _start_once(self, session_id: str) -> None:
        """Start the next run of a session. While this waits for the store, further checks do not start another."""
        try:
            await self.start_next(session_id)
        finally:
            self._starting.discard(session_id)
