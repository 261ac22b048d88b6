"""A TCP proxy that cuts its connections, refuses new ones, delays, falls silent, or leads to another port."""

import asyncio
from types import TracebackType
from typing import Self

from tests.support.ports import free_port


class TcpProxy:
    """Carries bytes to a port and back."""

    def __init__(self, to: int, *, host: str = "127.0.0.1", port: int | None = None) -> None:
        self.host = host
        self.port = free_port() if port is None else port
        self.to = to
        """The port that new connections lead to."""
        self.seen = bytearray()
        """All that was carried, in both directions."""
        self.delay = 0.0
        """Seconds that each piece of data waits."""
        self._server: asyncio.Server | None = None
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._speaks.set()
        for _ in range(5):  # turns of the loop, in which a connection that was just taken reaches `_accept`
            await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks)
        for _ in range(5):  # in which what was reset is closed
            await asyncio.sleep(0)

    async def listen(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._accept, self.host, self.port)

    def cut(self) -> None:
        """Reset every connection, and refuse new ones until `listen`."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    def fall_silent(self) -> None:
        """Take connections and bytes, and pass nothing on until `speak`."""
        self._speaks.clear()

    def speak(self) -> None:
        """Pass on what was held back, and what comes."""
        self._speaks.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on a connection. One that was taken right before a cut is reset as well."""
        if self._server is None or not self._server.is_serving():
            writer.transport.abort()
            return
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
            self._writers.add(back)
            try:
                await asyncio.gather(self._carry(reader, back), self._carry(there, writer))
            finally:
                self._end(back)
        except OSError:
            pass  # one end has left, or nothing listens there
        finally:
            self._end(writer)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if self.delay:
                await asyncio.sleep(self.delay)
            await self._speaks.wait()
            self.seen += data
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
