"""Hints between nodes, by LISTEN and NOTIFY. A lost hint delays work, and loses no data."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from asyncpg import Connection

from ..nodes import OnHint
from .connections import DRIVER_ERRORS, connect_to_postgres

logger = logging.getLogger(__name__)

_ALL = "holdfast"
_MOST_BYTES = 7000  # of a payload: PostgreSQL accepts fewer than 8000
_PULSE_SECONDS = 5.0  # between two checks of the connection
_SECONDS_BETWEEN = 0.5  # two attempts to connect

_decode = msgspec.json.Decoder(tuple[str, list[str]]).decode


def channel_of(node_id: str) -> str:
    """Return the channel of a node, or of all nodes. PostgreSQL allows 63 characters."""
    return f"{_ALL}_{hashlib.sha256(node_id.encode()).hexdigest()[:32]}" if node_id else _ALL


def payloads(topic: str, ids: Sequence[str]) -> Iterator[str]:
    """Yield the payloads that carry all ids, each small enough to be sent."""
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
    """Listens on a separate connection, opened at the first `listen`, and reopened whenever it breaks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._listeners: dict[str, OnHint] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.foreign = 0
        """The number of notifications that no server has sent: any user of the database may send one."""

    def listen(self, node_id: str, on_hint: OnHint) -> Callable[[], None]:
        """Call `on_hint` with each hint for a node, until the returned function is called."""
        self._listeners[node_id] = on_hint
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="holdfast-hints")

        def end() -> None:
            if self._listeners.get(node_id) is on_hint:
                del self._listeners[node_id]
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
                await self._listen_until_broken()
            except DRIVER_ERRORS as error:
                logger.debug("the connection for hints has broken: %s", type(error).__name__)
            await asyncio.sleep(_SECONDS_BETWEEN)

    async def _listen_until_broken(self) -> None:
        connection = await connect_to_postgres(self._url)
        try:
            listened: set[str] = set()
            connection.add_termination_listener(lambda _: self._changed.set())
            while not connection.is_closed():
                self._changed.clear()
                async with asyncio.timeout(_PULSE_SECONDS):
                    listened = await self._subscribe(connection, listened)
                    await connection.fetchval("SELECT 1")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PULSE_SECONDS):
                        await self._changed.wait()
        finally:
            connection.terminate()

    async def _subscribe(self, connection: Connection, listened: set[str]) -> set[str]:
        """Listen on the channels of all nodes of this process, and wake the new ones: they missed earlier hints."""
        channels = {_ALL, *map(channel_of, self._listeners)}
        for channel in channels - listened:
            await connection.add_listener(channel, self._pass_on)
        for channel in listened - channels:
            await connection.remove_listener(channel, self._pass_on)
        for node_id, on_hint in list(self._listeners.items()):
            if channel_of(node_id) not in listened:
                on_hint("", "")
        return channels

    def _pass_on(self, _connection: Any, _process: int, channel: str, payload: object) -> None:
        try:
            topic, ids = _decode(str(payload))
        except msgspec.DecodeError:
            self._note_foreign(channel)
            return
        for node_id, on_hint in list(self._listeners.items()):
            for id in ids if channel in (_ALL, channel_of(node_id)) else ():
                on_hint(topic, id)

    def _note_foreign(self, channel: str) -> None:
        """Count a notification that is no hint, and log the first one: thousands must not fill the log."""
        self.foreign += 1
        if self.foreign == 1:
            logger.warning(
                "a notification on the channel %s is not from a server of this store, and was ignored. Another program "
                "uses this database: give it another one. Further ones are not logged",
                channel,
            )
