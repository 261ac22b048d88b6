"""Edits answers and deletes messages: both make another branch, and nothing that was said is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT_SHARED
from ....engine.core import Core
from ....errors import BadRequest
from ....history import Message
from ....ids import new_id
from ....store import Store
from ....wires import native
from ...kit.caller import author_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ...kit.request import Bodies, decode
from ..sessions.branches import branch_from, show_branch
from ..sharing.reach import Reach


class AnswerEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text that takes the place of an answer's. Of an agent's answer it is the text of the last step."""

    text: str


_BAD = {409: "busy, or a stale view", 413: "too large"}


class EditsApi(Feature):
    """Versions of messages that a person makes."""

    def __init__(self, bodies: Bodies, reach: Reach, engine: Core, store: Store) -> None:
        self._bodies, self._reach, self._engine, self._store = bodies, reach, engine, store

    @Endpoint(
        "POST",
        "/api/sessions/{session_id}/messages/{message_id}/edit",
        who=CHAT_SHARED,
        takes=AnswerEdit,
        answers={201: "the new version, and the head before", **_BAD},
    )
    async def edit_answer(self, request: Request) -> ASGIApp:
        """Save an answer as a person wants it, as another version that is marked as edited. Models see this text."""
        session = await self._reach.session(request)
        text = decode(await self._bodies.read(request), AnswerEdit).text
        if not text.strip():
            raise BadRequest("The text is empty. Delete the message instead.", param="text")
        _, (message, *_) = await branch_from(self._store, session, request.path_params["message_id"])
        version = _edited(message, text, author_of(request), self._engine.now())
        await show_branch(self._store, self._engine, session, [version], version.parent_id)
        return Json({"message": native.message(version), "previous_head_id": session.head_id}, status_code=201)

    @Endpoint(
        "DELETE",
        "/api/sessions/{session_id}/messages/{message_id}",
        who=CHAT_SHARED,
        answers={200: "the session, and the head before", **_BAD},
    )
    async def delete_message(self, request: Request) -> ASGIApp:
        """Show the chat without a message. What follows it is copied to another branch; the old one stays."""
        session = await self._reach.session(request)
        _, (message, *after) = await branch_from(self._store, session, request.path_params["message_id"])
        left = copied_after(after, message)
        changed = await show_branch(self._store, self._engine, session, left, message.parent_id)
        return Json({"session": native.session(changed), "previous_head_id": session.head_id})


def _edited(message: Message, text: str, author: str, now: float) -> Message:
    """Return an answer with another text: no run has said it, so it has none, and no figures."""
    if message.role != "assistant" or not isinstance(message.content, str | None):
        raise BadRequest("Only a response that is all text can be edited so. Edit your own message and send it.")
    changed: dict[str, Any] = {"content": text}
    if message.steps:
        *steps, last = message.steps
        steps.append(msgspec.structs.replace(last, text=text))
        changed = {"content": "".join(step.text for step in steps), "steps": tuple(steps)}
    return msgspec.structs.replace(
        message, **changed, id=new_id("msg"), run_id=None, figures=None, edited=True, author=author, created_at=now
    )


def copied_after(messages: Sequence[Message], deleted: Message) -> list[Message]:
    """Return copies of the messages after a deleted one, without those that belong to it.

    These are the results of its tool calls, and its continuations with the turns in which the server asked for them.
    """
    left = list(messages)
    if deleted.role == "assistant":
        calls = {call.id for call in deleted.tool_calls}
        while left and (left[0].automatic or left[0].tool_call_id in calls):
            was_asked = left.pop(0).automatic
            if was_asked and left and left[0].role == "assistant":
                left.pop(0)
    return [msgspec.structs.replace(message, id=new_id("msg")) for message in left]
