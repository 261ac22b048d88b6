"""A collector of OpenTelemetry: takes traces by OTLP over HTTP, and lets a test wait for spans."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan

from tests.support.waiting import LONG


class Span(NamedTuple):
    """A span as the collector has received it."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    attributes: dict[str, Any]
    is_error: bool
    events: list[str]
    began: int
    ended: int
    resource: dict[str, Any]


class Collector:
    """Listens on a port of its own. `with` starts and ends it."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []
        """Requests as they were sent, to look for what must not be in them."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a server sends its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def __enter__(self) -> "Collector":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    async def span(self, name: str, **attributes: Any) -> Span:
        """Wait for a span with a name and attributes; dots in names of attributes are written as `__`."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        async with asyncio.timeout(LONG):
            while True:
                for span in tuple(self.spans):
                    if span.name == name and wanted.items() <= span.attributes.items():
                        return span
                await asyncio.sleep(0.02)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces", self.path
                collector.bodies.append(body)
                collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        return Handler


def _spans(sent: ExportTraceServiceRequest) -> list[Span]:
    return [
        _span(span, _values(group.resource.attributes))
        for group in sent.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _span(span: SentSpan, resource: dict[str, Any]) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        SentSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        _values(span.attributes),
        span.status.code == 2,
        [event.name for event in span.events],
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return MessageToDict(value.array_value) if kind == "array_value" else getattr(value, kind)
