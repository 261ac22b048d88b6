"""A plain HTTP/1.1 client that hides nothing: where an answer broke off, when it was left, what was not read.

A connection for each call. Bytes are read only when asked for, so a reader that stalls is one that does not ask.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

__all__ = ["Broken", "Http", "Reply"]


class Broken(ConnectionError):
    """The connection ended before the answer did."""


class Reply:
    """One answer: its status and headers, and its body as far as it is read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.name = ""
        """What the client called the answer, where the wire lets it."""
        self._reader, self._writer = reader, writer

    async def head(self) -> Reply:
        """Read status and headers."""
        try:
            while self.status < 200:
                raw = await self._reader.readuntil(b"\r\n\r\n")
                first, *lines = raw.decode("latin-1").strip().split("\r\n")
                self.status = int(first.split(" ")[1])
                pairs = (line.partition(":") for line in lines)
                self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        except (asyncio.IncompleteReadError, IndexError, ValueError, ConnectionError):
            raise Broken("the connection ended before there was an answer") from None
        return self

    @property
    def is_stream(self) -> bool:
        """Whether it is an event stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def reads(self) -> AsyncGenerator[bytes]:
        """Yield the body as it comes; raise `Broken` where it ends before its framing says so."""
        if self.status in (204, 304):
            return
        try:
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                async for data in self._chunks():
                    yield data
            elif "content-length" in self.headers:
                yield await self._reader.readexactly(int(self.headers["content-length"]))
            else:
                while data := await self._reader.read(65536):
                    yield data
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            raise Broken("the connection ended inside of the answer") from None

    async def _chunks(self) -> AsyncGenerator[bytes]:
        while size := int((await self._reader.readline()).partition(b";")[0], 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()

    async def body(self) -> bytes:
        """Read all of the body, then leave."""
        try:
            return b"".join([data async for data in self.reads()])
        finally:
            self.leave()

    async def json(self) -> Any:
        """Read all of the body as JSON; None where it is none."""
        try:
            return msgspec.json.decode(await self.body())
        except msgspec.DecodeError:
            return None

    def leave(self) -> None:
        """Go away now."""
        self._writer.transport.abort()


class Http:
    """Calls to one server. `url` is the address that OpenAI's clients would be given, with `/v1` where it has that."""

    def __init__(self, url: str, key: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self.root = self.url.removesuffix("/v1")
        self._headers = ({"Authorization": f"Bearer {key}"} if key else {}) | dict(headers or {})

    async def call(self, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request and wait for status and headers. `url` is whole."""
        reply = await self.send(method, url, body, headers)
        try:
            return await reply.head()
        except BaseException:
            reply.leave()
            raise

    async def send(self, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request, and do not wait."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        context = ssl.create_default_context() if secure else None
        data = b"" if body is None else msgspec.json.encode(body)
        given = {"Host": parts.netloc, "Content-Type": "application/json", "Content-Length": str(len(data))}
        given |= {"Accept-Encoding": "identity", **self._headers, **(headers or {})}
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
            writer.write("\r\n".join(lines).encode("latin-1") + data)
            await writer.drain()
        except OSError as error:
            raise Broken(f"cannot connect to {parts.netloc}: {error.strerror or error}") from None
        return Reply(reader, writer)
