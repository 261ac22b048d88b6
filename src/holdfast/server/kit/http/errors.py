"""JSON responses, and errors as responses."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....access import Access, AccessRule, KeyScope
from ....asgi.client import CONNECTION, ClientConnection
from ....asgi.cursor import AT_ONCE
from ....asgi.event_stream import info_of
from ....attachments.kinds import PICTURES
from ....errors import HoldfastError, NotFound, ResumeGap, SessionBusy
from ....events import NOT_AGAIN, ErrorInfo
from ....ids import new_id
from ....json_pieces import in_pieces, is_long
from ....redaction import hide_link
from ....store import StoredFile
from ....wires import native
from ....wires.anthropic import messages as anthropic_messages
from ....wires.ollama import ollama_refusal

logger = logging.getLogger(__name__)
RETRIED = (408, 429)
"""The only statuses below 500 after which the same request may succeed."""


PRIVATE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every API response: not cached, not sniffed, not framed by other sites."""
_FILE_HEADERS = {
    **PRIVATE,
    "cache-control": "private, max-age=31536000, immutable",
    "content-security-policy": "default-src 'none'; sandbox",
    "vary": "authorization",
}
"""Headers of a file of a session: private, immutable, and never interpreted as a page."""
_PRIVATE = [(name.encode(), value.encode()) for name, value in PRIVATE.items()]


def file_response(file: StoredFile, headers: Mapping[str, str] | None = None) -> Response:
    """Return a file of a session. A browser shows only pictures, and saves all others."""
    saved = {} if file.type in PICTURES else {"content-disposition": "attachment"}
    return Response(file.data, headers={**_FILE_HEADERS, **saved, **(headers or {}), "content-type": file.type})


class NoContent(Response):
    """A response without a body."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status_code=204, headers={**PRIVATE, **(headers or {})})


class Json(Response):
    """A JSON response."""

    media_type = "application/json"
    background = None

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Encode with msgspec. Names of headers are in lower case, and do not repeat those of every response."""
        self.status_code, self.body = status_code, msgspec.json.encode(content)
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self.raw_headers += (b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")
        self.raw_headers += _PRIVATE

    def pieces(self) -> Iterator[bytes]:
        """Yield the body."""
        yield bytes(self.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, in one write if the server is ours."""
        connection: ClientConnection | None = scope.get(CONNECTION)
        if connection is None or not connection.answer(send, self.status_code, self.raw_headers, bytes(self.body)):
            await super().__call__(scope, receive, send)


class LongJson:
    """A JSON response that is encoded while it is sent, piece by piece: other requests are served in between."""

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code = status_code
        self._content = content
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self.raw_headers += (b"content-type", b"application/json"), *_PRIVATE

    def pieces(self) -> Iterator[bytes]:
        """Yield the body."""
        return in_pieces(self._content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self.pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def json_of(
    content: Any, text: str | None = None, *, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Json | LongJson:
    """Return a JSON response, sent in pieces if it is long. `text` is the only long text in it, if that is known."""
    kind = LongJson if (is_long(content) if text is None else len(text) > AT_ONCE) else Json
    return kind(content, status_code=status_code, headers=headers)


OLLAMA_HAS_IT = (
    *("/api/blobs", "/api/copy", "/api/create", "/api/delete"),
    *("/api/embed", "/api/embeddings", "/api/pull", "/api/push"),
)
"""Paths of Ollama's API that this server does not have, and those that it passes on, whose errors come late."""


def is_of_ollama(path: str) -> bool:
    """Return whether a missing path is one of Ollama's API."""
    return path.startswith(OLLAMA_HAS_IT)


def in_words_of(path: str, info: ErrorInfo, *, by_anthropic: bool = False) -> dict[str, Any]:
    """Return the additional fields of an error in the dialect of a path, or of Anthropic's clients on any path."""
    if path == "/v1/messages" or path.startswith("/v1/messages/") or (by_anthropic and path.startswith("/v1/")):
        return anthropic_messages.anthropic_error(info)
    if is_of_ollama(path):
        return ollama_refusal(info)
    return {}


def error_answer(
    info: ErrorInfo, *, extra: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> Json:
    """Return an error as a response, with headers that say whether to retry.

    An invalid request would be refused again, and a model may have worked on one that failed: a header makes SDKs not
    retry either.
    """
    sent = {"x-request-id": new_id("req")}
    if info.type == NOT_AGAIN or (400 <= info.status < 500 and info.status not in RETRIED):
        sent["x-should-retry"] = "false"
    sent |= headers or {}
    sent |= retry_headers(info)
    return Json({"error": native.error(info), **(extra or {})}, status_code=info.status, headers=sent)


def retry_headers(info: ErrorInfo) -> dict[str, str]:
    """Return the `Retry-After` header, if the time is known."""
    return {} if info.retry_after is None else {"retry-after": str(max(0, math.ceil(info.retry_after)))}


class PathNotFound(NotFound):
    """There is no such path. `hint` suggests an existing one."""

    def __init__(self, method: str, path: str, hint: str) -> None:
        super().__init__(f"{method} {path}: Not Found. {hint}")


class MethodNotAllowed(HoldfastError):
    """A path does not have a method. `allowed` are those that it has."""

    code = "method_not_allowed"
    status = 405
    type = "invalid_request_error"

    def __init__(self, method: str, path: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{method} {path}: Method Not Allowed. It takes {', '.join(allowed)}.")
        self.allowed = allowed


class NotAllowed(HoldfastError):
    """The caller is known, and may not call the endpoint."""

    code = "not_allowed"
    status = 403
    type = "permission_error"


class AdminOnly(NotAllowed):
    """The request needs admin rights."""

    code = "admin_only"
    message = "This needs admin rights: sign in as an admin, or use a key with admin rights."


class SignInNeeded(NotAllowed):
    """The request is for a person, and came with a key."""

    code = "sign_in_needed"
    message = "Only a person who is signed in can do this: a key cannot."


class GuestsOnlyRead(NotAllowed):
    """A guest has tried to do more than to read."""

    code = "guests_only_read"
    message = "Guests can only read what is shared with them. An admin can make you a member."


class ScopeMissing(NotAllowed):
    """The key lacks a scope."""

    code = "scope_missing"

    def __init__(self, scope: KeyScope) -> None:
        super().__init__(f"This key lacks the scope {scope!r}. Create a key that has it.")


class FactorRequired(NotAllowed):
    """The server requires a second factor, and the person has none yet."""

    code = "second_factor_required"
    message = "This server requires a second factor. Set it up in your account first."


class SignInAgain(NotAllowed):
    """The person has to prove again who it is: a stolen cookie must not be enough."""

    code = "sign_in_again"
    message = "You signed in some time ago. Enter your password or use a passkey, or sign in again, and repeat this."


def not_allowed(rule: AccessRule, access: Access) -> NotAllowed:
    """Return why a rule does not admit a caller: the sign-in, the role or the scope that is missing."""
    if access.lacks_factor:
        return FactorRequired()
    if rule.person and access.via != "sign_in":
        return SignInNeeded()
    if rule.role == "admin":
        return AdminOnly()
    if rule.scope is None or rule.scope in access.scopes:
        return GuestsOnlyRead()
    return ScopeMissing(rule.scope)


def error_response(request: Request, error: Exception) -> Json:
    """Return the response to an exception of a handler. The details of an internal error are in the log only."""
    path, request_id = request.url.path, new_id("req")
    if not isinstance(error, HoldfastError):
        logger.error("%s %s failed", request.method, hide_link(path), exc_info=error, extra={"request": request_id})
    info = info_of(error)
    extra: dict[str, Any] = {}
    headers = {"x-request-id": request_id}
    if isinstance(error, SessionBusy):
        extra = {"active_run": error.run_id}
    elif isinstance(error, ResumeGap):
        extra = {"oldest": error.oldest}
    elif isinstance(error, MethodNotAllowed):
        headers["allow"] = ", ".join(error.allowed)
    fields = in_words_of(path, info, by_anthropic="anthropic-version" in request.headers)
    return error_answer(info, extra=extra | fields, headers=headers)
