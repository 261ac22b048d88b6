"""OpenAI's API besides chat: embeddings, moderations, images, speech. Requests are passed on to the provider.

They are not runs: nothing is stored, and the response is sent as a whole. A disconnect closes the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ....access import CHAT
from ....asgi.client import RequestClient
from ....errors import BadRequest, ProviderError, SourceStalled
from ....events import Usage
from ....pricing import tokens_in
from ....store import Charge
from ....upstreams import Forwarded, Forwarding
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature, Handler
from ...kit.http.errors import PRIVATE
from ...kit.request import Bodies, decode_object, header
from ...sources.models import AllowedModels
from ...starting.starting import Starting
from ..budgets.budgets import Budgets
from .form_data import FormData

LARGEST_RESPONSE = 64 * 1024 * 1024
"""Maximum size of a response in bytes: images and speech are long."""


class _Object:
    """A JSON request."""

    def __init__(self, body: bytes) -> None:
        self._fields: dict[str, Any] = decode_object(body)
        model = self._fields.get("model")
        if not isinstance(model, str | None):
            raise BadRequest("model is text.", param="model")
        if self._fields.get("stream") or self._fields.get("stream_format") == "sse":
            message = "stream is not supported here: the whole response is sent."
            raise BadRequest(message, param="stream", code="unsupported")
        self.model = model

    def with_model(self, model: str) -> bytes:
        return msgspec.json.encode({**self._fields, "model": model})


class RequestBody(Protocol):
    """A request that is passed on: the model that it names, and its bytes with the upstream's name of the model."""

    @property
    def model(self) -> str | None: ...

    def with_model(self, model: str) -> bytes:
        """Return the request for the upstream."""
        ...


Shown = Callable[[Forwarded], Forwarded]


class _Handed:
    """The response of an upstream. A disconnect closes the upstream."""

    def __init__(
        self,
        budgets: Budgets,
        idle: float,
        provider: Forwarding,
        path: str,
        body: bytes,
        content_type: str,
        charge: Charge,
        shown: Shown,
    ) -> None:
        self._budgets, self._idle = budgets, idle
        self._provider = provider
        self._charge = charge
        self._shown = shown
        self._forwarded = (path, body, content_type, LARGEST_RESPONSE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, and record its usage, even if the client has disconnected."""
        answering = asyncio.ensure_future(self._answered())
        try:
            with RequestClient(scope, receive) as client:
                if not await client.wait_for(answering):
                    return
        finally:
            self._budgets.spending.note(self._charge)
        found = self._shown(await answering)
        headers = {**PRIVATE, "content-type": found.content_type}
        await Response(found.body, headers=headers)(scope, receive, send)

    async def _answered(self) -> Forwarded:
        try:
            async with asyncio.timeout(self._idle or None):
                found = await self._provider.forward(*self._forwarded)
        except TimeoutError:
            raise SourceStalled(self._idle, "did not finish its response") from None
        except ProviderError:
            self._charge = replace(self._charge, input_tokens=0, cost=None)  # refused, or not there: it did nothing
            raise
        if (usage := _usage_in(found)) is not None:
            self._charge = self._budgets.counted(self._charge, usage)
        return found


class _Counted(msgspec.Struct):
    """The tokens of a response, in the names of OpenAI's older and newer calls."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class _Counting(msgspec.Struct):
    """A response that may have its usage. Ollama's own has it as `prompt_eval_count`."""

    usage: _Counted | None = None
    prompt_eval_count: int = 0


COUNTED = frozenset(("/embeddings", "/api/embed", "/api/embeddings"))
"""The calls whose answers always have a count of tokens. Without one, a call has a price of its own."""


PATHS = (
    "/embeddings",
    "/moderations",
    "/images/generations",
    "/images/edits",
    "/images/variations",
    "/audio/speech",
    "/audio/transcriptions",
    "/audio/translations",
)
_ANSWERS = {
    200: "what the upstream answered",
    400: "bad input, or a provider that can only chat",
    404: "no such model, or the upstream does not have this call",
    413: "too large",
    429: "too many requests",
    502: "the upstream failed",
    504: "the upstream was silent",
}


class PassThrough(Feature):
    """Passes requests on to the providers of their models."""

    def __init__(
        self, bodies: Bodies, starting: Starting, models: AllowedModels, budgets: Budgets, idle: float
    ) -> None:
        self._bodies, self._starting, self._models, self._budgets = bodies, starting, models, budgets
        self._idle = idle

    def endpoints(self) -> list[Endpoint]:
        """Return an endpoint for each of the paths."""
        return [
            Endpoint("POST", f"/v1{path}", who=CHAT, stores=False, answers=_ANSWERS).with_handler(self._handed_to(path))
            for path in PATHS
        ]

    def _handed_to(self, path: str) -> Handler:
        async def hand_on(request: Request) -> ASGIApp:
            """Pass a request to the provider of its model, and return its response."""
            content_type = header(request, b"content-type") or "application/json"
            if content_type.lower().startswith("multipart/form-data"):
                form = FormData(content_type, await self._bodies.read_bytes(request))
                return await self.forward(request, path, content_type, form)
            return await self.forward(request, path, "application/json", _Object(await self._bodies.read(request)))

        hand_on.__name__ = path.strip("/").replace("/", "_")
        return hand_on

    async def forward(
        self,
        request: Request,
        path: str,
        content_type: str,
        body: RequestBody,
        shown: Shown = lambda found: found,
    ) -> ASGIApp:
        """Return the response of the provider of a model. `shown` translates it."""
        provider, model, _ = found = (await self._models.find(access_of(request), body.model)).found
        if not isinstance(provider, Forwarding):
            message = f"The provider {provider.name} can only chat. Name a model of a provider that has this call."
            raise BadRequest(message, param="model", code="unsupported")
        sent = body.with_model(model)
        size = body.text_size if isinstance(body, FormData) else len(sent)
        estimate = Usage(tokens_in(size), source="estimated")
        payer = self._budgets.payer(request)
        charge = await self._starting.room.begin_request(payer, found.name, estimate, of_calls=path not in COUNTED)
        return _Handed(self._budgets, self._idle, provider, path, sent, content_type, charge, shown)


def _usage_in(found: Forwarded) -> Usage | None:
    """Return the usage of a response; None if it has none."""
    try:
        counting = msgspec.json.decode(found.body, type=_Counting)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    usage = counting.usage or _Counted(counting.prompt_eval_count)
    if usage == _Counted():
        return None
    return Usage(usage.prompt_tokens + usage.input_tokens, usage.completion_tokens + usage.output_tokens)
