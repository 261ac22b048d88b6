"""A pooler in front of PostgreSQL that gives each transaction any free connection, as pgbouncer does by default."""

import asyncio
import contextlib
import struct
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.ports import free_port

SSL_REQUEST = 80_877_103


class Backend(NamedTuple):
    """A connection to PostgreSQL, and what it has said at its start."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: bytes


class TransactionPooler:
    """Listens within the block. The connection that was used last is given out first."""

    def __init__(self, to: int) -> None:
        self.port = free_port()
        self._to = to
        self._idle: list[Backend] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for backend in self._idle:
            backend.writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):  # one end has left
            await self._serve(reader, writer)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        startup = await _startup(reader, writer)
        backend = self._idle.pop() if self._idle else await self._connect(startup)
        writer.write(backend.greeting)
        self._idle.append(backend)
        reading = asyncio.create_task(_message(reader))
        try:
            while True:
                first = await reading
                reading = asyncio.create_task(_message(reader))
                backend = self._idle.pop() if self._idle else await self._connect(startup)
                backend.writer.write(first)
                reading = await self._carry(reading, reader, backend, writer)
                self._idle.append(backend)
        finally:
            reading.cancel()

    async def _carry(
        self,
        reading: asyncio.Task[bytes],
        reader: asyncio.StreamReader,
        backend: Backend,
        writer: asyncio.StreamWriter,
    ) -> asyncio.Task[bytes]:
        """Pass messages on until the transaction ends, and return the task that reads what comes then."""
        answering = asyncio.create_task(_until_idle(backend.reader, writer))
        try:
            while not answering.done():
                await asyncio.wait({reading, answering}, return_when=asyncio.FIRST_COMPLETED)
                if reading.done() and not answering.done():
                    backend.writer.write(reading.result())
                    reading = asyncio.create_task(_message(reader))
            answering.result()
            return reading
        except BaseException:  # one of both has left in the middle
            answering.cancel()
            backend.writer.transport.abort()
            raise

    async def _connect(self, startup: bytes) -> Backend:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._to)
        writer.write(startup)
        greeting = message = await _message(reader)
        while message[:1] != b"Z":
            message = await _message(reader)
            greeting += message
        return Backend(reader, writer, greeting)


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    while True:
        head = await reader.readexactly(8)
        size, version = struct.unpack("!II", head)
        if version != SSL_REQUEST:
            return head + await reader.readexactly(size - 8)
        writer.write(b"N")


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    if head[:1] == b"X":
        raise EOFError  # the client says that it leaves
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


async def _until_idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass answers on, up to the one that ends a transaction."""
    message = b""
    while message[:1] != b"Z" or message[5:6] != b"I":
        message = await _message(reader)
        writer.write(message)
    await writer.drain()
