"""The data folder of the operator's commands."""

from __future__ import annotations

import os
import pathlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import click

from ...server.config.settings import Settings, data_folder, load
from ...store.place import without_password
from .. import show
from ..commands import one_line_errors, settings_file_in_use

_PAGES = 4096  # of the database, copied in one step


def folder_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the data folder. Expected errors are shown in one line."""
    config = click.option("--config", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml).")
    return click.option("--data", type=click.Path(), help="Data folder.")(config(one_line_errors(command)))


def settings_of(data: str | None, config: str | None) -> Settings:
    """Return the settings. Without `--data`, the folder comes from the settings file."""
    settings_file_in_use(config, also_unused=data is None)
    return load({"data": data}, os.environ, config)


def folder_of(data: str | None, config: str | None) -> pathlib.Path:
    """Return the data folder, which contains the database."""
    settings = settings_of(data, config)
    if settings.store and data is None:
        raise click.ClickException(
            f"The store is {without_password(settings.store)}, and this command works on SQLite. Use PostgreSQL's own "
            "tools: pg_dump and pg_restore for backups, pg_amcheck for a check. Or copy it to a data folder with "
            "`holdfast copy`. To work on a data folder all the same, name it with --data."
        )
    return data_folder(settings).absolute()


def database_of(data: str | None, config: str | None) -> pathlib.Path:
    """Return the database of the data folder, which must exist."""
    path = folder_of(data, config) / "holdfast.db"
    if not path.is_file():
        raise click.ClickException(f"No database at {path}. `holdfast serve` creates it.")
    return path


def read_only(path: pathlib.Path) -> closing[sqlite3.Connection]:
    """Open a database that a server may be writing to."""
    return closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True))


def copy_database(path: pathlib.Path, copy: pathlib.Path) -> None:
    """Copy a database to a new file. A server may be using it.

    All steps read in one transaction: else the copy would start again whenever a server writes between two of them.
    """
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with read_only(path) as database, closing(sqlite3.connect(copy)) as backup:
            database.execute("BEGIN")
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the transaction begins with a read
            (size,) = database.execute("PRAGMA page_size").fetchone()
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            with show.Progress("copying the database", pages * size) as progress:
                database.backup(
                    backup, pages=_PAGES, progress=lambda _, left, total: progress.at((total - left) * size)
                )
    except BaseException:
        copy.unlink()
        raise
