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
from contextlib import closing, contextmanager
from typing import IO, Any

import click

from ...errors import HoldfastError
from ...server.config.settings import load
from ...server.config.settings_file import NAME, choose, config_folder, named_file
from ...server.live.saved_settings import saved_file
from ...server.secrets.key_sources import KEY_FILE, SecretKeyFile
from ...store.folder import check_folder, make_folder, open_file
from .. import show
from .folder import copy_database, database_of, folder_of, folder_options

DATABASE = "holdfast.db"
DATA = "data/"
SUMS = "SHA256SUMS"
LONGEST_LIST = 64_000_000
"""Maximum size in bytes of the list of digests and of the settings file: they are read as a whole."""
_FAST = 1  # of the levels of gzip: the best one takes twice as long, for a twelfth less
LEFT_OUT = ("holdfast.db-wal", "holdfast.db-shm", "holdfast.db.lock", "holdfast.sock", "models")
PARTIAL = ("holdfast.db.before-", f"{KEY_FILE}.")
"""Prefixes of the copies that migrations make, and of a key file that was not finished."""


@click.command()
@click.argument("target", type=click.Path(dir_okay=False))
@click.option("--with-secret-key", is_flag=True, help="Include the key that encrypts providers' keys (secret.key).")
@folder_options
def backup(target: str, with_secret_key: bool, **where: Any) -> None:
    """Write chats, runs, keys, settings and agents' files to one file. The server may keep running.

    Keys of providers are encrypted in it, and the key for that, secret.key, is left out: keep a copy of it elsewhere.
    The settings file is included as it is, with the keys that are written there. The backup is read back and compared
    with what was written. `holdfast restore` reads it.
    """
    path, archive = database_of(**where), pathlib.Path(target)
    if archive.exists():
        raise click.ClickException(f"{archive} already exists. Choose another name.")
    if not archive.absolute().parent.is_dir():
        raise click.ClickException(f"The folder {archive.absolute().parent} does not exist.")
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
    if settings_file is not None:
        show.note(f"{settings_file} is in it as it is: with every key that is written there.")
    secret = SecretKeyFile(path.parent).path
    if secret.exists() and not with_secret_key:
        show.note(f"{secret} is not in it. Keep a copy elsewhere: without it, keys of providers cannot be restored.")


def _write(
    part: pathlib.Path, database: pathlib.Path, settings_file: pathlib.Path | None, without: Collection[str]
) -> None:
    """Write the archive, for its owner only, and wait for the disk."""
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_FAST) as tar:
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
        if (damage := _copied(database, copy)) is not None:
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


def _copied(database: pathlib.Path, copy: pathlib.Path) -> str | None:
    """Copy a database, and return its damage; None if there is none."""
    try:
        copy_database(database, copy)
    except sqlite3.OperationalError:  # it is locked, or the disk is full
        raise
    except sqlite3.DatabaseError as error:
        return str(error)
    return _damage(copy)


class _Digesting:
    """A file that is read once, and the digest of the bytes read so far."""

    def __init__(self, file: IO[bytes], progress: show.Progress) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        """Read on."""
        data = self._file.read(size)
        self._hash.update(data)
        self._progress.add(len(data))
        return data

    @property
    def digest(self) -> str:
        """SHA-256 in hex."""
        return self._hash.hexdigest()


def _no_link(path: str, flags: int) -> int:
    """Open a file that is no link: an agent may have put one in its folder since that was listed."""
    return os.open(path, flags | os.O_NOFOLLOW)


def _add(tar: tarfile.TarFile, file: pathlib.Path, name: str) -> str:
    """Add a file, and return the digest of the added bytes."""
    with (
        open(file, "rb", opener=_no_link) as opened,
        show.Progress(f"writing {file.name}", file.stat().st_size) as progress,
    ):
        reading = _Digesting(opened, progress)
        tar.addfile(tar.gettarinfo(arcname=name, fileobj=opened), reading)
    return reading.digest


def _read_back(archive: pathlib.Path) -> int:
    """Read every file of a backup and compare it with its digest. Return the number of files."""
    with tarfile.open(archive, "r:gz") as tar:
        members = _checked(tar)
        files = {name: member for name, member in members.items() if member.isreg() and name != SUMS}
        with show.Progress("reading it back", sum(member.size for member in files.values())) as progress:
            found = {name: _digest(tar, member, progress) for name, member in files.items()}
        listed = _content(tar, members[SUMS]).decode("utf-8", "replace").splitlines()
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in listed)}
    if wrong := sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)):
        raise tarfile.TarError(f"{wrong[0]} is not what was backed up")
    return len(found)


def _digest(tar: tarfile.TarFile, member: tarfile.TarInfo, progress: show.Progress) -> str:
    reading = _Digesting(tar.extractfile(member) or io.BytesIO(), progress)
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
            below = (file, *sorted(file.rglob("*")))
            yield from (each for each in below if not each.is_symlink() and (each.is_file() or each.is_dir()))


@click.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only read the whole file and compare it with its digests.")
@folder_options
def restore(source: str, dry_run: bool, **where: Any) -> None:
    """Restore a backup into an empty data folder.

    A backup contains the keys of its day. Revoke again the keys that were revoked since.
    """
    try:
        count = _read_back(pathlib.Path(source))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise click.ClickException(f"{source} is not a backup, or is damaged: {error}") from None
    if dry_run:
        click.echo(f"{source} is complete: {show.plural(count, 'file')}.")
        return
    data = where["data"]  # with a named folder no settings are needed: their file may be in the backup
    folder = pathlib.Path(data).expanduser().absolute() if data is not None else folder_of(**where)
    if (folder / DATABASE).exists():
        raise click.ClickException(
            f"{folder} already has a database. Move it away, or choose another folder with --data."
        )
    with tarfile.open(source, "r:gz") as tar:
        members = _checked(tar)
        with _new_folder(folder):
            count = _extract(tar, members, folder)
        config = _settings_file(tar, members, _settings_place(folder, **where), source)
    _check_secrets(folder, config)
    named = f" --config {config}" if config is not None and config.parent == folder else ""
    click.echo(
        f"Restored {show.plural(count, 'file')} to {folder}. "
        f"Start the server with: holdfast serve --data {folder}{named}"
    )


@contextmanager
def _new_folder(folder: pathlib.Path) -> Iterator[None]:
    """Make the data folder. If what is done meanwhile fails, a folder that did not exist is gone again."""
    is_new = not folder.exists()
    make_folder(folder)
    try:
        check_folder(folder, guest=True)
        yield
    except BaseException:
        if is_new:
            folder.rmdir()
        raise


def _settings_place(folder: pathlib.Path, data: str | None, config: str | None) -> pathlib.Path:
    """Return the place of the settings file: the named one; beside the database if that is in a folder of its own.

    A restore into a named folder is a trial, or another server: the user's own settings are not touched.
    """
    if (named := named_file(os.environ, config)) is not None:
        return named
    return (folder if data is not None else config_folder(os.environ)) / NAME


def _checked(tar: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """Return the members by name. Raise an error if the file is not from `holdfast backup`."""
    members = {member.name: member for member in tar.getmembers()}
    for name, member in members.items():
        if not (_is_inside(name) or name in (NAME, SUMS)) or not (member.isreg() or member.isdir()):
            raise tarfile.TarError(f"unexpected entry {name!r}")
        if name in (NAME, SUMS) and member.size > LONGEST_LIST:
            raise tarfile.TarError(f"{name} is too large")
    for name in (DATA + DATABASE, SUMS):
        if name not in members:
            raise tarfile.TarError(f"it has no {name}")
    return members


def _is_inside(name: str) -> bool:
    """Return whether a name is that of a file in the data folder, on every system: a backslash leads on on Windows."""
    path, windows = pathlib.PurePosixPath(name), pathlib.PureWindowsPath(name)
    is_plain = name.startswith(DATA) and str(path) == name  # `data//etc` is /etc
    return is_plain and ".." not in windows.parts and not windows.drive and not windows.root


def _extract(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], folder: pathlib.Path) -> int:
    """Write every file, and check the database, in a folder of its own; then move them to the data folder.

    The database is moved last: without one the folder is not in use.
    """
    inside = [member for name, member in members.items() if name.startswith(DATA) and member.isreg()]
    files = {member.name.removeprefix(DATA): member for member in inside}
    if there := [str(folder / name) for name in files if (folder / name).exists()]:
        raise click.ClickException(f"{there[0]} already exists. Move it away, or choose another folder with --data.")
    total = sum(member.size for member in inside)
    with tempfile.TemporaryDirectory(prefix=".holdfast-", dir=folder) as beside:
        with show.Progress("writing", total) as progress:
            for name, member in files.items():
                _extract_file(tar, member, pathlib.Path(beside) / name, progress)
        if (damage := _damage(pathlib.Path(beside) / DATABASE)) is not None:
            raise click.ClickException(f"The database in the backup is damaged: {damage}. Restore another backup.")
        for name in sorted(files, key=lambda name: name == DATABASE):
            if (folder / name).parent != folder:
                make_folder((folder / name).parent)
            os.rename(pathlib.Path(beside) / name, folder / name)
    return len(files)


def _extract_file(tar: tarfile.TarFile, member: tarfile.TarInfo, place: pathlib.Path, progress: show.Progress) -> None:
    make_folder(place.parent)
    reading = tar.extractfile(member) or io.BytesIO()
    with os.fdopen(open_file(place, os.O_WRONLY | os.O_EXCL), "wb") as file:
        while data := reading.read(1 << 20):
            file.write(data)
            progress.add(len(data))
        file.flush()
        os.fsync(file.fileno())
    if member.mode & 0o100 and os.name == "posix":
        place.chmod(0o700)


def _settings_file(
    tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], place: pathlib.Path, source: str
) -> pathlib.Path | None:
    """Write the settings file, unless one exists. Return the one in use, if there is one."""
    if NAME not in members:
        return place if place.exists() else None
    content = _content(tar, members[NAME])
    if not place.exists():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        click.echo(f"Restored the settings file to {place}.")
    elif place.read_bytes() != content:
        show.note(f"{place} differs from the one in the backup, and was kept. Show that with: tar -xOf {source} {NAME}")
    return place


def _check_secrets(folder: pathlib.Path, config: pathlib.Path | None) -> None:
    """Print a note if the restored secrets cannot be decrypted."""
    try:
        saved_file(load({"data": str(folder)}, os.environ, config), os.environ).read()
    except HoldfastError as error:
        show.note(f"Before the server starts: {error}", "yellow")


def _damage(path: pathlib.Path) -> str | None:
    """Return the damage of a database that no server uses; None if there is none."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:  # no -wal, no -shm
            found = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        found = str(error)
    return None if found == "ok" else found
