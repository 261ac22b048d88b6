"""Opening a connection to an origin: over a socket of the machine, directly, or through a proxy."""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import cast
from urllib.parse import urlsplit

import aiohappyeyeballs

from .addresses import Resolve
from .connection import MOST_WITHOUT_BODY, Connection
from .errors import NotHTTP, NotThere, ProxyFailed, why_no_connection
from .proxy import Proxy, authority
from .route import Route, tls_context

__all__ = ["Dialer"]

_NEXT_ADDRESS = 0.25  # seconds after which the next address of a name is tried beside the one before
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")


class Dialer:
    """Opens connections to one origin along its route, each within `timeout` seconds."""

    def __init__(self, url: str, route: Route, timeout: float, resolve: Resolve) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._is_tls = parts.scheme == "https"
        self._route = route
        self._timeout = timeout
        self._resolve = resolve
        self._tls = route.tls
        self._proxy_tls: ssl.SSLContext | None = None

    async def open(self, connection: Connection) -> None:
        """Connect. Raises `NotThere`."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            await self._open(connection, deadline)
        except (OSError, UnicodeError) as error:  # a timeout and a failure of TLS are OSErrors too
            raise NotThere(why_no_connection(error, self._timeout)) from error

    async def _open(self, connection: Connection, deadline: float) -> None:
        proxy = self._route.proxy
        if proxy is None:
            async with asyncio.timeout_at(deadline):
                await self._open_directly(connection)
        elif self._is_tls:
            tunnel = _Tunnel(connection)
            await self._reach(proxy, tunnel, deadline)
            async with asyncio.timeout_at(deadline):
                await tunnel.start_tls(self._context(), self._host)
        else:
            await self._reach(proxy, connection, deadline)

    async def _open_directly(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        if self._route.socket_path:
            await loop.create_unix_connection(lambda: connection, self._route.socket_path)
        else:
            await self._connect(connection, self._host, self._port, self._context() if self._is_tls else None)

    async def _reach(self, proxy: Proxy, protocol: Connection | _Tunnel, deadline: float) -> None:
        """Connect to the proxy, and have it connect to the origin if there is to be a tunnel."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._connect(protocol, proxy.host, proxy.port, self._proxy_context() if proxy.is_tls else None)
                if isinstance(protocol, _Tunnel):
                    await protocol.ask(proxy, authority(self._host, self._port))
        except NotHTTP as error:
            raise ProxyFailed(f"the proxy {proxy.name} answered with {error}") from error
        except TimeoutError as error:
            raise ProxyFailed(f"the proxy {proxy.name} did not answer within {self._timeout:g} s") from error
        except (OSError, UnicodeError) as error:
            why = why_no_connection(error, self._timeout)
            raise ProxyFailed(f"the proxy {proxy.name} could not be reached: {why}") from error

    async def _connect(self, protocol: asyncio.Protocol, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Connect to the first address that answers, and speak TLS there if there is a context for it."""
        addresses = await self._resolve(host, port)
        sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: protocol, sock=sock, ssl=tls, server_hostname=None if tls is None else host
            )
        except BaseException:
            sock.close()
            raise

    def _context(self) -> ssl.SSLContext:
        self._tls = self._tls or tls_context()
        return self._tls

    def _proxy_context(self) -> ssl.SSLContext:
        """Return what TLS with the proxy itself trusts: the system's CAs. It is shown no client certificate."""
        self._proxy_tls = self._proxy_tls or tls_context()
        return self._proxy_tls


class _Tunnel(asyncio.Protocol):
    """The `CONNECT` request to a proxy and its response. TLS with the origin follows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._count = 0
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ask(self, proxy: Proxy, origin: str) -> None:
        """Ask for a connection to the origin. Raises `ProxyFailed` if the proxy refuses."""
        assert self._transport is not None
        self._transport.write(_connect_head(proxy, origin))
        try:
            status = await self._status
            if not 200 <= status < 300:
                raise refusal_of(proxy, status)
            if self._received:
                raise NotHTTP("bytes before TLS began")
        except BaseException:
            self._transport.abort()
            raise

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS with the origin, and hand over to the connection."""
        assert self._transport is not None
        connection = self._connection
        connection.connection_made(self._transport)  # so that it can close the socket during the handshake
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport, connection, context, server_hostname=host
            )
        except BaseException:
            self._transport.abort()
            raise
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        connection.connection_made(transport)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Read the head of the answer. Interim responses are passed over."""
        self._received += data
        self._count += len(data)
        while not self._status.done() and (end := self._received.find(b"\r\n\r\n")) >= 0:
            found = _STATUS_LINE.match(bytes(self._received[:end]) + b"\r")
            del self._received[: end + 4]
            if found is None:
                self._fail(NotHTTP())
            elif int(found[1]) >= 200:
                self._status.set_result(int(found[1]))
        if not self._status.done() and not b"HTTP/1.".startswith(self._received[:7]):
            self._fail(NotHTTP())
        elif self._count > MOST_WITHOUT_BODY:
            self._fail(NotHTTP(f"more than {MOST_WITHOUT_BODY // 1024} kB of headers"))

    def connection_lost(self, error: Exception | None) -> None:
        """End."""
        self._fail(error or ConnectionResetError())

    def _fail(self, error: Exception) -> None:
        if not self._status.done():
            self._status.set_exception(error)


def _connect_head(proxy: Proxy, origin: str) -> bytes:
    lines = [f"CONNECT {origin} HTTP/1.1", f"Host: {origin}", "User-Agent: holdfast"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    return "\r\n".join([*lines, "", ""]).encode()


def refusal_of(proxy: Proxy, status: int) -> ProxyFailed:
    """Return the error that a proxy's status means."""
    if status == 407 and proxy.authorization:
        what = "refuses the user and password of its URL (407)"
    elif status == 407:
        what = "asks for a user and password (407): its URL may hold them, as http://user:password@host:port"
    elif status in (502, 503, 504):
        what = f"could not reach it ({status})"
    else:
        what = f"does not let us through ({status})"
    return ProxyFailed(f"the proxy {proxy.name} {what}", status)
