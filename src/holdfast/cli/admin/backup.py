"""`holdfast backup` and `restore`: everything that a server keeps, in one file.

The file is a tar archive, readable by its owner only, since it holds chats. `data/` has the files of the data
folder: the database with chats, runs and keys, the settings made in the browser, and the folders of agents. Left out
are locks, sockets, copies of the database, model weights, and the key that encrypts the secrets among these files.
`holdfast.toml` is the settings file. `SHA256SUMS`, the last entry, has the digest of every other file. A backup is read
back before it gets its name, so that a file with that name is complete.
"""

from __future__ import annotations

import hashlib
import io
import os
import pathlib
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import closing
from typing import IO, Any

import click

from ...errors import HoldfastError
from ...server.config.saved_settings import saved_file
from ...server.config.settings import load
from ...server.config.settings_file import NAME, choose, config_folder
from ...server.secrets.key_sources import KEY_FILE, SecretKeyFile
from ...store.folder import check_folder, make_folder, open_file
from .. import show
from ..commands import one_line_errors
from .folder import copy_database, database_of, folder_of, folder_options

DATABASE = "holdfast.db"
DATA = "data/"
SUMS = "SHA256SUMS"
LONGEST_LIST = 64_000_000
"""Maximum size in bytes of the list of digests and of the settings file: they are read as a whole."""
LEFT_OUT = ("holdfast.db-wal", "holdfast.db-shm", "holdfast.db.lock", "holdfast.sock", "models")
PARTIAL = ("holdfast.db.before-", f"{KEY_FILE}.")
"""Prefixes of the copies that migrations make, and of a key file that was not finished."""


@click.command()
@click.argument("target", type=click.Path(dir_okay=False))
@click.option("--with-secret-key", is_flag=True, help="Include the key that encrypts providers' keys (secret.key).")
@folder_options
@one_line_errors
def backup(target: str, with_secret_key: bool, **where: Any) -> None:
    """Write chats, runs, keys, settings and agents' files to one file. The server may keep running.

    Keys of providers are encrypted in it, and the key for that, secret.key, is left out: keep a copy of it elsewhere.
    The settings file is included as it is. The backup is read back and compared with what was written. `holdfast
    restore` reads it.
    """
    path, archive = database_of(**where), pathlib.Path(target)
    if archive.exists():
        raise click.ClickException(f"{archive} already exists. Choose another name.")
    settings_file = choose(os.environ, where["config"]).path
    part = archive.absolute().with_name(archive.name + ".part")
    part.unlink(missing_ok=True)  # left by a backup that was killed
    try:
        _write(part, path, settings_file, () if with_secret_key else (KEY_FILE,))
        count = _read_back(part)
        part.rename(archive)
    except tarfile.TarError as error:
        raise click.ClickException(f"{archive} could not be read back: {error}. Try again on another disk.") from None
    finally:
        part.unlink(missing_ok=True)
    size = archive.stat().st_size / 1e6
    click.echo(f"Backed up {path.parent} to {archive} ({show.plural(count, 'file')}, {size:.1f} MB), and read it back.")
    secret = SecretKeyFile(path.parent).path
    if secret.exists() and not with_secret_key:
        show.note(f"{secret} is not in it. Keep a copy elsewhere: without it, keys of providers cannot be restored.")


def _write(
    part: pathlib.Path, database: pathlib.Path, settings_file: pathlib.Path | None, without: Collection[str]
) -> None:
    """Write the archive, for its owner only, and wait for the disk."""
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz") as tar:
            _fill(tar, database, settings_file, part.parent, without)
        file.flush()
        os.fsync(file.fileno())


def _fill(
    tar: tarfile.TarFile,
    database: pathlib.Path,
    settings_file: pathlib.Path | None,
    beside: pathlib.Path,
    without: Collection[str],
) -> None:
    """Add the database first, by a copy beside the archive, then all other files, and the digests of all."""
    sums: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix=".holdfast-", dir=beside) as folder:  # with mode 0700
        copy = pathlib.Path(folder) / DATABASE
        copy_database(database, copy)
        if (damage := _damage(copy)) is not None:
            raise click.ClickException(
                f"{database} is damaged: {damage}. Restore an older backup (`holdfast restore`)."
            )
        sums[DATA + DATABASE] = _add(tar, copy, DATA + DATABASE)
    for file in _files(database.parent, {*LEFT_OUT, *without}):
        name = DATA + str(file.relative_to(database.parent))
        try:
            if file.is_dir():
                tar.add(file, name, recursive=False)
            else:
                sums[name] = _add(tar, file, name)
        except FileNotFoundError:
            continue  # deleted meanwhile
    if settings_file is not None:
        sums[NAME] = _add(tar, settings_file.resolve(), NAME)
    listed = "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
    info = tarfile.TarInfo(SUMS)
    info.size = len(listed)
    tar.addfile(info, io.BytesIO(listed))


class _Digesting:
    """A file that is read once, and the digest of the bytes read so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read on."""
        data = self._file.read(size)
        self._hash.update(data)
        return data

    @property
    def digest(self) -> str:
        """SHA-256 in hex."""
        return self._hash.hexdigest()


def _add(tar: tarfile.TarFile, file: pathlib.Path, name: str) -> str:
    """Add a file, and return the digest of the added bytes."""
    with file.open("rb") as opened:
        reading = _Digesting(opened)
        tar.addfile(tar.gettarinfo(arcname=name, fileobj=opened), reading)
    return reading.digest


def _read_back(archive: pathlib.Path) -> int:
    """Read every file of a backup and compare it with its digest. Return the number of files."""
    with tarfile.open(archive, "r:gz") as tar:
        members = _checked(tar)
        found = {name: _digest(tar, member) for name, member in members.items() if member.isreg() and name != SUMS}
        if SUMS not in members:
            return len(found)  # written before there were digests; gzip's own checksum was right
        listed = _content(tar, members[SUMS]).decode("utf-8", "replace").splitlines()
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in listed)}
    if wrong := sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)):
        raise tarfile.TarError(f"{wrong[0]} is not what was backed up")
    return len(found)


def _digest(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    reading = _Digesting(tar.extractfile(member) or io.BytesIO())
    while reading.read(1 << 20):
        pass
    return reading.digest


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    return (tar.extractfile(member) or io.BytesIO()).read()


def _files(folder: pathlib.Path, left_out: Collection[str]) -> Iterator[pathlib.Path]:
    """Return the files and folders to back up, without links and sockets."""
    for file in sorted(folder.iterdir()):
        if file.name == DATABASE or file.name in left_out or file.name.startswith(PARTIAL) or file.is_symlink():
            continue
        if file.is_file():
            yield file
        elif file.is_dir():
            yield from (below for below in (file, *sorted(file.rglob("*"))) if below.is_file() or below.is_dir())


@click.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only read the whole file and compare it with its digests.")
@folder_options
@one_line_errors
def restore(source: str, dry_run: bool, **where: Any) -> None:
    """Restore a file that `holdfast backup` wrote, into a data folder without a database.

    A backup contains the keys of its day. Revoke again the keys that were revoked since.
    """
    try:
        count = _read_back(pathlib.Path(source))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise click.ClickException(f"{source} is not a backup, or is damaged: {error}") from None
    if dry_run:
        click.echo(f"{source} is complete: {show.plural(count, 'file')}.")
        return
    folder = folder_of(**where)
    if (folder / DATABASE).exists():
        raise click.ClickException(
            f"{folder} already has a database. Move it away, or choose another folder with --data."
        )
    with tarfile.open(source, "r:gz") as tar:
        members = _checked(tar)
        make_folder(folder)
        check_folder(folder, guest=True)
        count = _extract(tar, members, folder)
        _settings_file(tar, members, where["config"], source)
    _check_database(folder / DATABASE)
    _check_secrets(folder, where["config"])
    click.echo(
        f"Restored {show.plural(count, 'file')} to {folder}. Start the server with: holdfast serve --data {folder}"
    )


def _checked(tar: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """Return the members by name. Raise an error if the file is not from `holdfast backup`."""
    members = {member.name: member for member in tar.getmembers()}
    for name, member in members.items():
        path = pathlib.PurePosixPath(name)
        is_inside = name.startswith(DATA) and ".." not in path.parts and str(path) == name  # `data//etc` is /etc
        if not (is_inside or name in (NAME, SUMS)) or not (member.isreg() or member.isdir()):
            raise tarfile.TarError(f"unexpected entry {name!r}")
        if name in (NAME, SUMS) and member.size > LONGEST_LIST:
            raise tarfile.TarError(f"{name} is too large")
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
    content = _content(tar, members[NAME])
    place = pathlib.Path(named) if named else config_folder(os.environ) / NAME
    if not place.exists():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        click.echo(f"Restored the settings file to {place}.")
    elif place.read_bytes() != content:
        show.note(f"{place} differs from the one in the backup, and was kept. Show that with: tar -xOf {source} {NAME}")


def _check_database(path: pathlib.Path) -> None:
    if (damage := _damage(path)) is not None:
        path.unlink()
        raise click.ClickException(f"The database in the backup is damaged: {damage}. Restore another backup.")


def _check_secrets(folder: pathlib.Path, config: str | None) -> None:
    """Print a note if the restored secrets cannot be decrypted."""
    try:
        saved_file(load({"data": str(folder)}, os.environ, config), os.environ).read()
    except HoldfastError as error:
        show.note(f"Before the server starts: {error}", "yellow")


def _damage(path: pathlib.Path) -> str | None:
    """Return the damage of a database that no server uses; None if there is none."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            found = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        found = str(error)
    return None if found == "ok" else found
