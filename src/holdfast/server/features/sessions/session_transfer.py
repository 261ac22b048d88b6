"""Copies of sessions: fork one, import one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT
from ....asks import OnBreak
from ....engine.core import Core
from ....errors import BadRequest, MessageNotFound
from ....events import CallKind, ToolCall
from ....history import Message, Role, Session, branch, title_from
from ....ids import ModelName, new_id
from ....log.steps import AgentStep, CallResult
from ....store import Store
from ....store.files import with_files
from ....wires import native
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ...kit.request import Bodies, System, check_size, decode
from ..filing.names import chat_folder, tag_names
from ..sharing.reach import Reach
from .session_input import MessageContent, one_line


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Copy a session up to a message."""

    message_id: str
    title: str = ""


class ImportedCall(msgspec.Struct, frozen=True):
    """A tool call of an exported session."""

    id: str
    name: str
    arguments: str = ""
    kind: CallKind = "function"


class ImportedResult(ImportedCall, frozen=True):
    """A tool call of an agent, with its result."""

    output: str | None = None
    is_error: bool = False


class ImportedStep(msgspec.Struct, frozen=True):
    """A step of an agent's answer."""

    text: str = ""
    tool_calls: list[ImportedResult] = []
    inputs: list[str] = []

    def step(self) -> AgentStep:
        """Return the step, with a result for every call."""
        step = AgentStep(
            text=self.text,
            calls=tuple(ToolCall(call.id, call.name, call.arguments, own=True) for call in self.tool_calls),
            results=tuple(
                CallResult(call.id, call.output, call.is_error) for call in self.tool_calls if call.output is not None
            ),
            inputs=tuple(self.inputs),
        )
        return step.settled("The result of this call is unknown.")


class ImportedMessage(msgspec.Struct, frozen=True):
    """A message of an exported session."""

    role: Role
    content: MessageContent | None
    model: str | None = None
    partial: bool = False
    outcome: str | None = None
    reasoning: str | None = None
    tool_calls: list[ImportedCall] = []
    tool_call_id: str | None = None
    steps: list[ImportedStep] = []
    automatic: bool = False
    compacts: bool = False
    edited: bool = False
    created_at: datetime | None = None


class ImportedSession(msgspec.Struct, frozen=True):
    """An exported session. Unknown fields are left out."""

    messages: Sequence[ImportedMessage]
    title: str = ""
    model: str | None = None
    system: System | None = None
    params: dict[str, Any] = {}
    on_break: OnBreak | None = None
    folder: str = ""
    tags: list[str] = []


_BAD = {404: "no such session"}


class SessionTransferApi(Feature):
    """Sessions as copies and as files."""

    def __init__(self, bodies: Bodies, reach: Reach, engine: Core, store: Store) -> None:
        self._bodies, self._reach, self._engine, self._store = bodies, reach, engine, store

    @Endpoint("POST", "/api/sessions/{session_id}/fork", who=CHAT, takes=Fork, answers={201: "the new session", **_BAD})
    async def fork(self, request: Request) -> ASGIApp:
        """Copy the branch up to a message into a new session."""
        session = await self._reach.session(request)
        body = decode(await self._bodies.read(request), Fork)
        messages = await self._store.messages(session.id)
        if all(message.id != body.message_id for message in messages):
            raise MessageNotFound(body.message_id)
        copies = copied(await with_files(self._store, session.id, branch(messages, body.message_id)))
        now = self._engine.now()
        forked = msgspec.structs.replace(
            session,
            id=new_id("ses"),
            title=one_line(body.title) or f"{session.title} (fork)",
            titled="person",
            head_id=copies[-1].id,
            pinned=False,
            archived=False,
            created_at=now,
            updated_at=now,
        )
        forked = await self._store.copy_session(forked, copies)
        self._engine.touch(forked.id, forked.owner)
        return Json(native.session(forked), status_code=201, headers={"location": f"/api/sessions/{forked.id}"})

    @Endpoint("POST", "/api/sessions/import", who=CHAT, takes=ImportedSession, answers={201: "the session", **_BAD})
    async def import_session(self, request: Request) -> ASGIApp:
        """Import an exported session, with new ids."""
        brought = decode(await self._bodies.read(request), ImportedSession)
        check_size(brought.params)
        if not brought.messages:
            raise BadRequest("The session has no messages.", param="messages")
        now = self._engine.now()
        messages = copied([imported_message(message, now) for message in brought.messages])
        session = imported_session(brought, messages, new_id("ses"), owner_of(request), now)
        session = await self._store.copy_session(session, messages)
        self._engine.touch(session.id, session.owner)
        return Json(native.session(session), status_code=201, headers={"location": f"/api/sessions/{session.id}"})


def copied(messages: list[Message]) -> list[Message]:
    """Return the messages under new ids, as a chain."""
    copies: list[Message] = []
    for message in messages:
        parent = copies[-1].id if copies else None
        copies.append(msgspec.structs.replace(message, id=new_id("msg"), parent_id=parent))
    return copies


def imported_session(brought: ImportedSession, messages: Sequence[Message], id: str, owner: str, now: float) -> Session:
    """Return an exported session under a new id."""
    session = Session(
        id=id,
        owner=owner,
        title=one_line(brought.title) or (title_from(messages[0].content) if messages else ""),
        titled="person" if brought.title.strip() else "",
        model=brought.model,
        system=brought.system,
        params=brought.params,
        on_break=brought.on_break,
        folder=chat_folder(brought.folder),
        tags=tag_names(brought.tags),
    )
    return as_imported(session, messages, now)


def as_imported(session: Session, messages: Sequence[Message], now: float) -> Session:
    """Return a session of an import. Its last message has its place in lists; it was created now, for retention."""
    head, changed = (messages[-1].id, max(message.created_at for message in messages)) if messages else (None, now)
    return msgspec.structs.replace(session, head_id=head, created_at=now, updated_at=changed)


def imported_time(at: float | None, now: float) -> float:
    """Return a time of an import; the current time if it has none, or one in the future."""
    return now if at is None else min(max(at, 0.0), now)


def imported_message(archived: ImportedMessage, now: float) -> Message:
    """Return a message of an exported session, without an id and a parent."""
    at = archived.created_at
    return Message(
        id="",
        role=archived.role,
        content=archived.content,
        model=None if archived.model is None else ModelName(archived.model),
        partial=archived.partial,
        outcome=archived.outcome,
        reasoning=archived.reasoning,
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments, kind=call.kind) for call in archived.tool_calls),
        tool_call_id=archived.tool_call_id,
        steps=tuple(step.step() for step in archived.steps),
        automatic=archived.automatic and archived.role == "user",
        compacts=archived.compacts and archived.automatic and archived.role == "user",
        edited=archived.edited and archived.role == "assistant",
        created_at=imported_time(at.timestamp() if at and at.tzinfo else None, now),
    )
