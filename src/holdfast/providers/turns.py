"""A provider that answers only so many at once: the others wait their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import cast

from ..errors import AnswerLost
from ..events import Notice, Source, Yielded
from . import Attaching, ChatRequest, Provider, Telling, state_of

PATIENCE = 1.0
"""Seconds after which a run says that it waits."""
REMINDER = 20.0
"""Seconds after which it says so again, so that nobody takes it for an upstream that has fallen silent."""


class InTurns:
    """Lets at most `most` answers of a provider go on at once, in the order in which they were asked for.

    Costs one small task for each run that waits or is answered.
    """

    def __init__(self, provider: Provider, most: int) -> None:
        self.name = provider.name
        self.models = provider.models
        self.prefills = provider.prefills
        self.attaches = isinstance(provider, Attaching) and provider.attaches
        self.tools = getattr(provider, "tools", True)
        self._provider = provider
        self._most = most
        self._turns = asyncio.Semaphore(most)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        """Wait for a turn, then answer as the provider does. The turn ends with the answer, however that ends."""
        async with aclosing(self._in_turn(lambda: self._provider.stream(request))) as answer:
            async for events in answer:
                yield events

    async def attach(
        self, name: str, *, text: str = "", reasoning: str = ""
    ) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        """Go on with an answer as the provider does. That the upstream is at it already counts as any other."""
        provider = self._provider
        if not isinstance(provider, Attaching):
            raise AnswerLost(f"{self.name} does not tell an answer twice.")
        async with aclosing(self._in_turn(lambda: provider.attach(name, text=text, reasoning=reasoning))) as answer:
            async for events in answer:
                yield events

    async def _in_turn(self, ask: Callable[[], Source]) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        with self._turn() as turn:
            patience = PATIENCE
            while not (await asyncio.wait({turn}, timeout=patience))[0]:
                yield Notice("waiting", f"Waiting for a turn: {self.name} answers {self._most} at a time.")
                patience = REMINDER
            answer = cast(AsyncGenerator[Yielded | Sequence[Yielded]], ask())
            async with aclosing(answer):
                async for events in answer:
                    yield events

    @contextmanager
    def _turn(self) -> Iterator[asyncio.Task[bool]]:
        turn = asyncio.create_task(self._turns.acquire())
        try:
            yield turn
        finally:
            if not turn.cancel():
                self._turns.release()

    async def list_models(self) -> list[str]:
        """Return the provider's models."""
        return await self._provider.list_models()

    async def answers(self) -> bool:
        """Tell whether the upstream is there."""
        return (await state_of(self._provider)).ok

    @property
    def is_away(self) -> bool:
        """Whether the upstream gave no answer when it was last asked."""
        return isinstance(self._provider, Telling) and self._provider.is_away

    async def close(self) -> None:
        """Let go of the provider's connections."""
        await self._provider.close()
