"""`/v1/messages`: Anthropic's Messages API on the same runs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....asgi.event_stream import EventStream
from ....asks import ChatAsk, ThreadAsk, chat_ask
from ....errors import NOT_RETRIED, RunNotFound
from ....events import AnySettlement, Failed, Interrupted, Stopped
from ....history import estimate_tokens
from ....runs.run import Run
from ....upstreams import FoundModel
from ....wires.anthropic import messages as anthropic_messages
from ....wires.anthropic.request import CountBody, MessagesBody, chat_messages, estimated_tokens, own_messages, to_chat
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, error_answer, json_of
from ...kit.request import Bodies, convert, decode, decode_object, header, idempotency
from ...kit.run_responses import (
    Answers,
    WholeAnswer,
    failed_headers,
    frames_seen,
    gathered,
    not_again,
    unfinished_answer,
)
from ...live.live_settings import Configured
from ...sources.models import AllowedModels
from ...starting.starting import AllowedStart, Starting
from ..sharing.reach import Reach
from . import threads
from .openai_chat import ChatBody, ChatStarts, check_messages
from .threads import Threads

_FAILURES = {
    406: "the upstream failed after output, or the run was stopped",
    409: "the session is busy",
    429: "too many runs",
    502: "the upstream failed",
    503: "the server is ending",
    504: "the upstream was silent",
}


class AnthropicMessages(Feature):
    """Messages in Anthropic's dialect."""

    def __init__(
        self,
        bodies: Bodies,
        answers: Answers,
        reach: Reach,
        starting: Starting,
        models: AllowedModels,
        configured: Configured,
        chats: ChatStarts,
        threads: Threads,
    ) -> None:
        self._bodies, self._answers, self._reach, self._starting = bodies, answers, reach, starting
        self._models, self._configured, self._chats, self._threads = models, configured, chats, threads

    @Endpoint(
        "POST",
        "/v1/messages",
        who=CHAT,
        takes=MessagesBody,
        answers={200: "a message, or its events", 202: "a run in the background", 404: "no such model", **_FAILURES},
        streams=True,
    )
    async def create_message(self, request: Request) -> ASGIApp:
        """Answer with a message, streaming or not. The run lives as long as its client, unless in the background."""
        raw = await self._bodies.read(request)
        fields = decode_object(raw)
        body = convert(fields, MessagesBody)
        allowed = await self._starting.allow(request, body.model, idempotency(request, raw))
        run = allowed if isinstance(allowed, Run) else await self._start(request, allowed, body, fields)
        if body.stream:
            return self.message_stream(run, attached=run.take_hold())
        if body.background:
            return await unfinished_answer(run, _object)
        return WholeAnswer(run, self.whole_message, attached=run.take_hold())

    async def _start(self, request: Request, allowed: AllowedStart, body: MessagesBody, fields: dict[str, Any]) -> Run:
        if body.thread is not None:
            fields = await self._threads.whole_request(request, fields, body.thread)
            body = convert(fields, MessagesBody)
        native = self._is_native(allowed.model.found)
        chat = to_chat(body, fields, native=native, betas=header(request, b"anthropic-beta"))
        chat_body = convert(chat, ChatBody)
        check_messages(chat_body)
        own = own_messages(fields) if native and not body.session_id else None
        is_held = body.thread is not None
        ask = ThreadAsk(own=own, thread=threads.held(fields)) if is_held else ChatAsk(own=own)
        return await self._chats.start(request, allowed, chat_body, chat, ask, streams=bool(body.stream), keep=is_held)

    def _is_native(self, found: FoundModel) -> bool:
        """Return whether the upstream of a model speaks this dialect."""
        return self._configured.dialect(found.provider.name) == "anthropic"

    @Endpoint("POST", "/v1/messages/count_tokens", who=READ, takes=CountBody, answers={404: "no such model"})
    async def count_tokens(self, request: Request) -> ASGIApp:
        """Estimate the tokens of a request, without one to the upstream. The response says that it is an estimate."""
        body = decode(await self._bodies.read(request), CountBody)
        await self._models.find(access_of(request), body.model)
        tokens = estimated_tokens(chat_messages(body, native=True), body.tools)
        return Json({"input_tokens": tokens, "holdfast": {"source": "estimated"}})

    def message_stream(self, run: Run, *, skip: int = 0, attached: bool = False) -> EventStream:
        """Return a run as Anthropic's stream events, from the first or after `skip` of them."""
        estimate = estimate_tokens(chat_ask(run.record.ask).messages)
        rendering = anthropic_messages.MessageEvents(run.id, run.record.echo, estimate)
        beat = anthropic_messages.PING if skip else rendering.heartbeat
        return self._answers.stream(
            run, rendering, skip=skip, attached=attached, refuse=anthropic_refusal, sign_of_life=beat
        )

    async def whole_message(self, run: Run) -> ASGIApp:
        """Return a settled run as the finished message, with a status that is an error unless it completed."""
        settled = await run.settled()
        if isinstance(settled, Stopped):
            return json_of(await _object(run, settled), status_code=NOT_RETRIED, headers=not_again(run))
        return await self._answers.whole(run, _object, anthropic_refusal)

    @Endpoint(
        "GET",
        "/v1/messages/{answer_id}",
        who=READ,
        query={"stream": "true for events", "starting_after": "frames to leave out"},
        answers={
            200: "the message",
            202: "not finished yet",
            404: "no such message",
            410: "the log was trimmed",
            **_FAILURES,
        },
        streams=True,
    )
    async def get_message(self, request: Request) -> ASGIApp:
        """Return a run as a message by the message's id, or stream it, from the start or after its first frames."""
        answer_id = request.path_params["answer_id"]
        try:
            run = await self._reach.run(request, anthropic_messages.run_id_of_message(answer_id))
        except RunNotFound:
            raise RunNotFound(answer_id) from None
        if request.query_params.get("stream") == "true":
            return self.message_stream(run, skip=frames_seen(request))
        return await (self.whole_message(run) if run.settlement is not None else unfinished_answer(run, _object))


async def _object(run: Run, settled: AnySettlement | None) -> dict[str, Any]:
    return (await gathered(run, threads.answer_of)).body(settled)


def anthropic_refusal(run: Run, settled: Failed | Interrupted) -> ASGIApp:
    """Return the response for a failure before any output."""
    extra = anthropic_messages.unfinished(settled, run.id)
    return error_answer(settled.error, extra=extra, headers=failed_headers(run, settled))
