"""Sessions: list, search, open, change, delete; send a message, regenerate, edit, fork; the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..comparisons import Price
from ..errors import BadRequest, Conflict, MessageNotFound, NotFound, StaleView
from ..events import ToolCall
from ..history import Message, Role, Session, branch, title_from
from ..ids import new_id
from ..run import Run
from ..steps import Answered, Step
from ..store import HEAD, IfBusy, RunRecord
from ..wire import native
from .agents import forget_grants
from .context import (
    Endpoint,
    Parts,
    convert,
    decode,
    fresh_run_id,
    idempotency,
    own_session,
    owner_of,
    read_body,
    run_headers,
    shown,
    wants_events,
    whole_number,
)
from .errors import Json
from .runs import events_of, steer, stop_within
from .sources import default_model

CLIENT_PATIENCE = 10.0  # seconds in which the client of an attached run has to come for its events

Content = str | list[dict[str, Any]]
Busy = Literal["reject", "queue", "interrupt", "steer"]


class NewSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a session starts with."""

    title: str = ""
    model: str | None = None
    system: str | None = None
    params: dict[str, Any] = {}


class SessionChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a session can be changed."""

    title: str | msgspec.UnsetType = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    system: str | msgspec.UnsetType | None = msgspec.UNSET
    params: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    head_id: str | msgspec.UnsetType = msgspec.UNSET


class NewRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message to a session."""

    input: Content
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
    """Say something else in place of a message, on a branch of its own."""

    input: Content


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Copy a session up to a message."""

    message_id: str
    title: str = ""


class QueuedInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a queued message will say instead."""

    input: Content


# Sessions.


async def create_session(parts: Parts, request: Request) -> Response:
    """Start an empty session."""
    wanted = decode(await read_body(parts, request) or b"{}", NewSession)
    if wanted.model:
        await parts.providers.find(wanted.model)
    now = parts.engine.now()
    session = Session(
        id=new_id("ses"),
        owner=owner_of(request),
        title=one_line(wanted.title),
        model=wanted.model,
        system=wanted.system,
        params=wanted.params,
        created_at=now,
        updated_at=now,
    )
    session = await parts.store.create_session(session)
    return Json(native.session(session), status_code=201, headers={"location": f"/api/sessions/{session.id}"})


async def list_sessions(parts: Parts, request: Request) -> Response:
    """List or search sessions: pinned ones first, then the ones changed last."""
    limit = whole_number(request, "limit", 50, 200)
    query = request.query_params
    sessions = await parts.store.list_sessions(
        owner_of(request), query=query.get("query", ""), limit=limit, before=query.get("before")
    )
    running = {run.record.session_id: run.id for run in parts.engine.live()}
    listed = [{**native.session(session), "active_run": running.get(session.id)} for session in sessions]
    return Json({"sessions": listed, "next": sessions[-1].id if len(sessions) == limit else None})


async def get_session(parts: Parts, request: Request) -> Response:
    """Return a session with the branch of its messages that is shown, its active run, and its queue."""
    session = await own_session(parts, request)
    seen = await parts.store.feed_end(session.id)  # first: what happens while we look is told again, never left out
    runs = parts.engine.of_session(session.id)
    active = next((run for run in runs if run.status == "running"), None)
    messages = await parts.store.messages(session.id)
    path = branch(messages, session.head_id)
    return Json(
        {
            **native.session(session),
            "messages": _shown_with_siblings(path, messages, parts.prices),
            "active_run": shown(parts, active) if active else None,
            "queued": [native.queued(record) for record in await parts.store.queued(session.id)],
            "feed": str(seen),
        }
    )


def _shown_with_siblings(
    path: list[Message], messages: list[Message], prices: Mapping[str, Price]
) -> list[dict[str, Any]]:
    """Return each message with the ids of its siblings, itself among them: other answers, or other wordings."""
    by_parent: dict[tuple[str | None, str], list[str]] = {}
    for said in messages:
        by_parent.setdefault((said.parent_id, said.role), []).append(said.id)
    return [{**native.message(said, prices), "siblings": by_parent[said.parent_id, said.role]} for said in path]


async def change_session(parts: Parts, request: Request) -> Response:
    """Rename, pin, change the model or the system prompt, or show another branch."""
    session = await own_session(parts, request)
    wanted = decode(await read_body(parts, request), SessionChanges)
    changes = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not msgspec.UNSET}
    if isinstance(changes.get("model"), str):
        await parts.providers.find(changes["model"])
    if "title" in changes:
        changes["title"] = one_line(changes["title"])
    if "head_id" in changes:
        changes["head_id"] = await _leaf(parts, session, changes["head_id"])
    changed = await parts.store.update_session(session.id, changes, parts.engine.now()) if changes else session
    if changed is None:
        raise StaleView("The session was deleted in the meantime.")
    parts.engine.touch(session.id)
    return Json(native.session(changed))


async def _leaf(parts: Parts, session: Session, message_id: str) -> str:
    """Return the last message of the branch that a message is on: the newest one, where it forks again."""
    if any(run.status == "running" for run in parts.engine.of_session(session.id)):
        raise Conflict("Wait for the run to end, or stop it, before you show another branch.")
    messages = await parts.store.messages(session.id)
    if all(said.id != message_id for said in messages):
        raise MessageNotFound(message_id)
    newest_child = {said.parent_id: said.id for said in messages}
    while message_id in newest_child:
        message_id = newest_child[message_id]
    return message_id


async def delete_session(parts: Parts, request: Request) -> Response:
    """Stop a session's runs and delete it with everything that belongs to it."""
    session = await own_session(parts, request)
    await parts.engine.delete_session(session.id)
    await forget_grants(parts.store, session.owner, session.id)
    return Response(status_code=204)


async def stop_session(parts: Parts, request: Request) -> Response:
    """Stop all of a session's runs, queued ones too."""
    session = await own_session(parts, request)
    stopped = await parts.engine.stop_session(session.id)
    return Json({"stopped": [shown(parts, run) for run in stopped]})


# Runs in a session.


async def start_run(parts: Parts, request: Request) -> Response:
    """Send a message and start the run that answers it."""
    session = await own_session(parts, request)
    body = await read_body(parts, request)
    wanted = decode(body, NewRun)
    said = user_message(wanted.input)
    if wanted.if_busy == "steer" and (active := _active(parts, session)):
        return await _steered(parts, active, wanted.input)
    run = await _submit(parts, request, session, wanted, [said], body=body)
    return await _started(parts, request, run)


def _active(parts: Parts, session: Session) -> Run | None:
    return next((run for run in parts.engine.of_session(session.id) if run.status == "running"), None)


async def _steered(parts: Parts, active: Run, input: Content) -> Response:
    """Put the message into the run that is on, or say why it takes none."""
    if not isinstance(input, str):
        raise BadRequest("A running agent takes text only.", param="input")
    return await steer(parts, active, input)


async def regenerate(parts: Parts, request: Request) -> Response:
    """Answer a message of the branch again; the answer that was there becomes a sibling."""
    session = await own_session(parts, request)
    body = await read_body(parts, request)
    wanted = decode(body, Regenerate)
    try:
        said = await _on_branch(parts, session, wanted)
    except StaleView as stale:
        return await _started(parts, request, await _repeated(parts, request, body, stale))
    parent = said.parent_id if said.role == "assistant" else said.id
    if parent is None:
        raise BadRequest("There is nothing before this message that could be answered again.", param="message_id")
    run = await _submit(parts, request, session, wanted, [], parent=parent, body=body)
    return await _started(parts, request, run)


async def edit(parts: Parts, request: Request) -> Response:
    """Say something else in place of a user's message, and answer that."""
    session = await own_session(parts, request)
    body = await read_body(parts, request)
    wanted = decode(body, Edit)
    try:
        said = await _on_branch(parts, session, wanted)
    except StaleView as stale:
        return await _started(parts, request, await _repeated(parts, request, body, stale))
    if said.role != "user":
        raise BadRequest("Only a user's message can be edited.", param="message_id")
    new = user_message(wanted.input)
    run = await _submit(parts, request, session, wanted, [new], parent=said.parent_id, body=body)
    return await _started(parts, request, run)


async def continue_answer(parts: Parts, request: Request) -> Response:
    """Go on with an answer that was cut off: in the same message where the model can, and else in a turn of its own."""
    session = await own_session(parts, request)
    body = await read_body(parts, request)
    wanted = decode(body, Regenerate)
    try:
        said = await _on_branch(parts, session, wanted)
        _check_can_continue(session, said)
    except StaleView as stale:
        return await _started(parts, request, await _repeated(parts, request, body, stale))
    provider, _ = await parts.providers.find(await _model(parts, session, wanted))
    if said.steps or wanted.kind == "agent":
        wanted = msgspec.structs.replace(wanted, kind="agent")
        run = await _submit(parts, request, session, wanted, [user_message(GO_ON_WORKING)], body=body, notice=NEXT_TURN)
    elif provider.prefills:
        run = await _submit(parts, request, session, wanted, [], body=body, goes_on_with=said)
    else:
        run = await _submit(parts, request, session, wanted, [user_message(GO_ON)], body=body, notice=NEW_TURN)
    return await _started(parts, request, run)


GO_ON = "Your last answer was cut off. Go on exactly where it ended, without repeating any of it."
GO_ON_WORKING = "Go on with the task from where you are, without doing again what you have done."
NEXT_TURN = "The agent goes on in a turn of its own."
NEW_TURN = "This model cannot go on with its own message, so it was asked to, in a turn of its own."


def _check_can_continue(session: Session, said: Message) -> None:
    if said.id != session.head_id:
        raise StaleView("Only the last answer can be continued. Load the session again.")
    if said.role != "assistant" or not said.partial or not isinstance(said.content, str):
        raise Conflict("This message is no answer that was cut off: there is nothing to continue.")


async def _model(parts: Parts, session: Session, wanted: NewRun | Regenerate) -> str:
    return wanted.model or session.model or await default_model(parts.providers, parts.configured.default_model)


async def _on_branch(parts: Parts, session: Session, wanted: Regenerate) -> Message:
    """Return the message that is meant; a caller who sees another branch than the one shown gets 409."""
    messages = await parts.store.messages(session.id)
    path = branch(messages, session.head_id)
    if wanted.last_message_id is not None and wanted.last_message_id != session.head_id:
        raise StaleView
    for said in path:
        if said.id == wanted.message_id:
            return said
    if any(said.id == wanted.message_id for said in messages):
        raise StaleView("This message is on another branch than the one the session shows now. Load it again.")
    raise MessageNotFound(wanted.message_id)


async def _repeated(parts: Parts, request: Request, body: bytes, stale: StaleView) -> Run:
    """Return the run that this very request has started before, which made its view a stale one."""
    key = idempotency(request, body)
    known = await parts.store.find_repeated(key) if key is not None else None
    if known is None:
        raise stale
    return await parts.engine.open(known.id)


async def _submit(
    parts: Parts,
    request: Request,
    session: Session,
    wanted: NewRun | Regenerate,
    input: list[Message],
    *,
    parent: str | None = HEAD,
    body: bytes,
    goes_on_with: Message | None = None,
    notice: str = "",
) -> Run:
    if wanted.if_busy == "steer" and not isinstance(wanted, NewRun):
        raise BadRequest("Only a new message can steer a run: wait, or interrupt.", param="if_busy")
    parts.starts.take(session.owner)
    model = await _model(parts, session, wanted)
    await parts.providers.find(model)
    record = RunRecord(
        id=fresh_run_id(parts),
        owner=session.owner,
        session_id=session.id,
        message_id=goes_on_with.id if goes_on_with else new_id("msg"),
        model=model,
        kind=parts.agents.kind_of(model, wanted.kind),
        lifetime=wanted.lifetime,
        request={"params": {**session.params, **wanted.params}, **({"notice": notice} if notice else {})},
    )
    # An interrupted run leaves a partial, so that the head moves under the caller's own feet.
    expect = session.head_id if goes_on_with or (parent != HEAD and wanted.if_busy == "reject") else HEAD
    if parent != HEAD and wanted.if_busy == "queue":
        raise BadRequest("An edit or a new answer cannot be queued: wait, or interrupt.", param="if_busy")
    busy: IfBusy = "reject" if wanted.if_busy == "steer" else wanted.if_busy
    await parts.agents.check(record)
    return await parts.engine.submit(
        record,
        input,
        parent=parent,
        expect_head=expect,
        if_busy=busy,
        idempotency=idempotency(request, body),
    )


async def _started(parts: Parts, request: Request, run: Run) -> Response:
    """Answer with the run at once, or with its events where the client asks for them."""
    if wants_events(request):
        return events_of(parts, run, request)
    if run.record.lifetime == "attached":
        asyncio.get_running_loop().call_later(CLIENT_PATIENCE, parts.engine.stop_unheld, run)
    return Json(shown(parts, run), status_code=202, headers={**run_headers(run), "location": f"/api/runs/{run.id}"})


def user_message(content: Content, param: str = "input") -> Message:
    """Return a user's message, or refuse one that says nothing."""
    if not content or (isinstance(content, str) and not content.strip()):
        raise BadRequest(f"The {param} is empty.", param=param)
    if not isinstance(content, str) and any(not isinstance(part.get("type"), str) for part in content):
        raise BadRequest(f"Each part of the {param} has a type.", param=param)
    return Message(id=new_id("msg"), role="user", content=content)


async def fork(parts: Parts, request: Request) -> Response:
    """Copy the branch up to a message into a session of its own."""
    session = await own_session(parts, request)
    wanted = decode(await read_body(parts, request), Fork)
    messages = await parts.store.messages(session.id)
    if all(said.id != wanted.message_id for said in messages):
        raise MessageNotFound(wanted.message_id)
    copies = copied(branch(messages, wanted.message_id))
    now = parts.engine.now()
    forked = msgspec.structs.replace(
        session,
        id=new_id("ses"),
        title=one_line(wanted.title) or f"{session.title} (fork)",
        head_id=copies[-1].id,
        pinned=False,
        created_at=now,
        updated_at=now,
    )
    forked = await parts.store.copy_session(forked, copies)
    return Json(native.session(forked), status_code=201, headers={"location": f"/api/sessions/{forked.id}"})


def copied(messages: list[Message]) -> list[Message]:
    """Return the messages under new ids, each after the one before."""
    copies: list[Message] = []
    for said in messages:
        parent = copies[-1].id if copies else None
        copies.append(msgspec.structs.replace(said, id=new_id("msg"), parent_id=parent))
    return copies


class ImportedCall(msgspec.Struct, frozen=True):
    """A tool call of an exported session."""

    id: str
    name: str
    arguments: str = ""


class ImportedResult(ImportedCall, frozen=True):
    """A tool call of an agent, with what came of it."""

    output: str | None = None
    is_error: bool = False


class ImportedStep(msgspec.Struct, frozen=True):
    """A step of an agent's answer."""

    text: str = ""
    tool_calls: list[ImportedResult] = []
    inputs: list[str] = []

    def step(self) -> Step:
        """Return the step, with an answer to every call."""
        step = Step(
            text=self.text,
            calls=tuple(ToolCall(call.id, call.name, call.arguments, own=True) for call in self.tool_calls),
            results=tuple(
                Answered(call.id, call.output, call.is_error) for call in self.tool_calls if call.output is not None
            ),
            inputs=tuple(self.inputs),
        )
        return step.settled("What came of this call is not known.")


class ImportedMessage(msgspec.Struct, frozen=True):
    """A message of an exported session."""

    role: Role
    content: Content | None
    model: str | None = None
    partial: bool = False
    outcome: str | None = None
    reasoning: str | None = None
    tool_calls: list[ImportedCall] = []
    tool_call_id: str | None = None
    steps: list[ImportedStep] = []


class ImportedSession(msgspec.Struct, frozen=True):
    """A session as it was exported: what is not known here is left out."""

    messages: list[ImportedMessage]
    title: str = ""
    model: str | None = None
    system: str | None = None
    params: dict[str, Any] = {}


async def import_session(parts: Parts, request: Request) -> Response:
    """Add a session that was exported, under ids of its own."""
    brought = decode(await read_body(parts, request), ImportedSession)
    if not brought.messages:
        raise BadRequest("There are no messages in it.", param="messages")
    now = parts.engine.now()
    messages = copied([_imported(said, now) for said in brought.messages])
    session = Session(
        id=new_id("ses"),
        owner=owner_of(request),
        title=one_line(brought.title) or title_from(messages[0].content),
        model=brought.model,
        system=brought.system,
        params=brought.params,
        head_id=messages[-1].id,
        created_at=now,
        updated_at=now,
    )
    session = await parts.store.copy_session(session, messages)
    return Json(native.session(session), status_code=201, headers={"location": f"/api/sessions/{session.id}"})


def _imported(said: ImportedMessage, now: float) -> Message:
    return Message(
        id="",
        role=said.role,
        content=said.content,
        model=said.model,
        partial=said.partial,
        outcome=said.outcome,
        reasoning=said.reasoning,
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in said.tool_calls),
        tool_call_id=said.tool_call_id,
        steps=tuple(step.step() for step in said.steps),
        created_at=now,
    )


# The queue.


async def get_queued(parts: Parts, request: Request) -> Response:
    """Return a queued message."""
    return Json(native.queued(await _queued(parts, request)))


async def change_queued(parts: Parts, request: Request) -> Response:
    """Change what a queued message will say."""
    record = await _queued(parts, request)
    said = user_message(decode(await read_body(parts, request), QueuedInput).input)
    said = msgspec.structs.replace(said, created_at=parts.engine.now())
    changed = await parts.store.change_queued(record.id, [*record.input[:-1], said])
    if changed is None:
        raise StaleView("The message has started in the meantime.")
    parts.engine.touch(record.session_id)
    return Json(native.queued(changed))


async def drop_queued(parts: Parts, request: Request) -> Response:
    """Take a message out of the queue before it runs."""
    record = await _queued(parts, request)
    run = await parts.engine.open(record.id)
    if run.status != "queued":
        raise StaleView("The message has started in the meantime.")
    await stop_within(run)
    return Response(status_code=204)


async def _queued(parts: Parts, request: Request) -> RunRecord:
    session = await own_session(parts, request)
    asked = request.path_params["n"]
    for record in await parts.store.queued(session.id):
        if asked in (str(record.queue_number), record.id):
            return record
    raise NotFound(f"No message {asked!r} is queued in this session. It may have started.")


def one_line(title: str) -> str:
    """Return a title without line breaks, and not too long."""
    return " ".join(title.split())[:200]


def tool_calls(calls: list[Any]) -> tuple[ToolCall, ...]:
    """Return tool calls as OpenAI writes them."""
    checked = convert({"calls": calls}, _Calls).calls
    return tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in checked)


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct, frozen=True):
    id: str
    function: _Function


class _Calls(msgspec.Struct, frozen=True):
    calls: list[_Call]


_BAD = {400: "bad input", 404: "no such session", 413: "too large"}
_START = {202: "the run", 409: "busy, or a stale view", 429: "too many runs", 503: "the server is ending", **_BAD}

ENDPOINTS = [
    Endpoint("POST", "/api/sessions", create_session, takes=NewSession, answers={201: "the session", **_BAD}),
    Endpoint(
        "GET",
        "/api/sessions",
        list_sessions,
        query={"query": "words in titles and messages", "limit": "1 to 200", "before": "the last id before"},
        answers={200: "sessions, and the id to go on from", 400: "a bad query"},
    ),
    Endpoint(
        "POST", "/api/sessions/import", import_session, takes=ImportedSession, answers={201: "the session", **_BAD}
    ),
    Endpoint("GET", "/api/sessions/{session_id}", get_session, answers={200: "the session", 404: "no such session"}),
    Endpoint(
        "PATCH",
        "/api/sessions/{session_id}",
        change_session,
        takes=SessionChanges,
        answers={200: "the session", 409: "busy or gone", **_BAD},
    ),
    Endpoint("DELETE", "/api/sessions/{session_id}", delete_session, answers={204: "deleted", 404: "no such session"}),
    Endpoint(
        "POST", "/api/sessions/{session_id}/stop", stop_session, answers={200: "what stopped", 404: "no such session"}
    ),
    Endpoint("POST", "/api/sessions/{session_id}/runs", start_run, takes=NewRun, answers=_START),
    Endpoint("POST", "/api/sessions/{session_id}/regenerate", regenerate, takes=Regenerate, answers=_START),
    Endpoint("POST", "/api/sessions/{session_id}/continue", continue_answer, takes=Regenerate, answers=_START),
    Endpoint("POST", "/api/sessions/{session_id}/edit", edit, takes=Edit, answers=_START),
    Endpoint("POST", "/api/sessions/{session_id}/fork", fork, takes=Fork, answers={201: "the new session", **_BAD}),
    Endpoint("GET", "/api/sessions/{session_id}/queue/{n}", get_queued, answers={200: "it", 404: "not queued"}),
    Endpoint(
        "PATCH",
        "/api/sessions/{session_id}/queue/{n}",
        change_queued,
        takes=QueuedInput,
        answers={200: "the message", 409: "it has started", **_BAD},
    ),
    Endpoint(
        "DELETE",
        "/api/sessions/{session_id}/queue/{n}",
        drop_queued,
        answers={204: "dropped", 404: "not queued", 409: "it has started"},
    ),
]
