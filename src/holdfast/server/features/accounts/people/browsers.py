"""Known browsers: those in which a person has signed in before. Strangers' wrong passwords do not hold them up.

The browser has a random token in a cookie, the store its digest. The cookie is no sign-in: it only gives the browser a
count of wrong passwords and a queue of its own (OWASP calls it a device cookie).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import msgspec

from .....store import Store
from .....store.documents import Documents
from .sign_ins import cookie_named, id_of_token, value_in

SECURE_BROWSER, PLAIN_BROWSER = "__Host-holdfast-browser", "holdfast-browser"
"""The cookie over HTTPS, and over plain HTTP."""
BROWSER_LASTS = 180 * 86400.0
"""Seconds after the last sign-in for which a browser is known."""
MOST_BROWSERS = 20
"""Maximum number of known browsers of one person. One more replaces the oldest."""


class KnownBrowser(msgspec.Struct, frozen=True):
    """A browser, and when its person has signed in last."""

    seen_at: float


class KnownBrowsers:
    """The browsers of all people. Each is known for one person."""

    def __init__(self, store: Store, *, now: Callable[[], float] = time.time) -> None:
        self._all = Documents(store, "known_browser", KnownBrowser, now=now)
        self._now = now

    async def known(self, account: str, token: bytes | None) -> str:
        """Return the id of a browser in which this person has signed in before; empty if it is another."""
        id = "" if token is None else id_of_token(token)
        stored = await self._all.get(id, owner=account)
        return "" if stored is None or stored.body.seen_at + BROWSER_LASTS < self._now() else id

    async def remember(self, account: str, token: bytes | None) -> str:
        """Record that a person has signed in, and return the browser's token: the known one, or a new one."""
        if token is not None and (id := await self.known(account, token)):
            await self._all.exchange(id, KnownBrowser(self._now()), owner=account)
            return token.decode()
        new = secrets.token_urlsafe(32)
        await self._all.put(id_of_token(new), KnownBrowser(self._now()), owner=account)
        for old in [stored.id async for stored in self._all.all(owner=account)][MOST_BROWSERS:]:
            await self._all.delete(old)
        return new

    async def forget(self, account: str) -> None:
        """Forget the browsers of a person: the password was changed, or the account is deleted."""
        for id in [stored.id async for stored in self._all.all(owner=account)]:
            await self._all.delete(id)

    async def forget_old(self) -> None:
        """Forget browsers in which nobody has signed in for long."""
        before = self._now() - BROWSER_LASTS
        for id in [stored.id async for stored in self._all.all() if stored.body.seen_at < before]:
            await self._all.delete(id)


def browser_cookie(token: str, *, secure: bool) -> str:
    """Return the Set-Cookie header with the token of a browser."""
    return cookie_named(SECURE_BROWSER if secure else PLAIN_BROWSER, token, secure=secure, keep=BROWSER_LASTS)


def browser_in(cookies: bytes, *, secure: bool) -> bytes | None:
    """Return the token of the browser in a Cookie header."""
    return value_in(cookies, SECURE_BROWSER if secure else PLAIN_BROWSER)
