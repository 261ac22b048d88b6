"""`/v1/completions`: OpenAI's older dialect, in which a model continues a prompt, on the same runs."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT
from ....asks import ChatAsk, chat_ask
from ....asks.own import OwnPrompt
from ....errors import BadRequest
from ....events import AnySettlement
from ....fields import PASSED_ON, check_fields
from ....runs.run import Run
from ....wires.openai.completions import COMPLETION, COMPLETION_AS_CHAT, TextAnswer, TextChunks
from ...kit.feature import Endpoint, Feature
from ...kit.request import Bodies, convert, decode_object, idempotency
from ...kit.run_responses import RUN_ANSWERS, Answers, WholeAnswer, gathered
from ...live.live_settings import Configured
from ...starting.starting import AllowedStart, Starting
from .openai_chat import StreamOptions, failure


class CompletionBody(msgspec.Struct, frozen=True):
    """A request, with the fields that are checked here. Unknown fields are passed to the upstream."""

    prompt: str | list[str | int | list[int]]
    model: str | None = None
    stream: bool | Literal["true", "false"] | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None

    @property
    def prompts(self) -> int:
        """The number of prompts. A prompt of tokens is a list of numbers."""
        is_several = isinstance(self.prompt, list) and not all(isinstance(each, int) for each in self.prompt)
        return len(self.prompt) if is_several else 1


_NOT_PARAMS = ("model", "prompt", "stream", "stream_options")


class TextCompletions(Feature):
    """Completions of prompts."""

    def __init__(self, bodies: Bodies, answers: Answers, starting: Starting, configured: Configured) -> None:
        self._bodies, self._answers, self._starting, self._configured = bodies, answers, starting, configured

    @Endpoint(
        "POST",
        "/v1/completions",
        who=CHAT,
        takes=CompletionBody,
        answers={200: "a completion, or its chunks", **RUN_ANSWERS},
        streams=True,
    )
    async def complete_prompt(self, request: Request) -> ASGIApp:
        """Continue a prompt, streaming or not. A disconnect stops the run."""
        raw = await self._bodies.read(request)
        decoded = decode_object(raw)
        body = convert(decoded, CompletionBody)
        if not body.prompt:
            raise BadRequest("prompt is empty.", param="prompt")
        if body.n is not None and not 1 <= body.n <= 128:
            raise BadRequest("n is a number from 1 to 128.", param="n")
        allowed = await self._starting.allow(request, body.model, idempotency(request, raw))
        run = allowed if isinstance(allowed, Run) else await self._start(allowed, body, decoded)
        if chat_ask(run.record.ask).stream:
            return self._answers.stream(run, _chunks(run), attached=run.take_hold(), refuse=failure)
        return WholeAnswer(run, self._completed, attached=run.take_hold())

    async def _start(self, allowed: AllowedStart, body: CompletionBody, decoded: dict[str, Any]) -> Run:
        """Start the run: an upstream of this dialect gets the prompt itself, every other one a chat with it."""
        provider = allowed.model.found.provider
        is_native = self._configured.dialect(provider.name) == "openai"
        check_fields(decoded, COMPLETION if is_native else COMPLETION_AS_CHAT, PASSED_ON)
        ask = ChatAsk(
            params={name: value for name, value in decoded.items() if name not in _NOT_PARAMS and value is not None},
            own=OwnPrompt(prompt=body.prompt) if is_native else None,
            stream=body.stream in (True, "true"),
            messages=[{"role": "user", "content": _text(body, is_native)}],
            n=(body.n or 1) * body.prompts,
            include_usage=body.stream_options is not None and body.stream_options.include_usage,
        )
        return await allowed.start(allowed.record(ask, lifetime="attached"), keep=allowed.key is not None)

    async def _completed(self, run: Run) -> ASGIApp:
        return await self._answers.whole(run, _object, failure)


def _text(body: CompletionBody, is_native: bool) -> str:
    prompt = body.prompt[0] if isinstance(body.prompt, list) and len(body.prompt) == 1 else body.prompt
    if isinstance(prompt, str):
        return prompt
    if is_native:
        return ""  # sent unchanged; only its length is unknown
    message = "Several prompts, and prompts of tokens, are not supported for this model: its upstream can only chat."
    raise BadRequest(message, param="prompt", code="unsupported")


def _chunks(run: Run) -> TextChunks:
    ask = chat_ask(run.record.ask)
    return TextChunks(run.id, run.record.echo, run.record.created_at, choices=ask.n, include_usage=ask.include_usage)


async def _object(run: Run, settled: AnySettlement | None) -> dict[str, Any]:
    return (await gathered(run, _answer)).body(settled)


def _answer(run: Run) -> TextAnswer:
    return TextAnswer(run.id, run.record.echo, run.record.created_at, choices=chat_ask(run.record.ask).n)
