"""One SQLite database file: its folder, its lock, its schema, and its errors."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...errors import HoldfastError, StoreUnavailable
from ..folder import check_file, check_folder, make_folder, open_file
from ..rows.migrations import COPYING, Migration, StoreDamaged, StoreInUse, check_applied, incomplete_copy, steps_in
from ..rows.queries import SQL, queries

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_APPLICATION_ID = 0x486F6C64  # "Hold": marks our files
_CHECKED_WHOLE = 64 * 1024 * 1024  # bytes: the check of a bigger file would delay the start too long
_BUSY_SECONDS = 3.0  # timeout of a write of the server while another program has locked the database
_BUSY_BESIDE = 60_000  # milliseconds: timeout of a command for the write lock, which SQLite does not grant in order
_WAL_PAGES = 4000  # 16 MB between checkpoints: a page with many appends is then copied once
_WAL_BYTES = 64 * 1024 * 1024

Trace = Callable[[str], None]


class StoreReadOnly(HoldfastError):
    """The database or its folder cannot be written."""

    code = "store_read_only"
    status = 503


# opening


class Lock:
    """The exclusive lock of a process on a database. The system releases it when the process ends, even if killed.

    The lock file has the process id. On Linux the database itself is locked too, so that another process cannot evade
    the lock by deleting that file. SQLite's own locks are of another kind there, and do not conflict with it.
    """

    def __init__(self, path: Path) -> None:
        self._database: int | None = None
        self._file = open_file(path.with_name(path.name + ".lock"), os.O_RDWR)
        try:
            _lock(self._file)
        except OSError:
            holder = os.read(self._file, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise _in_use(path, f"process {holder}") from None
        os.truncate(self._file, 0)
        os.write(self._file, str(os.getpid()).encode())

    def hold(self, path: Path) -> None:
        """Lock the database file too. It must exist."""
        if sys.platform == "linux":
            self._database = open_file(path, os.O_RDWR)
            try:
                _lock(self._database)
            except OSError:
                raise _in_use(path, "another process, though its lock file was deleted") from None

    def release(self) -> None:
        """Release the database for another process. SQLite must have closed it: this releases SQLite's locks too."""
        if self._database is not None:
            os.close(self._database)
        os.close(self._file)


def _in_use(path: Path, holder: str) -> StoreInUse:
    return StoreInUse(f"{path} is in use by {holder}. Stop that process, or give this one another data folder.")


def _lock(file: int) -> None:
    if sys.platform == "win32":
        os.lseek(file, 1024, os.SEEK_SET)  # after the process id: on Windows others cannot read locked bytes
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def locate(path: str | Path) -> Path:
    """Return the database file: the path itself, or `holdfast.db` if it is a folder or looks like one."""
    place = Path(path).expanduser()
    with explained(place):
        is_folder = place.is_dir() if place.exists() else place.suffix == ""
    return (place / "holdfast.db" if is_folder else place).absolute()


def prepare(
    path: Path,
    trace: Trace | None = None,
    steps: Sequence[Migration] | None = None,
    *,
    guest: bool = False,
    for_copy: bool = False,
) -> tuple[Lock, sqlite3.Connection]:
    """Create the folder and the file if there are none, lock them, and migrate the schema.

    The lock proves that every earlier process is dead, so their leases end here: their runs are taken over at
    once, not after the end of a lease. A `guest` is a command that root runs for the owner of the folder.
    A database that is an incomplete copy is refused, unless `for_copy`.
    """
    with explained(path), contextlib.ExitStack() as undo:
        make_folder(path.parent)
        check_folder(path.parent, guest=guest)
        lock = Lock(path)
        undo.callback(lock.release)
        if not os.path.lexists(path):
            _create(path)
        lock.hold(path)
        _check_header(path)
        db = undo.enter_context(contextlib.closing(open_connection(path, trace)))
        _check_content(db, path)
        _migrate(db, path, migrations() if steps is None else steps)
        if not for_copy and db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (COPYING,)).fetchone():
            raise incomplete_copy(str(path))
        if steps is None:
            db.execute(queries("sqlite")["forget_nodes"])
        undo.pop_all()
        return lock, db


def _create(path: Path) -> None:
    """Create a database that is never an empty file, so that an empty file is known not to be ours."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        raise StoreDamaged(
            f"{path} is missing, but {wal.name} is there and holds what was written last. "
            f"Put {path.name} back beside it. Or move {wal.name} away to begin anew."
        )
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # left by a start that was killed
    os.close(open_file(new, os.O_RDWR | os.O_EXCL))
    with contextlib.closing(_open(f"{new.as_uri()}?mode=rw")) as db:
        _mark_as_ours(db)
    new.rename(path)


def open_connection(path: Path, trace: Trace | None = None) -> sqlite3.Connection:
    """Open the connection that writes. A server has one, which also makes the checkpoints.

    Two connections that checkpoint can corrupt a database in SQLite before 3.51.3 (the WAL-reset bug).
    """
    return _open(
        f"{path.as_uri()}?mode=rw",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        f"wal_autocheckpoint = {_WAL_PAGES}",
        f"journal_size_limit = {_WAL_BYTES}",
        trace=trace,
    )


def connect_beside(path: Path) -> sqlite3.Connection:
    """Open a connection for one short write beside a server that has the database open.

    It never checkpoints. The WAL-reset bug needs a commit that resets the log while another connection begins a
    checkpoint of an already copied log. The server's connection begins one only after a commit of its own.
    """
    db = _open(f"{path.as_uri()}?mode=rw", "synchronous = FULL", "foreign_keys = ON", "wal_autocheckpoint = 0")
    db.execute(f"PRAGMA busy_timeout = {_BUSY_BESIDE}")
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write."""
    return _open(f"{path.as_uri()}?mode=ro", "query_only = ON")


def open_memory() -> sqlite3.Connection:
    """Open a new database in memory, with the schema. It is a copy of an empty one, which takes 40 µs."""
    db = _open(":memory:", "foreign_keys = ON")
    _empty().backup(db)
    return db


@functools.cache
def _empty() -> sqlite3.Connection:
    db = _open(":memory:")
    _mark_as_ours(db)
    for step in migrations():
        _apply(db, step)
    return db


def _open(uri: str, *pragmas: str, trace: Trace | None = None) -> sqlite3.Connection:
    db = sqlite3.connect(
        uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS, cached_statements=256, check_same_thread=False
    )
    try:
        db.row_factory = sqlite3.Row
        db.set_trace_callback(trace)
        for pragma in pragmas:
            db.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        db.close()
        raise
    return db


# checks and errors


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(16)
    if not start:
        raise StoreDamaged(
            f"{path} is empty, and Holdfast never leaves it so. If a restore failed, restore the backup again; "
            "to begin anew, delete the file."
        )
    if start != b"SQLite format 3\0":
        raise StoreDamaged(
            f"{path} is not a SQLite database. If it should be one, restore it from a backup; "
            "otherwise give Holdfast another path."
        )


def _check_program(db: sqlite3.Connection, path: Path) -> None:
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if tables and application != _APPLICATION_ID:
        raise StoreDamaged(f"{path} is a database of another program. Give Holdfast another path.")


def _check_content(db: sqlite3.Connection, path: Path) -> None:
    _check_program(db, path)
    if path.stat().st_size <= _CHECKED_WHOLE:
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise _damaged(path, found)


def _damaged(path: Path, found: object) -> StoreDamaged:
    return StoreDamaged(
        f"{path} is damaged ({found}). Keep a copy of it with its -wal file, then restore a backup, "
        "or save what can be read with: sqlite3 holdfast.db .recover"
    )


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise errors of the system and of SQLite as errors with cause and remedy."""
    try:
        yield
    except OSError as error:
        raise _explain_os(error, path) from error
    except sqlite3.Error as error:
        raise _explain_sqlite(error, path) from error
    except UnicodeDecodeError as error:  # a text of the schema is in an error message, which Python cannot read
        raise _damaged(path, error) from error


def _explain_os(error: OSError, path: Path) -> HoldfastError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreUnavailable(f"There is no space left for {path}: free some, then start again.")
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        return StoreReadOnly(f"{path} cannot be made: a file stands where a folder should be. Choose another path.")
    reason = error.strerror or str(error)
    return StoreReadOnly(
        f"{path} cannot be written ({reason}). Give this user the right to write there, or choose another folder."
    )


def _explain_sqlite(error: sqlite3.Error, path: Path) -> HoldfastError:
    if primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, error)
    if primary_code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreReadOnly(
            f"{path} cannot be written ({error}). Give this user the right to write to it and to its folder, "
            "or choose another folder."
        )
    return unavailable(error) or StoreDamaged(f"{path} cannot be opened: {error}.")


def primary_code(error: BaseException) -> int | None:
    """Return SQLite's primary error code; None if the error is not from SQLite."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


_UNAVAILABLE: dict[int | None, str] = {
    sqlite3.SQLITE_BUSY: "Another program has locked the database: close it. The write is not done.",
    sqlite3.SQLITE_LOCKED: "The database is locked. The write is not done.",
    sqlite3.SQLITE_FULL: "The disk is full: free some space. The write is not done; nothing acknowledged is lost.",
    sqlite3.SQLITE_IOERR: "The disk reported an error: look at its space and at the system's log. "
    "The write may not be done; nothing acknowledged is lost.",
    sqlite3.SQLITE_READONLY: "The database can no longer be written: was its disk mounted read-only?",
    sqlite3.SQLITE_CANTOPEN: "The database can no longer be opened: was its folder moved or its owner changed?",
    sqlite3.SQLITE_CORRUPT: "The database is damaged: stop the server, keep a copy, and restore a backup.",
    sqlite3.SQLITE_NOTADB: "The database is damaged: stop the server, keep a copy, and restore a backup.",
    sqlite3.SQLITE_PROTOCOL: "The database is locked. The write is not done.",
    sqlite3.SQLITE_NOMEM: "There was not enough memory for the database. The write is not done.",
}


def unavailable(error: BaseException) -> StoreUnavailable | None:
    """Return the error for a failure of the medium; None if the error is of another kind."""
    message = _UNAVAILABLE.get(primary_code(error))
    return None if message is None else StoreUnavailable(f"{message} ({getattr(error, 'sqlite_errorname', '')})")


# schema


@functools.cache
def migrations() -> tuple[Migration, ...]:
    """Return the migrations of this version, in order."""
    return steps_in(SQL / "sqlite")


def is_current(path: Path) -> bool:
    """Return whether a database exists and has every migration of this version. A newer schema is refused."""
    with explained(path):
        return os.path.lexists(path) and not pending(path)


def pending(path: Path) -> list[Migration]:
    """Return the migrations that a database lacks. Nothing is changed. A newer schema is refused."""
    with explained(path):
        check_file(path)
        _check_header(path)
        with contextlib.closing(connect_reader(path)) as db:
            _check_program(db, path)
            return _due(db, path, migrations())


def _migrate(db: sqlite3.Connection, path: Path, steps: Sequence[Migration]) -> None:
    _mark_as_ours(db)
    due = _due(db, path, steps)
    if due and len(due) < len(steps):
        _back_up(db, path.with_name(f"{path.name}.before-{due[0].number:04}"))
    for step in due:
        _apply(db, step)


def _due(db: sqlite3.Connection, path: Path, steps: Sequence[Migration]) -> list[Migration]:
    """Return the migrations that are not applied yet. A database with a migration not in `steps` is refused."""
    applied = {row["number"]: row["checksum"] for row in db.execute("SELECT number, checksum FROM migrations")}
    older = f"go back to a backup: {path.name}.before-NNNN"
    check_applied(applied, {step.number: step for step in steps}, str(path), older)
    return [step for step in steps if step.number not in applied]


def _mark_as_ours(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE IF NOT EXISTS migrations "
        "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at REAL NOT NULL)"
    )
    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def _back_up(db: sqlite3.Connection, target: Path) -> None:
    """Copy the whole database, then give the copy its name, so that a partial copy is never mistaken for a backup."""
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    os.close(open_file(part, os.O_RDWR | os.O_EXCL))
    with contextlib.closing(sqlite3.connect(part)) as copy:
        db.backup(copy)
    part.replace(target)


def _apply(db: sqlite3.Connection, migration: Migration) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in _statements(migration.sql):
            db.execute(statement)
        db.execute("INSERT INTO migrations VALUES (?, ?, ?, ?)", (*migration[:2], migration.checksum, time.time()))
        db.execute("COMMIT")
    except BaseException:
        roll_back(db)
        raise


def roll_back(db: sqlite3.Connection) -> None:
    """Roll back the transaction. SQLite has already done so after some errors."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def _statements(sql: str) -> Iterator[str]:
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
