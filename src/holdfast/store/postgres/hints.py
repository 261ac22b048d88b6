"""Hints between nodes, by LISTEN and NOTIFY. One that is lost delays, and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from asyncpg import Connection

from ..hints import Hear
from .connections import DRIVER_ERRORS, connect_to_postgres

logger = logging.getLogger(__name__)

_ALL = "holdfast"
_MOST_BYTES = 7000  # of a payload: PostgreSQL takes fewer than 8000
_PULSE_SECONDS = 5.0  # between two questions whether the connection still answers
_SECONDS_BETWEEN = 0.5  # two attempts to connect

_decode = msgspec.json.Decoder(tuple[str, list[str]]).decode


def channel_of(keeper: str) -> str:
    """Return the channel of a node, or of all nodes. A channel's name has at most 63 characters."""
    return f"{_ALL}_{hashlib.sha256(keeper.encode()).hexdigest()[:32]}" if keeper else _ALL


def payloads(topic: str, ids: Sequence[str]) -> Iterator[str]:
    """Yield hints of a size that can be sent, together with all ids."""
    part: list[str] = []
    size = 0
    for id in ids:
        if part and size + len(id.encode()) + 4 > _MOST_BYTES:
            yield msgspec.json.encode((topic, part)).decode()
            part, size = [], 0
        part.append(id)
        size += len(id.encode()) + 4
    if part:
        yield msgspec.json.encode((topic, part)).decode()


class HintListener:
    """Listens on a connection of its own, opened at the first `listen`, and again whenever it breaks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._hearers: dict[str, Hear] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def listen(self, keeper: str, hear: Hear) -> Callable[[], None]:
        """Call `hear` with each hint for a node, until the returned function is called."""
        self._hearers[keeper] = hear
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="holdfast-hints")

        def end() -> None:
            if self._hearers.get(keeper) is hear:
                del self._hearers[keeper]
                self._changed.set()

        return end

    async def close(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._hear_until_it_breaks()
            except DRIVER_ERRORS as error:
                logger.debug("the connection for hints has broken: %s", type(error).__name__)
            await asyncio.sleep(_SECONDS_BETWEEN)

    async def _hear_until_it_breaks(self) -> None:
        connection = await connect_to_postgres(self._url)
        try:
            known: set[str] = set()
            connection.add_termination_listener(lambda _: self._changed.set())
            while not connection.is_closed():
                self._changed.clear()
                async with asyncio.timeout(_PULSE_SECONDS):
                    known = await self._subscribe(connection, known)
                    await connection.fetchval("SELECT 1")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PULSE_SECONDS):
                        await self._changed.wait()
        finally:
            connection.terminate()

    async def _subscribe(self, connection: Connection, known: set[str]) -> set[str]:
        """Listen on the channels of all nodes here, and wake those that are new: hints before this one were lost."""
        wanted = {_ALL, *map(channel_of, self._hearers)}
        for channel in wanted - known:
            await connection.add_listener(channel, self._heard)
        for channel in known - wanted:
            await connection.remove_listener(channel, self._heard)
        for keeper, hear in list(self._hearers.items()):
            if channel_of(keeper) not in known:
                hear("", "")
        return wanted

    def _heard(self, _connection: Any, _process: int, channel: str, payload: object) -> None:
        topic, ids = _decode(str(payload))
        for keeper, hear in list(self._hearers.items()):
            for id in ids if channel in (_ALL, channel_of(keeper)) else ():
                hear(topic, id)
