"""What a start needs besides rights: what each limit of starts allows, something left of a budget, and places.

They are taken together, all of them or none, and given back once if nothing starts.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from ...engine.core import Core
from ...events import Usage
from ...ids import ModelName
from ...runs.admission import Places
from ...store import Charge, Payer, RunRecord


class StartLimit(Protocol):
    """A limit of the starts of each owner."""

    @property
    def is_set(self) -> bool:
        """Whether there is a limit at all: a start without limits needs no task of its own."""
        ...

    async def take(self, owner: str, starts: int = 1) -> None:
        """Take so many starts, or raise the refusal."""
        ...

    async def give_back(self, owner: str, starts: int = 1) -> None:
        """Give back what was taken by starts that did not happen."""
        ...


class Ledger(Protocol):
    """The budgets of payers. Each method raises if the payer has nothing left."""

    async def open(self, record: RunRecord) -> None: ...
    async def drop(self, run_id: str) -> None: ...
    async def require(self, payer: Payer, models: Sequence[ModelName]) -> None: ...
    async def begin_request(self, payer: Payer, model: ModelName, usage: Usage, *, of_calls: bool) -> Charge: ...


class Room:
    """Reserves what starts need. The engine itself takes the place of a single run."""

    def __init__(self, engine: Core, limits: Sequence[StartLimit], ledger: Ledger) -> None:
        self._engine = engine
        self._limits = [limit for limit in limits if limit.is_set]
        self._ledger = ledger

    def is_free(self, payer: Payer) -> bool:
        """Return whether a run of this payer needs nothing but a place."""
        return not payer.limited and not self._limits

    async def reserve(self, record: RunRecord, *, is_counted: bool) -> AsyncExitStack:
        """Reserve what a run needs. It is given back when the returned stack is closed, unless that was emptied.

        `is_counted`: the start of the minute was taken before, for several runs together.
        """
        async with AsyncExitStack() as taken:
            if not is_counted:
                await self._take(taken, record.payer.owner or record.owner, 1)
            if record.payer.limited:
                await self._ledger.open(record)
                taken.push_async_callback(self._ledger.drop, record.id)
            return taken.pop_all()

    @asynccontextmanager
    async def reserve_all(self, payer: Payer, models: Sequence[ModelName], *, at_once: int) -> AsyncGenerator[Places]:
        """Reserve the starts of several runs, and places for those of them that run at once.

        All is given back if the block raises. Each run opens its charge itself.
        """
        async with AsyncExitStack() as taken:
            await self._take(taken, payer.owner, len(models))
            await self._ledger.require(payer, models)
            with await self._engine.reserve(payer.owner, at_once) as places:
                yield places
            taken.pop_all()

    async def begin_request(self, payer: Payer, model: ModelName, usage: Usage, *, of_calls: bool) -> Charge:
        """Reserve what a request needs that is passed on to an upstream, and return its charge."""
        async with AsyncExitStack() as taken:
            await self._take(taken, payer.owner, 1)
            charge = await self._ledger.begin_request(payer, model, usage, of_calls=of_calls)
            taken.pop_all()
        return charge

    async def _take(self, taken: AsyncExitStack, owner: str, starts: int) -> None:
        for limit in self._limits:
            await limit.take(owner, starts)
            taken.push_async_callback(limit.give_back, owner, starts)
