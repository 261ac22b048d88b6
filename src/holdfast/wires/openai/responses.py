"""OpenAI's Responses: the object and its stream of numbered events, each a pure function of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...asks import ResponseAsk
from ...events import (
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Settled,
    Settlement,
    Stopped,
    Text,
    Usage,
)
from .. import native, sse
from ..outcome import cost_of, finish_reason, verdict
from .fields import RUN_BY_OPENAI
from .response_output import MessageOutput, Output, ResponseEvent
from .responses_request import with_defaults

_encode = msgspec.json.Encoder().encode
PREFIX = "resp_"
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""OpenAI's reason for an incomplete answer, by finish reason."""


def response_id(run_id: str) -> str:
    """Return the response id of a run."""
    return PREFIX + run_id.removeprefix("run_")


def run_id_of_response(response_id: str) -> str:
    """Return the run of a response id; an invalid id gives a run that cannot exist."""
    return "run_" + response_id.removeprefix(PREFIX) if response_id.startswith(PREFIX) else response_id


def run_of_item(item_id: str) -> tuple[str, str]:
    """Return the response and the run that an output item belongs to, by its id."""
    suffix = item_id.partition("_")[2].rpartition("_")[0]
    return PREFIX + suffix, "run_" + suffix


def status(settled: Settlement) -> str:
    """Return a response's status for a settlement: the only such mapping."""
    if isinstance(settled, Completed):
        return "completed"
    if isinstance(settled, Stopped):
        return "cancelled"
    return "failed" if isinstance(settled, (Failed, Interrupted)) else "incomplete"


def responses_usage(used: Usage) -> dict[str, Any]:
    """Return the usage in OpenAI's shape."""
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": used.cache_write_tokens},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.total_tokens,
        **cost_of(used),
    }


# The object.


class Response:
    """One run as a response: its request, its items, and its end."""

    def __init__(
        self,
        run: str,
        model: str,
        created: float,
        ask: ResponseAsk,
        settled_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`settled_at` is called when the run has ended."""
        self._run = run
        self._settled_at = settled_at
        self.output = Output(run, ask.tools)
        self.settled: AnySettlement | None = None
        """The settlement, if it was added."""
        self.is_background = ask.background
        self._head = {
            "id": response_id(run),
            "object": "response",
            "created_at": int(created),
            "model": model,
            **ECHOED,
            **ask.echoed,
            "background": ask.background,
            "instructions": ask.instructions,
            "previous_response_id": ask.previous_response_id,
            "store": ask.store,
            "tools": [with_defaults(tool) for tool in ask.tools if tool["type"] not in RUN_BY_OPENAI],
            **({} if ask.conversation_id is None else {"conversation": {"id": ask.conversation_id}}),
        }

    def add(self, events: Iterable[Event]) -> None:
        """Add the next events."""
        for event in events:
            writing = self.output.writing
            if (
                type(event) is Text
                and not (event.choice or event.refusal or event.logprobs is not None)
                and type(writing) is MessageOutput
            ):
                writing.pieces.append(event.text)
            elif isinstance(event, Settled):
                self.settled = event.settlement
                self.output.end(event.settlement)
            else:
                self.output.take(event)

    def body(self, settled: AnySettlement | None, *, waiting: bool = False) -> dict[str, Any]:
        """Return the object so far."""
        fields: dict[str, Any] = {
            **self._head,
            "status": status(settled) if settled else "queued" if waiting else "in_progress",
            "output": self.output.items(),
            "usage": responses_usage(settled.usage) if settled else None,
            "completed_at": self._completed_at(settled),
            "error": None,
            "incomplete_details": None,
        }
        if settled is None:
            return fields
        if fields["status"] == "incomplete":
            fields["incomplete_details"] = {"reason": _REASONS.get(finish_reason(settled), "max_output_tokens")}
        return fields | verdict(settled, self._run)

    def _completed_at(self, settled: AnySettlement | None) -> int | None:
        at = self._settled_at() if isinstance(settled, Completed) else None
        return None if at is None else int(at)


ECHOED: dict[str, Any] = {
    "background": False,
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1,
    "truncation": "disabled",
}
"""The fields of the request that a response repeats, and their defaults."""


# The stream.


class ResponseFrames:
    """Renders one run as events, in order from its first: the same log always gives the same bytes."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._has_begun = False
        self._in_progress: dict[str, Any] = {}
        self.event_count = 0
        """Number of events so far, which is the `sequence_number` of the next."""

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        out: list[bytes] = []
        output = self._response.output
        if events:
            out.extend(self._begun())
        for event in events:
            if (
                type(event) is Text
                and not (event.choice or event.refusal or event.logprobs is not None)
                and type(output.writing) is MessageOutput
            ):
                out.append(self._text(output.writing, event.text))
            elif isinstance(event, Settled):
                out.extend(self.ending(event))
            else:
                out.extend(self._render(output.take(event)))
        return out

    def ending(self, event: Settled) -> Iterator[bytes]:
        """Yield the last frames one by one: most of them repeat all of the text, which may be long."""
        yield from self._begun()
        yield from self._render(self._ending(event.settlement))

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that ends the stream, not its run, with the reason."""
        return b"".join(self._render([_error(info)]))

    def heartbeat(self) -> bytes:
        """Return an event without effect, with the number of the last one: some clients do not count comments."""
        if not self._in_progress:
            return sse.HEARTBEAT
        fields = {"sequence_number": self.event_count - 1, "response": self._in_progress}
        return self._frame("response.in_progress", _encode({"type": "response.in_progress", **fields}))

    def _begun(self) -> Iterator[bytes]:
        if not self._has_begun:
            self._has_begun = True
            yield from self._render(self._beginning())

    def _render(self, steps: Iterable[ResponseEvent]) -> Iterator[bytes]:
        for kind, fields in steps:
            data = _encode({"type": kind, "sequence_number": self.event_count, **fields})
            self.event_count += 1
            yield self._frame(kind, data)

    def _frame(self, kind: str, data: bytes) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def _text(self, message: MessageOutput, text: str) -> bytes:
        """Render a text delta, the most frequent event, without a dict."""
        message.pieces.append(text)
        number, self.event_count = self.event_count, self.event_count + 1
        return _TEXT % (number, message.head, _encode(text))

    def _beginning(self) -> Iterable[ResponseEvent]:
        """Return the first events. A response in the background is `queued` first, as OpenAI's are."""
        response, waiting = self._response, self._response.is_background
        yield "response.created", {"response": response.body(None, waiting=waiting)}
        if waiting:
            yield "response.queued", {"response": response.body(None, waiting=True)}
        self._in_progress = response.body(None)
        yield "response.in_progress", {"response": self._in_progress}

    def _ending(self, settled: AnySettlement) -> Iterable[ResponseEvent]:
        yield from self._response.output.end(settled)
        if isinstance(settled, (Failed, Interrupted)):
            yield _error(settled.error)
        yield f"response.{status(settled)}", {"response": self._response.body(settled)}


def _error(info: ErrorInfo) -> ResponseEvent:
    """Return the event on which OpenAI's SDKs raise. Some clients read no other event of a failure."""
    return "error", {"code": info.code, "message": info.message, "param": info.param, "error": native.error(info)}


_TEXT = (
    b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","sequence_number":%d,%b%b,"logprobs":[]}\n\n'
)
