"""The connections between nodes: each follows logs at the owners of runs, and asks for runs that are not stored.

A connection carries one log, or one answer. It is TLS, with certificates that both sides make from the cluster key: a
handshake proves that both have it, and what follows can be neither read nor changed by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import math
import socket
import ssl
import struct
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Literal

import msgspec

from ..concurrency.tasks import OwnedTasks
from ..engine.core import Core
from ..errors import OwnerSilent
from ..events import StoppedBy
from ..log.segment import NOTHING, Segment, decode_segment, encode_segment
from ..nodes.intents import PATIENCE
from ..nodes.remote_log import SILENCE, Take
from ..nodes.unstored import FoundRun
from ..runs.run import Run
from .unproven import Unproven

if TYPE_CHECKING:
    from .certificates import ClusterContexts

logger = logging.getLogger(__name__)

SIGN_OF_LIFE = 0.5
"""Seconds after which a node that has nothing to send says that it lives."""
_SECONDS_BETWEEN_WARNINGS = 60.0
_PAUSE = 0.1  # seconds after which a connection is accepted again, if there was no room for one
_LONGEST_REQUEST = 4096
_LONGEST_ID = 200  # characters, each of at most six bytes in JSON
_FRAME = struct.Struct("!QI")  # the number of the first event, and the bytes that follow


class _Request(msgspec.Struct, frozen=True):
    run_id: str
    after: int = 0
    hold: bool = False
    ask: Literal["log", "run", "stop"] = "log"
    by: StoppedBy = "user"


class Peers:
    """Follows logs at other nodes. `follow` is what an engine is given."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._context: ssl.SSLContext | None = None

    async def follow(self, address: str, run_id: str, after: int, *, hold: bool, take: Take) -> None:
        """Follow a log at its owner, until it ends or the connection does."""
        async with self._asked(address, _Request(run_id, after, hold)) as reader:
            while True:
                async with asyncio.timeout(SILENCE):
                    first, size = _FRAME.unpack(await reader.readexactly(_FRAME.size))
                    body = await reader.readexactly(size)
                await take(first, decode_segment(body) if body else NOTHING)

    async def find(self, address: str, run_id: str) -> FoundRun | None:
        """Return a run that is not stored; None if the node does not have it, or does not answer."""
        try:
            async with self._asked(address, _Request(run_id, ask="run")) as reader, asyncio.timeout(SILENCE):
                return msgspec.json.decode(await _whole(reader), type=FoundRun)
        except (OSError, EOFError, ValueError, TimeoutError):
            return None

    async def stop(self, address: str, run_id: str, by: StoppedBy) -> bool:
        """Stop a run that is not stored, and wait for its settlement. True if that is why it ended."""
        try:
            async with self._asked(address, _Request(run_id, ask="stop", by=by)) as reader, asyncio.timeout(PATIENCE):
                return msgspec.json.decode(await _whole(reader), type=bool)
        except (OSError, EOFError, ValueError, TimeoutError):
            raise OwnerSilent(run_id, taken=True) from None

    @contextlib.asynccontextmanager
    async def _asked(self, address: str, request: _Request) -> AsyncGenerator[asyncio.StreamReader]:
        """Ask another node. Its answer can be read within the block. `ValueError` for an id that no node accepts."""
        if len(request.run_id) > _LONGEST_ID:
            raise ValueError("The id of the run is too long.")
        async with asyncio.timeout(SILENCE):
            reader, writer = await self._connection(address)
        try:
            body = msgspec.json.encode(request)
            writer.write(len(body).to_bytes(4, "big") + body)
            yield reader
        finally:
            writer.transport.abort()  # nothing is left to send, and the owner of an attached run learns of it at once

    async def _connection(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a node. `ssl.SSLError`, an `OSError`, if it has another cluster key."""
        if self._context is None:
            self._context = (await asyncio.to_thread(_contexts, self._key)).client
        host, _, port = address.rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port), ssl=self._context)

    async def has_same_key(self, address: str, *, seconds: float) -> bool:
        """Connect to a node, and return whether it has the key of this one. `OSError` if it does not answer in time."""
        async with asyncio.timeout(seconds):
            try:
                _, writer = await self._connection(address)
            except ssl.SSLCertVerificationError:
                return False
        writer.transport.abort()
        return True


class PeerServer:
    """Sends the logs of an engine's runs to other nodes."""

    def __init__(self, engine: Core, key: str, *, seconds_to_ask: float = SILENCE) -> None:
        self._engine = engine
        self._key = key
        self._context: ssl.SSLContext | None = None
        self._seconds_to_ask = seconds_to_ask
        self._tasks = OwnedTasks("the port for other nodes")
        self._socket: socket.socket | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._unproven = Unproven()
        self._logged_at = -math.inf

    async def start(self, sock: socket.socket) -> None:
        """Listen for other nodes."""
        sock.setblocking(False)
        self._socket = sock
        self._context = (await asyncio.to_thread(_contexts, self._key)).server
        self._tasks.start(self._accept(sock))

    async def close(self) -> None:
        """End all connections, and listen no more."""
        self.cut()
        await self._tasks.cancel()
        if self._socket is not None:
            self._socket.close()

    def cut(self) -> None:
        """End all connections. The other nodes go on with the store, and come back."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _accept(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(sock)
            except OSError as error:
                logger.warning("the port for other nodes accepts no connection: %s", error)
                await asyncio.sleep(_PAUSE)
            else:
                self._tasks.start(self._connected(connection, address[0]))

    async def _connected(self, connection: socket.socket, address: str) -> None:
        try:
            async with asyncio.timeout(self._seconds_to_ask) as limit:
                with self._unproven.place(address, limit):
                    reader, writer = await self._proven(connection)
                request = await _request_in(reader, writer)
        except (OSError, EOFError, ValueError):
            pass  # the other side has proven nothing, has asked for nothing in time, or has gone
        else:
            await self._answered(request, reader, writer)

    async def _proven(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection whose other side has proven that it has the cluster key, and to which this one has."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=self._context)
        except (ssl.SSLError, ConnectionError):
            self._log_refusal()
            raise
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _answered(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if (run := self._engine.here(request.run_id)) is None:
                return
            if request.ask == "log":
                await self._serve(run, request, reader, writer)
            else:
                await _answer(run, request, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # the other node has gone
        finally:
            self._open.discard(writer)
            writer.close()

    def _log_refusal(self) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _SECONDS_BETWEEN_WARNINGS:
            self._logged_at = now
            logger.warning("a connection to the port for other nodes has another cluster key or none, and was refused")

    async def _serve(
        self, run: Run, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send a log, until it ends or the other node leaves. If that one held an attached run, the run then stops."""
        is_held = request.hold and run.take_hold()
        sending = asyncio.create_task(_send(run, request.after, writer))
        leaving = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            if is_held and run.settlement is None:
                await run.leave()


async def _request_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Request:
    """Return what a node asks for. Without a valid request the connection ends."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > _LONGEST_REQUEST:
            raise ValueError("The request is too long.")
        return msgspec.json.decode(await reader.readexactly(size), type=_Request)
    except BaseException:
        writer.transport.abort()
        raise


async def _whole(reader: asyncio.StreamReader) -> bytes:
    """Return an answer of one frame."""
    _, size = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    return await reader.readexactly(size)


async def _answer(run: Run, request: _Request, writer: asyncio.StreamWriter) -> None:
    """Describe a run, or stop it."""
    if request.ask == "stop":
        answer: object = (await run.stop(request.by)).by_this_call
    else:
        now = msgspec.structs.replace(run.record, status=run.status, seq=run.seq, settlement=run.settlement)
        answer = FoundRun(now, run.text, (await run.log.snapshot())[1].reasoning)
    body = msgspec.json.encode(answer)
    writer.write(_FRAME.pack(0, len(body)) + body)
    await writer.drain()


async def _send(run: Run, after: int, writer: asyncio.StreamWriter) -> None:
    grew = asyncio.Event()
    unwatch = run.log.watch(grew.set)
    try:
        while True:
            grew.clear()
            segment = await run.log.batch(after)
            if segment:
                _write(writer, after + 1, segment)
                after += len(segment)
            elif run.log.closed:
                return
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SIGN_OF_LIFE):
                        await grew.wait()
                if not grew.is_set():
                    writer.write(_FRAME.pack(0, 0))
            await writer.drain()
    finally:
        unwatch()


def _write(writer: asyncio.StreamWriter, first: int, segment: Segment) -> None:
    body = encode_segment(segment)
    writer.write(_FRAME.pack(first, len(body)) + body)


def _contexts(key: str) -> ClusterContexts:
    """Return the contexts of this node. Imported only now: cryptography takes 9 MB, and one server has no peers."""
    contexts: ClusterContexts = importlib.import_module(".certificates", __package__).cluster_contexts(key)
    return contexts
