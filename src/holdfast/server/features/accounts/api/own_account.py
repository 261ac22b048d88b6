"""`/api/account`: one's own account, password and sign-ins."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from .....access import PERSON, PERSON_FRESH, SIGN_IN
from .....errors import NotFound
from .....store.documents import Stored
from .....wires import native
from ....kit.caller import access_of
from ....kit.feature import Endpoint, Feature
from ....kit.http.errors import Json, NoContent
from ....kit.request import Bodies, decode
from ...audit.audit import note_of
from ..factors.passkeys import Passkeys
from ..factors.second_factors import SecondFactors
from ..people.accounts import Account
from ..people.browsers import browser_cookie
from ..people.people import NoPassword, People
from ..people.sign_ins import SignIn
from .sign_in import Short, SigningIn, shown_account


class AccountChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields that a person may change: name and e-mail address."""

    name: Short | None = None
    email: Short | None = None


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's password, and a code if the account has a second factor; or the answer of a passkey to the options
    of a sign-in."""

    password: Short = ""
    code: Short = ""
    answer: dict[str, Any] | None = None


class PasswordChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The current password, and the new one."""

    current: Short
    password: Short


class OwnAccountApi(Feature):
    """The caller's own account."""

    def __init__(
        self, bodies: Bodies, signing_in: SigningIn, people: People, second_factors: SecondFactors, passkeys: Passkeys
    ) -> None:
        self._bodies, self._signing_in, self._people = bodies, signing_in, people
        self._second_factors, self._passkeys = second_factors, passkeys

    @Endpoint("GET", "/api/account", who=SIGN_IN)
    async def get_account(self, request: Request) -> ASGIApp:
        """Return the caller's account."""
        return Json(shown_account(await self._signing_in.own(request)))

    @Endpoint(
        "PATCH",
        "/api/account",
        who=PERSON_FRESH,
        audit="account.change",
        takes=AccountChange,
        answers={409: "the name is taken"},
    )
    async def change_account(self, request: Request) -> ASGIApp:
        """Change the caller's name or e-mail address."""
        given = decode(await self._bodies.read(request), AccountChange)
        changed_fields = [name for name in ("name", "email") if getattr(given, name) is not None]
        note_of(request).details = {"changed": " ".join(changed_fields)}

        def changed(account: Account) -> Account:
            name = account.name if given.name is None else given.name
            return replace(account, name=name, email=account.email if given.email is None else given.email)

        return Json(shown_account(await self._people.change(access_of(request).account, changed)))

    @Endpoint(
        "PUT",
        "/api/account/password",
        who=PERSON,
        audit="password.change",
        takes=PasswordChange,
        answers={204: "changed", 401: "the password is wrong", 409: "the account has none", 429: "too many tries"},
    )
    async def change_password(self, request: Request) -> ASGIApp:
        """Change the caller's password, and end all other sign-ins."""
        given = decode(await self._bodies.read(request), PasswordChange)
        access, account = access_of(request), await self._signing_in.own(request)
        await self._people.change_password(
            account, given.current, given.password, keep=access.credential, **self._signing_in.tried_from(request)
        )
        await self._people.sign_ins.prove(access.credential)
        browser = await self._people.browsers.remember(account.id, None)
        return NoContent(headers={"set-cookie": browser_cookie(browser, secure=self._signing_in.is_secure(request))})

    @Endpoint(
        "POST",
        "/api/account/proof",
        who=PERSON,
        audit="sign_in.again",
        takes=Proof,
        answers={
            204: "proved",
            401: "the password or the passkey is wrong, or a code is needed",
            403: "a passkey, where only the identity provider counts",
            409: "the account has none",
            429: "too many tries",
        },
    )
    async def prove(self, request: Request) -> ASGIApp:
        """Check the caller's password or passkey again.

        For ten minutes the caller may do what a stolen cookie must not.
        """
        given = decode(await self._bodies.read(request), Proof)
        account = await self._signing_in.own(request)
        if given.answer is not None:
            self._signing_in.refuse_passwords()
            await self._passkeys.signed_in(self._signing_in.site_of(request), given.answer, only=account.id)
        else:
            await self._check_password(request, account, given)
        await self._people.sign_ins.prove(access_of(request).credential)
        return NoContent()

    async def _check_password(self, request: Request, account: Stored[Account], given: Proof) -> None:
        if not account.body.password:
            raise NoPassword
        await self._signing_in.check_password(request, account, given.password)
        await self._second_factors.check(account, given.code, **self._signing_in.tried_from(request))

    @Endpoint("GET", "/api/account/sign-ins", who=PERSON)
    async def list_sign_ins(self, request: Request) -> ASGIApp:
        """List the caller's sign-ins, the newest first."""
        access = access_of(request)
        found = [shown_sign_in(it, access.credential) async for it in self._people.sign_ins.of(access.account)]
        return Json({"sign_ins": found})

    @Endpoint(
        "DELETE",
        "/api/account/sign-ins/{sign_in_id}",
        who=PERSON_FRESH,
        audit="sign_in.end",
        answers={404: "no such sign-in"},
    )
    async def end_sign_in(self, request: Request) -> ASGIApp:
        """End a sign-in of the caller."""
        sign_in_id, account = request.path_params["sign_in_id"], access_of(request).account
        async for stored in self._people.sign_ins.of(account):
            if _short(stored.id) == sign_in_id:
                await self._people.sign_ins.end(stored.id, account=account)
                await self._people.callers.refresh()
                return NoContent()
        raise NotFound(f"There is no sign-in {sign_in_id!r}.")

    @Endpoint(
        "DELETE", "/api/account/sign-ins", who=PERSON_FRESH, audit="sign_ins.end", answers={200: "how many ended"}
    )
    async def end_other_sign_ins(self, request: Request) -> ASGIApp:
        """Sign out everywhere else."""
        access = access_of(request)
        ended = await self._people.sign_ins.end_all(access.account, besides=access.credential)
        await self._people.callers.refresh()
        return Json({"ended": ended})


def _short(id: str) -> str:
    """Return the visible id of a sign-in: the start of the digest."""
    return f"in_{id[:16]}"


def shown_sign_in(stored: Stored[SignIn], current: str) -> dict[str, Any]:
    """Return a sign-in as JSON. `current` is the id of the caller's own."""
    body = stored.body
    return {
        "id": _short(stored.id),
        "current": stored.id == current,
        "began_at": native.moment(body.began_at),
        "seen_at": native.moment(body.seen_at),
        "expires_at": native.moment(body.expires_at),
        "stay": body.stay,
        "address": body.address,
        "agent": body.agent,
    }
