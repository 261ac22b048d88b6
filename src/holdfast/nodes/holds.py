"""Work besides runs that one node holds: batches, deliveries of webhooks, rounds of comparisons."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from ..errors import StoreUnavailable
from ..runs.shared import Shared

logger = logging.getLogger(__name__)

PATIENCE, ASK_AGAIN = 8.0, 0.1
"""Seconds that a request waits for another node, and between two looks."""


class HeldWork(Protocol):
    """Work of one kind besides runs: batches, deliveries of webhooks, rounds of comparisons."""

    async def take_up(self, id: str) -> None:
        """Continue a piece of work that this node now holds, or release it if it is done."""
        ...

    def heed(self, id: str) -> None:
        """Read a piece of work that another node has changed."""
        ...

    def drop(self) -> None:
        """End all work: this node was fenced, and other nodes take it over."""
        ...

    async def close(self) -> None:
        """End all work cleanly: this node shuts down, and other nodes take over the rest."""
        ...


class Holds:
    """The pieces of work besides runs that this node holds. One node holds each; another replaces a fenced one."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._store = shared.store
        self._kinds: dict[str, HeldWork] = {}
        self._again: set[tuple[str, str]] = set()

    def add(self, kind: str, work: HeldWork) -> None:
        """Add a kind of work: from now on this node takes over pieces of it."""
        self._kinds[kind] = work

    async def take(self, kind: str, id: str) -> bool:
        """Take a piece of work. False if another node holds it, or if this one shuts down."""
        if self._shared.admission.closed:
            return False
        await self._shared.this_node.sure()
        return await self._store.hold(kind, id, self._shared.node_id)

    async def let_go(self, kind: str, id: str) -> None:
        """Release a piece of work that is done."""
        await self._store.let_go(kind, id, self._shared.node_id)

    async def is_elsewhere(self, kind: str, id: str) -> bool:
        """Return whether another node holds a piece of work."""
        return await self._store.holder(kind, id) not in ("", self._shared.node_id)

    async def ended_elsewhere(self, kind: str, id: str) -> None:
        """Wait until no other node has a piece of work that was told to end, `PATIENCE` at most."""
        for _ in range(int(PATIENCE / ASK_AGAIN)):
            if not await self.is_elsewhere(kind, id):
                return
            await self.tell(kind, id)
            await asyncio.sleep(ASK_AGAIN)

    async def tell(self, kind: str, id: str) -> None:
        """Send a hint about a changed piece of work to its holder. It may be lost: the holder also checks by itself."""
        with contextlib.suppress(StoreUnavailable):
            await self._store.hint("held", [f"{kind}\n{id}"])

    def on_hint(self, changed: str) -> None:
        """Handle a hint about a changed piece of work."""
        kind, _, id = changed.partition("\n")
        if (work := self._kinds.get(kind)) is not None:
            work.heed(id)

    async def look(self) -> None:
        """Take over the work of fenced nodes, and retry pieces that could not be continued."""
        left = [(kind, id) for kind in tuple(self._kinds) for id in await self._store.left_over(kind)]
        pieces, self._again = self._again.union(left), set()
        try:
            for kind, id in sorted(pieces):
                if await self.take(kind, id):
                    self._shared.tasks.start(self._take_up(kind, id))
                pieces.discard((kind, id))
        finally:
            self._again |= pieces  # if only the reply was lost, this node holds the piece: it is not listed

    async def _take_up(self, kind: str, id: str) -> None:
        try:
            await self._kinds[kind].take_up(id)
        except Exception:
            logger.exception("%s %s could not be taken up, and is tried again", kind, id)
            self._again.add((kind, id))

    def drop(self) -> None:
        """Drop everything: this node was fenced."""
        self._again.clear()
        for work in self._kinds.values():
            work.drop()

    async def close(self) -> None:
        """End all work cleanly, while the lease is held."""
        await asyncio.gather(*(work.close() for work in self._kinds.values()))
