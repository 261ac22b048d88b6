"""Ollama's calls for embeddings, `/api/embed` and the older `/api/embeddings`, on providers that have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT
from ....errors import BadRequest, ProviderBroke
from ....fields import check_fields
from ....upstreams import Forwarded
from ....wires.ollama import OLLAMA_EMBED, OWN_FIELDS, UNKNOWN_OF_OLLAMA, OwnFields, own_fields, plain_name
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.request import Bodies, convert, decode_object
from ...live.live_settings import Configured
from ...sources.models import AllowedModels
from .ollama import is_ollama, with_ollama_errors
from .pass_through import PassThrough


class _Embedding(msgspec.Struct, frozen=True):
    embedding: list[float]
    index: int = 0


class _Tokens(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0


class _Embeddings(msgspec.Struct, frozen=True):
    """A response of Ollama's `/api/embed`, or of OpenAI's `/v1/embeddings`."""

    embeddings: list[list[float]] | None = None
    data: list[_Embedding] = []
    prompt_eval_count: int = 0
    usage: _Tokens = _Tokens()

    def vectors(self) -> list[list[float]]:
        if self.embeddings is not None:
            return self.embeddings
        return [each.embedding for each in sorted(self.data, key=lambda each: each.index)]


class EmbedBody(OwnFields, frozen=True):
    """A request for embeddings. `prompt` is the older name of `input`."""

    model: str | None = None
    input: Any = None
    prompt: Any = None
    dimensions: Any = None

    @property
    def texts(self) -> Any:
        """What is embedded."""
        return self.prompt if self.input is None else self.input


class _Input:
    """Texts to embed, in the words of the upstream."""

    def __init__(self, body: EmbedBody, name: str, own: Mapping[str, Any]) -> None:
        self.model: str | None = name
        wanted = {} if body.dimensions is None else {"dimensions": body.dimensions}
        self._body = {"input": body.texts, **wanted, **own}

    def with_model(self, model: str) -> bytes:
        return msgspec.json.encode({**self._body, "model": model})


_ANSWERS = {
    400: "bad input, or a provider that can only chat",
    404: "no such model, or the upstream does not have this call",
    413: "too large",
    429: "too many requests",
    502: "the upstream failed",
    503: "the server is ending",
    504: "the upstream was silent",
}


class OllamaEmbeddings(Feature):
    """Embeddings in Ollama's dialect."""

    def __init__(
        self, bodies: Bodies, models: AllowedModels, configured: Configured, pass_through: PassThrough
    ) -> None:
        self._bodies, self._models, self._configured = bodies, models, configured
        self._pass_through = pass_through

    @Endpoint("POST", "/api/embed", who=CHAT, stores=False, answers=_ANSWERS, ollama=True)
    @with_ollama_errors
    async def embed(self, request: Request) -> ASGIApp:
        """Embed one text or several."""
        fields = decode_object(await self._bodies.read(request))
        return await self._embedded(request, fields, lambda found, vectors: {**found, "embeddings": vectors})

    @Endpoint("POST", "/api/embeddings", who=CHAT, stores=False, answers=_ANSWERS, ollama=True)
    @with_ollama_errors
    async def embed_one(self, request: Request) -> ASGIApp:
        """Embed one text, by the older call."""
        fields = decode_object(await self._bodies.read(request))
        return await self._embedded(request, fields, lambda _, vectors: {"embedding": vectors[0] if vectors else []})

    async def _embedded(self, request: Request, fields: dict[str, Any], told: Any) -> ASGIApp:
        body = convert(fields, EmbedBody)
        if body.texts is None:
            raise BadRequest("input is missing.", param="input")
        model = await self._models.find(access_of(request), plain_name(body.model))
        native = is_ollama(self._configured, model.found)
        check_fields(fields, {**OLLAMA_EMBED, **OWN_FIELDS} if native else OLLAMA_EMBED, UNKNOWN_OF_OLLAMA)

        def shown(found: Forwarded) -> Forwarded:
            try:
                answer = msgspec.json.decode(found.body, type=_Embeddings)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise ProviderBroke("The upstream sent no embeddings.") from None
            head = {"model": body.model, "total_duration": 0, "load_duration": 0}
            counted = {"prompt_eval_count": answer.prompt_eval_count or answer.usage.prompt_tokens}
            return Forwarded("application/json", msgspec.json.encode(told({**head, **counted}, answer.vectors())))

        path = "/api/embed" if native else "/embeddings"
        texts = _Input(body, model.name, own_fields(body).fields() if native else {})
        return await self._pass_through.forward(request, path, "application/json", texts, shown)
