"""Any upstream that speaks OpenAI's chat completions: OpenAI itself, vLLM, llama.cpp, Ollama, another Holdfast.

It is always asked to stream, since a stream can be stopped and shows what it has, and everything that arrives in one
read is decoded in one pass and yielded together. How it is left and asked again is in `http.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import urlencode

from ..errors import AnswerLost, ProviderError
from ..events import Yielded
from ..history import alternating
from . import ChatRequest
from .http import Asked, Catalogue, HTTPUpstream, Refused, encode_body, model_names
from .openai_stream import MAX_EVENT, MAX_TEXT, AnswerDecoder
from .seen import Seen, lost

__all__ = ["OpenAICompatible"]

_NAMED = "/stream"  # where llama-server has the answers with a name
_UNHEARD = (0.2, 0.6)  # seconds after which an answer that had not begun is dropped once more


class OpenAICompatible:
    """Speaks OpenAI's dialect to one upstream.

    `base_url` is what comes before `/chat/completions`. `think` takes a leading `<think>` block for reasoning.
    `alternate` joins neighbouring messages of one role, for models that insist on turns. `prefills` says that it goes
    on with an assistant's message that comes last, where `prefill_params` stand in the request and `prefill_mark` in
    that message. `wants_reasoning` gives back with each call what was thought before it, for models that insist on
    that. `usage` asks for a count of the tokens. `attaches` says that it writes an answer with a name to its
    end, whoever reads it, as llama-server does: a successor of this process can go on with such an answer, and it has
    to be dropped where nobody wants it any more, as closing the connection does not stop it. `linger` is how long is
    waited for the rest when the main thing has been said: usage and `[DONE]` after the finish reason, the body after an
    error's status. Idle limit and deadline are the engine's. Where no models are configured the upstream is asked for
    them, for `models_timeout` seconds, and again after `models_fresh`.

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
        wants_reasoning: bool = False,
        usage: bool = True,
        attaches: bool = False,
        tools: bool = True,
        max_event: int = MAX_EVENT,
        max_text: int = MAX_TEXT,
    ) -> None:
        self.name = name
        self.models = None if models is None else tuple(models)
        self.prefills = prefills
        self.attaches = attaches
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
        self._wants_reasoning = wants_reasoning
        self._asks_for_usage = usage
        self.tools = tools
        self._catalogue = Catalogue(self._look_up_models, models_timeout, models_fresh)

    # answering

    def stream(self, request: ChatRequest) -> AsyncGenerator[list[Yielded]]:
        """Yield the events of each read together; raise a `ProviderError` unless the upstream said how it ended."""
        choices = request.params.get("n")
        answer = self._decoder(choices if isinstance(choices, int) else 1)
        events = self._upstream.stream(request, self._ask, answer)
        return self._dropped_unless_whole(events, request.name, answer) if self._is_named(request) else events

    async def attach(self, name: str, *, text: str = "", reasoning: str = "") -> AsyncGenerator[list[Yielded]]:
        """Yield what follows in a named answer after the text and reasoning that have been seen."""
        answer = self._decoder()
        again = self._upstream.stream(ChatRequest(model="", messages=[], name=name), self._ask_again, answer)
        told = self._dropped_unless_whole(again, name, answer)
        seen = Seen(self.name, text, reasoning)
        async with aclosing(told):
            async for events in told:
                if unseen := seen.taken_off(events):
                    yield unseen

    async def _ask_again(self, request: ChatRequest) -> Asked:
        answered = await self._upstream.ask(self._upstream.path_to(_NAMED), again=f"{_query(request.name)}&from=0")
        if isinstance(answered, Refused):
            raise lost(self.name, f"has no such answer, or no longer all of it ({answered.answered})")
        if isinstance(answered, ProviderError):
            raise AnswerLost(str(answered)) from answered
        return answered

    async def _dropped_unless_whole(
        self, reads: AsyncGenerator[list[Yielded]], name: str, answer: AnswerDecoder
    ) -> AsyncGenerator[list[Yielded]]:
        """Yield an answer that goes on without its reader, and have it stopped where it is left before its end."""
        is_refused = False
        try:
            async with aclosing(reads):
                async for events in reads:
                    yield events
        except Refused:
            is_refused = True
            raise
        finally:
            if not answer.finished and not is_refused:
                # A request that is not answered yet may be read only after the first word that it is not wanted.
                pauses = () if answer.began else _UNHEARD
                self._upstream.drop(self._upstream.path_to(_NAMED), _query(name), again_after=pauses)

    def _is_named(self, request: ChatRequest) -> bool:
        return self.attaches and bool(request.name)

    def _decoder(self, choices: int = 1) -> AnswerDecoder:
        return AnswerDecoder(
            self.name,
            think=self._think,
            choices=choices,
            secrets=self._upstream.secrets,
            max_event=self._max_event,
            max_text=self._max_text,
        )

    # asking

    async def _ask(self, request: ChatRequest) -> Asked:
        """Ask; once more, and from then on, without usage where the upstream does not know how to be asked for it."""
        asks_for_usage = self._asks_for_usage
        named = {"X-Conversation-Id": request.name} if self._is_named(request) else {}
        answered = await self._upstream.ask("/chat/completions", self._body(request, asks_for_usage), named)
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
        shown = _with_reasoning if self._wants_reasoning else _without_thoughts
        messages = [shown(message) for message in request.messages]
        messages = alternating(messages) if self._alternate else messages
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
        return bool(self._upstream.answered)

    @property
    def is_away(self) -> bool:
        """Whether the upstream gave no answer when it was last asked for its models."""
        return self._upstream.answered is False

    async def _look_up_models(self) -> list[str] | None:
        """Ask the upstream; None where it gave no list."""
        return model_names(await self._upstream.get("/models", self._max_event))

    async def close(self) -> None:
        """End the streams that still go on, and let go of the connections."""
        await self._catalogue.close()
        await self._upstream.close()


def _query(name: str) -> str:
    return urlencode({"conv_id": name})


_THOUGHTS = {"thoughts", "reasoned"}


def _without_thoughts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what its model has thought: this dialect has no place for it."""
    if _THOUGHTS.isdisjoint(message):
        return message
    return {name: value for name, value in message.items() if name not in _THOUGHTS}


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message that calls tools with what was thought before; where that is gone, with the place for it."""
    if not message.get("tool_calls"):
        return _without_thoughts(message)
    return {"reasoning_content": message.get("reasoned", ""), **_without_thoughts(message)}
