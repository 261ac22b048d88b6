"""Checks of each request: Host, Origin and API key. The first two stop web pages from calling a local server."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from ....access import ACCESS, Access
from ....asgi.client import HEADERS
from ....errors import HoldfastError
from ....events import ErrorInfo
from ...config.loopback import host_name, is_loopback
from ...config.settings import Settings, SettingsError
from ...kit.http.connections import OFFER
from ...kit.http.errors import error_answer, in_words_of
from ..audit.refused_keys import GateRefusal
from .keys import SHORTEST, Keys, KeysUnavailable, short_keys
from .people.callers import Callers
from .people.client_addresses import FORWARDED, TrustedProxies, UntrustedForwarding, place_of
from .people.people import People
from .people.sign_ins import token_in
from .proxy_people import ProxyPeople

logger = logging.getLogger(__name__)

WINDOW = 60.0
"""Length in seconds of the window in which the wrong keys of an address are counted."""
FREE = 10
"""Number of wrong keys of an address in that window that are answered without a delay."""
DELAY = 1.0
"""Delay of each further answer, in seconds."""
MOST_ADDRESSES = 1024
MOST_LINES = 60
"""Maximum number of log lines in that window, for all addresses."""


class WrongKeys:
    """Counts the wrong keys of each address. Costs a short list for each of at most a thousand addresses.

    Valid keys never wait, so that an attacker behind a proxy does not slow down its other users. The status stays 401:
    clients repeat a request after a 429.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lines: tuple[float, int] = (0.0, 0)

    async def seen(self, address: str) -> None:
        """Count a wrong key, and wait if its address has sent many."""
        if self._count(place_of(address)) > FREE:
            await asyncio.sleep(DELAY)

    def _count(self, place: str) -> int:
        now = time.monotonic()
        began, count = self._counts.pop(place, (now, 0))
        if now - began > WINDOW:
            began, count = now, 0
        self._counts[place] = began, count + 1
        if len(self._counts) > MOST_ADDRESSES:
            self._counts.popitem(last=False)
        self._log(place, count + 1, now)
        return count + 1

    def _log(self, place: str, count: int, now: float) -> None:
        """Log the first wrong key of an address, the tenth, the hundredth and so on."""
        if str(count).strip("0") != "1":
            return
        began, lines = self._lines
        if now - began > WINDOW:
            began, lines = now, 0
        self._lines = began, lines + 1
        if lines < MOST_LINES:
            slowed = f", answered after {DELAY:g} s each" if count > FREE else ""
            logger.warning("wrong keys from %s: %d within a minute%s", place, count, slowed)
        elif lines == MOST_LINES:
            logger.warning("wrong keys from more addresses than are logged in a minute")


logger = logging.getLogger(__name__)

PEER = "holdfast.peer"
"""The scope's entry for the address that the connection comes from, if proxies are trusted."""
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
"""Headers that an allowed page of another origin may send."""
AUTHORIZATION, API_KEY = b"authorization", b"x-api-key"
ONCE = (b"host", b"origin", AUTHORIZATION, API_KEY)
"""Headers that a request has at most once: a proxy may have checked another of them than we would."""
ANONYMOUS = Access("", role=None, scopes=frozenset())
"""The access of paths that need no key."""
SHARED = "/api/shared/"
_CALL_OF_TRIGGER = re.compile(r"/api/triggers/[^/]+/call(/|$)")
"""Calls with a secret or a signature of their own: whatever else they bring is not looked at."""
"""What is read with a link. Callers are recognised there, and no credential is needed."""
_HOW = "send it as Authorization: Bearer <key>, or as x-api-key: <key>."
NO_KEY = ErrorInfo("unauthorized", f"This server needs a key: {_HOW}", "authentication_error", status=401)
SIGNED_OUT = ErrorInfo("signed_out", "You are signed out. Sign in again.", "authentication_error", status=401)
"""The refusal of a browser whose sign-in has ended."""
NO_ORIGIN = ErrorInfo(
    "origin_not_allowed",
    "A sign-in counts only for the pages of this server, and this request does not say that it comes from one. "
    "Programs use a key.",
    "permission_error",
    status=403,
)
WRONG_KEY = ErrorInfo("unauthorized", f"This server needs another key: {_HOW}", "authentication_error", status=401)

NOT_LOCAL = ErrorInfo(
    "unauthorized",
    "This server has no keys, so it answers on a loopback address only. Create a key, and set `host` to the address.",
    "authentication_error",
    status=401,
)
"""The refusal of an app that another server serves: it learns its address from each request."""


def check_bind(settings: Settings, keys: Keys, environ: Mapping[str, str]) -> None:
    """Refuse to listen beyond loopback without a key, or with a key that can be guessed."""
    if is_loopback(settings.host):
        return
    if short := short_keys(settings, environ):
        raise SettingsError(
            f"Listening on {settings.host} needs keys that cannot be guessed, and that of {', '.join(short)} has fewer "
            f"than {SHORTEST} characters. `openssl rand -hex 32` makes a longer one; so does `holdfast key new NAME`."
        )
    if not keys.is_needed:
        raise SettingsError(
            f"Listening on {settings.host} without accounts or keys would let anyone use your models. "
            "Create an account (`holdfast user new NAME`) or a key (`holdfast key new NAME`), or listen on 127.0.0.1."
        )


_UNRECOGNISED = (NO_KEY, WRONG_KEY, SIGNED_OUT)

TO_BE_READ = ErrorInfo("unauthorized", "The rights of the key have to be read.", "authentication_error", status=401)
"""No refusal yet: the key is a person's, and the person's rights are not known."""


class WebSocketUnavailable(HoldfastError):
    """The app runs in another server, whose WebSockets lack our limits. At this status Codex goes on over HTTP."""

    code = "websocket_unavailable"
    status = 426
    type = "invalid_request_error"
    message = "This server has no WebSockets: they need `holdfast serve`. Use HTTP."


class Gate:
    """Passes a request on, or answers it with an error: Host and Origin are checked first, then the key.

    A page on any site can make a browser call 127.0.0.1; a name that an attacker owns can point there too. So the
    Host must be one of ours, and a request that comes from a page must come from one of ours.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        keys: Keys,
        open_paths: Iterable[str],
        on_refusal: Callable[[GateRefusal], None] | None = None,
        people: People | None = None,
        is_of_the_page: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`open_paths` are what anyone may ask for, besides the page. `on_refusal` is called with each refusal."""
        self._is_of_the_page = is_of_the_page
        self._app = app
        self._on_refusal = on_refusal
        self._open = frozenset(open_paths)
        self._keys = keys
        self._callers = None if people is None else people.callers
        self._proxy_people: ProxyPeople | None = None
        if people is not None and settings.proxy.user_header:
            self._proxy_people = ProxyPeople(people, settings.proxy)
            keys.need()  # nobody is the only user of this machine
        self._secure = settings.public_url.startswith("https://")
        self._proxies = TrustedProxies(settings.proxy.addresses)
        self._has_proxies = bool(self._proxies)
        self._forwarding = UntrustedForwarding()
        self._wrong_keys = WrongKeys()
        self._local = is_loopback(settings.host)
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Check one request. What is known at once needs no coroutine of its own."""
        if scope["type"] != "http":
            return (_decline if scope["type"] == "websocket" else self._app)(scope, receive, send)
        if scope.get("root_path"):
            scope = _own_paths(scope)
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        scope[HEADERS] = headers
        if self._has_proxies and scope.get("client"):
            scope[PEER], port = scope["client"]
            scope["client"] = self._proxies.client(scope[PEER], scope["headers"]), port
        if FORWARDED in headers and scope.get("client"):
            self._note_forwarding(scope)
        origin = headers.get(b"origin", b"").decode("latin-1")
        refusal = self._refuse(scope, headers, origin)
        if refusal is None and not origin:
            return self._app(scope, receive, send)
        return self._decide(refusal, origin, scope, receive, send)

    async def _decide(self, refusal: ErrorInfo | None, origin: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Look again at a request that would be refused, and answer it, or pass it on for a page."""
        headers = scope[HEADERS]
        if refusal is not None and refusal.code == KeysUnavailable.code:
            await self._keys.catch_up()
            refusal = self._identify(scope, headers)
        if refusal is WRONG_KEY and await self._keys.has_news():
            refusal = self._identify(scope, headers)
        if (refusal is NO_KEY and (b"cookie" in headers or self._is_named(headers))) or refusal is TO_BE_READ:
            refusal = await self._identify_person(scope, headers)
        if refusal is WRONG_KEY or refusal is SIGNED_OUT:
            await self._wrong_keys.seen((scope.get("client") or ("",))[0])
        if refusal in _UNRECOGNISED and scope["path"].startswith(SHARED):
            scope[ACCESS], refusal = ANONYMOUS, None  # the token in the path is what counts
        if refusal is not None and self._on_refusal is not None:
            self._on_refusal(self._refused(scope, headers, refusal))
        app: ASGIApp = self._app if refusal is None else _refused(scope, headers, refusal)
        if origin and origin.lower().rstrip("/") in self._origins:
            app = _preflight if refusal is None and scope["method"] == "OPTIONS" else app
            await _share(app, scope, receive, send, origin)
        else:
            await app(scope, receive, send)

    def _note_forwarding(self, scope: Scope) -> None:
        peer = scope.get(PEER) or scope["client"][0]
        if not self._proxies.trusts(peer):
            self._forwarding.seen(peer)

    def _refuse(self, scope: Scope, headers: dict[bytes, bytes], origin: str) -> ErrorInfo | None:
        if len(headers) < len(scope["headers"]) and (repeated := _repeated(scope["headers"])):
            message = f"The request has more than one {repeated} header."
            return ErrorInfo("invalid_http", message, "invalid_request_error", status=400)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_our_host(host):
            return _refusal("host_not_allowed", f"The Host {host!r} is not a name of this server. Set allowed_hosts.")
        if origin and not self._is_our_origin(origin, host) and not self._is_link(scope):
            return _refusal("origin_not_allowed", f"Pages from {origin} may not call this server. Set allowed_origins.")
        if b"sec-fetch-site" in headers and not origin and self._is_from_elsewhere(scope):
            return _refusal("origin_not_allowed", "Pages of other sites may not call this server.")
        if self._proxy_people is not None and (misuse := self._misuse_of_header(scope, headers)) is not None:
            return misuse
        if self._local and not self._keys.is_needed and not _is_local_server(scope):
            return NOT_LOCAL
        return self._identify(scope, headers)

    def _refused(self, scope: Scope, headers: dict[bytes, bytes], refusal: ErrorInfo) -> GateRefusal:
        """Return why a request is refused, in more detail than its caller learns."""
        address = place_of((scope.get("client") or ("",))[0])
        if refusal is not WRONG_KEY:
            return GateRefusal("no_key" if refusal is NO_KEY else refusal.code, address)
        if ACCESS in scope:
            return GateRefusal("key_of_disabled", address, scope[ACCESS].credential)
        reasons = [self._keys.why_not(key) for key in _keys_in(headers)] or [("wrong_key", "")]
        reason, key = max(reasons, key=lambda it: bool(it[1]))
        return GateRefusal(reason, address, key)

    def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> ErrorInfo | None:
        try:
            is_open = self._is_open(scope) or _CALL_OF_TRIGGER.match(scope["path"])
            access = ANONYMOUS if is_open else self._access(headers)
        except KeysUnavailable as error:
            return error.info()
        if access is None:
            if AUTHORIZATION in headers or API_KEY in headers:
                return WRONG_KEY
            return self._identify_known(scope, headers) if b"cookie" in headers else NO_KEY
        scope[ACCESS] = access
        return TO_BE_READ if access.role is None and access is not ANONYMOUS else None

    def _identify_known(self, scope: Scope, headers: dict[bytes, bytes]) -> ErrorInfo | None:
        """Recognise a person by a cookie whose rights are in memory: what nearly every request of a page needs."""
        callers = self._callers
        if callers is None or callers.is_stale or self._is_named(headers):
            return NO_KEY
        token = token_in(headers[b"cookie"], secure=self._is_secure(scope))
        access = None if token is None else callers.known(token, (scope.get("client") or ("",))[0])
        if access is None:
            return NO_KEY
        scope[ACCESS] = access
        return None if _is_from_our_page(scope, headers) else NO_ORIGIN

    async def _identify_person(self, scope: Scope, headers: dict[bytes, bytes]) -> ErrorInfo | None:
        """Recognise a person by the cookie, or read the rights of the person whose key it is."""
        callers = self._callers
        if callers is None:
            return NO_KEY
        try:
            if callers.is_stale:
                await callers.catch_up()
            if ACCESS in scope:
                return None if await callers.load(scope[ACCESS]) else WRONG_KEY
            if self._proxy_people is not None and self._is_named(headers):
                access: Access | None = await self._proxy_people.access_of(headers)
            else:
                access = await self._access_of_cookie(callers, scope, headers)
        except HoldfastError as error:
            return error.info()
        if access is None:
            return NO_KEY if token_in(headers[b"cookie"], secure=self._is_secure(scope)) is None else SIGNED_OUT
        scope[ACCESS] = access
        return None if _is_from_our_page(scope, headers) else NO_ORIGIN

    def _is_named(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether a header names the person."""
        return self._proxy_people is not None and self._proxy_people.header in headers

    def _misuse_of_header(self, scope: Scope, headers: dict[bytes, bytes]) -> ErrorInfo | None:
        """Refuse a header that names the person, if it is not the trusted proxy's, or any that is there twice."""
        if self._proxy_people is None or not self._is_named(headers):
            return None
        peer, name = scope.get(PEER, ""), self._proxy_people.header
        if not self._proxies.trusts(peer):
            logger.warning("refused %s from %s, which is no trusted proxy", name.decode(), peer or "a socket")
            return _refusal("proxy_not_trusted", "Only a trusted proxy may name the person. Set proxy.addresses.")
        for once in (name, self._proxy_people.groups_header):
            if sum(each == once for each, _ in scope["headers"]) > 1:
                return _refusal("proxy_not_trusted", f"The request has more than one {once.decode()} header.")
        return None

    async def _access_of_cookie(self, callers: Callers, scope: Scope, headers: dict[bytes, bytes]) -> Access | None:
        token = token_in(headers[b"cookie"], secure=self._is_secure(scope))
        if token is None:
            return None
        return await callers.find(token)

    def _is_secure(self, scope: Scope) -> bool:
        return self._secure or scope.get("scheme") == "https"

    def _access(self, headers: dict[bytes, bytes]) -> Access | None:
        """Return the access of a request: that of the first of its keys that is in force."""
        keys = self._keys
        if not keys.is_needed:
            if keys.is_stale:
                raise KeysUnavailable  # a key may have been added
            return keys.everyone
        return next((access for key in _keys_in(headers) if (access := keys.find(key)) is not None), None)

    def _is_open(self, scope: Scope) -> bool:
        """Return whether a path needs no key: only listed paths are open, so a new route never is by mistake."""
        return scope["path"] in self._open or self._is_of_the_page(scope["path"]) or scope["method"] == "OPTIONS"

    def _is_our_host(self, host: str) -> bool:
        name = host_name(host)
        if host in self._hosts or name in self._hosts:
            return True
        # With a key any Host is allowed: a page of another site does not know the key.
        return is_loopback(name) or (self._keys.is_needed and not self._local and bool(name))

    def _is_our_origin(self, origin: str, host: str) -> bool:
        lowered = origin.lower().rstrip("/")
        scheme, _, place = lowered.partition("://")
        return lowered in self._origins or (scheme in ("http", "https") and place == host)

    def _is_from_elsewhere(self, scope: Scope) -> bool:
        """Return whether a browser marks the request as another site's. Such a site may link to our page only.

        It could not read a response of the API, but it could measure its time and size.
        """
        sites = {value.strip().lower() for name, value in scope["headers"] if name == b"sec-fetch-site"}
        return not sites <= _OWN_SITES and not self._is_link(scope)

    def _is_link(self, scope: Scope) -> bool:
        """Return whether a request loads the page or its files, which are public and hold no secret.

        Browsers send an Origin with module scripts, and a proxy may have changed the Host that it is compared with.
        """
        return scope["method"] in ("GET", "HEAD") and self._is_open(scope)


def _keys_in(headers: dict[bytes, bytes]) -> Iterator[bytes]:
    """Yield the keys of a request. Anthropic's clients send their key in `x-api-key`."""
    scheme, _, key = headers.get(AUTHORIZATION, b"").partition(b" ")
    if key and scheme.lower() == b"bearer":
        yield key.strip()
    if key := headers.get(API_KEY, b"").strip():
        yield key


def _is_from_our_page(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Return whether a request with a cookie may change something, or open a WebSocket: our page must have sent it.

    The Gate has checked the Origin, if there is one. A page of an allowed origin may call with a key alone: of the same
    site it would have the cookie too, so what the browser says about the site decides first.
    """
    if scope["method"] in ("GET", "HEAD", "OPTIONS") and OFFER not in scope:
        return True
    site = headers.get(b"sec-fetch-site")
    return bool(headers.get(b"origin")) if site is None else site == b"same-origin"


def _refused(scope: Scope, headers: dict[bytes, bytes], refusal: ErrorInfo) -> ASGIApp:
    words = in_words_of(scope["path"], refusal, by_anthropic=b"anthropic-version" in headers)
    return error_answer(refusal, extra=words)


async def _decline(scope: Scope, receive: Receive, send: Send) -> None:
    """Decline a WebSocket that another ASGI server has taken. `holdfast serve` passes the request on as HTTP."""
    socket = WebSocket(scope, receive, send)
    await socket.receive()
    if "websocket.http.response" in scope.get("extensions", {}):
        await socket.send_denial_response(error_answer(WebSocketUnavailable().info()))
    else:
        await socket.close()


async def _share(app: ASGIApp, scope: Scope, receive: Receive, send: Send, origin: str) -> None:
    """Add the CORS headers that let an allowed origin read the response: event streams and errors too."""
    allowed = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"x-run-id, x-request-id, location, retry-after, x-should-retry"),
        (b"vary", b"origin"),
    ]

    async def sharing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *allowed]
        await send(message)

    await app(scope, receive, sharing)


async def _preflight(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a CORS preflight request."""
    headers = [
        (b"access-control-allow-methods", b"GET, POST, PATCH, PUT, DELETE"),
        (b"access-control-allow-headers", ", ".join(ALLOWED_HEADERS).encode()),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _is_local_server(scope: Scope) -> bool:
    """Return whether a request came to a loopback address or a Unix socket."""
    server = scope.get("server")
    return server is None or server[1] is None or is_loopback(server[0])


def _own_paths(scope: Scope) -> Scope:
    """Return the scope of an app that is mounted under a prefix, with paths as they are without it.

    All checks below depend on the path. With the prefix `/assets` all of the API would be open.
    """
    path, prefix = scope["path"], scope["root_path"].rstrip("/")
    own = path.removeprefix(prefix) if path.startswith(f"{prefix}/") else "/" if path == prefix else path
    return {**scope, "path": own, "root_path": ""}


_OWN_SITES = {b"same-origin", b"none"}


def _repeated(headers: list[tuple[bytes, bytes]]) -> str:
    """Return the name of a header that must not be repeated, and is."""
    names = [name for name, _ in headers]
    return next((name.decode() for name in ONCE if names.count(name) > 1), "")


def _refusal(code: str, message: str) -> ErrorInfo:
    return ErrorInfo(code, message, "permission_error", status=403)
