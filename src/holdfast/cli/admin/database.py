"""`holdfast db`: check, copy and migrate the database."""

from __future__ import annotations

import asyncio
import pathlib
import sqlite3
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import click

from ...store.opening import open_store, pending_steps
from ...store.opening.copying import copy_store
from ...store.place import without_password
from ...store.rows.structs import DECODERS
from ...store.rows.tables import MISCOUNTED, TABLES
from ...store.sqlite import StoreInUse
from .. import show
from ..commands import one_line_errors
from .folder import copy_database, database_of, folder_options, read_only, settings_of

_TABLES = ("sessions", "messages", "runs")


@click.group()
def db() -> None:
    """Check, copy and migrate the database."""


@db.command("check")
@folder_options
def db_check(**where: Any) -> None:
    """Read the whole database and report damage. The server may keep running."""
    path = database_of(**where)
    counts: dict[str, int] = {}
    miscounted: list[tuple[str, int, int]] = []
    try:
        with read_only(path) as database:
            found = [row[0] for row in database.execute("PRAGMA integrity_check(20)")]
            for name in _TABLES:
                counts[name] = database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            if found == ["ok"] and (unreadable := list(islice(_unreadable(database), 20))):
                found = [f"unreadable: {', '.join(unreadable)}"]
            if found == ["ok"]:
                miscounted = database.execute(MISCOUNTED).fetchall()
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    if found != ["ok"]:
        raise click.ClickException(f"{path} is damaged: {'; '.join(found)}. Restore a backup (`holdfast restore`).")
    if miscounted:
        wrong = (f"counted {counted} bytes of {owner}, and stored {found}" for owner, counted, found in miscounted)
        raise click.ClickException(f"{path}: {'; '.join(wrong)}. A copy (`holdfast copy`) counts anew.")
    click.echo(f"{path}: OK, " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def _unreadable(database: sqlite3.Connection) -> Iterator[str]:
    """Yield the rows with a value that cannot be decoded."""
    for table in TABLES:
        decoders = DECODERS.get(table.name, {})
        keys = ["id"] if "id" in table.columns else [*table.columns[: table.keys]]
        if not decoders:
            continue
        for row in database.execute(f"SELECT {', '.join([*keys, *decoders])} FROM {table.name}"):
            for (column, decode), value in zip(decoders.items(), row[len(keys) :], strict=True):
                if value is not None and not _can_be_decoded(decode, value):
                    yield f"{table.name}.{column} of {'/'.join(map(str, row[: len(keys)]))}"


def _can_be_decoded(decode: Callable[[bytes], Any], value: bytes) -> bool:
    try:
        decode(value)
    except ValueError:  # msgspec's errors are among them
        return False
    return True


@db.command("backup")
@click.argument("target", type=click.Path(dir_okay=False))
@folder_options
def db_backup(target: str, **where: Any) -> None:
    """Copy only the database to a file. The server may keep running. See also `holdfast backup`."""
    path, copy = database_of(**where), pathlib.Path(target)
    if copy.exists():
        raise click.ClickException(f"{copy} already exists. Choose another name.")
    copy_database(path, copy)
    click.echo(f"Copied {path} to {copy} ({copy.stat().st_size / 1e6:.1f} MB).")


@db.command("migrate")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@folder_options
def db_migrate(dry_run: bool, **where: Any) -> None:
    """Upgrade the database to this version, after a copy of it. `holdfast serve` does the same.

    A database on PostgreSQL is not copied: back it up before, with pg_dump.
    """
    url = _store_of(**where)
    due = pending_steps(url)
    for step in due:
        click.echo(f"{'would apply' if dry_run else 'applying'} {step.name}")
    if not due:
        click.echo(f"{without_password(url)} is up to date.")
    elif not dry_run:
        _open_and_close(url)


def _store_of(data: str | None, config: str | None) -> str:
    """Return the URL of the store: the one of the settings, or the database of the data folder, which must exist."""
    settings = settings_of(data, config)
    return settings.store if settings.store and data is None else str(database_of(data, config))


def _open_and_close(url: str) -> None:
    try:
        store = open_store(url)
    except StoreInUse as error:
        raise click.ClickException(f"{error} Stop the server first.") from None
    asyncio.run(store.close())


@click.command("copy")
@click.argument("source")
@click.argument("target")
@one_line_errors
def copy_command(source: str, target: str) -> None:
    """Copy everything between SQLite and PostgreSQL, to a store that is empty.

    That is chats, runs, logs, documents, pictures and keys.

    SOURCE and TARGET are sqlite:FOLDER or postgresql://user@host:port/dbname. No server may use either of them
    meanwhile. A copy that was interrupted continues when the command is repeated. At the end both stores are compared.
    Not part of a store, and not copied, are the other files of the data folder: settings made in the browser, and
    folders of agents.
    """
    shown: dict[str, int] = {}

    def progress(what: str, done: int, total: int) -> None:
        tenth = done * 10 // max(total, 1)
        if shown.get(what) != tenth:
            shown[what] = tenth
            show.note(f"{what}: {done} of {total}")

    rows = asyncio.run(copy_store(source, target, progress))
    click.echo(f"Copied and compared {show.plural(rows, 'row')}.")
