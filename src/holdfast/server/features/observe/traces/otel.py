"""The spans of a server, for OpenTelemetry."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from contextlib import AbstractContextManager
from functools import partial

from opentelemetry.context import Context, attach, get_current
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, format_span_id, format_trace_id, get_current_span, set_span_in_context
from starlette.types import ASGIApp

from ..... import __version__
from .....engine.core import Core
from .....events import Outlet, Source
from .....log.log import Log
from .....nodes.recovery import Again
from .....runs.run import Run
from .....store import RunRecord, Store
from .....task_context.tracing import TRACER, ToolSpan
from .....upstreams import ChatRequest
from ....config.settings import Settings, SettingsError
from . import AnswerChat, TracedHandler
from .attributes import note_settlement, run_attributes, run_name
from .calls import answer_traced, span_of, tool_call_traced
from .requests import handler_traced, requests_ended
from .traced_store import RunSpan, RunSpans, TracedStore, as_store

LAST_SPANS = 3.0
"""Timeout of sending the last spans at a shutdown, in seconds."""
EXPORTER, PROTOCOL = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"


def tracer_provider() -> TracerProvider:
    """Return the provider of tracers, which sends spans in batches from a separate thread.

    The SDK reads the address of the collector, the sampler, the limits and the attributes of the service from the
    environment. These variables override our defaults.
    """
    _check_environment()
    ours = Resource({"service.name": "holdfast", "service.version": __version__, "telemetry.sdk.language": "python"})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    if os.environ.get(EXPORTER, "otlp") != "none":
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _check_environment() -> None:
    """Refuse settings that the standard allows and this server does not support."""
    exporter = os.environ.get(EXPORTER, "otlp")
    if exporter not in ("otlp", "none"):
        raise SettingsError(f"{EXPORTER} is {exporter!r}. Traces are sent by OTLP only: set it to otlp or none.")
    for name in (TRACES_PROTOCOL, PROTOCOL):
        if (protocol := os.environ.get(name, "http/protobuf")) != "http/protobuf":
            raise SettingsError(
                f"{name} is {protocol!r}. Traces are sent over HTTP only: set it to http/protobuf, and "
                "OTEL_EXPORTER_OTLP_ENDPOINT to the collector's port for HTTP, which is 4318 in most cases."
            )


async def send_the_rest(provider: TracerProvider) -> None:
    """Send the remaining spans, and end the thread. It does not wait for an unreachable collector."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut_down, name="holdfast-traces", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_SPANS):
            await done.wait()


class OpenTelemetryTraces:
    """Creates spans of requests, runs, upstream calls, tool calls, commits and takeovers.

    A run outlives its request, and may start or continue on another node. So its trace is in its record, and its span
    is a child of the request that started it, even if it ends much later.
    """

    def __init__(self, settings: Settings) -> None:
        self._content = settings.traces_content
        self._provider = tracer_provider()
        self._tracer = self._provider.get_tracer("holdfast", __version__)
        self._runs: RunSpans = {}
        self._store: TracedStore | None = None
        self._engine: Core | None = None

    # requests and the store

    def handler(self, method: str, path: str, handler: TracedHandler) -> TracedHandler:
        """Return the handler of an endpoint, which begins a span for each request."""
        return handler_traced(self._tracer, self, method, path, handler)

    def requests(self, app: ASGIApp) -> ASGIApp:
        """Return the application of such handlers, which ends the span of a request with its response."""
        return requests_ended(app)

    def stored(self, store: Store) -> Store:
        """Return the store with spans for its commits."""
        self._store = TracedStore(store, self._tracer, self._runs)
        return as_store(self._store)

    def headers(self) -> dict[str, str]:
        """Return the headers by which an upstream continues the trace of this task."""
        carrier: dict[str, str] = {}
        inject(carrier)
        return carrier

    def ids(self, run_id: str) -> tuple[str, str] | None:
        """Return the ids of trace and span of this task, or else of a run in progress.

        A task may outlive the request whose span it has inherited. So a span that has ended does not count.
        """
        span = get_current_span()
        if not _is_open(span):
            if (run := self._runs.get(run_id)) is None:
                return None
            span = run.span
        context = span.get_span_context()
        return format_trace_id(context.trace_id), format_span_id(context.span_id)

    # runs

    def watch(self, engine: Core) -> None:
        """Use this engine to notice runs that have moved to another node."""
        self._engine = engine

    def begin(self, record: RunRecord) -> None:
        """Begin the span of a run, in the task that reads its source."""
        run, context = self._make(record)
        attach(set_span_in_context(run.span, context))  # the task is the run's own
        TRACER.set(self)
        self._runs[record.id] = run
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(partial(self._end_if_left, record.id, run))

    def _make(self, record: RunRecord) -> tuple[RunSpan, Context]:
        carrier = record.ask.trace
        context = extract(carrier, Context()) if carrier else get_current()
        began = self._store.claimed.get(record.id) if self._store is not None else None
        node = "" if self._engine is None else self._engine.node_id
        attributes = run_attributes(record, node)
        span = self._tracer.start_span(run_name(record), context, attributes=attributes, start_time=began)
        return RunSpan(span), context

    def _end_if_left(self, run_id: str, run: RunSpan, task: asyncio.Task[None]) -> None:
        """End the span of a run that has moved to another node. Other spans end with the settlement."""
        is_here = self._engine is not None and self._engine.here(run_id) is not None
        if not is_here and self._runs.get(run_id) is run:
            del self._runs[run_id]
            run.span.set_attribute("holdfast.run.left", True)
            run.end()

    def settled(self, run: Run) -> None:
        """End the span of a run that has settled. One that was stopped before it was read has none yet."""
        known = self._runs.pop(run.id, None) or self._make(run.record)[0]
        assert run.settlement is not None
        note_settlement(known.span, run.settlement)
        known.end()

    def again(self, again: Again) -> Again:
        """Return the function that resumes runs, with a span for each takeover."""

        async def traced(record: RunRecord, log: Log) -> Source | None:
            self.begin(record)
            began = self._store.claimed.pop(record.id, None) if self._store is not None else None
            with span_of(self._tracer, "takeover", {"holdfast.run.epoch": record.epoch}, began=began) as span:
                source = await again(record, log)
                span.set_attribute("holdfast.takeover.continues", source is not None)
            return source

        return traced

    # calls

    async def answer(self, ask: AnswerChat, provider: str, request: ChatRequest, out: Outlet) -> None:
        """Call a provider within the span of an upstream call."""
        await answer_traced(self._tracer, ask, provider, request, out, content=self._content)

    def tool_call(self, name: str, call_id: str, arguments: str) -> AbstractContextManager[ToolSpan]:
        """Return the span of a tool call, which lasts as long as the block."""
        return tool_call_traced(self._tracer, name, call_id, arguments, content=self._content)

    async def close(self) -> None:
        """Send the remaining spans, within a few seconds."""
        await send_the_rest(self._provider)


def _is_open(span: Span) -> bool:
    """Return whether there is a span that has not ended. For a span that is not sampled this is not known."""
    has_ended = isinstance(span, ReadableSpan) and span.end_time is not None
    return span.get_span_context().is_valid and not has_ended
