"""The provider of Ollama's own API, with `think`, `keep_alive` and all options of a model."""

from __future__ import annotations

import msgspec

from ...errors import ProviderRefused
from ...events import Outlet
from .. import ChatRequest, Forwarded
from ..decoding import MAX_EVENT
from ..efforts import ollama_efforts
from ..http.provider import HTTPProvider, upstream_of
from ..http.upstream import Asked, encode_body
from ..kinds import ProviderKind, ProviderSetup
from .decoder import OllamaDecoder
from .request import body_for

__all__ = ["Ollama"]

BASE_URL = "http://127.0.0.1:11434"


class OllamaOptions(msgspec.Struct, frozen=True):
    """The `options` of a provider of this dialect."""

    keep_alive: str | int | None = None
    """Time that a model stays in memory after its last answer: seconds, `"10m"`, or -1 for no limit."""
    think: bool | str | None = None
    """Whether models think before an answer: true, false, `"low"`, `"medium"` or `"high"`. Default: the model's own."""


class Ollama(HTTPProvider):
    """Speaks Ollama's own API to one upstream. `base_url` is what comes before `/api/chat`.

    Costs one HTTP session, and for each stream one connection.
    """

    is_local = True

    def __init__(self, setup: ProviderSetup) -> None:
        if setup.base_url.rstrip("/").endswith(("/v1", "/api")):
            raise ValueError("base_url must end before /v1 and /api: Ollama's own API is asked at base_url/api/chat")
        super().__init__(
            upstream_of(setup, "Authorization"),
            models=setup.models,
            prefills=setup.prefills is not False,
            think=setup.think is not False,  # older versions leave `<think>` in the text
            models_timeout=setup.models_timeout,
            models_fresh=setup.models_fresh,
            unlisted=setup.unlisted,
        )
        self.tools = setup.tools is not False
        self._options: OllamaOptions = setup.options or OllamaOptions()

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Emit the events of each read together. Raise a `ProviderError` if the answer is incomplete."""
        decoder = OllamaDecoder(self.name, secrets=self.upstream.secrets)
        await self.upstream.answer(request, self._ask, decoder, out)

    async def _ask(self, request: ChatRequest) -> Asked:
        try:
            body = body_for(request, self._options.keep_alive, self._options.think)
        except ProviderRefused as refused:
            return refused
        return await self.upstream.ask("/api/chat", encode_body(body))

    async def forward(self, path: str, body: bytes, content_type: str, limit: int) -> Forwarded:
        """Send a request as it is: to Ollama's own API, or to its version of OpenAI's."""
        own = path if path.startswith("/api/") else f"/v1{path}"
        return await self.upstream.forward(own, body, content_type, limit)

    def efforts(self, model: str) -> tuple[str, ...]:
        """Return the values of `reasoning_effort` that a model takes."""
        return ollama_efforts(model)

    async def look_up(self) -> list[str] | None:
        """Ask the upstream for its models."""
        return self.listed(await self.upstream.get("/api/tags", MAX_EVENT))


KIND = ProviderKind(make=Ollama, options=OllamaOptions, base_url=BASE_URL)
