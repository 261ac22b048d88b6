"""Ollama's API on the same runs: `/api/chat`, `/api/generate`, `/api/tags`, `/api/show`, `/api/version`, `/api/ps`.

`/api/chat` is the AI SDK's too: a message of Ollama's has `content`, one of the AI SDK's has `parts`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial, wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import CHAT, READ
from ...asks import ChatAsk
from ...errors import NOT_RETRIED, BadRequest, HoldfastError
from ...events import Event, Failed, Interrupted, Stopped
from ...fields import Table, check_fields
from ...runs.run import Run
from ...upstreams import FoundModel
from ...wires.ollama import (
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    OWN_FIELDS,
    UNKNOWN_OF_OLLAMA,
    OllamaBody,
    OllamaLines,
    chat_of,
    ollama_error,
    ollama_refusal,
    own_fields,
    plain_name,
)
from ..caller import model_of, providers_of
from ..errors import Json, json_of, retry_headers
from ..request import convert, decode, decode_object, idempotency, read_body
from ..routing import Endpoint, Handler
from ..services import Parts
from ..starting.starting import AllowedStart
from .openai_chat import ChatBody, check_messages, start_chat
from .run_responses import (
    WholeAnswer,
    answer_headers,
    failed_after_output,
    failed_headers,
    is_bare,
    not_again,
    so_far,
    stream,
)

VERSION = "0.12.0"
"""The version of Ollama's API, which clients read."""
NDJSON = "application/x-ndjson"


def with_ollama_errors(handler: Handler) -> Handler:
    """Return errors in Ollama's shape: its clients read `error` as a text."""

    @wraps(handler)
    async def answered(parts: Parts, request: Request) -> ASGIApp:
        try:
            return await handler(parts, request)
        except HoldfastError as error:
            info = error.info()
            return Json(ollama_refusal(info), info.status, headers=retry_headers(info))

    return answered


def is_ollamas(fields: Mapping[str, Any]) -> bool:
    """Return whether a request to `/api/chat` is Ollama's, by its messages."""
    if not fields.keys().isdisjoint(("id", "trigger", "messageId")):
        return False
    match fields:
        case {"messages": [{"content": _} as first, *_]}:
            return "parts" not in first
    return False


async def ollama_chat(parts: Parts, request: Request, fields: dict[str, Any], raw: bytes) -> ASGIApp:
    """Answer a chat, streaming by default. A disconnect stops the run."""

    @with_ollama_errors
    async def answer(parts: Parts, request: Request) -> ASGIApp:
        return await _answer(parts, request, convert(fields, OllamaBody), fields, raw, OLLAMA_CHAT)

    return await answer(parts, request)


@with_ollama_errors
async def generate_text(parts: Parts, request: Request) -> ASGIApp:
    """Answer a prompt. An empty prompt, which loads a model in Ollama, does nothing here."""
    raw = await read_body(parts, request)
    fields = decode_object(raw)
    body = convert(fields, OllamaBody)
    if not body.prompt and not body.images:
        await model_of(parts, request, plain_name(body.model))
        head = {"model": body.model, "created_at": "1970-01-01T00:00:00Z"}
        return Json({**head, "response": "", "done": True, "done_reason": "load"})
    return await _answer(parts, request, body, fields, raw, OLLAMA_GENERATE)


async def _answer(
    parts: Parts, request: Request, body: OllamaBody, fields: dict[str, Any], raw: bytes, table: Table
) -> ASGIApp:
    allowed = await parts.starting.allow(request, plain_name(body.model), idempotency(request, raw))
    run = allowed if isinstance(allowed, Run) else await _start(parts, request, allowed, body, fields, table)
    lines = _lines(run, body.model, is_chat=table is OLLAMA_CHAT)
    if body.stream is False:
        return WholeAnswer(parts, run, partial(_whole, lines), attached=run.take_hold())
    headers = {**answer_headers(run), "content-type": NDJSON}
    return stream(parts, run, lines, attached=run.take_hold(), refuse=_refused, headers=headers, sign_of_life=b"")


async def _start(
    parts: Parts, request: Request, allowed: AllowedStart, body: OllamaBody, fields: dict[str, Any], table: Table
) -> Run:
    native = is_ollama(parts, allowed.model.found)
    check_fields(fields, {**table, **OWN_FIELDS} if native else table, UNKNOWN_OF_OLLAMA)
    chat = chat_of(body)
    chat_body = convert(chat, ChatBody)
    check_messages(chat_body)
    ask = ChatAsk(own=own_fields(body) if native else None)
    return await start_chat(parts, request, allowed, chat_body, chat, ask)


def is_ollama(parts: Parts, found: FoundModel) -> bool:
    """Return whether the upstream of a model is an Ollama."""
    return parts.configured.dialect(found.provider.name) == "ollama"


def _lines(run: Run, model: str, *, is_chat: bool) -> OllamaLines:
    return OllamaLines(run.id, model, run.record.created_at, is_chat=is_chat, settled_at=lambda: run.record.settled_at)


async def _whole(lines: OllamaLines, parts: Parts, run: Run) -> ASGIApp:
    settled = await run.settled()
    if isinstance(settled, (Failed, Interrupted)) and await is_bare(run):
        return _refused(run, settled)
    events: list[Event] = []
    async for some in so_far(run):
        events += some
    answer = lines.whole(events)
    if isinstance(settled, (Failed, Interrupted)):
        return json_of(answer, status_code=parts.settings.failed_status, headers=failed_after_output(run))
    status, headers = (NOT_RETRIED, not_again(run)) if isinstance(settled, Stopped) else (200, answer_headers(run))
    return json_of(answer, status_code=status, headers=headers)


def _refused(run: Run, settled: Failed | Interrupted) -> ASGIApp:
    return Json(ollama_error(settled, run.id), settled.error.status, headers=failed_headers(run, settled))


# Models.


async def list_tags(parts: Parts, request: Request) -> ASGIApp:
    """List the models in Ollama's shape."""
    providers = providers_of(parts, request)
    names = [*await providers.names(demo=not providers.real), *providers.aliases]
    return Json({"models": [_listed(name) for name in names]})


def _listed(name: str) -> dict[str, Any]:
    digest = hashlib.sha256(name.encode()).hexdigest()  # clients take models of one digest for one model
    known = {"size": 0, "digest": digest, "modified_at": "1970-01-01T00:00:00Z", "details": _DETAILS}
    return {"name": name, "model": name, **known}


_DETAILS = {
    "parent_model": "",
    "format": "",
    "family": "",
    "families": [],
    "parameter_size": "",
    "quantization_level": "",
}


class ShowBody(msgspec.Struct, frozen=True):
    """A request for the data of a model, by either name of the field."""

    model: str | None = None
    name: str | None = None


@with_ollama_errors
async def show_model(parts: Parts, request: Request) -> ASGIApp:
    """Return the known data of a model."""
    body = decode(await read_body(parts, request), ShowBody)
    name = plain_name(body.model or body.name)
    if not isinstance(name, str):
        raise BadRequest("model is missing.", param="model")
    provider, *_ = await providers_of(parts, request).find(name)
    able = ["completion", "tools"] if getattr(provider, "tools", True) else ["completion"]
    texts = {"modelfile": "", "parameters": "", "template": "", "license": ""}
    return Json({**texts, "details": _DETAILS, "model_info": {}, "capabilities": able})


async def ollama_version(parts: Parts, request: Request) -> ASGIApp:
    """Return the version of Ollama's API."""
    return Json({"version": VERSION})


async def running_models(parts: Parts, request: Request) -> ASGIApp:
    """List the loaded models: always empty here."""
    return Json({"models": []})


ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/generate",
        generate_text,
        who=CHAT,
        takes=OllamaBody,
        answers={
            200: "an answer, or its lines",
            400: "bad input",
            404: "no such model",
            406: "the upstream failed after output",
            413: "too large",
            429: "too many runs",
            502: "the upstream failed",
            503: "the server is ending",
            504: "the upstream was silent",
        },
        streams=True,
        ollama=True,
    ),
    Endpoint("GET", "/api/tags", list_tags, who=READ, answers={200: "the models"}),
    Endpoint(
        "POST",
        "/api/show",
        show_model,
        who=READ,
        answers={200: "the model", 400: "bad input", 404: "no such model", 413: "too large"},
        ollama=True,
    ),
    Endpoint("GET", "/api/version", ollama_version, who=READ, answers={200: "the version"}),
    Endpoint("GET", "/api/ps", running_models, who=READ, answers={200: "none"}),
]
