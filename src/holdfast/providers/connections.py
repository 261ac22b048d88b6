"""HTTP/1.1 as a client: connections to upstreams, read as the bytes arrive, and left by an abort.

What a proxy of token streams needs and no more. A response is handed out when its head is there; what arrives of its
body is returned as it came, and what had arrived before a connection broke is returned before that is said. To close a
response that was not read to its end aborts its socket and awaits nothing. A connection is used again only after an
answer that was whole.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Literal, cast
from urllib.parse import SplitResult, quote, urlsplit

import httptools

__all__ = ["Broken", "Connections", "NotHTTP", "NotThere", "Reply", "head_of", "with_length"]

IDLE = 15.0
"""Seconds for which a connection is kept that nobody uses."""

_BUFFERED = 256 * 1024  # bytes that may wait for a reader before the socket is no longer read
_LONGEST_HEAD = 256 * 1024
_OK = 200
_READS = 500  # after as many the loop is asked whether it still turns
_TARGET = "/%:@!$&'()*+,;=~-._"  # what may stand in a path as it is


class Broken(Exception):
    """The connection ended before its answer did."""


class NotHTTP(Broken):
    """What was answered is not HTTP."""


class NotThere(Exception):
    """No connection could be made; the reason is what `__cause__` says."""


class Reply:
    """A response: its status, its headers with names in lower case, and its body as it arrives."""

    __slots__ = ("_connection", "_error", "_pieces", "_sink", "_size", "_waiter", "headers", "is_whole", "status")

    def __init__(self, connection: _Connection, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.is_whole = False
        """All of the body has arrived."""
        self._connection: _Connection | None = connection
        self._pieces: list[bytes] = []
        self._size = 0
        self._error: Broken | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Callable[[bytes], bool] | None = None

    async def read(self) -> bytes:
        """Return all that has arrived since, or else what arrives next; nothing at the end. Raises `Broken`."""
        if not self._pieces and not self.is_whole and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
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
        """Hand over what arrives in the call that brings it, until `sink` returns False, or until the end."""
        if self._pieces and not sink(self._take()):
            return
        if not self.is_whole and self._error is None:
            self._sink, self._waiter = sink, asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._sink = self._waiter = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come: all of it was handed out, well or not."""
        return not self._pieces and (self.is_whole or self._error is not None)

    async def read_upto(self, limit: int) -> bytes:
        """Return the body, or the first `limit` bytes of it."""
        body = bytearray()
        while len(body) < limit and (data := await self.read()):
            body += data
        return bytes(body[:limit])

    def close(self) -> None:
        """Let go. A connection whose answer was not whole is aborted: a polite close would wait for its peer."""
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

    # what its connection tells it

    def add(self, pieces: list[bytes]) -> None:
        """Take pieces of the body out of a list, or hand them over to somebody who takes them at once."""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        sink = self._sink
        if sink is None:
            self._pieces.append(data)
            self._size += len(data)
            if self._size > _BUFFERED and self._connection is not None:
                self._connection.pause()
            self._wake()
            return
        try:
            if sink(data):
                return
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits, and not to the connection
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)
        self._sink = None
        self._wake()

    def end(self, error: Broken | None = None) -> None:
        """Take in the end of the body."""
        self._connection = None
        self.is_whole, self._error = error is None, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Turn:
    """Sees that a turn of the loop ends although there is always more to read.

    uvloop goes on reading, up to 48 times, while a thousand sockets and more have something: a stop would wait for
    seconds. So what was read last in a long turn is read again in the next one.
    """

    def __init__(self) -> None:
        self.reads = 0
        """Reads since the loop is known to have turned: counted by the connections, which is all it costs."""
        self._is_awaited = False
        self._held: list[_Connection] = []

    def go_on(self, connection: _Connection) -> None:
        """Be told of a read beyond the first `_READS`."""
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


class _Connection(asyncio.Protocol):
    """One socket, and the request that it is used for now. Its methods `on_...` are called by the parser."""

    def __init__(self, idle: list[_Connection], turn: _Turn) -> None:
        self._idle = idle
        self._turn = turn
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # for the parser: what comes in many small chunks costs no call of ours
        self._parser = httptools.HttpResponseParser(self)
        self._head: asyncio.Future[Reply] | None = None
        self._reply: Reply | None = None
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._ends_with_connection = False
        self._is_paused = False
        self.was_used_before = False
        self.idle_since = 0.0

    # sending

    def send(self, head: bytes, body: bytes) -> asyncio.Future[Reply]:
        """Send a request. Its response is there when the head of that is."""
        assert self._transport is not None
        self._head = asyncio.get_running_loop().create_future()
        self._transport.write(head + body)
        return self._head

    def abort(self) -> None:
        """Close the socket now."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read no more for now: whoever reads the response is slower than its sender."""
        if not self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    @property
    def was_given_up(self) -> bool:
        """Whether the upstream may have closed it before it read the request: nothing was answered."""
        return self.was_used_before and not self._head_size

    @property
    def is_open(self) -> bool:
        """Whether something can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_passing_on(self) -> bool:
        """Whether somebody takes what comes at once: then nobody else has a reason to pause it."""
        return self._reply is not None and self._reply._sink is not None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take in what arrived."""
        if self._reply is None:
            self._head_size += len(data)
            if self._head is None or self._head_size > _LONGEST_HEAD:
                self._break(NotHTTP())  # nobody asked, or it never comes to the point
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._pass_on()
            self._break(NotHTTP())
        pieces, reply, turn = self._pieces, self._reply, self._turn
        if pieces and reply is not None:  # as `_pass_on`, which would be a call for each token
            reply.add(pieces)
        turn.reads += 1
        if turn.reads > _READS:
            turn.go_on(self)

    def connection_lost(self, error: Exception | None) -> None:
        """End: well, where the body was to end with the connection, and else in the middle."""
        if self in self._idle:
            self._idle.remove(self)
        is_whole = self._reply is not None and self._ends_with_connection and error is None
        self._end(None if is_whole else Broken())
        self.forget()

    def forget(self) -> None:
        """Let go of what knows us, once nothing more can come: a cycle would wait for the collector."""
        self._transport = self._parser = None  # type: ignore[assignment]

    def _pass_on(self) -> None:
        """Give the response what came of its body in one read."""
        if self._pieces and self._reply is not None:
            self._reply.add(self._pieces)

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
        """Hear an answer begin. One that nobody asked for would be taken for the next one's."""
        self._pieces.clear()
        if self._head is None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Hand out the response. One that only says that another follows is passed over."""
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
        """End the response, and keep the connection where the upstream does."""
        self._pass_on()
        reply, self._reply = self._reply, None
        if reply is None:
            return
        self._head = None
        self._head_size = 0
        reply.end()
        if self._parser.should_keep_alive() and self.is_open:
            self.was_used_before = True
            self.idle_since = asyncio.get_running_loop().time()
            self.resume()
            self._idle.append(self)
        else:
            self.abort()


class Connections:
    """Connections to one origin, `http://host:port` or with TLS. `keep` says whether they are used again.

    Costs nothing while nobody asks for anything, but a socket for each connection that was used within the last
    `IDLE` seconds.
    """

    def __init__(self, url: str, *, connect_timeout: float = 10.0, keep: bool = True) -> None:
        parts = urlsplit(url)
        self._scheme = cast(Literal["http", "https"], parts.scheme)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._connect_timeout = connect_timeout
        self._keep = keep
        self._tls: ssl.SSLContext | None = None
        self._idle: list[_Connection] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._turn = _Turn()

    async def send(self, head: bytes, body: bytes = b"") -> Reply:
        """Send a request and return the response. Raises `NotThere` or `Broken`.

        A kept connection that its upstream had given up is no failure: then nothing was answered, and the request is
        sent again.
        """
        while True:
            connection = self._kept() or await self._connect()
            try:
                return await connection.send(head, body)
            except BaseException as error:
                connection.abort()
                if not isinstance(error, Broken) or isinstance(error, NotHTTP) or not connection.was_given_up:
                    raise

    def _kept(self) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()  # the last one used is the least likely to have been given up
            if connection.is_open and now < connection.idle_since + IDLE:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        self._sweep = self._sweep or loop.call_later(IDLE, self._close_idle)
        connection, is_made = _Connection(self._idle if self._keep else _Unkept(), self._turn), False
        try:
            async with asyncio.timeout(self._connect_timeout):
                await loop.create_connection(
                    lambda: connection,
                    self._host,
                    self._port,
                    ssl=self._context() if self._scheme == "https" else None,
                )
            is_made = True
        except (OSError, UnicodeError) as error:  # a time-out and a failure of TLS are OSErrors too
            raise NotThere from error
        finally:
            if not is_made:
                connection.forget()
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        stale = [connection for connection in self._idle if loop.time() >= connection.idle_since + IDLE]
        for connection in stale:
            self._idle.remove(connection)
            connection.abort()
        if self._idle:
            self._sweep = loop.call_later(IDLE / 3, self._close_idle)

    def close(self) -> None:
        """Let go of the connections that are not in use."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._idle:
            self._idle.pop().abort()


class _Unkept(list[_Connection]):
    """Takes no connection in: each is closed after its answer."""

    def append(self, connection: _Connection) -> None:
        connection.abort()


def head_of(method: str, url: str, headers: Mapping[str, str], length: int | None = 0) -> bytes:
    """Return the first part of a request, without its end where the `length` is to be said later.

    Names and values were checked by whoever was given them.
    """
    parts = urlsplit(url)
    target = quote(parts.path or "/", safe=_TARGET) + (
        f"?{quote(parts.query, safe=_TARGET + '?')}" if parts.query else ""
    )
    given = {name.lower() for name in headers}
    lines = [f"{method} {target} HTTP/1.1", *([] if "host" in given else [f"Host: {_host(parts)}"])]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "content-length"]
    head = "\r\n".join([*lines, ""]).encode()
    return head if length is None else with_length(head, length, always=method == "POST")


def with_length(head: bytes, length: int, *, always: bool = True) -> bytes:
    """Return the first part of a request with its end."""
    return b"%bContent-Length: %d\r\n\r\n" % (head, length) if length or always else head + b"\r\n"


def _host(parts: SplitResult) -> str:
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name.encode("idna").decode()
    return name if parts.port is None else f"{name}:{parts.port}"
