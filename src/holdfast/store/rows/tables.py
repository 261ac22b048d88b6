"""The tables of a SQL store, as they are copied from one database to another."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

TableRow = tuple[Any, ...]
"""The values of a row in the order of its columns: texts, bytes, numbers or None, the same in every database."""


class StoreTable(NamedTuple):
    """A table: its columns, and how many of them, from the first, are its key."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1
    page: int = 500
    """Number of rows in one read."""


def _table(name: str, columns: str, keys: int = 1, page: int = 500) -> StoreTable:
    return StoreTable(name, tuple(columns.split()), keys, page)


TABLES = (
    _table(
        "sessions",
        "n id owner kind title titled model folder tags archived system params preset on_break pinned head_id "
        "created_at updated_at message_n feed_n queue_n indexed_n",
    ),
    _table("files", "n sha256 type data", page=4),
    _table("files_used", "session file", 2),
    _table("readers", "session reader seen told wanted", 2),
    _table("messages", "session n id body", 2, page=100),
    _table("feed", "session n type data message", 2),
    _table("search", "session n words", 2, page=100),
    _table(
        "runs",
        "n id owner session message_id parent_id model kind lifetime status keeper epoch ask queue_number input "
        "follows seq oldest created_at started_at settled_at settlement ahead waits payer asked",
        page=100,
    ),
    _table("events", "run first count body at", 2, page=1000),
    _table("idempotency", "owner key digest run", 2),
    _table("documents", "n kind id owner version created_at updated_at body", page=50),
    _table("owners", "id account"),
    _table("api_keys", "n id name sha256 created_at admin revoked_at owner account details last_used_at changed"),
    _table(
        "charges",
        "id owner key group_ids model keeper day started_at settled_at input_tokens output_tokens cost held_tokens "
        "held_cost runs",
    ),
    _table("usage", "day owner key model runs input_tokens output_tokens cost", 4),
    _table("group_usage", "group_id day tokens cost", 2),
    _table("audit", "n id at actor action target body hash"),
    _table("audit_end", "one n hash"),
)
"""All tables to copy, ordered by their references. Leases and requests between nodes are not copied."""

RECOUNT = ("DELETE FROM stored", "INSERT INTO stored SELECT owner, sum(bytes) FROM stored_rows GROUP BY owner")
"""Counts anew what each owner has stored."""

MISCOUNTED = """
SELECT owner, sum(counted) AS counted, sum(found) AS found FROM (
    SELECT owner, bytes AS counted, 0 AS found FROM stored UNION ALL SELECT owner, 0, bytes FROM stored_rows
) AS both_sums GROUP BY owner HAVING sum(counted) <> sum(found) ORDER BY owner
"""
"""The owners whose counter is not what their rows have."""


class Tables(Protocol):
    """A database that is the source or target of a copy. No server uses it meanwhile."""

    place: str
    """Its address, without a password."""

    async def source_of_copy(self) -> str | None:
        """Return the source of an unfinished copy to this database; None if there is none."""
        ...

    async def begin_copy(self, source: str) -> None:
        """Mark the database as an incomplete copy: it cannot be used before the copy is complete."""
        ...

    async def end_copy(self) -> None:
        """Count what is stored, let the sequences continue after the copied numbers, and remove the mark."""
        ...

    async def count(self, table: StoreTable) -> int:
        """Return how many rows a table has."""
        ...

    async def read(self, table: StoreTable, after: TableRow | None) -> list[TableRow]:
        """Return the next rows of a table in the order of its key; `after` is the key to continue after."""
        ...

    async def last_key(self, table: StoreTable) -> TableRow | None:
        """Return the greatest key of a table; None if it is empty."""
        ...

    async def add(self, table: StoreTable, rows: Sequence[TableRow]) -> None:
        """Add rows, in one transaction. Existing rows are not changed."""
        ...

    async def close(self) -> None:
        """Close the database."""
        ...


def digest_of(row: TableRow) -> int:
    """Return the digest of a row as a number. Their sum is the digest of a table, independent of the order of rows."""
    return int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(row)).digest())
