"""Passkeys: added by a signed-in person, named, removed, and used to sign in without a password.

A challenge is sealed, with its time and its purpose, so that nothing is stored for those who only ask. It counts once.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import struct
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from .....errors import BadRequest, HoldfastError, NotFound
from .....store.documents import Stored
from ....secrets.sealer import CannotUnseal, Sealer
from ..people.accounts import Account, Passkey
from ..people.one_time import LinkUsed
from ..people.people import People

MOST_PASSKEYS = 20
"""Maximum number of passkeys of one person."""
CHALLENGE_LASTS = 300.0
"""Seconds for which a challenge is valid."""
_SIGN_IN = "sign-in"
_TIME = struct.Struct("!d")


class PasskeyRefused(HoldfastError):
    """The answer of a passkey proves nothing. The error does not reveal why."""

    code = "passkey_refused"
    status = 401
    type = "authentication_error"
    message = "This passkey was not accepted. Try again, or sign in another way."


class Passkeys:
    """The passkeys of all people. `site` is what `webauthn.PasskeySite` takes: the host and the origin of the page."""

    def __init__(self, people: People, sealer: Sealer, *, now: Callable[[], float] = time.time) -> None:
        self._people = people
        self._sealer = sealer
        self._now = now

    async def options_to_add(self, site: tuple[str, str], account: Stored[Account]) -> dict[str, Any]:
        """Return what a browser needs to make a passkey for a person."""
        challenge, body = await self._challenge(account.id), account.body
        options: dict[str, Any] = await self._check(
            "options_to_add", site, account.id, body.name, body.passkeys, challenge
        )
        return options

    async def options_to_sign_in(self, site: tuple[str, str]) -> dict[str, Any]:
        """Return what a browser needs to sign in with a passkey."""
        options: dict[str, Any] = await self._check("options_to_sign_in", site, await self._challenge(_SIGN_IN))
        return options

    async def add(self, site: tuple[str, str], account: Stored[Account], name: str, answer: dict[str, Any]) -> None:
        """Store a passkey that a browser has made."""
        challenge = await self._opened(account.id, answer)
        made = await self._check("check_added", site, challenge, answer)
        await self._use(challenge)

        def added(body: Account) -> Account:
            if len(body.passkeys) >= MOST_PASSKEYS:
                raise BadRequest(
                    f"A person can have {MOST_PASSKEYS} passkeys. Remove one first.", code="too_many_passkeys"
                )
            new = Passkey(made.id, made.data, name, self._now(), made.counter)
            return replace(body, passkeys=(*(each for each in body.passkeys if each.id != made.id), new))

        await self._people.change(account.id, added)

    async def remove(self, account: str, id: str) -> None:
        """Remove a passkey of a person."""

        def removed(body: Account) -> Account:
            left = tuple(each for each in body.passkeys if each.id != id)
            if len(left) == len(body.passkeys):
                raise NotFound(f"There is no passkey {id[:64]!r}.")
            return replace(body, passkeys=left)

        await self._people.change(account, removed)

    async def signed_in(self, site: tuple[str, str], answer: dict[str, Any], *, only: str = "") -> Stored[Account]:
        """Return the account whose passkey has signed a challenge: of anyone, or of the person `only`."""
        challenge = await self._opened(_SIGN_IN, answer)
        account = await self._people.accounts.get(_person_in(answer))
        if account is None or account.body.is_disabled or only not in ("", account.id):
            raise PasskeyRefused
        id, count = await self._check("check_used", site, challenge, account.body.passkeys, answer)
        await self._use(challenge)

        def used(body: Account) -> Account:
            if all(each.id != id for each in body.passkeys):
                raise PasskeyRefused  # it was removed meanwhile
            return replace(body, passkeys=tuple(self._used(each, id, count) for each in body.passkeys))

        await self._people.accounts.change_quietly(account.id, used)
        return account

    def _used(self, passkey: Passkey, id: str, count: int) -> Passkey:
        """Return a passkey after its use. One whose count does not grow was copied."""
        if passkey.id != id:
            return passkey
        if (count or passkey.count) and count <= passkey.count:
            raise PasskeyRefused
        return replace(passkey, count=count, used_at=self._now())

    async def _challenge(self, purpose: str) -> bytes:
        return await asyncio.to_thread(self._sealer.seal, _name(purpose), _TIME.pack(self._now()))

    async def _opened(self, purpose: str, answer: dict[str, Any]) -> bytes:
        """Return the challenge in an answer, if it was made here, for this purpose, and not long ago."""
        try:
            said = json.loads(_decoded(answer["response"]["clientDataJSON"]))
            challenge = _decoded(said["challenge"])
            (at,) = _TIME.unpack(await asyncio.to_thread(self._sealer.open, _name(purpose), challenge))
        except (CannotUnseal, ValueError, KeyError, TypeError, AttributeError, struct.error):
            raise PasskeyRefused from None
        if not 0 <= self._now() - at <= CHALLENGE_LASTS:
            raise PasskeyRefused
        return challenge

    async def _use(self, challenge: bytes) -> None:
        try:
            await self._people.secrets.use("passkey", challenge.hex())
        except LinkUsed:
            raise PasskeyRefused from None

    async def _check(self, what: str, site: tuple[str, str], *arguments: Any) -> Any:
        """Call a function of the library in a thread. Whatever it says about an answer is a refusal."""

        def call() -> Any:
            webauthn = importlib.import_module(".webauthn", __package__)
            return getattr(webauthn, what)(webauthn.PasskeySite(*site), *arguments)

        try:
            return await asyncio.to_thread(call)
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError, IndexError, struct.error):
            raise PasskeyRefused from None


def _person_in(answer: dict[str, Any]) -> str:
    """Return the id of the account that an answer names. It counts only with the signature of one of its passkeys."""
    try:
        return _decoded(answer["response"]["userHandle"]).decode()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PasskeyRefused from None


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _name(purpose: str) -> str:
    return f"a challenge of passkeys for {purpose}"
