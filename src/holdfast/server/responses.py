"""`/v1/responses`: OpenAI's other dialect. A response is a run, and its id is the run's."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..asgi import EventStream
from ..errors import BadRequest, Conflict, HoldfastError, RunNotFound
from ..ids import new_id
from ..run import Run
from ..store import Idempotency, RunRecord
from ..wire import openai_responses
from ..wire.openai_responses import ECHOED
from ..wire.openai_responses_input import Item, items_of, listed, params_of
from .answering import WholeAnswer, answer_headers, gathered, stream, whole
from .chains import RESPONSE, ResponseNotFound, conversation, is_stored, resolved
from .completions import failure
from .context import (
    Endpoint,
    Parts,
    convert,
    decode_object,
    fresh_run_id,
    idempotency,
    own_run,
    owner_of,
    read_body,
    whole_number,
)
from .errors import Json
from .runs import stop_within

LOOKED_AT = 1000
"""Runs that one call of the list looks at: most of an owner's may be no responses."""


class ReasoningOptions(msgspec.Struct, frozen=True):
    """How much the model should think."""

    effort: str | None = None
    summary: str | None = None


class TextOptions(msgspec.Struct, frozen=True):
    """What the text should look like."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponseBody(msgspec.Struct, frozen=True):
    """A request, as far as it is checked here. Unknown fields are passed to the upstream."""

    input: str | list[dict[str, Any]]
    model: str = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[str] | None = None

    @property
    def is_stored(self) -> bool:
        """Whether it is kept for good: unless the caller says otherwise."""
        return self.store is not False or bool(self.background)

    @property
    def is_detached(self) -> bool:
        """Whether it outlives its client: one who was told the id can come back, and one who was not never will."""
        return bool(self.background) or (self.is_stored and bool(self.stream))


async def create_response(parts: Parts, request: Request) -> Response:
    """Answer with a response: at once in the background, streaming, or when it is finished."""
    raw = await read_body(parts, request)
    decoded = decode_object(raw)
    body = convert(decoded, ResponseBody)
    _check(body)
    model = body.model or parts.configured.default_model
    if not model:
        raise BadRequest("model is missing.", param="model")
    provider, _ = await parts.providers.find(model)
    items = items_of(body.input)
    params = params_of(decoded, _limit_of(parts, provider.name))
    owner = owner_of(request)
    items = await resolved(parts.store, owner, items)
    record = RunRecord(
        id=fresh_run_id(parts),
        owner=owner,
        message_id=new_id("msg"),
        model=model,
        kind=parts.agents.kind_of(model),
        lifetime="detached" if body.is_detached else "attached",
        request={"params": params, RESPONSE: _asked(body, decoded, items)},
    )
    await conversation(parts.store, record)  # refuses what could not be answered
    parts.starts.take(owner)
    run = await _start(parts, record, idempotency(request, raw), keep=body.is_stored)
    if body.stream:
        return _stream(parts, run, stop_unheard=run.id == record.id and not body.background)
    if body.background:
        return Json(await _begun(run), headers=answer_headers(run))
    return WholeAnswer(run, finished, attached=run.take_hold())


async def _start(parts: Parts, record: RunRecord, key: Idempotency | None, *, keep: bool) -> Run:
    """Start the run, with its webhooks promised before: what is told of it must not depend on luck."""
    in_background = bool(record.request[RESPONSE].get("background"))
    expected = await parts.webhooks.expect(record) if in_background else []
    try:
        run = await parts.engine.submit(record, keep=keep or key is not None, idempotency=key)
    except HoldfastError:
        parts.webhooks.withdraw(expected)
        raise
    parts.webhooks.promise(run, expected)
    return run


def _check(body: ResponseBody) -> None:
    metadata = body.metadata or {}
    if len(metadata) > 16 or any(len(name) > 64 or len(value) > 512 for name, value in metadata.items()):
        raise BadRequest(
            "metadata has at most 16 pairs, with names of up to 64 and values of up to 512 characters.",
            param="metadata",
        )
    if body.max_output_tokens is not None and body.max_output_tokens < 1:
        raise BadRequest("max_output_tokens is at least 1.", param="max_output_tokens")


def _limit_of(parts: Parts, provider: str) -> str:
    """Return what an upstream calls the limit of an answer: OpenAI's newer models refuse the name that others know."""
    return "max_completion_tokens" if parts.configured.profile(provider) == "openai" else "max_tokens"


def _asked(body: ResponseBody, decoded: dict[str, Any], items: list[Item]) -> dict[str, Any]:
    """Return what is kept of a request: its input, and what its response repeats."""
    repeated = {name: decoded[name] for name in ECHOED if decoded.get(name) is not None}
    text = msgspec.to_builtins(body.text or TextOptions())
    return {
        **repeated,
        "input": items,
        "store": body.is_stored,
        "reasoning": msgspec.to_builtins(body.reasoning or ReasoningOptions()),
        "text": ECHOED["text"] | {name: value for name, value in text.items() if value is not None},
    }


# The object.


def response_of(run: Run) -> openai_responses.Response:
    """Return a run as a response that has said nothing yet. One that was started elsewhere was asked for nothing."""
    record = run.record
    return openai_responses.Response(run.id, record.model, record.created_at, record.request.get(RESPONSE, {}))


async def shown(run: Run) -> dict[str, Any]:
    """Return a run as a response, as far as it has come."""
    response = await gathered(run, response_of, without_calls=True)
    return response.body(response.settled, waiting=run.status == "queued")


async def _begun(run: Run) -> dict[str, Any]:
    """Return a response that was just started; a repeated request may find it further on."""
    return await shown(run) if run.seq > 1 else response_of(run).body(None, waiting=True)


async def finished(run: Run) -> Response:
    """Return a settled run as the finished object, under a status that tells failure from success."""
    return await whole(run, lambda run, _: shown(run), failure)


# The stream.


def _stream(parts: Parts, run: Run, *, stop_unheard: bool) -> EventStream:
    """Return a response as it is asked for. Where `stop_unheard`, it stops if nobody ever learnt its id."""
    frames = _frames(run)

    async def leave_unheard() -> None:
        if not frames.said:
            await run.stop(by="disconnect")

    on_leave = leave_unheard if stop_unheard else None
    return stream(parts, run, frames, attached=run.take_hold(), on_leave=on_leave, refuse=failure)


def _frames(run: Run) -> openai_responses.Frames:
    return openai_responses.Frames(response_of(run))


# Coming back.


async def _own(parts: Parts, request: Request) -> Run:
    response_id = request.path_params["response_id"]
    try:
        return await own_run(parts, request, openai_responses.run_id(response_id))
    except RunNotFound:
        raise ResponseNotFound(response_id) from None


async def get_response(parts: Parts, request: Request) -> Response:
    """Return a response by its id, or stream what follows an event of it."""
    run = await _own(parts, request)
    if request.query_params.get("stream") == "true":
        return stream(parts, run, _frames(run), skip=_starting_after(request) + 1)
    return Json(await shown(run), headers=answer_headers(run))


def _starting_after(request: Request) -> int:
    text = request.query_params.get("starting_after", "-1")
    if text != "-1" and not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest("starting_after is the sequence_number of the last event seen.", param="starting_after")
    return int(text)


async def cancel_response(parts: Parts, request: Request) -> Response:
    """Stop a response, in the background or not, and return it. The first ending stands."""
    run = await _own(parts, request)
    await stop_within(run)
    return Json(await shown(run), headers=answer_headers(run))


async def delete_response(parts: Parts, request: Request) -> Response:
    """Stop a response where it still goes on, and forget it."""
    run = await _own(parts, request)
    if run.record.session_id is not None:
        raise Conflict(f"This answer belongs to session {run.record.session_id}. Delete that session instead.")
    await stop_within(run)
    await parts.store.delete_run(run.id)
    parts.engine.forget(run.id)
    response_id = openai_responses.response_id(run.id)
    return Json({"id": response_id, "object": "response", "deleted": True}, headers=answer_headers(run))


# Lists.


async def list_input_items(parts: Parts, request: Request) -> Response:
    """List what was said to the model in a response's own request, the last first."""
    run = await _own(parts, request)
    items = listed(run.record.request.get(RESPONSE, {}).get("input", []), run.id.removeprefix("run_"))
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest("order is asc or desc.", param="order")
    if order == "desc":
        items.reverse()
    if after := request.query_params.get("after"):
        places = [place for place, item in enumerate(items) if item["id"] == after]
        items = items[places[0] + 1 :] if places else []
    limit = whole_number(request, "limit", 20, 100)
    return Json(_page(items[:limit], has_more=len(items) > limit), headers=answer_headers(run))


def _page(data: list[dict[str, Any]], *, has_more: bool, last: str | None = None) -> dict[str, Any]:
    ends = {"first_id": data[0]["id"] if data else None, "last_id": last or (data[-1]["id"] if data else None)}
    return {"object": "list", "data": data, **ends, "has_more": has_more}


async def list_responses(parts: Parts, request: Request) -> Response:
    """List the responses that are kept, the newest first."""
    limit = whole_number(request, "limit", 20, 100)
    after = request.query_params.get("after")
    before = openai_responses.run_id(after) if after else None
    found: list[RunRecord] = []
    looked_at = 0
    while len(found) <= limit and looked_at < LOOKED_AT:
        records = await parts.store.list_runs(owner=owner_of(request), before=before, limit=200)
        found += [record for record in records if is_stored(record)]
        looked_at += len(records)
        if len(records) < 200:
            return await _listed(parts, found, limit)
        before = records[-1].id
    return await _listed(parts, found, limit, last=before)


async def _listed(parts: Parts, found: list[RunRecord], limit: int, last: str | None = None) -> Response:
    """Answer with a page. `last` is how far was looked, where there may be more than was found."""
    data = [await shown(await parts.engine.open(record.id)) for record in found[:limit]]
    if len(found) > limit or last is None:
        return Json(_page(data, has_more=len(found) > limit))
    return Json(_page(data, has_more=True, last=openai_responses.response_id(last)))


_NOT_THERE = {404: "no such response"}
ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/responses",
        create_response,
        takes=ResponseBody,
        answers={
            200: "a response, or its events",
            400: "bad input",
            404: "no such model, or no such response to follow",
            409: "the response to follow has not ended",
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
        "/v1/responses",
        list_responses,
        query={"limit": "1 to 100", "after": "the response to go on from"},
        answers={200: "responses, the newest first", 400: "a bad query"},
    ),
    Endpoint(
        "GET",
        "/v1/responses/{response_id}",
        get_response,
        query={"stream": "true for events", "starting_after": "the last sequence_number seen"},
        answers={200: "the response", 400: "a bad query", **_NOT_THERE, 410: "the log was trimmed"},
        streams=True,
    ),
    Endpoint(
        "DELETE",
        "/v1/responses/{response_id}",
        delete_response,
        answers={200: "it is gone", **_NOT_THERE, 409: "it belongs to a session"},
    ),
    Endpoint(
        "POST",
        "/v1/responses/{response_id}/cancel",
        cancel_response,
        answers={200: "the settled response", **_NOT_THERE},
    ),
    Endpoint(
        "GET",
        "/v1/responses/{response_id}/input_items",
        list_input_items,
        query={"limit": "1 to 100", "order": "asc or desc", "after": "the item to go on from"},
        answers={200: "the items", 400: "a bad query", **_NOT_THERE},
    ),
]
