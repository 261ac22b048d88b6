"""The client of the command line: for a given URL, the server on the data folder, or a temporary server.

An API key is sent only to a URL that the user gave, or through the socket in the user's own data folder, where no other
user can listen. It is never sent to an unknown program on a port.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import pathlib
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from typing import IO, Any

import click
import msgspec

from ..concurrency.retry import Backoff
from ..errors import HoldfastError
from ..http_client.client import Client
from ..http_client.connection import Reply
from ..http_client.errors import Broken, NotThere
from ..http_client.route import Route, route_to
from ..server.config.settings import CLIENT_KEY, Settings, data_folder, load_with_sources
from ..server.kit.http.local_socket import is_private, short_path
from ..server.live.live_settings import without_secrets
from ..upstreams import MODELS_HINT
from ..upstreams.sse import SSEDecoder
from .commands import settings_file_in_use, settings_options

CALL_SECONDS = 60.0
"""Timeout of a call in seconds. Streams have none."""
BUSY_SECONDS = 5.0
"""Timeout for the first answer of the user's own server, in seconds. A server that is only busy is not passed over."""

Object = dict[str, Any]
Params = dict[str, str | int]


class CallFailed(HoldfastError):
    """The server answered with an error, or not at all."""

    def __init__(self, message: str, code: str = "call_failed", status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class NoServer(CallFailed):
    """No server runs on the data folder, and the command does not start one."""

    def __init__(self) -> None:
        super().__init__("No server is running on the data folder. Start one with: holdfast serve")


class Api:
    """The part of the native API that the command line uses."""

    def __init__(self, http: Client, name: str = "") -> None:
        self._http = http
        self._name = name or http.url
        """The name of the server in errors."""

    async def call(
        self,
        method: str,
        path: str,
        body: Object | bytes | IO[bytes] | None = None,
        query: Params | None = None,
        *,
        seconds: float | None = CALL_SECONDS,
    ) -> Object:
        """Make one call, and return the decoded response."""
        answer = await self._answer(method, path, body, query, seconds)
        try:
            return msgspec.json.decode(answer or b"{}", type=Object)
        except msgspec.DecodeError:
            raise CallFailed(f"{self._name} is not a Holdfast server: its answer is not JSON.") from None

    async def text(self, path: str) -> str:
        """Return a response that is no JSON."""
        return (await self._answer("GET", path)).decode("utf-8", "replace")

    async def download(self, path: str) -> AsyncGenerator[bytes]:
        """Yield a response that may be large. One that breaks off raises `CallFailed`."""
        try:
            with closing(await self._send("GET", path)) as response:
                if response.status != 200:
                    raise self._failure(response.status, _loosely(await response.read_all()))
                while data := await response.read():
                    yield data
        except (NotThere, Broken) as error:
            raise CallFailed(f"Lost the connection to {self._name}: {error}.") from None

    async def _answer(
        self,
        method: str,
        path: str,
        body: Object | bytes | IO[bytes] | None = None,
        query: Params | None = None,
        seconds: float | None = CALL_SECONDS,
    ) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                with closing(await self._send(method, path, body, query)) as response:
                    answer: bytes = await response.read_all()
            if response.status >= 300:
                raise self._failure(response.status, _loosely(answer))
            return answer
        except TimeoutError:
            raise CallFailed(f"No answer from {self._name} within {CALL_SECONDS:g} s.") from None
        except NotThere as error:
            raise CallFailed(f"Could not connect to {self._name}: {error}. Is the server running?") from None
        except Broken as error:
            raise CallFailed(f"Lost the connection to {self._name}: {error}.") from None

    async def _send(
        self,
        method: str,
        path: str,
        body: Object | bytes | IO[bytes] | None = None,
        query: Params | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        if not isinstance(body, dict):
            return await self._http.send(method, path, body or b"", query=query, headers=headers)
        headers = {"Content-Type": "application/json", **(headers or {})}
        return await self._http.send(method, path, json.dumps(body).encode(), query=query, headers=headers)

    def _failure(self, status: int, answer: Object) -> CallFailed:
        code, message = "", f"{self._name} answered with status {status}."
        match answer:
            case {"error": {"code": str(code), "message": str(message)}}:
                pass
            case {"error": {"message": str(message)}}:
                pass
        message = message.replace(MODELS_HINT, "See `holdfast models`.")
        if status == 401:
            message = _KEY_HELP[bool(os.environ.get(CLIENT_KEY))].format(self._name)
        elif status < 400:
            message = f"{self._name} redirects ({status}), which is not followed. Set --url to the new address."
        return CallFailed(message, code, status)

    async def events(self, run_id: str, after: int = 0, patience: float = 30.0) -> AsyncGenerator[Object]:
        """Yield a run's events up to its settlement. If the connection breaks, reconnect for `patience` seconds."""
        loop = asyncio.get_running_loop()
        lost_at, backoff = 0.0, Backoff(0.3, 2.0)
        while True:
            try:
                with closing(await self._send("GET", f"/api/runs/{run_id}/events", query={"after": after})) as response:
                    if response.status in _COMES_BACK:
                        raise Broken(f"{self._name} answered with status {response.status}")
                    lost_at = 0.0
                    async for event in self._read(response):
                        after = event.get("seq", after)
                        backoff.reset()
                        yield event
                        if event["type"] == "run.settled":
                            return
            except (NotThere, Broken) as error:
                if loop.time() - (lost_at := lost_at or loop.time()) > patience:
                    raise CallFailed(f"Lost the connection, and could not reconnect: {error}.") from None
            await asyncio.sleep(backoff.next())

    async def _read(self, response: Reply) -> AsyncGenerator[Object]:
        if response.status != 200:
            raise self._failure(response.status, _loosely(await response.read_all()))
        decoder = SSEDecoder()
        while data := await response.read():
            for _, event in decoder.feed(data):
                yield msgspec.json.decode(event)

    async def stream(
        self, method: str, path: str, body: Object | bytes | IO[bytes] | None = None
    ) -> AsyncGenerator[tuple[str, Object]]:
        """Yield the events of any other stream with their names, until the connection ends."""
        decoder = SSEDecoder(max_event=256 * 1024 * 1024)
        try:
            sent = await self._send(method, path, body, headers={"Accept": "text/event-stream"})
            with closing(sent) as response:
                if response.status != 200:
                    raise self._failure(response.status, _loosely(await response.read_all()))
                while data := await response.read():
                    for name, event in decoder.feed(data):
                        yield name.decode(), msgspec.json.decode(event)
        except (NotThere, Broken) as error:
            raise CallFailed(f"Lost the connection to {self._name}: {error}.") from None


_KEY_HELP = {
    False: "{} needs an API key. Set HOLDFAST_CLIENT_KEY.",
    True: "{} does not accept the API key in HOLDFAST_CLIENT_KEY.",
}
"""The message for 401: without a key, and with one."""

_COMES_BACK = (502, 503, 504)
"""Statuses of a server that is restarting, or of a proxy in front of it."""


def _loosely(body: bytes) -> Object:
    """Return the JSON object of a response; an empty one if the response is not from Holdfast."""
    try:
        return msgspec.json.decode(body, type=Object)
    except msgspec.DecodeError:
        return {}


@asynccontextmanager
async def connect(url: str | None, data: str | None, config: str | None, *, own: bool = True) -> AsyncGenerator[Api]:
    """Find the server: the one at the URL, the one on the data folder, or, with `own`, one that this process starts."""
    settings_file_in_use(config, also_unused=False)
    settings, sources = load_with_sources({"data": data}, os.environ, config)
    key = os.environ.get(CLIENT_KEY, "")
    headers, own_headers = _with(key), _with(key or settings.api_key)
    async with AsyncExitStack() as stack:
        if url:
            yield Api(stack.enter_context(closing(_named(url, headers))))
        elif (found := await _in_folder(stack, data_folder(settings), own_headers)) is not None:
            yield found
        elif not own:
            raise NoServer
        else:
            await _note_server_on_port(settings)
            own_server = importlib.import_module(
                ".temporary_server", __package__
            ).own_server  # a third of the startup time, seldom needed
            folder = await stack.enter_async_context(own_server(settings, sources))
            yield Api(stack.enter_context(through(folder)), "the server of this command")


def calls_api(command: Callable[..., Coroutine[Any, Any, int | None]], *, own: bool = True) -> Callable[..., None]:
    """Give a command the options that choose a server, and its API as first argument. It may return an exit code."""

    @settings_options
    @functools.wraps(command)
    def run(url: str | None, data: str | None, config: str | None, **what: Any) -> None:
        async def called() -> int | None:
            async with connect(url, data, config, own=own) as api:
                return await command(api, **what)

        if code := asyncio.run(called()):
            sys.exit(code)

    return run


def _with(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _named(url: str, headers: Mapping[str, str]) -> Client:
    """Return a client for the URL that the user gave, through the proxy of the environment if one is set."""
    try:
        return Client(url, headers=headers, route=route_to(url))
    except ValueError as error:
        if "://" not in url:
            raise CallFailed(f"Not a URL: {url!r}. It must begin with http:// or https://.") from None
        raise CallFailed(f"Invalid URL {without_secrets(url)!r}: {error}.") from None


LOCALHOST = "http://localhost"
"""Placeholder URL of a server that is reached through a socket."""


@contextmanager
def through(folder: pathlib.Path, headers: Mapping[str, str] | None = None) -> Generator[Client]:
    """Yield a client that connects only through the socket in a folder."""
    with short_path(folder) as path, closing(Client(LOCALHOST, headers=headers, route=Route(socket_path=path))) as http:
        yield http


async def _in_folder(stack: AsyncExitStack, folder: pathlib.Path, headers: Mapping[str, str]) -> Api | None:
    """Return the server that runs on a data folder of this user; None if there is none."""
    if not is_private(folder):
        return None
    http = stack.enter_context(through(folder, headers))
    return Api(http, f"the server on {folder}") if await is_there(http, BUSY_SECONDS) else None


class Alive(msgspec.Struct):
    """The response of `/health`."""

    url: str = ""


async def url_on(folder: pathlib.Path) -> str | None:
    """Return the URL of this user's server on the data folder, empty if it does not know it; None without a server."""
    async with AsyncExitStack() as stack:
        server = await _in_folder(stack, folder, {})
        return msgspec.convert(await server.call("GET", "/health"), Alive).url if server else None


async def _note_server_on_port(settings: Settings) -> None:
    """Print a note if a server answers on the default port: it is used only with --url. No key is sent."""
    url = local_url(settings)
    if settings.port and await answers_at(url):
        click.echo(f"Note: the server on {url} uses another data folder. Use it with --url {url}.", err=True)


def local_url(settings: Settings) -> str:
    """Return the URL of a server with these settings, as seen from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{settings.port}" if ":" in host else f"{scheme}://{host}:{settings.port}"


async def answers_at(url: str) -> bool:
    """True if a Holdfast server of this machine seems to answer at a URL. No key is sent."""
    try:
        http = Client(url)
    except ValueError:  # `host` is not a valid host name
        return False
    with closing(http):
        return await is_there(http)


async def is_there(http: Client, seconds: float = 1.0) -> bool:
    """True if a Holdfast server seems to answer."""
    with suppress(NotThere, Broken, TimeoutError):
        async with asyncio.timeout(seconds):
            with closing(await http.send("GET", "/health")) as response:
                return response.status == 200 and "status" in _loosely(await response.read_all())
    return False
