"""Anthropic's threads: conversations that the server stores, so that a client sends only new messages.

The run of a message with `thread` stores its request. A request that continues it is completed from there: the earlier
messages, the answer, and the new messages.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from ....asks import ThreadAsk
from ....errors import BadRequest, Conflict, NotFound, RunNotFound
from ....events import Completed, Truncated
from ....runs.run import Run
from ....wires.anthropic.messages import MessageAnswer, run_id_of_message
from ....wires.anthropic.request import Thread
from ...kit.run_responses import gathered
from ..sharing.reach import Reach

_HELD = ("system", "tools")
"""Fields that a thread stores, besides the messages. A request that continues it does not repeat them."""


class ThreadNotFound(NotFound):
    """No such thread, or it cannot be continued: Anthropic's SDKs then send the whole conversation."""

    code = "thread_not_found"
    param = "thread.previous_message_id"

    def __init__(self, message_id: str) -> None:
        super().__init__(f"No message {message_id!r} of a thread can be continued. Send the whole conversation.")


class ThreadInFlight(Conflict):
    """The message to continue is not finished."""

    code = "thread_continue_in_flight"
    param = "thread.previous_message_id"

    def __init__(self, message_id: str) -> None:
        super().__init__(f"Message {message_id} is not finished. Wait for it, or send the whole conversation.")


def held(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that a thread stores."""
    return {name: fields[name] for name in ("messages", *_HELD) if fields.get(name) is not None}


class Threads:
    """Completes requests that continue a thread."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def whole_request(self, request: Request, fields: dict[str, Any], thread: Thread) -> dict[str, Any]:
        """Return a request with the fields of the thread."""
        if fields.get("session_id") is not None:
            message = "thread is not supported together with session_id: a session holds its conversation itself."
            raise BadRequest(message, param="thread", code="thread_unsupported_request")
        if thread.type == "create":
            return fields
        if repeated := [name for name in _HELD if fields.get(name)]:
            raise BadRequest(f"A thread holds its {repeated[0]}: leave it out.", param=repeated[0])
        before, conversation = await self._continued(request, thread.previous_message_id or "")
        body = (await gathered(before, answer_of)).body(before.settlement)
        answered = {"role": "assistant", "content": body["content"]}
        return {**fields, **conversation, "messages": [*conversation["messages"], answered, *fields["messages"]]}

    async def _continued(self, request: Request, message_id: str) -> tuple[Run, dict[str, Any]]:
        """Return the run of the message that a request continues, and its conversation."""
        try:
            run = await self._reach.run(request, run_id_of_message(message_id))
        except RunNotFound:
            raise ThreadNotFound(message_id) from None
        if not isinstance(ask := run.record.ask, ThreadAsk):
            raise ThreadNotFound(message_id)
        if run.settlement is None:
            raise ThreadInFlight(message_id)
        if not isinstance(run.settlement, (Completed, Truncated)):
            raise ThreadNotFound(message_id)
        return run, ask.thread


def answer_of(run: Run) -> MessageAnswer:
    """Return a run as an empty message."""
    return MessageAnswer(run.id, run.record.echo)
