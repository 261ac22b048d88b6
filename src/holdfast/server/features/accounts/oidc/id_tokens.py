"""ID tokens: the checks of their signature, and of the claims that bind a token to its purpose."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from .attempt import NotSignedIn

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
