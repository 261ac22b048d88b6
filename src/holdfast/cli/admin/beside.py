"""The store of a server, for commands that change keys and accounts beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import click

from ...errors import KeyExists
from ...server.accounts.made_keys import KeyFile
from ...server.accounts.people.accounts import Account, Accounts
from ...server.config.settings import Settings, data_folder
from ...store import KeyDetails, KeyRecord
from ...store.documents import DocumentStore, Stored
from ...store.opening import open_store
from ...store.sqlite.beside import SqliteBeside

T = TypeVar("T")


class KeysBeside(DocumentStore, Protocol):
    """What a command needs of a store."""

    async def list_keys(self) -> Sequence[KeyRecord]:
        """Return all keys."""
        ...

    async def add_key(self, key: KeyRecord) -> KeyRecord:
        """Add a key."""
        ...

    async def change_key(self, id: str, details: KeyDetails) -> KeyRecord | None:
        """Change what a key is limited to."""
        ...

    async def revoke_key(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key."""
        ...


def beside(settings: Settings, work: Callable[[KeysBeside], Awaitable[T]]) -> T:
    """Do a command's work with the store of the settings, which a running server may have open."""
    return asyncio.run(_with_database(settings.store, work) if settings.store else _with_folder(settings, work))


async def _with_database(url: str, work: Callable[[KeysBeside], Awaitable[T]]) -> T:
    store = open_store(url)
    try:
        return await work(store)
    finally:
        await store.close()


async def _with_folder(settings: Settings, work: Callable[[KeysBeside], Awaitable[T]]) -> T:
    """Do the work in a data folder, after moving the keys that an earlier version kept in a file there."""
    folder = await asyncio.to_thread(lambda: data_folder(settings).absolute())
    store = SqliteBeside(folder)
    await asyncio.to_thread(_move, KeyFile(folder), store)
    return await work(store)


def _move(file: KeyFile, store: SqliteBeside) -> None:
    try:
        if old := file.read():
            store.add(*old)
    except KeyExists as error:
        raise file.is_in_the_way(error) from None
    file.put_away()


async def person(store: DocumentStore, login: str) -> Stored[Account]:
    """Return an account by its name or e-mail address."""
    if (found := await Accounts(store).find(login)) is None:
        raise click.ClickException(f"No account {login!r}. See `holdfast user ls`.")
    return found
