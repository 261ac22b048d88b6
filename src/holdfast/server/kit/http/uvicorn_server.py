"""Runs applications on uvicorn: the server's own with a graceful shutdown, others beside it.

Everything that touches the internals of uvicorn's server is in this file; those of its protocol are in
http_protocol.py. tests/unit/test_uvicorn.py names each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from ...config.loopback import is_loopback
from ...config.settings import Settings, SettingsError
from .connections import ConnectionLimits, OpenConnections
from .http_protocol import Protocol, ShortConnection, protocols_of
from .tls import HANDSHAKE, LOOK_EVERY, STRICT, Tls, tls_of

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 16
"""Connections accepted in one iteration of the event loop."""
FILES = 65_536
"""Wanted limit of open files."""
RESERVED = 128
"""Open files besides the connections of clients and upstreams: the store, the listening sockets, the log."""
HALF_OPEN = 20_000  # milliseconds until a silent client without acknowledgements is disconnected


class SideServer(uvicorn.Server):
    """Serves another application than the main server, to which it leaves signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no signal handlers."""
        yield


class Server(uvicorn.Server):
    """Settles the runs before it closes connections: uvicorn alone would wait for open streams, or cut them off.

    With `tls` the `public` sockets speak HTTPS. The sockets that it runs with never do.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: Starlette,
        on_ready: Callable[[], None],
        *,
        takes_signals: bool = True,
        tls: Tls | None = None,
        public: Sequence[socket.socket] = (),
    ) -> None:
        super().__init__(config)
        self._tls = tls
        self._public = public
        self._app = app
        app.state.server.hears_signals = False  # `shutdown` ends it
        self._on_ready = on_ready
        self._takes_signals = takes_signals
        self._in_a_hurry = False

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install the signal handlers, unless the caller handles signals."""
        if self._takes_signals:
            with super().capture_signals():
                yield
        else:
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and log the address."""
        await super().startup(sockets)
        if self.started and self._tls is not None:
            await self._listen(self._tls)
        if self.started:
            self._on_ready()

    async def _listen(self, tls: Tls) -> None:
        """Listen on the public sockets, and look for a renewed certificate."""
        loop, make = asyncio.get_running_loop(), protocols_of(self)
        for sock in self._public:
            self.servers.append(
                await loop.create_server(
                    make, sock=sock, ssl=tls.context, ssl_handshake_timeout=HANDSHAKE, backlog=self.config.backlog
                )
            )
        self._app.state.server.chores.every("certificate", LOOK_EVERY, tls.look)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Settle every run, end the streams, then close. A second signal ends the draining at once."""
        served = self._app.state.server
        if runs := len(served.engine.live()):
            logger.info(
                "Runs in progress: %d. They have %g s to end; a second signal ends the wait.",
                runs,
                served.current.now.drain,
            )
        ending = asyncio.create_task(served.end(served.current.now.drain))
        while not (await asyncio.wait({ending}, timeout=0.1))[0]:
            if self._in_a_hurry:
                ending.cancel()
        if ending.cancelled():
            await served.end(0.0)
        await super().shutdown([*(sockets or ()), *self._public])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal as a request to end. It is not raised again: a graceful end is no failure.

        uvicorn's `force_exit` is never set: it would leave the store and the model's process open, with a traceback.
        """
        self._in_a_hurry = self.should_exit
        self.should_exit = True


class PortInUse(SettingsError):
    """Another program listens on the port."""

    code = "port_in_use"


def listen(settings: Settings, *, shared: bool = False) -> socket.socket:
    """Return the listening socket. Its connections end when a client has vanished.

    If it is `shared`, other processes of this user may have one for the same port: the kernel spreads connections.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named for TCP_NODELAY
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, HALF_OPEN)
    try:
        sock.bind((settings.host, settings.port))
    except OSError as error:
        sock.close()
        failed = f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}."
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{failed} Does Holdfast run already? Use it, or choose another port with --port."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise SettingsError(f"{failed} Choose a port from 1024 on with --port.") from error
        raise SettingsError(f"{failed} Name an address of this machine with --host.") from error
    return sock


def copies(sock: socket.socket) -> list[socket.socket]:
    """Return duplicates of a listening socket. uvloop accepts one connection of each in an iteration: with one socket a
    busy server, which has ten iterations in a second, would keep a crowd of clients waiting for minutes."""
    return [sock, *(sock.dup() for _ in range(ACCEPTED_AT_ONCE - 1))]


def address(sock: socket.socket, settings: Settings) -> str:
    """Return the URL by which a listening socket is opened: on this machine, if it listens on all addresses."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_for_all(sock: socket.socket) -> bool:
    """Return whether a socket listens on all addresses of the machine."""
    return sock.getsockname()[0] in ("0.0.0.0", "::")


def serve_forever(
    app: Starlette, sock: socket.socket, on_ready: Callable[[str], None], others: Sequence[socket.socket] = ()
) -> bool:
    """Serve until a signal, on other sockets too. True if the server has started."""
    settings: Settings = app.state.server.current.now
    app.state.server.current.url = address(sock, settings)
    limits = connection_limits(settings, raise_file_limit(settings))
    tls = tls_of(settings)
    plain, public = ([*copies(sock), *others], []) if tls is None else ([*others], copies(sock))
    config = configuration(app, limits)
    server = Server(config, app, lambda: on_ready(address(sock, settings)), tls=tls, public=public)
    _spare_the_collector()
    server.run(plain)
    return server.started


def raise_file_limit(settings: Settings) -> int:
    """Raise the limit of open files, as far as the system allows it. Return the limit."""
    wanted = max(FILES, RESERVED + settings.max_connections + settings.max_runs)
    if resource is None:
        return wanted
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    if soft < min(wanted, hard):
        with contextlib.suppress(ValueError, OSError):  # macOS has a limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), limits[1]))
            return min(wanted, hard)
    return soft


def connection_limits(settings: Settings, files: int) -> ConnectionLimits:
    """Return the limits of connections, such that these and as many to upstreams fit into the limit of open files."""
    room = max(files - RESERVED, 2)
    room -= min(settings.max_runs, room // 2)
    connections = min(settings.max_connections or room, room)
    if connections < settings.max_connections:
        logger.warning(
            "max_connections is %d instead of %d: only %d files can be open. Raise LimitNOFILE (ulimit -Hn).",
            connections,
            settings.max_connections,
            files,
        )
    return ConnectionLimits(
        head_timeout=settings.head_timeout,
        body_timeout=settings.body_timeout,
        connections=connections,
        for_each_address=settings.max_connections_per_address,
    )


def _spare_the_collector() -> None:
    """Exclude the objects of the start from garbage collection, and keep each later collection short.

    A collection blocks the event loop: 200,000 objects of a thousand streams took 0.1 s. A request makes no reference
    cycles, so old objects are collected seldom.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000, 10, 400)


@contextlib.asynccontextmanager
async def serve_in_background(app: Starlette, sock: socket.socket) -> AsyncGenerator[None]:
    """Serve in the running event loop within the block. The caller handles signals."""
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


@contextlib.asynccontextmanager
async def serve_beside(
    app: ASGIApp, sock: socket.socket, *, connections: int, longest: float, access_log: bool
) -> AsyncGenerator[None]:
    """Serve another application on a socket within the block, for few clients.

    More than `connections` at once get 503, and each is closed after `longest` seconds.
    """
    config = uvicorn.Config(
        app,
        http=partial(ShortConnection, longest),  # type: ignore[arg-type]  # any factory of a protocol works
        ws="none",
        lifespan="off",
        access_log=access_log,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections,
        timeout_graceful_shutdown=1,
    )
    server = SideServer(config)
    serving = asyncio.create_task(server.serve([sock]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def configuration(app: Starlette, limits: ConnectionLimits | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration."""
    settings: Settings = app.state.server.current.now
    gate = app.middleware_stack  # what Starlette does before it is to set scope["app"], which nothing reads
    assert gate is not None
    config = uvicorn.Config(
        gate,
        http=partial(Protocol, OpenConnections(limits)),  # type: ignore[arg-type]  # any factory of a protocol works
        ws="none",
        interface="asgi3",
        lifespan="on",
        access_log=settings.access_log,
        log_config=None,  # the entries of uvicorn are formatted as ours
        log_level=logging.WARNING,
        server_header=False,
        headers=[STRICT] if settings.tls_cert and not is_loopback(settings.host) else [],
        proxy_headers=False,  # forwarded headers are not trusted
        reset_contextvars=settings.traces,  # a pipelined request is started by the one before, and not in its trace
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        backlog=4096,
    )
    if settings.access_log:
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    return config
