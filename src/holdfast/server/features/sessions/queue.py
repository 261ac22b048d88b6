"""The messages that wait in a session's queue."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT_SHARED, READ_SHARED
from ....engine.core import Core
from ....errors import NotFound, StaleView
from ....store import RunRecord, Store
from ....wires import native
from ...kit.caller import author_of, owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import NoContent, json_of
from ...kit.request import Bodies, decode
from ..sharing.reach import Reach
from .runs import stop_within
from .session_input import MessageContent, OwnerOnly, user_message


class QueuedChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is changed of a queued message: what it says, its place among those that wait, or both."""

    input: MessageContent | msgspec.UnsetType = msgspec.UNSET
    place: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    """From 1 on. A place behind the last one is the last."""


class QueueApi(Feature):
    """The queued runs of a session."""

    def __init__(self, bodies: Bodies, reach: Reach, engine: Core, store: Store) -> None:
        self._bodies, self._reach, self._engine, self._store = bodies, reach, engine, store

    @Endpoint("GET", "/api/sessions/{session_id}/queue/{n}", who=READ_SHARED, answers={404: "not queued"})
    async def get_queued(self, request: Request) -> ASGIApp:
        """Return a queued message."""
        return json_of(native.queued(await self._queued(request)))

    @Endpoint(
        "PATCH",
        "/api/sessions/{session_id}/queue/{n}",
        who=CHAT_SHARED,
        takes=QueuedChange,
        answers={409: "it has started"},
    )
    async def change_queued(self, request: Request) -> ASGIApp:
        """Change a queued message, or move it."""
        record = await self._queued(request)
        change = decode(await self._bodies.read(request), QueuedChange)
        changed: RunRecord | None = record
        if not isinstance(change.input, msgspec.UnsetType):
            _check_sender(record, owner_of(request))
            message = user_message(change.input)
            message = msgspec.structs.replace(message, author=author_of(request), created_at=self._engine.now())
            changed = await self._store.change_queued(record.id, [*record.input[:-1], message])
        if changed is not None and not isinstance(change.place, msgspec.UnsetType):
            changed = await self._store.move_queued(record.id, change.place)
        if changed is None:
            raise _started()
        self._engine.touch(record.session_id, record.owner)
        return json_of(native.queued(changed))

    @Endpoint(
        "POST",
        "/api/sessions/{session_id}/queue/{n}/send",
        who=CHAT_SHARED,
        answers={204: "it starts next", 404: "not queued", 409: "it has started"},
    )
    async def send_queued(self, request: Request) -> ASGIApp:
        """Stop the response that is running, and send a queued message in its place, before the others."""
        record = await self._queued(request)
        running = await self._store.list_runs(session_id=record.session_id, status="running")
        if await self._store.move_queued(record.id, 1) is None:
            raise _started()
        self._engine.touch(record.session_id, record.owner)
        for each in running:  # and not what has started since: that may be this message
            await stop_within(await self._engine.open(each.id), "replaced")
        return NoContent()

    @Endpoint(
        "DELETE",
        "/api/sessions/{session_id}/queue/{n}",
        who=CHAT_SHARED,
        answers={404: "not queued", 409: "it has started"},
    )
    async def drop_queued(self, request: Request) -> ASGIApp:
        """Remove a message from the queue before it runs."""
        record = await self._queued(request)
        run = await self._engine.open(record.id)
        if run.status != "queued":
            raise _started()
        await stop_within(run)
        return NoContent()

    async def _queued(self, request: Request) -> RunRecord:
        session = await self._reach.session(request)
        number = request.path_params["n"]
        for record in await self._store.queued(session.id):
            if number in (str(record.queue_number), record.id):
                return record
        raise NotFound(f"No message {number!r} is queued in this session. It may have started.")


def _started() -> StaleView:
    return StaleView("The message has started in the meantime.")


def _check_sender(record: RunRecord, caller: str) -> None:
    """Refuse to change a message of another person: it runs with the model, the agent and the budget of its sender."""
    if caller != (record.payer.owner or record.owner):
        raise OwnerOnly("Only the person who has sent a waiting message changes it. Remove it, and send another.")
