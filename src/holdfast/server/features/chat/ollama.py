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

from ....access import CHAT, READ
from ....asks import ChatAsk
from ....errors import NOT_RETRIED, BadRequest, HoldfastError
from ....events import Event, Failed, Interrupted, Stopped
from ....fields import Table, check_fields
from ....runs.run import Run
from ....upstreams import FoundModel
from ....wires.ollama import (
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
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature, Handling
from ...kit.http.errors import Json, json_of, retry_headers
from ...kit.request import Bodies, convert, decode, decode_object, idempotency
from ...kit.run_responses import (
    RUN_ANSWERS,
    Answers,
    WholeAnswer,
    answer_headers,
    failed_after_output,
    failed_headers,
    is_bare,
    not_again,
    so_far,
)
from ...live.live_settings import Configured
from ...sources.models import AllowedModels
from ...starting.starting import AllowedStart, Starting
from .openai_chat import ChatBody, ChatStarts, check_messages

VERSION = "0.12.0"
"""The version of Ollama's API, which clients read."""
NDJSON = "application/x-ndjson"


def with_ollama_errors(handler: Handling) -> Handling:
    """Return errors in Ollama's shape: its clients read `error` as a text."""

    @wraps(handler)
    async def answered(self: Any, request: Request) -> ASGIApp:
        try:
            return await handler(self, request)
        except HoldfastError as error:
            info = error.info()
            return Json(ollama_refusal(info), info.status, headers=retry_headers(info))

    return answered


def is_ollama(configured: Configured, found: FoundModel) -> bool:
    """Return whether the upstream of a model is an Ollama."""
    return configured.dialect(found.provider.name) == "ollama"


def is_ollamas(fields: Mapping[str, Any]) -> bool:
    """Return whether a request to `/api/chat` is Ollama's, by its messages."""
    if not fields.keys().isdisjoint(("id", "trigger", "messageId")):
        return False
    match fields:
        case {"messages": [{"content": _} as first, *_]}:
            return "parts" not in first
    return False


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


class OllamaApi(Feature):
    """Chats and models in Ollama's dialect."""

    def __init__(
        self,
        bodies: Bodies,
        answers: Answers,
        starting: Starting,
        models: AllowedModels,
        configured: Configured,
        chats: ChatStarts,
    ) -> None:
        self._bodies, self._answers, self._starting, self._models = bodies, answers, starting, models
        self._configured, self._chats = configured, chats

    async def ollama_chat(self, request: Request, fields: dict[str, Any], raw: bytes) -> ASGIApp:
        """Answer a chat, streaming by default. A disconnect stops the run."""

        @with_ollama_errors
        async def answer(self: OllamaApi, request: Request) -> ASGIApp:
            return await self._answer(request, convert(fields, OllamaBody), fields, raw, OLLAMA_CHAT)

        return await answer(self, request)

    @Endpoint(
        "POST",
        "/api/generate",
        who=CHAT,
        takes=OllamaBody,
        answers={200: "an answer, or its lines", **RUN_ANSWERS},
        streams=True,
        ollama=True,
    )
    @with_ollama_errors
    async def generate_text(self, request: Request) -> ASGIApp:
        """Answer a prompt. An empty prompt, which loads a model in Ollama, does nothing here."""
        raw = await self._bodies.read(request)
        fields = decode_object(raw)
        body = convert(fields, OllamaBody)
        if not body.prompt and not body.images:
            await self._models.find(access_of(request), plain_name(body.model))
            head = {"model": body.model, "created_at": "1970-01-01T00:00:00Z"}
            return Json({**head, "response": "", "done": True, "done_reason": "load"})
        return await self._answer(request, body, fields, raw, OLLAMA_GENERATE)

    async def _answer(
        self, request: Request, body: OllamaBody, fields: dict[str, Any], raw: bytes, table: Table
    ) -> ASGIApp:
        allowed = await self._starting.allow(request, plain_name(body.model), idempotency(request, raw))
        run = allowed if isinstance(allowed, Run) else await self._start(request, allowed, body, fields, table)
        lines = _lines(run, body.model, is_chat=table is OLLAMA_CHAT)
        if body.stream is False:
            return WholeAnswer(run, partial(self._whole, lines), attached=run.take_hold())
        headers, beat = {**answer_headers(run), "content-type": NDJSON}, lines.heartbeat
        return self._answers.stream(
            run, lines, attached=run.take_hold(), refuse=_refused, headers=headers, sign_of_life=beat
        )

    async def _start(
        self, request: Request, allowed: AllowedStart, body: OllamaBody, fields: dict[str, Any], table: Table
    ) -> Run:
        native = is_ollama(self._configured, allowed.model.found)
        check_fields(fields, {**table, **OWN_FIELDS} if native else table, UNKNOWN_OF_OLLAMA)
        chat = chat_of(body)
        chat_body = convert(chat, ChatBody)
        check_messages(chat_body)
        ask = ChatAsk(own=own_fields(body) if native else None)
        return await self._chats.start(request, allowed, chat_body, chat, ask)

    async def _whole(self, lines: OllamaLines, run: Run) -> ASGIApp:
        settled = await run.settled()
        if isinstance(settled, (Failed, Interrupted)) and await is_bare(run):
            return _refused(run, settled)
        events: list[Event] = []
        async for some in so_far(run):
            events += some
        answer = lines.whole(events)
        if isinstance(settled, (Failed, Interrupted)):
            return json_of(answer, status_code=self._answers.failed_status, headers=failed_after_output(run))
        status, headers = (NOT_RETRIED, not_again(run)) if isinstance(settled, Stopped) else (200, answer_headers(run))
        return json_of(answer, status_code=status, headers=headers)

    # Models.

    @Endpoint("GET", "/api/tags", who=READ)
    async def list_tags(self, request: Request) -> ASGIApp:
        """List the models in Ollama's shape."""
        providers = self._models.providers(access_of(request))
        names = [*await providers.names(is_all=False), *providers.aliases]
        return Json({"models": [_listed(name) for name in names]})

    @Endpoint(
        "POST", "/api/show", who=READ, answers={400: "bad input", 404: "no such model", 413: "too large"}, ollama=True
    )
    @with_ollama_errors
    async def show_model(self, request: Request) -> ASGIApp:
        """Return the known data of a model."""
        body = decode(await self._bodies.read(request), ShowBody)
        name = plain_name(body.model or body.name)
        if not isinstance(name, str):
            raise BadRequest("model is missing.", param="model")
        provider, *_ = await self._models.providers(access_of(request)).find(name)
        able = ["completion", "tools"] if getattr(provider, "tools", True) else ["completion"]
        texts = {"modelfile": "", "parameters": "", "template": "", "license": ""}
        return Json({**texts, "details": _DETAILS, "model_info": {}, "capabilities": able})

    @Endpoint("GET", "/api/version", who=READ)
    async def ollama_version(self, request: Request) -> ASGIApp:
        """Return the version of Ollama's API."""
        return Json({"version": VERSION})

    @Endpoint("GET", "/api/ps", who=READ)
    async def running_models(self, request: Request) -> ASGIApp:
        """List the loaded models: always empty here."""
        return Json({"models": []})


def _lines(run: Run, model: str, *, is_chat: bool) -> OllamaLines:
    return OllamaLines(run.id, model, run.record.created_at, is_chat=is_chat, settled_at=lambda: run.record.settled_at)


def _refused(run: Run, settled: Failed | Interrupted) -> ASGIApp:
    return Json(ollama_error(settled, run.id), settled.error.status, headers=failed_headers(run, settled))


def _listed(name: str) -> dict[str, Any]:
    digest = hashlib.sha256(name.encode()).hexdigest()  # clients take models of one digest for one model
    known = {"size": 0, "digest": digest, "modified_at": "1970-01-01T00:00:00Z", "details": _DETAILS}
    return {"name": name, "model": name, **known}
