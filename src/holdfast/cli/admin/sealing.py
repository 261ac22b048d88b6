"""`holdfast secrets`: the keys that encrypt stored secrets, their rotation, and their loss."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from ...server.config.settings import Settings, data_folder
from ...server.features.data.resealing import reseal_store
from ...server.live.saved_settings import KeptSettings, SavedFile, saved_file, what_is_sealed
from ...server.live.shared_settings import SavedDocument
from ...server.secrets.key_sources import SecretKeyFile, SecretKeys, given_keys, new_secret_key
from ...server.secrets.sealer import Sealer
from ...store.opening import open_store
from .. import show
from .beside import beside
from .folder import folder_options, settings_of

T = TypeVar("T")


@click.group()
def secrets() -> None:
    """Manage the encryption of stored provider keys.

    Stored secrets are the keys of providers that were set in the browser, the accounts at MCP servers, the key for push
    messages, and the secrets of second factors, signed triggers and people's webhooks. The key is HOLDFAST_SECRET_KEY,
    or the file HOLDFAST_SECRET_KEY_FILE, or with a shared store HOLDFAST_CLUSTER_KEY, else secret.key in the data
    folder.
    """


@secrets.command("rotate")
@folder_options
def secrets_rotate(**where: Any) -> None:
    """Encrypt all stored secrets with another key. Servers may keep running.

    If the key is in the data folder, this creates a new one, and deletes the old one when it is no longer needed. A key
    of your own is yours to change: put the new one before the old one, restart every server, run this command, then
    remove the old one.
    """
    settings = settings_of(**where)
    if settings.store:
        changed = _in_store(settings, lambda saved: saved.reseal())
        changed = _reseal_stored(settings, SecretKeys(settings, None)) or changed
        click.echo(_result(changed, "Remove the old key from the settings of every server."))
    elif given_keys(settings):
        changed = saved_file(settings, os.environ).reseal()
        changed = _reseal_stored(settings, SecretKeys(settings, data_folder(settings).absolute())) or changed
        click.echo(_result(changed, "Remove the old key from the settings."))
    else:
        _rotate_file(settings)


def _rotate_file(settings: Settings) -> None:
    """Make a new key, seal everything with it, and delete the old key."""
    file, saved = SecretKeyFile(data_folder(settings).absolute()), saved_file(settings, os.environ)
    old = file.read()
    if not old:
        raise click.ClickException(f"There is no {file.path}: nothing is encrypted yet.")
    saved.read()  # refuse before any change if it cannot be opened
    new = new_secret_key()
    file.replace([new, *old])
    saved.reseal()
    _reseal_stored(settings, SecretKeys(settings, data_folder(settings).absolute()))
    file.replace([new])
    saved.read()
    click.echo(f"Encrypted with a new key: {file.path}. Replace your copy of the key: the old one opens nothing.")


def _reseal_stored(settings: Settings, keys: SecretKeys) -> bool:
    return beside(settings, lambda store: reseal_store(store, Sealer(keys)))


def _result(changed: bool, then: str) -> str:
    return f"Encrypted with the first key. {then}" if changed else f"Nothing is encrypted with an old key. {then}"


@secrets.command("reset")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@folder_options
def secrets_reset(yes: bool, **where: Any) -> None:
    """Delete the encrypted secrets, if their key is lost. Chats, runs, API keys and all other settings stay.

    Enter the providers and their keys again afterwards.
    """
    settings = settings_of(**where)
    file = None if settings.store else saved_file(settings, os.environ)
    kept = _in_store(settings, lambda saved: saved.sealed()) if file is None else file.kept()
    if kept is None or not kept.sealed:
        click.echo("Nothing is encrypted, so there is nothing to delete.")
        return
    if not yes:
        click.confirm(f"This deletes {what_is_sealed(kept)}. Continue?", abort=True)
    _give_up(settings, file, kept)


def _give_up(settings: Settings, file: SavedFile | None, kept: KeptSettings) -> None:
    if file is None:
        _in_store(settings, lambda saved: saved.reset())
        click.echo(f"Deleted {what_is_sealed(kept)}. The servers go on without them within a second.")
        return
    aside = file.put_away()
    click.echo(f"Deleted: {what_is_sealed(kept)}. Restart the server, and enter them again.")
    show.note(f"If the key turns up, stop the server and rename {aside} to {file.path}.")


def _in_store(settings: Settings, work: Callable[[SavedDocument], Awaitable[T]]) -> T:
    """Work on the settings in the store that servers share."""
    store = open_store(settings.store)

    async def call() -> T:
        try:
            return await work(SavedDocument(store, Sealer(SecretKeys(settings, None))))
        finally:
            await store.close()

    return asyncio.run(call())
