"""Wrong passwords: counted for each account and each address, in the store, for all nodes together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from .....errors import HoldfastError, StaleDocument
from .....store import Store
from .....store.documents import Documents
from .accounts import folded
from .client_addresses import place_of

FREE_TRIES = 5
"""Number of wrong passwords for an account before a delay. An address has ten times as many."""
FIRST_WAIT = 15.0
LONGEST_WAIT = 900.0
FORGOTTEN_AFTER = 86400.0
"""Seconds after the last wrong password until the count is reset."""
FOR_ADDRESSES = 10


class TryLater(HoldfastError):
    """There were too many wrong passwords for the account or from the address."""

    code = "too_many_tries"
    status = 429
    type = "rate_limit_error"

    def __init__(self, seconds: float) -> None:
        super().__init__("There were too many wrong passwords. Try again later, or ask an admin for a reset link.")
        self.retry_after = seconds


class WrongTries(msgspec.Struct, frozen=True):
    """The number of wrong passwords, and the time from which the next try is allowed."""

    count: int
    at: float
    next_at: float


class SignInThrottle:
    """Delays guesses: the delay doubles with each wrong password, up to a quarter of an hour.

    The name and the e-mail address of an account share one count. Unknown names are counted too: the response does
    not reveal which accounts exist. At the highest rate a million passwords for one account take 28 years. A try is
    counted before the password is checked, so that concurrent requests get no more tries than sequential ones.
    """

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], float] = time.time,
        hides_clients: Callable[[str], bool] = lambda address: not address,
    ) -> None:
        """`hides_clients` returns whether many people share an address, such as a proxy's: it is not counted."""
        self._tries = Documents(store, "wrong_tries", WrongTries, now=now)
        self._now = now
        self._hides_clients = hides_clients

    async def take(self, target: str, address: str) -> None:
        """Count a try as wrong, until it is known to be right. Refuse one that comes too early.

        `target` is what `target_of` or `target_of_browser` returns.
        """
        await self._take(target, FREE_TRIES, await self._take_of(address))

    async def succeeded(self, target: str, address: str) -> None:
        """Reset the count of an account. That of the address stays: it may know one password and guess another."""
        await self.forget(target)
        if not self._hides_clients(address):
            await self._give_back(_of_address(address))

    async def forget(self, target: str) -> None:
        """Reset the count of an account."""
        await self._tries.delete(target)

    async def forget_old(self) -> None:
        """Delete counts that are due for a reset."""
        before = self._now() - FORGOTTEN_AFTER
        old = [stored.id async for stored in self._tries.all() if stored.body.at < before]
        for id in old:
            await self._tries.delete(id)

    async def _take_of(self, address: str) -> str | None:
        """Count a try of an address, and return the id of its count; None if it is not counted."""
        if self._hides_clients(address):
            return None
        id = _of_address(address)
        await self._take(id, FREE_TRIES * FOR_ADDRESSES)
        return id

    async def _take(self, id: str, free: int, taken: str | None = None) -> None:
        """Count a try. If it is refused, undo the count `taken`: no password is tried."""

        def counted(tries: WrongTries) -> WrongTries:
            if tries.next_at > self._now():
                raise TryLater(max(1.0, tries.next_at - self._now()))
            return self._one_more(tries, free)

        try:
            while await self._tries.change(id, counted) is None:
                with suppress(StaleDocument):
                    await self._tries.put(id, self._one_more(WrongTries(0, self._now(), 0.0), free))
                    return
        except TryLater:
            if taken is not None:
                await self._give_back(taken)
            raise

    async def _give_back(self, id: str) -> None:
        """Undo the count of a try that was not wrong. It was allowed, so that the next one need not wait."""

        def uncounted(tries: WrongTries) -> WrongTries | None:
            return None if tries.count <= 1 else WrongTries(tries.count - 1, tries.at, 0.0)

        await self._tries.change_or_delete(id, uncounted)

    def _one_more(self, tries: WrongTries, free: int) -> WrongTries:
        now = self._now()
        count = 1 if now - tries.at > FORGOTTEN_AFTER else tries.count + 1
        wait = 0.0 if count < free else min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(count - free, 20))
        return WrongTries(count, now, now + wait if wait else 0.0)


def target_of(login: str, account: str | None) -> str:
    """Return the target for which wrong passwords are counted: an account by its id, or an unknown name."""
    return f"name {_digest(f'name {folded(login)}' if account is None else f'account {account}')}"


def target_of_browser(id: str) -> str:
    """Return the target for a browser in which the person has signed in before. It has a count of its own."""
    return f"browser {id}"


def _of_address(address: str) -> str:
    return f"address {_digest(place_of(address))}"


def _digest(text: str) -> str:
    """Return the digest of a name or an address: they are not stored in clear text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
