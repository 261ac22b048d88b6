"""The spans of requests. A caller's trace is continued."""

from __future__ import annotations

from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import extract, get_global_textmap
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from .....asgi.client import HEADERS
from .....asgi.event_stream import info_of
from .....redaction import hide_link
from .....task_context.tracing import TRACER
from .....task_context.tracing import Tracer as TaskTracer
from . import TracedHandler
from .attributes import Attributes, fail

SPAN = "holdfast.span"
"""The key of the scope with the span of the request."""
SERVER_ERROR = 500
"""The first status that is an error of the server, and so of its span."""


class RequestSpan:
    """The span of one request, and of all work of its task until it ends."""

    def __init__(
        self, tracer: Tracer, task_tracer: TaskTracer, name: str, context: Context, attributes: Attributes
    ) -> None:
        self._span: Span = tracer.start_span(name, context, SpanKind.SERVER, attributes)
        self._token = attach(set_span_in_context(self._span, context))
        self._reset = TRACER.set(task_tracer)

    def answered(self, status: int, code: str = "") -> None:
        """Record the status of the response, and the code if it is an error."""
        self._span.set_attribute("http.response.status_code", status)
        if status >= SERVER_ERROR:
            fail(self._span, code or str(status))

    def end(self) -> None:
        """End it, in the task that began it."""
        TRACER.reset(self._reset)
        detach(self._token)
        self._span.end()


def requests_ended(app: ASGIApp) -> ASGIApp:
    """Return an application that ends the span of a request when its response is over.

    Until then it is the span of all log entries of the request, including errors and the access log.
    """

    async def ended(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            span: RequestSpan | None = scope.pop(SPAN, None)
            if span is not None:
                span.end()

    return ended


def handler_traced(
    tracer: Tracer, task_tracer: TaskTracer, method: str, path: str, handler: TracedHandler
) -> TracedHandler:
    """Return the handler of an endpoint, which begins a span for each request."""
    name = f"{method} {path}"

    async def traced(request: Request) -> ASGIApp:
        context = _incoming(request.scope[HEADERS])
        span = RequestSpan(tracer, task_tracer, name, context, _attributes(method, path, request))
        request.scope[SPAN] = span
        try:
            response = await handler(request)
        except Exception as error:
            info = info_of(error)
            span.answered(info.status, info.code)
            raise
        span.answered(getattr(response, "status_code", 200))
        return response

    return traced


def _attributes(method: str, path: str, request: Request) -> Attributes:
    """Return the attributes of a request, without its query, its headers, and the token of a link."""
    scope = request.scope
    return {
        "http.request.method": method,
        "http.route": path,
        "url.path": hide_link(scope["path"]),
        "url.scheme": scope["scheme"],
    }


def _incoming(headers: dict[bytes, bytes]) -> Context:
    """Return the context of the caller, from the propagation headers only."""
    names = get_global_textmap().fields
    carrier = {name: value.decode("latin-1") for name in names if (value := headers.get(name.encode())) is not None}
    return extract(carrier, Context())
