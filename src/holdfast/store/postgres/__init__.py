"""The store for several nodes: a PostgreSQL database, which they share. Needs asyncpg."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from asyncpg import Connection, UniqueViolationError

from ...errors import StoreUnavailable
from .. import Append, LogEnd
from ..indexing import Indexer
from ..nodes import OnHint
from ..place import without_password
from ..records import NodeDetails, NodeRecord, WalPosition
from ..rows import Querying
from ..rows.nodes import NodesReading
from ..rows.queries import queries
from ..rows.store import RowStore
from ..rows.structs import rows_of
from ..rows.transactions import Writing
from .connections import PostgresPool
from .driver import READING, WRITING, drive_async, queried, statement
from .hints import HintListener, channel_of, payloads
from .schema import postgres_steps, prepare_schema

logger = logging.getLogger(__name__)

_MAY_READ = """
SELECT has_function_privilege('pg_current_wal_lsn()', 'EXECUTE'), has_table_privilege('pg_replication_slots', 'SELECT')
"""
_WRITTEN = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
_SLOT_LAG = "SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::bigint FROM pg_replication_slots"


class WalReader:
    """Reads the position of the write-ahead log, as far as the user of the database may."""

    def __init__(self) -> None:
        self._is_noted = False

    async def read(self, connection: Connection) -> WalPosition:
        """Return the position. A missing permission is logged once, and checked each time, as it may be granted."""
        may_read, may_see_slots = await connection.fetchrow(_MAY_READ)
        if not (may_read and may_see_slots):
            self._note(may_read=may_read)
        return WalPosition(
            written=await connection.fetchval(_WRITTEN) if may_read else None,
            slot_lag=await connection.fetchval(_SLOT_LAG) if may_read and may_see_slots else None,
        )

    def _note(self, *, may_read: bool) -> None:
        right = "SELECT ON pg_replication_slots" if may_read else "EXECUTE ON FUNCTION pg_current_wal_lsn()"
        if not self._is_noted:
            logger.info(
                "PostgreSQL's write-ahead log is not measured: this user lacks the right. GRANT %s TO it.", right
            )
        self._is_noted = True


_CONNECTIONS = 6  # beside one for leases and one for hints
CONNECTIONS_OF_A_NODE = _CONNECTIONS + 2

T = TypeVar("T")


class PostgresStore(RowStore):
    """Stores everything in a PostgreSQL database, which any number of nodes share.

    A transaction is READ COMMITTED and locks the row of its session first. A node has at most eight connections. One of
    them is for its lease alone, so that no other work can delay a renewal.
    """

    def __init__(self, url: str) -> None:
        """Create or migrate the schema. Connections are opened when needed, by the event loop that needs them."""
        self._url = url
        self._calls: PostgresPool | None = None
        self._leases: PostgresPool | None = None
        self._listener: HintListener | None = None
        self._wal = WalReader()
        self._indexer = Indexer(lambda: self._index(None))
        self._closed = False
        postgres_steps(), queries("postgres")  # read now: the event loop must not wait for the disk
        with ThreadPoolExecutor(1) as thread:  # an event loop may be running in this thread
            thread.submit(asyncio.run, prepare_schema(url)).result()

    @property
    def place(self) -> str:
        """The address of the database, without a password."""
        return without_password(self._url)

    # transactions

    async def _write(self, work: Callable[[Writing], Querying[T]], *, durable: bool = True) -> T:
        return await self._connections().call(lambda connection: _transact(connection, "BEGIN", lambda: work(WRITING)))

    async def _read(self, work: Callable[[NodesReading], Querying[T]], *, snapshot: bool = False) -> T:
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

        def read(connection: Connection) -> Awaitable[T]:
            return (
                _transact(connection, begin, lambda: work(READING))
                if snapshot
                else drive_async(connection, work(READING))
            )

        return await self._connections().call(read)

    async def _read_keys(self, work: Callable[[NodesReading], Querying[T]]) -> T:
        return await self._read(work)

    def _connections(self) -> PostgresPool:
        self._refuse_if_closed()
        if self._calls is None:
            self._calls = PostgresPool(self._url, _CONNECTIONS)
        return self._calls

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")

    # methods that are faster on PostgreSQL than by the shared transactions

    async def append(self, node_id: str, entries: Sequence[Append]) -> list[LogEnd]:
        """Add events to logs: in one round trip, unless some are already stored, or events before them are missing."""
        if not entries:
            return []
        ends = await self._connections().call(lambda connection: _append(connection, node_id, entries))
        return await super().append(node_id, entries) if ends is None else ends

    async def renew(self, node_id: str, seconds: float, details: NodeDetails | None = None) -> NodeRecord | None:
        """Renew the lease of a node."""
        self._refuse_if_closed()
        if self._leases is None:
            self._leases = PostgresPool(self._url, 1)
        reported = details or NodeDetails()
        return await self._leases.call(
            lambda connection: _transact(connection, "BEGIN", lambda: WRITING.renew(node_id, seconds, reported))
        )

    async def read_wal(self) -> WalPosition:
        """Return the position of the write-ahead log, as far as this user may read it."""
        return await self._connections().call(self._wal.read)

    # hints

    async def hint(self, topic: str, ids: Sequence[str], to: str = "") -> None:
        """Wake a node, or all nodes."""

        async def send(connection: Connection) -> None:
            for payload in payloads(topic, ids):
                await queried(connection, statement("notify"), {"channel": channel_of(to), "payload": payload})

        await self._connections().call(send)

    def listen(self, node_id: str, on_hint: OnHint) -> Callable[[], None]:
        """Call `on_hint` with each hint for a node."""
        self._refuse_if_closed()
        if self._listener is None:
            self._listener = HintListener(self._url)
        return self._listener.listen(node_id, on_hint)

    async def close(self) -> None:
        """Finish the calls in progress, and close the connections."""
        self._closed = True
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close the connections, which belong to the event loop that opened them. The next call opens new ones."""
        await self._end_indexing()
        parts = (self._listener, self._calls, self._leases)
        self._listener = self._calls = self._leases = None
        for part in parts:
            if part is not None:
                await part.close()


async def _transact(connection: Connection, begin: str, steps: Callable[[], Querying[T]]) -> T:
    await connection.execute(begin)
    try:
        result = await drive_async(connection, steps())
    except Exception:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
    return result


async def _append(connection: Connection, node_id: str, entries: Sequence[Append]) -> list[LogEnd] | None:
    """Add events that continue their logs directly. If some do not, add nothing and return None."""
    rows = [(at, row) for at, entry in enumerate(entries) for row in rows_of(0, entry.first, entry)]
    values = {
        "node_id": node_id,
        "ids": [entries[at].run_id for at, _ in rows],
        "epochs": [entries[at].epoch for at, _ in rows],
        "firsts": [row[1] for _, row in rows],
        "counts": [row[2] for _, row in rows],
        "bodies": [row[3] for _, row in rows],
        "times": [row[4] for _, row in rows],
    }
    try:
        (answer,) = await queried(connection, statement("append_rows"), values)
    except UniqueViolationError:
        return None  # the same append is in progress on another connection
    if not answer["is_standing"]:
        return ["fenced" for _ in entries]
    if not answer["fits"] or len({at for at, _ in rows}) < len(entries):
        return None
    placed = {rows[number - 1][0] for number in answer["placed"]}
    return [e.first + len(e.events) - 1 if at in placed else "lost" for at, e in enumerate(entries)]
