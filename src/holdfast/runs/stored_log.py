"""The log of a run that is not active on this node, read from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..events import Event, Settled, Snapshot
from ..history import reasoning_of
from ..log.log import Log
from ..log.segment import Segment, segment_of
from ..store import RunRecord, Store

LOOK_AGAIN = 0.5
"""Seconds between two reads of a run that is active in another process, or in none."""

_MAX_EVENTS = 512  # maximum number of events of an ended run in one read


class StoredLog:
    """The log of a run that is not active on this node, with the same reading methods as a live log."""

    pause = LOOK_AGAIN
    """Seconds between two reads by a reader, until the run has ended."""
    successor = None
    """None: a reader reads this log to its end."""

    def __init__(self, store: Store, record: RunRecord) -> None:
        self._store = store
        self.record = record
        """The record as last read. It has the settlement once a reader has read that."""
        self.hold = False
        """True if the reader is the client that an attached run depends on. A remote log tells the owning node."""
        self.closed = record.settlement is not None
        self.seq = record.seq
        self.oldest = record.oldest
        self.text = record.settlement.text if record.settlement else ""

    async def look(self) -> None:
        """Read the text so far of a run that has not ended."""
        if self.record.settlement is None:
            log = await read_back(self._store, self.record.id)
            self.seq, self.text = log.seq, log.text

    def end(self, record: RunRecord) -> None:
        """Take the settlement from a record. A run that was deleted with its session has none."""
        if record.settlement is not None:
            self.record, self.closed = record, True
            self.seq, self.text = record.seq, record.settlement.text

    async def batch(self, after: int) -> Segment:
        """Return the next events after `after`. A known settlement is not read again: it may be long."""
        if self.record.settlement is not None:
            if after >= self.seq - 1:
                return segment_of([Settled(self.record.settlement)][after - self.seq + 1 :])
            return segment_of(await self._store.read_log(self.record.id, after, min(_MAX_EVENTS, self.seq - 1 - after)))
        record = await self._store.get_run(self.record.id) if not self.closed else None
        events = await self._store.read_log(self.record.id, after)
        self.closed = record is None or record.settlement is not None
        return await self._with_end(events)

    async def _with_end(self, events: Sequence[Event]) -> Segment:
        """Return events as a segment. If they end with the settlement, read the final record."""
        if events and isinstance(events[-1], Settled) and (record := await self._last_record()) is not None:
            self.end(record)
        return segment_of(events)

    async def _last_record(self) -> RunRecord | None:
        return await self._store.get_run(self.record.id)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` every `pause` seconds, until the returned function is called."""
        if self.closed:
            return lambda: None
        timer: asyncio.TimerHandle

        def poll() -> None:
            nonlocal timer
            timer = asyncio.get_running_loop().call_later(self.pause, poll)
            wake()

        timer = asyncio.get_running_loop().call_later(self.pause, poll)
        return lambda: timer.cancel()

    async def snapshot(self) -> tuple[int, Snapshot]:
        """Return a snapshot of the output before the settlement, with the seq from which a reader can continue."""
        record = self.record
        if self.oldest > 1 and record.settlement is not None:  # the log was trimmed, but its message is still there
            messages = await self._store.messages(record.session_id) if record.session_id is not None else []
            return self.seq - 1, Snapshot(record.settlement.text, reasoning_of(record.id, messages))
        return await (await read_back(self._store, record.id)).snapshot()


async def read_back(store: Store, run_id: str) -> Log:
    """Return a run's log as the store has it, without a settlement."""
    log = Log(run_id)
    while events := await store.read_log(run_id, log.seq):
        log.append(segment_of([event for event in events if not isinstance(event, Settled)]))
        log.publish(log.appended)
        if isinstance(events[-1], Settled):
            break
    return log


def checked_position(after: int) -> int:
    """Return the place in a log from which a reader goes on, or raise if it is none."""
    if type(after) is not int or after < 0:
        raise ValueError(f"`after` is the seq of the last event that was seen, from 0 on, not {after!r}")
    return after
