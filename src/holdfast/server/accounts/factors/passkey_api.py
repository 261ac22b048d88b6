"""`/api/account/passkeys` and `/api/sign-in/passkey`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ANYONE, PERSON_FRESH, SIGN_IN
from ....errors import NotFound
from ....store.documents import Stored
from ....wires import native
from ...audit.audit import note_of
from ...caller import access_of, address_of
from ...errors import Json, NoContent, SignInAgain
from ...request import decode, read_body
from ...routing import Endpoint
from ...services import Parts
from ..api.sign_in import Short, browser_of, refuse_passwords, signed_in, site_of
from ..people.accounts import Account

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


async def list_passkeys(parts: Parts, request: Request) -> ASGIApp:
    """List the caller's passkeys."""
    passkeys = (await _own(parts, request)).body.passkeys
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


async def passkey_options(parts: Parts, request: Request) -> ASGIApp:
    """Return what a browser needs to make a passkey for the caller."""
    given = decode(await read_body(parts, request) or b"{}", PasskeyWanted)
    account = await _own(parts, request)
    if account.body.password:
        await parts.people.check_password(
            account.body.name, given.password, address_of(request), browser=browser_of(parts, request)
        )
    elif not await parts.people.callers.is_fresh(access_of(request)):
        raise SignInAgain
    return Json(await parts.passkeys.options_to_add(site_of(parts, request), account))


async def add_passkey(parts: Parts, request: Request) -> ASGIApp:
    """Add a passkey that the browser has made."""
    given = decode(await read_body(parts, request), NewPasskey)
    await parts.passkeys.add(site_of(parts, request), await _own(parts, request), given.name, given.answer)
    return NoContent()


async def remove_passkey(parts: Parts, request: Request) -> ASGIApp:
    """Remove a passkey of the caller."""
    await parts.passkeys.remove(access_of(request).account, request.path_params["passkey_id"])
    return NoContent()


async def sign_in_options(parts: Parts, request: Request) -> ASGIApp:
    """Return what a browser needs to sign in with a passkey."""
    refuse_passwords(parts)
    return Json(await parts.passkeys.options_to_sign_in(site_of(parts, request)))


async def sign_in_with_passkey(parts: Parts, request: Request) -> ASGIApp:
    """Sign in with a passkey. It needs no password and no code."""
    given = decode(await read_body(parts, request), PasskeySignIn)
    refuse_passwords(parts)
    account = await parts.passkeys.signed_in(site_of(parts, request), given.answer)
    note_of(request).target = account.id
    return await signed_in(parts, request, account, stay=given.stay, by="passkey")


async def _own(parts: Parts, request: Request) -> Stored[Account]:
    account = await parts.people.accounts.get(access_of(request).account)
    if account is None:
        raise NotFound("There is no such account.")
    return account


_PASSKEYS, _SIGN_IN = "/api/account/passkeys", "/api/sign-in/passkey"
_BAD: dict[int, str] = {400: "a value is invalid", 413: "too large"}

ENDPOINTS = [
    Endpoint("GET", _PASSKEYS, list_passkeys, who=SIGN_IN, answers={200: "the passkeys"}),
    Endpoint(
        "POST",
        f"{_PASSKEYS}/options",
        passkey_options,
        who=SIGN_IN,
        audit="passkey.options",
        takes=PasskeyWanted,
        answers={
            200: "what a browser needs",
            401: "the password is wrong",
            403: "an old sign-in without a password",
            429: "too many tries",
            **_BAD,
        },
    ),
    Endpoint(
        "POST",
        _PASSKEYS,
        add_passkey,
        who=SIGN_IN,
        audit="passkey.add",
        takes=NewPasskey,
        answers={204: "added", 401: "the answer proves nothing", **_BAD},
    ),
    Endpoint(
        "DELETE",
        f"{_PASSKEYS}/{{passkey_id}}",
        remove_passkey,
        who=PERSON_FRESH,
        audit="passkey.remove",
        answers={204: "removed", 404: "no such passkey"},
    ),
    Endpoint(
        "POST",
        f"{_SIGN_IN}/options",
        sign_in_options,
        who=ANYONE,
        answers={200: "what a browser needs", 403: "only the identity provider"},
    ),
    Endpoint(
        "POST",
        _SIGN_IN,
        sign_in_with_passkey,
        who=ANYONE,
        audit="sign_in",
        takes=PasskeySignIn,
        answers={200: "the person", 401: "the answer proves nothing", 403: "only the identity provider", **_BAD},
    ),
]
