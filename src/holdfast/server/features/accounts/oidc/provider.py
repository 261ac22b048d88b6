"""An OpenID Connect provider: its metadata, its keys, and the exchange of a code for a person's identity."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from .....http_client.client import Client
from .....http_client.errors import Broken, NotThere
from .....http_client.route import route_to
from ....config.settings import SettingsError
from ....config.sign_in_settings import OidcSettings
from ..people.identities import Identity
from .attempt import Attempt, NotSignedIn

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
"""Accepted signature algorithms: only asymmetric ones, which neither the client's secret nor `none` can produce."""
LEEWAY = 60
"""Maximum difference of the clocks, in seconds."""
_SIGNING = ("RSA", "EC", "OKP")


class UnknownSigningKey(NotSignedIn):
    """The token is signed with a key that is not among the provider's cached keys."""


def key_set(document: Any) -> KeySet:
    """Return the provider's keys. Those of other kinds, and for other uses, are left out."""
    match document:
        case {"keys": list(keys)}:
            usable = [key for key in keys if _can_verify(key)]
        case _:
            raise NotSignedIn("The provider's keys are not a key set.")
    try:
        return KeySet.import_key_set({"keys": usable})
    except (JoseError, ValueError, KeyError) as error:
        raise NotSignedIn(f"The provider's keys cannot be read: {error}") from None


def _can_verify(key: Any) -> bool:
    """Return whether a key verifies signatures. One that does not say for what it is does."""
    match key:
        case {"kty": kind, "use": use}:
            return kind in _SIGNING and use == "sig"
        case {"kty": kind}:
            return kind in _SIGNING
    return False


def claims_of(token: str, keys: KeySet) -> tuple[dict[str, Any], str]:
    """Return the claims of a token with a valid signature, and the algorithm."""
    try:
        match _header(token):
            case {"kid": kid} if kid is not None and kid not in {key.kid for key in keys}:
                raise UnknownSigningKey("The ID token is signed with an unknown key.")
        decoded = jwt.decode(token, keys, algorithms=ALGORITHMS)
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise NotSignedIn(f"The ID token is not valid: {error}") from None
    return decoded.claims, str(decoded.header["alg"])


def _header(token: str) -> Any:
    """Return the header of a token, unverified."""
    part = token.partition(".")[0]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


class _Claims(msgspec.Struct, frozen=True):
    """The claims that are checked. A claim that is missing is None, and fits nothing."""

    iss: Any = None
    sub: Any = None
    aud: Any = None
    azp: Any = None
    nonce: Any = ""
    exp: Any = None
    iat: Any = None
    nbf: Any = None


def check_claims(claims: dict[str, Any], *, issuer: str, client: str, nonce: str, now: float) -> None:
    """Refuse a token of another issuer, for another client, of another attempt, or of another time."""
    said = msgspec.convert(claims, _Claims)
    audiences = said.aud if isinstance(said.aud, list) else [said.aud]
    if said.iss != issuer:
        raise NotSignedIn("The ID token is of another issuer.")
    azp = said.azp if "azp" in claims else client if len(audiences) == 1 else None
    if client not in audiences or azp != client:
        raise NotSignedIn("The ID token is for another client.")
    if not hmac.compare_digest(str(said.nonce).encode(), nonce.encode()):
        raise NotSignedIn("The ID token is of another attempt to sign in.")
    if not all(isinstance(each, int | float) for each in (said.exp, said.iat)) or not now - LEEWAY < said.exp:
        raise NotSignedIn("The ID token has expired.")
    not_before = said.nbf if "nbf" in claims else said.iat
    if not isinstance(not_before, int | float) or max(said.iat, not_before) > now + LEEWAY:
        raise NotSignedIn("The ID token is of the future: the clock of the provider or of this server is wrong.")
    if not isinstance(said.sub, str) or not 0 < len(said.sub) <= 255:
        raise NotSignedIn("The ID token names no subject.")


def check_access_token(claims: dict[str, Any], algorithm: str, access_token: str) -> None:
    """Refuse an access token that does not match the hash in the ID token, if there is one."""
    if "at_hash" not in claims:
        return
    size = {"384": hashlib.sha384, "512": hashlib.sha512}.get(algorithm[-3:], hashlib.sha256)
    digest = (hashlib.sha512 if algorithm.startswith("Ed") else size)(access_token.encode()).digest()
    expected = base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=")
    if not hmac.compare_digest(expected, str(claims["at_hash"]).encode()):
        raise NotSignedIn("The access token is not that of the ID token.")


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
