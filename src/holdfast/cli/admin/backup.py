"""`holdfast backup` and `restore`: everything that a server keeps, in one file.

The file is a tar archive, readable by its owner only, since it holds API keys. `data/` has the files of the data
folder: the database with chats, runs and keys, the settings made in the browser, and the folders of agents. Left out
are locks, sockets, copies of the database, and model weights. `holdfast.toml` is the settings file.
"""

from __future__ import annotations

import io
import os
import pathlib
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from ...server.config.settings_file import NAME, choose, config_folder
from ...store.folder import check_folder, make_folder, open_file
from .. import show
from ..commands import telling
from .folder import copy_database, database_of, folder_of, folder_options

DATABASE = "holdfast.db"
DATA = "data/"
LEFT_OUT = ("holdfast.db-wal", "holdfast.db-shm", "holdfast.db.lock", "holdfast.sock", "models")
BEFORE = "holdfast.db.before-"
"""Prefix of the copies that migrations make."""


@click.command()
@click.argument("target", type=click.Path(dir_okay=False))
@folder_options
@telling
def backup(target: str, **where: Any) -> None:
    """Write chats, runs, keys, settings and agents' files to one file. The server may keep running.

    The file holds API keys: store it as you would store them. `holdfast restore` reads it.
    """
    path, archive = database_of(**where), pathlib.Path(target)
    if archive.exists():
        raise click.ClickException(f"{archive} already exists. Choose another name.")
    settings_file = choose(os.environ, where["config"]).path
    try:
        with (
            os.fdopen(os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz") as tar,
        ):
            count = _write(tar, path, settings_file)
            file.flush()
    except BaseException:
        archive.unlink(missing_ok=True)
        raise
    click.echo(
        f"Backed up {path.parent} to {archive} ({show.plural(count, 'file')}, {archive.stat().st_size / 1e6:.1f} MB)."
    )


def _write(tar: tarfile.TarFile, database: pathlib.Path, settings_file: pathlib.Path | None) -> int:
    """Add the database first, then all other files. Return the number of files."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:  # with mode 0700
        copy = pathlib.Path(folder) / DATABASE
        copy_database(database, copy)
        tar.add(copy, DATA + DATABASE)
    count = 1
    for file in _files(database.parent):
        try:
            tar.add(file, DATA + str(file.relative_to(database.parent)), recursive=False)
            count += file.is_file()
        except FileNotFoundError:
            continue  # deleted meanwhile
    if settings_file is not None:
        tar.add(settings_file.resolve(), NAME)
        count += 1
    return count


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Return the files and folders to back up, without links and sockets."""
    for file in sorted(folder.iterdir()):
        if file.name == DATABASE or file.name in LEFT_OUT or file.name.startswith(BEFORE) or file.is_symlink():
            continue
        if file.is_file():
            yield file
        elif file.is_dir():
            yield from (below for below in (file, *sorted(file.rglob("*"))) if below.is_file() or below.is_dir())


@click.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False))
@folder_options
@telling
def restore(source: str, **where: Any) -> None:
    """Restore a file that `holdfast backup` wrote, into a data folder without a database.

    A backup contains the keys of its day. Revoke again the keys that were revoked since.
    """
    folder = folder_of(**where)
    if (folder / DATABASE).exists():
        raise click.ClickException(
            f"{folder} already has a database. Move it away, or choose another folder with --data."
        )
    try:
        with tarfile.open(source, "r:gz") as tar:
            members = _checked(tar)
            make_folder(folder)
            check_folder(folder, guest=True)
            count = _extract(tar, members, folder)
            _settings_file(tar, members, where["config"], source)
    except (tarfile.TarError, EOFError) as error:
        raise click.ClickException(f"{source} is not a backup, or is damaged: {error}") from None
    _check_database(folder / DATABASE)
    click.echo(
        f"Restored {show.plural(count, 'file')} to {folder}. Start the server with: holdfast serve --data {folder}"
    )


def _checked(tar: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """Return the members by name. Raise an error if the file is not from `holdfast backup`."""
    members = {member.name: member for member in tar.getmembers()}
    for name, member in members.items():
        parts = pathlib.PurePosixPath(name).parts
        is_ours = name == NAME or (len(parts) > 1 and parts[0] == "data" and ".." not in parts)
        if not is_ours or name.startswith("/") or not (member.isreg() or member.isdir()):
            raise tarfile.TarError(f"unexpected entry {name!r}")
    if DATA + DATABASE not in members:
        raise tarfile.TarError("it has no database")
    return members


def _extract(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], folder: pathlib.Path) -> int:
    """Write every file of the data folder. The database is last: without one the folder is not in use."""
    inside = [member for name, member in members.items() if name.startswith(DATA) and member.isreg()]
    files = {folder / member.name.removeprefix(DATA): member for member in inside}
    if there := [str(place) for place in files if place.exists()]:
        raise click.ClickException(f"{there[0]} already exists. Move it away, or choose another folder with --data.")
    for place, member in sorted(files.items(), key=lambda pair: pair[0].name == DATABASE):
        if place.parent != folder:
            make_folder(place.parent)
        reading = tar.extractfile(member) or io.BytesIO()
        with os.fdopen(open_file(place, os.O_WRONLY | os.O_EXCL), "wb") as file:
            while data := reading.read(1 << 20):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if member.mode & 0o100 and os.name == "posix":
            place.chmod(0o700)
    return len(files)


def _settings_file(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], named: str | None, source: str) -> None:
    """Write the settings file, unless one exists."""
    if NAME not in members:
        return
    content = (tar.extractfile(members[NAME]) or io.BytesIO()).read()
    place = pathlib.Path(named) if named else config_folder(os.environ) / NAME
    if not place.exists():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        click.echo(f"Restored the settings file to {place}.")
    elif place.read_bytes() != content:
        show.note(f"{place} differs from the one in the backup, and was kept. Show that with: tar -xOf {source} {NAME}")


def _check_database(path: pathlib.Path) -> None:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        path.unlink()
        raise click.ClickException(f"The database in the backup is damaged: {found}. Restore another backup.")
