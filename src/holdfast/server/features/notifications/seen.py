"""`/api/sessions/{session_id}/seen`: what the caller has seen of a session, on any device."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import READ_SHARED
from ....engine.core import Core
from ....errors import SessionNotFound
from ....store import Store
from ....store.people.readers import Standing, Wanted
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ...kit.request import Bodies, decode
from ..sharing.reach import Reach
from .deliveries import Deliveries

EntryNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class SeenChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the caller has seen, and wants to be told of. What is left out stays as it is."""

    seen: EntryNumber = 0
    """The last entry of the session's feed that was seen. A lower one than before changes nothing."""
    told: EntryNumber = 0
    """The last entry that a page which somebody looks at has told of: no notification is sent for it."""
    notify: Wanted | msgspec.UnsetType | None = msgspec.UNSET
    """What the caller wants to be told of this session; null for what is chosen for all sessions."""


class SeenApi(Feature):
    """What people have seen of sessions. Each person who reads a shared session has a cursor of their own."""

    def __init__(self, bodies: Bodies, reach: Reach, engine: Core, store: Store, deliveries: Deliveries) -> None:
        self._bodies, self._reach, self._engine, self._store = bodies, reach, engine, store
        self._deliveries = deliveries

    @Endpoint("GET", "/api/sessions/{session_id}/seen", who=READ_SHARED)
    async def get_seen(self, request: Request) -> ASGIApp:
        """Return what the caller has seen of a session, and what the caller wants to be told of."""
        session = await self._reach.session(request)
        return Json(_shown(await self._standing(owner_of(request), session.id)))

    @Endpoint("PUT", "/api/sessions/{session_id}/seen", who=READ_SHARED, takes=SeenChanges, stores=False)
    async def put_seen(self, request: Request) -> ASGIApp:
        """Note what the caller has seen of a session. It only moves forward, whichever device is first."""
        session, reader = await self._reach.session(request), owner_of(request)
        changes = decode(await self._bodies.read(request), SeenChanges)
        if changes.notify is not msgspec.UNSET:
            await self._store.set_wanted(session.id, reader, changes.notify)
        if changes.told:
            await self._deliveries.note_told(session.id)
        if await self._store.note_reader(session.id, reader, seen=changes.seen, told=changes.told):
            self._engine.touch(session.id, reader)
        return Json(_shown(await self._standing(reader, session.id)))

    async def _standing(self, reader: str, session_id: str) -> Standing:
        standing = (await self._store.standings(reader, [session_id])).get(session_id)
        if standing is None:
            raise SessionNotFound(session_id)
        return standing


def _shown(standing: Standing) -> dict[str, int | str | None]:
    return {
        "seen": standing.seen,
        "told": standing.told,
        "end": standing.end,
        "unread": standing.unread,
        "notify": standing.wanted,
    }
