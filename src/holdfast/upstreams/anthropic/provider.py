"""The provider of Anthropic's Messages API.

`request.py` writes requests, `decoder.py` reads answers, and `../http/upstream.py` sends, aborts and retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from ...errors import ProviderRefused
from ...events import Outlet
from ...http_client.route import Route
from .. import ChatRequest
from ..decoding import MAX_EVENT, MAX_TEXT
from ..efforts import anthropic_efforts
from ..http.address import key_in
from ..http.provider import HTTPProvider
from ..http.upstream import Asked, HTTPUpstream, encode_body
from ..kinds import ProviderKind, ProviderSetup
from ..profiles import Unlisted
from .decoder import MessageDecoder
from .request import betas_of, body_of, end_of_prefill

__all__ = ["BASE_URL", "Anthropic"]

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
_PAGE = 1000  # the page size of Anthropic's list of models
_MOST_PAGES = 20


class Anthropic(HTTPProvider):
    """Speaks the Messages API to one upstream: Anthropic, or a compatible one.

    `base_url` is what comes before `/v1/messages`. `max_tokens` is the limit of an answer if the caller sets none:
    Anthropic requires one. `prefills` means that the models continue a last message of the assistant: set it to False
    for models that refuse that. `think` treats a leading `<think>` block of the text as reasoning, which Anthropic's
    own models never write. `headers` override ours, so they can request a beta or another version. The other
    parameters are those of `OpenAICompatible`.

    Costs one HTTP session, and for each stream one connection.
    """

    sees = True
    reads_pdf = True

    def __init__(
        self,
        name: str,
        base_url: str = BASE_URL,
        *,
        api_key: str | None,
        models: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        key_header: str = "x-api-key",
        max_tokens: int = 8192,
        prefills: bool = True,
        think: bool = False,
        connect_timeout: float = 10.0,
        models_timeout: float = 15.0,
        models_fresh: float = 60.0,
        unlisted: Unlisted = "refuse",
        linger: float = 2.0,
        max_event: int = MAX_EVENT,
        max_text: int = MAX_TEXT,
        route: Route | None = None,
    ) -> None:
        upstream = HTTPUpstream(
            name,
            base_url,
            key=key_in(key_header, api_key),
            headers=_with_version(headers or {}),
            query=query,
            connect_timeout=connect_timeout,
            linger=linger,
            route=route,
        )
        super().__init__(
            upstream,
            models=models,
            prefills=prefills,
            think=think,
            models_timeout=models_timeout,
            models_fresh=models_fresh,
            unlisted=unlisted,
        )
        self._beta_header, self._betas = _betas(headers or {})
        self._max_tokens = max_tokens
        self._max_event = max_event
        self._max_text = max_text

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Emit the events of each read together. Raise a `ProviderError` if the answer is incomplete."""
        decoder = MessageDecoder(
            self.name,
            after=end_of_prefill(request.messages),
            secrets=self.upstream.secrets,
            max_event=self._max_event,
            max_text=self._max_text,
        )
        await self.upstream.answer(request, self._ask, decoder, out)

    async def _ask(self, request: ChatRequest) -> Asked:
        try:
            body = body_of(request, max_tokens=self._max_tokens)
            betas = betas_of(request.params)
        except ProviderRefused as refused:
            return refused
        headers = {self._beta_header: ",".join([*self._betas, *betas])} if betas else None
        return await self.upstream.ask("/v1/messages", encode_body(body), headers)

    def is_among(self, model: str, names: Sequence[str]) -> bool:
        """Return whether a list has a model. Aliases lack the date or the number at the end, or end in `-latest`."""
        return model in names or model.endswith("-latest") or any(name.startswith(f"{model}-") for name in names)

    def efforts(self, model: str) -> tuple[str, ...]:
        """Return the values of `reasoning_effort` that a model takes."""
        return anthropic_efforts(model)

    async def look_up(self) -> list[str] | None:
        """Ask the upstream page by page; None if a page is missing: a partial list would hide models."""
        names: list[str] = []
        query: dict[str, Any] = {"limit": _PAGE}
        for _ in range(_MOST_PAGES):
            page = await self.upstream.get("/v1/models", self._max_event, urlencode(query))
            listed = self.listed(page)
            if listed is None:
                return None
            names += listed
            match page:
                case {"has_more": more, "last_id": last} if more and last:
                    query["after_id"] = last
                case _:
                    break
        return list(dict.fromkeys(names))


def _betas(headers: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the name of the beta header as the settings spell it, and its value for every request."""
    for name, value in headers.items():
        if name.lower() == "anthropic-beta":
            return name, [value]
    return "anthropic-beta", []


def _with_version(headers: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower() for name in headers}
    return dict(headers) if "anthropic-version" in names else {"anthropic-version": VERSION, **headers}


class AnthropicOptions(msgspec.Struct, frozen=True):
    """The `options` of a provider of this dialect."""

    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 8192
    """The token limit of a request without one: Anthropic requires it."""


def _made(setup: ProviderSetup) -> Anthropic:
    return Anthropic(
        setup.name,
        setup.base_url,
        api_key=setup.api_key,
        key_header=setup.key_header or "x-api-key",
        models=setup.models,
        headers=setup.headers,
        query=setup.query,
        max_tokens=setup.options.max_tokens,
        prefills=bool(setup.prefills),
        think=setup.base_url != BASE_URL if setup.think is None else setup.think,
        connect_timeout=setup.connect_timeout,
        models_timeout=setup.models_timeout,
        models_fresh=setup.models_fresh,
        unlisted=setup.unlisted,
        linger=setup.linger,
        route=setup.route,
    )


KIND = ProviderKind(
    make=_made,
    options=AnthropicOptions,
    base_url=BASE_URL,
    key_env="ANTHROPIC_API_KEY",
    url_env="ANTHROPIC_BASE_URL",
)
