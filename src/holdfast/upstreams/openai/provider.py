"""Any upstream that speaks OpenAI's chat completions: OpenAI itself, vLLM, llama.cpp, Ollama, another Holdfast.

It is always asked to stream, since a stream can be stopped and shows what it has, and everything that arrives in one
read is decoded in one pass and emitted together. How it is left and asked again is in `http/upstream.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from ...asks.own import OwnPrompt
from ...errors import AnswerLost, ProviderError, ProviderRefused, Unsupported
from ...events import LEFT_TO_OTHERS, Outlet
from ...fields import PASSED_ON, Table, refusal
from ...http_client.route import Route
from .. import ChatRequest, Forwarded
from ..decoding import MAX_EVENT, MAX_TEXT
from ..http.address import key_in
from ..http.provider import HTTPProvider
from ..http.upstream import Asked, HTTPUpstream, Refused, encode_body
from ..kinds import ProviderKind, ProviderSetup
from ..params import WITH_PICTURES
from ..profiles import Unlisted
from ..resume_check import SeenEvents, lost
from .decoder import AnswerDecoder
from .messages import messages_for

__all__ = ["OpenAICompatible"]

PARAMS: Table = {"modalities": WITH_PICTURES}
"""What becomes of parameters. All others are passed on."""

COMPLETIONS = "/completions"
"""Where a prompt is completed."""
_NAMED = "/stream"  # where llama-server has the answers with a name
_UNHEARD = (0.2, 0.6)  # seconds after which an answer that had not begun is dropped once more


class OpenAICompatible(HTTPProvider):
    """Speaks OpenAI's dialect to one upstream.

    `base_url` is what comes before `path`, in which `{model}` is replaced by the model's name. `key_header` is the
    header that holds the API key. `think` takes a leading `<think>` block for reasoning.
    `alternate` is for models that require one system message and alternating turns: neighbouring messages of one role
    are joined. Without `developer` that role is sent as `system`. With `prefills` the upstream continues an assistant's
    message that comes last; `prefill_params` are then added to the request, and `prefill_mark` to that message.
    `wants_reasoning` sends the reasoning before each tool call back, for models that require it. `usage` asks for the
    number of tokens. `attaches` is for upstreams that finish a named answer without a reader, as llama-server does: the
    next process can continue to read it, and it has to be dropped by a request, since closing the connection does not
    stop it. `linger` is the time in seconds for the rest of a response: usage and `[DONE]` after the finish reason, the
    body after an error's status. Idle limit and deadline are the engine's. `route` is the way to the upstream, see
    `route_to`; without it the environment names the proxy.

    Costs one HTTP session, and for each stream one connection.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        key_header: str = "Authorization",
        path: str = "/chat/completions",
        connect_timeout: float = 10.0,
        models_timeout: float = 15.0,
        models_fresh: float = 60.0,
        unlisted: Unlisted = "refuse",
        suffixes: bool = False,
        linger: float = 2.0,
        think: bool = True,
        alternate: bool = False,
        developer: bool = True,
        prefills: bool = False,
        prefill_params: Mapping[str, Any] | None = None,
        prefill_mark: Mapping[str, Any] | None = None,
        wants_reasoning: bool = False,
        usage: bool = True,
        attaches: bool = False,
        tools: bool = True,
        max_event: int = MAX_EVENT,
        max_text: int = MAX_TEXT,
        route: Route | None = None,
    ) -> None:
        upstream = HTTPUpstream(
            name,
            base_url,
            key=key_in(key_header, api_key),
            headers=headers or {},
            query=query,
            connect_timeout=connect_timeout,
            linger=linger,
            route=route,
        )
        listing: dict[str, Any] = {"models_timeout": models_timeout, "models_fresh": models_fresh, "unlisted": unlisted}
        super().__init__(upstream, models=models, prefills=prefills, think=think, **listing)
        self.attaches = self.attaches_anywhere = attaches
        self.tools, self._path, self._suffixes = tools, path, suffixes
        self._alternate, self._developer = alternate, developer
        self._max_event, self._max_text = max_event, max_text
        self._prefill_params, self._prefill_mark = dict(prefill_params or {}), dict(prefill_mark or {})
        self._wants_reasoning, self._asks_for_usage = wants_reasoning, usage

    # answering

    def answer(self, request: ChatRequest, out: Outlet) -> Coroutine[Any, Any, None]:
        """Emit the events of each read together; raise a `ProviderError` unless the upstream said how it ended."""
        decoder = self._decoder(request.choices)
        if self.attaches and request.name:
            return self._answer_by_name(request, self._ask, decoder, out)
        return self.upstream.answer(request, self._ask, decoder, out)

    async def attach(self, name: str, out: Outlet, *, text: str = "", reasoning: str = "") -> None:
        """Emit what follows in a named answer after the text and reasoning that have been seen."""
        request = ChatRequest(model="", messages=[], name=name)
        seen = SeenEvents(out, self.name, text, reasoning, think=self.think)
        try:
            await self._answer_by_name(request, self._ask_again, self._decoder(), seen)
        except ProviderError:
            seen.cut_off()
            raise

    async def _ask_again(self, request: ChatRequest) -> Asked:
        answered = await self.upstream.ask(
            self.upstream.path_to(_NAMED), query=f"{_query(request.name)}&from=0", method="GET"
        )
        if isinstance(answered, Refused):
            raise lost(self.name, f"has no such answer, or no longer all of it ({answered.answered})")
        if isinstance(answered, ProviderError):
            raise AnswerLost(str(answered)) from answered
        return answered

    async def _answer_by_name(
        self,
        request: ChatRequest,
        ask: Callable[[ChatRequest], Awaitable[Asked]],
        decoder: AnswerDecoder,
        out: Outlet,
    ) -> None:
        """Answer with an upstream that continues without a reader. It is stopped if we leave before the end.

        If another node takes over the run, it is not stopped.
        """
        must_end = True
        try:
            await self.upstream.answer(request, ask, decoder, out)
        except ProviderRefused:
            must_end = False
            raise
        except asyncio.CancelledError as cancelled:
            must_end = LEFT_TO_OTHERS not in cancelled.args
            raise
        finally:
            if not decoder.finished and must_end:
                # The upstream may read a request without an answer so far only after it was cancelled: cancel it again.
                pauses = () if decoder.began else _UNHEARD
                self.upstream.drop(self.upstream.path_to(_NAMED), _query(request.name), again_after=pauses)

    def _decoder(self, choices: int = 1) -> AnswerDecoder:
        return AnswerDecoder(
            self.name,
            choices=choices,
            secrets=self.upstream.secrets,
            max_event=self._max_event,
            max_text=self._max_text,
        )

    # asking

    async def _ask(self, request: ChatRequest) -> Asked:
        """Send the request. If the upstream rejects `stream_options`, retry without it, and never send it again."""
        if request.params and (found := refusal(request.params, PARAMS, PASSED_ON)):
            raise Unsupported(found.message, found.field)
        asks_for_usage = self._asks_for_usage
        named = {"X-Conversation-Id": request.name} if self.attaches and request.name else {}
        path = COMPLETIONS if isinstance(request.own, OwnPrompt) else self._path_of(request.model)
        answered = await self.upstream.ask(path, self._body(request, asks_for_usage), named)
        if asks_for_usage and isinstance(answered, Refused) and answered.is_about("stream_options"):
            self._asks_for_usage = False
            return await self._ask(request)
        return answered

    def _path_of(self, model: str) -> str:
        return self._path.replace("{model}", quote(model, safe="")) if "{model}" in self._path else self._path

    def _body(self, request: ChatRequest, asks_for_usage: bool) -> bytes:
        said = request.own.fields() if isinstance(request.own, OwnPrompt) else self._messages(request)
        body = {**request.params, **said, "model": request.model, "stream": True}
        options = body.pop("stream_options", None)
        if asks_for_usage:
            body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        return encode_body(body)

    def _messages(self, request: ChatRequest) -> dict[str, Any]:
        """Return the messages, and the additional fields if the upstream has to continue the last of them."""
        messages = messages_for(
            request.messages,
            strict=self._alternate,
            developer=self._developer,
            reasoning=self._wants_reasoning,
        )
        if not request.goes_on:
            return {"messages": messages}
        return {"messages": [*messages[:-1], {**messages[-1], **self._prefill_mark}], **self._prefill_params}

    # other requests

    async def forward(self, path: str, body: bytes, content_type: str, limit: int) -> Forwarded:
        """Send a request as it is, and return the response. Raises a `ProviderError` that says what failed."""
        return await self.upstream.forward(path, body, content_type, limit)

    # models

    def is_among(self, model: str, names: Sequence[str]) -> bool:
        """Return whether a list has a model, with or without a suffix that it does not have."""
        return super().is_among(model, names) or (self._suffixes and model.rpartition(":")[0] in names)

    async def look_up(self) -> list[str] | None:
        """Ask the upstream; None if it gave no list."""
        return self.listed(await self.upstream.get("/models", self._max_event))


def _query(name: str) -> str:
    return urlencode({"conv_id": name})


def _made(setup: ProviderSetup) -> OpenAICompatible:
    known = setup.profile
    provider = OpenAICompatible(
        setup.name,
        setup.base_url,
        api_key=setup.api_key,
        key_header=setup.key_header or "Authorization",
        path=known.path,
        models=setup.models,
        headers=setup.headers,
        query=setup.query,
        alternate=known.alternate,
        developer=known.developer,
        prefills=known.prefills,
        prefill_params=known.prefill_params,
        prefill_mark=known.prefill_mark,
        wants_reasoning=known.wants_reasoning,
        think=known.think,
        usage=known.usage,
        attaches=known.attaches,
        tools=known.tools,
        connect_timeout=setup.connect_timeout,
        models_timeout=setup.models_timeout,
        models_fresh=setup.models_fresh,
        unlisted=setup.unlisted,
        suffixes=known.suffixes,
        linger=setup.linger,
        route=setup.route,
    )
    provider.is_local = known.is_local
    return provider


KIND = ProviderKind(make=_made)
