"""Errors as answers, in one shape."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from ..asgi import AT_ONCE, CONNECTION, Connection, info_of
from ..errors import HoldfastError, ResumeGap, SessionBusy
from ..events import ErrorInfo
from ..ids import new_id
from ..wire import anthropic_messages, native
from ..wire.pieces import in_pieces

logger = logging.getLogger("holdfast")
CODES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


class Json(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode with msgspec."""
        return msgspec.json.encode(content)

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Say what follows. Whoever makes an answer names headers in lower case, and not these."""
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self.raw_headers += (b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, in one step where the server is our own."""
        connection: Connection | None = scope.get(CONNECTION)
        if connection is None or not connection.answer(send, self.status_code, self.raw_headers, bytes(self.body)):
            await super().__call__(scope, receive, send)


class LongJson(Response):
    """A JSON answer that is made while it is sent, piece by piece: others have their turn in between."""

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code = status_code
        self.background = None
        self._content = content
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self.raw_headers.append((b"content-type", b"application/json"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in in_pieces(self._content):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def json_of(
    content: Any, said: str, *, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Json | LongJson:
    """Return an answer that repeats what a run has said, in pieces where that is long."""
    kind = Json if len(said) <= AT_ONCE else LongJson
    return kind(content, status_code=status_code, headers=headers)


def in_words_of(path: str, info: ErrorInfo) -> dict[str, Any]:
    """Return what an error says besides, in the words of the dialect that is spoken at a path."""
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return anthropic_messages.error(info)
    return {}


def answer(info: ErrorInfo, *, extra: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> Json:
    """Return an error as an answer, with what a client needs to decide whether to try again."""
    sent = {"x-request-id": new_id("req"), **(headers or {})}
    if info.retry_after is not None:
        sent["retry-after"] = str(max(0, math.ceil(info.retry_after)))
    return Json({"error": native.error(info), **(extra or {})}, status_code=info.status, headers=sent)


async def on_holdfast_error(request: Request, error: Exception) -> Response:
    """Answer with an error that was raised on purpose."""
    assert isinstance(error, HoldfastError)
    extra: dict[str, Any] = {}
    headers: dict[str, str] = {}
    if isinstance(error, SessionBusy):
        extra = {"active_run": error.run_id}
    if isinstance(error, ResumeGap):
        extra = {"oldest": error.oldest}
    if error.status == 409:  # the SDKs would try again, and meet the same conflict
        headers = {"x-should-retry": "false"}
    info = error.info()
    return answer(info, extra=extra | in_words_of(request.url.path, info), headers=headers)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer for the router: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "invalid_request")
    message = f"{request.method} {request.url.path}: {error.detail}."
    info = ErrorInfo(code, message, "invalid_request_error", status=error.status_code)
    headers = {"allow": _methods_of(request)} if error.status_code == 405 else dict(error.headers or {})
    return answer(info, extra=in_words_of(request.url.path, info), headers=headers)


def _methods_of(request: Request) -> str:
    """Return what a path can be asked for: each method has a route of its own, and the router names only the first."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in routes for method in route.methods}))


async def on_any_error(request: Request, error: Exception) -> Response:
    """Answer for a bug of ours: the log has the details, the answer has none."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    info = info_of(error)
    return answer(info, extra=in_words_of(request.url.path, info))
