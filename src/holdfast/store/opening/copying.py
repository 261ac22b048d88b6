"""Copies all data of a SQL store to another one, and compares the two."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ...errors import HoldfastError
from ..place import is_postgres
from ..rows.tables import TABLES, StoreTable, TableRow, Tables, digest_of
from ..sqlite.file import locate
from ..sqlite.transfer import SqliteTables
from . import StoreNotInstalled

CopyProgress = Callable[[str, int, int], None]
"""Called with the name of the step, the number of rows done, and their total."""


class CopyRefused(HoldfastError):
    """A store cannot be copied to this target."""

    code = "copy_refused"
    status = 409


async def copy_store(source_url: str, target_url: str, progress: CopyProgress) -> int:
    """Copy a store to an empty one, and return the number of its rows. Repeated after a failure, it continues."""
    source = await open_tables(source_url, must_exist=True)
    try:
        target = await open_tables(target_url)
        try:
            return await _copy(source, target, progress)
        finally:
            await target.close()
    finally:
        await source.close()


async def open_tables(url: str, *, must_exist: bool = False) -> Tables:
    """Open a database to copy from or to: `sqlite:PATH` or `postgresql://…`. Creates it, unless `must_exist`."""
    if is_postgres(url):
        try:
            module: Any = importlib.import_module("holdfast.store.postgres.transfer")
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise StoreNotInstalled from error
        opened: Tables = await module.PostgresTables.open(url)
        return opened
    if not url.startswith("sqlite:") or url == "sqlite:":
        raise CopyRefused("A store to copy is named sqlite:FOLDER or postgresql://user@host:port/dbname.")
    path = locate(url.removeprefix("sqlite:"))
    if must_exist and not path.exists():
        raise CopyRefused(f"There is no database at {path}.")
    return SqliteTables(path)


async def _copy(source: Tables, target: Tables, progress: CopyProgress) -> int:
    await _check(source, target)
    if await target.source_of_copy() is None:
        await target.begin_copy(source.place)
    for table in TABLES:
        await _copy_table(source, target, table, progress)
    rows = 0
    for table in TABLES:
        rows += await _compare(source, target, table, progress)
    await target.end_copy()
    return rows


async def _check(source: Tables, target: Tables) -> None:
    if (unfinished := await source.source_of_copy()) is not None:
        raise CopyRefused(f"{source.place} is itself an unfinished copy of {unfinished}. Complete that one first.")
    begun = await target.source_of_copy()
    if begun not in (None, source.place):
        raise CopyRefused(f"{target.place} is an unfinished copy of {begun}. Complete that one, or choose another.")
    if begun is None and any([await target.count(table) for table in TABLES]):
        raise CopyRefused(f"{target.place} has something already. Copy to an empty store.")


async def _copy_table(source: Tables, target: Tables, table: StoreTable, progress: CopyProgress) -> None:
    total, done = await source.count(table), await target.count(table)
    numbered = table.name != "idempotency"  # texts may sort differently in two databases: then all rows are compared
    after = await target.last_key(table) if numbered else None
    while rows := await source.read(table, after):
        await target.add(table, rows)
        done = min(total, done + len(rows))
        after = rows[-1][: table.keys]
        progress(f"copying {table.name}", done, total)


async def _compare(source: Tables, target: Tables, table: StoreTable, progress: CopyProgress) -> int:
    """Compare the rows of a table by their number and their digests, and return their number."""
    (count, digest), other = await _sum(source, table), await _sum(target, table)
    if (count, digest) != other:
        raise CopyRefused(
            f"The copy of {table.name} differs: {count} rows in {source.place}, {other[0]} in {target.place}. "
            "Does another program write there? Delete what was copied, and copy again."
        )
    progress(f"compared {table.name}", count, count)
    return count


async def _sum(tables: Tables, table: StoreTable) -> tuple[int, int]:
    count = total = 0
    after: TableRow | None = None
    while rows := await tables.read(table, after):
        count += len(rows)
        total += sum(map(digest_of, rows))
        after = rows[-1][: table.keys]
    return count, total % (1 << 256)
