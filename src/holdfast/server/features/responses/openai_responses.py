"""`/v1/responses`: OpenAI's Responses API. A response is a run, and its id is the run's."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....asgi.event_stream import EventStream
from ....asks import ChatAsk, ResponseAsk, response_ask
from ....engine.core import Core
from ....errors import NOT_RETRIED, BadRequest, Conflict, HoldfastError, RunNotFound
from ....events import NOT_AGAIN, Completed, Failed, Interrupted, StoppedBy
from ....history import alternating
from ....history.compaction import COMPACT
from ....runs.run import Run
from ....store import RunRecord, Store
from ....upstreams.responses.request import DIALECT
from ....wires.anthropic.request import estimated_tokens
from ....wires.openai import responses as openai_responses
from ....wires.openai.response_items import Item, compaction_item, items_of, listed
from ....wires.openai.responses import ECHOED
from ....wires.openai.responses_request import (
    ReasoningOptions,
    ResponseBody,
    TextOptions,
    own_fields_of,
    params_of,
)
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, json_of
from ...kit.request import Bodies, convert, decode_object, idempotency, whole_number
from ...kit.run_responses import RUN_ANSWERS, Answers, WholeAnswer, answer_headers, gathered
from ...live.live_settings import Configured
from ...sources.response_chains import ResponseNotFound, conversation, resolved, stored_ask
from ...sources.stored_conversations import check_fits
from ...starting.starting import AllowedStart, Starting
from ..chat.openai_chat import failure
from ..sessions.runs import stop_within
from ..sharing.reach import Reach
from .conversation_turns import ConversationTurns

LOOKED_AT = 1000
"""Maximum number of runs that one call of the list reads: many of an owner's runs may not be responses."""


class CompactionFailed(HoldfastError):
    """The summary is incomplete: it would lose parts of the conversation."""

    code = "compaction_failed"
    status = NOT_RETRIED
    type = NOT_AGAIN

    def __init__(self, outcome: str) -> None:
        super().__init__(f"The summary of the conversation was {outcome}. Nothing was compacted.")


class ResponsesApi(Feature):
    """Responses."""

    def __init__(
        self,
        bodies: Bodies,
        answers: Answers,
        reach: Reach,
        starting: Starting,
        configured: Configured,
        turns: ConversationTurns,
        engine: Core,
        store: Store,
    ) -> None:
        self._bodies, self._answers, self._reach, self._starting = bodies, answers, reach, starting
        self._configured, self._turns, self._engine = configured, turns, engine
        self._store = store

    @Endpoint(
        "POST",
        "/v1/responses",
        who=CHAT,
        takes=ResponseBody,
        answers={
            200: "a response, or its events",
            **RUN_ANSWERS,
            404: "no such model, or no such response to follow",
            409: "the response to follow has not ended",
        },
        streams=True,
    )
    async def create_response(self, request: Request) -> ASGIApp:
        """Answer with a response: at once in the background, streaming, or when it is finished."""
        raw = await self._bodies.read(request)
        decoded = decode_object(raw)
        body = checked(decoded)
        allowed = await self._starting.allow(request, body.model, idempotency(request, raw))
        if isinstance(allowed, Run):
            run, is_new = allowed, False
        else:
            record = await self.prepared(allowed, body, decoded)
            run = await self.begun(allowed, body, record)
            is_new = run.id == record.id
        if body.stream:
            return self._stream(run, stop_unheard=is_new and not body.background)
        if body.background:
            return Json(await _begun(run), headers=answer_headers(run))
        return WholeAnswer(run, self.finished, attached=run.take_hold())

    async def prepared(
        self,
        allowed: AllowedStart,
        body: ResponseBody,
        decoded: dict[str, Any],
        before: list[Item] | None = None,
    ) -> RunRecord:
        """Return the record of the run of a request.

        `before` are the items up to the response that it follows, if that is not stored.
        """
        provider = allowed.model.found.provider
        owner, is_native = allowed.caller.owner, self._configured.dialect(provider.name) == DIALECT
        items = items_of(body.input, follows=body.follows)
        params = params_of(body, decoded, self._configured.limit_of_tokens(provider.name))
        ask = msgspec.structs.replace(
            _ask_of(body, decoded, await resolved(self._store, owner, items)),
            params=params,
            own=own_fields_of(body) if is_native else None,
            before=before,
        )
        if body.conversation_id is not None:
            known = await self._turns.up_to_date(owner, body.conversation_id, "conversation")
            check_fits([*known.body.items, *ask.input])
        await conversation(self._store, owner, ask)  # refuses an invalid request
        return allowed.record(ask, lifetime="detached" if body.is_detached else "attached")

    async def begun(self, allowed: AllowedStart, body: ResponseBody, record: RunRecord) -> Run:
        """Start the run of a request."""
        if body.conversation_id is None:
            return await allowed.start(record, keep=body.is_stored or allowed.key is not None)
        start = partial(allowed.start, record, keep=True)
        return await self._turns.start(body.conversation_id, record, start)

    # Token counts and compaction.

    @Endpoint(
        "POST",
        "/v1/responses/input_tokens",
        who=READ,
        takes=ResponseBody,
        answers={404: "no such model, or no such response to follow", 409: "the response to follow has not ended"},
    )
    async def count_input(self, request: Request) -> ASGIApp:
        """Estimate the tokens of a request, without one to the upstream. The response says that it is an estimate."""
        decoded = decode_object(await self._bodies.read(request))
        body = checked(decoded)
        messages = await self._messages(await self._starting.allow_new(request, body.model), body, decoded)
        tokens = estimated_tokens(messages, params_of(body, decoded).get("tools"))
        return Json({"object": "response.input_tokens", "input_tokens": tokens, "holdfast": {"source": "estimated"}})

    @Endpoint(
        "POST",
        "/v1/responses/compact",
        who=CHAT,
        takes=ResponseBody,
        answers={
            200: "the conversation as one item",
            **RUN_ANSWERS,
            404: "no such model, or no such response to follow",
            406: "the summary is incomplete",
            409: "the response to follow has not ended",
        },
    )
    async def compact_response(self, request: Request) -> ASGIApp:
        """Let a model summarise a conversation. Return the item that replaces it in later requests."""
        decoded = decode_object(await self._bodies.read(request))
        body = checked(decoded)
        if not body.model:
            raise BadRequest("model is missing: name the one that summarises.", param="model")
        params_of(body, decoded)
        allowed = await self._starting.allow_new(request, body.model)
        messages = [*await self._messages(allowed, body, decoded), {"role": "user", "content": COMPACT}]
        record = allowed.record(ChatAsk(messages=alternating(messages)), lifetime="attached")
        run = await allowed.start(record, keep=False)
        return WholeAnswer(run, self._compacted, attached=run.take_hold())

    async def _messages(
        self, allowed: AllowedStart, body: ResponseBody, decoded: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the messages of a request for the model."""
        owner = allowed.caller.owner
        items = await resolved(self._store, owner, items_of(body.input, follows=body.follows))
        return await conversation(self._store, owner, _ask_of(body, decoded, items))

    async def _compacted(self, run: Run) -> ASGIApp:
        settled = await run.settled()
        if isinstance(settled, (Failed, Interrupted)):
            return failure(run, settled)
        if not isinstance(settled, Completed):
            raise CompactionFailed(settled.outcome)
        suffix = run.id.removeprefix("run_")
        compacted = {
            "id": openai_responses.response_id(run.id),
            "object": "response.compaction",
            "created_at": int(run.record.created_at),
            "output": [compaction_item(settled.text, suffix)],
            "usage": openai_responses.responses_usage(settled.usage),
        }
        return json_of(compacted, headers=answer_headers(run))

    async def finished(self, run: Run) -> ASGIApp:
        """Return a settled run as the finished object, with a status that is an error unless it completed."""
        return await self._answers.whole(run, lambda run, _: response_json(run), failure)

    # The stream.

    def _stream(self, run: Run, *, stop_unheard: bool) -> EventStream:
        """Return a response as a stream. With `stop_unheard`, it stops if its client left before it got the id."""
        frames = _frames(run)

        async def leave_unheard(by: StoppedBy) -> None:
            if not frames.event_count:
                await run.stop(by)

        on_leave = leave_unheard if stop_unheard else None
        beat = frames.heartbeat
        return self._answers.stream(
            run, frames, attached=run.take_hold(), on_leave=on_leave, refuse=failure, sign_of_life=beat
        )

    # Resuming.

    async def _own(self, request: Request) -> Run:
        response_id = request.path_params["response_id"]
        try:
            return await self._reach.run(request, openai_responses.run_id_of_response(response_id))
        except RunNotFound:
            raise ResponseNotFound(response_id) from None

    @Endpoint(
        "GET",
        "/v1/responses/{response_id}",
        who=READ,
        query={"stream": "true for events", "starting_after": "the last sequence_number seen"},
        answers={410: "the log was trimmed"},
        streams=True,
    )
    async def get_response(self, request: Request) -> ASGIApp:
        """Return a response by its id, or stream its events after a cursor."""
        run = await self._own(request)
        if request.query_params.get("stream") == "true":
            frames = _frames(run)
            return self._answers.stream(run, frames, skip=_starting_after(request) + 1, sign_of_life=frames.heartbeat)
        return json_of(await response_json(run), headers=answer_headers(run))

    @Endpoint("POST", "/v1/responses/{response_id}/cancel", who=CHAT, stores=False)
    async def cancel_response(self, request: Request) -> ASGIApp:
        """Stop a response, in the background or not, and return it. The first ending stands."""
        run = await self._own(request)
        await stop_within(run)
        return json_of(await response_json(run), headers=answer_headers(run))

    @Endpoint(
        "DELETE",
        "/v1/responses/{response_id}",
        who=CHAT,
        audit="response.delete",
        answers={200: "it is gone", 409: "it belongs to a session"},
    )
    async def delete_response(self, request: Request) -> ASGIApp:
        """Stop a response, and delete it."""
        run = await self._own(request)
        if run.record.session_id is not None:
            raise Conflict(f"This response belongs to session {run.record.session_id}. Delete that session instead.")
        await stop_within(run)
        await self._turns.add_items(run)  # what it has said is part of its conversation
        await self._store.delete_run(run.id)
        self._engine.forget(run.id)
        response_id = openai_responses.response_id(run.id)
        return Json({"id": response_id, "object": "response", "deleted": True}, headers=answer_headers(run))

    # Lists.

    @Endpoint(
        "GET",
        "/v1/responses/{response_id}/input_items",
        who=READ,
        query={"limit": "1 to 100", "order": "asc or desc", "after": "the item to continue from"},
    )
    async def list_input_items(self, request: Request) -> ASGIApp:
        """List the input items of a response's request, the last first."""
        run = await self._own(request)
        items = listed(response_ask(run.record.ask).input, run.id.removeprefix("run_"))
        return json_of(page_of_items(request, items), headers=answer_headers(run))

    async def list_responses(self, request: Request) -> ASGIApp:
        """List stored responses, the newest first."""
        limit = whole_number(request, "limit", 20, 100)
        after = request.query_params.get("after")
        before = openai_responses.run_id_of_response(after) if after else None
        found: list[RunRecord] = []
        looked_at = 0
        while len(found) <= limit and looked_at < LOOKED_AT:
            records = await self._store.list_runs(owner=owner_of(request), before=before, limit=200)
            found += [record for record in records if stored_ask(record)]
            looked_at += len(records)
            if not records:
                return await self._listed(found, limit)
            before = records[-1].id
        return await self._listed(found, limit, last=before)

    async def _listed(self, found: list[RunRecord], limit: int, last: str | None = None) -> ASGIApp:
        """Return a page. `last` is the last run that was read, if there may be more."""
        data = [await response_json(self._engine.run_of(record)) for record in found[:limit]]
        if len(found) > limit or last is None:
            return json_of(page_of(data, has_more=len(found) > limit))
        return json_of(page_of(data, has_more=True, last=openai_responses.response_id(last)))


def checked(decoded: dict[str, Any]) -> ResponseBody:
    """Return a request, or refuse a wrong one."""
    body = convert(decoded, ResponseBody)
    check_metadata(body.metadata)
    if body.max_output_tokens is not None and body.max_output_tokens < 1:
        raise BadRequest("max_output_tokens is at least 1.", param="max_output_tokens")
    if body.previous_response_id is not None and body.conversation_id is not None:
        raise BadRequest("Send previous_response_id or conversation, not both.", param="conversation")
    return body


def check_metadata(given: dict[str, str] | None) -> None:
    """Refuse metadata that is too large."""
    metadata = given or {}
    if len(metadata) > 16 or any(len(name) > 64 or len(value) > 512 for name, value in metadata.items()):
        raise BadRequest(
            "metadata has at most 16 pairs, with names of up to 64 and values of up to 512 characters.",
            param="metadata",
        )


def _ask_of(body: ResponseBody, decoded: dict[str, Any], items: list[Item]) -> ResponseAsk:
    """Return what is stored of a request: its input, and the fields that its response repeats."""
    names = [name for name in (*ECHOED, "user") if name not in ResponseAsk.__struct_fields__]
    repeated = {name: decoded[name] for name in names if decoded.get(name) is not None}
    text = msgspec.to_builtins(body.text or TextOptions())
    thinks = body.reasoning or ReasoningOptions()
    return ResponseAsk(
        stream=bool(body.stream),
        input=items,
        previous_response_id=body.previous_response_id,
        conversation_id=body.conversation_id,
        instructions=body.instructions,
        tools=body.tools or [],
        background=bool(body.background),
        store=body.is_stored,
        echoed={
            **repeated,
            "reasoning": {"effort": thinks.effort, "summary": thinks.summary or thinks.generate_summary},
            "text": ECHOED["text"] | {name: value for name, value in text.items() if value is not None},
        },
    )


# The object.


def response_of(run: Run) -> openai_responses.Response:
    """Return a run as an empty response."""
    record, ask = run.record, response_ask(run.record.ask)
    return openai_responses.Response(
        run.id, record.echo, record.created_at, ask, settled_at=lambda: run.record.settled_at
    )


async def response_json(run: Run) -> dict[str, Any]:
    """Return a run as a response so far."""
    response = await gathered(run, response_of, without_calls=True)
    return response.body(response.settled, waiting=run.status == "queued")


async def _begun(run: Run) -> dict[str, Any]:
    """Return a response that was just started; for a repeated request, its current state."""
    return await response_json(run) if run.seq > 1 else response_of(run).body(None, waiting=True)


def _frames(run: Run) -> openai_responses.ResponseFrames:
    return openai_responses.ResponseFrames(response_of(run))


def _starting_after(request: Request) -> int:
    text = request.query_params.get("starting_after", "-1")
    if text != "-1" and not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest("starting_after is the sequence_number of the last event seen.", param="starting_after")
    return int(text)


def page_of_items(request: Request, items: list[Item]) -> dict[str, Any]:
    """Return the page of a list of items that a request asks for."""
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest("order is asc or desc.", param="order")
    if order == "desc":
        items = items[::-1]
    if after := request.query_params.get("after"):
        places = [place for place, item in enumerate(items) if item["id"] == after]
        items = items[places[0] + 1 :] if places else []
    limit = whole_number(request, "limit", 20, 100)
    return page_of(items[:limit], has_more=len(items) > limit)


def page_of(data: list[dict[str, Any]], *, has_more: bool, last: str | None = None) -> dict[str, Any]:
    """Return some objects as a page. `last` is the id to continue after, if it is not that of the last one."""
    ends = {"first_id": data[0]["id"] if data else None, "last_id": last or (data[-1]["id"] if data else None)}
    return {"object": "list", "data": data, **ends, "has_more": has_more}
