"""A store in memory, for tests, simulations, and runs that need not be kept."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

from ..hints import LocalHints
from ..rows import Querying
from ..rows.nodes import NodesReading
from ..rows.store import RowStore
from ..rows.transactions import Writing
from ..sqlite.driver import DIALECT, drive, transaction
from ..sqlite.file import open_memory

T = TypeVar("T")


class MemoryStore(LocalHints, RowStore):
    """Runs the transactions of every store on a SQLite database in memory, in the caller's thread.

    No method suspends, except one that takes pictures out of messages.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.rows = Writing(DIALECT, clock)
        self.db = open_memory()
        self._one_at_a_time = threading.Lock()  # event loops of several threads may share it
        weakref.finalize(self, self.db.close)

    def transact(self, work: Callable[[Writing], Querying[T]]) -> T:
        """Run one transaction."""
        with self._one_at_a_time, transaction(self.db):
            return drive(self.db, work(self.rows))

    async def _write(self, work: Callable[[Writing], Querying[T]], *, durable: bool = True) -> T:
        return self.transact(work)

    async def _read(self, work: Callable[[NodesReading], Querying[T]], *, snapshot: bool = False) -> T:
        with self._one_at_a_time:
            return drive(self.db, work(self.rows))

    async def _read_keys(self, work: Callable[[NodesReading], Querying[T]]) -> T:
        return await self._read(work)

    async def close(self) -> None:
        """Do nothing: the memory is freed with the object."""
