"""The store of a server, for commands that change keys and accounts beside it."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from ...server.config.settings import Settings, data_folder
from ...server.features.accounts.people.accounts import Account, Accounts
from ...server.features.audit.audit import Audit, AuditNote
from ...store import Store
from ...store.documents import Stored
from ...store.opening import open_store
from ...store.sqlite.beside import SqliteBeside

T = TypeVar("T")


def beside(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    """Do a command's work with the store of the settings, which a running server may have open."""
    return asyncio.run(_done(settings, work))


def audited(settings: Settings, action: str, work: Callable[[Store, AuditNote], Awaitable[T]]) -> T:
    """Do a command's work as `beside` does, and write it to the audit log. `work` notes the id of what it changes."""
    note = AuditNote()

    async def noted(store: Store) -> T:
        return await Audit(store).by_command(action, f"os:{_user()}", note, lambda: work(store, note))

    return beside(settings, noted)


def _user() -> str:
    """Return the name of the operating system's user; its number if there is no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


async def _done(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    folder = await asyncio.to_thread(lambda: data_folder(settings).absolute())
    store = open_store(settings.store) if settings.store else SqliteBeside(folder)
    try:
        return await work(store)
    finally:
        await store.close()


async def person(store: Store, login: str) -> Stored[Account]:
    """Return an account by its name or e-mail address."""
    if (found := await Accounts(store).find(login)) is None:
        raise click.ClickException(f"No account {login!r}. See `holdfast user ls`.")
    return found
