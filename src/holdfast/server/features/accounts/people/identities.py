"""Identities: people whom an identity provider or a trusted proxy has recognised, and their accounts."""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from .....access import AccountRole
from .....errors import HoldfastError
from .....store.documents import Stored
from ....config.sign_in_settings import IdentityRules
from .accounts import Account, NameTaken
from .people import LastAdmin, People

_HIGHEST: tuple[AccountRole, ...] = ("admin", "member", "guest")
_OTHER_NAMES = 50
"""Maximum number of suffixes that are tried if another account has the name."""


class NoAccount(HoldfastError):
    """The person was recognised, but has no usable account here."""

    code = "no_account"
    status = 403
    type = "permission_error"
    message = "You have no account on this server. Ask an admin for one."


class NoIdentity(HoldfastError):
    """Another system has named a person by nothing: it has recognised nobody."""

    code = "unauthorized"
    status = 401
    type = "authentication_error"
    message = "The proxy or the identity provider did not say who you are. Sign in there first."


class Identity(msgspec.Struct, frozen=True):
    """A person in another system. `id` never changes there, and is never given to another person."""

    issuer: str
    """The system: the URL of an identity provider, or `proxy`."""
    id: str
    name: str
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an empty id: it would be one person for all who are not recognised."""
        if not self.id.strip():
            raise NoIdentity

    @property
    def subject(self) -> str:
        """What an account is linked to: system and id."""
        return f"{self.issuer} {self.id}"


class Identities:
    """Finds the account of an identity, by its subject only: names and e-mail addresses can be chosen by others."""

    def __init__(self, people: People, rules: IdentityRules) -> None:
        self._people = people
        self._rules = rules

    async def account_of(self, identity: Identity) -> Stored[Account]:
        """Return the account of an identity, with its current role and groups. `NoAccount` if there is none."""
        account = await self._people.accounts.of_subject(identity.subject) or await self._add(identity)
        if account.body.is_disabled:
            raise NoAccount
        role, groups = self.role_of(identity, account.body.role), await self._groups_of(identity, account.body.groups)
        if (role, set(groups)) == (account.body.role, set(account.body.groups)):
            return account
        try:
            return await self._people.change(account.id, lambda body: replace(body, role=role, groups=groups))
        except LastAdmin:
            return account  # the last admin keeps the role

    def role_of(self, identity: Identity, now: AccountRole) -> AccountRole:
        """Return the highest role of an identity's groups. Without one, a role that a group can give is lost."""
        given = {self._rules.roles[group] for group in identity.groups if group in self._rules.roles}
        if not given and now in self._rules.roles.values():
            return max(now, self._rules.create or "member", key=_HIGHEST.index)
        return next((role for role in _HIGHEST if role in given), now)

    async def _groups_of(self, identity: Identity, now: tuple[str, ...]) -> tuple[str, ...]:
        """Return the groups of an account: groups that the rules name follow the identity, others stay."""
        if not self._rules.groups:
            return now
        ids = {stored.body.name: stored.id async for stored in self._people.callers.groups.all()}
        ruled = {ids[name] for name in self._rules.groups.values() if name in ids}
        has = {self._rules.groups[group] for group in identity.groups if group in self._rules.groups}
        kept = [id for id in now if id not in ruled]
        return (*kept, *sorted(ids[name] for name in has if name in ids))

    async def _add(self, identity: Identity) -> Stored[Account]:
        if self._rules.create is None:
            raise NoAccount
        name = re.sub(r"[^\w.-]+", "-", identity.name, flags=re.ASCII).strip("-")[:56] or "person"
        role = self.role_of(identity, self._rules.create)
        for number in range(1, _OTHER_NAMES):
            other = name if number == 1 else f"{name}-{number}"
            try:
                return await self._people.add(Account(name=other, role=role, subject=identity.subject, owner=""))
            except NameTaken:
                if (there := await self._people.accounts.of_subject(identity.subject)) is not None:
                    return there  # another request was faster
        raise NoAccount
