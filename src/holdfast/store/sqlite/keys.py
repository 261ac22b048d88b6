"""The API keys of a database, for a command that runs beside the server, or before there is one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from .. import KeyRecord
from ..folder import check_folder
from ..rows import Steps
from ..rows.migrations import StoreInUse
from .driver import READING, WRITING, drive
from .file import connect_beside, connect_reader, explained, is_current, locate, prepare, roll_back

_PATIENCE = 10.0  # seconds for another process to create or migrate the database

T = TypeVar("T")


class SqliteKeys:
    """Reads and changes the keys of a database that a server may have open. Each change is one transaction.

    Root may use it for another user's folder: files that it makes belong to that user.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = locate(path)

    def list(self) -> list[KeyRecord]:
        """Return all keys, revoked ones too; none if there is no database."""
        if not self.path.exists():
            return []
        with explained(self.path), closing(connect_reader(self.path)) as db:
            has_keys = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'api_keys'").fetchone()
            return drive(db, READING.api_keys()) if has_keys else []

    def add(self, *keys: KeyRecord) -> None:
        """Add keys, all or none; see `Store.add_key`. The database is made if there is none."""
        self._write(WRITING.add_keys(keys))

    def revoke(self, name: str, now: float) -> KeyRecord | None:
        """Revoke the key of that name; None if no key in force has it."""
        return self._write(WRITING.revoke_key(name, now))

    def _write(self, steps: Steps[T]) -> T:
        self._bring_up_to_date()
        with explained(self.path), closing(connect_beside(self.path)) as db, _transaction(db):
            return drive(db, steps)

    def _bring_up_to_date(self) -> None:
        """Create or migrate the database, unless the process that has it open does so."""
        give_up = time.monotonic() + _PATIENCE
        while not self._is_current():
            try:
                lock, db = prepare(self.path, guest=True)
            except StoreInUse as error:
                if time.monotonic() > give_up:
                    raise StoreInUse(f"{error} If it is a server of an older version, start it again first.") from None
                time.sleep(0.05)
            else:
                db.close()
                lock.release()

    def _is_current(self) -> bool:
        if not self.path.exists():
            return False
        check_folder(self.path.parent, guest=True)
        return is_current(self.path)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        roll_back(db)
