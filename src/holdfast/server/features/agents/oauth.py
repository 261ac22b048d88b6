"""OAuth 2.1 as MCP has it: find the authorization server of an MCP server, register there, and get and revoke tokens.

All addresses come from the servers of others. They may be in a network of one's own only if the MCP server is there.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from ....errors import HoldfastError
from ....http_client.addresses import has_no_public_address
from ....http_client.errors import Broken, NotThere
from ....http_client.given import connections_to_given
from ....http_client.request import head_of
from ...config.settings import McpSettings

TIMEOUT = 10.0
"""Timeout of one request, in seconds."""
LARGEST = 256 * 1024
LONGEST_TOKEN = 16_384
_FORM = {"content-type": "application/x-www-form-urlencoded"}
_JSON = {"content-type": "application/json"}
Way = Literal["none", "client_secret_post", "client_secret_basic"]
"""How a client proves who it is."""
T = TypeVar("T")
_CHALLENGED = re.compile(r'\b(resource_metadata|scope)="?([^",]+)"?')


class AccountNotConnected(HoldfastError):
    """The account at an MCP server was not connected."""

    code = "mcp_not_connected"
    status = 502


class TokenRefused(AccountNotConnected):
    """The authorization server does not accept what it was given for a token."""


class Authority(msgspec.Struct, frozen=True):
    """The authorization server of an MCP server, and Holdfast as its client."""

    issuer: str
    authorize: str
    token: str
    resource: str
    """What the tokens are for: the MCP server, or a part of its address."""
    scope: str = ""
    register: str = ""
    revoke: str = ""
    names_itself: bool = False
    """Whether it says in each answer who it is (RFC 9207)."""
    is_private: bool = False
    """Whether its addresses may be in a network of one's own."""
    client_id: str = ""
    client_secret: str = ""
    way: Way = "none"

    def with_secret(self, client_id: str, secret: str) -> Authority:
        """Return it with the secret that its client has now. That of another client is none of its."""
        return msgspec.structs.replace(self, client_secret=secret) if secret and client_id == self.client_id else self

    def start_url(self, state: str, verifier: str, redirect: str) -> str:
        """Return the address at which a person allows the access."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": self.resource,
            **({"scope": self.scope} if self.scope else {}),
        }
        return f"{self.authorize}{'&' if '?' in self.authorize else '?'}{urlencode(query)}"


class Tokens(msgspec.Struct, frozen=True):
    """What an authorization server has granted."""

    access: str
    refresh: str = ""
    expires_at: float | None = None


class Challenge(msgspec.Struct, frozen=True):
    """What an MCP server says to a request without a token."""

    resource_metadata: str = ""
    scope: str = ""


class Protected(msgspec.Struct, frozen=True):
    """How an MCP server describes its protection (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None = None


class AuthorityMetadata(msgspec.Struct, frozen=True):
    """How an authorization server describes itself (RFC 8414)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool | None = None


class Registration(msgspec.Struct, frozen=True):
    """What a client has got by registering (RFC 7591)."""

    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: Way | None = None


class GrantedTokens(msgspec.Struct, frozen=True):
    """The answer to a request for tokens (RFC 6749)."""

    access_token: str
    token_type: str
    refresh_token: str | None = None
    expires_in: float | None = None


class OauthRefusal(msgspec.Struct, frozen=True):
    """An answer that says why something was refused."""

    error: str = ""


class RemoteAnswer(NamedTuple):
    """An answer of an authorization server."""

    status: int
    body: bytes

    def read(self, kind: type[T]) -> T | None:
        """Return what is in it; None if it is no success, or something else."""
        try:
            return msgspec.json.decode(self.body, type=kind, strict=False) if self.status in (200, 201) else None
        except (msgspec.DecodeError, ValueError):
            return None

    @property
    def reason(self) -> str:
        """Why it is no success, as it may be shown."""
        try:
            error = msgspec.json.decode(self.body, type=OauthRefusal).error
        except (msgspec.DecodeError, ValueError):
            error = ""
        return repr(error[:60]) if error.isprintable() and error else f"it answered {self.status}"


class Oauth:
    """The requests to authorization servers. Redirects are not followed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    # finding and registering

    async def authority_of(self, server: McpSettings, redirect: str) -> Authority:
        """Return the authorization server of an MCP server, with Holdfast registered there."""
        parts = urlsplit(server.url)
        is_near = await has_no_public_address(
            parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        )
        issuer, resource, scope = await self._protection(server, is_near)
        described = await self._described(issuer, is_near)
        wanted, secret = " ".join(server.scopes) or scope, server.client_secret(self._environ)
        authority = Authority(
            described.issuer,
            described.authorization_endpoint,
            described.token_endpoint,
            resource=resource,
            scope=wanted,
            register=described.registration_endpoint or "",
            revoke=described.revocation_endpoint or "",
            names_itself=described.authorization_response_iss_parameter_supported is True,
            is_private=is_near,
            client_id=server.oauth_client,
            client_secret=secret,
            way=_way_of(described) if secret else "none",
        )
        return authority if server.oauth_client else await self._registered(authority, redirect)

    async def _protection(self, server: McpSettings, is_near: bool) -> tuple[str, str, str]:
        """Return who grants tokens for an MCP server, what they are for, and the scope (RFC 9728)."""
        parts = urlsplit(server.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        resource = f"{origin}{parts.path}"
        challenged = await self._challenge(server.url, is_near)
        at = f"{origin}/.well-known/oauth-protected-resource"
        places = [challenged.resource_metadata, f"{at}{parts.path.rstrip('/')}", at]
        for place in dict.fromkeys(filter(None, places)):
            found = (await self._ask("GET", place, is_near=is_near)).read(Protected)
            if found is None:
                continue
            named = f"{found.resource.rstrip('/')}/"
            is_own = named.startswith(f"{origin}/") and f"{resource.rstrip('/')}/".startswith(named)
            if not is_own or not found.authorization_servers:
                raise AccountNotConnected("The MCP server describes the access to another address than its own.")
            scope = challenged.scope or " ".join(found.scopes_supported or ())
            return found.authorization_servers[0], found.resource, scope
        return origin, resource, challenged.scope

    async def _challenge(self, url: str, is_near: bool) -> Challenge:
        """Return what the MCP server says to a request without a token."""
        headers = {"accept": "application/json, text/event-stream"}
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await self._send("GET", url, b"", headers, is_near)
                reply.close()
        except (Broken, NotThere, TimeoutError, ValueError) as error:
            raise AccountNotConnected(f"The MCP server cannot be reached: {error}") from None
        said = next((value for name, value in reply.headers.items() if name == "www-authenticate"), "")
        return msgspec.convert(dict(_CHALLENGED.findall(said)), Challenge)

    async def _described(self, issuer: str, is_near: bool) -> AuthorityMetadata:
        """Return the description of an authorization server (RFC 8414)."""
        for place in _places_of(issuer):
            found = (await self._ask("GET", place, is_near=is_near)).read(AuthorityMetadata)
            if found is not None:
                break
        else:
            raise AccountNotConnected("The server that grants the access does not describe itself (RFC 8414).")
        if found.issuer.rstrip("/") != issuer.rstrip("/"):
            raise AccountNotConnected("The description of the server that grants the access is of another server.")
        if "S256" not in (found.code_challenge_methods_supported or ()):
            raise AccountNotConnected("The server that grants the access does not support PKCE with S256.")
        named = (found.authorization_endpoint, found.token_endpoint)
        for each in filter(None, (*named, found.registration_endpoint, found.revocation_endpoint)):
            _check(each, is_near)
        return found

    async def _registered(self, authority: Authority, redirect: str) -> Authority:
        """Register Holdfast as a client (RFC 7591)."""
        if not authority.register:
            raise AccountNotConnected("The server that grants the access wants a client id. Set `oauth_client`.")
        wanted = {
            "client_name": "Holdfast",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            **({"scope": authority.scope} if authority.scope else {}),
        }
        body = msgspec.json.encode(wanted)
        answer = await self._ask("POST", authority.register, body, _JSON, is_near=authority.is_private)
        made = answer.read(Registration)
        if made is None:
            raise AccountNotConnected(
                f"The server that grants the access has not registered Holdfast: {answer.reason}."
            )
        secret = made.client_secret or ""
        way: Way = made.token_endpoint_auth_method or ("client_secret_basic" if secret else "none")
        return msgspec.structs.replace(authority, client_id=made.client_id, client_secret=secret, way=way)

    # tokens

    async def tokens(
        self, authority: Authority, now: float, grant: dict[str, str], before: Tokens | None = None
    ) -> Tokens:
        """Exchange a grant for tokens. `TokenRefused` if it is not accepted."""
        answer = await self._ask_as(authority, authority.token, {**grant, "resource": authority.resource})
        if answer.status in (400, 401):
            raise TokenRefused(f"The server that grants the access has refused: {answer.reason}.")
        given = answer.read(GrantedTokens)
        if given is None or given.token_type.lower() != "bearer" or not _is_token(given.access_token):
            raise AccountNotConnected(f"The server that grants the access has given no token: {answer.reason}.")
        refresh = given.refresh_token or (before.refresh if before is not None else "")
        return Tokens(given.access_token, refresh, None if given.expires_in is None else now + given.expires_in)

    async def revoke(self, authority: Authority, tokens: Tokens) -> None:
        """Revoke tokens (RFC 7009), if the server offers that."""
        if not authority.revoke:
            return
        held = {"refresh_token": tokens.refresh, "access_token": tokens.access}
        for kind, token in held.items():
            if token:
                await self._ask_as(authority, authority.revoke, {"token": token, "token_type_hint": kind})

    async def _ask_as(self, authority: Authority, url: str, form: dict[str, str]) -> RemoteAnswer:
        """Send a form as the client that Holdfast is there."""
        headers, named = dict(_FORM), {**form, "client_id": authority.client_id}
        if authority.way == "client_secret_basic":
            pair = f"{quote_plus(authority.client_id)}:{quote_plus(authority.client_secret)}".encode()
            headers |= {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
        elif authority.way == "client_secret_post":
            named |= {"client_secret": authority.client_secret}
        return await self._ask("POST", url, urlencode(named).encode(), headers, is_near=authority.is_private)

    async def _ask(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, is_near: bool
    ) -> RemoteAnswer:
        """Send a request, and return its answer."""
        _check(url, is_near)
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await self._send(method, url, body, {"accept": "application/json", **(headers or {})}, is_near)
                return RemoteAnswer(reply.status, await reply.read_upto(LARGEST))
        except (Broken, NotThere, TimeoutError, ValueError) as error:
            why = f"{urlsplit(url).netloc[:100]}: {error.__cause__ or error}"
            raise AccountNotConnected(f"The server that grants the access cannot be reached: {why}") from None

    async def _send(self, method: str, url: str, body: bytes, headers: Mapping[str, str], is_near: bool) -> Any:
        sent = {"User-Agent": "holdfast", "Accept-Encoding": "identity", "Connection": "close", **headers}
        connections = connections_to_given(_origin(url), self._environ, is_private_allowed=is_near)
        return await connections.send(head_of(method, url, sent, len(body)), body)


def _way_of(described: AuthorityMetadata) -> Way:
    """Return how an authorization server takes the secret of a client."""
    ways: tuple[Way, ...] = ("client_secret_basic", "client_secret_post")
    supported = described.token_endpoint_auth_methods_supported or ways[:1]  # the default of RFC 8414
    taken = next((way for way in ways if way in supported), None)
    if taken is None:
        raise AccountNotConnected(
            "The server that grants the access does not take a client secret as Holdfast sends it."
        )
    return taken


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _places_of(issuer: str) -> Iterator[str]:
    """Yield where an authorization server may describe itself."""
    origin, path = _origin(issuer), urlsplit(issuer).path.rstrip("/")
    yield f"{origin}/.well-known/oauth-authorization-server{path}"
    yield f"{origin}/.well-known/openid-configuration{path}"
    if path:
        yield f"{origin}{path}/.well-known/openid-configuration"


def _check(url: str, is_near: bool) -> None:
    """Refuse an address that Holdfast, or a browser that it sends there, must not open."""
    try:
        parts = urlsplit(url)
        head_of("GET", url, {})
        is_sound = parts.scheme == "https" or (is_near and parts.scheme == "http")
        is_sound = is_sound and bool(parts.hostname) and parts.port != 0 and url.isprintable()
        is_sound = is_sound and "@" not in parts.netloc and " " not in url and not parts.fragment
    except ValueError:
        is_sound = False
    if not is_sound:
        raise AccountNotConnected("The MCP server names an address for the access that is not one with https://.")


def _is_token(value: str) -> bool:
    return 0 < len(value) <= LONGEST_TOKEN and value.isascii() and value.isprintable()
