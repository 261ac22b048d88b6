"""Changes of people's rights: a log in the store that every node reads, so that they apply within a second."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable
from typing import Literal

import msgspec

from .....ids import new_id
from .....store import Store
from .....store.documents import Documents

ChangeOf = Literal["account", "group", "sign_in", "share"]
LOOK_BACK = 30.0
"""Seconds of overlap between two reads: a change may become visible after a later one."""
KEPT = 3600.0
"""Minimum seconds for which a change is kept. A node that has not read the log for so long reads all rights again."""


class AccessChange(msgspec.Struct, frozen=True):
    """One change: the kind and the id of the object whose rights have changed."""

    of: ChangeOf
    id: str


class AccessChanges:
    """The log of changes. Reading it costs one query for a page of an index.

    What is new is decided by the order of the rows in the store, and by when this node has read them: the clocks of the
    nodes that wrote them do not count.
    """

    def __init__(self, store: Store, *, now: Callable[[], float] = time.time) -> None:
        self._log = Documents(store, "access_change", AccessChange, now=now)
        self._now = now
        self._seen: dict[str, float] = {}
        """When the newest changes were read here. All that are older were read before."""
        self._read_at = -math.inf
        self._known: tuple[float, str] | None = None
        """The newest change at a time. An hour later it is deleted, with all before it."""

    @property
    def are_lost(self) -> bool:
        """True if changes may have been deleted before they were read."""
        return self._now() - self._read_at > KEPT - LOOK_BACK

    async def note(self, of: ChangeOf, id: str) -> None:
        """Add a change to the log, after it took effect."""
        await self._log.put(new_id("chg"), AccessChange(of, id))

    async def skip(self) -> None:
        """Mark all changes until now as read, before all rights are read again."""
        now, page = self._now(), await self._log.page()
        self._seen = {stored.id: now for stored in page}
        if page:
            self._seen[page[-1].id] = -math.inf  # far enough back: no change becomes visible so late

    async def read(self) -> AsyncGenerator[AccessChange]:
        """Yield the changes since the last call, in any order.

        A change counts as read when the caller requests the next: one that it could not apply is yielded again. The
        rows before one that was read `LOOK_BACK` ago are not looked at.
        """
        now, passed = self._now(), dict[str, float]()
        async for stored in self._log.all():
            if stored.id not in self._seen:
                yield stored.body
                self._seen[stored.id] = now
            passed[stored.id] = self._seen[stored.id]
            if passed[stored.id] < now - LOOK_BACK:
                break
        self._seen, self._read_at = passed, now

    async def forget(self) -> None:
        """Delete the changes that this node has known for an hour."""
        now = self._now()
        if self._known is not None and now - self._known[0] >= KEPT:
            newest, self._known = self._known[1], None
            for id in [newest, *[stored.id async for stored in self._log.all(before=newest)]]:
                await self._log.delete(id)
        if self._known is None and (page := await self._log.page(limit=1)):
            self._known = now, page[0].id
