"""`/api/sign-in`, `/api/sign-out`, `/api/first-admin` and `/api/reset-password`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from .....access import ANYONE, SIGN_IN
from .....asgi.client import HEADERS
from .....engine.core import Core
from .....errors import HoldfastError, NotFound
from .....store.documents import Stored
from .....wires import native
from ....config.settings import Settings
from ....kit.caller import access_of, address_of
from ....kit.feature import Endpoint, Feature
from ....kit.http.errors import Json, NoContent
from ....kit.request import Bodies, decode, header
from ...audit.audit import note_of
from ..factors.second_factors import SecondFactors
from ..keys import Keys
from ..people.accounts import Account
from ..people.browsers import browser_cookie, browser_in
from ..people.people import AccountsExist, People
from ..people.sign_ins import SignedInBy, cookie, token_in

Short = Annotated[str, msgspec.Meta(max_length=256)]


class NewSignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name or e-mail address with its password. `stay`: stay signed in when the browser is closed."""

    name: Short
    password: Short
    stay: bool = False
    code: Short = ""
    """A code of the second factor, if the account has one."""


class FirstAdmin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first account, and the code that the server has printed. It is not needed while the server needs no keys."""

    name: Short
    password: Short
    email: Short = ""
    code: Short = ""


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new password, and the token of the link to set it."""

    token: Short
    password: Short
    code: Short = ""
    """A code of the second factor, if the account has one."""
    keep_keys: bool = False
    """Whether the person's keys stay valid. Whoever had the account may have made one."""


class PasswordsOff(HoldfastError):
    """Passwords are off: people sign in with the identity provider only."""

    code = "passwords_off"
    status = 403
    type = "permission_error"
    message = "This server takes no passwords. Sign in with the identity provider."


class OpenedLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The token of a link to set a password."""

    token: Short


class TriedFrom(TypedDict):
    """Where a password or a code is tried: the address, and the token of the browser if it has one."""

    address: str
    browser: bytes | None


class SigningIn:
    """Begins the sign-ins of browsers, however a person has proved who it is."""

    def __init__(self, settings: Settings, people: People) -> None:
        self._settings, self._people = settings, people

    def is_secure(self, request: Request) -> bool:
        """Return whether a browser reaches the server over HTTPS, itself or through a proxy."""
        return request.scope.get("scheme") == "https" or self._settings.public_url.startswith("https://")

    def refuse_passwords(self) -> None:
        """Refuse what is no sign-in with the identity provider, if the settings say so."""
        if self._settings.oidc is not None and self._settings.oidc.only:
            raise PasswordsOff

    async def begin(
        self, request: Request, account: Stored[Account], *, stay: bool, by: SignedInBy = "password"
    ) -> Json:
        """Begin a sign-in that replaces the browser's last one, and return the account with the cookie."""
        settings, secure = self._settings, self.is_secure(request)
        note_of(request).actor = note_of(request).target = account.id
        idle = settings.stay_signed_in_days * 86400 if stay else settings.sign_in_hours * 3600
        agent = header(request, b"user-agent") or ""
        token = await self._people.begin(account, idle=idle, stay=stay, address=address_of(request), agent=agent, by=by)
        if (before := token_in(request.scope[HEADERS].get(b"cookie", b""), secure=secure)) is not None:
            await self._people.end_token(before)
        await self._people.accounts.signed_in(account.id)
        browser = await self._people.browsers.remember(account.id, self.browser_of(request))
        answer = Json(shown_account(account))
        for given in (
            cookie(token, secure=secure, keep=idle if stay else None),
            browser_cookie(browser, secure=secure),
        ):
            answer.headers.append("set-cookie", given)
        return answer

    async def own(self, request: Request) -> Stored[Account]:
        """Return the caller's account."""
        if (account := await self._people.accounts.get(access_of(request).account)) is None:
            raise NotFound("There is no such account.")
        return account

    async def check_password(self, request: Request, account: Stored[Account], password: str) -> None:
        """Refuse a password that is not the one of an account."""
        await self._people.check_password(account.body.name, password, **self.tried_from(request))

    def tried_from(self, request: Request) -> TriedFrom:
        """Return where a try comes from: wrong ones are counted by it."""
        return {"address": address_of(request), "browser": self.browser_of(request)}

    def browser_of(self, request: Request) -> bytes | None:
        """Return the token of the caller's browser; None if it has none."""
        return browser_in(request.scope[HEADERS].get(b"cookie", b""), secure=self.is_secure(request))

    def site_of(self, request: Request) -> tuple[str, str]:
        """Return the host that passkeys are for, and the origin of the page: of the settings, or of the request."""
        scheme = "https" if self.is_secure(request) else "http"
        origin = self._settings.public_url.rstrip("/") or f"{scheme}://{header(request, b'host') or ''}"
        split = urlsplit(origin)
        return split.hostname or "", f"{split.scheme}://{split.netloc}"


class SignInApi(Feature):
    """Sign-in, sign-out and the links to set a password."""

    def __init__(
        self,
        bodies: Bodies,
        signing_in: SigningIn,
        people: People,
        keys: Keys,
        second_factors: SecondFactors,
        engine: Core,
        settings: Settings,
    ) -> None:
        self._bodies, self._signing_in, self._people, self._keys = bodies, signing_in, people, keys
        self._second_factors, self._engine, self._settings = second_factors, engine, settings

    @Endpoint("GET", "/api/sign-in", who=ANYONE)
    async def ways_to_sign_in(self, request: Request) -> ASGIApp:
        """Return the data for the sign-in page."""
        exist = self._people.callers.exist
        oidc = self._settings.oidc
        return Json(
            {
                "accounts": exist,
                "first_admin": not exist and bool(self._people.first_admin),
                "password": oidc is None or not oidc.only,
                "passkey": oidc is None or not oidc.only,
                "oidc": None if oidc is None else {"name": oidc.name, "start": "/api/oidc/start"},
            }
        )

    @Endpoint(
        "POST",
        "/api/sign-in",
        who=ANYONE,
        audit="sign_in",
        takes=NewSignIn,
        answers={
            401: "the name or the password is wrong, or a code is needed",
            403: "passwords are not accepted",
            429: "too many tries",
        },
    )
    async def sign_in(self, request: Request) -> ASGIApp:
        """Sign in with a password. An earlier sign-in of the browser ends."""
        given = decode(await self._bodies.read(request), NewSignIn)
        self._signing_in.refuse_passwords()
        try:
            tried_from = self._signing_in.tried_from(request)
            account = await self._people.check_password(given.name, given.password, **tried_from)
            await self._second_factors.check(account, given.code, **tried_from)
        except HoldfastError:
            tried = await self._people.accounts.find(given.name)  # a typed name may be a password: only an id is logged
            note_of(request).target = "" if tried is None else tried.id
            raise
        return await self._signing_in.begin(request, account, stay=given.stay)

    @Endpoint("POST", "/api/sign-out", who=SIGN_IN, audit="sign_out", answers={204: "signed out"})
    async def sign_out(self, request: Request) -> ASGIApp:
        """End the caller's sign-in."""
        await self._people.end(access_of(request))
        return NoContent(headers={"set-cookie": cookie("", secure=self._signing_in.is_secure(request), keep=None)})

    @Endpoint(
        "POST",
        "/api/first-admin",
        who=ANYONE,
        audit="first_admin",
        takes=FirstAdmin,
        answers={403: "the code is not valid", 409: "there are accounts already"},
    )
    async def first_admin(self, request: Request) -> ASGIApp:
        """Add the first admin, and sign in. From then on everyone must sign in."""
        given = decode(await self._bodies.read(request), FirstAdmin)
        if self._people.callers.exist:
            raise AccountsExist
        code = given.code if self._keys.is_needed or given.code else None
        account = await self._people.add_first(given.name, given.email, given.password, code=code)
        return await self._signing_in.begin(request, account, stay=False)

    @Endpoint(
        "POST",
        "/api/reset-password",
        who=ANYONE,
        audit="password.reset",
        takes=NewPassword,
        answers={401: "a code is needed, or wrong", 403: "the link is not valid", 429: "too many tries"},
    )
    async def reset_password(self, request: Request) -> ASGIApp:
        """Set a password with the token of a link, and sign in."""
        given = decode(await self._bodies.read(request), NewPassword)
        self._signing_in.refuse_passwords()
        person = await self._people.of_link(given.token)
        await self._second_factors.check(person, given.code, **self._signing_in.tried_from(request))
        account = await self._people.reset_password(given.token, given.password)
        if not given.keep_keys:
            revoked = await self._keys.revoke_all(account.id, self._engine.now())
            note_of(request).details = {"revoked_keys": str(revoked)}
        return await self._signing_in.begin(request, account, stay=False)

    @Endpoint(
        "POST", "/api/reset-password/person", who=ANYONE, takes=OpenedLink, answers={403: "the link is not valid"}
    )
    async def look_at_link(self, request: Request) -> ASGIApp:
        """Return whose password a link sets. The link can still be used."""
        person = await self._people.of_link(decode(await self._bodies.read(request), OpenedLink).token)
        is_new = not person.body.password and person.body.signed_in_at is None
        return Json({"name": person.body.name, "new": is_new})


def shown_account(account: Stored[Account]) -> dict[str, Any]:
    """Return an account as JSON, without its password."""
    body = account.body
    return {
        "id": account.id,
        "name": body.name,
        "email": body.email,
        "role": body.role,
        "groups": body.groups,
        "disabled": body.is_disabled,
        "has_password": bool(body.password),
        "second_factor": body.factor is not None,
        "subject": body.subject,
        "created_at": native.moment(account.created_at),
        "signed_in_at": None if body.signed_in_at is None else native.moment(body.signed_in_at),
        "budget": body.budget,
    }
