"""Runs as event streams in any ASGI app: each stream always knows when its client has left.

@app.get("/runs/{run_id}/events")
async def read(request: Request):
    return events(await engine.open(request.path_params["run_id"]), request)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .errors import HoldfastError, ResumeGap
from .events import ErrorInfo, Event, Notice, Settled, Text, Words
from .log import Log
from .run import Run, StoredLog
from .wire import native, sse

logger = logging.getLogger("holdfast")

Header = tuple[bytes, bytes]
Watch = Callable[[Callable[[], None]], Callable[[], object]]
"""Calls what it is given whenever something changed, until what it returns is called."""
AT_ONCE = 64 * 1024
"""Characters of text that are rendered at once."""
_SENT_AT_ONCE = 1024 * 1024
CONNECTION = "holdfast.connection"
"""Where our own server leaves the connection in a request's scope."""


class Connection(Protocol):
    """A client's connection: tells when it is gone, and cuts off a client who never reads."""

    is_lost: bool
    takes_more: bool
    """The body of the answer that was begun can be gone on with, and nobody has to wait for that."""

    def watch_loss(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when it is gone, until the returned function is called."""
        ...

    def abort(self) -> None:
        """Close it now."""
        ...

    def answer(self, send: Send, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Send a whole answer now, if `send` would do nothing else with it. False where that has to be called."""
        ...

    def begin(self, send: Send, headers: Sequence[Header]) -> bool:
        """Begin an answer of pieces now, if `send` would do nothing else. False where that has to be called."""
        ...

    def go_on(self, body: bytes) -> None:
        """Send some more of the body now."""
        ...


class Frames(Protocol):
    """What a stream sends: bytes that are ready, and a way to learn of more."""

    is_over: bool
    """Nothing more will come."""

    async def next(self) -> bytes:
        """Return what can be sent now; nothing where there is nothing yet, or where it is over."""
        ...

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more, until the returned function is called."""
        ...


class RunFrames:
    """A cursor on a run's log, rendered by a wire. Where the wire can, it renders a long ending in `pieces`.

    A run that is `attached` to it and kept nowhere waits for it, from now on: nobody else is slowed down by that.
    """

    def __init__(
        self,
        log: Log | StoredLog,
        render: Callable[[int, Sequence[Event]], bytes],
        after: int = 0,
        pieces: Callable[[int, Settled], Iterator[bytes]] | None = None,
        *,
        attached: bool = False,
    ) -> None:
        self._log = log
        self.live = log if isinstance(log, Log) else None
        """The log, where it is written in this process: then there is nothing to wait for but its next event."""
        self._render = render
        self._after = after
        self._pieces = pieces
        self._waits = self.live if attached else None
        self._release = self._waits.wait_for(_place_of(self)) if self._waits is not None else None
        self._rest: Iterator[bytes] = iter(())
        self.is_over = False
        self.is_behind = False
        """There is more to say than could be said at once, or it has ended."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        unwatch = self._log.watch(wake)

        def leave() -> None:
            unwatch()
            if self._release is not None and self._waits is not None:
                self._release()
                if self._waits.is_full:  # not at once: a run that ends with its client is to be told so first
                    asyncio.get_running_loop().call_soon(self._waits.make_room)

        return leave

    async def next(self) -> bytes:
        """Return the next events' frames, or the next piece of a long one."""
        if self._waits is not None:
            self._waits.make_room()
        if piece := next(self._rest, b""):
            return piece
        while events := as_many_as_fit(await self._log.batch(self._after)):
            if frames := self._rendered(events):
                return frames
        self.is_over = self._log.closed
        return b""

    def now(self) -> bytes:
        """Return the frames of what a live log has to say; nothing where that was trimmed."""
        log, after = self.live, self._after
        assert log is not None
        try:
            events = log.slice(after)
        except ResumeGap:
            self.is_behind = True
            return b""
        if log.closed and long_ending(events) is not None:
            self.is_behind = True
            return b""
        if (count := len(events)) > 1:
            events = as_many_as_fit(events)
            count = len(events)
        self._after = upto = after + count
        self.is_behind = log.closed or upto < log.seq
        return self._render(after + 1, events)

    def _rendered(self, events: Sequence[Event]) -> bytes:
        first, self._after = self._after + 1, self._after + len(events)
        if self._pieces is not None and self._log.closed and (last := long_ending(events)) is not None:
            self._rest = self._pieces(self._after, last)  # alone: nothing else fits beside it
            return next(self._rest, b"")
        return self._render(first, events)


def _place_of(frames: RunFrames) -> Callable[[], int]:
    """Return what tells a log how far a cursor has come, without holding it: one that is never read must not stay."""
    held = ref(frames)

    def place() -> int:
        reader = held()
        return sys.maxsize if reader is None else reader._after

    return place


def as_many_as_fit(events: Sequence[Event]) -> Sequence[Event]:
    """Return the first of the events, as many as may be rendered at once: the cost of a reader that does not read."""
    if type(events) is Words and sum(map(len, events.texts)) <= AT_ONCE:
        return events
    room = AT_ONCE
    for count, event in enumerate(events):
        room -= len(event.text) if type(event) is Text else _length(event)
        if room < 0:
            return events[: max(count, 1)]
    return events


def long_ending(events: Sequence[Event]) -> Settled | None:
    """Return the settlement that comes last, where it repeats more text than is rendered at once."""
    last = events[-1] if events else None
    return last if isinstance(last, Settled) and len(last.settlement.text) > AT_ONCE else None


def _length(event: Event) -> int:
    if type(event) is Settled:
        return len(event.settlement.text)
    return sum(len(field) for field in msgspec.structs.astuple(event) if isinstance(field, str))


class Closing:
    """Tells every open stream that the server is about to end."""

    def __init__(self) -> None:
        self.has_begun = False
        self._wakers: dict[Callable[[], None], None] = {}

    def begin(self) -> None:
        """Wake them all."""
        self.has_begun = True
        for wake in tuple(self._wakers):
            wake()

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when it begins, until the returned function is called."""
        self._wakers[wake] = None
        return lambda: self._wakers.pop(wake, None)


class Client:
    """The other end of a request. Costs one task, which waits for it to leave, unless the server is our own.

    No server cancels a handler that only waits when its client leaves, and with ASGI 2.4 none cancels a stream
    either: so we listen ourselves, always.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._connection: Connection | None = scope.get(CONNECTION)
        self._receive = receive
        self._wakers: list[Callable[[], object]] = []
        self.has_left = False

    def __enter__(self) -> Client:
        if self._connection is None:
            self._forget: Callable[[], object] = asyncio.create_task(self._listen()).cancel
        else:
            self._forget = self._connection.watch_loss(self._leave)
            self.has_left = self._connection.is_lost
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        del self._forget  # it knows us: a cycle, which would wait for the collector

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self.has_left = True
        for wake in self._wakers:
            wake()

    def on_leaving(self, wake: Callable[[], object]) -> None:
        """Call `wake` when the client leaves."""
        self._wakers.append(wake)

    async def wait_for(self, event: Awaitable[Any], timeout: float | None = None) -> bool:
        """Wait for something, but not longer than the client stays. False where it left (or time ran out) first."""
        waiting, over = asyncio.ensure_future(event), asyncio.Event()  # costs a task
        waiting.add_done_callback(lambda _: over.set())
        self.on_leaving(over.set)
        timer = None if timeout is None else asyncio.get_running_loop().call_later(timeout, over.set)
        try:
            if not self.has_left:
                await over.wait()
            return waiting.done() and not waiting.cancelled()
        finally:
            waiting.cancel()
            if timer is not None:
                timer.cancel()

    async def wait_until(self, is_so: Callable[[], bool], watch: Watch, timeout: float | None = None) -> bool:
        """Wait until something is so, of which `watch` tells, but not longer than the client stays."""
        if is_so() or self.has_left:
            return is_so()
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        self.on_leaving(end)
        unwatch = watch(lambda: end() if is_so() else None)
        timer = None if timeout is None else loop.call_later(timeout, end)
        try:
            await over
            return is_so()
        finally:
            unwatch()
            if timer is not None:
                timer.cancel()


class EventStream(Response):
    """Sends frames until their end, the server's end, or until the client leaves.

    The task is the request's own. It waits on one event, which the log, the heartbeat, the client's leaving and the
    server's end all set. What a live log has to say while it waits is sent from within the call that brought it, where
    the server is our own and the client reads: then no task wakes for a token. A client that does not read for
    `send_timeout` seconds is cut off; it can resume.

    What goes wrong once the answer has begun can be no status any more: it ends in the frame that `broken` returns, in
    the words of the wire, or else it is cut off. So nobody takes it for whole.
    """

    def __init__(
        self,
        frames: Frames,
        closing: Closing | None = None,
        *,
        headers: Iterable[Header] = (),
        opening: bytes = b"",
        farewell: bytes = b"",
        broken: Callable[[ErrorInfo], bytes] | None = None,
        on_leave: Callable[[], Awaitable[None]] | None = None,
        hold: Callable[[Client], Awaitable[Response | None]] | None = None,
        heartbeat: float = 10.0,
        sign_of_life: bytes = sse.HEARTBEAT,
        send_timeout: float = 30.0,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._frames = frames
        self._closing = closing or Closing()
        self._sent_headers = [*sse.HEADERS, *headers]
        self._opening = opening
        self._farewell = farewell
        self._broken = broken
        self._on_leave = on_leave
        self._hold = hold
        self._heartbeat = heartbeat
        self._sign_of_life = sign_of_life
        self._send_timeout = send_timeout
        self._wake = asyncio.Event()
        self._sending_since: float | None = None
        self._spoke_at = 0.0
        self._connection: Connection | None = None
        self._live: RunFrames | None = None  # what is said of it in the call that brings it, if anything is
        self._error: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        with Client(scope, receive) as client:
            is_done = False
            try:
                instead = await self._hold(client) if self._hold else None
                if instead is not None:
                    is_done = True
                    await instead(scope, receive, send)
                elif not client.has_left:
                    is_done = await self._stream(scope, client, send)
            finally:
                if not is_done and self._on_leave is not None:
                    await finish(self._on_leave())

    async def _stream(self, scope: Scope, client: Client, send: Send) -> bool:
        """Send everything. False where the client left before the end."""
        client.on_leaving(self._wake.set)
        unwatch, forget = self._frames.watch(self._grew), self._closing.watch(self._wake.set)
        loop = asyncio.get_running_loop()
        self._time = loop.time  # to look the loop up costs a system call
        self._spoke_at = self._time()
        self._timer = loop.call_later(self._heartbeat / 2, self._beat, scope)
        try:
            self._connection = connection = scope.get(CONNECTION)
            if connection is None or not connection.begin(send, self._sent_headers):
                await send({"type": "http.response.start", "status": 200, "headers": self._sent_headers})
            try:
                await self._say(send, self._opening)
                is_done = await self._copy(client, send)
            except OSError:  # so another server tells that the client has left
                raise
            except Exception as error:  # noqa: BLE001 - a second answer cannot be begun: nobody else could tell of it
                await self._break_off(client, send, error)
                return False
            if is_done:
                await _end(send)
            return is_done
        finally:
            unwatch()
            forget()
            self._timer.cancel()

    async def _copy(self, client: Client, send: Send) -> bool:
        frames = self._frames
        live = frames if isinstance(frames, RunFrames) and frames.live and self._connection else None
        while not client.has_left:
            self._wake.clear()
            if body := await frames.next():
                await self._say(send, body)
                await asyncio.sleep(0)  # a long replay, whose sends never wait, leaves the loop to others
            elif frames.is_over:
                return True
            elif self._closing.has_begun:
                await self._say(send, self._farewell)
                return True
            else:
                self._live = live
                await self._wake.wait()
                self._live = None
                if self._error is not None:
                    raise self._error
                if self._is_quiet() and not client.has_left:
                    await self._say(send, self._sign_of_life)
        return False

    async def _break_off(self, client: Client, send: Send, error: Exception) -> None:
        """Say what went wrong, or cut the connection. Another server than ours cuts off what was not ended."""
        known = isinstance(error, HoldfastError)
        logger.error("a stream was broken off: %s", error, exc_info=None if known else error)
        if self._broken is not None:
            await self._say(send, self._broken(info_of(error)))
            await _end(send)
        elif self._connection is not None and not client.has_left:
            self._connection.abort()
            while not client.has_left:
                self._wake.clear()
                await self._wake.wait()

    def _grew(self) -> None:
        """Send what there is while the task waits; what that cannot be done with wakes it."""
        live, connection = self._live, self._connection
        if live is None or connection is None or not connection.takes_more:
            self._wake.set()
            return
        try:
            if body := live.now():
                self._spoke_at = self._time()
                connection.go_on(body)
        except Exception as error:  # noqa: BLE001 - this stream's own: whoever wrote the log has nothing to do with it
            self._error = error
            self._wake.set()
        if live.is_behind:
            self._wake.set()

    async def _say(self, send: Send, body: bytes) -> None:
        for start in range(0, len(body), _SENT_AT_ONCE):
            if start:
                await asyncio.sleep(0)  # the kernel takes its time for what is long
            piece = body[start : start + _SENT_AT_ONCE]
            self._sending_since = self._spoke_at = self._time()
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._sending_since = None

    def _is_quiet(self) -> bool:
        return self._time() >= self._quiet_at()

    def _quiet_at(self) -> float:
        """Return when it has to be said that the stream is alive: a little early, since timers are late."""
        return self._spoke_at + self._heartbeat * 0.9

    def _beat(self, scope: Scope) -> None:
        """Wake the stream now and then, so that it can say that it is alive; cut off a client that never reads."""
        loop = asyncio.get_running_loop()
        if self._sending_since is not None and loop.time() - self._sending_since > self._send_timeout:
            connection: Connection | None = scope.get(CONNECTION)
            if connection is not None:
                connection.abort()
                return
        pause = self._heartbeat / 2
        if self._is_quiet():
            self._wake.set()
        else:
            pause = min(pause, self._quiet_at() - loop.time())
        self._timer = loop.call_later(pause, self._beat, scope)


async def _end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def info_of(error: Exception) -> ErrorInfo:
    """Return what a client is told of an error. Of a bug of ours the log has the details, and an answer has none."""
    if isinstance(error, HoldfastError):
        return error.info()
    return ErrorInfo("internal_error", "Something went wrong in the server. Its log has the details.")


async def finish(work: Awaitable[None]) -> None:
    """Do work to its end although the request's task may be cancelled, even more than once."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


def events(
    run: Run,
    request: Request,
    closing: Closing | None = None,
    *,
    heartbeat: float = 10.0,
    send_timeout: float = 30.0,
) -> EventStream:
    """Return a run's events as an answer: those after the request's cursor, then live ones, to the settlement.

    The cursor is `?after=` or `Last-Event-ID`. The first stream of an attached run is the client that it lives by.
    """
    after, opening = _cursor(run, request)
    if after < run.log.oldest - 1:
        raise ResumeGap(run.log.oldest)
    is_held = run.take_hold()
    return EventStream(
        RunFrames(run.log, _shared_frames(run), after, partial(native.settled_pieces, run.id), attached=is_held),
        closing,
        headers=[(b"x-run-id", run.id.encode())],
        opening=opening,
        farewell=sse.farewell(1000),
        on_leave=run.leave if is_held else None,
        heartbeat=heartbeat,
        send_timeout=send_timeout,
    )


_frames_of: WeakKeyDictionary[Run, Callable[[int, Sequence[Event]], bytes]] = WeakKeyDictionary()


def _shared_frames(run: Run) -> Callable[[int, Sequence[Event]], bytes]:
    """Return what renders a run for all of its readers: those in step are sent the same bytes, rendered once."""
    if (shared := _frames_of.get(run)) is None:
        shared = _frames_of[run] = _Shared(native.frames(run.id))
    return shared


class _Shared:
    """Remembers the last rendering."""

    def __init__(self, render: Callable[[int, Sequence[Event]], bytes]) -> None:
        self._render = render
        self._last = (0, 0)
        self._frames = b""

    def __call__(self, first: int, events: Sequence[Event]) -> bytes:
        if self._last != (first, len(events)):
            self._frames = self._render(first, events)
            self._last = first, len(events)
        return self._frames


async def on_error(request: Request, error: Exception) -> Response:
    """Answer for what the engine refuses, with its status: `app.add_exception_handler(HoldfastError, on_error)`."""
    assert isinstance(error, HoldfastError)
    body: dict[str, Any] = {"error": native.error(error.info())}
    if isinstance(error, ResumeGap):
        body["oldest"] = error.oldest
    wait = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
    return Response(msgspec.json.encode(body), error.status, wait, "application/json")


def _cursor(run: Run, request: Request) -> tuple[int, bytes]:
    """Return the seq to go on from, and what has to be said first."""
    # A browser that reconnects sends the address it was given with the cursor it has come to: the latter counts.
    asked = (request.headers.get("last-event-id") or request.query_params.get("after", "0")).strip()
    if asked == "snapshot":
        seq, snapshot = run.log.snapshot()
        return seq, native.frames(run.id)(seq, [snapshot])
    if asked.isascii() and asked.isdigit() and len(asked) < 16 and int(asked) <= run.seq:
        return int(asked), b""
    return 0, _reset(run)


def _reset(run: Run) -> bytes:
    """Say, in a frame without a number, that a cursor made no sense and that the run comes from its start."""
    kind, rest = native.body(Notice("cursor_reset", "The cursor was not one of this run: here it is from its start."))
    return b"event: %b\n" % kind + sse.data(b'{"run":"%b",%b' % (run.id.encode(), rest))
