"""An OpenID Connect provider: its metadata, its keys, and the exchange of a code for a person's identity."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from joserfc.jwk import KeySet

from .....http_client.client import Client
from .....http_client.errors import Broken, NotThere
from .....http_client.route import route_to
from ....config.settings import SettingsError
from ....config.sign_in_settings import OidcSettings
from ..people.identities import Identity
from .attempt import Attempt, NotSignedIn
from .id_tokens import UnknownSigningKey, check_access_token, check_claims, claims_of, key_set

KEPT = 3600.0
"""Seconds for which the metadata and the keys of the provider are cached."""
KEYS_EVERY = 60.0
"""Minimum seconds between two reads of the keys because of a token with an unknown key."""
LARGEST = 256 * 1024
TIMEOUT = 10.0


class ProviderUnavailable(NotSignedIn):
    """The provider does not answer, or its response is invalid."""

    code = "oidc_unavailable"
    status = 502


class OidcProvider:
    """The provider of the settings. Its metadata is read when the first person signs in."""

    def __init__(
        self, settings: OidcSettings, environ: Mapping[str, str], *, now: Callable[[], float] = time.time
    ) -> None:
        named = settings.client_secret_env
        self._secret = environ.get(named, "") if named else ""
        if named and not self._secret:
            raise SettingsError(f"The identity provider has no client secret: {named} is not set.")
        self.settings = settings
        self._environ = environ
        self._now = now
        self._reading = asyncio.Lock()
        self._described: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    async def start_url(self, attempt: Attempt, redirect: str) -> str:
        """Return the URL at which a person signs in."""
        described = await self._description()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect,
            "scope": " ".join(self.settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        url = str(described["authorization_endpoint"])
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def check_issuer(self, named: str | None) -> None:
        """Refuse a response of another provider, by the `iss` parameter of RFC 9207."""
        described = await self._description()
        if named is None and described.get("authorization_response_iss_parameter_supported") is not True:
            return
        if named != self.settings.issuer:
            raise NotSignedIn("The answer is of another provider.")

    async def identity(self, code: str, attempt: Attempt, redirect: str) -> Identity:
        """Exchange a code for the identity of the person. `NotSignedIn` if any check fails."""
        tokens = await self._exchange(code, attempt, redirect)
        claims, algorithm = await self._claims(str(tokens.get("id_token", "")))
        settings = self.settings
        check_claims(claims, issuer=settings.issuer, client=settings.client_id, nonce=attempt.nonce, now=self._now())
        check_access_token(claims, algorithm, str(tokens.get("access_token", "")))
        groups = claims.get(settings.groups_claim)
        return Identity(
            issuer=settings.issuer,
            id=str(claims["sub"]),
            name=str(claims.get("preferred_username") or claims.get("name") or claims["sub"]),
            groups=tuple(str(group) for group in groups) if isinstance(groups, list) else (),
        )

    async def _exchange(self, code: str, attempt: Attempt, redirect: str) -> dict[str, Any]:
        described, settings = await self._description(), self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": settings.client_id,
            "code_verifier": attempt.verifier,
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        ways = described.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if self._secret and "client_secret_basic" in ways:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(self._secret)}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif self._secret:
            form["client_secret"] = self._secret
        return await self._ask("POST", str(described["token_endpoint"]), urlencode(form).encode(), headers)

    async def _claims(self, token: str) -> tuple[dict[str, Any], str]:
        try:
            return claims_of(token, await self._signing_keys())
        except UnknownSigningKey:
            return claims_of(token, await self._signing_keys(oldest=KEYS_EVERY))

    async def _description(self) -> dict[str, Any]:
        async with self._reading:
            if self._described is None or self._now() - self._described[0] > KEPT:
                url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
                self._described = self._now(), self._checked(await self._ask("GET", url))
            return self._described[1]

    async def _signing_keys(self, oldest: float = KEPT) -> KeySet:
        described = await self._description()
        async with self._reading:
            if self._keys is None or self._now() - self._keys[0] > oldest:
                self._keys = self._now(), key_set(await self._ask("GET", str(described["jwks_uri"])))
            return self._keys[1]

    def _checked(self, described: dict[str, Any]) -> dict[str, Any]:
        """Refuse the metadata of another issuer, or with plain HTTP endpoints."""
        if described.get("issuer") != self.settings.issuer:
            raise ProviderUnavailable("The provider's description is of another issuer. Check `oidc.issuer`.")
        scheme = urlsplit(self.settings.issuer).scheme
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if urlsplit(str(described.get(name, ""))).scheme not in ("https", scheme):
                raise ProviderUnavailable(f"The provider's description has no usable {name}.")
        return described

    async def _ask(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        origin = f"{parts.scheme}://{parts.netloc}"
        client = Client(origin, route=route_to(origin, environ=self._environ), connect_timeout=TIMEOUT)
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await client.send(method, path, body, headers={"accept": "application/json", **(headers or {})})
                answer = json.loads(await reply.read_upto(LARGEST))
        except (Broken, NotThere, TimeoutError, ValueError) as error:
            raise ProviderUnavailable(f"The identity provider cannot be reached, or its answer read: {error}") from None
        finally:
            client.close()
        if reply.status != 200 or not isinstance(answer, dict):
            reason = answer.get("error") if isinstance(answer, dict) else ""
            raise ProviderUnavailable(f"The identity provider answered {reply.status} {reason}".strip())
        return answer
