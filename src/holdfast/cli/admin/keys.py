"""`holdfast key`: API keys for the server."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from ...errors import KeyExists
from ...server.accounts.made_keys import KeyFile, check_key_name, new_key
from ...server.config.settings import Settings, data_folder
from ...store import KeyRecord, Store
from ...store.opening import open_store
from ...store.sqlite.keys import SqliteKeys
from .. import show
from ..commands import json_option, telling
from ..lists.tables import Column, print_list, when
from .folder import folder_options, settings_of

T = TypeVar("T")


@click.group()
def key() -> None:
    """Create, list and revoke API keys for the server. Each key has its own sessions."""


class StoreKeys:
    """The keys of a store that several servers share. Each call opens it, and is one transaction."""

    def __init__(self, url: str) -> None:
        self._url = url

    def list(self) -> list[KeyRecord]:
        """Return all keys, revoked ones too."""
        return self._call(lambda store: store.list_keys())

    def add(self, key: KeyRecord) -> None:
        """Add a key."""
        self._call(lambda store: store.add_key(key))

    def revoke(self, name: str, now: float) -> KeyRecord | None:
        """Revoke the key of that name; None if no key in force has it."""
        return self._call(lambda store: store.revoke_key(name, now))

    def _call(self, work: Callable[[Store], Awaitable[T]]) -> T:
        store = open_store(self._url)

        async def call() -> T:
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(call())


def _keys(settings: Settings) -> SqliteKeys | StoreKeys:
    """Return the keys of the store; in a data folder, with those that an earlier version kept in a file there."""
    if settings.store:
        return StoreKeys(settings.store)
    folder = data_folder(settings).absolute()
    keys, file = SqliteKeys(folder), KeyFile(folder)
    try:
        if old := file.read():
            keys.add(*old)
    except KeyExists as error:
        raise file.is_in_the_way(error) from None
    file.put_away()
    return keys


def _in_force(keys: SqliteKeys | StoreKeys) -> list[KeyRecord]:
    return [key for key in keys.list() if key.revoked_at is None]


@key.command("new")
@click.argument("name")
@click.option("--admin", is_flag=True, help="Allow the key to change the settings.")
@folder_options
@telling
def key_new(name: str, admin: bool, **where: Any) -> None:
    """Create a key and print it once. It works within a second. After the first key, every client needs one."""
    settings = settings_of(**where)
    check_key_name(name, settings)
    made = new_key(name, admin=admin)
    _keys(settings).add(made.record)
    click.echo(made.key)
    show.note("Save this key: it cannot be shown again. Clients send it as Authorization: Bearer …")
    show.note("The command line sends the key in HOLDFAST_API_KEY.")


@key.command("ls")
@json_option
@folder_options
@telling
def key_ls(as_json: bool, **where: Any) -> None:
    """List the keys that are in force."""
    keys = _in_force(_keys(settings_of(**where)))
    if not keys:
        show.note("No keys. Create one with: holdfast key new NAME")
    rows = [(key.name, when(_iso(key.created_at)), "admin" if key.admin else "") for key in keys]
    listed = [{"name": key.name, "created_at": _iso(key.created_at), "admin": key.admin} for key in keys]
    print_list((Column("name"), Column("created"), Column("rights")), rows, json=listed if as_json else None)


@key.command("revoke")
@click.argument("name")
@folder_options
@telling
def key_revoke(name: str, **where: Any) -> None:
    """Revoke a key. It stops working within a second, and its open requests end."""
    settings = settings_of(**where)
    keys = _keys(settings)
    if keys.revoke(name, time.time()) is None:
        raise click.ClickException(f"No key {name!r}. See `holdfast key ls`.")
    click.echo(f"Revoked {name}.")
    if not _in_force(keys) and not settings.keys and not settings.api_key:
        show.note(
            "Warning: that was the last key. The running server now refuses every client. A server that is started "
            "without keys accepts everyone on this machine. Create a key with: holdfast key new NAME",
            "yellow",
        )


def _iso(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
