"""An ASGI app on a real port, in the test's own loop: for apps whose inside the test must reach."""

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn
from msgspec.structs import replace

from holdfast.server.kit.http.connections import ConnectionLimits, OpenConnections
from holdfast.server.kit.http.http_protocol import Protocol
from tests.support.http import Client
from tests.support.waiting import LONG

NO_HOME = {"XDG_DATA_HOME": str(Path(tempfile.gettempdir()) / f"holdfast-tests-{os.getpid()}")}
"""An environment with an empty data folder: what a developer has in their own must not change a test.

What a server leaves there is removed after each file of tests.
"""


class _Server(uvicorn.Server):
    """uvicorn's own, without its signal handlers: those belong to pytest."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class Served:
    """`async with Served(app) as served: served.client()`. uvicorn as anybody would run it, lifespan included.

    `spec_version` is what the app is told of the ASGI version, whatever uvicorn itself announces.
    """

    def __init__(self, app: Any, *, spec_version: str | None = None, lifespan: str = "on", **config: Any) -> None:
        self._app = app
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        served = app if spec_version is None else announcing(app, spec_version)
        self._server = _Server(uvicorn.Config(served, lifespan=lifespan, log_config=None, **{"ws": "none", **config}))
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        async with asyncio.timeout(LONG):
            while not self._server.started:
                if self._serving.done():
                    await self._serving
                    raise RuntimeError("the app did not start")
                await asyncio.sleep(0.005)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (inside := getattr(getattr(self._app, "state", None), "server", None)) is not None:
            inside.current.now = replace(inside.current.now, drain=0.0)
        self._server.should_exit = True
        assert self._serving is not None
        await self._serving

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)


def announcing(app: Any, spec_version: str) -> Any:
    """The app as a server would call it that announces another ASGI version."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        scope["asgi"] = {**scope["asgi"], "spec_version": spec_version}
        await app(scope, receive, send)

    return wrapped


def protocol(limits: ConnectionLimits | None = None) -> Callable[..., Protocol]:
    """`Served(app, http=protocol())`: the connections of our own server."""
    return partial(Protocol, OpenConnections(limits))
