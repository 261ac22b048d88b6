"""`/ag-ui`: runs for clients of the Agent User Interaction protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..asgi import EventStream
from ..history import Message, branch
from ..run import Run
from ..wire import ag_ui
from ..wire.ag_ui_request import Props, RunAgentInput, to_chat
from .answering import frames_seen, stream
from .completions import ChatBody, check_messages, start_chat
from .context import Endpoint, Parts, check_name, convert, decode, own_run, read_body
from .sources import default_model

KEPT = "ag_ui"
"""Where a run remembers what its client called it."""


async def run_agent(parts: Parts, request: Request) -> Response:
    """Start the run that answers a thread's newest message, and send its events. Leaving stops it, as a rule."""
    raw = await read_body(parts, request)
    asked = decode(raw, RunAgentInput)
    check_name(asked.thread_id, "threadId")
    check_name(asked.run_id, "runId")
    props = convert(asked.forwarded_props, Props) if isinstance(asked.forwarded_props, dict) else Props()
    chat = to_chat(asked, props)
    body = convert(chat, ChatBody)
    check_messages(body)
    model = props.model or await default_model(parts.providers, parts.configured.default_model)
    kept = {"thread_id": asked.thread_id, "run_id": asked.run_id, "state": asked.state or None}
    run = await start_chat(parts, request, body, chat, model, raw, kept={KEPT: kept}, begins=True)
    return events_of(parts, run, asked.protocol_version, attached=run.take_hold())


async def watch_agent(parts: Parts, request: Request) -> Response:
    """Send the events of a run, wherever it was started, from its first or after some of them."""
    run = await own_run(parts, request)
    wanted = request.query_params.get("messages") == "true"
    messages = await _said_before(parts, run) if wanted else None
    version = request.query_params.get("protocolVersion")
    return events_of(parts, run, version, messages=messages, skip=frames_seen(request))


async def _said_before(parts: Parts, run: Run) -> list[Message]:
    """Return the messages of a run's session up to the one that it answers."""
    if run.record.session_id is None:
        return []
    return branch(await parts.store.messages(run.record.session_id), run.record.parent_id)


def events_of(
    parts: Parts,
    run: Run,
    protocol_version: str | None,
    *,
    messages: Sequence[Message] | None = None,
    skip: int = 0,
    attached: bool = False,
) -> EventStream:
    """Return a run as AG-UI's events."""
    kept: dict[str, Any] = run.record.request.get(KEPT, {})
    rendering = ag_ui.AgUiEvents(
        run.id,
        run.record.model,
        thread_id=kept.get("thread_id") or run.record.session_id or run.id,
        run_id=kept.get("run_id"),
        state=kept.get("state"),
        messages=messages,
        cancelled=ag_ui.knows_cancelled(protocol_version),
    )
    return stream(parts, run, rendering, skip=skip, attached=attached)


ENDPOINTS = [
    Endpoint(
        "POST",
        "/ag-ui",
        run_agent,
        takes=RunAgentInput,
        answers={
            200: "events, live to the end of the run",
            400: "bad input",
            404: "no such model",
            409: "the thread is busy",
            413: "too large",
            429: "too many runs",
            503: "the server is ending",
        },
        streams=True,
    ),
    Endpoint(
        "GET",
        "/ag-ui/{run_id}",
        watch_agent,
        query={
            "starting_after": "frames to leave out",
            "messages": "true for the messages before the run",
            "protocolVersion": "the version that the client speaks",
        },
        answers={
            200: "events, live to the end of the run",
            400: "a bad query",
            404: "no such run",
            410: "the log was trimmed",
        },
        streams=True,
    ),
]
