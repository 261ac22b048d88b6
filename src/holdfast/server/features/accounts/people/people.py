"""People: signing in, adding accounts, and changing passwords."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace

from .....access import LOCAL, Access, FactorFor
from .....errors import Conflict, HoldfastError
from .....store import Store
from .....store.documents import Stored
from .accounts import Account, Accounts, check_names
from .browsers import KnownBrowsers
from .callers import Callers
from .client_addresses import TrustedProxies
from .one_time import LinkUsed, OneTimeSecrets
from .passwords import Passwords
from .sign_ins import SignedInBy, SignIns, id_of_token
from .throttle import SignInThrottle, target_of, target_of_browser


class WrongPassword(HoldfastError):
    """The name or the password is wrong. The error does not reveal which."""

    code = "wrong_password"
    status = 401
    type = "authentication_error"
    message = "The name or the password is wrong."


class NoPassword(Conflict):
    """The account has no password that could be changed."""

    code = "no_password"
    message = "This account has no password: you sign in elsewhere. An admin can make a link that sets one."


class AccountsExist(Conflict):
    """There is already an admin."""

    code = "accounts_exist"
    message = "This server has accounts already. An admin can add you."


class LastAdmin(Conflict):
    """The change would leave the server without an admin."""

    code = "last_admin"
    message = "This is the only admin. Make another person an admin first."


class People:
    """Accounts, sign-ins, passwords and one-time secrets, and the invariants between them."""

    def __init__(
        self,
        store: Store,
        *,
        on_first: Callable[[], object] = lambda: None,
        now: Callable[[], float] = time.time,
        proxies: TrustedProxies | None = None,
        factor_for: FactorFor = "nobody",
    ) -> None:
        """`on_first` is called when there is an account: from then on everyone must sign in."""
        self.callers = Callers(store, now=now, on_first=on_first, factor_for=factor_for)
        self.passwords = Passwords()
        self.throttle = SignInThrottle(store, now=now, hides_clients=(proxies or TrustedProxies()).hides_clients)
        self.secrets = OneTimeSecrets(store, now=now)
        self.browsers = KnownBrowsers(store, now=now)
        self.first_admin = ""
        """The code for the first admin, while the server waits for one and refuses all other requests."""

    @property
    def accounts(self) -> Accounts:
        """The accounts."""
        return self.callers.accounts

    @property
    def sign_ins(self) -> SignIns:
        """The sign-ins."""
        return self.callers.sign_ins

    async def ids_of(self, text: str) -> tuple[str, ...]:
        """Return the ids of the accounts that a text means."""
        return await self.accounts.ids_of(text)

    async def names_of(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of groups, and of the accounts among some ids."""
        names = {group.id: group.body.name async for group in self.callers.groups.all()}
        for id in ids:
            if id.startswith("user_") and (account := await self.accounts.get(id)) is not None:
                names[id] = account.body.name
        return names

    async def check_password(
        self, login: str, password: str, address: str, *, browser: bytes | None = None
    ) -> Stored[Account]:
        """Return the account of a name and its password. All refusals look alike, and take the same time.

        `browser` is the token of the browser. One in which the person has signed in before is counted by itself. A
        try that finds no place in the queue is not counted: nothing is written for it.
        """
        account = await self.accounts.find(login)
        known = await self.browsers.known("" if account is None else account.id, browser)
        target = target_of(login, None if account is None else account.id)
        if known:
            target, address = target_of_browser(known), ""
        hashed = "" if account is None or account.body.is_disabled else account.body.password
        with (self.passwords.known if known else self.passwords.strangers).place() as queue:
            await self.throttle.take(target, address)
            is_right = await self.passwords.is_right(hashed, password, queue)
        if account is None or not is_right:
            raise WrongPassword
        await self.throttle.succeeded(target, address)
        return account

    @asynccontextmanager
    async def counted_code(self, account: Stored[Account], address: str, browser: bytes | None) -> AsyncIterator[None]:
        """Count the check of a code in the block, by account and browser, as wrong passwords are: until it is right."""
        known = await self.browsers.known(account.id, browser)
        target = f"code {target_of_browser(known) if known else target_of('', account.id)}"
        address = "" if known else address
        await self.throttle.take(target, address)
        yield
        await self.throttle.succeeded(target, address)

    async def begin(
        self,
        account: Stored[Account],
        *,
        idle: float,
        stay: bool,
        address: str,
        agent: str,
        by: SignedInBy = "password",
    ) -> str:
        """Begin a sign-in, and return its token. Refused if the account has changed since it was checked.

        A new password ends all sign-ins. A concurrent one with the old password is refused here.
        """
        token = await self.sign_ins.begin(account.id, idle=idle, stay=stay, address=address, agent=agent, by=by)
        now = await self.accounts.get(account.id)
        if now is None or now.body.is_disabled or now.body.password != account.body.password:
            await self.end_token(token.encode())
            raise WrongPassword
        return token

    async def add_first(self, name: str, email: str, password: str, *, code: str | None) -> Stored[Account]:
        """Add the first account: an admin, who gets the sessions and runs of the former local user.

        The `code` is used up, unless the name or the password is refused.
        """
        if await self.accounts.exist():
            raise AccountsExist
        if code is not None:
            await self.secrets.find("first_admin", code)
        check_names(name, email)
        hashed = await self.passwords.hash(password, name, email)
        if code is not None:
            await self.secrets.take("first_admin", code)
        return await self.add(Account(name=name, email=email, role="admin", owner=LOCAL, password=hashed))

    async def of_link(self, token: str) -> Stored[Account]:
        """Return the account of a link to set a password. `LinkUsed` if it is not valid."""
        account = await self.accounts.get(await self.secrets.find("password", token))
        if account is None or account.body.is_disabled:
            raise LinkUsed
        return account

    async def reset_password(self, token: str, password: str) -> Stored[Account]:
        """Set a password with the token of a link. The link is used up, unless the password is refused."""
        account = await self.of_link(token)
        hashed = await self.passwords.hash(password, account.body.name, account.body.email)
        await self.secrets.take("password", token)
        return await self._set_hash(account.id, hashed, passkeys=())  # one of them may be an intruder's

    async def add(self, account: Account, password: str = "") -> Stored[Account]:
        """Add an account. Without a password, its person needs a link to set one."""
        if password:
            hashed = await self.passwords.hash(password, account.name, account.email)
            account = replace(account, password=hashed)
        stored = await self.accounts.add(account)
        await self.callers.refresh()
        return stored

    async def set_password(self, id: str, password: str, *, keep: str = "") -> Stored[Account]:
        """Set a person's password, and end all sign-ins but one: they may belong to someone with the old password."""
        account = await self.accounts.get(id)
        names = (account.body.name, account.body.email) if account else ()
        return await self._set_hash(id, await self.passwords.hash(password, *names), keep=keep)

    async def change_password(
        self,
        account: Stored[Account],
        current: str,
        password: str,
        *,
        address: str,
        keep: str,
        browser: bytes | None = None,
    ) -> None:
        """Change a person's password, after a check of the current one."""
        if not account.body.password:
            raise NoPassword
        await self.check_password(account.body.name, current, address, browser=browser)
        await self.set_password(account.id, password, keep=keep)

    async def _set_hash(self, id: str, hashed: str, *, keep: str = "", **more: Any) -> Stored[Account]:
        stored = await self.accounts.change(id, lambda account: replace(account, password=hashed, **more))
        await self.secrets.forget(id)
        await self.sign_ins.end_all(id, besides=keep)
        await self.browsers.forget(id)
        await self.throttle.forget(target_of("", id))
        await self.callers.refresh()
        return stored

    async def change(self, id: str, change: Callable[[Account], Account]) -> Stored[Account]:
        """Change an account, unless no admin would be left. Rights change everywhere within a second."""
        stored = await self.accounts.change(id, change, partial(self._keep_an_admin, id))
        if stored.body.is_disabled:
            await self.sign_ins.end_all(id)
        await self.callers.refresh()
        return stored

    async def delete(self, id: str) -> None:
        """Delete an account and its sign-ins, unless no admin would be left."""
        await self.retire(id)
        await self.accounts.delete(id)
        await self.sign_ins.end_all(id)
        await self.browsers.forget(id)
        await self.secrets.forget(id)
        await self.callers.refresh()

    async def retire(self, id: str) -> None:
        """Disable an account that is to be deleted, unless no admin would be left."""
        await self.change(id, lambda account: account if account.is_disabled else replace(account, is_disabled=True))

    async def end(self, access: Access) -> None:
        """End the sign-in of a caller."""
        await self.sign_ins.end(access.credential, account=access.account)
        await self.callers.refresh()

    async def end_token(self, token: bytes) -> None:
        """End the sign-in of a token, if there is one."""
        id = id_of_token(token)
        sign_in = await self.sign_ins.get(id)
        if sign_in is not None and await self.sign_ins.end(id, account=sign_in.account):
            await self.callers.refresh()

    async def _keep_an_admin(self, id: str, before: Account, after: Account) -> None:
        was, is_now = (each.role == "admin" and not each.is_disabled for each in (before, after))
        if was and not is_now and not await self._is_other_admin(id):
            raise LastAdmin

    async def _is_other_admin(self, id: str) -> bool:
        before: str | None = None
        while page := await self.accounts.page(before=before, limit=200):
            if any(it.id != id and it.body.role == "admin" and not it.body.is_disabled for it in page):
                return True
            before = page[-1].id
        return False
