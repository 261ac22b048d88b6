"""The tables of a PostgreSQL store, to copy from and to."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from asyncpg import Connection, DataError

from ...errors import Conflict
from ..place import without_password
from ..rows.migrations import COPYING, StoreDamaged
from ..rows.tables import RECOUNT, StoreTable, TableRow
from .connections import DRIVER_ERRORS, connect_to_postgres, unreachable
from .driver import original, sendable
from .schema import prepare_schema

_SECONDS = 600.0  # timeout of a statement: the count of a large table takes long
P = ParamSpec("P")
T = TypeVar("T")
_NUMBERED = ("sessions", "files", "runs", "documents", "api_keys")


def _answered(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Raise `StoreUnavailable` in place of the driver's errors; `StoreDamaged` for a value that has another type."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except DataError as error:
            raise StoreDamaged(
                f"A value of the source does not fit its column in PostgreSQL: {error}. The server is not the cause. "
                "Check the source with `holdfast db check`, and report this if it finds nothing."
            ) from error
        except DRIVER_ERRORS as error:
            raise unreachable(error) from error

    return call


class PostgresTables:
    """A database that no server uses meanwhile."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.place = without_password(url)
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> PostgresTables:
        """Connect, create the schema if there is none, and refuse a database that servers use."""
        await prepare_schema(url, for_copy=True)
        connection = await connect_to_postgres(url, statement_seconds=_SECONDS)
        alive = await connection.fetchval(
            "SELECT count(*) FROM keepers WHERE NOT fenced AND until > date_part('epoch', now())"
        )
        if alive:
            await connection.close()
            raise Conflict(f"{without_password(url)} is in use by {alive} servers. Stop them, then copy.")
        return cls(url, connection)

    @_answered
    async def source_of_copy(self) -> str | None:
        """Return the source of an unfinished copy to this database."""
        if await self._connection.fetchval("SELECT to_regclass($1)", COPYING) is None:
            return None
        return str(await self._connection.fetchval(f"SELECT source FROM {COPYING}"))

    @_answered
    async def begin_copy(self, source: str) -> None:
        """Mark the database as an incomplete copy."""
        async with self._connection.transaction():
            await self._connection.execute(f"CREATE TABLE {COPYING} (source text NOT NULL)")
            await self._connection.execute(f"INSERT INTO {COPYING} VALUES ($1)", source)

    @_answered
    async def end_copy(self) -> None:
        """Count what is stored, let the sequences continue after the copied numbers, and remove the mark."""
        async with self._connection.transaction():
            for text in RECOUNT:
                await self._connection.execute(text)
            for name in _NUMBERED:
                sequence = f"pg_get_serial_sequence('{name}', 'n')"
                await self._connection.execute(
                    f"SELECT setval({sequence}, max(n)) FROM {name} HAVING max(n) IS NOT NULL"
                )
            await self._connection.execute(f"DROP TABLE {COPYING}")

    @_answered
    async def count(self, table: StoreTable) -> int:
        """Return how many rows a table has."""
        return int(await self._connection.fetchval(f"SELECT count(*) FROM {table.name}"))

    @_answered
    async def read(self, table: StoreTable, after: TableRow | None) -> list[TableRow]:
        """Return the next rows of a table."""
        keys = ", ".join(table.columns[: table.keys])
        values = ", ".join(f"${n}" for n in range(1, table.keys + 1))
        place = "" if after is None else f"WHERE ({keys}) > ({values})"
        columns = ", ".join(map(_read_as, table.columns))
        rows = await self._connection.fetch(
            f"SELECT {columns} FROM {table.name} {place} ORDER BY {keys} LIMIT {table.page}",
            *map(sendable, after or ()),
        )
        return [tuple(map(_plain, table.columns, row)) for row in rows]

    @_answered
    async def last_key(self, table: StoreTable) -> TableRow | None:
        """Return the greatest key of a table."""
        keys = table.columns[: table.keys]
        order = ", ".join(f"{key} DESC" for key in keys)
        row = await self._connection.fetchrow(f"SELECT {', '.join(keys)} FROM {table.name} ORDER BY {order} LIMIT 1")
        return None if row is None else tuple(map(original, row))

    @_answered
    async def add(self, table: StoreTable, rows: Sequence[TableRow]) -> None:
        """Add rows in one transaction."""
        values = ", ".join(
            f"array_to_tsvector(string_to_array(${n}, ' '))" if name == "words" else f"${n}"
            for n, name in enumerate(table.columns, 1)
        )
        columns = ", ".join(table.columns)
        await self._connection.executemany(
            f"INSERT INTO {table.name} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING",
            [tuple(map(_typed, table.columns, row)) for row in rows],
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def _read_as(column: str) -> str:
    return "array_to_string(tsvector_to_array(words), ' ') AS words" if column == "words" else column


def _plain(column: str, value: Any) -> Any:
    """Return a value as it is in every database."""
    if column == "words":
        return " ".join(sorted(value.split(" ")))
    return int(value) if isinstance(value, bool) else original(value)


def _typed(column: str, value: Any) -> Any:
    return bool(value) if column == "admin" else sendable(value)
