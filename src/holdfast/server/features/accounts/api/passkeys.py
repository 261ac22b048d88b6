"""`/api/account/passkeys` and `/api/sign-in/passkey`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from .....access import ANYONE, PERSON_FRESH, SIGN_IN
from .....wires import native
from ....kit.caller import access_of
from ....kit.feature import Endpoint, Feature
from ....kit.http.errors import Json, NoContent, SignInAgain
from ....kit.request import Bodies, decode
from ...audit.audit import note_of
from ..factors.passkeys import Passkeys
from ..people.people import People
from .sign_in import Short, SigningIn

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class PasskeyWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The person's password, if the account has one; else a fresh sign-in. A stolen cookie must not add a way in."""

    password: Short = ""


class NewPasskey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name for the passkey, and the browser's answer as `PublicKeyCredential.toJSON` gives it."""

    name: Name
    answer: dict[str, Any]


class PasskeySignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The browser's answer. `stay`: stay signed in when the browser is closed."""

    answer: dict[str, Any]
    stay: bool = False


_PASSKEYS, _SIGN_IN = "/api/account/passkeys", "/api/sign-in/passkey"


class PasskeysApi(Feature):
    """The passkeys of the caller's account, and sign-in with them."""

    def __init__(self, bodies: Bodies, signing_in: SigningIn, people: People, passkeys: Passkeys) -> None:
        self._bodies, self._signing_in, self._people, self._passkeys = bodies, signing_in, people, passkeys

    @Endpoint("GET", _PASSKEYS, who=SIGN_IN)
    async def list_passkeys(self, request: Request) -> ASGIApp:
        """List the caller's passkeys."""
        passkeys = (await self._signing_in.own(request)).body.passkeys
        shown = [
            {
                "id": each.id,
                "name": each.name,
                "added_at": native.moment(each.added_at),
                "used_at": native.moment(each.used_at),
            }
            for each in passkeys
        ]
        return Json({"passkeys": shown})

    @Endpoint(
        "POST",
        f"{_PASSKEYS}/options",
        who=SIGN_IN,
        audit="passkey.options",
        takes=PasskeyWanted,
        answers={401: "the password is wrong", 403: "an old sign-in without a password", 429: "too many tries"},
    )
    async def passkey_options(self, request: Request) -> ASGIApp:
        """Return what a browser needs to make a passkey for the caller."""
        given = decode(await self._bodies.read(request) or b"{}", PasskeyWanted)
        account = await self._signing_in.own(request)
        if account.body.password:
            await self._signing_in.check_password(request, account, given.password)
        elif not await self._people.callers.is_fresh(access_of(request)):
            raise SignInAgain
        return Json(await self._passkeys.options_to_add(self._signing_in.site_of(request), account))

    @Endpoint(
        "POST",
        _PASSKEYS,
        who=SIGN_IN,
        audit="passkey.add",
        takes=NewPasskey,
        answers={204: "added", 401: "the answer proves nothing"},
    )
    async def add_passkey(self, request: Request) -> ASGIApp:
        """Add a passkey that the browser has made."""
        given = decode(await self._bodies.read(request), NewPasskey)
        await self._passkeys.add(
            self._signing_in.site_of(request), await self._signing_in.own(request), given.name, given.answer
        )
        return NoContent()

    @Endpoint("DELETE", f"{_PASSKEYS}/{{passkey_id}}", who=PERSON_FRESH, audit="passkey.remove")
    async def remove_passkey(self, request: Request) -> ASGIApp:
        """Remove a passkey of the caller."""
        await self._passkeys.remove(access_of(request).account, request.path_params["passkey_id"])
        return NoContent()

    @Endpoint("POST", f"{_SIGN_IN}/options", who=ANYONE, answers={403: "only the identity provider"})
    async def sign_in_options(self, request: Request) -> ASGIApp:
        """Return what a browser needs to sign in with a passkey."""
        self._signing_in.refuse_passwords()
        return Json(await self._passkeys.options_to_sign_in(self._signing_in.site_of(request)))

    @Endpoint(
        "POST",
        _SIGN_IN,
        who=ANYONE,
        audit="sign_in",
        takes=PasskeySignIn,
        answers={401: "the answer proves nothing", 403: "only the identity provider"},
    )
    async def sign_in_with_passkey(self, request: Request) -> ASGIApp:
        """Sign in with a passkey. It needs no password and no code."""
        given = decode(await self._bodies.read(request), PasskeySignIn)
        self._signing_in.refuse_passwords()
        account = await self._passkeys.signed_in(self._signing_in.site_of(request), given.answer)
        note_of(request).target = account.id
        return await self._signing_in.begin(request, account, stay=given.stay, by="passkey")
