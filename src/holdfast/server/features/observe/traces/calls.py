"""The spans of upstream calls and tool calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind, Tracer

from .....events import Finish, Notice, Outlet, Text, Usage, Yielded
from .....upstreams import ChatRequest
from . import AnswerChat
from .attributes import Attributes, call_attributes, fail, input_messages, note_error, output_message


@contextmanager
def span_of(
    tracer: Tracer, name: str, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL, began: int | None = None
) -> Iterator[Span]:
    """Create a span for a block. It records an error by its code only. A cancel is no error: the run was stopped."""
    with tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, start_time=began, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except asyncio.CancelledError:
            span.set_attribute("holdfast.stopped", True)
            raise
        except Exception as error:
            note_error(span, error)
            raise


async def answer_traced(
    tracer: Tracer, ask: AnswerChat, provider: str, request: ChatRequest, out: Outlet, *, content: bool
) -> None:
    """Call a provider within the span of an upstream call."""
    attributes = call_attributes(provider, request)
    if content:
        attributes["gen_ai.input.messages"] = input_messages(request.messages)
    with span_of(tracer, f"chat {request.model}", attributes, SpanKind.CLIENT) as span:
        noting = _NotingOutlet(out, span, content=content)
        try:
            await ask(request, noting)
        finally:
            noting.end()


class _NotingOutlet:
    """An outlet that records the usage, the finish and the retries of a call in its span."""

    def __init__(self, out: Outlet, span: Span, *, content: bool) -> None:
        self._out, self._span = out, span
        self.room = out.room
        self._began = time.monotonic()
        self._first: float | None = None
        self._texts: list[str] | None = [] if content else None
        self._reasons: list[str] = []

    def emit(self, events: Sequence[Yielded]) -> bool:
        """Record events, and pass them on."""
        for event in events:
            if isinstance(event, (str, Text)):
                self._note_text(event if isinstance(event, str) else event.text)
            else:
                self._note(event)
        return self._out.emit(events)

    def _note_text(self, text: str) -> None:
        if self._first is None:
            self._first = time.monotonic()
        if self._texts is not None:
            self._texts.append(text)

    def _note(self, event: Yielded) -> None:
        if isinstance(event, Usage) and event.source == "provider":
            self._span.set_attribute("gen_ai.usage.input_tokens", event.input_tokens)
            self._span.set_attribute("gen_ai.usage.output_tokens", event.output_tokens)
        elif isinstance(event, Finish):
            self._reasons.append(event.reason)
        elif isinstance(event, Notice) and event.code == "retry":
            self._span.add_event("retry")

    def end(self) -> None:
        """Record the attributes at the end."""
        if self._first is not None:
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", self._first - self._began)
        if self._reasons:
            self._span.set_attribute("gen_ai.response.finish_reasons", self._reasons)
        if self._texts is not None:
            reason = self._reasons[0] if self._reasons else ""
            self._span.set_attribute("gen_ai.output.messages", output_message("".join(self._texts), reason))


class NotedTool:
    """The span of one tool call."""

    def __init__(self, span: Span, *, content: bool) -> None:
        self._span, self._content = span, content

    def returned(self, output: str, *, is_error: bool) -> None:
        """Record the result of the call."""
        if is_error:
            fail(self._span, "tool_error")
        if self._content:
            self._span.set_attribute("gen_ai.tool.call.result", output)


@contextmanager
def tool_call_traced(tracer: Tracer, name: str, call_id: str, arguments: str, *, content: bool) -> Iterator[NotedTool]:
    """Create the span of a tool call for a block."""
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.type": "function",
    }
    if content:
        attributes["gen_ai.tool.call.arguments"] = arguments
    with span_of(tracer, f"execute_tool {name}", attributes) as span:
        yield NotedTool(span, content=content)
