"""Sign-ins: sessions of people in browsers. The store has the digest of a token, the browser the token in a cookie."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from .....store import Store
from .....store.documents import Documents, Stored
from .changes import AccessChanges

SECURE_COOKIE = "__Host-holdfast"
"""The cookie over HTTPS. Browsers do not let another host or a plain HTTP page set a cookie with this name."""
PLAIN_COOKIE = "holdfast"
"""The cookie over plain HTTP."""
SEEN_EVERY = 300.0
"""Seconds between two writes of the time of use of a sign-in."""
LONGEST_SIGN_IN = 90 * 86400.0
"""Maximum age of a sign-in in seconds, even if it is used."""
MOST_SIGN_INS = 100
"""Maximum number of sign-ins of one person. One more ends the oldest."""
_AGENT = 200


SignedInBy = Literal["password", "provider", "passkey"]
"""How a person has signed in: with a password, with an identity provider, or with a passkey."""


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """One sign-in of a person. It ends `idle` seconds after it was used last."""

    account: str
    began_at: float
    seen_at: float
    idle: float
    stay: bool = False
    """True if the browser keeps the cookie when it is closed."""
    address: str = ""
    agent: str = ""
    by: SignedInBy = "password"
    again_at: float = 0.0
    """When the person has entered the password again, or used a passkey."""

    @property
    def proven_at(self) -> float:
        """When the person has proved last who it is."""
        return max(self.began_at, self.again_at)

    @property
    def expires_at(self) -> float:
        """The time of its end if it is not used."""
        return min(self.seen_at + self.idle, self.began_at + LONGEST_SIGN_IN)


def id_of_token(token: str | bytes) -> str:
    """Return the id of the sign-in of a token: a digest, from which the token cannot be computed."""
    return hashlib.sha256(token if isinstance(token, bytes) else token.encode()).hexdigest()


class SignIns:
    """All sign-ins. Each ends everywhere within a second, through the log of changes."""

    def __init__(self, store: Store, changes: AccessChanges, *, now: Callable[[], float] = time.time) -> None:
        self._all = Documents(store, "sign_in", SignIn, now=now)
        self._changes = changes
        self._now = now

    async def begin(
        self, account: str, *, idle: float, stay: bool, address: str, agent: str, by: SignedInBy = "password"
    ) -> str:
        """Begin a sign-in, and return its token. It is always new, against session fixation."""
        token, now = secrets.token_urlsafe(32), self._now()
        sign_in = SignIn(
            account=account,
            began_at=now,
            seen_at=now,
            idle=idle,
            stay=stay,
            address=address,
            agent=agent[:_AGENT],
            by=by,
        )
        await self._all.put(id_of_token(token), sign_in, owner=account)
        await self._end_oldest(account)
        return token

    async def _end_oldest(self, account: str) -> None:
        """End the oldest sign-ins of a person, if there are too many."""
        ids = [stored.id async for stored in self._all.all(owner=account)]
        for id in ids[MOST_SIGN_INS:]:
            await self.end(id, account=account)

    async def get(self, id: str) -> SignIn | None:
        """Return a sign-in that has not ended."""
        stored = await self._all.get(id)
        return None if stored is None or stored.body.expires_at <= self._now() else stored.body

    async def seen(self, id: str, address: str) -> SignIn | None:
        """Record that a sign-in was used now; None if it has ended."""

        def used(sign_in: SignIn) -> SignIn:
            return replace(sign_in, seen_at=self._now(), address=address)

        stored = await self._all.change(id, used)
        return None if stored is None else stored.body

    async def prove(self, id: str) -> None:
        """Record that the person has entered the password again, or used a passkey."""
        await self._all.change(id, lambda sign_in: replace(sign_in, again_at=self._now()))

    async def of(self, account: str) -> AsyncIterator[Stored[SignIn]]:
        """Yield the sign-ins of a person that have not ended, the newest first."""
        async for stored in self._all.all(owner=account):
            if stored.body.expires_at > self._now():
                yield stored

    async def end(self, id: str, *, account: str) -> bool:
        """End a sign-in of a person; False if there is none with that id."""
        if await self._all.get(id, owner=account) is None:
            return False
        await self._all.delete(id)
        await self._changes.note("sign_in", id)
        return True

    async def end_all(self, account: str, *, besides: str = "") -> int:
        """End all sign-ins of a person, besides one. Returns how many there were."""
        ids = [stored.id async for stored in self._all.all(owner=account) if stored.id != besides]
        for id in ids:
            await self._all.delete(id)
            await self._changes.note("sign_in", id)
        return len(ids)

    async def forget_ended(self) -> None:
        """Delete the sign-ins that have ended."""
        now = self._now()
        ended = [stored.id async for stored in self._all.all() if stored.body.expires_at <= now]
        for id in ended:
            await self._all.delete(id)


def cookie(token: str, *, secure: bool, keep: float | None) -> str:
    """Return the Set-Cookie header with a token; with an empty token, the one that deletes the cookie.

    Scripts cannot read it, and requests from other sites do not send it.
    """
    return cookie_named(SECURE_COOKIE if secure else PLAIN_COOKIE, token, secure=secure, keep=keep)


def cookie_named(name: str, token: str, *, secure: bool, keep: float | None) -> str:
    """Return the Set-Cookie header of a cookie with a token."""
    age = "; Max-Age=0" if not token else "" if keep is None else f"; Max-Age={int(keep)}"
    return f"{name}={token}; Path=/; HttpOnly; SameSite=Strict{age}{'; Secure' if secure else ''}"


def token_in(cookies: bytes, *, secure: bool) -> bytes | None:
    """Return the token in a Cookie header."""
    return value_in(cookies, SECURE_COOKIE if secure else PLAIN_COOKIE)


def value_in(cookies: bytes, name: str) -> bytes | None:
    """Return the value of a cookie in a Cookie header."""
    for part in cookies.split(b";"):
        found, _, value = part.strip().partition(b"=")
        if found == name.encode():
            return value or None
    return None
