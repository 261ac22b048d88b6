"""A process's connection to the store: slow, away, or in error after it has done its work."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.rows.transactions import Writing
from holdfast.store.sqlite.driver import DIALECT

from .scenario import AT_ONCE

if TYPE_CHECKING:
    from .world import Server, World


class Medium(MemoryStore):
    """The store of all servers, which a crash leaves behind: with the transactions that ship, or with a mistake."""

    def __init__(self, clock: Callable[[], float], transactions: type[Writing] = Writing) -> None:
        super().__init__(clock)
        self.rows = transactions(DIALECT, clock)

    def sql(self, text: str, **values: Any) -> list[sqlite3.Row]:
        """Look at the rows, or change them."""
        return self.db.execute(text, values).fetchall()


def peek(work: Coroutine[Any, Any, Any]) -> Any:
    """Return what a method of the memory store answers, now: none of them ever suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the memory store has suspended")


class Connection:
    """Passes every call on to the medium, with the faults of the weather.

    A call may take time before and after it takes effect, may fail before it takes effect, or after: then the caller
    sees an error although the work is done.
    """

    def __init__(self, world: World, medium: Medium, server: Server) -> None:
        self.world = world
        self.medium = medium
        self.server = server

    def listen(self, node_id: str, on_hint: Callable[[str, str], None]) -> Callable[[], None]:
        """Pass hints on to the process, late, or not at all."""

        def pass_on(topic: str, id: str) -> None:
            weather, random = self.world.weather, self.world.random
            if not self.world.store_is_away(self.server) and random() >= weather.loses_hints:
                self.world.loop.call_later(random() * 0.01, on_hint, topic, id, context=self.server.context)

        return self.medium.listen(node_id, pass_on)

    async def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        weather, random = self.world.weather, self.world.random
        await self._delay()
        if self.world.store_is_away(self.server) or random() < weather.fails_before:
            self.world.note_failure(name, self.server)
            self.world.say(f"store: {name} fails")
            raise StoreUnavailable("the store is away")
        result = await getattr(self.medium, name)(*args, **kwargs)
        self.world.note_call(name, args, kwargs, result)
        await self._delay()
        if random() < self.world.weather.fails_after:
            self.world.note_failure(name, self.server)
            self.world.say(f"store: {name} is done, but fails for its caller")
            raise StoreUnavailable("the store did not answer")
        return result

    async def _delay(self) -> None:
        delays = self.world.weather.delays
        delay = delays[int(self.world.random() * len(delays))]
        if delay != AT_ONCE:
            await asyncio.sleep(delay)


def _passing_on(name: str) -> Callable[..., Any]:
    def call(self: Connection, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return self._call(name, args, kwargs)

    return call


for _name in (name for name in dir(Store) if not name.startswith("_") and name != "listen"):
    setattr(Connection, _name, _passing_on(_name))
