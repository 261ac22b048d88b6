"""One attempt to sign in with a provider: its cookie, and the page that it leads to."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets

import msgspec

from .....errors import HoldfastError

ATTEMPT_LASTS = 600
"""Timeout of signing in at the provider, in seconds."""
_SECURE, _PLAIN = "__Host-holdfast-oidc", "holdfast-oidc"
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A path of this server: it begins with exactly one slash, and browsers treat a backslash as a slash."""


class NotSignedIn(HoldfastError):
    """The provider's response does not prove the identity of the person."""

    code = "oidc_failed"
    status = 403
    type = "permission_error"


class Attempt(msgspec.Struct, frozen=True):
    """The secrets of one attempt. They are in a cookie, so that no other browser can finish it."""

    state: str
    nonce: str
    verifier: str
    next: str

    @classmethod
    def new(cls, next: str) -> Attempt:
        """Return a new attempt, which leads to a page of this server."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, local_path(next))

    @property
    def challenge(self) -> str:
        """The verifier's SHA-256, for PKCE."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def local_path(next: str) -> str:
    """Return a path of this server unchanged, and `/` for anything else: a link must not lead to another site."""
    return next if len(next) <= 2000 and _LOCAL_PATH.fullmatch(next) else "/"


def attempt_cookie(attempt: Attempt | None, *, secure: bool) -> str:
    """Return the Set-Cookie header for an attempt; for None, the one that deletes it.

    The provider sends the browser back from its own site, so that the cookie cannot be Strict.
    """
    value = "" if attempt is None else base64.urlsafe_b64encode(msgspec.json.encode(attempt)).rstrip(b"=").decode()
    age, name = 0 if attempt is None else ATTEMPT_LASTS, _SECURE if secure else _PLAIN
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{'; Secure' if secure else ''}"


def attempt_in(cookies: bytes, *, secure: bool) -> Attempt | None:
    """Return the attempt in a Cookie header; None if there is none."""
    name = (_SECURE if secure else _PLAIN).encode()
    parts = (part.strip().partition(b"=") for part in cookies.split(b";"))
    value = next((value for found, _, value in parts if found == name), b"")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(value + b"=" * (-len(value) % 4)), type=Attempt)
    except (ValueError, msgspec.MsgspecError):
        return None
