"""`/api/chat`: the server side of the AI SDK's `useChat`, on the same sessions and runs.

A chat's id names a session of the caller. History comes from the store: only new messages of a request are added. Runs
are detached, so a page can be closed, reloaded and resumed; only a stop ends a run.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....asks import AiSdkAsk
from ....engine.core import Core
from ....errors import BadRequest, StaleView
from ....fields import check_fields
from ....history import Message, Session, branch
from ....ids import new_id
from ....runs.run import Run
from ....store import HEAD, Store
from ....store.files import check_references, with_files
from ....wires import ai_sdk
from ....wires import ai_sdk_request as ai_sdk_messages
from ....wires.ai_sdk_request import UIMessage
from ....wires.ui_fields import AI_SDK, THE_PAGE
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import NoContent, json_of
from ...kit.request import Bodies, check_name, convert, decode_object, idempotency
from ...kit.run_responses import RUN_ANSWERS, Answers, answer_headers, so_far
from ...starting.starting import Starting
from ..sessions.run_json import RunViews
from ..sessions.runs import stop_within
from ..sharing.reach import Reach
from .ollama import OllamaApi, is_ollamas
from .openai_chat import ChatStarts


class UIChat(msgspec.Struct, frozen=True):
    """The request of the SDK's transport, with fields that its `body` may add. Unknown fields are the page's."""

    messages: list[UIMessage]
    id: str | None = None
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = msgspec.field(default=None, name="messageId")
    model: str | None = None
    system: str | None = None
    if_busy: Literal["reject", "queue", "interrupt"] = "interrupt"
    params: dict[str, Any] = {}


class ChatTurn(NamedTuple):
    """The meaning of a request: the new messages, and the message that they follow."""

    input: list[Message]
    parent: str | None = HEAD
    goes_on_with: str | None = None
    """The client's message that the answer is added to."""
    is_repeated: bool = False
    """Whether the message is stored already, and may have a run."""


_CHAT = "/api/chat/{chat_id}"


class AiSdk(Feature):
    """Chats for pages that use the AI SDK."""

    def __init__(
        self,
        bodies: Bodies,
        answers: Answers,
        views: RunViews,
        reach: Reach,
        starting: Starting,
        chats: ChatStarts,
        ollama: OllamaApi,
        engine: Core,
        store: Store,
    ) -> None:
        self._bodies, self._answers, self._views, self._reach = bodies, answers, views, reach
        self._starting, self._chats, self._ollama, self._engine = starting, chats, ollama, engine
        self._store = store

    @Endpoint(
        "POST",
        "/api/chat",
        who=CHAT,
        takes=UIChat,
        answers={
            200: "the parts of the answer",
            **RUN_ANSWERS,
            406: "the upstream failed after output, in Ollama's words",
            409: "busy, or a stale view",
            502: "the upstream failed, in Ollama's words",
            504: "the upstream was silent, in Ollama's words",
        },
        streams=True,
        ollama=True,
    )
    async def send_to_chat(self, request: Request) -> ASGIApp:
        """Handle a message, an edit, tool results or a regenerate, and stream the run."""
        raw = await self._bodies.read(request)
        fields = decode_object(raw)
        if is_ollamas(fields):
            return await self._ollama.ollama_chat(request, fields, raw)
        body = convert(fields, UIChat)
        check_fields(fields, AI_SDK, THE_PAGE)
        if not body.messages:
            raise BadRequest("messages is empty.", param="messages")
        run = await (self._ask(request, body, raw) if body.id is None else self._send(request, body, body.id, raw))
        return self._stream(run)

    async def _ask(self, request: Request, body: UIChat, raw: bytes) -> Run:
        """Start a run without a session: the model gets the messages of the request alone."""
        messages = ai_sdk_messages.model_messages(body.messages)
        if not messages or messages[-1]["role"] == "assistant":
            raise BadRequest("The request has no message to answer.", param="messages")
        allowed = await self._starting.allow(request, body.model, idempotency(request, raw))
        if isinstance(allowed, Run):
            return allowed
        system = [{"role": "system", "content": body.system}] if body.system else []
        return await allowed.start(
            allowed.record(AiSdkAsk(params=body.params, stream=True, messages=system + messages))
        )

    async def _send(self, request: Request, body: UIChat, chat_id: str, raw: bytes) -> Run:
        if "/" in chat_id:
            raise BadRequest(
                "A chat id must not have a slash: it is part of the paths to resume and to stop it.", param="id"
            )
        if chat_id.startswith("run_"):
            raise BadRequest("A chat id must not begin with run_: such a path means a run.", param="id")
        session = await self._chats.session(owner_of(request), check_name(chat_id, "id"))
        allowed = await self._starting.allow(request, body.model or session.model, idempotency(request, raw))
        if isinstance(allowed, Run):
            return allowed
        messages = await with_files(self._store, session.id, await self._store.messages(session.id))
        path = branch(messages, session.head_id)
        turn = _turn(body, path, messages)
        if (going_on := await self._going_on(session, turn)) is not None:
            return going_on
        ask = AiSdkAsk(
            params={**session.params, **body.params},
            stream=True,
            system=body.system or "",
            session_name=chat_id,
            ui_message=turn.goes_on_with,
        )
        if body.if_busy == "queue" and turn.parent != HEAD:
            raise BadRequest("An edit or a new response cannot be queued: wait, or interrupt.", param="if_busy")
        await check_references(self._store, session.id, turn.input)
        return await allowed.start(
            allowed.record(ask, session_id=session.id),
            turn.input,
            session=session,
            parent=turn.parent,
            expect_head=session.head_id if turn.parent != HEAD and body.if_busy == "reject" else HEAD,
            if_busy=body.if_busy,
        )

    async def _going_on(self, session: Session, turn: ChatTurn) -> Run | None:
        """Return the run that answers the same message already: a repeated request is one."""
        if not turn.is_repeated:
            return None
        runs = await self._engine.of_session(session.id)
        return next((run for run in runs if run.status == "running" and run.record.parent_id == turn.parent), None)

    # Resuming and stopping.

    @Endpoint("GET", _CHAT, who=READ, answers={400: "a bad id"})
    async def get_chat(self, request: Request) -> ASGIApp:
        """Return a chat's messages in the SDK's shape, for `useChat` after a reload."""
        session = await self._own_chat(request)
        path = branch(await self._store.messages(session.id), session.head_id)
        path = await with_files(self._store, session.id, path)
        active = await self._active(session)
        return json_of(
            {
                "id": request.path_params["chat_id"],
                "session_id": session.id,
                "messages": ai_sdk_messages.ui_messages(path),
                "active_run": active.id if active else None,
            }
        )

    @Endpoint(
        "GET",
        f"{_CHAT}/stream",
        who=READ,
        query={"startIndex": "parts seen; below zero, parts from the end"},
        answers={
            200: "the parts of the answer",
            204: "no active run",
            404: "no such run",
            410: "the log was trimmed",
        },
        streams=True,
    )
    async def resume_chat(self, request: Request) -> ASGIApp:
        """Stream the active run of a chat from its start, or after some parts; 204 if there is none."""
        start = _start_index(request)
        run = await self._run_of(request)
        if run is None:
            return NoContent()
        if start >= 0:
            return self._stream(run, skip=start)
        there = await _count(run)
        return self._stream(run, skip=max(0, there + start), tail=there - 1)

    @Endpoint("POST", f"{_CHAT}/stop", who=CHAT, stores=False, answers={400: "a bad id", 404: "no such run"})
    async def stop_chat(self, request: Request) -> ASGIApp:
        """Stop the active run of a chat and its queue. Succeeds if there is none."""
        chat_id = request.path_params["chat_id"]
        if chat_id.startswith("run_"):
            run = await self._reach.run(request, chat_id)
            await stop_within(run)
            return json_of({"stopped": [self._views.json(run)]})
        session = await self._own_chat(request)
        return json_of({"stopped": [self._views.json(run) for run in await self._engine.stop_session(session.id)]})

    async def _run_of(self, request: Request) -> Run | None:
        """Return a run by its id, even after its end, or the active run of a chat."""
        chat_id = request.path_params["chat_id"]
        if chat_id.startswith("run_"):
            return await self._reach.run(request, chat_id)
        return await self._active(await self._own_chat(request))

    async def _own_chat(self, request: Request) -> Session:
        """Return the caller's session of that name. A missing one is empty: a page may request it early."""
        return await self._chats.session(owner_of(request), check_name(request.path_params["chat_id"], "id"))

    async def _active(self, session: Session) -> Run | None:
        """Return the active run of a session, or the first queued one."""
        runs = sorted(await self._engine.of_session(session.id), key=lambda run: (run.status != "running", run.id))
        return runs[0] if runs else None

    def _stream(self, run: Run, *, skip: int = 0, tail: int | None = None) -> ASGIApp:
        headers = {**answer_headers(run), ai_sdk.HEADER: ai_sdk.VERSION, "x-workflow-run-id": run.id}
        if tail is not None:
            headers["x-workflow-stream-tail-index"] = str(tail)
        return self._answers.stream(run, rendering_of(run), skip=skip, headers=headers)


# The meaning of a request.


def _turn(body: UIChat, path: list[Message], messages: list[Message]) -> ChatTurn:
    if body.trigger == "regenerate-message":
        return ChatTurn([], _to_answer_again(body, path, messages))
    if body.messages[-1].role == "assistant":
        return ChatTurn(_results(body.messages[-1], path), goes_on_with=body.messages[-1].id or None)
    _refuse_other_branch(_last_answer(body.messages), path, messages)
    last = body.messages[-1]
    known = _known(path, last.id)
    if known is not None and known.content == ai_sdk_messages.content(last):
        return ChatTurn([], known.id, is_repeated=True)
    if body.message_id and body.message_id == last.id:
        _refuse_other_branch(last.id, path, messages)
    if known is not None:
        return ChatTurn([_stored(last, messages)], known.parent_id)
    return ChatTurn([_stored(known, messages) for known in _new(body.messages, messages)])


def _to_answer_again(body: UIChat, path: list[Message], messages: list[Message]) -> str:
    """Return the user's message to answer again."""
    _refuse_other_branch(body.message_id, path, messages)
    message = _known(path, body.message_id) or _known(path, body.messages[-1].id) or (path[-1] if path else None)
    while message is not None and message.role != "user":
        message = next((other for other in path if other.id == message.parent_id), None)
    if message is None:
        raise BadRequest("This chat has no message to answer again.", param="messageId")
    return message.id


def _results(message: UIMessage, path: list[Message]) -> list[Message]:
    """Return the results of the client's tools for which the session has open calls."""
    waiting = _waiting(path)
    results = [
        Message(id=new_id("msg"), role="tool", content=output.text, tool_call_id=output.id)
        for output in ai_sdk_messages.outputs(message)
        if output.id in waiting
    ]
    if not results:
        raise BadRequest("The request has nothing new: no user message, and no tool result.", param="messages")
    return results


def _waiting(path: list[Message]) -> set[str]:
    """Return the calls of the last answer that have no result yet."""
    answered: set[str | None] = set()
    for message in reversed(path):
        if message.role != "tool":
            return {call.id for call in message.tool_calls} - answered
        answered.add(message.tool_call_id)
    return set()


def _new(sent: list[UIMessage], messages: list[Message]) -> list[UIMessage]:
    """Return the user's messages after the last answer that the session does not have."""
    new: list[UIMessage] = []
    for message in reversed(sent):
        if message.role == "assistant":
            break
        if message.role == "user" and _known(messages, message.id) is None:
            new.append(message)
    return new[::-1]


def _stored(message: UIMessage, messages: list[Message]) -> Message:
    """Return a user's message with the client's id, and a number appended if the session has that id."""
    content = ai_sdk_messages.content(message)
    if not content or (isinstance(content, str) and not content.strip()):
        raise BadRequest("The message is empty.", param="messages")
    id = check_name(message.id, "messages.id") if message.id else new_id("msg")
    taken = sum(1 for known in messages if _is(known, id))
    return Message(id=f"{id}~{taken + 1}" if taken else id, role="user", content=content)


def _known(messages: list[Message], id: str | None) -> Message | None:
    """Return the message with a client's id."""
    return next((message for message in messages if id and _is(message, id)), None)


def _is(message: Message, id: str) -> bool:
    return message.id == id or (message.id.startswith(f"{id}~") and ai_sdk_messages.client_id(message.id) == id)


def _last_answer(sent: list[UIMessage]) -> str | None:
    return next((message.id for message in reversed(sent) if message.role == "assistant"), None)


def _refuse_other_branch(id: str | None, path: list[Message], messages: list[Message]) -> None:
    """Refuse a client that sees another branch than the current one. An empty answer is on none."""
    if _known(messages, id) is not None and _known(path, id) is None:
        raise StaleView("This chat now shows another branch. Load it again.")


def _start_index(request: Request) -> int:
    text = request.query_params.get("startIndex") or "0"
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        raise BadRequest("startIndex is a whole number: of parts seen, or, below zero, of parts from the end.")
    return int(text)


async def _count(run: Run) -> int:
    """Return the number of parts so far."""
    rendering, count = rendering_of(run), 0
    async for events in so_far(run):
        count += len(rendering.frames(events))
    return count - 1 if run.log.closed else count  # [DONE] is not a part


def rendering_of(run: Run) -> ai_sdk.PartStream:
    """Return the rendering of a run from its first event: the same parts each time."""
    ask = run.record.ask
    return ai_sdk.PartStream(run.id, ask.ui_message if isinstance(ask, AiSdkAsk) else None)
