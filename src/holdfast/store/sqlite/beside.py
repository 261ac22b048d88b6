"""The store of a command that runs beside the server, or before there is one."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from .. import KeyRecord
from ..folder import check_folder
from ..hints import LocalHints
from ..rows import Querying
from ..rows.migrations import StoreInUse
from ..rows.nodes import NodesReading
from ..rows.store import RowStore
from ..rows.transactions import Writing
from .driver import READING, WRITING, drive, transaction
from .file import connect_beside, connect_reader, explained, is_current, locate, open_memory, prepare

_PATIENCE = 10.0  # seconds for another process to create or migrate the database

T = TypeVar("T")


class SqliteBeside(LocalHints, RowStore):
    """The store of a command, which a server may have open: it finds what is changed here when it looks again.

    Each change is one short transaction of its own. Without a database there is nothing to read; a change creates it.
    Root may use it for another user's folder: the files that it creates belong to that user.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = locate(path)

    def list(self) -> list[KeyRecord]:
        """Return all keys, including revoked ones. This waits for the disk."""
        return self._look(lambda rows: rows.api_keys())

    def add(self, *keys: KeyRecord) -> None:
        """Add keys, all or none; see `Store.add_key`. This waits for the disk."""
        self._change(lambda rows: rows.add_keys(keys))

    def revoke(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key; None if no active key has the id. This waits for the disk."""
        return self._change(lambda rows: rows.revoke_key(id, now))

    async def close(self) -> None:
        """Do nothing: each call closes what it has opened."""

    async def _write(self, work: Callable[[Writing], Querying[T]], *, durable: bool = True) -> T:
        return await asyncio.to_thread(self._change, work)

    async def _read(self, work: Callable[[NodesReading], Querying[T]], *, snapshot: bool = False) -> T:
        return await asyncio.to_thread(self._look, work)

    async def _read_keys(self, work: Callable[[NodesReading], Querying[T]]) -> T:
        return await self._read(work)

    def _look(self, work: Callable[[NodesReading], Querying[T]]) -> T:
        with explained(self.path), closing(self._readable()) as db:
            return drive(db, work(READING))

    def _readable(self) -> sqlite3.Connection:
        """Connect to the database; to an empty one if there is none, or if another process is creating it now."""
        if self.path.exists():
            db = connect_reader(self.path)
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone():
                return db
            db.close()
        return open_memory()

    def _change(self, work: Callable[[Writing], Querying[T]]) -> T:
        self._bring_up_to_date()
        with explained(self.path), closing(connect_beside(self.path)) as db, transaction(db):
            return drive(db, work(WRITING))

    def _bring_up_to_date(self) -> None:
        """Create or migrate the database, unless a process that has it open does so."""
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
