"""Any upstream that speaks OpenAI's chat completions: OpenAI itself, vLLM, llama.cpp, Ollama, another Holdfast.

It is always asked to stream, since a stream can be stopped and shows what it has, and everything that arrives in one
read is decoded in one pass and yielded together. How it is left and asked again is in `http.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from ..events import Yielded
from ..history import alternating
from . import ChatRequest
from .http import Asked, Catalogue, HTTPUpstream, Refused, encode_body, model_names
from .openai_stream import MAX_EVENT, MAX_TEXT, AnswerDecoder

__all__ = ["OpenAICompatible"]


class OpenAICompatible:
    """Speaks OpenAI's dialect to one upstream.

    `base_url` is what comes before `/chat/completions`. `think` takes a leading `<think>` block for reasoning.
    `alternate` joins neighbouring messages of one role, for models that insist on turns. `prefills` says that it goes
    on with an assistant's message that comes last, where `prefill_params` stand in the request and `prefill_mark` in
    that message. `usage` asks for a count of the tokens. `linger` is how long is waited for the rest when the main
    thing has been said: usage and `[DONE]` after the finish reason, the body after an error's status. Idle limit and
    deadline are the engine's. Where no models are configured the upstream is asked for them, for `models_timeout`
    seconds, and again after `models_fresh`.

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
        connect_timeout: float = 10.0,
        models_timeout: float = 2.0,
        models_fresh: float = 60.0,
        linger: float = 2.0,
        think: bool = True,
        alternate: bool = False,
        prefills: bool = False,
        prefill_params: Mapping[str, Any] | None = None,
        prefill_mark: Mapping[str, Any] | None = None,
        usage: bool = True,
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
            key={"Authorization": f"Bearer {key}"} if key else {},
            headers=headers or {},
            connect_timeout=connect_timeout,
            linger=linger,
        )
        self._think = think
        self._alternate = alternate
        self._max_event = max_event
        self._max_text = max_text
        self._prefill_params = dict(prefill_params or {})
        self._prefill_mark = dict(prefill_mark or {})
        self._asks_for_usage = usage
        self._catalogue = Catalogue(self._look_up_models, models_timeout, models_fresh)

    # answering

    def stream(self, request: ChatRequest) -> AsyncGenerator[list[Yielded]]:
        """Yield the events of each read together; raise a `ProviderError` unless the upstream said how it ended."""
        return self._upstream.stream(request, self._ask, self._decoder(request))

    def _decoder(self, request: ChatRequest) -> AnswerDecoder:
        choices = request.params.get("n")
        return AnswerDecoder(
            self.name,
            think=self._think,
            choices=choices if isinstance(choices, int) else 1,
            secrets=self._upstream.secrets,
            max_event=self._max_event,
            max_text=self._max_text,
        )

    # asking

    async def _ask(self, request: ChatRequest) -> Asked:
        """Ask; once more, and from then on, without usage where the upstream does not know how to be asked for it."""
        asks_for_usage = self._asks_for_usage
        answered = await self._upstream.ask("/chat/completions", self._body(request, asks_for_usage))
        if asks_for_usage and isinstance(answered, Refused) and answered.is_about("stream_options"):
            self._asks_for_usage = False
            return await self._ask(request)
        return answered

    def _body(self, request: ChatRequest, asks_for_usage: bool) -> bytes:
        body = {**request.params, **self._messages(request), "model": request.model, "stream": True}
        options = body.pop("stream_options", None)
        if asks_for_usage:
            body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        return encode_body(body)

    def _messages(self, request: ChatRequest) -> dict[str, Any]:
        """Return the messages, and what else has to be said where the last of them is to be gone on with."""
        messages = alternating(request.messages) if self._alternate else request.messages
        if not request.goes_on:
            return {"messages": messages}
        return {"messages": [*messages[:-1], {**messages[-1], **self._prefill_mark}], **self._prefill_params}

    # models

    async def list_models(self) -> list[str]:
        """Return the configured models, or what the upstream listed last; empty where it cannot be asked now."""
        return list(self.models) if self.models is not None else await self._catalogue.names()

    async def answers(self) -> bool:
        """Tell whether the upstream answered when it was last asked for its models, be it that it has no list."""
        await self._catalogue.names()
        return self._upstream.answered

    async def _look_up_models(self) -> list[str] | None:
        """Ask the upstream; None where it gave no list."""
        return model_names(await self._upstream.get("/models", self._max_event))

    async def close(self) -> None:
        """End the streams that still go on, and let go of the connections."""
        await self._catalogue.close()
        await self._upstream.close()
