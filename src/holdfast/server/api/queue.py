"""The messages that wait in a session's queue."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import CHAT_SHARED, READ_SHARED
from ...errors import NotFound, StaleView
from ...store import RunRecord
from ...wires import native
from ..caller import author_of, own_session, owner_of
from ..errors import NoContent, json_of
from ..request import decode, read_body
from ..routing import Endpoint
from ..services import Parts
from .runs import stop_within
from .session_input import MessageContent, user_message
from .session_runs import OwnerOnly


class QueuedInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new text of a queued message."""

    input: MessageContent


async def get_queued(parts: Parts, request: Request) -> ASGIApp:
    """Return a queued message."""
    return json_of(native.queued(await _queued(parts, request)))


async def change_queued(parts: Parts, request: Request) -> ASGIApp:
    """Change a queued message."""
    record = await _queued(parts, request)
    _check_sender(record, owner_of(request))
    message = user_message(decode(await read_body(parts, request), QueuedInput).input)
    message = msgspec.structs.replace(message, author=author_of(request), created_at=parts.engine.now())
    changed = await parts.store.change_queued(record.id, [*record.input[:-1], message])
    if changed is None:
        raise StaleView("The message has started in the meantime.")
    parts.engine.touch(record.session_id, record.owner)
    return json_of(native.queued(changed))


def _check_sender(record: RunRecord, caller: str) -> None:
    """Refuse to change a message of another person: it runs with the model, the agent and the budget of its sender."""
    if caller != (record.payer.owner or record.owner):
        raise OwnerOnly("Only the person who has sent a waiting message changes it. Remove it, and send another.")


async def drop_queued(parts: Parts, request: Request) -> ASGIApp:
    """Remove a message from the queue before it runs."""
    record = await _queued(parts, request)
    run = await parts.engine.open(record.id)
    if run.status != "queued":
        raise StaleView("The message has started in the meantime.")
    await stop_within(run)
    return NoContent()


async def _queued(parts: Parts, request: Request) -> RunRecord:
    session = await own_session(parts, request)
    number = request.path_params["n"]
    for record in await parts.store.queued(session.id):
        if number in (str(record.queue_number), record.id):
            return record
    raise NotFound(f"No message {number!r} is queued in this session. It may have started.")


_BAD = {400: "bad input", 404: "no such session", 413: "too large"}


ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/sessions/{session_id}/queue/{n}",
        get_queued,
        who=READ_SHARED,
        answers={200: "it", 404: "not queued"},
    ),
    Endpoint(
        "PATCH",
        "/api/sessions/{session_id}/queue/{n}",
        change_queued,
        who=CHAT_SHARED,
        takes=QueuedInput,
        answers={200: "the message", 409: "it has started", **_BAD},
    ),
    Endpoint(
        "DELETE",
        "/api/sessions/{session_id}/queue/{n}",
        drop_queued,
        who=CHAT_SHARED,
        answers={204: "dropped", 404: "not queued", 409: "it has started"},
    ),
]
