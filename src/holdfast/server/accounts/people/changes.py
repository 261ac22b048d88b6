"""Changes of people's rights: a log in the store that every node reads, so that they apply within a second."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable
from typing import Literal

import msgspec

from ....ids import new_id
from ....store.documents import Documents, DocumentStore

ChangeOf = Literal["account", "group", "sign_in", "share"]
LOOK_BACK = 30.0
"""Seconds of overlap between two reads: a change may become visible after a later one."""
KEPT = 3600.0
"""Seconds for which a change stays in the log. A node that could not read it for so long reads all rights again."""


class AccessChange(msgspec.Struct, frozen=True):
    """One change: the kind and the id of the object whose rights have changed."""

    of: ChangeOf
    id: str


class AccessChanges:
    """The log of changes. Reading it costs one query for a page of an index."""

    def __init__(self, store: DocumentStore, *, now: Callable[[], float] = time.time) -> None:
        self._log = Documents(store, "access_change", AccessChange, now=now)
        self._now = now
        self._seen: dict[str, float] = {}
        self._read_at = -math.inf

    @property
    def are_lost(self) -> bool:
        """True if changes may have been deleted before they were read."""
        return self._now() - self._read_at > KEPT - LOOK_BACK

    async def note(self, of: ChangeOf, id: str) -> None:
        """Add a change to the log, after it took effect."""
        await self._log.put(new_id("chg"), AccessChange(of, id))

    async def read(self) -> AsyncGenerator[AccessChange]:
        """Yield the changes since the last call, in any order. The first call yields recent ones.

        A change counts as read when the caller requests the next: one that it could not apply is yielded again.
        """
        now = self._now()
        since = now - LOOK_BACK if self.are_lost else min(self._read_at, now) - LOOK_BACK
        async for stored in self._log.all():
            if stored.created_at < since:
                break
            if stored.id not in self._seen:
                yield stored.body
                self._seen[stored.id] = stored.created_at
        self.skip(now)

    def skip(self, now: float | None = None) -> None:
        """Mark all changes until now as read."""
        self._read_at = self._now() if now is None else now
        self._seen = {id: at for id, at in self._seen.items() if at >= self._read_at - 2 * LOOK_BACK}

    async def forget(self) -> None:
        """Delete old changes."""
        before = self._now() - KEPT
        old = [stored.id async for stored in self._log.all() if stored.created_at < before]
        for id in old:
            await self._log.delete(id)
