"""Callers that are people: the rights of their sign-ins and keys, cached in memory, current to within a second."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from .....access import FRESH, KEY_SCOPES, NO_BUDGET, Access, Allowed, Budget, Budgeted, FactorFor
from .....errors import HoldfastError, NotFound
from .....store import Store
from .....store.documents import Documents, Stored
from .accounts import Account, AccountGroup, Accounts
from .changes import AccessChange, AccessChanges
from .sign_ins import SEEN_EVERY, SignIn, SignIns, id_of_token

logger = logging.getLogger(__name__)

T = TypeVar("T")

MOST_KEPT = 20_000
"""Maximum number of sign-ins with cached rights. Others are read again."""


class Callers:
    """Recognises people by their sign-ins, and updates their rights while requests or streams use them.

    A request with a known cookie costs one digest and one look-up. Changes of other nodes arrive through the log of
    changes: a sign-in that has ended, a person who was disabled, another role.
    """

    def __init__(
        self,
        store: Store,
        *,
        patience: float = 10.0,
        now: Callable[[], float] = time.time,
        on_first: Callable[[], object] = lambda: None,
        factor_for: FactorFor = "nobody",
    ) -> None:
        """`on_first` is called when there is an account: from then on everyone must sign in."""
        self._factor_for = factor_for
        self.changes = AccessChanges(store, now=now)
        self.accounts = Accounts(store, self.changes, now=now)
        self.sign_ins = SignIns(store, self.changes, now=now)
        self.groups = Documents(store, "group", AccountGroup, now=now)
        self._now = now
        self._patience = patience
        self._on_first = on_first
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self._by_sign_in: dict[str, tuple[Access, SignIn]] = {}
        self._by_account: dict[str, set[Access]] = {}
        self._account_of: dict[str, str] = {}
        """The accounts with cached rights, by their owners."""
        self._groups: dict[str, AccountGroup] = {}
        self._taken_in = 0
        """Number of applied changes."""
        self._seen: dict[str, str] = {}
        """Sign-ins to mark as used, with the address."""
        self.exist = False
        """Whether there is any account. Never becomes false again."""

    @property
    def is_stale(self) -> bool:
        """True if the log of changes could not be read for too long: then no sign-in is trusted."""
        return time.monotonic() - self._read_at > self._patience

    # requests

    def known(self, token: bytes, address: str) -> Access | None:
        """Return the access of a sign-in with cached rights; None if they are not cached."""
        entry = self._by_sign_in.get(id_of_token(token))
        if entry is None:
            return None
        access, sign_in = entry
        now = self._now()
        if sign_in.expires_at <= now:
            return None
        if now - sign_in.seen_at > SEEN_EVERY:
            self._seen[access.credential] = address
        return access

    async def find(self, token: bytes) -> Access | None:
        """Return the access of a sign-in, read from the store; None if it has ended."""
        id = id_of_token(token)
        sign_in, account = await self._unchanged(lambda: self._read(id))
        if sign_in is None or account is None or account.body.is_disabled:
            return None
        if (entry := self._by_sign_in.get(id)) is not None and not entry[0].is_revoked:
            return entry[0]  # another request was faster
        access = Access(account.body.owner, via="sign_in", account=account.id, credential=id)
        access.proven_at = sign_in.proven_at
        self._by_sign_in[id] = access, sign_in
        self._give(access, account)
        self._keep(access)
        if len(self._by_sign_in) > MOST_KEPT:
            self._drop(next(iter(self._by_sign_in)))
        return access

    async def of_account(self, id: str) -> Access:
        """Return the access of a person whom a trusted proxy names: the same object for all requests of the person.

        `NotFound` if the account was deleted or disabled meanwhile.
        """
        account = await self._unchanged(lambda: self.accounts.get(id))
        if account is None or account.body.is_disabled:
            raise NotFound(f"There is no account {id!r}.")
        credential = f"proxy {id}"
        there = (access for access in self._by_account.get(id, ()) if access.credential == credential)
        if (access := next(there, None)) is not None:
            return access
        access = Access(account.body.owner, via="sign_in", account=id, credential=credential)
        access.proven_at = math.inf  # the proxy names the person in each request
        self._give(access, account)
        self._keep(access)
        return access

    async def is_fresh(self, access: Access) -> bool:
        """Return whether a person has proved a short time ago who it is: here, or through another node.

        A key proves it in each request.
        """
        if access.via != "sign_in":
            return True
        if self._now() - access.proven_at > FRESH and (sign_in := await self.sign_ins.get(access.credential)):
            access.proven_at = sign_in.proven_at
        return self._now() - access.proven_at <= FRESH

    async def load(self, access: Access) -> bool:
        """Read the rights of a person's key; False if the person has no rights, or if the key has just ended."""
        access.restore()
        account = await self._unchanged(lambda: self.accounts.get(access.account))
        if account is None or account.body.is_disabled or access.is_revoked:
            access.revoke()
            return False
        self._give(access, account)
        for ended in [each for each in self._by_account.get(account.id, ()) if each.is_revoked]:
            self._release(ended)  # a key that was revoked
        self._keep(access)
        return True

    def known_rights(self, owner: str) -> Access | None:
        """Return the rights of an owner's person, if they are cached for a sign-in; None if they are not."""
        account = self._account_of.get(owner)
        if account is None or self.is_stale:
            return None
        kept = self._by_account.get(account, ())
        return next((access for access in kept if access.via == "sign_in" and not access.is_revoked), None)

    def access_of(self, account: Stored[Account]) -> Access:
        """Return the current rights of an account, without a sign-in or a key."""
        access = Access(account.body.owner, via="sign_in", account=account.id)
        self._give(access, account)
        return access

    async def is_disabled(self, owner: str) -> bool:
        """Return whether the account of an owner is disabled. False for an owner without an account."""
        account = await self.accounts.of_owner(owner) if self.exist else None
        return account is not None and account.body.is_disabled

    async def _read(self, id: str) -> tuple[SignIn | None, Stored[Account] | None]:
        sign_in = await self.sign_ins.get(id)
        return sign_in, None if sign_in is None else await self.accounts.get(sign_in.account)

    async def _unchanged(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `read`. Repeat it if a change arrived meanwhile, as the result may be outdated."""
        while True:
            taken_in = self._taken_in
            found = await read()
            if taken_in == self._taken_in:
                return found

    async def catch_up(self) -> None:
        """Read the log of changes now, for a request that comes when it is outdated."""
        async with self._reading:
            if self.is_stale:
                await self._refresh()

    # changes

    async def refresh(self) -> None:
        """Apply the changes of all nodes since the last call, and write which sign-ins were used."""
        async with self._reading:
            await self._refresh()

    async def _refresh(self) -> None:
        began = time.monotonic()
        if self.changes.are_lost:
            await self.changes.skip()
            await self._start_anew()
        async for change in self.changes.read():
            await self._apply(change)
        self._read_at = began
        self._end_expired()
        await self._note_seen()

    async def _start_anew(self) -> None:
        """Read the groups and whether there are accounts. Drop all cached rights, or read again those in use."""
        self._taken_in += 1
        for id in list(self._by_sign_in):
            self._drop(id)
        self._groups = {stored.id: stored.body async for stored in self.groups.all()}
        if await self.accounts.exist():
            self._exist()
        for id in list(self._by_sign_in):
            if await self.sign_ins.get(id) is None:
                self._end(id)
        for id in list(self._by_account):
            await self._change_account(id)

    def _exist(self) -> None:
        if not self.exist:
            self.exist = True
            self._on_first()

    async def _apply(self, change: AccessChange) -> None:
        self._taken_in += 1
        if change.of == "sign_in":
            self._end(change.id)
        elif change.of == "account":
            self._exist()
            await self._change_account(change.id)
        elif change.of == "group":
            await self._change_group(change.id)

    async def _change_account(self, id: str) -> None:
        """Give the person's sign-ins and keys the current rights of the account, or end them."""
        if not (accesses := self._by_account.get(id)):
            return
        account = await self.accounts.get(id)
        for access in list(accesses):
            if account is None or account.body.is_disabled or account.body.owner != access.owner:
                self._revoke(access)
            else:
                self._give(access, account)

    async def _change_group(self, id: str) -> None:
        group = await self.groups.get(id)
        if group is None:
            self._groups.pop(id, None)
        else:
            self._groups[id] = group.body
        for account_id, accesses in list(self._by_account.items()):
            if any(id in access.groups for access in accesses):
                await self._change_account(account_id)

    def _give(self, access: Access, account: Stored[Account]) -> None:
        access.name = account.body.name
        scopes = access.scopes if access.via == "key" else KEY_SCOPES
        groups = [self._groups[id] for id in account.body.groups if id in self._groups]
        budgets = _budgets(account.body, [(id, self._groups[id]) for id in account.body.groups if id in self._groups])
        access.give(
            account.body.role,
            scopes,
            groups=account.body.groups,
            of_groups=_together(groups),
            budgets=budgets,
            lacks_factor=self._lacks_factor(access, account.body),
        )

    def _lacks_factor(self, access: Access, account: Account) -> bool:
        """Return whether a sign-in with a password alone is of a person who must have a second factor, and has none."""
        sign_in = self._by_sign_in.get(access.credential)
        is_required = self._factor_for == "all" or (self._factor_for == "admins" and account.role == "admin")
        return is_required and sign_in is not None and sign_in[1].by == "password" and account.factor is None

    def _end(self, sign_in: str) -> None:
        if (entry := self._by_sign_in.get(sign_in)) is not None:
            self._revoke(entry[0])

    def _revoke(self, access: Access) -> None:
        ended = access.revoke()
        access.give(None, access.scopes)  # the next request with a key of this person reads its rights again
        self._by_sign_in.pop(access.credential, None)
        self._release(access)
        if ended:
            logger.info("access of %s ended; closed %d open responses", access.name, ended)

    def _drop(self, sign_in: str) -> None:
        """Drop the cached rights of a sign-in, unless a stream watches it."""
        access, used = self._by_sign_in.pop(sign_in)
        if access.is_watched:
            self._by_sign_in[sign_in] = access, used
        else:
            self._release(access)

    def _keep(self, access: Access) -> None:
        self._by_account.setdefault(access.account, set()).add(access)
        self._account_of[access.owner] = access.account

    def _release(self, access: Access) -> None:
        accesses = self._by_account.get(access.account, set())
        accesses.discard(access)
        if not accesses:
            self._by_account.pop(access.account, None)
            self._account_of.pop(access.owner, None)

    def _end_expired(self) -> None:
        now = self._now()
        for access, sign_in in list(self._by_sign_in.values()):
            if sign_in.expires_at <= now:
                self._revoke(access)

    async def _note_seen(self) -> None:
        seen, self._seen = self._seen, {}
        for id, address in seen.items():
            with suppress(HoldfastError, asyncio.TimeoutError):
                sign_in = await self.sign_ins.seen(id, address)
                if sign_in is not None and (entry := self._by_sign_in.get(id)) is not None:
                    self._by_sign_in[id] = entry[0], sign_in


def _together(groups: list[AccountGroup]) -> Allowed:
    """Return the rights that several groups give together. A person in no group has all models."""
    unlimited = not groups or any(group.models is None for group in groups)
    models = None if unlimited else tuple(pattern for group in groups for pattern in group.models or ())
    return Allowed(models=models, agents=tuple(pattern for group in groups for pattern in group.agents))


def _budgets(account: Account, groups: list[tuple[str, AccountGroup]]) -> tuple[Budgeted, ...]:
    """Return the budgets of a person: the own one, completed by the `each` budgets of the groups, and the groups'."""
    own = account.budget.over(_largest([group.each for _, group in groups]))
    shared = [Budgeted("group", id, group.budget) for id, group in groups if group.budget != NO_BUDGET]
    return tuple(shared) if own == NO_BUDGET else (Budgeted("owner", account.owner, own), *shared)


def _largest(budgets: list[Budget]) -> Budget:
    """Return the largest of each limit that several groups set."""
    limits = {
        name: max((limit for each in budgets if (limit := getattr(each, name)) is not None), default=None)
        for name in Budget.__struct_fields__
    }
    return Budget(**limits)
