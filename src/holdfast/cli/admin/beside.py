"""The store of a server, for commands that change keys and accounts beside it."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import click

from ...server.config.settings import Settings, data_folder
from ...server.features.accounts.people.accounts import Account, Accounts
from ...server.features.audit.audit import Audit, AuditNote
from ...server.features.data.archive import ArchivedStore
from ...server.features.data.bringing_in import ImportStore
from ...store import KeyDetails, KeyRecord
from ...store.documents import AccountStore, Stored
from ...store.opening import open_store
from ...store.people.audit import AuditLog
from ...store.sqlite.beside import SqliteBeside

T = TypeVar("T")


class KeysBeside(AccountStore, AuditLog, ArchivedStore, ImportStore, Protocol):
    """The methods of a store that these commands need."""

    async def list_keys(self) -> Sequence[KeyRecord]:
        """Return all keys."""
        ...

    async def add_key(self, key: KeyRecord) -> KeyRecord:
        """Add a key."""
        ...

    async def change_key(self, id: str, details: KeyDetails) -> KeyRecord | None:
        """Change the limits of a key."""
        ...

    async def revoke_key(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key."""
        ...


def beside(settings: Settings, work: Callable[[KeysBeside], Awaitable[T]]) -> T:
    """Do a command's work with the store of the settings, which a running server may have open."""
    return asyncio.run(_with_database(settings.store, work) if settings.store else _with_folder(settings, work))


def audited(settings: Settings, action: str, work: Callable[[KeysBeside, AuditNote], Awaitable[T]]) -> T:
    """Do a command's work as `beside` does, and write it to the audit log. `work` notes the id of what it changes."""
    note = AuditNote()

    async def noted(store: KeysBeside) -> T:
        return await Audit(store).by_command(action, f"os:{_user()}", note, lambda: work(store, note))

    return beside(settings, noted)


def _user() -> str:
    """Return the name of the operating system's user; its number if there is no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


async def _with_database(url: str, work: Callable[[KeysBeside], Awaitable[T]]) -> T:
    store = open_store(url)
    try:
        return await work(store)
    finally:
        await store.close()


async def _with_folder(settings: Settings, work: Callable[[KeysBeside], Awaitable[T]]) -> T:
    """Do the work in a data folder."""
    folder = await asyncio.to_thread(lambda: data_folder(settings).absolute())
    return await work(SqliteBeside(folder))


async def person(store: AccountStore, login: str) -> Stored[Account]:
    """Return an account by its name or e-mail address."""
    if (found := await Accounts(store).find(login)) is None:
        raise click.ClickException(f"No account {login!r}. See `holdfast user ls`.")
    return found
