"""Runs the application on uvicorn, and ends it well."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import socket
import typing
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..asgi import CONNECTION, Header
from .app import end
from .settings import Settings, SettingsError

ACCEPTED_AT_ONCE = 16
"""Connections that are accepted in one turn of the loop."""
HALF_OPEN = 20_000  # milliseconds after which a client that has vanished without a word is taken for gone
_OFFER = re.compile(rb"\r\nupgrade[ \t]*:[ \t]*h2c[ \t]*(?=\r\n|\Z)", re.IGNORECASE)


class Protocol(HttpToolsProtocol):
    """uvicorn's own, left where a stream can find it: a `Connection`."""

    __slots__ = ("_has_begun", "_watchers", "is_lost", "takes_more")  # beside uvicorn's own, which fill a dict

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        self._watchers: dict[Callable[[], None], None] = {}
        self._has_begun = False
        self.is_lost = False
        self.takes_more = False
        """An answer that was begun here goes on, and uvicorn's own `send` would write a piece of it at once.

        It is asked for each token, so it is an attribute."""

    def data_received(self, data: bytes) -> None:
        """Take in what has come, but for the offer to speak HTTP/2: the parser would take what follows for that."""
        if b"h2c" in data and b"\r\n\r\n" in data:
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(b"", head) + end + rest
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def connection_lost(self, exc: Exception | None) -> None:
        """End, and tell those who wait for that."""
        super().connection_lost(exc)
        self.is_lost = True
        self.takes_more = self._has_begun = False
        for wake in tuple(self._watchers):
            wake()
        del self.cycle, self.scope  # they know us: a cycle, which would wait for the collector

    def watch_loss(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when the client is gone, until the returned function is called."""
        self._watchers[wake] = None
        return lambda: self._watchers.pop(wake, None)

    def abort(self) -> None:
        """Close the connection now."""
        self.transport.abort()

    def pause_writing(self) -> None:
        """Hear that the client does not read as fast as it is written to."""
        super().pause_writing()
        self.takes_more = False

    def resume_writing(self) -> None:
        """Hear that it has read."""
        super().resume_writing()
        self.takes_more = self._has_begun

    def on_response_complete(self) -> None:
        """End an answer; uvicorn may begin with the next request."""
        self.takes_more = self._has_begun = False
        super().on_response_complete()

    def answer(self, send: Send, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Send a whole answer as uvicorn's own `send` does, in one write. False where it has to be sent by that."""
        head = self._head(send, status, headers)
        if head is None:
            return False
        cycle = self.cycle
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        self.transport.write(head + b"\r\n" + body)
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def begin(self, send: Send, headers: Sequence[Header]) -> bool:
        """Begin an answer of pieces as uvicorn's own `send` does. False where it has to be begun by that."""
        head = self._head(send, 200, headers)
        if head is None:
            return False
        self.cycle.response_started = self.cycle.chunked_encoding = True
        self.cycle.waiting_for_100_continue = False
        self.takes_more = self._has_begun = True
        self.transport.write(head + b"transfer-encoding: chunked\r\n\r\n")
        return True

    def _head(self, send: Send, status: int, headers: Sequence[Header]) -> bytes | None:
        """Return the first part of an answer, but for its last line; None where `send` would not just write it."""
        if self.is_lost:
            return None
        cycle = self.cycle
        if send != cycle.send or cycle.response_started or self.flow.write_paused:
            return None  # somebody stands between, another request has begun, or the client does not read
        lines = [b"%b: %b\r\n" % header for header in (*cycle.default_headers, *headers)]
        head = STATUS_LINE[status] + b"".join(lines)
        if head.count(b"\n") != len(lines) + 1 or cycle.scope["method"] == "HEAD":
            return None  # which is for uvicorn to refuse, or to answer without a body
        return head if cycle.keep_alive else head + b"connection: close\r\n"

    def go_on(self, body: bytes) -> None:
        """Send a piece of a body as uvicorn's own `send` does, without its coroutine."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))


class Others(typing.Protocol):
    """What a server has to do with the further processes that it is made of."""

    async def begin(self, server: Server) -> None:
        """Begin to work together."""
        ...

    def begin_to_end(self) -> None:
        """Tell them that the server ends."""
        ...

    def hurry(self) -> None:
        """Let nobody drain any longer."""
        ...

    async def end(self) -> None:
        """Wait for their end."""
        ...


class Server(uvicorn.Server):
    """Ends the runs before the connections: uvicorn alone would wait for open streams, or cut them off unsaved."""

    def __init__(
        self, config: uvicorn.Config, app: Starlette, on_ready: Callable[[], None], *, takes_signals: bool = True
    ) -> None:
        super().__init__(config)
        self.others: Others | None = None
        """The further processes of this server, where there are any."""
        self._app = app
        self._on_ready = on_ready
        self._takes_signals = takes_signals
        self._in_a_hurry = False

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take the signals, unless they are the caller's."""
        if self._takes_signals:
            with super().capture_signals():
                yield
        else:
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started and self.others is not None:
            await self.others.begin(self)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Settle every run and send the readers off, then close. A second signal cuts the draining short."""
        parts = self._app.state.parts
        if self.others is not None:
            self.others.begin_to_end()
        ending = asyncio.create_task(end(parts, parts.settings.drain))
        while not (await asyncio.wait({ending}, timeout=0.1))[0]:
            if self._in_a_hurry:
                self._hurry(ending)
        if ending.cancelled():
            await end(parts, drain=0.0)
        if self.others is not None:
            await self._end_of(self.others)
        await super().shutdown(sockets)

    async def _end_of(self, others: Others) -> None:
        """Wait for the other processes, which may have more to settle than this one. They can be hurried, too."""
        ending = asyncio.create_task(others.end())
        while not (await asyncio.wait({ending}, timeout=0.1))[0]:
            if self._in_a_hurry:
                others.hurry()
        await ending

    def _hurry(self, ending: asyncio.Task[None]) -> None:
        ending.cancel()
        if self.others is not None:
            self.others.hurry()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal as a request to end. It is not raised again afterwards: ending well is no failure.

        uvicorn's own `force_exit` is never set: it would leave the store and the model's process unclosed, and say so
        with a traceback.
        """
        self._in_a_hurry = self.should_exit
        self.should_exit = True


def listen(settings: Settings) -> socket.socket:
    """Return the listening socket, which notices clients that vanish."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so that loops set TCP_NODELAY
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, HALF_OPEN)
    try:
        sock.bind((settings.host, settings.port))
    except OSError as error:
        sock.close()
        raise SettingsError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}. "
            "Is another server there? Choose another with --port."
        ) from error
    return sock


def copies(sock: socket.socket) -> list[socket.socket]:
    """Return a listening socket several times. uvloop accepts one connection of each in a turn of its loop: with one
    alone a busy server, which has ten turns in a second, would let a crowd wait for minutes."""
    return [sock, *(sock.dup() for _ in range(ACCEPTED_AT_ONCE - 1))]


def address(sock: socket.socket) -> str:
    """Return where a socket listens, as an address for people."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve_forever(app: Starlette, sock: socket.socket, on_ready: Callable[[str], None]) -> bool:
    """Serve until a signal. True where it started and ended well."""
    return run_server(Server(configuration(app), app, lambda: on_ready(address(sock))), sock)


def run_server(server: Server, sock: socket.socket) -> bool:
    """Let a server run until a signal. True where it started and ended well."""
    _spare_the_collector()
    server.run(copies(sock))
    return server.started


def _spare_the_collector() -> None:
    """Leave what the start has made out of every later collection, and let no collection look at much at once.

    The loop stands still meanwhile: looking at the 200,000 objects of a thousand streams took 0.1 s. A request
    makes no cycles, so there is little to find among the old objects: they are looked at seldom.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000, 10, 400)


@contextlib.asynccontextmanager
async def serve_in_background(app: Starlette, sock: socket.socket) -> AsyncGenerator[None]:
    """Serve in the loop that runs, for as long as the block lasts; signals stay with the caller."""
    ready = asyncio.Event()
    server = Server(configuration(app), app, ready.set, takes_signals=False)
    serving = asyncio.create_task(server.serve([sock]))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def configuration(app: Starlette, http: Callable[..., asyncio.Protocol] = Protocol) -> uvicorn.Config:
    """Return how uvicorn is set up. `http` makes the protocol of a connection."""
    return uvicorn.Config(
        app,
        http=http,  # type: ignore[arg-type]  # anything that makes a protocol will do
        ws="none",
        lifespan="on",
        access_log=False,
        log_level=logging.WARNING,
        server_header=False,
        proxy_headers=False,  # nobody in front of us is trusted to say who is asking
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        backlog=4096,
    )
