"""Ollama's calls for embeddings, `/api/embed` and the older `/api/embeddings`, on providers that have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import CHAT
from ...errors import BadRequest, ProviderBroke
from ...fields import check_fields
from ...upstreams import Forwarded
from ...wires.ollama import OLLAMA_EMBED, OWN_FIELDS, UNKNOWN_OF_OLLAMA, OwnFields, own_fields, plain_name
from ..caller import model_of
from ..request import convert, decode_object, read_body
from ..routing import Endpoint
from ..services import Parts
from .ollama import is_ollama, with_ollama_errors
from .pass_through import forward


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


@with_ollama_errors
async def embed(parts: Parts, request: Request) -> ASGIApp:
    """Embed one text or several."""
    fields = decode_object(await read_body(parts, request))
    return await _embedded(parts, request, fields, lambda found, vectors: {**found, "embeddings": vectors})


@with_ollama_errors
async def embed_one(parts: Parts, request: Request) -> ASGIApp:
    """Embed one text, by the older call."""
    fields = decode_object(await read_body(parts, request))
    return await _embedded(parts, request, fields, lambda _, vectors: {"embedding": vectors[0] if vectors else []})


async def _embedded(parts: Parts, request: Request, fields: dict[str, Any], told: Any) -> ASGIApp:
    body = convert(fields, EmbedBody)
    if body.texts is None:
        raise BadRequest("input is missing.", param="input")
    model = await model_of(parts, request, plain_name(body.model))
    native = is_ollama(parts, model.found)
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
    return await forward(
        parts,
        request,
        path,
        "application/json",
        _Input(body, model.name, own_fields(body).fields() if native else {}),
        shown,
    )


_ANSWERS = {
    200: "the embeddings",
    400: "bad input, or a provider that can only chat",
    404: "no such model, or the upstream does not have this call",
    413: "too large",
    429: "too many requests",
    502: "the upstream failed",
    503: "the server is ending",
    504: "the upstream was silent",
}
ENDPOINTS = [
    Endpoint("POST", "/api/embed", embed, who=CHAT, stores=False, answers=_ANSWERS, ollama=True),
    Endpoint("POST", "/api/embeddings", embed_one, who=CHAT, stores=False, answers=_ANSWERS, ollama=True),
]
