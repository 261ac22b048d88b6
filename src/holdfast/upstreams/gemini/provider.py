"""The provider of Google's Gemini API, with thoughts, signatures of calls, and filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from ...errors import ProviderRefused
from ...events import Outlet
from .. import ChatRequest
from ..decoding import MAX_EVENT
from ..efforts import gemini_efforts
from ..http.provider import HTTPProvider, upstream_of
from ..http.upstream import Asked, encode_body
from ..kinds import ProviderKind, ProviderSetup
from .decoder import GeminiDecoder
from .request import body_to

__all__ = ["Gemini"]

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
_PAGE = 1000
_MOST_PAGES = 20
_METHOD = "generateContent"


class GeminiOptions(msgspec.Struct, frozen=True):
    """The `options` of a provider of this dialect."""

    thoughts: bool = True
    """Ask thinking models for a summary of their thoughts, which becomes the reasoning of an answer."""


class Gemini(HTTPProvider):
    """Speaks the Gemini API to one upstream. `base_url` is what comes before `/models`, with the version.

    The key is in a header, never in the URL: proxies log URLs.

    Costs one HTTP session, and for each stream one connection.
    """

    sees = True
    reads_pdf = True

    def __init__(self, setup: ProviderSetup) -> None:
        super().__init__(
            upstream_of(setup, "x-goog-api-key"),
            models=setup.models,
            prefills=bool(setup.prefills),
            think=bool(setup.think),
            models_timeout=setup.models_timeout,
            models_fresh=setup.models_fresh,
            unlisted=setup.unlisted,
        )
        self.tools = setup.tools is not False
        self._options: GeminiOptions = setup.options or GeminiOptions()

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Emit the events of each read together. Raise a `ProviderError` if the answer is incomplete."""
        decoder = GeminiDecoder(self.name, secrets=self.upstream.secrets)
        await self.upstream.answer(request, self._ask, decoder, out)

    async def _ask(self, request: ChatRequest) -> Asked:
        try:
            body = body_to(request, thoughts=self._options.thoughts)
        except ProviderRefused as refused:
            return refused
        model = quote(request.model.removeprefix("models/"), safe="")
        return await self.upstream.ask(f"/models/{model}:streamGenerateContent", encode_body(body), query="alt=sse")

    def is_among(self, model: str, names: Sequence[str]) -> bool:
        """Return whether a list has a model. Aliases lack the date or the number at the end, or end in `-latest`."""
        return model in names or model.endswith("-latest") or any(name.startswith(f"{model}-") for name in names)

    def efforts(self, model: str) -> tuple[str, ...]:
        """Return the values of `reasoning_effort` that a model takes."""
        return gemini_efforts(model)

    async def look_up(self) -> list[str] | None:
        """Ask the upstream page by page; None if a page is missing: a partial list would hide models."""
        names: list[str] = []
        query: dict[str, Any] = {"pageSize": _PAGE}
        for _ in range(_MOST_PAGES):
            page = await self.upstream.get("/models", MAX_EVENT, urlencode(query))
            listed = self.listed(_for_chats(page))
            if listed is None:
                return None
            names += [name.removeprefix("models/") for name in listed]
            match page:
                case {"nextPageToken": following} if following:
                    query["pageToken"] = following
                case _:
                    break
        return list(dict.fromkeys(names))


def _for_chats(page: Any) -> Any:
    """Return a page with the models that can chat only: others embed texts or count tokens."""
    match page:
        case {"models": list(models)}:
            return {"models": [model for model in models if _can_chat(model)]}
    return None


def _can_chat(model: Any) -> bool:
    """Return whether a model can chat, as one without a list of methods can."""
    match model:
        case {"supportedGenerationMethods": methods} if methods:
            return _METHOD in methods
    return isinstance(model, dict)


KIND = ProviderKind(
    make=Gemini,
    options=GeminiOptions,
    base_url=BASE_URL,
    key_env="GEMINI_API_KEY",
)
