"""Runs in a session: send a message, answer again, edit, continue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT_SHARED
from ....agents.loop import GO_ON
from ....engine.core import Core
from ....errors import BadRequest, Conflict, StaleView
from ....history import Message, Session
from ....ids import new_id
from ....runs.run import Run
from ....store import HEAD, RunRecord, Store
from ...kit.caller import author_of, owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.request import Bodies, decode, idempotency, wants_events
from ...kit.streams import Streams
from ...sources.agents import AgentSources
from ...starting.starting import AllowedStart, Starting
from ..sharing.reach import Reach
from .branches import branch_from
from .run_json import RunViews
from .runs import RunsApi
from .session_input import MessageContent, check_agent, session_ask, user_message

CLIENT_PATIENCE = 10.0  # timeout, in seconds, for the client of an attached run to open its event stream


Busy = Literal["reject", "queue", "interrupt", "steer"]


class NewRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message to a session."""

    input: MessageContent
    model: str | None = None
    kind: Literal["chat", "agent"] = "chat"
    lifetime: Literal["detached", "attached"] = "detached"
    if_busy: Busy = "reject"
    params: dict[str, Any] = {}


class Regenerate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Answer again. `last_message_id` is the last message that the caller sees."""

    message_id: str
    last_message_id: str | None = None
    model: str | None = None
    kind: Literal["chat", "agent"] = "chat"
    lifetime: Literal["detached", "attached"] = "detached"
    if_busy: Busy = "reject"
    params: dict[str, Any] = {}


class Edit(Regenerate, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An edit of a message, on a new branch."""

    input: MessageContent


RunBody = TypeVar("RunBody", NewRun, Regenerate, Edit)


@dataclass(frozen=True)
class _Ask(Generic[RunBody]):
    """A request for a run in a session."""

    api: SessionRunsApi
    request: Request
    session: Session
    body: bytes
    decoded: RunBody

    async def allowed(self) -> Run | AllowedStart:
        """Return the run that the same request has started before, or the start of a new one."""
        key = idempotency(self.request, self.body)
        return await self.api.starting.allow(self.request, self.decoded.model or self.session.model, key)

    async def start(
        self,
        allowed: AllowedStart,
        input: list[Message],
        *,
        parent: str | None = HEAD,
        continues: Message | None = None,
        notice: str = "",
    ) -> Run:
        """Start the run, or queue it."""
        _check_busy(self.decoded, parent)
        record = self._record(allowed, continues, notice)
        check_agent(record, owner_of(self.request))
        # The partial answer of an interrupted run moves the head, which the caller has not seen.
        is_fixed = continues is not None or (parent != HEAD and self.decoded.if_busy == "reject")
        return await allowed.start(
            record,
            [_signed(message, author_of(self.request)) for message in await allowed.brought(input)],
            parent=parent,
            expect_head=self.session.head_id if is_fixed else HEAD,
            if_busy="reject" if self.decoded.if_busy == "steer" else self.decoded.if_busy,
        )

    def _record(self, allowed: AllowedStart, continues: Message | None, notice: str) -> RunRecord:
        session, decoded = self.session, self.decoded
        ask = session_ask(
            session,
            decoded.params,
            stream=wants_events(self.request),
            notice=notice,
            default_agent=self.api.agents.has_default(allowed.caller, decoded.kind, allowed.model.name),
        )
        return allowed.record(
            ask,
            owner=session.owner,
            session_id=session.id,
            message_id=continues.id if continues else new_id("msg"),
            kind=decoded.kind,
            lifetime=decoded.lifetime,
        )

    def response(self, run: Run) -> ASGIApp:
        """Respond with the run at once, or with its events if the client asks for them."""
        if wants_events(self.request):
            return self.api.streams.of_run(run, self.request)
        if run.record.lifetime == "attached":
            asyncio.get_running_loop().call_later(CLIENT_PATIENCE, self.api.engine.stop_unheld, run)
        return self.api.views.started(run)


def _signed(message: Message, author: str) -> Message:
    """Return a message with the name of its author. Messages of the server have none."""
    return message if message.automatic else msgspec.structs.replace(message, author=author)


def _check_busy(decoded: NewRun | Regenerate, parent: str | None) -> None:
    if decoded.if_busy == "steer" and not isinstance(decoded, NewRun):
        raise BadRequest("Only a new message can steer a run: wait, or interrupt.", param="if_busy")
    if decoded.if_busy == "queue" and parent != HEAD:
        raise BadRequest("An edit or a new response cannot be queued: wait, or interrupt.", param="if_busy")


GO_ON_WORKING = "Continue the task from where you are. Do not repeat what you have done."
NEXT_TURN = "The agent continues in a new turn."
NEW_TURN = "This model cannot continue its own message, so it was asked to continue in a new turn."


_START = {202: "the run", 409: "busy, or a stale view", 429: "too many runs", 503: "the server is ending"}


class SessionRunsApi(Feature):
    """Starts runs in sessions."""

    def __init__(
        self,
        bodies: Bodies,
        streams: Streams,
        views: RunViews,
        reach: Reach,
        starting: Starting,
        agents: AgentSources,
        runs: RunsApi,
        engine: Core,
        store: Store,
    ) -> None:
        self._bodies, self._reach, self._runs = bodies, reach, runs
        self.starting, self.engine, self.store, self.agents = starting, engine, store, agents
        self.views, self.streams = views, streams

    async def _read(self, request: Request, kind: type[RunBody]) -> _Ask[RunBody]:
        session = await self._reach.session(request)
        body = await self._bodies.read(request)
        return _Ask(self, request, session, body, decode(body, kind))

    # A new message.

    @Endpoint("POST", "/api/sessions/{session_id}/runs", who=CHAT_SHARED, takes=NewRun, answers=_START)
    async def start_run(self, request: Request) -> ASGIApp:
        """Send a message and start the run that answers it."""
        ask = await self._read(request, NewRun)
        message = user_message(ask.decoded.input)
        allowed = await ask.allowed()
        if isinstance(allowed, Run):
            return ask.response(allowed)
        if ask.decoded.if_busy == "steer" and (active := await self._active(ask.session)):
            return await self._steered(request, active, ask.decoded.input)
        return ask.response(await ask.start(allowed, [message]))

    async def _active(self, session: Session) -> Run | None:
        return next((run for run in await self.engine.of_session(session.id) if run.status == "running"), None)

    async def _steered(self, request: Request, active: Run, input: MessageContent) -> ASGIApp:
        """Add the message to the active run, or raise the reason why it accepts none."""
        check_agent(active.record, owner_of(request))
        if not isinstance(input, str):
            raise BadRequest("A running agent accepts only text.", param="input")
        return await self._runs.steer(request, active, input)

    # An existing message.

    @Endpoint("POST", "/api/sessions/{session_id}/regenerate", who=CHAT_SHARED, takes=Regenerate, answers=_START)
    async def regenerate(self, request: Request) -> ASGIApp:
        """Regenerate the answer to a message; the old answer becomes a sibling."""
        return await _about_message(await self._read(request, Regenerate), _regenerate)

    @Endpoint("POST", "/api/sessions/{session_id}/edit", who=CHAT_SHARED, takes=Edit, answers=_START)
    async def edit(self, request: Request) -> ASGIApp:
        """Edit a user's message, and answer it."""
        return await _about_message(await self._read(request, Edit), _edit)

    @Endpoint("POST", "/api/sessions/{session_id}/continue", who=CHAT_SHARED, takes=Regenerate, answers=_START)
    async def continue_answer(self, request: Request) -> ASGIApp:
        """Continue an answer that was cut off: in the same message if the model can, else in a new turn."""
        ask = await self._read(request, Regenerate)
        if ask.decoded.model is None and ask.decoded.kind == "chat":
            messages = await self.store.messages(ask.session.id)
            own = next((each.model for each in messages if each.id == ask.decoded.message_id and not each.steps), None)
            ask = replace(ask, decoded=msgspec.structs.replace(ask.decoded, model=own))
        return await _about_message(ask, _continue)


async def _regenerate(ask: _Ask[Regenerate], allowed: AllowedStart, message: Message) -> Run:
    parent = message.parent_id if message.role == "assistant" else message.id
    if parent is None:
        raise BadRequest("There is no message before this one to answer again.", param="message_id")
    return await ask.start(allowed, [], parent=parent)


async def _edit(ask: _Ask[Edit], allowed: AllowedStart, message: Message) -> Run:
    if message.role != "user":
        raise BadRequest("Only a user's message can be edited.", param="message_id")
    return await ask.start(allowed, [user_message(ask.decoded.input)], parent=message.parent_id)


async def _continue(ask: _Ask[Regenerate], allowed: AllowedStart, message: Message) -> Run:
    _check_can_continue(ask.session, message)
    model = allowed.model
    if message.steps or ask.decoded.kind == "agent":
        agent = replace(ask, decoded=msgspec.structs.replace(ask.decoded, kind="agent"))
        return await agent.start(allowed, [_automatic(GO_ON_WORKING)], notice=NEXT_TURN)
    if model.found.provider.prefills and message.model == model.name:  # a message has one author
        return await ask.start(allowed, [], continues=message)
    return await ask.start(allowed, [_automatic(GO_ON)], notice=NEW_TURN)


def _automatic(text: str) -> Message:
    """Return a message that the server writes: clients do not show it, and join the answers around it."""
    return msgspec.structs.replace(user_message(text), automatic=True)


def _check_can_continue(session: Session, message: Message) -> None:
    if message.id != session.head_id:
        raise StaleView("Only the last response can be continued. Load the session again.")
    if isinstance(message.content, list) and message.role == "assistant":
        raise Conflict("A response with pictures cannot be continued. Regenerate it, or ask for the rest.")
    if message.role != "assistant" or not message.partial:
        raise Conflict("This message is not a cut-off response: there is nothing to continue.")


async def _about_message(
    ask: _Ask[RunBody], begin: Callable[[_Ask[RunBody], AllowedStart, Message], Awaitable[Run]]
) -> ASGIApp:
    """Start a run for a message of the branch. A repeated request returns the run of the first one."""
    allowed = await ask.allowed()
    run = allowed if isinstance(allowed, Run) else await begin(ask, allowed, await _on_branch(ask))
    return ask.response(run)


async def _on_branch(ask: _Ask[RunBody]) -> Message:
    """Return the message; 409 if the caller sees another branch than the current one."""
    decoded, session = ask.decoded, ask.session
    assert isinstance(decoded, Regenerate)
    if decoded.last_message_id is not None and decoded.last_message_id != session.head_id:
        raise StaleView
    _, (message, *_) = await branch_from(ask.api.store, session, decoded.message_id)
    return message
