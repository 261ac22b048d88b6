"""Wrong passwords: counted for each name and each address, in the store, so that all nodes count together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import msgspec

from ....errors import HoldfastError
from ....store.documents import Documents, DocumentStore

FREE_TRIES = 5
"""Wrong passwords for a name, or ten times as many from an address, before it has to wait."""
FIRST_WAIT = 15.0
LONGEST_WAIT = 900.0
FORGOTTEN_AFTER = 86400.0
"""Seconds after the last wrong password when the count starts anew."""
FOR_ADDRESSES = 10


class TryLater(HoldfastError):
    """There were too many wrong passwords for the name or from the address."""

    code = "too_many_tries"
    status = 429
    type = "rate_limit_error"

    def __init__(self, seconds: float) -> None:
        super().__init__("There were too many wrong passwords. Try again later, or ask an admin for a reset link.")
        self.retry_after = seconds


class WrongTries(msgspec.Struct, frozen=True):
    """How many wrong passwords there were, and when the next try is allowed."""

    count: int
    at: float
    next_at: float


class SignInThrottle:
    """Makes those wait who guess: the wait doubles with each wrong password, up to a quarter of an hour.

    A name that no account has is counted too: the answer does not tell which accounts exist. At the highest rate it
    takes 28 years to try a million passwords for one name.
    """

    def __init__(self, store: DocumentStore, *, now: Callable[[], float] = time.time) -> None:
        self._tries = Documents(store, "wrong_tries", WrongTries, now=now)
        self._now = now

    async def check(self, name: str, address: str) -> None:
        """Refuse a try that comes too early."""
        now = self._now()
        for id in _counted(name, address):
            stored = await self._tries.get(id)
            if stored is not None and stored.body.next_at > now:
                raise TryLater(max(1.0, stored.body.next_at - now))

    async def failed(self, name: str, address: str) -> None:
        """Count a wrong password."""
        for id, free in zip(_counted(name, address), (FREE_TRIES, FREE_TRIES * FOR_ADDRESSES), strict=False):
            await self._tries.get_or_create(id, WrongTries(0, self._now(), 0.0))
            await self._tries.change(id, lambda tries, free=free: self._counted(tries, free))  # type: ignore[misc]

    async def succeeded(self, name: str) -> None:
        """Forget the wrong passwords of a name. Those of the address stay: it may know one and guess another."""
        await self._tries.delete(_counted(name, "")[0])

    async def forget_old(self) -> None:
        """Delete counts that have started anew."""
        before = self._now() - FORGOTTEN_AFTER
        old = [stored.id async for stored in self._tries.all() if stored.body.at < before]
        for id in old:
            await self._tries.delete(id)

    async def _counted(self, tries: WrongTries, free: int) -> WrongTries:
        now = self._now()
        count = 1 if now - tries.at > FORGOTTEN_AFTER else tries.count + 1
        wait = 0.0 if count < free else min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(count - free, 20))
        return WrongTries(count, now, now + wait if wait else 0.0)


def _counted(name: str, address: str) -> list[str]:
    """Return the ids of what is counted: the name, and the address if it is known. Neither is stored in clear."""
    ids = [f"name {_digest(name.strip().casefold())}"]
    return [*ids, f"address {_digest(address)}"] if address else ids


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
