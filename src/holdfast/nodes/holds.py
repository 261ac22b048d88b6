"""Work besides runs that one node has: batches, deliveries of webhooks, rounds of comparisons."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from ..errors import StoreUnavailable
from ..runs.pump import Shared

logger = logging.getLogger(__name__)


class HeldWork(Protocol):
    """Work of one kind besides runs: batches, deliveries of webhooks, rounds of comparisons."""

    async def take_up(self, id: str) -> None:
        """Go on with a piece of work that this node holds now, or let go of it if nothing is left to do."""
        ...

    def heed(self, id: str) -> None:
        """Look at a piece of work that another node has changed."""
        ...

    def drop(self) -> None:
        """End all work: this node was fenced, and others take it up."""
        ...

    async def close(self) -> None:
        """End all work in good order: this node ends, and others take up the rest."""
        ...


class Holds:
    """The pieces of work besides runs that this node has. One node has each; what a fenced one had, another takes."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._store = shared.store
        self._kinds: dict[str, HeldWork] = {}
        self._again: set[tuple[str, str]] = set()

    def add(self, kind: str, work: HeldWork) -> None:
        """Add a kind of work, which is taken up from now on."""
        self._kinds[kind] = work

    async def take(self, kind: str, id: str) -> bool:
        """Take a piece of work. False if another node has it, or if this one ends."""
        if self._shared.admission.closed:
            return False
        await self._shared.this_node.sure()
        return await self._store.hold(kind, id, self._shared.node_id)

    async def let_go(self, kind: str, id: str) -> None:
        """Give back a piece of work that is done."""
        await self._store.let_go(kind, id, self._shared.node_id)

    async def is_elsewhere(self, kind: str, id: str) -> bool:
        """Return whether another node has a piece of work."""
        return await self._store.holder(kind, id) not in ("", self._shared.node_id)

    async def tell(self, kind: str, id: str) -> None:
        """Hint at a change of a piece of work to the node that has it. It may be lost: the holder looks by itself."""
        with contextlib.suppress(StoreUnavailable):
            await self._store.hint("held", [f"{kind}\n{id}"])

    def hear(self, changed: str) -> None:
        """Take a hint at a change of a piece of work."""
        kind, _, id = changed.partition("\n")
        if (work := self._kinds.get(kind)) is not None:
            work.heed(id)

    async def look(self) -> None:
        """Take what fenced nodes have left, and try again what could not be taken up."""
        left = [(kind, id) for kind in self._kinds for id in await self._store.left_over(kind)]
        pieces, self._again = self._again.union(left), set()
        try:
            for kind, id in sorted(pieces):
                if await self.take(kind, id):
                    self._shared.tasks.start(self._take_up(kind, id))
                pieces.discard((kind, id))
        finally:
            self._again |= pieces  # if only the reply was lost, this node has the piece, and it is not left over

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
        """End all work in good order, while the lease is held."""
        await asyncio.gather(*(work.close() for work in self._kinds.values()))
