"""One generation, from start to settlement: the object that callers use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from ..concurrency.closing import Closing
from ..errors import RunSettled
from ..events import AnySettlement, Event, Settled, StoppedBy
from ..history import Measured
from ..log.log import Log
from ..log.segment import Segment
from ..store import Idempotency, RunRecord, Status
from .stored_log import StoredLog, checked_position

Interrupt = Callable[[str], Any]
"""Called once, with the reason, when a run is told to end: for sources that need more than a cancellation."""

Render = Callable[[int, Segment], bytes]
"""Renders a segment as bytes. The number is the `seq` of its first event."""

Cost = Callable[[RunRecord, AnySettlement], float | None]
"""Returns the cost of a run that has ended; None if it is not known."""

Observe = Callable[["Run"], None]
"""Called once with each run that has settled in this process, for metrics. It must not block."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on durations and numbers. None means no limit."""

    idle: float | None = 120.0
    """Seconds without an event after which a run fails."""
    deadline: float | None = 3600.0
    """Maximum duration of a run, in seconds."""
    grace: float = 1.0
    """Seconds that a stopped source may take to end before it is abandoned."""
    runs: int = 2000
    """Maximum number of runs that are active at once."""
    runs_per_owner: int | None = None
    """The same for the runs of one owner."""
    queue: int = 32
    """Maximum number of queued runs in one session."""
    unsaved: int = 20_000
    """Unsaved events of one run, while the store is unavailable. Beyond this its source waits."""
    log: int = 200_000
    """Events held in memory for a run that is not stored."""
    recent: int = 500_000
    """Events held in memory for all ended runs that are not stored. A run counts as some more, as does long text."""


class StopResult(NamedTuple):
    """The settlement of a stopped run, and whether this call caused it. At most one of several concurrent calls did."""

    settlement: AnySettlement
    by_this_call: bool  # False if it had ended, or was ending for another reason


class Live(Protocol):
    """The active part of a run, while it is queued or running on this node."""

    interrupt: Interrupt | None

    async def saved(self) -> None: ...


class RunEngine(Protocol):
    """What a run needs of the engine."""

    streams: Closing

    async def stop_run(self, run: Run, by: StoppedBy) -> bool: ...

    async def learn(self, run: Run) -> None: ...

    async def times_of(self, run_id: str) -> list[tuple[int, float]]: ...

    def note_waiting(self, run: Run) -> None: ...


class Run:
    """One generation, from start to settlement.

    What a caller sees never goes backwards: a run is queued, running, settled, and its first settlement is final.
    """

    def __init__(
        self, engine: RunEngine, record: RunRecord, log: Log | StoredLog, limits: Limits, *, kept: bool
    ) -> None:
        self.id = record.id
        """`run_…`: unguessable, sorts by time."""
        self.engine = engine
        self.record = record
        self.kept = kept
        self.idempotency: Idempotency | None = None
        """The idempotency key of the request that started it."""
        self.log = log
        self.status: Status = record.status
        self.settlement: AnySettlement | None = record.settlement
        self.measured: Measured | None = None
        """Its times, once it has settled in this process."""
        self.may_be_followed = True  # unless the store has said, with the settlement, that no run waits in its session
        self.rendering: Render | None = None
        """Renders its events once for all readers at the same position. Set by the first reader."""
        self._done: asyncio.Event | None = None  # once somebody waits for the settlement
        self._has_client = False
        # until it has ended on this node
        self.live: Live | None = None
        # while its source is read; the source may change these
        self.idle, self.deadline, self.grace = limits.idle, limits.deadline, limits.grace
        self._waits = record.waits
        self.quiet: Callable[[], bool] | None = None
        """Returns True while the source is expected to be silent, such as while a tool runs: no idle limit applies."""
        self.survivors: list[str] = []
        """Processes and threads that outlived a stop, as the source reports them. Copied into the stop's receipt."""

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.status}, {self.seq} events>"

    @property
    def waits(self) -> bool:
        """True while it only waits for a person. A server that shuts down leaves such a run to the next process."""
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
        return _read(self.log, checked_position(after))

    async def times(self) -> list[tuple[int, float]]:
        """Return when its events arrived, in Unix seconds: `(last seq, time)` of each group that arrived together."""
        if isinstance(self.log, Log) and not self.kept:
            return self.log.times()
        return await self.engine.times_of(self.id)

    async def saved(self) -> None:
        """Wait until all events so far are saved: no crash loses them. `RunSettled` if the run was told to end."""
        if self.live is not None:
            await self.live.saved()
        if isinstance(self.log, StoredLog) or self.log.sealed:
            raise RunSettled(self.id)

    async def stop(self, by: StoppedBy = "user") -> StopResult:
        """End the run, even in the middle of an await. A stop after the end is harmless: the first outcome is final."""
        is_first = await self.engine.stop_run(self, by)
        settlement = await self.settled()
        return StopResult(settlement, is_first and settlement.outcome == "stopped")

    def on_stop(self, hook: Interrupt) -> None:
        """Call a hook once, with the reason, when the run is told to end: for sources that the engine makes."""
        if self.live is not None:
            self.live.interrupt = hook

    def take_hold(self) -> bool:
        """Register the client that an attached run depends on. True for the first caller, if the run is active here."""
        first, self._has_client = not self._has_client, True
        if isinstance(self.log, StoredLog):
            self.log.hold = True
            return False
        return first and self.record.lifetime == "attached"

    async def leave(self, by: StoppedBy = "disconnect") -> None:
        """Handle that the registered client has left: an attached run stops, a detached one continues."""
        if self.record.lifetime == "attached":
            await self.stop(by)

    async def settled(self) -> AnySettlement:
        """Wait until the run has ended, and return its settlement."""
        if self.settlement is None and isinstance(self.log, StoredLog):
            await self.engine.learn(self)  # it runs in another process, or in none
        elif self.settlement is None:
            self._done = self._done or asyncio.Event()
            await self._done.wait()
        assert self.settlement is not None
        return self.settlement

    # for the engine

    def settle(self, settlement: AnySettlement, record: RunRecord | None = None) -> None:
        """Show the settlement, which the store has by now if the run is kept. Only the first one counts."""
        if self.settlement is None:
            self.settlement = settlement
            self.status = "settled"
            self.record = record or self.record
            if self.log.successor is not None:
                self.log = self.log.successor()  # another node has settled it
            if isinstance(self.log, StoredLog):
                self.log.end(self.record)
            elif not self.log.closed:
                self.log.close(Settled(settlement))
        self.live = None
        if self._done is not None:
            self._done.set()


async def _read(log: Log | StoredLog, after: int) -> AsyncGenerator[tuple[int, Event]]:
    """Yield the events of a log, and of its successor if another node owns the run."""
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
                await asyncio.sleep(0)  # a replay of a million events must not block the event loop
            elif log.successor is not None:
                log = log.successor()
                unwatch = log.watch(grew.set)
            elif log.closed:
                return
            else:
                await grew.wait()
    finally:
        unwatch()
