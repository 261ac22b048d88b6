"""`/v1/messages`: Anthropic's Messages API on the same runs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..asgi import EventStream
from ..errors import BadRequest, RunNotFound
from ..events import AnySettlement, Failed, Interrupted, Stopped
from ..run import Run
from ..wire import anthropic_messages
from ..wire.anthropic_request import CountBody, MessagesBody, estimated_tokens, messages_of, to_chat
from .answering import (
    WholeAnswer,
    answer_headers,
    failed_headers,
    frames_seen,
    gathered,
    not_again,
    stream,
    whole,
)
from .completions import ChatBody, check_messages, start_chat
from .context import Endpoint, Parts, convert, decode, own_run, read_body
from .errors import Json, answer


async def create_message(parts: Parts, request: Request) -> Response:
    """Answer with a message, streaming or not. The run lives as long as its client, unless in the background."""
    raw = await read_body(parts, request)
    body = decode(raw, MessagesBody)
    model = body.model or parts.configured.default_model
    if not model:
        raise BadRequest("model is missing.", param="model")
    chat = to_chat(body, native=await _is_native(parts, model))
    asked = convert(chat, ChatBody)
    check_messages(asked)
    run = await start_chat(parts, request, asked, chat, model, raw)
    if body.stream:
        return message_stream(parts, run, attached=run.take_hold())
    if body.background:
        return await _poll(run, status=202)
    return WholeAnswer(run, message, attached=run.take_hold())


async def _is_native(parts: Parts, model: str) -> bool:
    """Tell whether the upstream of a model speaks this dialect itself."""
    provider, _ = await parts.providers.find(model)
    return parts.configured.dialect(provider.name) == "anthropic"


async def count_tokens(parts: Parts, request: Request) -> Response:
    """Estimate the tokens of a request: no upstream is asked, and the answer says so."""
    body = decode(await read_body(parts, request), CountBody)
    tokens = estimated_tokens(messages_of(body, native=True), body.tools)
    return Json({"input_tokens": tokens, "holdfast": {"source": "estimated"}})


def message_stream(parts: Parts, run: Run, *, skip: int = 0, attached: bool = False) -> EventStream:
    """Return a run as Anthropic's stream events, from the first or after `skip` of them."""
    rendering = anthropic_messages.MessageEvents(run.id, run.record.model)
    return stream(parts, run, rendering, skip=skip, attached=attached, refuse=refusal)


async def message(run: Run) -> Response:
    """Return a settled run as the finished message, under a status that tells failure from success."""
    settled = await run.settled()
    if isinstance(settled, Stopped):
        return Json(await _object(run, settled), status_code=anthropic_messages.STOPPED, headers=not_again(run))
    return await whole(run, _object, refusal)


async def _object(run: Run, settled: AnySettlement | None) -> dict[str, Any]:
    said = await gathered(run, lambda run: anthropic_messages.MessageAnswer(run.id, run.record.model))
    return said.body(settled)


def refusal(run: Run, settled: Failed | Interrupted) -> Response:
    """Return a failure that came before any output."""
    extra = anthropic_messages.unfinished(settled, run.id)
    return answer(settled.error, extra=extra, headers=failed_headers(run, settled))


async def get_message(parts: Parts, request: Request) -> Response:
    """Return a run as a message by the message's id, or stream it, from the start or after its first frames."""
    answer_id = request.path_params["answer_id"]
    try:
        run = await own_run(parts, request, anthropic_messages.run_id(answer_id))
    except RunNotFound:
        raise RunNotFound(answer_id) from None
    if request.query_params.get("stream") == "true":
        return message_stream(parts, run, skip=frames_seen(request))
    return await _poll(run)


async def _poll(run: Run, status: int = 200) -> Response:
    if run.settlement is not None and status == 200:
        return await message(run)
    return Json({**await _object(run, run.settlement), "status": run.status}, 202, headers=answer_headers(run))


_FAILURES = {
    409: "the session is busy, or the run was stopped",
    429: "too many runs",
    502: "the upstream failed",
    503: "the server is ending",
    504: "the upstream was silent",
}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/messages",
        create_message,
        takes=MessagesBody,
        answers={
            200: "a message, or its events",
            202: "a run in the background",
            400: "bad input",
            404: "no such model",
            413: "too large",
            **_FAILURES,
        },
        streams=True,
    ),
    Endpoint(
        "POST",
        "/v1/messages/count_tokens",
        count_tokens,
        takes=CountBody,
        answers={200: "an estimate", 400: "bad input", 413: "too large"},
    ),
    Endpoint(
        "GET",
        "/v1/messages/{answer_id}",
        get_message,
        query={"stream": "true for events", "starting_after": "frames to leave out"},
        answers={
            200: "the message",
            202: "not finished yet",
            400: "a bad query",
            404: "no such message",
            410: "the log was trimmed",
            **_FAILURES,
        },
        streams=True,
    ),
]
