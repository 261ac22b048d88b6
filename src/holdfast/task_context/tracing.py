"""The trace that a task works in, for parts that know nothing of OpenTelemetry."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol


class ToolSpan(Protocol):
    """The span of one tool call."""

    def returned(self, output: str, *, is_error: bool) -> None:
        """Note the result of the call."""
        ...


class Tracer(Protocol):
    """Makes the spans of a task, and continues its trace in other programs."""

    def headers(self) -> dict[str, str]:
        """Return the headers by which an upstream continues the trace of this task."""
        ...

    def tool_call(self, name: str, call_id: str, arguments: str) -> AbstractContextManager[ToolSpan]:
        """Return the span of a tool call, which lasts as long as the block."""
        ...


TRACER: ContextVar[Tracer | None] = ContextVar("holdfast.tracer", default=None)
"""None if traces are off. A request and a run set it for their tasks; tasks that they start inherit it."""
