"""One-time secrets: the code that makes the first admin, and the links that set a password."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from .....errors import HoldfastError, StaleDocument
from .....store import Store
from .....store.documents import Documents

LINK_LASTS = 86400.0
"""Seconds for which a link to set a password is valid."""
Purpose = Literal["first_admin", "password", "oidc_nonce", "passkey"]


class LinkUsed(HoldfastError):
    """The code or link is wrong, was used, or is too old."""

    code = "link_not_valid"
    status = 403
    type = "permission_error"
    message = "This code or link is not valid: it was used, or is too old. Ask for a new one."


class OneTimeSecret(msgspec.Struct, frozen=True):
    """The purpose of a secret, and its account."""

    purpose: Purpose
    account: str = ""


class OneTimeSecrets:
    """Creates secrets and accepts each of them once. The store has only their digests."""

    def __init__(self, store: Store, *, now: Callable[[], float] = time.time) -> None:
        self._all = Documents(store, "one_time_secret", OneTimeSecret, now=now)
        self._now = now

    async def make(self, purpose: Purpose, account: str = "") -> str:
        """Return a new secret."""
        secret = secrets.token_urlsafe(24)
        await self._all.put(_digest_of(secret), OneTimeSecret(purpose, account), owner=account)
        return secret

    async def take(self, purpose: Purpose, secret: str) -> str:
        """Use up a secret, and return its account. `LinkUsed` if it is not valid."""
        account = await self.find(purpose, secret)
        if not await self._all.delete(_digest_of(secret)):
            raise LinkUsed  # another request was faster
        return account

    async def use(self, purpose: Purpose, secret: str) -> None:
        """Record that a secret from elsewhere was used. `LinkUsed` if it was used before."""
        try:
            await self._all.put(_digest_of(f"{purpose} {secret}"), OneTimeSecret(purpose))
        except StaleDocument:
            raise LinkUsed from None

    async def find(self, purpose: Purpose, secret: str) -> str:
        """Return the account of a secret, which stays valid. `LinkUsed` if it is not valid."""
        stored = await self._all.get(_digest_of(secret))
        if stored is None or stored.body.purpose != purpose or self._now() - stored.created_at > LINK_LASTS:
            raise LinkUsed
        return stored.body.account

    async def forget(self, account: str) -> None:
        """Withdraw the secrets of an account: there is a newer one, or the password was set."""
        for stored in [stored async for stored in self._all.all(owner=account)]:
            await self._all.delete(stored.id)

    async def forget_old(self) -> None:
        """Delete secrets that are too old."""
        before = self._now() - LINK_LASTS
        for id in [stored.id async for stored in self._all.all() if stored.created_at < before]:
            await self._all.delete(id)


def _digest_of(secret: str) -> str:
    return hashlib.sha256(secret.strip().encode()).hexdigest()
