"""Forks an answer at any place: another answer begins with what it had said up to there, and goes on with any model."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT_SHARED
from ....asks import Beginning
from ....errors import BadRequest, CannotFork, MessageNotFound
from ....history import Message, Session
from ....ids import new_id
from ....runs.run import Run
from ....store import HEAD, Store
from ...config.settings import AGENT
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.request import Bodies, decode, idempotency, wants_events
from ...kit.streams import Streams
from ...sources.agents import AgentSources
from ...starting.starting import AllowedStart, Starting
from ..sessions.run_json import RunViews
from ..sessions.session_input import check_agent, session_ask
from ..sharing.reach import Reach
from .beginnings import beginning_from, beginning_with


class MessageFork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Go on from the text of an answer, or from what a person has made of it."""

    text: str | None = None
    model: str | None = None
    if_busy: Literal["reject", "interrupt"] = "reject"
    params: dict[str, Any] = {}


class RunFork(MessageFork, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Go on from a place in the log of a run. Without `after` that is its end."""

    after: int | None = None


_ANSWERS = {
    202: "the run of the new answer",
    404: "no such run, session or message",
    409: "busy, or it cannot be forked there, and why",
    429: "too many runs",
    503: "the server is ending",
}


class ForksApi(Feature):
    """Starts runs whose answers begin with a part of earlier ones."""

    def __init__(
        self,
        bodies: Bodies,
        streams: Streams,
        views: RunViews,
        reach: Reach,
        starting: Starting,
        agents: AgentSources,
        store: Store,
    ) -> None:
        self._bodies, self._streams, self._views, self._reach = bodies, streams, views, reach
        self._starting, self._agents, self._store = starting, agents, store

    @Endpoint("POST", "/api/runs/{run_id}/fork", who=CHAT_SHARED, takes=RunFork, answers=_ANSWERS)
    async def fork_run(self, request: Request) -> ASGIApp:
        """Begin another answer with a run's log up to an event, and go on from there. The run stays as it was."""
        run = await self._reach.run(request)
        session = await self._session_of(run)
        raw = await self._bodies.read(request)
        body = decode(raw, RunFork)
        if body.after is not None and body.after < 0:
            raise BadRequest("after is the number of an event, or 0 for the beginning.", param="after")
        allowed = await self._starting.allow(request, body.model or run.record.model, idempotency(request, raw))
        if isinstance(allowed, Run):
            return self._response(request, allowed)
        self._check_kind(allowed, run.record.kind)
        beginning = await beginning_from(run, body.after, body.text)
        message = await self._store.get_message(session.id, run.record.message_id or "")
        parent = run.record.parent_id if message is None else message.parent_id
        return await self._start(request, session, body, allowed, beginning, parent, run.record.kind)

    @Endpoint(
        "POST",
        "/api/sessions/{session_id}/messages/{message_id}/fork",
        who=CHAT_SHARED,
        takes=MessageFork,
        answers=_ANSWERS,
    )
    async def fork_message(self, request: Request) -> ASGIApp:
        """Begin another answer with the text of one, or with what a person has made of it, and go on from there."""
        session = await self._reach.session(request)
        raw = await self._bodies.read(request)
        body = decode(raw, MessageFork)
        message = await self._message(session, request.path_params["message_id"])
        wanted = body.model or message.model or session.model
        allowed = await self._starting.allow(request, wanted, idempotency(request, raw))
        if isinstance(allowed, Run):
            return self._response(request, allowed)
        self._check_kind(allowed, "chat")
        beginning = beginning_with(message, body.text)
        return await self._start(request, session, body, allowed, beginning, message.parent_id, "chat")

    async def _session_of(self, run: Run) -> Session:
        """Return the chat of a run that the caller reaches."""
        id = run.record.session_id
        session = None if id is None else await self._store.get_session(id)
        if session is None or session.kind != "chat":
            raise CannotFork("This run belongs to no chat in which another response could stand.")
        return session

    async def _message(self, session: Session, message_id: str) -> Message:
        message = await self._store.get_message(session.id, message_id)
        if message is None:
            raise MessageNotFound(message_id)
        return message

    def _check_kind(self, allowed: AllowedStart, kind: str) -> None:
        """Refuse an agent for what no agent has begun, and a published one, which cannot begin in the middle."""
        name = allowed.model.name
        is_agent = self._agents.kind_of(name) == AGENT
        if is_agent and (kind != AGENT or self._agents.is_published(name)):
            raise CannotFork(f"{name} cannot go on in the middle of a response. Choose another model.")

    async def _start(
        self,
        request: Request,
        session: Session,
        body: MessageFork,
        allowed: AllowedStart,
        beginning: Beginning,
        parent: str | None,
        kind: str,
    ) -> ASGIApp:
        ask = session_ask(
            session,
            body.params,
            stream=wants_events(request),
            default_agent=self._agents.has_default(allowed.caller, kind, allowed.model.name),
            beginning=beginning if beginning.events else None,
        )
        record = allowed.record(
            ask, owner=session.owner, session_id=session.id, message_id=new_id("msg"), kind=kind, lifetime="detached"
        )
        check_agent(record, owner_of(request))
        expect_head = session.head_id if body.if_busy == "reject" else HEAD
        run = await allowed.start(record, parent=parent, expect_head=expect_head, if_busy=body.if_busy)
        return self._response(request, run)

    def _response(self, request: Request, run: Run) -> ASGIApp:
        if wants_events(request):
            return self._streams.of_run(run, request)
        return self._views.started(run)
