"""TCP servers that are closed at once, and a proxy that cuts its connections, refuses new ones, delays or is silent."""

import asyncio
import socket
from types import TracebackType
from typing import Self

from tests.support.ports import free_port


class Listener:
    """A TCP server that knows its connections, from the moment at which it accepts them.

    A server of asyncio keeps connections that it is about to accept when it is closed, and serves them.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int | None = None) -> None:
        self.host = host
        self.port = free_port() if port is None else port
        self._socket: socket.socket | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def listen(self) -> None:
        """Take connections."""
        self._socket = listening = socket.create_server((self.host, self.port), backlog=100)
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def cut(self) -> None:
        """Reset every connection, and refuse new ones until `listen`."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            return  # the other end left
        task = asyncio.get_running_loop().create_task(self._attend(accepted, listening))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self, accepted: socket.socket, listening: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted)
        self._open.add(writer)
        try:
            if self._socket is listening:  # not closed meanwhile
                await self.serve(reader, writer)
        except OSError:
            pass  # the other end left
        finally:
            self._open.discard(writer)
            writer.transport.abort()


class Relay(Listener):
    """Carries bytes to a port and back, until one end leaves."""

    def __init__(self, to: int, *, host: str = "127.0.0.1", port: int | None = None) -> None:
        super().__init__(host=host, port=port)
        self.to = to
        """The port that new connections lead to."""
        self.count = 0
        """Connections so far."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.to)
        self._open.add(back)
        self.count = number = self.count + 1
        try:
            ways = [
                asyncio.create_task(self._copy(reader, back, number)),
                asyncio.create_task(self._copy(there, writer, number)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            back.transport.abort()
            writer.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._open.discard(back)
            back.transport.abort()

    async def carries(self, data: bytes, number: int) -> bool:
        """Return whether a piece of data of a connection is passed on, as soon as it may be."""
        raise NotImplementedError

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while data := await reader.read(65_536):
            if await self.carries(data, number):
                writer.write(data)
                await writer.drain()


class TcpProxy(Relay):
    """Delays what it carries, or holds it back."""

    def __init__(self, to: int, *, host: str = "127.0.0.1", port: int | None = None) -> None:
        super().__init__(to, host=host, port=port)
        self.seen = bytearray()
        """All that was carried, in both directions."""
        self.delay = 0.0
        """Seconds that each piece of data waits."""
        self._speaks = asyncio.Event()
        self._speaks.set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._speaks.set()
        await super().__aexit__(kind, error, trace)

    def fall_silent(self) -> None:
        """Take connections and bytes, and pass nothing on until `speak`."""
        self._speaks.clear()

    def speak(self) -> None:
        """Pass on what was held back, and what comes."""
        self._speaks.set()

    async def carries(self, data: bytes, number: int) -> bool:
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._speaks.wait()
        self.seen += data
        return True
