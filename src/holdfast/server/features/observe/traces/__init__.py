"""Traces for OpenTelemetry. Without the setting no span is made, and `opentelemetry` is not loaded."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.types import ASGIApp

from .....engine.core import Core
from .....errors import HoldfastError, how_to_install
from .....events import Outlet
from .....nodes.recovery import Again
from .....runs.run import Run
from .....store import RunRecord, Store
from .....task_context.tracing import Tracer
from .....upstreams import ChatRequest
from ....config.settings import Settings

TracedHandler = Callable[[Request], Awaitable[ASGIApp]]
"""Handles a request of an endpoint, as the router calls it."""
AnswerChat = Callable[[ChatRequest, Outlet], Awaitable[None]]
"""Calls a provider, which emits the answer."""


class TracesNotInstalled(HoldfastError):
    """The packages that traces need are not installed."""

    code = "traces_not_installed"
    status = 503
    message = f"Traces need OpenTelemetry's SDK. Install it: {how_to_install('otel')}."


class Traces(Tracer, Protocol):
    """The only part that makes spans. Without it nothing is traced."""

    def stored(self, store: Store) -> Store:
        """Return the store with spans for its commits."""
        ...

    def handler(self, method: str, path: str, handler: TracedHandler) -> TracedHandler:
        """Return the handler of an endpoint, which begins a span for each request."""
        ...

    def requests(self, app: ASGIApp) -> ASGIApp:
        """Return the application of such handlers, which ends the span of a request with its response."""
        ...

    def ids(self, run_id: str) -> tuple[str, str] | None:
        """Return the ids of trace and span of this task, or else of a run in progress."""
        ...

    def begin(self, record: RunRecord) -> None:
        """Begin the span of a run, in the task that reads its source."""
        ...

    def again(self, again: Again) -> Again:
        """Return the function that resumes runs, with a span for each takeover."""
        ...

    async def answer(self, ask: AnswerChat, provider: str, request: ChatRequest, out: Outlet) -> None:
        """Call a provider within the span of an upstream call."""
        ...

    def settled(self, run: Run) -> None:
        """End the span of a run that has settled."""
        ...

    def watch(self, engine: Core) -> None:
        """Use this engine to notice runs that have moved to another node."""
        ...

    async def close(self) -> None:
        """Send the remaining spans, within a few seconds."""
        ...


def traces_of(settings: Settings) -> Traces | None:
    """Return the traces; None if they are off."""
    if not settings.traces:
        return None
    try:
        module: Any = importlib.import_module(".otel", __package__)  # only now: the SDK comes with an extra
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise TracesNotInstalled from error
    made: Traces = module.OpenTelemetryTraces(settings)
    return made
