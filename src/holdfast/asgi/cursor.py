"""A reader of a run's log: the events after a number, rendered by a wire."""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate
from weakref import ref

from ..events import Event, Settled, Text, encode_event
from ..log.log import Log
from ..log.segment import Segment
from ..runs.run import Render, Run
from ..runs.stored_log import StoredLog
from ..wires import native
from .client import ClientConnection

AT_ONCE = 64 * 1024
"""Maximum number of characters rendered at once."""


Begin = Callable[[], Awaitable[tuple[int, bytes]]]
"""Returns the first frames for a reader, with the seq of the last event that they cover."""


def _nothing() -> None:
    pass


class RunFrames:
    """A cursor on a run's log, rendered by a wire. A wire with `pieces` renders a long settlement in pieces.

    An `attached` run that is not stored waits for this reader if it is slow (backpressure), and for no other reader.
    """

    def __init__(
        self,
        run: Run,
        render: Render,
        after: int = 0,
        pieces: Callable[[int, Settled], Iterator[bytes]] | None = None,
        *,
        attached: bool = False,
        begin: Begin | None = None,
    ) -> None:
        self._run, self._log = run, run.log
        self.live = run.log if isinstance(run.log, Log) else None
        """The log, if it is written in this process: then it reports each new event itself."""
        self._render = render
        self.after = after
        """The seq of the last event that was rendered."""
        self._pieces = pieces
        self._begin = begin
        self._attached_log = self.live if attached else None
        self._release = self._attached_log.keep_unread(_position_of(self)) if self._attached_log is not None else None
        self._wake: Callable[[], None] = _nothing
        self._unwatch: Callable[[], None] = _nothing
        self._rest: Iterator[bytes] = iter(())
        self._error: Exception | None = None
        self.connection: ClientConnection | None = None
        """The client's connection, while new events are sent within the call that appends them. If None, `wake` is
        called instead."""
        self.sent_at = 0.0
        """When events were last sent within that call, in the loop's time."""
        self.time: Callable[[], float] = float
        """The loop's clock, set together with `connection`: a lookup of the loop costs a system call."""
        self.is_over = False

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        self._wake, self._unwatch = wake, self._log.watch(self._grew)

        def leave() -> None:
            self._unwatch()
            self._wake = self._unwatch = _nothing  # break the reference cycle: they hold the stream, which holds this
            self.connection = None
            if self._release is not None and self._attached_log is not None:
                self._release()
                if self._attached_log.is_full:  # deferred: an attached run is stopped first
                    asyncio.get_running_loop().call_soon(self._attached_log.make_room)

        return leave

    @property
    def lag(self) -> int:
        """The number of events that are published and not rendered."""
        return max(0, self._log.seq - self.after)

    async def next(self) -> bytes:
        """Return the frames of the next events, or the next piece of a long one."""
        if self._error is not None:
            raise self._error
        if self._attached_log is not None:
            self._attached_log.make_room()
        if self._begin is not None:
            (self.after, frames), self._begin = await self._begin(), None
            return frames
        if piece := next(self._rest, b""):
            return piece
        if frames := self.ready():
            return frames
        while self.live is None and (segment := as_many_as_fit(await self._log.batch(self.after))):
            self._note_end(self._log)
            if frames := self._rendered(segment):
                return frames
        if self._log.successor is not None:
            self._continue_with(self._log.successor())
            return await self.next()
        self.is_over = self._log.closed
        return b""

    def _note_end(self, log: Log | StoredLog) -> None:
        """Settle the run before its last event is rendered: a wire may render the time of the settlement."""
        if isinstance(log, StoredLog) and log.record.settlement is not None:
            self._run.settle(log.record.settlement, log.record)

    def _continue_with(self, log: StoredLog) -> None:
        """Continue with another log: another node owns the run."""
        log.hold = self._attached_log is not None
        self._log, self.live, self._attached_log = log, None, None
        self._unwatch = log.watch(self._grew)

    def ready(self) -> bytes:
        """Return the next frames of a live log; nothing if there are none yet, or if the log is not live."""
        live = self.live if self._begin is None else None
        while live is not None and self.after < live.seq:
            if frames := self._rendered(as_many_as_fit(live.slice(self.after))):
                return frames
        return b""

    def _grew(self) -> None:
        """Send the newest events of a live log. If there are more, or the client does not read, wake the task."""
        log, connection, after = self.live, self.connection, self.after
        if log is None or connection is None or not connection.takes_more or log.newest_after != after or log.closed:
            self._wake()
            return
        segment = log.newest
        count = len(segment.texts or segment.others)
        if count > 1:
            segment = as_many_as_fit(segment)
            count = len(segment.texts or segment.others)
        self.after = upto = after + count
        try:
            if frames := self._render(after + 1, segment):
                connection.go_on(frames)
                self.sent_at = self.time()
            if upto != log.seq:
                self._wake()  # for the rest
        except Exception as error:  # noqa: BLE001 - an error of this stream must not reach the writer of the log
            self._error = error
            self._wake()

    def _rendered(self, segment: Segment) -> bytes:
        first, self.after = self.after + 1, self.after + len(segment.texts or segment.others)
        if self._pieces is not None and self._log.closed and (last := long_ending(segment)) is not None:
            self._rest = self._pieces(self.after, last)  # alone, since it is long
            return next(self._rest, b"")
        live = self.live
        self.is_over = live is not None and live.closed and live.successor is None and self.after == live.seq
        return self._render(first, segment)


def _position_of(frames: RunFrames) -> Callable[[], int]:
    """Return a function that returns the seq of a cursor. A weak reference lets a cursor that is not read be freed."""
    reference = ref(frames)

    def position() -> int:
        reader = reference()
        return sys.maxsize if reader is None else reader.after

    return position


def as_many_as_fit(segment: Segment) -> Segment:
    """Return the first events, as many as may be rendered at once: this bounds the memory of a slow reader."""
    if len(segment.texts or segment.others) <= 1:
        return segment
    sizes = [*map(len, segment.texts), *map(_length, segment.others)]
    if sum(sizes) <= AT_ONCE:
        return segment
    return segment[: max(1, bisect_right([*accumulate(sizes)], AT_ONCE))]


def long_ending(segment: Segment) -> Settled | None:
    """Return the settlement at the end, if its text is longer than `AT_ONCE`."""
    last = segment.others[-1] if segment.others else None
    return last if isinstance(last, Settled) and len(last.settlement.text) > AT_ONCE else None


def _length(event: Event) -> int:
    if type(event) is Settled:
        return len(event.settlement.text)
    return len(event.text) if type(event) is Text else len(encode_event(event))


def shared_rendering(run: Run) -> Render:
    """Return the rendering that all readers of a run share: readers at the same seq get bytes rendered once."""
    if run.rendering is None:
        run.rendering = _LastRendering(native.frames(run.id))
    return run.rendering


class _LastRendering:
    """Renders events, and caches the last result."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._last = (0, 0)
        self._frames = b""

    def __call__(self, first: int, segment: Segment) -> bytes:
        position = first, len(segment.texts or segment.others)
        if self._last != position:
            self._frames = self._render(first, segment)
            self._last = position
        return self._frames
