"""An HTTP proxy as companies have them: `CONNECT` for https, whole URLs for http, and a password if it is told to."""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

Place = tuple[str, int]


class ForwardProxy:
    """`async with ForwardProxy({"up.test:443": ("127.0.0.1", port)}) as proxy:` leads to these places and no others.

    `login` is what it asks for, as `user:password`. `answers` are bytes that it sends to every request instead.
    `is_mute` lets it accept and say nothing. `tls` encrypts the connections to the proxy itself.
    """

    def __init__(
        self,
        places: Mapping[str, Place],
        *,
        login: str = "",
        answers: bytes = b"",
        is_mute: bool = False,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.port = 0
        self.heads: list[str] = []
        """The head of each request, as it came."""
        self.left = asyncio.Event()
        """A client has closed its connection."""
        self._places = places
        self._login = base64.b64encode(login.encode()).decode() if login else ""
        self._answers = answers
        self._is_mute = is_mute
        self._tls = tls
        self._host = host
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> str:
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{self.place}"

    @property
    def lines(self) -> list[str]:
        """The first line of each request."""
        return [head.partition("\r\n")[0] for head in self.heads]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.die()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def die(self) -> None:
        """Cut every connection, in the middle of whatever it carries."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.left.set()
            writer.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await self._head(reader)
        if self._is_mute:
            await reader.read()
        elif self._answers:
            writer.write(self._answers)
            await writer.drain()
            await reader.read()
        elif self._login and f"Proxy-Authorization: Basic {self._login}" not in head.split("\r\n"):
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await reader.read()
        elif head.startswith("CONNECT "):
            await self._tunnel(head, reader, writer)
        else:
            await self._forward(head, reader, writer)

    async def _head(self, reader: asyncio.StreamReader) -> str:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        return head

    async def _tunnel(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asking = await self._open(head.split(" ")[1], writer)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await self._pipe(reader, writer, answers, asking)

    async def _forward(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the requests of a connection, all of which are for one place."""
        parts = urlsplit(head.split(" ")[1])
        answers, asking = await self._open(f"{parts.hostname}:{parts.port or 80}", writer)
        copying = asyncio.create_task(self._copy(answers, writer))
        try:
            while True:
                first, _, headers = head.partition("\r\n")
                method, url, version = first.split(" ")
                named = [line for line in headers.split("\r\n") if not line.startswith("Proxy-Authorization")]
                path = url.removeprefix(f"{parts.scheme}://{parts.netloc}") or "/"
                asking.write("\r\n".join([f"{method} {path} {version}", *named]).encode())
                lengths = [line.partition(":")[2] for line in named if line.lower().startswith("content-length")]
                asking.write(await reader.readexactly(int(lengths[0]) if lengths else 0))
                await asking.drain()
                head = await self._head(reader)
        finally:
            asking.transport.abort()
            await copying

    async def _open(
        self, place: str, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            answers, asking = await asyncio.open_connection(*self._places[place])
        except KeyError:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            raise ConnectionError from None
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            raise ConnectionError from None
        self._writers.add(asking)
        return answers, asking

    async def _pipe(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        asking: asyncio.StreamWriter,
    ) -> None:
        """Copy both ways. When one side ends, so does the other."""
        await asyncio.gather(self._copy(reader, asking), self._copy(answers, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
