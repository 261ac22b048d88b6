"""One client's connection: uvicorn's HTTP protocol with our limits, and responses that are written directly.

Everything that touches the internals of uvicorn's protocol is in this file; those of its server are in
uvicorn_server.py. tests/unit/test_uvicorn.py names each of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import httptools
import uvicorn
from starlette.types import Receive, Send
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ....asgi.client import CONNECTION, Header
from ....errors import BadRequest, HoldfastError
from ....watchers import Watchers
from .connections import OFFER, OpenConnections, Upgraded
from .errors import error_answer

logger = logging.getLogger(__name__)

HEAD_LIMIT = 64 * 1024
"""Maximum size of a request head in bytes; also of the framing between two pieces of a body, and of its trailers."""
PACE = 1024
"""Bytes of a body that must arrive within each `body_timeout`."""
MOST_AHEAD = 100
"""Maximum number of pipelined requests: each takes memory, and 14,000 fit into one read."""
_LOGGED_IDS = {"run": b"x-run-id", "request": b"x-request-id", "outcome": b"x-run-outcome"}
LINGER = 2.0
"""Seconds for which a refused client may continue to send. A close with unread bytes resets the connection."""

_line_of = b"%b: %b\r\n".__mod__
"""Returns the line of a header."""

_SHORT = 1024  # bytes of a chunk with one token, at most
_SIZE_LINES = [b"%x\r\n" % size for size in range(_SHORT)]
"""The lines before chunks of a body that are as short as a token."""


class InvalidHttp(BadRequest):
    """The received bytes are not an HTTP request that this server accepts."""

    code = "invalid_http"


class HeadTooLarge(HoldfastError):
    """The head or the trailers of a request are too large."""

    code = "head_too_large"
    status = 431
    type = "invalid_request_error"
    message = f"The headers of the request are larger than the limit of {HEAD_LIMIT} bytes."


class RequestTimeout(HoldfastError):
    """A request did not arrive in time."""

    code = "request_timeout"
    status = 408
    type = "invalid_request_error"

    def __init__(self, part: str) -> None:
        super().__init__(f"The {part} of the request did not arrive in time.")


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, put into the scope for event streams: a `Connection`.

    It counts bytes before they are parsed, and knows which part of a request it waits for.
    """

    __slots__ = (  # beside uvicorn's own, which fill a dict
        "_begun",
        "_connections",
        "_mark",
        "_part",
        "_received",
        "_room",
        "_upgraded",
        "_watchers",
        "due",
        "is_lost",
        "takes_more",
        "watch_loss",
    )

    def __init__(self, connections: OpenConnections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._connections = connections
        self._watchers = Watchers()
        self.watch_loss = self._watchers.watch
        """`watch_loss(wake)` calls `wake` when the client is gone, until the returned function is called."""
        self._begun: RequestResponseCycle | None = None
        """The request whose response was begun here."""
        self.is_lost = False
        self.takes_more = False
        """Whether a response was begun here, and uvicorn's `send` would write a piece of it at once.

        It is read for each token, so it is an attribute."""
        self._part: Literal["nothing", "head", "body", "refused", "messages"] = "nothing"
        """The part of a request that is being received; after an upgrade it is `messages`."""
        self._upgraded: Upgraded | None = None
        self._room = HEAD_LIMIT
        """Bytes that may arrive before a head, a piece of a body or a request must be complete."""
        self._received = self._mark = 0  # bytes in all, and at the start of the `body_timeout` that runs
        self.due = connections.head_due

    # Connecting and leaving.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        try:
            self._connections.add(self, self.client[0] if self.client else None)
        except HoldfastError as refusal:
            self._part = "refused"
            transport.write(self._refusal(refusal))
            transport.close()  # at once: a client that lingers would take the place of another
        self.due = self._connections.head_due

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection, and call the callbacks that wait for it."""
        super().connection_lost(exc)
        self._connections.remove(self)
        self.is_lost = True
        self.takes_more, self._begun = False, None
        self._watchers.notify()
        del self.cycle, self.scope  # break the reference cycle, so that reference counting frees it

    def abort(self) -> None:
        """Close the connection now."""
        self.transport.abort()

    # Receiving.

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes, and refuse what is not a request or too large."""
        if self._part == "refused":
            return
        self._received += len(data)
        if self._upgraded is not None:
            self._pass_on(self._upgraded, data)
            return
        self._room -= len(data)
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._decline(memoryview(data)[offer.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, HoldfastError) else InvalidHttp(f"No valid HTTP request: {error}."))
        else:
            if self._room < 0:
                self._refuse(HeadTooLarge())

    def _decline(self, rest: memoryview) -> None:
        """Handle a head with `Upgrade`: parse it again without that header, then the bytes that follow it.

        The parser takes the bytes after such a head for the other protocol, not for the body. Until an upgrade is
        accepted, which is the application's choice, the request has to be framed as if it had not been offered.
        """
        while True:
            offers = [value.lower() for name, value in self.headers if name == b"upgrade"]
            head = self._head_without_offer()
            self.parser = _parser(self)
            self.parser.feed_data(head)
            if offers == [b"websocket"]:
                self.scope[OFFER] = True  # type: ignore[literal-required]
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            else:
                return

    def _head_without_offer(self) -> bytes:
        """Return the last parsed head without its `Upgrade` header."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self.parser.get_method(), self.url, version, b"".join(lines))

    def _pass_on(self, upgraded: Upgraded, data: bytes) -> None:
        """Pass bytes to the protocol after an upgrade. A message that is incomplete has to go on arriving."""
        if not upgraded.received(data):
            self.due = float("inf") if self._part == "messages" else self.due
        elif self.due == float("inf"):
            self._mark = self._received
            self.due = self._connections.body_due

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._part = "head"
        self.due = self._connections.head_due
        if (timer := self.timeout_keep_alive_task) is not None:
            timer.cancel()
            self.timeout_keep_alive_task = None

    def on_headers_complete(self) -> None:
        """Start the application, unless the head is too large or has to be parsed again."""
        if self._room < 0 and self._head_size() > HEAD_LIMIT:
            raise HeadTooLarge
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise InvalidHttp("This server is not a proxy: CONNECT is not supported.")
            return
        if len(self.pipeline) >= MOST_AHEAD:
            raise InvalidHttp(f"More than {MOST_AHEAD} requests wait for an answer on this connection.")
        super().on_headers_complete()
        if self.access_log:
            self.cycle.access_log = False  # uvicorn's entries have no ids
            self.cycle.__class__ = LoggedCycle
        self.headers = []  # trailers would be appended to the headers
        self._part = "body"
        self._room = HEAD_LIMIT
        self._mark = self._received
        self.due = self._connections.body_due
        if self.timeout_keep_alive_task is not None:  # the response before was sent while this head arrived
            self._unset_keepalive_if_required()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        """Handle a chunk of a body, as uvicorn does for a request without an upgrade."""
        self._room = HEAD_LIMIT
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        """End a request, as uvicorn does for one without an upgrade."""
        if self.parser.should_upgrade():
            return
        self._part = "nothing"
        self._room = HEAD_LIMIT
        self.due = float("inf")
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def whole_body(self, receive: Receive) -> bytes | None:
        """Return the body, as uvicorn's `receive` would, if all of it has arrived. None if `receive` must be used."""
        cycle = self.cycle
        if self.is_lost or receive != cycle.receive or cycle.more_body or cycle.response_complete:
            return None  # middleware wraps `receive`, another request has begun, or there is more to come
        self.flow.resume_reading()
        cycle.message_event.clear()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    # Refusing.

    def overdue(self) -> None:
        """End a connection whose client is too slow, unless the client waits for a response."""
        if self._part in ("nothing", "refused"):
            self.transport.abort()
        elif self._upgraded is not None and self._received - self._mark < PACE:
            self._upgraded.too_slow()
        elif self._upgraded is not None:
            self._mark = self._received
            self.due = self._connections.body_due
        elif self._follows_another() or self.flow.read_paused:
            self.due = self._connections.body_due
        elif self._part == "head":
            self._refuse(RequestTimeout("head"))
        elif self._received - self._mark < PACE or self.cycle.response_complete:
            self._refuse(RequestTimeout("body"))
        else:
            self._mark = self._received
            self.due = self._connections.body_due

    def _follows_another(self) -> bool:
        """Return whether an earlier request than the one being received is unanswered."""
        return bool(self.pipeline) if self._part == "body" else self._is_answering()

    def _is_answering(self) -> bool:
        """Return whether the newest request with a complete head is unanswered."""
        newest = self._newest()
        return newest is not None and not newest.response_complete

    def _newest(self) -> RequestResponseCycle | None:
        return self.cycle  # None before the first request, unlike uvicorn's annotation

    def _refuse(self, error: HoldfastError) -> None:
        """Answer the request that is being received with an error, after the responses before it, and close."""
        logger.debug("refused a request: %s", error)
        cycle, part = self.cycle, self._part
        self._part, self.due = "refused", float("inf")
        if part != "body" and self._is_answering():
            cycle.keep_alive = False  # its response is the last on this connection
        elif part == "body" and (self.pipeline or cycle.response_started):
            self.transport.close()  # an error would be sent before, or within, another response
        else:
            if part == "body":
                cycle.response_started = cycle.response_complete = cycle.disconnected = True
                cycle.message_event.set()
            self.transport.write(self._refusal(error))
            if self.transport.can_write_eof():  # TLS cannot
                self.transport.write_eof()
            self.due = self._connections.now + LINGER

    def _refusal(self, error: HoldfastError) -> bytes:
        response = error_answer(error.info())
        headers = (*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close"))
        lines = map(_line_of, headers)
        return b"".join([STATUS_LINE[response.status_code], *lines, b"\r\n", bytes(response.body)])

    # After an upgrade.

    def upgrade(self, send: Send, head: bytes, upgraded: Upgraded) -> bool:
        """Send the head of a 101 response, and pass on what is received from now on. False if HTTP has to answer.

        Until then all bytes are HTTP: if any came after the request, there is no upgrade.
        """
        cycle = self.cycle
        if self.is_lost or send != cycle.send or cycle.response_started or self.pipeline or self._part != "nothing":
            return False
        cycle.response_started = cycle.response_complete = True
        self._part, self._upgraded = "messages", upgraded
        self.transport.write(head)
        return True

    @property
    def is_congested(self) -> bool:
        """Whether the client reads too slowly for what was written."""
        return self.flow.write_paused

    async def drained(self) -> None:
        """Wait until the client has read enough, or has left."""
        await self.flow.drain()

    def write(self, data: bytes) -> None:
        """Send bytes of the protocol after an upgrade."""
        self.transport.write(data)

    def close(self) -> None:
        """Close the connection when everything is sent."""
        self.transport.close()

    def hang_up(self) -> None:
        """Close the connection when the client does, and at the latest after `LINGER`."""
        self._part, self.due = "nothing", self._connections.now + LINGER

    # Answering.

    @property
    def is_read(self) -> bool:
        """Whether the client reads, so that `send` does not wait for it."""
        return not self.flow.write_paused

    def pause_writing(self) -> None:
        """The write buffer is full: the client reads too slowly."""
        super().pause_writing()
        self.takes_more = False

    def resume_writing(self) -> None:
        """The write buffer has room again."""
        super().resume_writing()
        self.takes_more = self._begun is not None

    def on_response_complete(self) -> None:
        """End a response; uvicorn may start the next request."""
        self.takes_more, self._begun = False, None
        if self._part == "body" and self.expect_100_continue and self.cycle.response_complete:
            self.transport.close()  # whether the client will send the body after `Expect` is unknown
        super().on_response_complete()

    def answer(self, send: Send, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Send a whole response in one write, as uvicorn's `send` would. False if `send` must be used."""
        head = self._head(send, status, headers)
        if head is None:
            return False
        self.cycle.response_started = True
        self._write_last(self.cycle, head + b"\r\n" + body)
        return True

    def begin(self, send: Send, headers: Sequence[Header], body: bytes) -> bool:
        """Begin a chunked response, as uvicorn's `send` would, in one write. False if `send` must be used."""
        head = self._head(send, 200, headers)
        if head is None:
            return False
        self._begun = cycle = self.cycle
        cycle.response_started = cycle.chunked_encoding = self.takes_more = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"%btransfer-encoding: chunked\r\n\r\n%b" % (head, _chunk_of(body)))
        return True

    def _head(self, send: Send, status: int, headers: Sequence[Header]) -> bytes | None:
        """Return the head of a response without its last line; None if `send` would do more than write it."""
        if self.is_lost:
            return None
        cycle = self.cycle
        if send != cycle.send or cycle.response_started or self.flow.write_paused:
            return None  # middleware wraps `send`, another request has begun, or the client does not read
        lines = [*map(_line_of, (*cycle.default_headers, *headers))]
        head = STATUS_LINE[status] + b"".join(lines)
        if head.count(b"\n") != len(lines) + 1 or cycle.scope["method"] == "HEAD":
            return None  # uvicorn refuses it, or sends no body
        if self.access_log:
            _log_access(cycle, status, headers)
        return head if cycle.keep_alive else head + b"connection: close\r\n"

    def go_on(self, body: bytes) -> None:
        """Send a piece of a body, as uvicorn's `send` would, without a coroutine."""
        size = len(body)
        line = _SIZE_LINES[size] if size < _SHORT else b"%x\r\n" % size
        self.transport.write(b"".join((line, body, b"\r\n")))

    def end(self, body: bytes) -> None:
        """Send the last piece of a body and the end of a response that was begun here, in one write."""
        if self._begun is not None:
            self._write_last(self._begun, _chunk_of(body) + b"0\r\n\r\n")

    def _write_last(self, cycle: RequestResponseCycle, data: bytes) -> None:
        """Write the last bytes of a response, and end it as uvicorn's `send` would."""
        cycle.response_complete = True
        cycle.message_event.set()
        self.transport.write(data)
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()


class LoggedCycle(RequestResponseCycle):
    """A request whose response is logged with its ids. uvicorn makes the object, which then gets this class.

    A function that wraps `send` would refer to the request that refers to it, and only the collector would free both.
    """

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of the response, and log its head."""
        if message["type"] == "http.response.start":
            _log_access(self, message["status"], [*message.get("headers", ())])
        await super().send(message)


def _log_access(cycle: RequestResponseCycle, status: int, headers: Sequence[Header]) -> None:
    """Log a response as uvicorn would, with the ids in its headers."""
    scope, named = cycle.scope, dict(headers)
    ids = {id: named[name].decode() for id, name in _LOGGED_IDS.items() if name in named}
    client = ":".join(map(str, scope["client"] or ()))
    cycle.access_logger.info(
        '%s - "%s %s HTTP/%s" %d', client, scope["method"], scope["path"], scope["http_version"], status, extra=ids
    )


class ShortConnection(HttpToolsProtocol):
    """uvicorn's protocol, for a connection that is closed at its maximum age in seconds."""

    def __init__(self, longest: float, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._longest = longest

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        self.loop.call_later(self._longest, transport.close)


def _chunk_of(body: bytes) -> bytes:
    """Return a piece of a body as a chunk; nothing for an empty one, which would be the end."""
    return b"%x\r\n%b\r\n" % (len(body), body) if body else b""


def protocols_of(server: uvicorn.Server) -> Callable[[], asyncio.Protocol]:
    """Return what makes the protocol of each connection, as a started server does for its own sockets."""
    make: Callable[..., asyncio.Protocol] = server.config.http_protocol_class
    return partial(
        make, config=server.config, server_state=server.server_state, app_state=server.lifespan.state, _loop=None
    )


def _parser(protocol: Protocol) -> httptools.HttpRequestParser:
    """Return a parser as uvicorn makes it for a connection."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
