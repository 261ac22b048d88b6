"""A response that streams frames while its client is connected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..concurrency.closing import Closing
from ..errors import HoldfastError
from ..events import ErrorInfo, StoppedBy
from ..wires import sse
from .client import CONNECTION, ClientConnection, Header, RequestClient, finish
from .cursor import RunFrames

logger = logging.getLogger(__name__)

_SENT_AT_ONCE = 1024 * 1024
_SENT_IN_A_ROW = 16 * 1024  # bytes after which the stream yields to the event loop, even if it could send more


_DEFAULTS = frozenset(dict(sse.HEADERS))
"""Names of the headers of every stream, unless others are given."""


class Frames(Protocol):
    """The frames of a stream: bytes that are ready, and a callback for more."""

    is_over: bool
    """Whether nothing more will come."""

    async def next(self) -> bytes:
        """Return the bytes that can be sent now; empty if there are none yet, or if it is over."""
        ...

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more, until the returned function is called."""
        ...


class EventStream(Response):
    """Sends frames until they end, the server shuts down, or the client leaves.

    It runs in the request's task, which waits for one asyncio event: the log, the heartbeat, the disconnect and the
    shutdown of the server all set it. If the server is ours and the client reads, new events of a live log are sent
    within the call that appended them: no task wakes for a token. A client that does not read for `send_timeout`
    seconds is disconnected; it can resume.

    An error after the start of the response cannot change the status. The stream then ends with the frame that `broken`
    returns, in the format of the wire, or it is cut off: no client takes it for complete.
    """

    status_code = 200
    body = b""
    background = None

    def __init__(
        self,
        frames: Frames,
        closing: Closing | None = None,
        *,
        headers: Iterable[Header] = (),
        opening: bytes = b"",
        farewell: bytes = b"",
        broken: Callable[[ErrorInfo], bytes] | None = None,
        on_leave: Callable[[StoppedBy], Awaitable[None]] | None = None,
        hold: Callable[[RequestClient], Awaitable[ASGIApp | None]] | None = None,
        heartbeat: float = 10.0,
        sign_of_life: bytes | Callable[[], bytes] = sse.HEARTBEAT,
        send_timeout: float = 30.0,
    ) -> None:
        # configuration
        self._frames = frames
        self._closing = closing or Closing()
        given = [*headers]
        named = dict(given).keys()
        defaults = (
            sse.HEADERS if named.isdisjoint(_DEFAULTS) else [pair for pair in sse.HEADERS if pair[0] not in named]
        )
        self.raw_headers = [*defaults, *given]
        self._opening = opening
        self._farewell = farewell
        self._broken = broken
        self._on_leave = on_leave
        self._hold = hold
        self._heartbeat = heartbeat
        self._sign_of_life = sign_of_life
        self._send_timeout = send_timeout
        # state while it is sent
        self._wake = asyncio.Event()
        self._sending_since: float | None = None
        self._last_sent = 0.0
        self._connection: ClientConnection | None = None
        self._error: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        with RequestClient(scope, receive) as client:
            is_done = False
            try:
                other = await self._hold(client) if self._hold else None
                if other is not None:
                    is_done = True
                    await other(scope, receive, send)
                elif client.is_revoked:
                    raise client.end_error()
                elif not client.has_left:
                    is_done = await self._stream(scope, client, send)
            finally:
                if not is_done and self._on_leave is not None:
                    await finish(self._on_leave(client.left_by))

    async def _stream(self, scope: Scope, client: RequestClient, send: Send) -> bool:
        """Send everything. False if the client left before the end."""
        client.on_leaving(partial(self._client_left, client))
        unwatch, unwatch_closing = self._frames.watch(self._wake.set), self._closing.watch(self._wake.set)
        loop = client.loop
        self._time = loop.time  # cached, as it is called for each frame
        self._last_sent = self._time()
        self._timer = loop.call_later(self._heartbeat / 2, self._check_heartbeat, scope, loop)
        self._closing.streams[self] = None
        try:
            self._connection = connection = scope.get(CONNECTION)
            first = self._opening + self._ready()
            has_begun = connection is not None and connection.begin(send, self.raw_headers, first)
            if not has_begun:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                if first and not has_begun:
                    await self._send_body(send, first)
                last = await self._send_frames(client, send)
            except OSError:  # another server reports a disconnect by this error
                raise
            except Exception as error:  # noqa: BLE001 - the response has begun: only this stream can report the error
                await self._break_off(client, send, error)
                return False
            if last is not None:
                await self._end(send, last)
            elif client.is_revoked:
                await self._report_revoked(client, send)
            return last is not None
        finally:
            unwatch()
            unwatch_closing()
            del self._closing.streams[self]
            self._timer.cancel()

    @property
    def lag(self) -> int:
        """The number of events of a run that are not sent yet; 0 for other frames."""
        return self._frames.lag if isinstance(self._frames, RunFrames) else 0

    def _ready(self) -> bytes:
        """Return the frames that go with the head of the response. An error is raised once it has begun."""
        try:
            return self._frames.ready() if isinstance(self._frames, RunFrames) else b""
        except Exception as error:  # noqa: BLE001 - `_send_frames` raises it
            self._error = error
            return b""

    async def _send_frames(self, client: RequestClient, send: Send) -> bytes | None:
        """Send the frames. Return what is left to send with the end of the response; None if the client left."""
        frames = self._frames
        in_a_row = 0
        while not client.has_left:
            if self._error is not None:
                raise self._error
            self._wake.clear()
            if body := await frames.next():
                if frames.is_over:
                    return body
                await self._send_body(send, body)
                in_a_row += len(body)
                if in_a_row > _SENT_IN_A_ROW:
                    in_a_row = 0
                    await asyncio.sleep(0)  # a long replay, whose sends never wait, must not block the event loop
            elif frames.is_over:
                return b""
            elif self._closing.has_begun:
                return self._farewell
            else:
                if isinstance(frames, RunFrames):
                    frames.connection, frames.time = self._connection, self._time
                await self._wake.wait()
                if isinstance(frames, RunFrames):
                    frames.connection = None
                if self._is_quiet() and not client.has_left:
                    sign = self._sign_of_life
                    await self._send_body(send, sign if isinstance(sign, bytes) else sign())
        return None

    async def _break_off(self, client: RequestClient, send: Send, error: Exception) -> None:
        """Send the error, or cut the connection. Other servers cut off a response that was not ended."""
        is_known = isinstance(error, HoldfastError)
        logger.error("broke off a stream: %s", error, exc_info=None if is_known else error)
        if self._broken is not None:
            await self._end(send, self._broken(info_of(error).final()))
        elif self._connection is not None and not client.has_left:
            self._connection.abort()
            while not client.has_left:
                self._wake.clear()
                await self._wake.wait()

    def _client_left(self, client: RequestClient) -> None:
        """Wake the task, to end. A client with a revoked key that does not read is cut off."""
        self._wake.set()
        if client.is_revoked and self._sending_since is not None and self._connection is not None:
            self._connection.abort()

    async def _report_revoked(self, client: RequestClient, send: Send) -> None:
        """Send how the key has ended, if the wire has a frame for it and the client reads; otherwise disconnect."""
        connection = self._connection
        if self._broken is not None and (connection is None or connection.is_read):
            await self._end(send, self._broken(client.end_error().info()))
        elif connection is not None:
            await _cut_off(connection)

    async def _send_body(self, send: Send, body: bytes) -> None:
        connection = self._connection
        if connection is not None and connection.takes_more and 0 < len(body) <= _SENT_IN_A_ROW:
            self._last_sent = self._time()
            connection.go_on(body)
            return
        for start in range(0, len(body), _SENT_AT_ONCE):
            if start:
                await asyncio.sleep(0)  # a long write takes time in the kernel
            piece = body[start : start + _SENT_AT_ONCE]
            self._sending_since = self._last_sent = self._time()
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._sending_since = None

    async def _end(self, send: Send, body: bytes) -> None:
        """Send the last bytes and the end of the response."""
        connection = self._connection
        if connection is not None and connection.takes_more and len(body) <= _SENT_IN_A_ROW:
            connection.end(body)
            return
        await self._send_body(send, body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _is_quiet(self) -> bool:
        return self._time() >= self._quiet_at()

    def _quiet_at(self) -> float:
        """Return the time of the next heartbeat: a little early, since timers are late."""
        frames = self._frames
        last_sent = max(self._last_sent, frames.sent_at) if isinstance(frames, RunFrames) else self._last_sent
        return last_sent + self._heartbeat * 0.9

    def _check_heartbeat(self, scope: Scope, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the stream for its heartbeat; cut off a client that never reads."""
        if self._sending_since is not None and loop.time() - self._sending_since > self._send_timeout:
            connection: ClientConnection | None = scope.get(CONNECTION)
            if connection is not None:
                connection.abort()
                return
        pause = self._heartbeat / 2
        if self._is_quiet():
            self._wake.set()
        else:
            pause = min(pause, self._quiet_at() - loop.time())
        self._timer = loop.call_later(pause, self._check_heartbeat, scope, loop)


async def _cut_off(connection: ClientConnection) -> None:
    """Abort a connection during a response, and wait for its loss: otherwise the server would expect the rest."""
    lost = asyncio.Event()
    unwatch = connection.watch_loss(lost.set)
    connection.abort()
    if not connection.is_lost:
        await lost.wait()
    unwatch()


def info_of(error: Exception) -> ErrorInfo:
    """Return the error as a client sees it. The details of an internal error are in the log only."""
    if isinstance(error, HoldfastError):
        return error.info()
    return ErrorInfo("internal_error", "Something went wrong in the server. Its log has the details.")
