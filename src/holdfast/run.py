"""One generation, from start to settlement, as its readers and its engine see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol

import msgspec

from .events import (
    AnySettlement,
    Event,
    Finish,
    Reasoning,
    Settled,
    Snapshot,
    Source,
    StoppedBy,
    Text,
    ToolCall,
    ToolDelta,
    Usage,
)
from .history import Figures
from .judgement import StopIntent
from .log import Log, characters
from .store import RunRecord, Status, Store

Interrupt = Callable[[str], Any]
"""Called once, with a reason, when a run is stopped, left or out of time: for sources that need more than a cancel."""

LOOK_AGAIN = 0.5
"""Seconds between two looks at a run that goes on in another process, or in none."""

SPOKEN = frozenset({Text, Reasoning, ToolDelta, ToolCall})
"""With the first of these a model has begun to answer."""

SHORTEST = 0.05
"""Seconds from the first word to the last below which an answer came at once, and has no pace."""

_AT_ONCE = 512  # events of a stored log that are read at once
_OF_A_RUN = 32  # as many events take the memory that a run takes without any: 4 kB
_OF_AN_EVENT = 128  # as many characters take that of one


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


class Ender(Protocol):
    """What a run asks of the engine that it goes on in."""

    limits: Limits

    async def _stop(self, run: Run, by: StoppedBy) -> None: ...

    async def _learn(self, run: Run) -> None: ...

    async def times_of(self, run_id: str) -> list[tuple[int, float]]: ...

    async def _saved(self, run: Run) -> None: ...


class StoredLog:
    """The log of a run that does not go on here, read the same way as a live one.

    Whoever reads the log of a run that has not ended looks again every `LOOK_AGAIN` seconds.
    """

    def __init__(self, store: Store, record: RunRecord) -> None:
        self._store = store
        self._record = record
        self.closed = record.settlement is not None
        self.seq = record.seq
        self.oldest = record.oldest
        self.text = record.settlement.text if record.settlement else ""

    async def batch(self, after: int) -> Sequence[Event]:
        """Return the next events after `after`. A settlement that is known is not read again: it may be long."""
        if self._record.settlement is not None:
            if after >= self.seq - 1:
                return [Settled(self._record.settlement)][after - self.seq + 1 :]
            return await self._store.read_log(self._record.id, after, min(_AT_ONCE, self.seq - 1 - after))
        record = await self._store.get_run(self._record.id) if not self.closed else None
        events = await self._store.read_log(self._record.id, after)
        self.closed = record is None or record.settlement is not None
        return events

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` every now and then, until the returned function is called."""
        if self.closed:
            return lambda: None
        timer: asyncio.TimerHandle

        def look_again() -> None:
            nonlocal timer
            timer = asyncio.get_running_loop().call_later(LOOK_AGAIN, look_again)
            wake()

        timer = asyncio.get_running_loop().call_later(LOOK_AGAIN, look_again)
        return lambda: timer.cancel()

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
        "_first_at",
        "_input_tokens",
        "_interrupt",
        "_is_held",
        "_keeper",
        "_log",
        "_pump",
        "_resumes",
        "_source",
        "_started",
        "_timer",
        "_touched",
        "_weight",
        "deadline",
        "grace",
        "idle",
        "kept",
        "log",
        "record",
        "refused",
        "settlement",
        "status",
        "waits",
    )

    def __init__(
        self,
        engine: Ender,
        record: RunRecord,
        *,
        kept: bool,
        source: Source | None = None,
        interrupt: Interrupt | None = None,
    ) -> None:
        self.record = record
        self.kept = kept
        self.status: Status = record.status
        self.settlement: AnySettlement | None = record.settlement
        self._log = Log(record.id, limit=None if kept else engine.limits.log)
        self.log: Log | StoredLog = self._log
        self.idle = engine.limits.idle
        self.deadline = engine.limits.deadline
        self.grace = engine.limits.grace
        self.waits = False
        """It only waits for a person: a server that ends leaves it to the next one, to wait on."""
        self.refused: list[str] = []
        """What did not end when it was told to: the source says so, and the receipt of a stop tells."""
        self._engine = engine
        self._done = asyncio.Event()
        self._source = source
        self._pump: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._cause: StopIntent | BaseException | None = None
        self._finish: dict[int, Finish] = {}
        self._interrupt = interrupt
        self._input_tokens = 0
        self._entered = False
        self._is_held = False
        self._resumes = False
        self._closed_at: float | None = None
        self._started = self._touched = 0.0
        self._first_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._weight = 0

    @property
    def id(self) -> str:
        """`run_…`: unguessable, sorts by time."""
        return self.record.id

    @property
    def text(self) -> str:
        """The visible text so far."""
        return self.log.text

    def figures(self, usage: Usage) -> Figures:
        """Return what the answer took until now. Of one that began in another process nobody knows the times."""
        used = Figures(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, usage_source=usage.source)
        if self._resumes or not self._started:
            return used
        first, now = self._first_at, asyncio.get_running_loop().time()
        return msgspec.structs.replace(
            used,
            ttft_ms=None if first is None else round((first - self._started) * 1000, 1),
            duration_ms=round((now - self._started) * 1000, 1),
            tokens_per_second=None if first is None else self._pace(usage, self._touched - first),
        )

    def _pace(self, usage: Usage, seconds: float) -> float | None:
        """Return tokens for each second of speaking; an agent spends its time otherwise, too."""
        if self._log.steps is not None or seconds < SHORTEST:
            return None
        return round(usage.output_tokens / seconds, 2)

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

    async def times(self) -> list[tuple[int, float]]:
        """Return when its events came: the last seq of those that came together, and the time in Unix seconds."""
        if self.kept:
            return await self._engine.times_of(self.id)
        return self._log.times()

    async def saved(self) -> None:
        """Wait until all that the source has said is saved: what it does next cannot be forgotten by a crash."""
        await self._engine._saved(self)

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
        if self.log is self._log or self.settlement is not None:
            await self._done.wait()
        else:
            await self._engine._learn(self)  # it does not go on here
        assert self.settlement is not None
        return self.settlement

    def _weigh(self) -> int:
        """Return what an ended run costs in memory, as if all of it were events, and remember that."""
        said = self._log.size + characters(self.record.request)
        self._weight = self.seq + _OF_A_RUN + said // _OF_AN_EVENT
        return self._weight

    def _forget_its_making(self) -> None:
        """Let go of what an ended run was made by. An error's traceback holds all that the source has used, and
        often itself: a cycle, which would wait for the collector."""
        if isinstance(self._cause, BaseException):
            self._cause.__traceback__ = None
        self._source = self._pump = self._keeper = self._cause = self._interrupt = None

    def _set_timer(self, seconds: float | None, then: Callable[[Run], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and then is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, then, self)
