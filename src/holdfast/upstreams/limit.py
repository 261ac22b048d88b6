"""A concurrency limit of a provider: further requests wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from ..errors import AnswerLost, Unsupported
from ..events import Notice, Outlet
from . import Attaching, ChatRequest, Explaining, Forwarded, Forwarding, Provider, Reporting, has_model, provider_state
from .efforts import efforts_of
from .facts import ModelFacts, facts_of

PATIENCE = 1.0
"""Seconds of waiting before a run gets a notice about it."""
REMINDER = 20.0
"""Seconds between further notices, so that the idle timeout does not end a run that waits."""


@contextmanager
def turn_of(turns: asyncio.Semaphore) -> Iterator[asyncio.Task[bool]]:
    """Yield a task that ends when the turn has come. The end of the block releases the turn, or cancels the wait."""
    turn = asyncio.create_task(turns.acquire())
    try:
        yield turn
    finally:
        if not turn.cancel():
            turns.release()


class LimitedProvider:
    """A provider with at most `most` concurrent answers. Further requests wait, first come, first served.

    Costs one small task for each run that waits or is answered.
    """

    def __init__(self, provider: Provider, most: int) -> None:
        self.name = provider.name
        self.models = provider.models
        self.prefills = provider.prefills
        self.think = provider.think
        self.demo = provider.demo
        self.is_local = getattr(provider, "is_local", False)
        self.attaches = isinstance(provider, Attaching) and provider.attaches
        self.attaches_anywhere = self.attaches and getattr(provider, "attaches_anywhere", False)
        self.tools = getattr(provider, "tools", True)
        self._provider = provider
        self._most = most
        self._turns = asyncio.Semaphore(most)

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Wait for a turn, then answer. The turn ends with the answer, even if the answer fails."""
        async with self._turn(out):
            await self._provider.answer(request, out)

    async def attach(self, name: str, out: Outlet, *, text: str = "", reasoning: str = "") -> None:
        """Wait for a turn, then attach to an answer: the upstream works on it like on any other."""
        provider = self._provider
        if not isinstance(provider, Attaching):
            raise AnswerLost(f"{self.name} does not tell an answer twice.")
        async with self._turn(out):
            await provider.attach(name, out, text=text, reasoning=reasoning)

    @asynccontextmanager
    async def _turn(self, out: Outlet) -> AsyncIterator[None]:
        """Hold a turn. Notices are emitted during the wait for it."""
        patience = PATIENCE
        with turn_of(self._turns) as turn:
            while not (await asyncio.wait({turn}, timeout=patience))[0]:
                out.emit([Notice("waiting", f"Waiting for a turn: {self.name} answers {self._most} at a time.")])
                patience = REMINDER
            yield

    async def forward(self, path: str, body: bytes, content_type: str, limit: int) -> Forwarded:
        """Wait for a turn, then forward a request."""
        provider = self._provider
        if not isinstance(provider, Forwarding):
            raise Unsupported(f"{self.name} can only chat.", "model")
        async with self._turns:
            return await provider.forward(path, body, content_type, limit)

    async def has(self, model: str) -> bool | None:
        """Return whether the upstream has a model; None if its list cannot tell."""
        return await has_model(self._provider, model)

    async def facts(self, model: str) -> ModelFacts:
        """Return what is known of a model."""
        return await facts_of(self._provider, model)

    def efforts(self, model: str) -> tuple[str, ...]:
        """Return the values of `reasoning_effort` that a model takes."""
        return efforts_of(self._provider, model)

    async def list_models(self) -> list[str]:
        """Return the provider's models."""
        return await self._provider.list_models()

    async def answers(self) -> bool:
        """Return whether the upstream can be reached."""
        return (await provider_state(self._provider)).ok

    @property
    def is_away(self) -> bool:
        """True if the last request to the upstream had no response."""
        return isinstance(self._provider, Reporting) and self._provider.is_away

    def why_not(self) -> str | None:
        """Return why the upstream cannot be used; None if the reason is unknown."""
        return self._provider.why_not() if isinstance(self._provider, Explaining) else None

    async def close(self) -> None:
        """Close the provider's connections."""
        await self._provider.close()
