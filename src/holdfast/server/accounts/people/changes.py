"""Changes of people's rights, which reach every node within a second: a log in the store that each of them reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import msgspec

from ....ids import new_id
from ....store.documents import Documents, DocumentStore

ChangeOf = Literal["account", "group", "sign_in", "share"]
LOOK_BACK = 30.0
"""Seconds that a reader looks back: a change may become visible after a later one."""
KEPT = 3600.0
"""Seconds for which a change stays in the log. A node that could not read it for so long accepts no one."""


class AccessChange(msgspec.Struct, frozen=True):
    """One change: the kind and the id of what has other rights now."""

    of: ChangeOf
    id: str


class AccessChanges:
    """The log of changes. Reading it costs one query for a page of an index."""

    def __init__(self, store: DocumentStore, *, now: Callable[[], float] = time.time) -> None:
        self._log = Documents(store, "access_change", AccessChange, now=now)
        self._now = now
        self._seen: dict[str, float] = {}

    async def note(self, of: ChangeOf, id: str) -> None:
        """Add a change to the log, after it was made."""
        await self._log.put(new_id("chg"), AccessChange(of, id))

    async def read(self) -> list[AccessChange]:
        """Return the changes since the last call, in any order. The first call returns recent ones."""
        found, since = [], self._now() - LOOK_BACK
        async for stored in self._log.all():
            if stored.created_at < since:
                break
            if stored.id not in self._seen:
                self._seen[stored.id] = stored.created_at
                found.append(stored.body)
        self._seen = {id: at for id, at in self._seen.items() if at >= since - LOOK_BACK}
        return found

    async def forget(self) -> None:
        """Delete old changes."""
        before = self._now() - KEPT
        old = [stored.id async for stored in self._log.all() if stored.created_at < before]
        for id in old:
            await self._log.delete(id)
