"""The connections to one origin: opened when needed, kept for a while, and used again.

A POST is sent once. The exception is a kept connection that its server had closed already: the loss is known before the
request is written, or within `UNREAD` seconds of it and without a byte of a response. If a connection is lost later,
the server may have read the request, so a model may have worked on it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import IO
from urllib.parse import urlsplit

from .addresses import Resolve, resolve
from .connection import IDLE, Connection, IdleConnections, Repeatable, Reply, Turn
from .dialing import Dialer, refusal_of
from .request import absolute_form
from .route import DIRECT, Route

__all__ = ["Connections"]


class Connections:
    """Connections to one origin, `http://host:port` or with TLS.

    An unused connection is kept for `keep` seconds; with 0 none is used again. A name with several addresses is reached
    at the first that answers: the next one is tried after a quarter of a second, beside those that are silent.
    `connect_timeout` covers all of that, the proxy's part and the TLS handshake.

    Costs one socket for each connection in use or kept.
    """

    def __init__(
        self,
        url: str,
        *,
        route: Route = DIRECT,
        connect_timeout: float = 10.0,
        keep: float = IDLE,
        resolve: Resolve = resolve,
    ) -> None:
        self._dialer = Dialer(url, route, connect_timeout, resolve)
        self._proxy = route.proxy if urlsplit(url).scheme == "http" else None
        """The proxy that is asked in place of the origin: TLS goes through a tunnel instead."""
        self._origin = url
        self._idle = IdleConnections(keep)
        self._turn = Turn()

    async def send(self, head: bytes, body: bytes | IO[bytes] = b"", *, is_repeatable: bool = False) -> Reply:
        """Send a request and return the response. Raises `NotThere` or `Broken`.

        The request is sent again on another connection if a kept one was closed before the request can have been read,
        or, for a request that `is_repeatable`, before anything was answered.
        """
        proxy = self._proxy
        if proxy is not None:
            head = absolute_form(head, self._origin, proxy.authorization)
        while True:
            connection = self._idle.take() or await self._connect()
            try:
                if isinstance(body, bytes):
                    reply = await connection.send(head, body, is_repeatable)
                else:
                    reply = await connection.send_file(head, body)
            except Repeatable:
                continue
            except BaseException:
                connection.abort()
                raise
            if proxy is not None and reply.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
                reply.close()
                raise refusal_of(proxy, reply.status)
            return reply

    async def _connect(self) -> Connection:
        connection = Connection(self._idle, self._turn)
        try:
            await self._dialer.open(connection)
        except BaseException:
            connection.forget()
            raise
        return connection

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._idle.close()
