"""`/v1/chat/completions`: OpenAI's dialect on the same runs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....asgi.event_stream import EventStream
from ....asks import ChatAsk, chat_ask
from ....engine.core import Core
from ....errors import BadRequest, RunNotFound
from ....events import AnySettlement, Failed, Interrupted, ToolCall
from ....history import Message, Session, branch, results_without_calls, text_of
from ....ids import new_id
from ....runs.run import Run
from ....store import IfBusy, Lifetime, Store
from ....store.files import check_references
from ....wires import sse
from ....wires.openai import chat as openai_chat
from ....wires.openai.fields import CHAT_FIELDS
from ....wires.outcome import verdict
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import error_answer
from ...kit.request import Bodies, check_name, convert, decode_object, header, idempotency
from ...kit.run_responses import (
    RUN_ANSWERS,
    Answers,
    WholeAnswer,
    failed_headers,
    frames_seen,
    gathered,
    unfinished_answer,
)
from ...starting.starting import AllowedStart, Starting
from ..sharing.reach import Reach
from . import conversations
from .conversations import RunNames
from .form_data import FORM, chat_in

OURS = frozenset(name for name, rule in CHAT_FIELDS.items() if rule.kind == "used")
"""The fields of a request for us; all others are passed on."""


class ChatMessage(msgspec.Struct, frozen=True):
    """A message, with the fields that are checked here."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool = False


class ChatBody(msgspec.Struct, frozen=True):
    """A request, with the fields that are checked here. Unknown fields are passed to the upstream."""

    messages: list[ChatMessage]
    model: str | None = None
    stream: bool | Literal["true", "false"] | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    session_id: str | None = None
    background: bool = False
    if_busy: Literal["reject", "queue", "interrupt"] = "reject"


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct, frozen=True):
    id: str
    function: _Function


class _Calls(msgspec.Struct, frozen=True):
    calls: list[_Call]


class ChatStarts:
    """Starts runs of requests in OpenAI's shape."""

    def __init__(self, names: RunNames, store: Store, engine: Core) -> None:
        self._names, self._store, self._engine = names, store, engine

    async def start(
        self,
        request: Request,
        allowed: AllowedStart,
        body: ChatBody,
        decoded: dict[str, Any],
        ask: ChatAsk,
        *,
        begins: bool = False,
        streams: bool | None = None,
        keep: bool = False,
    ) -> Run:
        """Start the run of a request in OpenAI's shape. `ask` has what its own wire needs to render the run.

        With `begins`, the earlier messages become those of a new session. `keep` stores a run without a session.
        """
        name = header(request, b"x-session-id") if body.session_id is None else body.session_id
        if name is None:
            _check_all_results(body.messages)
        conversation = conversations.named_in(request)
        lifetime: Lifetime = "detached" if body.background or conversation else "attached"
        ask = replace(
            ask,
            params={field: value for field, value in decoded.items() if field not in OURS},
            stream=body.stream in (True, "true") if streams is None else streams,
            messages=await allowed.brought_in(decoded["messages"]) if name is None else [],
            session_name=name,
            n=body.n or 1,
            include_usage=body.stream_options is not None and body.stream_options.include_usage,
            run_name=conversation,
        )
        start: Callable[[], Awaitable[Run]]
        if name is None:
            record = allowed.record(ask, lifetime=lifetime)
            start = partial(allowed.start, record, keep=keep or lifetime == "detached" or allowed.key is not None)
        else:
            session_name = check_name(name, "session_id")
            start = partial(self._start_in_session, allowed, ask, body, session_name, lifetime, begins)
        return await (start() if conversation is None else self._names.start(conversation, start))

    async def _start_in_session(
        self, allowed: AllowedStart, ask: ChatAsk, body: ChatBody, name: str, lifetime: Lifetime, begins: bool
    ) -> Run:
        if ask.params.get("functions") or any(said.role == "function" for said in body.messages):
            what = "functions, and messages of the role function, have no place in a session. Send tools instead."
            raise BadRequest(what, param="functions", code="unsupported")
        system, new = _new_input(body.messages)
        if not new:
            raise BadRequest(
                "Nothing follows the last assistant message: there is nothing to answer.", param="messages"
            )
        input = [_stored(said) for said in new]
        session = await self.session(allowed.caller.owner, name)
        if begins and not await self._store.messages(session.id):
            input = [_stored(said) for said in body.messages if said.role in ("user", "assistant", "tool")]
        if any(said.role == "tool" for said in input):
            await self._check_results(session, input)
        input = await allowed.brought(input)
        await check_references(self._store, session.id, input)
        record = allowed.record(replace(ask, system=system), lifetime=lifetime, session_id=session.id)
        replaces = ask.run_name is not None and body.if_busy == "reject"
        busy: IfBusy = "interrupt" if replaces else body.if_busy
        return await allowed.start(record, input, session=session, if_busy=busy)

    async def session(self, owner: str, name: str) -> Session:
        """Return the owner's session of that name; it is created at its first use."""
        known = await self._store.get_session(name)
        if known is not None and known.owner == owner and known.kind == "chat":
            return known
        now = self._engine.now()
        named = "ses_n" + hashlib.sha256(f"{owner}\n{name}".encode()).hexdigest()[:40]
        return await self._store.get_session(named) or Session(id=named, owner=owner, created_at=now, updated_at=now)

    async def _check_results(self, session: Session, input: list[Message]) -> None:
        """Refuse tool results without a call in the session: the model would not get them."""
        if await self._engine.of_session(session.id):
            return  # the call may not be stored yet
        path = branch(await self._store.messages(session.id), session.head_id)
        new = {said.id for said in input}
        for result in results_without_calls([*path, *input]):
            if result.id in new:
                raise _nobody_called(result.tool_call_id, "in this session")


class ChatCompletions(Feature):
    """Chat completions."""

    def __init__(self, bodies: Bodies, answers: Answers, reach: Reach, starting: Starting, chats: ChatStarts) -> None:
        self._bodies, self._answers, self._reach, self._starting = bodies, answers, reach, starting
        self._chats = chats

    @Endpoint(
        "POST",
        "/v1/chat/completions",
        who=CHAT,
        takes=ChatBody,
        answers={
            200: "a completion, or its chunks",
            202: "a run in the background",
            **RUN_ANSWERS,
            409: "the session is busy",
        },
        streams=True,
    )
    async def create_completion(self, request: Request) -> ASGIApp:
        """Answer with a completion, streaming or not. A disconnect stops the run, unless it is in the background."""
        is_form = (header(request, b"content-type") or "").lower().startswith(FORM)
        raw = await (self._read_form(request) if is_form else self._bodies.read(request))
        decoded = decode_object(raw)
        body = convert(decoded, ChatBody)
        check_messages(body)
        allowed = await self._starting.allow(request, body.model, idempotency(request, raw))
        run = (
            allowed if isinstance(allowed, Run) else await self._chats.start(request, allowed, body, decoded, ChatAsk())
        )
        streams = body.stream in (True, "true")
        if streams:
            return self.completion_stream(run, attached=run.take_hold())
        if body.background:
            return await unfinished_answer(run, _object)
        return WholeAnswer(run, self.completion, attached=run.take_hold())

    async def _read_form(self, request: Request) -> bytes:
        """Return a form as JSON: it can have files without base64."""
        content_type = header(request, b"content-type") or ""
        raw = await asyncio.to_thread(chat_in, content_type, await self._bodies.read_bytes(request))
        await self._bodies.check(raw)
        return raw

    # Streaming.

    def completion_stream(self, run: Run, *, skip: int = 0, attached: bool = False) -> EventStream:
        """Return a run as chunks, from the first or after `skip` of them."""
        sign = b"" if chat_ask(run.record.ask).run_name is not None else sse.HEARTBEAT  # its bytes count there
        return self._answers.stream(
            run, chunks_of(run), skip=skip, attached=attached, refuse=failure, sign_of_life=sign
        )

    # Not streaming.

    def completion(self, run: Run) -> Awaitable[ASGIApp]:
        """Return a settled run as the finished object, with a status that is an error unless it completed."""
        return self._answers.whole(run, _object, failure)

    # Resuming.

    @Endpoint(
        "GET",
        "/v1/chat/completions/{completion_id}",
        who=READ,
        query={"stream": "true for chunks", "starting_after": "data frames to leave out"},
        answers={200: "the completion", 202: "not finished yet", 410: "the log was trimmed"},
        streams=True,
    )
    async def get_completion(self, request: Request) -> ASGIApp:
        """Return a completion by its id, or stream what follows its first frames."""
        completion_id = request.path_params["completion_id"]
        try:
            run = await self._reach.run(request, openai_chat.run_id_of_completion(completion_id))
        except RunNotFound:
            raise RunNotFound(completion_id) from None
        if request.query_params.get("stream") == "true":
            return self.completion_stream(run, skip=frames_seen(request))
        return await (self.completion(run) if run.settlement is not None else unfinished_answer(run, _object))


def check_messages(body: ChatBody) -> None:
    """Refuse what no model could answer."""
    if not body.messages:
        raise BadRequest("messages is empty.", param="messages")
    last = body.messages[-1]
    if last.role == "user" and (not last.content or (isinstance(last.content, str) and not last.content.strip())):
        raise BadRequest("The last message is empty.", param=f"messages[{len(body.messages) - 1}].content")
    if body.n is not None and not 1 <= body.n <= 128:
        raise BadRequest("n is a number from 1 to 128.", param="n")


def _is_call(part: dict[str, Any]) -> bool:
    """Return whether a part of the content is a call, as in Anthropic's shape."""
    match part:
        case {"type": "tool_use"}:
            return True
    return False


_role = attrgetter("role")


def _check_all_results(messages: list[ChatMessage]) -> None:
    """Refuse tool results without a call in the messages before them."""
    if "tool" not in map(_role, messages):
        return
    called: set[str] = set()
    for said in messages:
        parts = said.content if isinstance(said.content, list) else []
        calls = [*(said.tool_calls or ()), *filter(_is_call, parts)]
        called |= {str(call.get("id")) for call in calls}  # a call may have no id, if its result has none
        is_called = said.tool_call_id in called if said.tool_call_id else bool(called)
        if said.role == "tool" and not is_called:
            raise _nobody_called(said.tool_call_id, "before it in messages")


def _nobody_called(call_id: str | None, where: str) -> BadRequest:
    return BadRequest(
        f"No tool call {where} waits for the result with the id {call_id!r}. Send the message that made the call too.",
        param="messages",
    )


def _new_input(messages: list[ChatMessage]) -> tuple[str, list[ChatMessage]]:
    """Return the system prompt, and what follows the last assistant message: the store has the rest."""
    system = [said for said in messages if said.role in ("system", "developer")]
    last = max((place for place, said in enumerate(messages) if said.role == "assistant"), default=-1)
    new = [said for said in messages[last + 1 :] if said.role in ("user", "tool")]
    return "\n\n".join(text for said in system if (text := text_of(said.content))), new


def _stored(said: ChatMessage) -> Message:
    return Message(
        id=new_id("msg"),
        role=said.role if said.role in ("tool", "assistant") else "user",
        content=said.content,
        name=said.name,
        tool_call_id=said.tool_call_id,
        tool_calls=_tool_calls(said.tool_calls) if said.tool_calls else (),
    )


def _tool_calls(calls: list[Any]) -> tuple[ToolCall, ...]:
    """Return a message's tool calls, or refuse a wrong field."""
    checked = convert({"calls": calls}, _Calls).calls
    return tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in checked)


def chunks_of(run: Run) -> openai_chat.Chunks:
    """Return the rendering of a run from its first event: the same bytes each time."""
    record, ask = run.record, chat_ask(run.record.ask)
    return openai_chat.Chunks(run.id, record.echo, record.created_at, choices=ask.n, include_usage=ask.include_usage)


async def _object(run: Run, settled: AnySettlement | None) -> dict[str, Any]:
    return (await gathered(run, _answer_of)).body(settled)


def _answer_of(run: Run) -> openai_chat.ChatAnswer:
    record = run.record
    return openai_chat.ChatAnswer(run.id, record.echo, record.created_at, choices=chat_ask(record.ask).n)


def failure(run: Run, settled: Failed | Interrupted) -> ASGIApp:
    """Return a failure that came before any output."""
    headers = failed_headers(run, settled)
    return error_answer(settled.error, extra=verdict(settled, run.id), headers=headers)
