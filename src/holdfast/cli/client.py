"""Talks to the server that runs on this machine, or to one started for the occasion."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import msgspec

from ..errors import HoldfastError
from ..providers.sse import SSEDecoder
from ..server.settings import Settings, load_with_sources

Object = dict[str, Any]
Query = dict[str, str | int]


class CallFailed(HoldfastError):
    """The server answered with an error, or not at all."""

    def __init__(self, message: str, code: str = "call_failed", status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class Api:
    """The server's own API, as far as the command line needs it."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self.url = url

    async def call(self, method: str, path: str, body: Object | None = None, query: Query | None = None) -> Object:
        """Make one call and return its answer."""
        try:
            async with self._http.request(
                method, self.url + path, json=body, params=query, timeout=aiohttp.ClientTimeout(60)
            ) as response:
                answer: Object = msgspec.json.decode(await response.read() or b"{}")
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise CallFailed(f"{self.url} did not answer: {str(error) or type(error).__name__}") from None
        if response.status >= 400:
            raise self._failure(response.status, answer)
        return answer

    def _failure(self, status: int, answer: Object) -> CallFailed:
        told = answer.get("error", {})
        message = told.get("message", f"{self.url} answered {status}")
        if status == 401:
            message = f"The server at {self.url} needs a key, and HOLDFAST_API_KEY holds none that it knows."
        return CallFailed(message, told.get("code", ""), status)

    async def events(self, run_id: str, after: int = 0, patience: float = 30.0) -> AsyncGenerator[Object]:
        """Yield a run's events to its settlement, and go on by itself where the connection breaks."""
        loop = asyncio.get_running_loop()
        last_heard = loop.time()
        while True:
            try:
                async for event in self._read(run_id, after):
                    last_heard, after = loop.time(), event.get("seq", after)
                    yield event
                    if event["type"] == "run.settled":
                        return
            except (aiohttp.ClientError, OSError) as error:
                if loop.time() - last_heard > patience:
                    raise CallFailed(f"The connection broke and could not be made again: {error}") from None
            await asyncio.sleep(0.3)

    async def _read(self, run_id: str, after: int) -> AsyncGenerator[Object]:
        decoder = SSEDecoder()
        url = f"{self.url}/api/runs/{run_id}/events"
        async with self._http.get(url, params={"after": after}, timeout=aiohttp.ClientTimeout(None)) as response:
            if response.status in _COMES_BACK:
                raise aiohttp.ClientConnectionError(f"{self.url} answered {response.status}")
            if response.status != 200:
                raise self._failure(response.status, _loosely(await response.read()))
            async for read in response.content.iter_any():
                for _, data in decoder.feed(read):
                    yield msgspec.json.decode(data)

    async def stream(self, method: str, path: str, body: Object | None = None) -> AsyncGenerator[tuple[str, Object]]:
        """Yield the events of any other stream by their names, for as long as the connection holds."""
        decoder = SSEDecoder(max_event=256 * 1024 * 1024)
        headers, forever = {"Accept": "text/event-stream"}, aiohttp.ClientTimeout(None)
        try:
            async with self._http.request(
                method, self.url + path, json=body, headers=headers, timeout=forever
            ) as response:
                if response.status != 200:
                    raise self._failure(response.status, _loosely(await response.read()))
                async for read in response.content.iter_any():
                    for name, data in decoder.feed(read):
                        yield name.decode(), msgspec.json.decode(data)
        except (aiohttp.ClientError, OSError) as error:
            raise CallFailed(f"The connection broke: {str(error) or type(error).__name__}") from None


_COMES_BACK = (502, 503, 504)
"""What a server that is being started again answers, or the proxy before it."""


def _loosely(body: bytes) -> Object:
    """Return an answer's object; an empty one where somebody else has answered, in a shape of their own."""
    try:
        return msgspec.json.decode(body, type=Object)
    except msgspec.DecodeError:
        return {}


@asynccontextmanager
async def connect(url: str | None, data: str | None, config: str | None) -> AsyncGenerator[Api]:
    """Find the server: the one that was named, the one that runs here, or one of our own for as long as we need it."""
    settings, sources = load_with_sources({"data": data}, os.environ, config)
    headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    async with aiohttp.ClientSession(headers=headers, trust_env=False) as http:
        here = url or local_url(settings)
        if url or (data is None and await is_there(http, here)):
            yield Api(http, here.rstrip("/"))
            return
        own_server = importlib.import_module(".own", __package__).own_server  # a third of the start, seldom needed
        async with own_server(settings, sources) as own:
            yield Api(http, own)


def local_url(settings: Settings) -> str:
    """Return where a server with these settings is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


async def is_there(http: aiohttp.ClientSession, url: str) -> bool:
    """Tell whether a server answers there, and not somebody else."""
    with suppress(aiohttp.ClientError, TimeoutError, OSError):
        async with http.get(f"{url}/health", timeout=aiohttp.ClientTimeout(1)) as response:
            return response.status == 200 and "status" in _loosely(await response.read())
    return False
