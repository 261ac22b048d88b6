"""What a check is, what it finds, and what it works with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from ..http import Broken, Reply
from ..process import NotStarted
from ..reading import Reader, follow
from ..scripts import Tag
from ..upstream import Upstream
from ..wires import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["Check", "Finding", "Lab", "Mortal", "Seen", "Verdict"]

Verdict = Literal["pass", "fail", "not promised", "not judged"]


class Seen(msgspec.Struct, frozen=True):
    """What a check saw. `held` is None where it could not judge."""

    held: bool | None
    what: str
    figures: dict[str, float] = {}


class Finding(msgspec.Struct, frozen=True):
    """One check on one wire: the promise, what was seen, and the verdict."""

    id: str
    wire: str
    promise: str
    verdict: Verdict
    seen: str
    figures: dict[str, float] = {}
    why: str = ""
    """Why it is not promised."""


class Mortal(Protocol):
    """The judged server as a process that can be killed and started again, whoever started it."""

    async def kill(self) -> None:
        """End it without mercy."""

    async def start(self) -> None:
        """Start it, and wait until it answers."""

    async def memory(self) -> float:
        """Return the bytes that it holds."""


class Lab(msgspec.Struct):
    """What the checks work with: the judged server on one wire, the upstream behind it, and how patient to be."""

    wire: Wire
    upstream: Upstream
    patience: float = 20.0
    """Seconds after which an answer that has not ended never will."""
    silence: float = 8.0
    """Seconds that a silent upstream is given to be taken for a failure."""
    limit: float = 1.0
    """Seconds within which an upstream must be closed."""
    open: float = 10.0
    """Seconds after which an upstream that is still open is taken to stay so."""
    samples: int = 5
    """How often a latency is measured."""
    at_once: int = 8
    """How many answers are asked for at the same time."""
    judged: Mortal | None = None
    """The server's process, where the lab has started it."""

    async def ask(self, tag: Tag, *, stream: bool = True, tools: bool = False, timeout: float | None = None) -> Reader:
        """Ask for an answer and read it to its end."""
        reader = self.wire.reader()
        try:
            async with asyncio.timeout(timeout or self.patience):
                reply = await self.wire.start(tag.prompt, stream=stream, tools=tools)
                try:
                    await follow(reply, reader)
                finally:
                    reply.leave()
        except Broken as broken:
            reader.broke(str(broken))
        return reader

    async def revive(self) -> None:
        """Start a server again that gives no answers any more: what has brought it to a halt was judged by then."""
        if self.judged is None:
            return
        with suppress(TimeoutError):
            if (await self.ask(Tag("completed"))).ending == "success":
                return
        with suppress(Broken, NotStarted):  # the next check will find it so
            await self.judged.kill()
            await self.judged.start()

    @asynccontextmanager
    async def begun(self, tag: Tag, *, keep: bool = False, pieces: int = 3) -> AsyncGenerator[tuple[Reply, Reader]]:
        """Ask for an answer and read it until some pieces of text have come; leave with the block."""
        reader = self.wire.reader()
        async with asyncio.timeout(self.patience):
            reply = await self.wire.start(tag.prompt, keep=keep)
            await follow(reply, reader, lambda reader: len(reader.text.split()) >= pieces)
        try:
            yield reply, reader
        finally:
            reply.leave()


class Check(msgspec.Struct, frozen=True):
    """One thing that is looked at. `needs` are words of `Wire.can`, and `process` for one that the lab has started."""

    id: str
    promise: str
    look: Callable[[Lab], Awaitable[Seen]]
    needs: frozenset[str] = frozenset()
    alone: bool = False
    """Whether nothing else may go on at the same time."""
