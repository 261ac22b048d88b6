"""Who is asking, and from where: keys, and the checks against pages that call a local server behind its user's back."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..events import ErrorInfo
from .errors import answer, in_words_of
from .keys import LOCAL, Keys
from .settings import Settings, SettingsError
from .web import is_of_the_page

OWNER = "holdfast.owner"
ADMIN = "holdfast.admin"
HEADERS = "holdfast.headers"
"""Where a request's headers are by their names; of several alike the first counts."""
OPEN_PATHS = frozenset({"/health", "/ready"})
ALLOWED_HEADERS = (
    "authorization",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "x-session-id",
    "x-api-key",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
)
"""What an allowed page elsewhere may send."""


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Tell whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(settings: Settings, keys: Keys) -> None:
    """Refuse to be reached from elsewhere without a key."""
    if not is_loopback(settings.host) and not keys:
        raise SettingsError(
            f"Listening on {settings.host} would let anyone who can reach it use your models. "
            "Make a key with `holdfast key new NAME` (or set HOLDFAST_API_KEY), or listen on 127.0.0.1."
        )


class Gate:
    """Lets a request in, or answers it: Host and Origin first, then the key.

    A page on any site can make a browser call 127.0.0.1; a name that an attacker owns can point there too. So the
    Host must be one of ours, and a request that comes from a page must come from one of ours.
    """

    def __init__(self, app: ASGIApp, settings: Settings, keys: Keys) -> None:
        self._app = app
        self._keys = keys
        self._local = is_loopback(settings.host)
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        scope[HEADERS] = headers
        origin = headers.get(b"origin", b"").decode("latin-1")
        refusal = self._refuse(scope, headers, origin)
        app: ASGIApp = self._app if refusal is None else answer(refusal, extra=in_words_of(scope["path"], refusal))
        if self._is_foreign_but_allowed(origin):
            app = _preflight if refusal is None and scope["method"] == "OPTIONS" else app
            await _share(app, scope, receive, send, origin)
        else:
            await app(scope, receive, send)

    def _refuse(self, scope: Scope, headers: dict[bytes, bytes], origin: str) -> ErrorInfo | None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_our_host(host):
            return _refusal("host_not_allowed", f"The Host {host!r} is not a name of this server. Set allowed_hosts.")
        if origin and not self._is_our_origin(origin, host):
            return _refusal("origin_not_allowed", f"Pages from {origin} may not call this server. Set allowed_origins.")
        if not origin and headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and scope["method"] != "GET":
            return _refusal("origin_not_allowed", "Pages from elsewhere may not call this server.")
        return self._identify(scope, headers)

    def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> ErrorInfo | None:
        has_keys = bool(self._keys)
        scope[OWNER] = LOCAL
        scope[ADMIN] = not has_keys
        if not has_keys or self._is_open(scope):
            return None
        owner = self._owner(headers)
        if owner is None:
            message = "This server needs a key: send it as Authorization: Bearer <key>, or as x-api-key: <key>."
            return ErrorInfo("unauthorized", message, "authentication_error", status=401)
        scope[OWNER] = owner
        scope[ADMIN] = self._keys.is_admin(owner)
        return None

    def _owner(self, headers: dict[bytes, bytes]) -> str | None:
        """Return whose key it is. Anthropic's clients send theirs in a header of its own."""
        owner = self._keys.owner(headers.get(b"authorization", b"").decode("latin-1"))
        if owner is None and (key := headers.get(b"x-api-key")):
            return self._keys.owner(f"Bearer {key.decode('latin-1')}")
        return owner

    def _is_open(self, scope: Scope) -> bool:
        """Tell whether anyone may ask: only what is known to be open is, whatever else comes to be routed."""
        return scope["path"] in OPEN_PATHS or is_of_the_page(scope["path"]) or scope["method"] == "OPTIONS"

    def _is_our_host(self, host: str) -> bool:
        name = _hostname(host)
        if host in self._hosts or name in self._hosts:
            return True
        # Behind a key any name will do: a page elsewhere does not know the key.
        return is_loopback(name) or (bool(self._keys) and not self._local and bool(name))

    def _is_our_origin(self, origin: str, host: str) -> bool:
        lowered = origin.lower().rstrip("/")
        return lowered in self._origins or lowered.partition("://")[2] == host

    def _is_foreign_but_allowed(self, origin: str) -> bool:
        return bool(origin) and origin.lower().rstrip("/") in self._origins


async def _share(app: ASGIApp, scope: Scope, receive: Receive, send: Send, origin: str) -> None:
    """Let an allowed page elsewhere read the answer: event streams and refusals too."""
    allowed = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"x-run-id, x-request-id, location, retry-after"),
        (b"vary", b"origin"),
    ]

    async def sharing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *allowed]
        await send(message)

    await app(scope, receive, sharing)


async def _preflight(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell a browser what an allowed page may send."""
    headers = [
        (b"access-control-allow-methods", b"GET, POST, PATCH, PUT, DELETE"),
        (b"access-control-allow-headers", ", ".join(ALLOWED_HEADERS).encode()),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


@lru_cache(256)
def _hostname(host: str) -> str:
    """Return a Host header without its port; nothing where it is no such header."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if not set(host) & set("/?#@\\ ") else ""
    except ValueError:
        return ""


def _refusal(code: str, message: str) -> ErrorInfo:
    return ErrorInfo(code, message, "permission_error", status=403)
