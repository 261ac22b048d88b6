"""The tables of a SQLite store, to copy from and to."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..rows.migrations import COPYING
from ..rows.tables import RECOUNT, StoreTable, TableRow
from .file import locate, prepare

_SEARCH = "SELECT rowid >> 20, rowid & ((1 << 20) - 1), words FROM search"


def _as_declared(row: Sequence[Any], binary: Sequence[bool]) -> TableRow:
    """Return a row with bytes in its binary columns."""
    return tuple(
        value.encode() if is_binary and isinstance(value, str) else value
        for value, is_binary in zip(row, binary, strict=True)
    )


class SqliteTables:
    """A database file that no other process uses meanwhile."""

    def __init__(self, path: str | Path) -> None:
        self._path = locate(path)
        self.place = str(self._path)
        self._lock, self._db = prepare(self._path, for_copy=True)

    async def source_of_copy(self) -> str | None:
        """Return the source of an unfinished copy to this database."""
        if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (COPYING,)).fetchone():
            return None
        (source,) = self._db.execute(f"SELECT source FROM {COPYING}").fetchone()
        return str(source)

    async def begin_copy(self, source: str) -> None:
        """Mark the database as an incomplete copy."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(f"CREATE TABLE {COPYING} (source TEXT NOT NULL)")
        self._db.execute(f"INSERT INTO {COPYING} VALUES (?)", (source,))
        self._db.execute("COMMIT")

    async def end_copy(self) -> None:
        """Count what is stored, and remove the mark."""
        self._db.execute("BEGIN IMMEDIATE")
        for text in RECOUNT:
            self._db.execute(text)
        self._db.execute(f"DROP TABLE {COPYING}")
        self._db.execute("COMMIT")

    async def count(self, table: StoreTable) -> int:
        """Return how many rows a table has."""
        (count,) = self._db.execute(f"SELECT count(*) FROM {table.name}").fetchone()
        return int(count)

    async def read(self, table: StoreTable, after: TableRow | None) -> list[TableRow]:
        """Return the next rows of a table."""
        if table.name == "search":
            return self._read_search(table, after)
        keys = ", ".join(table.columns[: table.keys])
        place = "" if after is None else f"WHERE ({keys}) > ({', '.join('?' * table.keys)})"
        columns = ", ".join(table.columns)
        query = f"SELECT {columns} FROM {table.name} {place} ORDER BY {keys} LIMIT {table.page}"
        binary = self._binary_columns(table)
        return [_as_declared(row, binary) for row in self._db.execute(query, after or ())]

    def _binary_columns(self, table: StoreTable) -> list[bool]:
        """Return which columns of a table are declared as bytes. SQLite takes texts there too."""
        types = {name: type for _, name, type, *_ in self._db.execute(f"PRAGMA table_info({table.name})")}
        return [types[column] == "BLOB" for column in table.columns]

    def _read_search(self, table: StoreTable, after: TableRow | None) -> list[TableRow]:
        place = -1 if after is None else (after[0] << 20) + after[1]
        rows = self._db.execute(f"{_SEARCH} WHERE rowid > ? ORDER BY rowid LIMIT {table.page}", (place,))
        return [(session, n, " ".join(sorted(set(words.split(" "))))) for session, n, words in rows]

    async def last_key(self, table: StoreTable) -> TableRow | None:
        """Return the greatest key of a table."""
        if table.name == "search":
            row = self._db.execute(f"{_SEARCH} ORDER BY rowid DESC LIMIT 1").fetchone()
            return None if row is None else (row[0], row[1])
        keys = table.columns[: table.keys]
        order = ", ".join(f"{key} DESC" for key in keys)
        row = self._db.execute(f"SELECT {', '.join(keys)} FROM {table.name} ORDER BY {order} LIMIT 1").fetchone()
        return None if row is None else tuple(row)

    async def add(self, table: StoreTable, rows: Sequence[TableRow]) -> None:
        """Add rows in one transaction."""
        if table.name == "search":
            text = "INSERT INTO search (rowid, words) VALUES ((? << 20) + ?, ?)"
        else:
            values = ", ".join("?" * len(table.columns))
            columns = ", ".join(table.columns)
            text = f"INSERT INTO {table.name} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(text, rows)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._db.execute("ROLLBACK")
            raise

    async def close(self) -> None:
        """Close the database."""
        self._db.close()
        self._lock.release()
