"""`/api/account/second-factor`: a person's own second factor, and its reset by an admin."""

from __future__ import annotations

import importlib
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from .....access import ADMIN, SIGN_IN
from ....kit.feature import Endpoint, Feature
from ....kit.http.errors import Json, NoContent
from ....kit.request import Bodies, decode
from ...audit.audit import note_of
from ..factors.second_factors import SecondFactors, remove_factor, reset_factors
from ..factors.totp import totp_link
from ..people.people import People
from .sign_in import Short, SigningIn, shown_account


class FactorWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The person's password, if the account has one: a stolen cookie must not lock the person out."""

    password: Short = ""


class FirstCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the server has given sealed, and the first code of the app."""

    sealed: Annotated[str, msgspec.Meta(max_length=1024)]
    code: Short


class OwnCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A code of the app, or a recovery code."""

    code: Short


_FACTOR = "/api/account/second-factor"
_CODE: dict[int, str] = {401: "the code is wrong", 429: "too many tries"}


class SecondFactorsApi(Feature):
    """The second factor of the caller's account."""

    def __init__(self, bodies: Bodies, signing_in: SigningIn, people: People, second_factors: SecondFactors) -> None:
        self._bodies, self._signing_in, self._people = bodies, signing_in, people
        self._second_factors = second_factors

    @Endpoint("GET", _FACTOR, who=SIGN_IN)
    async def get_factor(self, request: Request) -> ASGIApp:
        """Return whether the caller has a second factor, and how many recovery codes are left."""
        factor = (await self._signing_in.own(request)).body.factor
        return Json({"app": factor is not None, "recovery_codes": 0 if factor is None else len(factor.recovery)})

    @Endpoint(
        "POST",
        _FACTOR,
        who=SIGN_IN,
        audit="second_factor.propose",
        takes=FactorWanted,
        answers={401: "the password is wrong", 409: "there is a second factor", 429: "too many tries"},
    )
    async def propose_factor(self, request: Request) -> ASGIApp:
        """Return what an authenticator app needs. It counts when the first code is sent back."""
        given = decode(await self._bodies.read(request) or b"{}", FactorWanted)
        account = await self._signing_in.own(request)
        if account.body.password:
            await self._signing_in.check_password(request, account, given.password)
        proposed = await self._second_factors.propose(account)
        link = totp_link(proposed.secret, account.body.name)
        rows = importlib.import_module("..factors.qr", __package__).qr_rows(link)
        return Json({"secret": proposed.secret, "sealed": proposed.sealed, "link": link, "qr": rows})

    @Endpoint(
        "PUT",
        _FACTOR,
        who=SIGN_IN,
        audit="second_factor.add",
        takes=FirstCode,
        answers={201: "the recovery codes", 409: "there is a second factor", **_CODE},
    )
    async def add_factor(self, request: Request) -> ASGIApp:
        """Turn the second factor on with the app's first code. The recovery codes are shown only now."""
        given = decode(await self._bodies.read(request), FirstCode)
        account = await self._signing_in.own(request)
        codes = await self._second_factors.add(
            account, given.sealed, given.code, **self._signing_in.tried_from(request)
        )
        return Json({"recovery_codes": codes}, status_code=201)

    @Endpoint(
        "POST",
        f"{_FACTOR}/recovery-codes",
        who=SIGN_IN,
        audit="second_factor.renew_codes",
        takes=OwnCode,
        answers={201: "the recovery codes", 404: "there is no second factor", **_CODE},
    )
    async def renew_codes(self, request: Request) -> ASGIApp:
        """Replace the recovery codes."""
        given = decode(await self._bodies.read(request), OwnCode)
        account = await self._signing_in.own(request)
        codes = await self._second_factors.renew(account, given.code, **self._signing_in.tried_from(request))
        return Json({"recovery_codes": codes}, status_code=201)

    @Endpoint(
        "DELETE", _FACTOR, who=SIGN_IN, audit="second_factor.remove", takes=OwnCode, answers={204: "removed", **_CODE}
    )
    async def end_factor(self, request: Request) -> ASGIApp:
        """Turn the caller's second factor off."""
        given = decode(await self._bodies.read(request), OwnCode)
        account = await self._signing_in.own(request)
        await self._second_factors.check(account, given.code, **self._signing_in.tried_from(request))
        await remove_factor(self._people, account.id)
        return NoContent()

    @Endpoint(
        "DELETE",
        "/api/admin/people/{account_id}/second-factor",
        who=ADMIN,
        audit="second_factor.reset",
        answers={200: "the account"},
    )
    async def reset_factor(self, request: Request) -> ASGIApp:
        """Remove a person's second factor and passkeys, for one who has lost them. The password stays."""
        id = request.path_params["account_id"]
        note_of(request).target = id
        return Json(shown_account(await reset_factors(self._people, id)))
