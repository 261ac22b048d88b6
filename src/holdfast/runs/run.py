"""One generation, from start to settlement, as a caller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from ..concurrency.watchers import Watchers
from ..errors import RunNotFound
from ..events import AnySettlement, Event, Settled, Snapshot, StoppedBy
from ..history import Measured
from ..log.log import Log
from ..log.segment import NOTHING, Segment, segment_of
from ..store import Idempotency, RunRecord, Status, Store

Interrupt = Callable[[str], Any]
"""Called once, with a reason, when a run is stopped, left or out of time: for sources that need more than a cancel."""

Render = Callable[[int, Segment], bytes]
"""Returns a segment as bytes; the first event in it has the number that is given."""

Cost = Callable[[RunRecord, AnySettlement], float | None]
"""Returns the cost of a run that has ended; None if it is not known."""

Observe = Callable[["Run"], None]
"""Called once with each run that has settled in this process, for metrics. It must not wait."""

LOOK_AGAIN = 0.5
"""Seconds between two looks at a run that goes on in another process, or in none."""

SILENCE = 1.5
"""Seconds without a sign of the owner after which the store is asked."""
POLL = 0.25
"""Seconds between two looks at the store."""
AHEAD = 2_000
"""Events of the owner that may wait for the reader; then the connection waits."""
AGAIN = 1.0
"""Seconds between two tries to follow an owner."""

TRIES = 3
"""Questions in a row without an answer after which a run that only its node has is gone."""

_AT_ONCE = 512  # events of a stored log that are read at once


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
    """Events of ended runs that nobody asked to keep, all together: they can be replayed for a while.

    A run itself counts as some events more, and so do long texts: this bounds memory."""


class StopResult(NamedTuple):
    """How a run ended that was told to stop. Several callers may stop one run: at most one of them stopped it."""

    settlement: AnySettlement
    by_this_call: bool
    """Whether this call is why the run ended. False if it had ended, or was ending for another reason."""


class Live(Protocol):
    """The live half of a run, while it is queued or goes on here."""

    interrupt: Interrupt | None

    async def saved(self) -> None: ...


class RunOwner(Protocol):
    """The engine of a run, as the run needs it."""

    async def stop_run(self, run: Run, by: StoppedBy) -> bool: ...

    async def learn(self, run: Run) -> None: ...

    async def times_of(self, run_id: str) -> list[tuple[int, float]]: ...

    def note_waiting(self, run: Run) -> None: ...


class StoredLog:
    """The log of a run that does not go on here, read the same way as a live one.

    A reader of the log of a run that has not ended looks again every `pause` seconds.
    """

    pause = LOOK_AGAIN
    successor = None
    """A reader of this log reads it to its end."""

    def __init__(self, store: Store, record: RunRecord) -> None:
        self._store = store
        self._record = record
        self.hold = False
        """The reader is the client by whose stay an attached run lives: a log of another node tells its owner."""
        self.closed = record.settlement is not None
        self.seq = record.seq
        self.oldest = record.oldest
        self.text = record.settlement.text if record.settlement else ""

    async def look(self) -> None:
        """Learn the text so far of a run that has not ended."""
        if self._record.settlement is None:
            log = await read_back(self._store, self._record.id)
            self.seq, self.text = log.seq, log.text

    def end(self, record: RunRecord) -> None:
        """Learn how the run has ended. It has no settlement if it is gone, with its session."""
        if record.settlement is not None:
            self._record, self.closed = record, True
            self.seq, self.text = record.seq, record.settlement.text

    async def batch(self, after: int) -> Segment:
        """Return the next events after `after`. A settlement that is known is not read again: it may be long."""
        if self._record.settlement is not None:
            if after >= self.seq - 1:
                return segment_of([Settled(self._record.settlement)][after - self.seq + 1 :])
            return segment_of(await self._store.read_log(self._record.id, after, min(_AT_ONCE, self.seq - 1 - after)))
        record = await self._store.get_run(self._record.id) if not self.closed else None
        events = await self._store.read_log(self._record.id, after)
        self.closed = record is None or record.settlement is not None
        return segment_of(events)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` every now and then, until the returned function is called."""
        if self.closed:
            return lambda: None
        timer: asyncio.TimerHandle

        def look_again() -> None:
            nonlocal timer
            timer = asyncio.get_running_loop().call_later(self.pause, look_again)
            wake()

        timer = asyncio.get_running_loop().call_later(self.pause, look_again)
        return lambda: timer.cancel()

    def snapshot(self) -> tuple[int, Snapshot]:
        """Return what was visible before the settlement."""
        return max(self.seq - 1, 0), Snapshot(self.text)


async def read_back(store: Store, run_id: str) -> Log:
    """Return a run's log as the store has it, without a settlement."""
    log = Log(run_id)
    while events := await store.read_log(run_id, log.seq):
        log.append(segment_of([event for event in events if not isinstance(event, Settled)]))
        log.publish(log.appended)
        if isinstance(events[-1], Settled):
            break
    return log


Take = Callable[[int, Segment], Awaitable[None]]
"""Called with events as they arrive and the number of the first; without any if the owner only shows that it lives."""


class Follow(Protocol):
    """Follows a log at the node that owns it, and returns or raises when that ends. `hold` stands for its client."""

    async def __call__(self, address: str, run_id: str, after: int, *, hold: bool, take: Take) -> None: ...


class RemoteLog(StoredLog):
    """Read like a live log, by one reader. What the owner shows is saved: the store can stand in at any time."""

    pause = POLL

    def __init__(self, store: Store, record: RunRecord, follow: Follow, address_of: Callable[[str], str]) -> None:
        super().__init__(store, record)
        self._follow = follow
        self._address_of = address_of
        self._watchers = Watchers()
        self._task: asyncio.Task[None] | None = None
        self._events: list[Event] = []
        self._after = 0
        self._heard_at = float("-inf")
        self._room = asyncio.Event()

    async def batch(self, after: int) -> Segment:
        """Return the next events after `after`: what the owner has sent, or what the store has."""
        if self._task is None and len(self._watchers) and not self.closed:
            self._task = asyncio.create_task(self._follow_owner(after))
        if 0 <= (known := after - self._after) < len(self._events):
            events, self._after, self._events = self._events[known:], self._after + len(self._events), []
            self._room.set()
            return segment_of(events)
        if self.is_followed and after == self._after + len(self._events):
            return NOTHING
        return await self._stored(after)

    async def _stored(self, after: int) -> Segment:
        return await super().batch(after)

    @property
    def is_followed(self) -> bool:
        """The owner was heard a moment ago."""
        return asyncio.get_running_loop().time() - self._heard_at < SILENCE

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, and every now and then, until the returned function is called."""
        unwatch, untime = self._watchers.watch(wake), super().watch(wake)

        def leave() -> None:
            unwatch()
            untime()
            if not len(self._watchers) and self._task is not None:
                self._task.cancel()

        return leave

    async def _follow_owner(self, after: int) -> None:
        """Follow the owner, which may become another, from the reader's place."""
        self._after, self._events = after, []
        while not self.closed:
            if address := await self._address():
                at = self._after + len(self._events)
                try:
                    await self._follow(address, self._record.id, at, hold=self.hold, take=self._take)
                except (OSError, EOFError, ValueError, TimeoutError):
                    self._heard_at = float("-inf")
            await asyncio.sleep(AGAIN)

    async def _address(self) -> str:
        """Return where the owner is now; empty if that is not known."""
        record = await self._store.get_run(self._record.id)
        return "" if record is None else self._address_of(record.keeper)

    async def _take(self, first: int, segment: Segment) -> None:
        """Keep events for the reader. A number that is not the next ends the connection."""
        self._heard_at = asyncio.get_running_loop().time()
        if not segment:
            return
        if first != self._after + len(self._events) + 1:
            raise ValueError(f"event {first} of run {self._record.id} is not the next")
        self._events += segment
        self.closed = isinstance(self._events[-1], Settled)
        self._watchers.notify()
        while len(self._events) > AHEAD:
            self._room.clear()
            await self._room.wait()


class FoundRun(msgspec.Struct, frozen=True):
    """A run that is not stored, as its node describes it."""

    record: RunRecord
    text: str = ""


class Unstored(Protocol):
    """Asks another node for runs that are not stored, which it alone has."""

    async def find(self, address: str, run_id: str) -> FoundRun | None:
        """Return a run; None if the node does not have it, or does not answer."""
        ...

    async def stop(self, address: str, run_id: str, by: StoppedBy) -> bool:
        """Stop a run, and wait for its settlement. True if that is why it ended. `OwnerSilent` without an answer."""
        ...


class UnstoredLog(RemoteLog):
    """The log of a run that is not stored, read at the node that has it. Nothing stands in for that node."""

    def __init__(self, store: Store, found: FoundRun, follow: Follow, address: str) -> None:
        super().__init__(store, found.record, follow, lambda keeper: address)
        self.address = address
        self.text = found.text
        self.closed = False
        self._tries = TRIES

    async def look(self) -> None:
        """Do nothing: its node has told the text so far, and the store has none."""

    async def _take(self, first: int, segment: Segment) -> None:
        await super()._take(first, segment)
        self._tries = TRIES  # the node has the run

    async def _stored(self, after: int) -> Segment:
        if self._tries < 0:
            raise RunNotFound(self._record.id)
        return NOTHING

    async def _address(self) -> str:
        """Return where the run is. After some tries in a row without it, the run is gone."""
        self._tries -= 1
        if self._tries < 0:
            self.closed = True
            self._watchers.notify()
            return ""
        return self.address


class Run:
    """One generation, from start to settlement.

    What a caller sees never goes backwards: a run is queued, running, settled, and its first settlement stands.
    """

    def __init__(self, owner: RunOwner, record: RunRecord, log: Log | StoredLog, limits: Limits, *, kept: bool) -> None:
        # for as long as anybody has it
        self.id = record.id
        """`run_…`: unguessable, sorts by time."""
        self.owner = owner
        self.record = record
        self.kept = kept
        self.idempotency: Idempotency | None = None
        """The key of the caller's own that has started it."""
        self.log = log
        self.status: Status = record.status
        self.settlement: AnySettlement | None = record.settlement
        self.measured: Measured | None = None
        """Its times, once it has settled in this process."""
        self.rendering: Render | None = None
        """Renders its events for readers that are in step with each other. The first of them sets it."""
        self._done = asyncio.Event()
        self._is_held = False
        # until it has ended here
        self.live: Live | None = None
        # while its source is read, which may change these
        self.idle, self.deadline, self.grace = limits.idle, limits.deadline, limits.grace
        self._waits = record.waits
        self.quiet: Callable[[], bool] | None = None
        """True while the source has a good reason to be silent, such as a tool at work: the idle limit waits."""
        self.refused: list[str] = []
        """What did not end when it was told to: the source says so, and the receipt of a stop tells."""
        if record.settlement is not None:
            self._done.set()

    @property
    def waits(self) -> bool:
        """Whether it only waits for a person: a server that ends leaves it to the next one, to wait on."""
        return self._waits

    @waits.setter
    def waits(self, value: bool) -> None:
        is_news, self._waits = value != self._waits, value
        if is_news:
            self.owner.note_waiting(self)

    @property
    def text(self) -> str:
        """The visible text so far."""
        return self.log.text

    @property
    def seq(self) -> int:
        """The last seq that a reader can see."""
        return self.log.seq

    def read(self, after: int = 0) -> AsyncGenerator[tuple[int, Event]]:
        """Yield every event with a `seq` greater than `after`, then live ones, up to the settlement."""
        return _read(self.log, after)

    async def times(self) -> list[tuple[int, float]]:
        """Return when its events came: the last seq of those that came together, and the time in Unix seconds."""
        if isinstance(self.log, Log) and not self.kept:
            return self.log.times()
        return await self.owner.times_of(self.id)

    async def saved(self) -> None:
        """Wait until all that the source has said is saved: what it does next cannot be forgotten by a crash."""
        if self.live is not None:
            await self.live.saved()

    async def stop(self, by: StoppedBy = "user") -> StopResult:
        """End the run, even in the middle of an await, wait for the settlement, and say whether this call ended it.

        Stopping twice, or after the end, is harmless: the first ending stands.
        """
        is_first = await self.owner.stop_run(self, by)
        settlement = await self.settled()
        return StopResult(settlement, is_first and settlement.outcome == "stopped")

    def on_stop(self, hook: Interrupt) -> None:
        """Call a hook once, with the reason, when the run is told to end: for a source that the engine has made."""
        if self.live is not None:
            self.live.interrupt = hook

    def take_hold(self) -> bool:
        """Become the client by whose stay an attached run lives. True for the first who asks, if it goes on here."""
        first, self._is_held = not self._is_held, True
        if isinstance(self.log, StoredLog):
            self.log.hold = True
            return False
        return first and self.record.lifetime == "attached"

    async def leave(self, by: StoppedBy = "disconnect") -> None:
        """Say that the client who started the run has left: an attached run stops, a detached one goes on."""
        if self.record.lifetime == "attached":
            await self.stop(by)

    async def settled(self) -> AnySettlement:
        """Wait until the run has ended, however it ends."""
        if self.settlement is None and isinstance(self.log, StoredLog):
            await self.owner.learn(self)  # it goes on in another process, or in none
        else:
            await self._done.wait()
        assert self.settlement is not None
        return self.settlement

    # for the engine

    def settle(self, settlement: AnySettlement, record: RunRecord | None = None) -> None:
        """Show how the run has ended, which is durable by now. The first settlement stands."""
        if self.settlement is None:
            self.settlement = settlement
            self.status = "settled"
            self.record = record or self.record
            if self.log.successor is not None:
                self.log = self.log.successor()  # another node has ended it
            if isinstance(self.log, StoredLog):
                self.log.end(self.record)
            elif not self.log.closed:
                self.log.close(Settled(settlement))
        self.live = None
        self._done.set()


async def _read(log: Log | StoredLog, after: int) -> AsyncGenerator[tuple[int, Event]]:
    """Yield the events of a log, and of its successor if another node has the run."""
    grew = asyncio.Event()
    unwatch = log.watch(grew.set)
    try:
        while True:
            grew.clear()
            events = await log.batch(after)
            for event in events:
                after += 1
                yield after, event
            if events:
                await asyncio.sleep(0)  # a replay of a million events leaves the loop to others
            elif log.successor is not None:
                log = log.successor()
                unwatch = log.watch(grew.set)
            elif log.closed:
                return
            else:
                await grew.wait()
    finally:
        unwatch()
