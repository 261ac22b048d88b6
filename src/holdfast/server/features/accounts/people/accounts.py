"""Accounts: people with a name, a role and groups. Names and e-mail addresses are found by an index of documents."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from .....access import NO_BUDGET, AccountRole, Budget
from .....errors import BadRequest, Conflict, NotFound, OwnerTaken, StaleDocument
from .....ids import new_id
from .....store import Store
from .....store.documents import DocumentGuard, Documents, Stored
from .changes import AccessChanges

ACCOUNT_NAME_RULE = "1 to 64 letters, digits or any of . _ -"
_ACCOUNT_NAME = re.compile(r"[\w.-]{1,64}")
_EMAIL = re.compile(r"[^@\s<>\"]{1,64}@[^@\s<>\"]{1,185}")

_CYRILLIC = dict(zip("авекмнорстухіјѕһԁԛԝӏ", "abekmhopctyxijshdqwl", strict=True))
_GREEK = dict(zip("αβεζηικμνορτυχω", "abezhikmnoptyxw", strict=True))
_LOOK_ALIKE = str.maketrans({**_CYRILLIC, **_GREEK, "ı": "i", "ɑ": "a", "ɡ": "g"})
"""Letters that look like a Latin one, small or capital."""


def folded(name: str) -> str:
    """Return the form in which names are compared: without case and width, and with look-alike letters unified.

    So no account can get a name that looks like another one.
    """
    plain = unicodedata.normalize("NFKC", name.strip()).casefold()
    return unicodedata.normalize("NFKC", plain).translate(_LOOK_ALIKE)


def check_names(name: str, email: str) -> None:
    """Refuse an invalid name or e-mail address."""
    if not _ACCOUNT_NAME.fullmatch(name) or unicodedata.normalize("NFKC", name) != name:
        raise BadRequest(f"A name has {ACCOUNT_NAME_RULE}.", param="name", code="bad_name")
    if email and not (_EMAIL.fullmatch(email) and email.isprintable()):
        raise BadRequest(f"{email!r} is not an e-mail address.", param="email", code="bad_email")


class SecondFactor(msgspec.Struct, frozen=True):
    """The app of a person that shows codes."""

    sealed: str
    """The app's secret, sealed."""
    step: int
    """The time of the last code that was used: no code counts twice."""
    recovery: tuple[str, ...] = ()
    """The digests of the recovery codes that are left."""


class Passkey(msgspec.Struct, frozen=True):
    """A key pair of a person's device, of which the server has the public key."""

    id: str
    """The id of the credential, in base64url."""
    data: str
    """The credential's public data, in base64."""
    name: str
    added_at: float
    count: int = 0
    """How often the device says that it has signed; 0 if it does not count."""
    used_at: float | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A person. `owner` is the owner of the person's sessions and runs."""

    name: str
    """The name to sign in with. It is unique, even among look-alike names."""
    owner: str
    role: AccountRole = "member"
    email: str = ""
    groups: tuple[str, ...] = ()
    """Ids of groups."""
    password: str = ""
    """The hash of the password; empty if the person signs in with an identity provider, or has not set one yet."""
    is_disabled: bool = False
    subject: str = ""
    """The person's identity at an identity provider, as `issuer subject`."""
    signed_in_at: float | None = None
    factor: SecondFactor | None = None
    passkeys: tuple[Passkey, ...] = ()
    budget: Budget = NO_BUDGET


class AccountGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of people: the models and agents that they may use, and their budgets."""

    name: str
    models: tuple[str, ...] | None = None
    """Patterns of model names such as `openai/*`; None for all."""
    agents: tuple[str, ...] = ()
    """Patterns of agents whose tools write or run, which members may use only through a group."""
    budget: Budget = NO_BUDGET
    """The budget of all of its people together."""
    each: Budget = NO_BUDGET
    """The budget of each of its people without an own budget."""
    retention_days: float | None = None
    """Days for which the runs of its people outside of chats are kept, in place of the setting of that name."""
    session_days: float | None = None
    """Days for which their chats are kept, in place of the setting of that name."""


class _Of(msgspec.Struct, frozen=True):
    """An entry of the index: the account that has a name, an e-mail address or a subject."""

    account: str


MOST_FOUND = 200
"""Maximum number of accounts that a part of a name stands for."""


class NameTaken(Conflict):
    """Another account has the name or the e-mail address."""

    code = "name_taken"


AccountCheck = Callable[[Account, Account], Awaitable[None]]
"""Refuses a change, of which it gets the account before and after."""


class Accounts:
    """All accounts. Each change reaches every node, through the log of changes."""

    def __init__(
        self, store: Store, changes: AccessChanges | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self.changes = changes or AccessChanges(store, now=now)
        self._all = Documents(store, "account", Account, now=now)
        self._index = Documents(store, "account_index", _Of, now=now)
        self._one_at_a_time = DocumentGuard(store, "accounts")
        self._now = now

    async def exist(self) -> bool:
        """Return whether there is any account."""
        return bool(await self._all.page(limit=1))

    async def get(self, id: str) -> Stored[Account] | None:
        """Return an account by its id."""
        return await self._all.get(id)

    async def find(self, login: str) -> Stored[Account] | None:
        """Return an account by its name or e-mail address, in any case. Always three reads, against timing attacks."""
        name = folded(login)
        by_name, by_email = [await self._index.get(f"{kind} {name}") for kind in ("name", "email")]
        entry = by_name or by_email
        return await self._all.get("" if entry is None else entry.body.account)

    async def search(self, text: str, limit: int) -> list[Stored[Account]]:
        """Return accounts with a text in their name or e-mail address, in any case. Looks at every account."""
        part, found = folded(text), list[Stored[Account]]()
        async for stored in self._all.all():
            if any(part in folded(name) for name in (stored.body.name, stored.body.email)):
                found.append(stored)
            if len(found) == limit:
                break
        return found

    async def ids_of(self, text: str) -> tuple[str, ...]:
        """Return the ids of the accounts that a text means: the one of that name, or all with it as a part of theirs.

        Otherwise the text itself, which may be the id of an account that is gone.
        """
        if (exact := await self.find(text)) is not None:
            return (exact.id,)
        return tuple(account.id for account in await self.search(text, MOST_FOUND)) or (text,)

    async def of_owner(self, owner: str) -> Stored[Account] | None:
        """Return the account of an owner."""
        account = await self._store.account_of(owner)
        return await self._all.get(account) if account else None

    async def of_subject(self, subject: str) -> Stored[Account] | None:
        """Return the account of a person that an identity provider has recognised."""
        return await self._indexed(f"subject {subject}")

    async def page(self, *, before: str | None = None, limit: int = 50) -> list[Stored[Account]]:
        """Return accounts, the newest first. Only an empty page is the end."""
        return await self._all.page(before=before, limit=limit)

    async def add(self, account: Account) -> Stored[Account]:
        """Add an account. An empty owner becomes the account's id. `OwnerTaken` if another has the owner."""
        check_names(account.name, account.email)
        id = new_id("user")
        account = replace(account, owner=account.owner or id)
        claimed: list[str] = []
        try:
            for entry in _entries(account):
                await self._claim(entry, id)
                claimed.append(entry)
            stored = await self._all.add(id, account, lambda document: self._store.add_account(document, account.owner))
        except (NameTaken, OwnerTaken):
            await self._release(claimed, id)
            raise
        await self.changes.note("account", id)
        return stored

    async def change(
        self, id: str, change: Callable[[Account], Account], check: AccountCheck | None = None
    ) -> Stored[Account]:
        """Change an account, serialized with changes of others, which `check` may read. `NotFound` if none."""
        before: set[str] = set()
        claimed: list[str] = []

        async def changed(account: Account) -> Account:
            before.update(_entries(account))
            after = change(account)
            if check is not None:
                await check(account, after)
            check_names(after.name, after.email)
            for entry in set(_entries(after)) - set(_entries(account)) - set(claimed):
                await self._claim(entry, id)
                claimed.append(entry)
            return after

        try:
            stored = await self._all.change_alone(id, changed, among=self._one_at_a_time)
        except NameTaken:
            await self._release(set(claimed) - before, id)
            raise
        if stored is None:
            raise _no_account(id)
        await self._release((before | set(claimed)) - set(_entries(stored.body)), id)
        await self.changes.note("account", id)
        return stored

    async def signed_in(self, id: str) -> None:
        """Record that a person has signed in. This changes no rights."""
        await self.change_quietly(id, lambda account: replace(account, signed_in_at=self._now()))

    async def change_quietly(self, id: str, change: Callable[[Account], Account]) -> None:
        """Change something that is no right and no name, such as which code was used last."""
        await self._all.change(id, change)

    async def delete(self, id: str) -> None:
        """Delete an account and its index entries. The caller deletes the data of its owner."""
        if (known := await self._all.get(id)) is None:
            raise _no_account(id)
        await self._store.release_owner(known.body.owner)
        await self._all.delete(id)
        await self._release(_entries(known.body), id)
        await self.changes.note("account", id)

    async def _indexed(self, entry: str) -> Stored[Account] | None:
        found = await self._index.get(entry)
        return None if found is None else await self._all.get(found.body.account)

    async def _claim(self, entry: str, id: str) -> None:
        """Take a name for an account. A name of an account that was never completely added is free."""
        stored = await self._index.get_or_create(entry, _Of(id))
        if stored.body.account == id:
            return
        if await self._all.get(stored.body.account) is None and self._now() - stored.created_at >= _BEING_ADDED:
            with suppress(StaleDocument):
                await self._index.put(entry, _Of(id), version=stored.version)
                return
        kind, _, taken = entry.partition(" ")
        raise NameTaken(f"Another account has the {_SHOWN.get(kind, kind)} {taken!r}.")

    async def _release(self, entries: Iterable[str], id: str) -> None:
        """Give up names of an account, unless another account has taken them meanwhile."""
        for entry in entries:
            await self._index.change_or_delete(entry, lambda of: None if of.account == id else of)


_BEING_ADDED = 60.0  # timeout of adding an account, in seconds
_SHOWN = {"email": "e-mail address", "subject": "identity"}


def _no_account(id: str) -> NotFound:
    return NotFound(f"There is no account {id!r}.")


def _entries(account: Account) -> list[str]:
    """Return the index entries of an account. A name and an e-mail address can never be the same text."""
    entries = [f"name {folded(account.name)}"]
    entries += [f"email {folded(account.email)}"] if account.email else []
    return entries + ([f"subject {account.subject}"] if account.subject else [])
