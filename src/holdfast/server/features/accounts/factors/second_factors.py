"""The second factor of a person: set up, asked for at a sign-in with a password, and taken away.

The secret of the app is sealed in the store, and bound to its account. A code counts once. Recovery codes are for a
lost app: each counts once, and the store has their digests only.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from base64 import b64decode
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from .....errors import Conflict, HoldfastError, NotFound
from .....store.documents import Stored
from ....secrets.sealer import CannotUnseal, Sealer
from ..people.accounts import Account, SecondFactor
from ..people.people import People
from .totp import DIGITS, new_totp_secret, step_of

RECOVERY_CODES = 10
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_GROUPS, _GROUP = 4, 4


class CodeNeeded(HoldfastError):
    """The password is right, and the account asks for a code too."""

    code = "second_factor_needed"
    status = 401
    type = "authentication_error"
    message = "Enter the code of your authenticator app, or a recovery code."


class WrongCode(HoldfastError):
    """The code is wrong, too old, or was used before."""

    code = "wrong_code"
    status = 401
    type = "authentication_error"
    message = "The code is wrong, too old, or was used before. Wait for the next one, and try that."


class FactorExists(Conflict):
    """The account has a second factor already."""

    code = "second_factor_exists"
    message = "This account has a second factor already. Remove it first."


class NewFactor(NamedTuple):
    """A secret for an app, and the same secret sealed. It counts when a code of it has been sent back."""

    secret: str
    sealed: str


class SecondFactors:
    """The second factors of all people. Costs nothing for people who have none."""

    def __init__(self, people: People, sealer: Sealer, *, now: Callable[[], float] = time.time) -> None:
        self._people = people
        self._sealer = sealer
        self._now = now

    async def propose(self, account: Stored[Account]) -> NewFactor:
        """Return a new secret. Nothing is stored: the sealed one comes back with the first code."""
        if account.body.factor is not None:
            raise FactorExists
        secret = new_totp_secret()
        return NewFactor(secret, await self._seal(account.id, secret))

    async def add(
        self, account: Stored[Account], sealed: str, code: str, *, address: str, browser: bytes | None
    ) -> list[str]:
        """Store a proposed secret, after a check of its first code, and return the recovery codes."""
        try:
            secret = await self._open(account.id, sealed)
        except CannotUnseal:
            raise WrongCode from None
        codes = _new_codes()

        def added(body: Account) -> Account:
            if body.factor is not None:
                raise FactorExists
            if (step := step_of(secret, _plain(code), self._now(), 0)) is None:
                raise WrongCode
            return replace(body, factor=SecondFactor(sealed, step, _digests(codes)))

        async with self._people.counted_code(account, address, browser):
            await self._people.change(account.id, added)
        return codes

    async def check(self, account: Stored[Account], code: str, *, address: str, browser: bytes | None) -> None:
        """Use a code of a person who has a second factor. `CodeNeeded` if none is given, `WrongCode` if it is wrong."""
        factor = account.body.factor
        if factor is None:
            return
        if not code.strip():
            raise CodeNeeded
        given = _plain(code)
        secret = await self._open(account.id, factor.sealed) if len(given) == DIGITS else None
        async with self._people.counted_code(account, address, browser):

            def used(body: Account) -> Account:
                return body if body.factor is None else replace(body, factor=self._used(body.factor, secret, given))

            await self._people.accounts.change_quietly(account.id, used)

    async def renew(self, account: Stored[Account], code: str, *, address: str, browser: bytes | None) -> list[str]:
        """Return new recovery codes, after a check of a code. The old ones end."""
        if account.body.factor is None:
            raise _no_factor()
        await self.check(account, code, address=address, browser=browser)
        codes = _new_codes()

        def renewed(body: Account) -> Account:
            if body.factor is None:
                raise _no_factor()
            return replace(body, factor=replace(body.factor, recovery=_digests(codes)))

        await self._people.change(account.id, renewed)
        return codes

    async def reseal(self) -> bool:
        """Seal every secret with the key that seals now. Returns whether any was sealed with another."""
        before, changed = None, False
        while page := await self._people.accounts.page(before=before, limit=200):
            for account in page:
                changed = await self._reseal(account) or changed
            before = page[-1].id
        return changed

    async def _reseal(self, account: Stored[Account]) -> bool:
        factor = account.body.factor
        if factor is None or await asyncio.to_thread(self._sealer.is_current, b64decode(factor.sealed)):
            return False
        sealed = await self._seal(account.id, await self._open(account.id, factor.sealed))

        def resealed(body: Account) -> Account:
            same = body.factor is not None and body.factor.sealed == factor.sealed
            return replace(body, factor=replace(body.factor, sealed=sealed)) if same and body.factor else body

        await self._people.accounts.change_quietly(account.id, resealed)
        return True

    def _used(self, factor: SecondFactor, secret: str | None, given: str) -> SecondFactor:
        """Return the factor after the use of a code: of the app with its secret, or else a recovery code."""
        if secret is not None:
            if (step := step_of(secret, given, self._now(), factor.step)) is None:
                raise WrongCode
            return replace(factor, step=step)
        if (digest := _digest(given)) not in factor.recovery:
            raise WrongCode
        return replace(factor, recovery=tuple(each for each in factor.recovery if each != digest))

    async def _seal(self, account: str, secret: str) -> str:
        return await self._sealer.seal_text(_name(account), secret.encode())

    async def _open(self, account: str, sealed: str) -> str:
        try:
            data = b64decode(sealed, validate=True)
        except ValueError:
            raise WrongCode from None
        return (await asyncio.to_thread(self._sealer.open, _name(account), data)).decode()


async def remove_factor(people: People, id: str) -> None:
    """Take the second factor of a person away."""
    await people.change(id, lambda body: body if body.factor is None else replace(body, factor=None))


async def reset_factors(people: People, id: str) -> Stored[Account]:
    """Take the second factor and the passkeys of a person away, without reading them: the device may be lost."""
    return await people.change(
        id, lambda body: replace(body, factor=None, passkeys=()) if body.factor or body.passkeys else body
    )


def _name(account: str) -> str:
    return f"the second factor of {account}"


def _new_codes() -> list[str]:
    groups = ("".join(secrets.choice(_LETTERS) for _ in range(_GROUP)) for _ in range(RECOVERY_CODES * _GROUPS))
    return ["-".join(code) for code in zip(*[groups] * _GROUPS, strict=True)]


def _plain(code: str) -> str:
    """Return a typed code without what people put between its parts."""
    return "".join(each for each in code.lower() if each.isalnum())


def _digests(codes: list[str]) -> tuple[str, ...]:
    return tuple(_digest(_plain(code)) for code in codes)


def _digest(plain: str) -> str:
    return hashlib.sha256(f"recovery code {plain}".encode()).hexdigest()


def _no_factor() -> NotFound:
    return NotFound("This account has no second factor.")
