"""One generation, from start to settlement, as a caller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from ..events import AnySettlement, Event, Settled, StoppedBy
from ..history import Measured
from ..log.log import Log
from ..log.segment import Segment
from ..store import Idempotency, RunRecord, Status
from .stored_log import StoredLog

Interrupt = Callable[[str], Any]
"""Called once, with a reason, when a run is stopped, left or out of time: for sources that need more than a cancel."""

Render = Callable[[int, Segment], bytes]
"""Returns a segment as bytes; the first event in it has the number that is given."""

Cost = Callable[[RunRecord, AnySettlement], float | None]
"""Returns the cost of a run that has ended; None if it is not known."""

Observe = Callable[["Run"], None]
"""Called once with each run that has settled in this process, for metrics. It must not wait."""


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


class RunEngine(Protocol):
    """The engine of a run, as the run needs it."""

    async def stop_run(self, run: Run, by: StoppedBy) -> bool: ...

    async def learn(self, run: Run) -> None: ...

    async def times_of(self, run_id: str) -> list[tuple[int, float]]: ...

    def note_waiting(self, run: Run) -> None: ...


class Run:
    """One generation, from start to settlement.

    What a caller sees never goes backwards: a run is queued, running, settled, and its first settlement stands.
    """

    def __init__(
        self, engine: RunEngine, record: RunRecord, log: Log | StoredLog, limits: Limits, *, kept: bool
    ) -> None:
        # for as long as anybody has it
        self.id = record.id
        """`run_…`: unguessable, sorts by time."""
        self.engine = engine
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
            self.engine.note_waiting(self)

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
        return await self.engine.times_of(self.id)

    async def saved(self) -> None:
        """Wait until all that the source has said is saved: what it does next cannot be forgotten by a crash."""
        if self.live is not None:
            await self.live.saved()

    async def stop(self, by: StoppedBy = "user") -> StopResult:
        """End the run, even in the middle of an await, wait for the settlement, and say whether this call ended it.

        Stopping twice, or after the end, is harmless: the first ending stands.
        """
        is_first = await self.engine.stop_run(self, by)
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
            await self.engine.learn(self)  # it goes on in another process, or in none
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
