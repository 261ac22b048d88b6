"""Endpoints, and the router."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import copy
from typing import NoReturn, TypeGuard

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ..access import ACCESS, RULE, RULES, AccessRule
from ..errors import BadRequest
from .budgets.added_headers import sending
from .errors import (
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
from .http.compression import SMALLEST, Coding, Compressed, coding_for
from .services import Parts

Handler = Callable[[Parts, Request], Awaitable[ASGIApp]]


class Endpoint:
    """One call of the HTTP surface: its path, its body, its handler. Also a line of the OpenAPI description."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        who: AccessRule,
        takes: type[msgspec.Struct] | None = None,
        query: dict[str, str] | None = None,
        answers: dict[int, str] | None = None,
        streams: bool = False,
        lists: bool = False,
        pictures: bool = False,
        ollama: bool = False,
        audit: str | None = "",
        stores: bool = True,
    ) -> None:
        if who not in RULES:
            raise ValueError(f"{method} {path} has the rule {who.name!r}, which is none of access.RULES.")
        self.method = method
        self.path = path
        self.handler = handler
        self.takes = takes
        self.query = query or {}
        self.answers = answers or {200: "done"}
        self.streams = streams
        self.lists = lists
        self.who = who
        self.pictures = pictures
        self.stores = stores and method in ("POST", "PUT", "PATCH") and who.scope in ("chat", "batch")
        """Whether calls store something, so that they need room in the caller's `bytes_stored`: all that change
        something with the scopes `chat` and `batch`, but those that say otherwise."""
        self.ollama = ollama
        """True if the endpoint also answers in the format of Ollama's API: lines of JSON, and errors as text."""
        self.audit = f"{method} {path}" if audit == "" and self.must_be_audited else audit or ""
        """The action in the audit log, such as `key.revoke`; empty if calls are not written there.

        What admins do, and what people change of their accounts, is always written there: without a name, under the
        method and the path. None leaves it out, which needs a reason.
        """

    @property
    def must_be_audited(self) -> bool:
        """Whether the rule alone puts calls into the audit log."""
        return self.who.role == "admin" or (self.who.person and self.method != "GET")

    @property
    def is_own(self) -> bool:
        """Whether the call is of our own API. Clients of other vendors' APIs add parameters of theirs."""
        return self.path.startswith("/api/") and not self.path.startswith(_OF_OTHERS)

    def with_handler(self, handler: Handler) -> Endpoint:
        """Return the same endpoint with another handler."""
        changed = copy(self)
        changed.handler = handler
        return changed


_OF_OTHERS = (
    *("/api/chat", "/api/generate", "/api/tags", "/api/show", "/api/ps", "/api/version"),  # Ollama's, and the AI SDK's
    "/api/oidc/",  # an identity provider sends what it likes
)


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


_ALL = "GET /openapi.json lists what there is."
_OF_OLLAMA = (
    "Of Ollama's API there are /api/chat, /api/generate, /api/tags, /api/show, /api/ps and /api/version. Embeddings "
    "are at /v1/embeddings, and models are set up in the settings."
)


class Router:
    """Finds the handler of a request, calls it, and responds to what it raises. `other` serves what is not HTTP.

    The gate before it has removed the prefix of a mounted application from the path.
    """

    def __init__(self, parts: Parts, endpoints: Sequence[Endpoint], other: ASGIApp) -> None:
        self.endpoints = endpoints
        self._parts = parts
        self._other = other
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
            if endpoint.who.fresh and not await self._parts.people.callers.is_fresh(scope[ACCESS]):
                await self._refuse(endpoint, request, SignInAgain())
            scope[RULE] = endpoint.who
            if endpoint.stores and (scope[ACCESS].budgets or self._parts.settings.budget.bytes_stored is not None):
                await self._parts.budgets.require_room(scope[ACCESS])
            if endpoint.audit:
                response = await self._audited(endpoint, request)
            else:
                response = await self._answer(endpoint, request)
            if _is_worth_compressing(response) and (coding := _coding(scope, request)) is not None:
                response = Compressed(response, coding, self._parts.compression)
            await response(scope, receive, sending(scope, send))
        except Exception as error:  # noqa: BLE001 - if the response has begun, the server cuts the connection
            await error_response(request, error)(scope, receive, sending(scope, send))

    async def _audited(self, endpoint: Endpoint, request: Request) -> ASGIApp:
        return await self._parts.audit.noted(request, endpoint.audit, lambda: self._answer(endpoint, request))

    def _answer(self, endpoint: Endpoint, request: Request) -> Awaitable[ASGIApp]:
        if request.scope["query_string"] and endpoint.is_own:
            _check_query(endpoint, request)
        return endpoint.handler(self._parts, request)

    async def _refuse(self, endpoint: Endpoint, request: Request, refusal: NotAllowed) -> NoReturn:
        if endpoint.audit:
            await self._parts.audit.refused(request, endpoint.audit, refusal.code)
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
        """Return a hint for a wrong path: the path with /v1, or without an extra slash, or else the known paths."""
        plain = re.sub(r"/+", "/", path).rstrip("/")
        for meant in (plain, f"/v1{plain}"):
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


def _is_worth_compressing(response: ASGIApp) -> TypeGuard[Json | LongJson]:
    return isinstance(response, LongJson) or (isinstance(response, Json) and len(response.body) >= SMALLEST)


def _coding(scope: Scope, request: Request) -> Coding | None:
    """Return how the response is compressed: None outside of our API, and for a client that accepts no coding."""
    is_of_the_api = scope["path"].startswith(("/api/", "/openapi.json"))
    return coding_for(request.headers.get("accept-encoding", "")) if is_of_the_api else None
