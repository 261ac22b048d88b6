"""Anthropic's models, asked by their own Messages API: thinking, tools and cost as they are told there.

How a request is said is in `anthropic_messages.py`, what an answer's bytes mean in `anthropic_stream.py`, and how the
upstream is left and asked again in `http.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from ..errors import ProviderRefused
from ..events import Yielded
from . import ChatRequest
from .anthropic_messages import body_of, end_of_prefill
from .anthropic_stream import MessageDecoder
from .http import Asked, Catalogue, HTTPUpstream, encode_body, model_names
from .openai_stream import MAX_EVENT, MAX_TEXT

__all__ = ["BASE_URL", "Anthropic"]

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
_PAGE = 1000  # as many models as Anthropic lists at once
_MOST_PAGES = 20


class Anthropic:
    """Speaks the Messages API to one upstream: Anthropic itself, or who speaks like it.

    `base_url` is what comes before `/v1/messages`. `max_tokens` is the limit of an answer where the caller names none:
    Anthropic insists on one. `prefills` says that the models go on with an assistant's message that comes last: set it
    to False for those that refuse that. `headers` stand before ours, so a beta or another version can be asked for.
    The other parameters are those of `OpenAICompatible`.

    Costs one HTTP session, and for each stream one connection.
    """

    def __init__(
        self,
        name: str,
        base_url: str = BASE_URL,
        *,
        api_key: str | None,
        models: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        max_tokens: int = 8192,
        prefills: bool = True,
        connect_timeout: float = 10.0,
        models_timeout: float = 2.0,
        models_fresh: float = 60.0,
        linger: float = 2.0,
        max_event: int = MAX_EVENT,
        max_text: int = MAX_TEXT,
    ) -> None:
        self.name = name
        self.models = None if models is None else tuple(models)
        self.prefills = prefills
        key = (api_key or "").strip()
        self._upstream = HTTPUpstream(
            name,
            base_url,
            key={"x-api-key": key} if key else {},
            headers=_with_version(headers or {}),
            connect_timeout=connect_timeout,
            linger=linger,
        )
        self._max_tokens = max_tokens
        self._max_event = max_event
        self._max_text = max_text
        self._catalogue = Catalogue(self._look_up_models, models_timeout, models_fresh)

    def stream(self, request: ChatRequest) -> AsyncGenerator[list[Yielded]]:
        """Yield the events of each read together; raise a `ProviderError` unless the upstream said how it ended."""
        decoder = MessageDecoder(
            self.name,
            after=end_of_prefill(request.messages),
            secrets=self._upstream.secrets,
            max_event=self._max_event,
            max_text=self._max_text,
        )
        return self._upstream.stream(request, self._ask, decoder)

    async def _ask(self, request: ChatRequest) -> Asked:
        try:
            body = body_of(request, max_tokens=self._max_tokens)
        except ProviderRefused as refused:
            return refused
        return await self._upstream.ask("/v1/messages", encode_body(body))

    async def list_models(self) -> list[str]:
        """Return the configured models, or what the upstream listed last; empty where it cannot be asked now."""
        return list(self.models) if self.models is not None else await self._catalogue.names()

    async def answers(self) -> bool:
        """Tell whether the upstream answered when it was last asked for its models."""
        await self._catalogue.names()
        return bool(self._upstream.answered)

    @property
    def is_away(self) -> bool:
        """Whether the upstream gave no answer when it was last asked for its models."""
        return self._upstream.answered is False

    async def _look_up_models(self) -> list[str] | None:
        """Ask the upstream page by page; None where a page is missing, as half a list would hide the other half."""
        names: list[str] = []
        query: dict[str, Any] = {"limit": _PAGE}
        for _ in range(_MOST_PAGES):
            page = await self._upstream.get("/v1/models", self._max_event, urlencode(query))
            listed = model_names(page)
            if listed is None:
                return None
            names += listed
            if not (isinstance(page, dict) and page.get("has_more") and page.get("last_id")):
                break
            query["after_id"] = page["last_id"]
        return list(dict.fromkeys(names))

    async def close(self) -> None:
        """End the streams that still go on, and let go of the connections."""
        await self._catalogue.close()
        await self._upstream.close()


def _with_version(headers: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower() for name in headers}
    return dict(headers) if "anthropic-version" in given else {"anthropic-version": VERSION, **headers}
