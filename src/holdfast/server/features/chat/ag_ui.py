"""`/ag-ui`: runs for clients of the Agent User Interaction protocol."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....asgi.event_stream import EventStream
from ....asks import AgUiAsk
from ....fields import check_fields
from ....history import Message, branch
from ....runs.run import Run
from ....store import Store
from ....store.files import with_files
from ....wires import ag_ui
from ....wires.ag_ui_request import Props, RunAgentInput, agent_chat
from ....wires.ui_fields import AG_UI, NOT_KNOWN
from ...kit.feature import Endpoint, Feature
from ...kit.request import Bodies, check_name, convert, decode_object, idempotency
from ...kit.run_responses import Answers, frames_seen
from ...starting.starting import Starting
from ..sharing.reach import Reach
from .openai_chat import ChatBody, ChatStarts, check_messages


class AgUi(Feature):
    """Runs for clients of AG-UI."""

    def __init__(
        self, bodies: Bodies, answers: Answers, reach: Reach, starting: Starting, chats: ChatStarts, store: Store
    ) -> None:
        self._bodies, self._answers, self._reach, self._starting = bodies, answers, reach, starting
        self._chats, self._store = chats, store

    @Endpoint(
        "POST",
        "/ag-ui",
        who=CHAT,
        takes=RunAgentInput,
        answers={404: "no such model", 409: "the thread is busy", 429: "too many runs", 503: "the server is ending"},
        streams=True,
    )
    async def run_agent(self, request: Request) -> ASGIApp:
        """Start the run that answers a thread's last message, and send its events. A disconnect stops it by default."""
        raw = await self._bodies.read(request)
        fields = decode_object(raw)
        input = convert(fields, RunAgentInput)
        check_fields(fields, AG_UI, NOT_KNOWN)
        check_name(input.thread_id, "threadId")
        check_name(input.run_id, "runId")
        props = convert(input.forwarded_props, Props) if isinstance(input.forwarded_props, dict) else Props()
        chat = agent_chat(input, props)
        body = convert(chat, ChatBody)
        check_messages(body)
        allowed = await self._starting.allow(request, props.model, idempotency(request, raw))
        if isinstance(allowed, Run):
            run = allowed
        else:
            ask = AgUiAsk(thread_id=input.thread_id, run_id=input.run_id, state=input.state or None)
            run = await self._chats.start(request, allowed, body, chat, ask, begins=True, streams=True)
        return self.ag_ui_events(run, input.protocol_version, attached=run.take_hold())

    @Endpoint(
        "GET",
        "/ag-ui/{run_id}",
        who=READ,
        query={
            "starting_after": "frames to leave out",
            "messages": "true for the messages before the run",
            "protocolVersion": "the protocol version of the client",
        },
        answers={410: "the log was trimmed"},
        streams=True,
    )
    async def watch_agent(self, request: Request) -> ASGIApp:
        """Send the events of any run, from its first or after some of them."""
        run = await self._reach.run(request)
        with_messages = request.query_params.get("messages") == "true"
        messages = await self._messages_before(run) if with_messages else None
        version = request.query_params.get("protocolVersion")
        return self.ag_ui_events(run, version, messages=messages, skip=frames_seen(request))

    async def _messages_before(self, run: Run) -> list[Message]:
        """Return the messages of a run's session up to the one that it answers."""
        if run.record.session_id is None:
            return []
        path = branch(await self._store.messages(run.record.session_id), run.record.parent_id)
        return await with_files(self._store, run.record.session_id, path)

    def ag_ui_events(
        self,
        run: Run,
        protocol_version: str | None,
        *,
        messages: Sequence[Message] | None = None,
        skip: int = 0,
        attached: bool = False,
    ) -> EventStream:
        """Return a run as AG-UI's events."""
        ask = run.record.ask if isinstance(run.record.ask, AgUiAsk) else None
        rendering = ag_ui.AgUiEvents(
            run.id,
            run.record.echo,
            thread_id=ask.thread_id if ask else run.record.session_id or run.id,
            run_id=ask.run_id if ask else None,
            state=ask.state if ask else None,
            messages=messages,
            cancelled=ag_ui.knows_cancelled(protocol_version),
        )
        return self._answers.stream(run, rendering, skip=skip, attached=attached)
