"""Plays the part of a source: yields what its plan says, and notes what it really did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.errors import AnswerLost, ProviderBroke
from holdfast.events import Finish, Reasoning, Text, Usage

from .history import SourceFacts, flat
from .scenario import AT_ONCE, SourcePlan

if TYPE_CHECKING:
    from .world import World


class Boom(Exception):
    """What a source raises that knows nothing of Holdfast."""


class _Swallowed(Exception):
    """It was cancelled and does not care."""


def rest(plan: SourcePlan, after: int, end: str) -> SourcePlan:
    """Return the plan of a source that goes on after so many events."""
    items = list(plan.items)
    while after > 0 and items:
        after -= len(list(events(items.pop(0)[1])))
    return replace(plan, items=items, end=end)


def events(item: Any) -> Iterator[Any]:
    """Yield the events of what a source yields at once."""
    for one in flat(item):
        if isinstance(one, str):
            one = Text(one)
        if isinstance(one, (Text, Reasoning)) and not one.text:
            continue
        if not isinstance(one, Finish) and not (isinstance(one, Usage) and one.source == "estimated"):
            yield one


def make(world: World, facts: SourceFacts) -> AsyncIterator[Any]:
    """Return the source that a plan describes."""
    if facts.plan.shape == "iterator":
        return _Closable(world, facts)
    if facts.plan.shape == "iterator without aclose":
        return _Iterator(world, facts)
    return _Part(world, facts).play()


class _Part:
    def __init__(self, world: World, facts: SourceFacts) -> None:
        self.world = world
        self.facts = facts
        self.plan = facts.plan

    async def play(self) -> AsyncGenerator[Any]:
        """Yield what the plan says."""
        self.facts.entered = self.world.loop.steps
        self.world.note_source(self.facts)
        how = "returned"
        try:
            if self.facts.after is not None and self.plan.end == "is lost":
                raise AnswerLost("what was to be gone on with is gone")
            for pause, item in self.plan.items:
                await self.nap(pause)
                yield self.note(item)
            for item in _LAST_ITEMS.get(self.plan.end, ()):
                yield self.note(item)
            await self.end()
        except _Swallowed:
            how = "cancelled"
            for item in _LAST_WORDS[self.plan.on_cancel]:
                yield self.note(item)
        except asyncio.CancelledError:
            how = "cancelled" if self.facts.cancels else "raised"
            self.facts.broke = not self.facts.cancels
            raise
        except GeneratorExit:
            how = "closed"
            raise
        except Exception:
            how = "raised"
            self.facts.broke = not self.facts.cancels
            raise
        finally:
            if not self.world.over:
                try:
                    await self.clean_up()
                except Boom:
                    self.facts.broke = self.facts.broke or (how == "returned" and not self.facts.cancels)
                    how = "raised"
                    raise
                finally:
                    self.facts.how = how
                    self.facts.ended = self.world.loop.steps
                    if not self.plan.shape.startswith("iterator"):
                        self.facts.closed_at = self.world.clock()
                    self.world.say(f"source of {self.facts.run_id} has ended: {how}")

    def note(self, item: Any) -> Any:
        self.facts.yielded.append((self.world.loop.steps, self.world.loop.time(), item))
        return item

    async def nap(self, seconds: float) -> None:
        """Wait, and take a cancel as the plan says."""
        if seconds == AT_ONCE:
            return
        until = self.world.loop.time() + seconds
        while True:
            try:
                await asyncio.sleep(max(until - self.world.loop.time(), 0))
                return
            except asyncio.CancelledError:
                if not self.swallows():
                    raise
            if self.plan.on_cancel == "never ends":
                await self.hang()

    async def hang(self) -> None:
        """Wait for ever."""
        while True:
            try:
                await self.world.loop.create_future()
            except asyncio.CancelledError:
                if not self.swallows():
                    raise

    def swallows(self) -> bool:
        """Note a cancel. True where the source goes on all the same."""
        self.facts.note_cancel(self.world.loop.steps, self.world.loop.time())
        self.world.say(f"source of {self.facts.run_id} is cancelled: {self.plan.on_cancel}")
        if self.plan.on_cancel in _LAST_WORDS:
            raise _Swallowed
        return self.plan.on_cancel != "polite"

    async def end(self) -> None:
        end = self.plan.end
        if end.endswith("raises"):
            raise Boom("the source is broken")
        if end == "cancels itself":
            raise asyncio.CancelledError
        if end == "raises known":
            raise ProviderBroke("the upstream ended in mid-sentence")
        if end.endswith("hangs"):
            await self.hang()

    async def clean_up(self) -> None:
        pause = _CLEANUP.get(self.plan.cleanup, AT_ONCE)
        if pause != AT_ONCE:
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                self.facts.note_cancel(self.world.loop.steps, self.world.loop.time())
                self.facts.broke = False  # the engine is told of the cancel, not of what was raised before
                raise
        if self.plan.cleanup.endswith("raises"):
            raise Boom("the cleanup is broken")


_CLEANUP = {"yields a turn": 0.0, "takes 0.3 s": 0.3, "takes 3 s": 3.0, "waits, then raises": 0.05}
_LAST_ITEMS: dict[str, tuple[Any, ...]] = {
    "finish": (Finish("stop"),),
    "length": (Finish("length"),),
    "says failed": (Finish("error"),),
    "finish, then hangs": (Finish("stop"),),
    "finish, then raises": (Finish("stop"),),
    "finish, then says failed": (Finish("stop"), Finish("error")),
    "says failed, then finish": (Finish("error"), Finish("stop")),
    "yields nonsense": (object(),),
    "yields nonsense after finish": (["lost ", Finish("stop"), object()],),
}
_LAST_WORDS: dict[str, tuple[Any, ...]] = {
    "last words": (["last words", Finish("stop")],),
    "says finish": (Finish("stop"),),
    "returns": (),
}


class _Iterator:
    """An async iterator that cannot be closed."""

    def __init__(self, world: World, facts: SourceFacts) -> None:
        self.world = world
        self.facts = facts
        self._inner = _Part(world, facts).play()

    def __aiter__(self) -> _Iterator:
        return self

    async def __anext__(self) -> Any:
        return await self._inner.__anext__()


class _Closable(_Iterator):
    """An async iterator that is no generator, with an `aclose()` of its own."""

    async def aclose(self) -> None:
        self.facts.closes += 1
        if not self.world.over:
            try:
                await self._close()
            finally:
                self.facts.closed_at = self.world.clock()

    async def _close(self) -> None:
        await self._inner.aclose()
        if self.facts.plan.close == "takes 0.3 s":
            await asyncio.sleep(0.3)
        elif self.facts.plan.close == "hangs":
            await self.world.loop.create_future()
        elif self.facts.plan.close == "raises":
            raise Boom("the close is broken")
