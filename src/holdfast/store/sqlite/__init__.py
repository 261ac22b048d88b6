"""The store for one machine: a SQLite database in a folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ...errors import StoreUnavailable
from ..hints import LocalHints
from ..indexing import Indexer
from ..rows import Querying
from ..rows.migrations import StoreDamaged, StoreInUse, StoreTooNew
from ..rows.nodes import NodesReading
from ..rows.store import RowStore
from ..rows.transactions import Writing
from .driver import READING, WRITING, drive, drive_snapshot
from .file import StoreReadOnly, Trace, locate
from .threads import Job, Readers, Writer

__all__ = ["SqliteStore", "StoreDamaged", "StoreInUse", "StoreReadOnly", "StoreTooNew"]

T = TypeVar("T")


class SqliteStore(LocalHints, RowStore):
    """Stores everything in one SQLite file, which belongs to one process.

    Concurrent writes share one commit. It is flushed to the disk if any of its writes must survive a power cut;
    a commit of appends alone is not, and survives `kill -9` but not a power cut.
    """

    def __init__(self, path: str | Path, *, trace: Trace | None = None) -> None:
        """Open the database in a folder, or the file itself. Create it if there is none.

        `trace` is called with each statement of the writer, in its thread.
        """
        super().__init__()
        self.path = locate(path)
        self._writer = Writer(self.path, trace)
        self._readers = Readers(self.path)
        self._key_reader = Readers(self.path, 1, "keys")
        self._indexer = Indexer(lambda: self._index(None))
        self._closed = False
        self._writer.open()
        self._readers.open()
        self._key_reader.open()

    @property
    def commits(self) -> int:
        """Number of committed transactions so far. Under load it is far below the number of writes."""
        return self._writer.commits

    def wal_bytes(self) -> int:
        """Return the size of the write-ahead log in bytes. This reads the disk."""
        wal = self.path.with_name(self.path.name + "-wal")
        return wal.stat().st_size if wal.exists() else 0

    async def _write(self, work: Callable[[Writing], Querying[T]], *, durable: bool = True) -> T:
        self._refuse_if_closed()
        result: T = await self._writer.ask(Job(lambda db: drive(db, work(WRITING)), durable=durable))
        return result

    async def _index_some(self, sessions: Sequence[int]) -> list[int]:
        """Index some sessions in a transaction of their own, which no other write waits for."""
        self._refuse_if_closed()
        job = Job(lambda db: drive(db, WRITING.index_words(sessions)), apart=True)
        left: list[int] = await self._writer.ask(job)
        return left

    async def _read(self, work: Callable[[NodesReading], Querying[T]], *, snapshot: bool = False) -> T:
        self._refuse_if_closed()
        run = drive_snapshot if snapshot else drive
        result: T = await self._readers.ask(Job(lambda db: run(db, work(READING))))
        return result

    async def _read_keys(self, work: Callable[[NodesReading], Querying[T]]) -> T:
        """Read in a separate thread, so that no long read delays a revocation. Raises if the file was replaced."""
        self._refuse_if_closed()

        def read(db: sqlite3.Connection) -> T:
            self._writer.refuse_if_moved()
            return drive(db, work(READING))

        result: T = await self._key_reader.ask(Job(read))
        return result

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")

    async def forget_words(self, *, begin: bool) -> bool:
        """Forget deleted words. After the last step they are not in the write-ahead log, either."""
        more = await super().forget_words(begin=begin)
        if not more:
            await self._writer.empty_log()
        return more

    async def close(self) -> None:
        """Finish the calls in progress, checkpoint the write-ahead log, and close the file."""
        if not self._closed:
            self._closed = True
            await self._end_indexing()
            await self._readers.close()
            await self._key_reader.close()
            await self._writer.close()
