"""The network between a browser and the server, as a cable that can be pulled; and a watched place elsewhere."""

import asyncio
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.support.ports import free_port


class Listener:
    """A TCP server that knows its connections, from the moment at which it accepts them.

    A server of asyncio keeps connections that it is about to accept when it is closed, and serves them.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self._socket: socket.socket | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def listen(self) -> None:
        self._socket = listening = socket.create_server(("127.0.0.1", self.port), backlog=100)
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Refuse connections from now on, and reset those that are open."""
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
        except ConnectionError:
            pass  # the other end left
        finally:
            self._open.discard(writer)
            writer.transport.abort()


class Cable(Listener):
    """Carries bytes to a port and back, until it is pulled, or falls silent: then no end learns that they are lost."""

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to
        self._silences = 0
        self._is_silent = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pull(self) -> None:
        self.close()

    async def plug_in(self) -> None:
        await self.listen()

    def fall_silent(self) -> None:
        """Swallow all bytes from now on."""
        self._silences, self._is_silent = self._silences + 1, True

    def speak_again(self) -> None:
        """Carry what new connections bring. Those of before stay silent for ever."""
        self._is_silent = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._open.add(back)
        before = self._silences - self._is_silent

        def carries() -> bool:
            return before == self._silences

        try:
            ways = [
                asyncio.create_task(_copy(reader, back, carries)),
                asyncio.create_task(_copy(there, writer, carries)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            back.transport.abort()
            writer.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._open.discard(back)


class Elsewhere(Listener):
    """Every host whose name ends in `.example`, as far as the browser knows. It says nothing and counts who comes."""

    def __init__(self) -> None:
        super().__init__()
        self.visits = 0
        self.visited = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        self.visited.set()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, carries: Callable[[], bool]) -> None:
    while data := await reader.read(65536):
        if carries():
            writer.write(data)
            await writer.drain()
