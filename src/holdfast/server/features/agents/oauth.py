"""OAuth 2.1 as MCP has it: find the authorization server of an MCP server, register there, and get and revoke tokens.

All addresses come from the servers of others. They may be in a network of one's own only if the MCP server is there.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from ....errors import HoldfastError
from ....http_client.addresses import is_private
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
    way: Literal["none", "client_secret_post", "client_secret_basic"] = "none"

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


class Oauth:
    """The requests to authorization servers. Redirects are not followed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    # finding and registering

    async def authority_of(self, server: McpSettings, redirect: str) -> Authority:
        """Return the authorization server of an MCP server, with Holdfast registered there."""
        parts = urlsplit(server.url)
        is_near = await is_private(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        issuer, resource, scope = await self._protection(server, is_near)
        authority = await self._described(issuer, is_near)
        wanted = " ".join(server.scopes) or scope
        authority = msgspec.structs.replace(authority, resource=resource, scope=wanted, client_id=server.client_id)
        return authority if server.client_id else await self._registered(authority, redirect)

    async def _protection(self, server: McpSettings, is_near: bool) -> tuple[str, str, str]:
        """Return who grants tokens for an MCP server, what they are for, and the scope (RFC 9728)."""
        parts = urlsplit(server.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        resource = f"{origin}{parts.path}"
        challenged = await self._challenge(server.url, is_near)
        at = f"{origin}/.well-known/oauth-protected-resource"
        places = [challenged.get("resource_metadata", ""), f"{at}{parts.path.rstrip('/')}", at]
        for place in dict.fromkeys(filter(None, places)):
            status, found = await self._ask("GET", place, is_near=is_near)
            if status != 200:
                continue
            named, by = str(found.get("resource", "")), found.get("authorization_servers")
            if not f"{resource}/".startswith(f"{named.rstrip('/')}/") or not isinstance(by, list) or not by:
                raise AccountNotConnected("The MCP server describes the access to another address than its own.")
            scope = challenged.get("scope") or " ".join(map(str, found.get("scopes_supported") or ()))
            return str(by[0]), named, scope
        return origin, resource, challenged.get("scope", "")

    async def _challenge(self, url: str, is_near: bool) -> dict[str, str]:
        """Return what the MCP server says to a request without a token."""
        headers = {"accept": "application/json, text/event-stream"}
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await self._send("GET", url, b"", headers, is_near)
                reply.close()
        except (Broken, NotThere, TimeoutError, ValueError) as error:
            raise AccountNotConnected(f"The MCP server cannot be reached: {error}") from None
        return dict(_CHALLENGED.findall(reply.headers.get("www-authenticate", "")))

    async def _described(self, issuer: str, is_near: bool) -> Authority:
        """Return the description of an authorization server (RFC 8414)."""
        for place in _places_of(issuer):
            status, found = await self._ask("GET", place, is_near=is_near)
            if status == 200:
                break
        else:
            raise AccountNotConnected("The server that grants the access does not describe itself (RFC 8414).")
        if str(found.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
            raise AccountNotConnected("The description of the server that grants the access is of another server.")
        if "S256" not in (found.get("code_challenge_methods_supported") or ()):
            raise AccountNotConnected("The server that grants the access does not support PKCE with S256.")
        kinds = ("authorization", "token", "registration", "revocation")
        authorize, token, register, revoke = (str(found.get(f"{kind}_endpoint") or "") for kind in kinds)
        if not authorize or not token:
            raise AccountNotConnected("The description of the server that grants the access lacks its addresses.")
        for each in filter(None, (authorize, token, register, revoke)):
            _check(each, is_near)
        names_itself = found.get("authorization_response_iss_parameter_supported") is True
        return Authority(
            str(found["issuer"]),
            authorize,
            token,
            resource="",
            register=register,
            revoke=revoke,
            names_itself=names_itself,
            is_private=is_near,
        )

    async def _registered(self, authority: Authority, redirect: str) -> Authority:
        """Register Holdfast as a client (RFC 7591)."""
        if not authority.register:
            raise AccountNotConnected("The server that grants the access wants a client id. Set `client_id`.")
        wanted = {
            "client_name": "Holdfast",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            **({"scope": authority.scope} if authority.scope else {}),
        }
        body = msgspec.json.encode(wanted)
        status, made = await self._ask("POST", authority.register, body, _JSON, is_near=authority.is_private)
        client, secret = made.get("client_id"), str(made.get("client_secret") or "")
        way = made.get("token_endpoint_auth_method") or ("client_secret_basic" if secret else "none")
        if (
            status not in (200, 201)
            or not isinstance(client, str)
            or way not in _WAYS
            or (way != "none" and not secret)
        ):
            raise AccountNotConnected(f"The server that grants the access has not registered Holdfast ({status}).")
        return msgspec.structs.replace(authority, client_id=client, client_secret=secret, way=way)

    # tokens

    async def tokens(
        self, authority: Authority, now: float, grant: dict[str, str], before: Tokens | None = None
    ) -> Tokens:
        """Exchange a grant for tokens. `TokenRefused` if it is not accepted."""
        status, given = await self._ask_as(authority, authority.token, {**grant, "resource": authority.resource})
        if status in (400, 401):
            raise TokenRefused(f"The server that grants the access has refused: {_reason(given)}.")
        access, refresh, lasts = given.get("access_token"), given.get("refresh_token"), given.get("expires_in")
        is_bearer = str(given.get("token_type", "")).lower() == "bearer"
        if status != 200 or not is_bearer or not _is_token(access) or (refresh is not None and not _is_token(refresh)):
            raise AccountNotConnected(f"The server that grants the access has given no token ({status}).")
        kept = before.refresh if before is not None else ""
        return Tokens(str(access), str(refresh or kept), now + lasts if isinstance(lasts, (int, float)) else None)

    async def revoke(self, authority: Authority, tokens: Tokens) -> None:
        """Revoke tokens (RFC 7009), if the server offers that."""
        if not authority.revoke:
            return
        held = {"refresh_token": tokens.refresh, "access_token": tokens.access}
        for kind, token in held.items():
            if token:
                await self._ask_as(authority, authority.revoke, {"token": token, "token_type_hint": kind})

    async def _ask_as(self, authority: Authority, url: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Send a form as the client that Holdfast is there."""
        headers, form = dict(_FORM), {**form, "client_id": authority.client_id}
        if authority.way == "client_secret_basic":
            pair = f"{quote_plus(authority.client_id)}:{quote_plus(authority.client_secret)}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif authority.way == "client_secret_post":
            form["client_secret"] = authority.client_secret
        return await self._ask("POST", url, urlencode(form).encode(), headers, is_near=authority.is_private)

    async def _ask(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, is_near: bool
    ) -> tuple[int, dict[str, Any]]:
        """Send a request, and return the status and the object of its answer; an empty one if it has none."""
        _check(url, is_near)
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await self._send(method, url, body, {"accept": "application/json", **(headers or {})}, is_near)
                answer = await reply.read_upto(LARGEST)
        except (Broken, NotThere, TimeoutError, ValueError) as error:
            why = f"{urlsplit(url).netloc[:100]}: {error.__cause__ or error}"
            raise AccountNotConnected(f"The server that grants the access cannot be reached: {why}") from None
        try:
            found = json.loads(answer)
        except ValueError:
            found = {}
        return reply.status, found if isinstance(found, dict) else {}

    async def _send(self, method: str, url: str, body: bytes, headers: Mapping[str, str], is_near: bool) -> Any:
        sent = {"User-Agent": "holdfast", "Accept-Encoding": "identity", "Connection": "close", **headers}
        connections = connections_to_given(_origin(url), self._environ, is_private_allowed=is_near)
        return await connections.send(head_of(method, url, sent, len(body)), body)


_WAYS = ("none", "client_secret_post", "client_secret_basic")


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


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TOKEN and value.isascii() and value.isprintable()


def _reason(answer: Mapping[str, Any]) -> str:
    reason = answer.get("error")
    return repr(reason[:60]) if isinstance(reason, str) and reason.isprintable() else "no reason"
