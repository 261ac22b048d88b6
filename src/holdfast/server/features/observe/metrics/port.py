"""`/metrics`: on the server's port for admin keys, and on a separate port without a key."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .....access import ADMIN
from .....errors import NotFound
from ....config.loopback import host_name, is_loopback
from ....config.settings import Settings, SettingsError
from ....kit.feature import Endpoint, Feature
from ....kit.http.errors import PRIVATE
from ....kit.http.uvicorn_server import serve_beside
from . import Metrics

PATH = "/metrics"
MOST_CONNECTIONS = 32
"""Maximum number of connections to the separate port: Prometheus needs one or two."""
LONGEST_CONNECTION = 10.0
"""Maximum age of a connection to the separate port in seconds: silent ones must not keep Prometheus out."""


class MetricsOff(NotFound):
    """Metrics were requested, but are off."""

    code = "metrics_off"
    message = "Metrics are off. Set `metrics = true`, and restart the server."


class MetricsApp:
    """Answers `GET /metrics` and nothing else.

    A page on any site can make a browser call a name that points to 127.0.0.1. So a server that listens there answers
    only to a Host that is loopback.
    """

    def __init__(self, measuring: Metrics, host: str) -> None:
        self._metrics = measuring
        self._is_local = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive, send)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if self._is_local and not is_loopback(host_name(request.headers.get("host", ""))):
            return PlainTextResponse("The Host is not a loopback address.\n", 403)
        if request.scope["path"] != PATH:
            return PlainTextResponse(f"Metrics are at {PATH}.\n", 404)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Use GET.\n", 405)
        return await _response(self._metrics, request)


class MetricsApi(Feature):
    """Metrics on the server's port."""

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics

    @Endpoint("GET", PATH, who=ADMIN, audit=None, answers={404: "metrics are off"})
    async def metrics(self, request: Request) -> ASGIApp:
        """Return all metrics, in the text format of Prometheus or in OpenMetrics."""
        if self._metrics is None:
            raise MetricsOff
        return await _response(self._metrics, request)


@contextlib.asynccontextmanager
async def metrics_served(
    measuring: Metrics | None, settings: Settings, sock: socket.socket | None = None
) -> AsyncGenerator[None]:
    """Serve the port for metrics within the block, if the settings name one. `sock` already listens on it."""
    sock = sock or metrics_socket(settings)
    if measuring is None or sock is None:
        yield
        return
    app = MetricsApp(measuring, settings.metrics_host)
    async with serve_beside(
        app,
        sock,
        connections=MOST_CONNECTIONS,
        longest=LONGEST_CONNECTION,
        access_log=settings.access_log,  # uvicorn has one logger for all of its servers
    ):
        yield


def metrics_socket(settings: Settings) -> socket.socket | None:
    """Return a socket that listens on the port for metrics; None if the settings name none."""
    host, port = settings.metrics_host, settings.metrics_port
    if not port:
        return None
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SettingsError(
            f"Cannot listen on {host}:{port} for metrics: {reason}. Set another metrics_port."
        ) from error


async def _response(measuring: Metrics, request: Request) -> Response:
    body, content_type = await measuring.text(request.headers.get("accept", ""))
    return Response(body, headers={**PRIVATE, "content-type": content_type})
