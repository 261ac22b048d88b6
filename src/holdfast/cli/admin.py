"""`holdfast config`, `key` and `db`: for whoever looks after the server."""

from __future__ import annotations

import asyncio
import datetime
import os
import pathlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from ..server.configured import with_saved
from ..server.keys import KeyFile
from ..server.settings import Settings, data_folder, load, load_with_sources
from ..store.opening import open_store
from ..store.sqlite import StoreInUse
from ..store.sqlite_file import migrations
from . import show
from .commands import telling

SECRET = ("api_key",)


@click.group()
def config() -> None:
    """See the settings."""


@config.command("show")
@click.option("--sources", is_flag=True, help="Say where each value comes from.")
@click.option("--host", help="As `serve` takes it.")
@click.option("--port", type=click.IntRange(0, 65535), help="As `serve` takes it.")
@click.option("--data", type=click.Path(), help="Folder for everything that is kept.")
@click.option("--config", "file", type=click.Path(), help="Settings file (holdfast.toml).")
@telling
def config_show(sources: bool, file: str | None, **flags: Any) -> None:
    """Print every setting. A flag beats the environment, then come the file, what was set since, and the default."""
    settings, given = with_saved(*load_with_sources(flags, os.environ, file))
    rows = []
    for field in msgspec.structs.fields(Settings):
        shown = _shown(field.name, getattr(settings, field.name), settings)
        rows.append((field.name, shown, *([given.get(field.name, "default")] if sources else [])))
    show.table(("setting", "value", *(["from"] if sources else [])), rows)


def _shown(name: str, value: Any, settings: Settings) -> str:
    """Return a value as text; a secret only as the fact that it is there."""
    if name in SECRET:
        return "(set)" if value else ""
    if name == "data":
        return str(data_folder(settings))
    if name == "providers":
        return ", ".join(f"{provider.name} ({provider.dialect})" for provider in settings.providers)
    if name == "keys":
        return ", ".join(key.name for key in settings.keys)
    if name == "webhooks":  # an address may hold a secret; the name of its machine does not
        return ", ".join(urlsplit(webhook.url).hostname or "" for webhook in settings.webhooks)
    if isinstance(value, dict):
        return ", ".join(f"{model} = {other}" for model, other in value.items())
    return ", ".join(value) if isinstance(value, tuple) else str(value)


@click.group()
def key() -> None:
    """Make, list and revoke keys for the server. Each key is an owner with sessions of its own."""


def _folder_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which folder is meant."""
    data = click.option("--data", type=click.Path(), help="Folder for everything that is kept.")
    return data(click.option("--config", type=click.Path(), help="Settings file (holdfast.toml).")(command))


def _folder(data: str | None, config: str | None) -> pathlib.Path:
    return data_folder(load({"data": data}, os.environ, config)).absolute()


@key.command("new")
@click.argument("name")
@click.option("--admin", is_flag=True, help="May change the settings, too.")
@_folder_options
@telling
def key_new(name: str, admin: bool, **where: Any) -> None:
    """Make a key. It is shown once, and works within a second. From the first one on, everyone needs a key."""
    made = KeyFile(_folder(**where)).new(name, admin=admin)
    click.echo(made)
    show.err.print("[dim]Keep it: it is not shown again. Clients send it as Authorization: Bearer …[/]")
    show.err.print("[dim]This command line sends what HOLDFAST_API_KEY holds.[/]")


@key.command("ls")
@_folder_options
@telling
def key_ls(**where: Any) -> None:
    """List the keys that were made here."""
    made = KeyFile(_folder(**where)).made
    if not made:
        show.err.print("[dim]No keys. `holdfast key new NAME` makes one.[/]")
    show.table(
        ("name", "made", "rights"), [(key.name, _day(key.created_at), "admin" if key.admin else "") for key in made]
    )


@key.command("revoke")
@click.argument("name")
@_folder_options
@telling
def key_revoke(name: str, **where: Any) -> None:
    """Revoke a key: it stops working within a second."""
    if not KeyFile(_folder(**where)).revoke(name):
        raise click.ClickException(f"There is no key {name!r}. `holdfast key ls` lists them.")
    click.echo(f"{name} revoked")


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")


@click.group()
def db() -> None:
    """Check, back up and migrate the database."""


def _database(data: str | None, config: str | None) -> pathlib.Path:
    path = _folder(data, config) / "holdfast.db"
    if not path.is_file():
        raise click.ClickException(f"There is no database at {path}. `holdfast serve` makes one.")
    return path


def _read_only(path: pathlib.Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True))


@db.command("check")
@_folder_options
@telling
def db_check(**where: Any) -> None:
    """Read the whole database and say whether it is sound. The server may go on meanwhile."""
    path = _database(**where)
    counts: dict[str, int] = {}
    try:
        with _read_only(path) as database:
            found = [row[0] for row in database.execute("PRAGMA integrity_check(20)")]
            for name in _TABLES:
                counts[name] = database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    if found != ["ok"]:
        raise click.ClickException(f"{path} is damaged: {'; '.join(found)}. Restore a backup (`holdfast db backup`).")
    click.echo(f"{path} is sound: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


_TABLES = ("sessions", "messages", "runs")


@db.command("backup")
@click.argument("target", type=click.Path(dir_okay=False))
@_folder_options
@telling
def db_backup(target: str, **where: Any) -> None:
    """Copy the database to a file, while the server goes on. Put back as holdfast.db, it is the database again."""
    path, copy = _database(**where), pathlib.Path(target)
    if copy.exists():
        raise click.ClickException(f"{copy} exists already. Choose another name.")
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with _read_only(path) as database, closing(sqlite3.connect(copy)) as backup:
            database.backup(backup)  # in one step: between two of them a busy server would make it begin anew
    except sqlite3.Error:
        copy.unlink()
        raise
    click.echo(f"{path} copied to {copy} ({copy.stat().st_size / 1e6:.1f} MB)")


@db.command("migrate")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@_folder_options
@telling
def db_migrate(dry_run: bool, **where: Any) -> None:
    """Bring the database up to this version, with a backup before. `holdfast serve` does the same when it starts."""
    path = _database(**where)
    with _read_only(path) as database:
        applied = {row[0] for row in database.execute("SELECT number FROM migrations")}
    due = [migration for migration in migrations() if migration.number not in applied]
    for migration in due:
        click.echo(f"{'would apply' if dry_run else 'applying'} {migration.number:04} {migration.name}")
    if not due:
        click.echo(f"{path} is up to date ({len(applied)} migrations).")
    elif not dry_run:
        _open_and_close(path)


def _open_and_close(path: pathlib.Path) -> None:
    try:
        store = open_store(f"sqlite:{path}")
    except StoreInUse as error:
        raise click.ClickException(f"{error} Stop the server first.") from None
    asyncio.run(store.close())
