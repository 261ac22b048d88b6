"""The router: from a request to its endpoint."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn, Protocol

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ...access import ACCESS, RULE, Access
from ...errors import BadRequest
from .added_headers import EXTRA_HEADERS, sending
from .feature import Endpoint
from .http.compression import SMALLEST, Coding, Compressed, coding_for
from .http.errors import (
    Json,
    LongJson,
    MethodNotAllowed,
    NotAllowed,
    PathNotFound,
    SignInAgain,
    error_response,
    is_of_ollama,
    not_allowed,
)
from .http.offload import Offload


class _Node:
    """A node in the tree of paths: the next segment by its name, or any segment as a parameter."""

    __slots__ = ("any", "endpoint", "named", "rest")

    def __init__(self) -> None:
        self.named: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.rest: Endpoint | None = None
        """A parameter `{name:path}`, which matches all remaining segments."""
        self.endpoint: Endpoint | None = None


class _Tree:
    """The endpoints of one method."""

    def __init__(self) -> None:
        self.whole: dict[str, Endpoint] = {}
        """Endpoints of paths without a parameter."""
        self._root = _Node()
        self._names: dict[Endpoint, list[str]] = {}

    def add(self, endpoint: Endpoint) -> None:
        segments = endpoint.path.split("/")
        parameters = [segment.strip("{}").partition(":")[0] for segment in segments if segment.startswith("{")]
        if not parameters:
            self.whole[endpoint.path] = endpoint
            return
        self._names[endpoint] = parameters
        node = self._root
        for segment in segments:
            if segment.endswith(":path}"):
                node.rest = endpoint
                return
            if segment.startswith("{"):
                node.any = node = node.any or _Node()
            else:
                node = node.named.setdefault(segment, _Node())
        node.endpoint = endpoint

    def find(self, path: str) -> tuple[Endpoint, dict[str, str]] | None:
        """Return the endpoint of a path that has parameters, and the parameters."""
        node, values = self._root, []
        segments = path.split("/")
        for index, segment in enumerate(segments):
            if node.rest is not None:
                values.append("/".join(segments[index:]))
                return node.rest, dict(zip(self._names[node.rest], values, strict=True))
            if (next_node := node.named.get(segment)) is None:
                if (next_node := node.any) is None or not segment:
                    return None
                values.append(segment)
            node = next_node
        found = node.endpoint
        return None if found is None else (found, dict(zip(self._names[found], values, strict=True)))


_OF_THE_API = ("/api/", "/openapi.json")
_ALL = "GET /openapi.json lists what there is."
_OF_OLLAMA = (
    "Of Ollama's API there are /api/chat, /api/generate, /api/tags, /api/show, /api/ps and /api/version. Embeddings "
    "are at /v1/embeddings, and models are set up in the settings."
)


class AuditNotes(Protocol):
    """The audit log, for calls and for refused ones."""

    async def noted(self, request: Request, action: str, work: Callable[[], Awaitable[ASGIApp]]) -> ASGIApp: ...
    async def refused(self, request: Request, action: str, code: str) -> None: ...


class CallChecks(NamedTuple):
    """What the router asks others before it calls a handler."""

    audit: AuditNotes
    is_fresh: Callable[[Access], Awaitable[bool]]
    """Returns whether a caller has signed in, or proved who it is, a short time ago."""
    require_room: Callable[[Access], Awaitable[None]]
    """Raises if a caller has stored as much as it may."""
    limits_bytes: bool
    """Whether the settings limit what each caller may store."""


class Router:
    """Finds the handler of a request, calls it, and responds to what it raises. `other` serves what is not HTTP.

    The gate before it has removed the prefix of a mounted application from the path.
    """

    def __init__(self, endpoints: Sequence[Endpoint], checks: CallChecks, other: ASGIApp) -> None:
        self.endpoints = endpoints
        self._checks = checks
        self._other = other
        self._compression = Offload()
        self._trees: dict[str, _Tree] = {}
        for endpoint in endpoints:
            self._trees.setdefault(endpoint.method, _Tree()).add(endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            endpoint = self._find(scope)
            if endpoint.who.name not in scope[ACCESS].rules:
                await self._refuse(endpoint, request, not_allowed(endpoint.who, scope[ACCESS]))
            if endpoint.who.fresh and not await self._checks.is_fresh(scope[ACCESS]):
                await self._refuse(endpoint, request, SignInAgain())
            scope[RULE] = endpoint.who
            if endpoint.stores and (scope[ACCESS].budgets or self._checks.limits_bytes):
                await self._checks.require_room(scope[ACCESS])
            if endpoint.audit:
                response = await self._audited(endpoint, request)
            else:
                if scope["query_string"] and endpoint.is_own:
                    _check_query(endpoint, request)
                response = await endpoint.handler(request)
            if scope["path"].startswith(_OF_THE_API) and isinstance(response, Json | LongJson):
                coding = _coding(response, request)
                response = response if coding is None else Compressed(response, coding, self._compression)
            await response(scope, receive, sending(scope, send) if EXTRA_HEADERS in scope else send)
        except Exception as error:  # noqa: BLE001 - if the response has begun, the server cuts the connection
            await error_response(request, error)(scope, receive, sending(scope, send))

    def close(self) -> None:
        """End the threads that compress."""
        self._compression.close()

    async def _audited(self, endpoint: Endpoint, request: Request) -> ASGIApp:
        async def answer() -> ASGIApp:
            if request.scope["query_string"] and endpoint.is_own:
                _check_query(endpoint, request)
            return await endpoint.handler(request)

        return await self._checks.audit.noted(request, endpoint.audit, answer)

    async def _refuse(self, endpoint: Endpoint, request: Request, refusal: NotAllowed) -> NoReturn:
        if endpoint.audit:
            await self._checks.audit.refused(request, endpoint.audit, refusal.code)
        raise refusal

    def _find(self, scope: Scope) -> Endpoint:
        """Return the endpoint of a request, and set the parameters of its path."""
        path = scope["path"]
        if (tree := self._trees.get(scope["method"])) is not None:
            if (endpoint := tree.whole.get(path)) is not None:
                return endpoint
            if (found := tree.find(path)) is not None:
                endpoint, scope["path_params"] = found
                return endpoint
        others = [endpoint for endpoint in self._endpoints_at(path) if not _takes_word_for_id(endpoint, path)]
        if others:
            raise MethodNotAllowed(scope["method"], scope["path"], sorted(endpoint.method for endpoint in others))
        raise PathNotFound(scope["method"], scope["path"], self._hint(path))

    def _hint(self, path: str) -> str:
        """Return a hint for a wrong path: one that differs by /v1 or a slash, or else the known ones."""
        plain = re.sub(r"/+", "/", path).rstrip("/")
        for meant in (plain, f"/v1{plain}", plain.removeprefix("/v1")):
            if meant != path and any(self._endpoints_at(meant)):
                return f"The path is {meant}."
        if is_of_ollama(path):
            return _OF_OLLAMA
        calls = {each.path for each in self.endpoints if each.path.startswith("/v1/") and each.method == "POST"}
        there = sorted(call for call in calls if "{" not in call)
        return f"There are {', '.join(there)}; GET /openapi.json lists all." if path.startswith("/v1") else _ALL

    def _endpoints_at(self, path: str) -> Iterator[Endpoint]:
        """Yield the endpoints of a path, one for each method."""
        for tree in self._trees.values():
            if (endpoint := tree.whole.get(path)) is not None:
                yield endpoint
            elif (found := tree.find(path)) is not None:
                yield found[0]


def _check_query(endpoint: Endpoint, request: Request) -> None:
    """Refuse a parameter that the endpoint does not have: an ignored filter would return everything."""
    if unknown := sorted(request.query_params.keys() - endpoint.query.keys()):
        known = ", ".join(sorted(endpoint.query)) or "none"
        raise BadRequest(
            f"Unknown query parameter {unknown[0][:64]!r}. {endpoint.method} {endpoint.path} has: {known}.",
            param=unknown[0][:64],
        )


def _takes_word_for_id(endpoint: Endpoint, path: str) -> bool:
    """Return whether an endpoint matches only because it takes a word for an id: /v1/messages/batches, for example."""
    is_word = path.rpartition("/")[2].isalpha() and path.startswith("/v1/") and "/models/" not in path
    return is_word and endpoint.path.endswith("}")


def _coding(response: Json | LongJson, request: Request) -> Coding | None:
    """Return how a response of our API is compressed: None if it is short, or for a client without codings."""
    if isinstance(response, Json) and len(response.body) < SMALLEST:
        return None
    return coding_for(request.headers.get("accept-encoding", ""))
