"""One connection to a server, and the response that arrives on it."""

from __future__ import annotations

import asyncio
import math
import re
import select
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, cast

import httptools

from .errors import ONLY_HTTP2, Broken, NotHTTP

__all__ = ["IDLE", "MOST_WITHOUT_BODY", "Connection", "IdleConnections", "Repeatable", "Reply", "Turn"]

IDLE = 15.0
"""Seconds for which an unused connection is kept; fewer if its server says so."""

UNREAD = 0.05
"""Seconds after a write. A kept connection that is lost within them was closed before the request could be read."""

MOST_WITHOUT_BODY = 256 * 1024
"""Bytes in a row that are no part of a body: heads, trailers, chunk extensions."""

_BUFFERED = 256 * 1024  # bytes that may be buffered for a reader before reading pauses
_KEEP_ALIVE = re.compile(r"timeout=(\d{1,6})")
_OK = 200
_PIECE = 256 * 1024
"""Bytes of a file that are sent at once."""
_READS = 500  # reads after which the loop must have turned


class Repeatable(Broken):
    """The connection ended, and sending the request again cannot make a model work twice."""


class Reply:
    """A response: its status, its headers with names in lower case, and its body as it arrives."""

    __slots__ = (
        "_connection",
        "_error",
        "_loop",
        "_pieces",
        "_size",
        "_waiter",
        "headers",
        "is_whole",
        "sink",
        "status",
    )

    def __init__(self, connection: Connection, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.is_whole = False
        """All of the body has arrived."""
        self.sink: Callable[[bytes], bool] | None = None
        """Takes the body as it arrives, while a task waits in `pour`. False: no more for now."""
        self._connection: Connection | None = connection
        self._loop = connection.loop
        self._pieces: list[bytes] = []
        self._size = 0
        self._error: Broken | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Return the buffered bytes, or else wait for the next ones; empty at the end. Raises `Broken`."""
        if not self._pieces and not self.is_whole and self._error is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._pieces:
            return self._take()
        if self._error is not None:
            raise self._error
        return b""

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        """Call `sink` with the bytes as they arrive, until it returns False, or until the end. It must not raise."""
        if self._pieces and not sink(self._take()):
            return
        if not self.is_whole and self._error is None:
            self.sink, self._waiter = sink, self._loop.create_future()
            try:
                await self._waiter
            finally:
                self.sink = self._waiter = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come: all of the body was returned, or its error was raised."""
        return not self._pieces and (self.is_whole or self._error is not None)

    async def read_upto(self, limit: int) -> bytes:
        """Return the body, or the first `limit` bytes of it."""
        body = bytearray()
        while len(body) < limit and (data := await self.read()):
            body += data
        return bytes(body[:limit])

    async def read_all(self) -> bytes:
        """Return the whole body."""
        body = bytearray()
        while data := await self.read():
            body += data
        return bytes(body)

    def close(self) -> None:
        """Release the connection. It is aborted if the response is incomplete: a close would wait for the peer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _take(self) -> bytes:
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._connection is not None:
            self._connection.resume()
        return data

    # called by the connection

    def add(self, data: bytes) -> None:
        """Pass a part of the body to the sink, or buffer it."""
        if self.sink is not None:
            if not self.sink(data):
                self.stop_pouring()
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _BUFFERED and self._connection is not None:
            self._connection.pause()
        if self._waiter is not None:
            self._wake()

    def stop_pouring(self) -> None:
        """Buffer what follows, and wake the task in `pour`: its sink takes no more."""
        self.sink = None
        self._wake()

    def end(self, error: Broken | None = None) -> None:
        """Note the end of the body."""
        self._connection = None
        self.is_whole, self._error = error is None, error
        if self._waiter is not None:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Turn:
    """Ends an iteration of the loop although there is always more to read.

    uvloop reads up to 48 times in one iteration while a thousand sockets have data: a stop would wait for seconds. So
    reading pauses in a long iteration and continues in the next one.
    """

    def __init__(self) -> None:
        self.reads = 0
        """Reads in this iteration of the loop, counted by the connections."""
        self._is_awaited = False
        self._held: list[Connection] = []

    def go_on(self, connection: Connection) -> None:
        """Handle a read beyond the first `_READS`."""
        if not self._is_awaited:
            self._is_awaited = True
            asyncio.get_running_loop().call_soon(self._end)
        elif self.reads > 3 * _READS and connection.is_passing_on:
            connection.pause()
            self._held.append(connection)

    def _end(self) -> None:
        held, self._held = self._held, []
        self.reads, self._is_awaited = 0, False
        for connection in held:
            connection.resume()


class Connection(asyncio.Protocol):
    """One socket, and the request that it is used for now. Its methods `on_...` are called by the parser."""

    def __init__(self, idle: IdleConnections, turn: Turn) -> None:
        # for the connection
        self.loop = asyncio.get_running_loop()
        """Cached: a lookup of the loop costs a system call."""
        self._idle = idle
        self._turn = turn
        self._transport: asyncio.Transport | None = None
        self._input: select.poll | None = None
        self._is_paused = False
        self._was_used_before = False
        self.idle_until = 0.0
        """The time, by the loop's clock, after which it is not used again."""
        # for the request
        self._head: asyncio.Future[Reply] | None = None
        self._is_repeatable = False
        self._sent_at = 0.0
        self._is_sending = False
        """Whether its body is a file that was not sent to its end."""
        self._full: asyncio.Future[None] | None = None  # the buffer of the transport
        # for the response
        self._headers: dict[str, str] = {}
        self._reply: Reply | None = None
        self._ends_with_connection = False
        self._without_body = 0  # bytes outside of a body since the request was sent, or since the last piece of a body
        # for one read
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # for the parser: no Python call for each of many small chunks
        self._parser = httptools.HttpResponseParser(self)  # last, as it looks its callbacks up

    # sending

    def send(self, head: bytes, body: bytes, is_repeatable: bool) -> asyncio.Future[Reply]:
        """Send a request. The response is set when its head has arrived."""
        assert self._transport is not None
        self._head = self.loop.create_future()
        self._without_body, self._is_repeatable, self._sent_at = 0, is_repeatable, time.monotonic()
        self._transport.write(head + body)
        return self._head

    async def send_file(self, head: bytes, file: IO[bytes]) -> Reply:
        """Send a request with a file as its body, piece by piece, and return the response.

        The rest is not sent if the response comes before, and then the connection is not used again.
        """
        reply, self._is_sending = self.send(head, b"", is_repeatable=False), True
        await asyncio.to_thread(file.seek, 0)
        while data := await asyncio.to_thread(file.read, _PIECE):
            if reply.done() or self._transport is None:
                break
            self._transport.write(data)
            if self._full is not None:
                await self._full
        else:
            self._is_sending = False
        return await reply

    def abort(self) -> None:
        """Close the socket now."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Pause reading: the reader of the response is slower than its sender."""
        if not self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def is_usable(self) -> bool:
        """Return whether another request can be sent.

        Not if the kernel has data that the loop has not read yet: that is the end of the connection, or unrequested
        bytes.
        """
        if self._transport is None or self._transport.is_closing():
            return False
        if sys.platform == "win32":  # which has no poll()
            return True
        if self._input is None:
            self._input = select.poll()
            self._input.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return self._input.poll(0) == []

    @property
    def is_passing_on(self) -> bool:
        """Whether a sink takes the bytes as they arrive."""
        return self._reply is not None and self._reply.sink is not None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes."""
        if self._head is None:
            self._break(NotHTTP())  # no request is open
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._pass_on()
            self._break(NotHTTP(ONLY_HTTP2) if self._reply is None and _is_http2(data) else NotHTTP())
        pieces, reply, turn = self._pieces, self._reply, self._turn
        if pieces and reply is not None:
            if len(pieces) == 1 and reply.sink is not None:  # as in `_pass_on`: two calls fewer for each token
                if not reply.sink(pieces.pop()):
                    reply.stop_pouring()
            else:
                self._pass_on()
            self._without_body = 0
        elif self._head is not None:
            self._count(data)
        turn.reads += 1
        if turn.reads > _READS:
            turn.go_on(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection: it ends a body without a length, and breaks any other."""
        self._idle.discard(self)
        is_whole = self._reply is not None and self._ends_with_connection and error is None
        broken = Repeatable() if self._may_repeat() else Broken()
        broken.__cause__ = error
        self._end(None if is_whole else broken)
        self.resume_writing()
        self.forget()

    def pause_writing(self) -> None:
        """Note that the server reads more slowly than a file is sent."""
        self._full = self.loop.create_future()

    def resume_writing(self) -> None:
        """Go on with the file."""
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    def forget(self) -> None:
        """Break the reference cycles, once nothing more can come."""
        self._transport = self._parser = None  # type: ignore[assignment]

    def _may_repeat(self) -> bool:
        """Return whether the request can be sent again: it is repeatable, or the server cannot have read it."""
        if not self._was_used_before or self._reply is not None or self._without_body:
            return False
        return self._is_repeatable or time.monotonic() - self._sent_at < UNREAD

    def _count(self, data: bytes) -> None:
        """Count the bytes outside of a body, which are limited."""
        self._without_body += len(data)
        if self._without_body > MOST_WITHOUT_BODY:
            self._break(NotHTTP(f"more than {MOST_WITHOUT_BODY // 1024} kB of headers"))

    def _pass_on(self) -> None:
        """Give the response the body of one read."""
        if self._pieces and self._reply is not None:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._reply.add(data)

    def _break(self, error: Broken) -> None:
        self._end(error)
        self.abort()

    def _end(self, error: Broken | None) -> None:
        head, reply = self._head, self._reply
        self._head = self._reply = None
        if reply is not None:
            reply.end(error)
        elif head is not None and not head.done():
            head.set_exception(error or Broken())

    # the parser

    def on_message_begin(self) -> None:
        """Begin a response. An unrequested one breaks the connection: it would be taken for the next one."""
        self._pieces.clear()
        if self._head is None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Trailers are dropped: they would become headers of the next response."""
        if self._reply is None:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Set the response. An interim response (1xx) is skipped."""
        status, headers = self._parser.get_status_code(), self._headers
        self._headers = {}
        if status < _OK or self._head is None or self._reply is not None:
            return
        self._reply = Reply(self, status, headers)
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._ends_with_connection = not chunked and "content-length" not in headers
        if not self._head.done():
            self._head.set_result(self._reply)

    def on_message_complete(self) -> None:
        """End the response, and keep the connection if the upstream does."""
        self._pass_on()
        reply, self._reply = self._reply, None
        if reply is None:
            return
        self._head = None
        reply.end()
        transport = self._transport
        if (
            self._parser.should_keep_alive()
            and not self._is_sending
            and transport is not None
            and not transport.is_closing()
        ):
            self._was_used_before = True
            if self._is_paused:
                self.resume()
            told = reply.headers.get("keep-alive")
            self._idle.add(self, math.inf if told is None else _seconds_to_keep(told))
        else:
            self.abort()


def _is_http2(data: bytes) -> bool:
    """Tell whether a server begins with the frame that opens HTTP/2: SETTINGS, of the whole connection."""
    length, kind, stream = data[:3], data[3:4], data[5:9]
    return len(data) >= 9 and length < b"\x00\x01\x00" and kind == b"\x04" and stream == bytes(4)


def _seconds_to_keep(header: str) -> float:
    """Return the seconds for which a connection may be idle: a second less than its server keeps it."""
    told = _KEEP_ALIVE.search(header)
    return math.inf if told is None else int(told[1]) - 1.0


class IdleConnections:
    """Connections that wait for their next request, for at most `seconds` each. With 0 none is kept.

    Costs one timer while there are any.
    """

    def __init__(self, seconds: float = IDLE) -> None:
        self._seconds = seconds
        self._waiting: dict[Connection, None] = {}
        """In the order of their last use. A dict: one of thousands is removed without a search."""
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: Connection, seconds: float) -> None:
        """Keep a connection that its server keeps open for so many seconds."""
        keep = min(seconds, self._seconds)
        if keep <= 0:
            connection.abort()
            return
        loop = connection.loop
        connection.idle_until = loop.time() + keep
        self._waiting[connection] = None
        self._sweep = self._sweep or loop.call_later(self._seconds, self._close_stale)

    def discard(self, connection: Connection) -> None:
        """Remove a connection that was lost."""
        self._waiting.pop(connection, None)

    def take(self) -> Connection | None:
        """Return a connection that can be used: the last one used, which its server is least likely to have closed."""
        while self._waiting:
            connection, _ = self._waiting.popitem()
            is_fresh = connection.loop.time() < connection.idle_until
            if is_fresh and connection.is_usable():
                return connection
            connection.abort()
        return None

    def close(self) -> None:
        """Close them all."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._waiting:
            self._waiting.popitem()[0].abort()

    def _close_stale(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        stale = [connection for connection in self._waiting if loop.time() >= connection.idle_until]
        for connection in stale:
            del self._waiting[connection]
            connection.abort()
        if self._waiting:
            self._sweep = loop.call_later(self._seconds / 3, self._close_stale)
