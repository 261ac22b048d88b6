"""`/v1/chat/completions`: OpenAI's dialect on the same runs."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..asgi import EventStream
from ..errors import BadRequest, RunNotFound
from ..events import AnySettlement, Failed, Interrupted
from ..history import Message, Session, branch, for_model
from ..ids import new_id
from ..run import Run
from ..store import Idempotency, IfBusy, RunRecord
from ..wire import openai_chat, sse
from . import conversations
from .answering import WholeAnswer, answer_headers, failed_headers, frames_seen, gathered, stream, whole
from .context import (
    Endpoint,
    Parts,
    check_name,
    convert,
    decode_object,
    fresh_run_id,
    header,
    idempotency,
    own_run,
    owner_of,
    read_body,
)
from .errors import Json, answer
from .sessions import tool_calls

OURS = frozenset({"session_id", "background", "if_busy", "stream", "stream_options", "model", "messages"})
"""What of a request is for us; everything else is passed on."""


class ChatMessage(msgspec.Struct, frozen=True):
    """A message, as far as it is checked here."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream carries besides the answer."""

    include_usage: bool = False


class ChatBody(msgspec.Struct, frozen=True):
    """A request, as far as it is checked here. Unknown fields are passed to the upstream."""

    messages: list[ChatMessage]
    model: str = ""
    stream: bool | Literal["true", "false"] | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    session_id: str | None = None
    background: bool = False
    if_busy: Literal["reject", "queue", "interrupt"] = "reject"


async def create_completion(parts: Parts, request: Request) -> Response:
    """Answer with a completion, streaming or not. The run lives as long as its client, unless in the background."""
    raw = await read_body(parts, request)
    decoded = decode_object(raw)
    body = convert(decoded, ChatBody)
    check_messages(body)
    model = body.model or parts.configured.default_model
    if not model:
        raise BadRequest("model is missing.", param="model")
    run = await start_chat(parts, request, body, decoded, model, raw)
    streams = body.stream in (True, "true")
    if streams:
        return completion_stream(parts, run, attached=run.take_hold())
    if body.background:
        return await _poll(run, status=202)
    return WholeAnswer(run, completion, attached=run.take_hold())


def check_messages(body: ChatBody) -> None:
    """Refuse what no model could answer."""
    if not body.messages:
        raise BadRequest("messages is empty.", param="messages")
    last = body.messages[-1]
    if last.role == "user" and (not last.content or (isinstance(last.content, str) and not last.content.strip())):
        raise BadRequest("The last message is empty.", param=f"messages[{len(body.messages) - 1}].content")
    if body.n is not None and not 1 <= body.n <= 128:
        raise BadRequest("n is a number from 1 to 128.", param="n")


async def start_chat(
    parts: Parts,
    request: Request,
    body: ChatBody,
    decoded: dict[str, Any],
    model: str,
    raw: bytes,
    *,
    kept: dict[str, Any] | None = None,
    begins: bool = False,
) -> Run:
    """Start the run that answers a request which is in OpenAI's words, or was put into them.

    `kept` is what another wire has to remember of its own request to render the run later. Where `begins`, the earlier
    messages of the request begin a session that has none.
    """
    await parts.providers.find(model)
    parts.starts.take(owner_of(request))
    name = header(request, b"x-session-id") if body.session_id is None else body.session_id
    key = idempotency(request, raw)
    conversation = conversations.named_in(request)
    record = RunRecord(
        id=fresh_run_id(parts),
        owner=owner_of(request),
        message_id=new_id("msg"),
        model=model,
        kind=parts.agents.kind_of(model),
        lifetime="detached" if body.background or conversation else "attached",
        request={
            "params": {field: value for field, value in decoded.items() if field not in OURS},
            "n": body.n or 1,
            "include_usage": body.stream_options is not None and body.stream_options.include_usage,
            **(kept or {}),
        },
    )
    session_name = None if name is None else check_name(name, "session_id")
    if conversation is None:
        return await _start(parts, record, body, decoded, session_name, key, begins)

    async def start(record: RunRecord) -> Run:
        return await _start(parts, record, body, decoded, session_name, None, begins)

    return await conversations.start(parts, conversation, record, start)


async def _start(
    parts: Parts,
    record: RunRecord,
    body: ChatBody,
    decoded: dict[str, Any],
    session_name: str | None,
    key: Idempotency | None,
    begins: bool,
) -> Run:
    """Start a run, in the session of that name or outside of any, under a key or without one."""
    if session_name is not None:
        return await _start_in_session(parts, record, body, session_name, key, begins)
    record.request["messages"] = decoded["messages"]
    keep = record.lifetime == "detached" or key is not None  # otherwise nobody asked for it to be kept
    return await parts.engine.submit(record, keep=keep, idempotency=key, source=None)


async def _start_in_session(
    parts: Parts, record: RunRecord, body: ChatBody, name: str, key: Idempotency | None, begins: bool
) -> Run:
    system, new = _new_input(body.messages)
    if not new:
        raise BadRequest("Nothing follows the last assistant message: there is nothing to answer.", param="messages")
    if system:
        record.request["system"] = system
    input = [_stored(said) for said in new]
    session = await named_session(parts, record.owner, name)
    if begins and not await parts.store.messages(session.id):
        input = [_stored(said) for said in body.messages if said.role in ("user", "assistant", "tool")]
    if input[-1].role == "tool" and (key is None or await parts.store.find_repeated(key) is None):
        await _check_results(parts, session, input)
    session = await parts.store.create_session(session)
    record = msgspec.structs.replace(record, session_id=session.id)
    replaces = conversations.CONVERSATION in record.request and body.if_busy == "reject"
    busy: IfBusy = "interrupt" if replaces else body.if_busy
    return await parts.engine.submit(record, input, if_busy=busy, idempotency=key)


async def named_session(parts: Parts, owner: str, name: str) -> Session:
    """Return the owner's session of that name, or the one that is there from its first use on."""
    known = await parts.store.get_session(name)
    if known is not None and known.owner == owner and known.kind == "chat":
        return known
    now = parts.engine.now()
    named = "ses_n" + hashlib.sha256(f"{owner}\n{name}".encode()).hexdigest()[:40]
    return await parts.store.get_session(named) or Session(id=named, owner=owner, created_at=now, updated_at=now)


async def _check_results(parts: Parts, session: Session, input: list[Message]) -> None:
    """Refuse results of tools that the session's model did not call: they would not be shown to it."""
    if parts.engine.of_session(session.id):
        return  # the call may be on its way
    path = branch(await parts.store.messages(session.id), session.head_id)
    shown = for_model([*path, *input])
    if not shown or shown[-1]["role"] != "tool":
        raise BadRequest("No tool call in this session waits for these results.", param="messages")


def _new_input(messages: list[ChatMessage]) -> tuple[str, list[ChatMessage]]:
    """Return the system prompt, and what follows the last assistant message: the store has the rest."""
    system = [said for said in messages if said.role in ("system", "developer")]
    last = max((place for place, said in enumerate(messages) if said.role == "assistant"), default=-1)
    new = [said for said in messages[last + 1 :] if said.role in ("user", "tool")]
    return "\n\n".join(text for said in system if (text := _text(said.content))), new


def _text(content: str | list[dict[str, Any]] | None) -> str:
    """Return content as text, parts too."""
    if isinstance(content, list):
        return "\n\n".join(text for part in content if isinstance(text := part.get("text"), str))
    return content or ""


def _stored(said: ChatMessage) -> Message:
    return Message(
        id=new_id("msg"),
        role=said.role if said.role in ("tool", "assistant") else "user",
        content=said.content,
        name=said.name,
        tool_call_id=said.tool_call_id,
        tool_calls=tool_calls(said.tool_calls) if said.tool_calls else (),
    )


# Streaming.


def completion_stream(parts: Parts, run: Run, *, skip: int = 0, attached: bool = False) -> EventStream:
    """Return a run as chunks, from the first or after `skip` of them."""
    sign = b"" if conversations.CONVERSATION in run.record.request else sse.HEARTBEAT  # it would be counted there
    return stream(parts, run, chunks_of(run), skip=skip, attached=attached, refuse=failure, sign_of_life=sign)


def chunks_of(run: Run) -> openai_chat.Chunks:
    """Return what renders a run from its first event: the same bytes each time."""
    return openai_chat.Chunks(
        run.id,
        run.record.model,
        run.record.created_at,
        choices=run.record.request.get("n", 1),
        include_usage=run.record.request.get("include_usage", False),
    )


# Not streaming.


async def completion(run: Run) -> Response:
    """Return a settled run as the finished object, under a status that tells failure from success."""
    return await whole(run, _object, failure)


async def _object(run: Run, settled: AnySettlement | None) -> dict[str, Any]:
    return (await gathered(run, _answer_of)).body(settled)


def _answer_of(run: Run) -> openai_chat.Answer:
    record = run.record
    return openai_chat.Answer(run.id, record.model, record.created_at, choices=record.request.get("n", 1))


def failure(run: Run, settled: Failed | Interrupted) -> Response:
    """Return a failure that came before any output."""
    headers = failed_headers(run, settled)
    return answer(settled.error, extra=openai_chat.verdict(settled, run.id), headers=headers)


# Coming back.


async def get_completion(parts: Parts, request: Request) -> Response:
    """Return a completion by its id, or stream what follows its first frames."""
    completion_id = request.path_params["completion_id"]
    try:
        run = await own_run(parts, request, openai_chat.run_id(completion_id))
    except RunNotFound:
        raise RunNotFound(completion_id) from None
    if request.query_params.get("stream") == "true":
        return completion_stream(parts, run, skip=frames_seen(request))
    return await _poll(run)


async def _poll(run: Run, status: int = 200) -> Response:
    if run.settlement is not None and status == 200:
        return await completion(run)
    body = {**await _object(run, run.settlement), "status": run.status}
    return Json(body, status_code=202, headers=answer_headers(run))


ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/chat/completions",
        create_completion,
        takes=ChatBody,
        answers={
            200: "a completion, or its chunks",
            202: "a run in the background",
            400: "bad input",
            404: "no such model",
            409: "the session is busy",
            413: "too large",
            429: "too many runs",
            502: "the upstream failed",
            503: "the server is ending",
            504: "the upstream was silent",
        },
        streams=True,
    ),
    Endpoint(
        "GET",
        "/v1/chat/completions/{completion_id}",
        get_completion,
        query={"stream": "true for chunks", "starting_after": "data frames to leave out"},
        answers={
            200: "the completion",
            202: "not finished yet",
            400: "a bad query",
            404: "no such completion",
            410: "the log was trimmed",
        },
        streams=True,
    ),
]
