"""Features: what the server is built of. A feature has endpoints, which are methods, and chores in the background."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import RULES, AccessRule
from .chores import Chores

Handler = Callable[[Request], Awaitable[ASGIApp]]
Handling = Callable[[Any, Request], Awaitable[ASGIApp]]
"""A method that handles requests."""
Method = TypeVar("Method", bound=Handling)
_ENDPOINTS = "endpoints"


class Endpoint:
    """One call of the HTTP surface: its path, its body, its handler. Also a line of the OpenAPI description.

    It is written above the method of a feature that handles the calls.
    """

    handler: Handler

    def __init__(
        self,
        method: str,
        path: str,
        *,
        who: AccessRule,
        takes: type[msgspec.Struct] | None = None,
        query: dict[str, str] | None = None,
        answers: dict[int, str] | None = None,
        streams: bool = False,
        lists: bool = False,
        files: bool = False,
        ollama: bool = False,
        audit: str | None = "",
        stores: bool = True,
    ) -> None:
        if who not in RULES:
            raise ValueError(f"{method} {path} has the rule {who.name!r}, which is none of access.RULES.")
        self.method = method
        self.path = path
        self.takes = takes
        self.query = query or {}
        self.answers = answers or {}
        """Responses that nothing else tells: the body, the path, the rule and the docstring tell the others."""
        self.streams = streams
        self.lists = lists
        self.who = who
        self.files = files
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

    def __call__(self, method: Method) -> Method:
        """Mark the method that handles the calls."""
        vars(method).setdefault(_ENDPOINTS, []).insert(0, self)
        return method

    @property
    def must_be_audited(self) -> bool:
        """Whether the rule alone puts calls into the audit log."""
        return self.who.role == "admin" or (self.who.person and self.method != "GET")

    @property
    def is_own(self) -> bool:
        """Whether the call is of our own API. Clients of other vendors' APIs add parameters of theirs."""
        return self.path.startswith("/api/") and not self.path.startswith(_OF_OTHERS)

    def with_handler(self, handler: Handler) -> Endpoint:
        """Return the same endpoint with a handler."""
        changed = copy(self)
        changed.handler = handler
        return changed


_OF_OTHERS = (
    *("/api/chat", "/api/generate", "/api/tags", "/api/show", "/api/ps", "/api/version"),  # Ollama's, and the AI SDK's
    "/api/oidc/",  # an identity provider sends what it likes
)


class Feature:
    """A part of the server: its calls over HTTP, its chores, its start and its end.

    It is constructed with the services that it needs, and may consist of others, which are in `inner`: the server
    starts and ends these too.
    """

    inner: Sequence[Feature] = ()

    def all(self) -> Iterator[Feature]:
        """Yield the feature, and all that it consists of."""
        yield self
        for feature in self.inner:
            yield from feature.all()

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints of this feature alone, each with its method as the handler."""
        methods = vars(type(self)).items()
        return [each.with_handler(getattr(self, name)) for name, method in methods for each in _marked(method)]

    async def start(self) -> None:
        """Prepare the feature, before the engine starts."""

    def begin(self, chores: Chores) -> None:
        """Begin the chores, after the engine has started."""

    async def close(self) -> None:
        """End what the feature has opened, after the engine has ended."""


def _marked(method: Any) -> list[Endpoint]:
    return getattr(method, _ENDPOINTS, [])


def endpoints_of(features: Iterable[Feature]) -> list[Endpoint]:
    """Return the endpoints of features, and of all that these consist of."""
    return [endpoint for feature in features for each in feature.all() for endpoint in each.endpoints()]
