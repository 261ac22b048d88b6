"""The connections between nodes: each follows logs at the owners of runs, and asks for runs that are not stored.

A connection carries one log, or one answer. The node that asks proves with an HMAC that it has the cluster's key, and
so does the one that answers. What they send is not encrypted: the port belongs into a network of the nodes' own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
import os
import socket
import struct
import time
from collections.abc import AsyncGenerator
from typing import Literal

import msgspec

from ..engine.engine import Engine
from ..errors import OwnerSilent
from ..events import StoppedBy
from ..log.segment import NOTHING, Segment, decode_segment, encode_segment
from ..nodes.intents import PATIENCE
from ..nodes.remote_log import SILENCE, Take
from ..nodes.unstored import FoundRun
from ..runs.run import Run

logger = logging.getLogger(__name__)

SIGN_OF_LIFE = 0.5
"""Seconds after which a node that has nothing to send says that it lives."""
MOST_UNPROVEN = 100
"""Maximum number of connections that have not proven yet that they have the cluster's key."""
_SECONDS_BETWEEN_WARNINGS = 60.0
_PROOF = 32  # bytes of a nonce, and of an HMAC
_LONGEST_REQUEST = 4096
_LONGEST_ID = 200  # characters, each of at most six bytes in JSON
_FRAME = struct.Struct("!QI")  # the number of the first event, and the bytes that follow


class _Request(msgspec.Struct, frozen=True):
    run_id: str
    after: int = 0
    hold: bool = False
    ask: Literal["log", "run", "stop"] = "log"
    by: StoppedBy = "user"


def _proof(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), "sha256")


class Peers:
    """Follows logs at other nodes. `follow` is what an engine is given."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

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
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(SILENCE):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            async with asyncio.timeout(SILENCE):
                await self._ask(reader, writer, request)
            yield reader
        finally:
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: _Request) -> None:
        nonce, body, own = await reader.readexactly(_PROOF), msgspec.json.encode(request), os.urandom(_PROOF)
        writer.write(_proof(self._key, b"ask", nonce, own, body) + own + len(body).to_bytes(4, "big") + body)
        if not hmac.compare_digest(_proof(self._key, b"answer", own), await reader.readexactly(_PROOF)):
            raise ValueError("The other node has another cluster key.")

    async def has_same_key(self, address: str, *, seconds: float) -> bool:
        """Connect to a node, and return whether it has the key of this one. `OSError` if it does not answer in time."""
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                await self._ask(reader, writer, _Request("", 0))
            except (EOFError, ValueError):
                return False
            finally:
                writer.close()
        return True


class PeerServer:
    """Sends the logs of an engine's runs to other nodes."""

    def __init__(self, engine: Engine, key: str, *, seconds_to_ask: float = SILENCE) -> None:
        self._engine = engine
        self._key = key.encode()
        self._seconds_to_ask = seconds_to_ask
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._unproven = 0
        """Connections that have not proven yet that they have the cluster's key."""
        self._logged_at = -math.inf

    async def start(self, sock: socket.socket) -> None:
        """Listen for other nodes."""
        self._server = await asyncio.start_server(self._connected, sock=sock)

    async def close(self) -> None:
        """End all connections, and listen no more."""
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()

    def cut(self) -> None:
        """End all connections. The other nodes go on with the store, and come back."""
        for writer in list(self._open):
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._unproven >= MOST_UNPROVEN:
            writer.close()
            return
        self._open.add(writer)
        try:
            self._unproven += 1
            try:
                async with asyncio.timeout(self._seconds_to_ask):
                    request = await self._request(reader, writer)
            finally:
                self._unproven -= 1
            run = None if request is None else self._engine.here(request.run_id)
            if run is None or request is None:
                return
            if request.ask == "log":
                await self._serve(run, request, reader, writer)
            else:
                await _answer(run, request, writer)
        except (OSError, EOFError, TimeoutError, msgspec.MsgspecError):
            pass  # the other node has gone
        finally:
            self._open.discard(writer)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Request | None:
        """Return what a node asks for; None if it does not have the cluster's key."""
        nonce = os.urandom(_PROOF)
        writer.write(nonce)
        proof, own = await reader.readexactly(_PROOF), await reader.readexactly(_PROOF)
        size = int.from_bytes(await reader.readexactly(4), "big")
        body = await reader.readexactly(size) if size <= _LONGEST_REQUEST else b""
        if not hmac.compare_digest(_proof(self._key, b"ask", nonce, own, body), proof):
            self._log_refusal()
            return None
        writer.write(_proof(self._key, b"answer", own))
        return msgspec.json.decode(body, type=_Request)

    def _log_refusal(self) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _SECONDS_BETWEEN_WARNINGS:
            self._logged_at = now
            logger.warning("a connection to the port for other nodes has another cluster key, and was refused")

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
        answer = FoundRun(now, run.text)
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
