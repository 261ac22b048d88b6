"""The schema of a PostgreSQL store: created and migrated by the first node that opens it."""

from __future__ import annotations

import functools
import time

from asyncpg import Connection

from ..place import without_password
from ..rows.migrations import COPYING, Migration, StoreDamaged, StoreInUse, check_applied, incomplete_copy, steps_in
from ..rows.queries import SQL
from .connections import DRIVER_ERRORS, connect_to_postgres, unreachable

_LOCK = 0x486F6C64  # "Hold": the advisory lock of the node that migrates
_SECONDS = 600.0  # timeout of a migration
_OLDEST = 140000  # PostgreSQL 14


@functools.cache
def postgres_steps() -> tuple[Migration, ...]:
    """Return the migrations of this version, in order."""
    return steps_in(SQL / "postgres")


async def prepare_schema(url: str, *, for_copy: bool = False) -> None:
    """Bring the schema up to date. Other nodes that start at the same time wait.

    A database that is an incomplete copy is refused, unless `for_copy`.
    """
    try:
        connection = await connect_to_postgres(url, statement_seconds=_SECONDS)
    except DRIVER_ERRORS as error:
        raise unreachable(error) from error
    try:
        _check_version(connection, url)
        await _migrate(connection, url)
        if not for_copy and await connection.fetchval("SELECT to_regclass($1)", COPYING) is not None:
            raise incomplete_copy(without_password(url))
    except DRIVER_ERRORS as error:
        raise unreachable(error) from error
    finally:
        connection.terminate()


async def pending_in_postgres(url: str) -> list[Migration]:
    """Return the migrations that a database lacks. Nothing is changed. A newer schema is refused."""
    try:
        connection = await connect_to_postgres(url, statement_seconds=_SECONDS)
    except DRIVER_ERRORS as error:
        raise unreachable(error) from error
    try:
        await _refuse_other_program(connection, url)
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return list(postgres_steps())
        return await _due(connection, url)
    except DRIVER_ERRORS as error:
        raise unreachable(error) from error
    finally:
        connection.terminate()


def _check_version(connection: Connection, url: str) -> None:
    version = connection.get_server_version()
    if version.major < _OLDEST // 10_000:
        raise StoreDamaged(
            f"{without_password(url)} is PostgreSQL {version.major}.{version.minor}. "
            f"Holdfast needs {_OLDEST // 10_000} or newer."
        )


async def _migrate(connection: Connection, url: str) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await _refuse_other_program(connection, url)
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at float8 NOT NULL, "
            "works_with integer)"
        )
        due = await _due(connection, url)
        await _refuse_to_break_others(connection, due)
        for step in due:
            await _apply(connection, step)


async def _due(connection: Connection, url: str) -> list[Migration]:
    """Return the migrations that are not applied yet. A database with a migration of a newer version is refused."""
    rows = await connection.fetch("SELECT * FROM migrations")
    applied: dict[int, str] = {row["number"]: row["checksum"] for row in rows}
    oldest = {row["number"]: row["works_with"] or row["number"] for row in rows}
    known = {step.number: step for step in postgres_steps()}
    check_applied(applied, known, without_password(url), "restore a backup of the database (pg_restore)", oldest)
    return [step for step in known.values() if step.number not in applied]


async def _refuse_to_break_others(connection: Connection, due: list[Migration]) -> None:
    """Refuse a migration that is not compatible with the running nodes."""
    now = await connection.fetchval("SELECT coalesce(max(number), 0) FROM migrations")
    if not now or all(step.works_with <= now for step in due):
        return
    alive = "SELECT count(*) FROM keepers WHERE NOT fenced AND until > extract(epoch FROM clock_timestamp())"
    if count := await connection.fetchval(alive):
        raise StoreInUse(
            f"This version changes the tables in a way that the {count} running servers cannot work with. "
            "Stop all of them, and start this version then."
        )


async def _refuse_other_program(connection: Connection, url: str) -> None:
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    names = {row["tablename"] for row in tables}
    if names & {"sessions", "runs", "events", "messages"} and "migrations" not in names:
        raise StoreDamaged(
            f"{without_password(url)} has tables of another program. Give Holdfast a database of its own."
        )


async def _apply(connection: Connection, step: Migration) -> None:
    await connection.execute(step.sql)
    await connection.execute(
        "INSERT INTO migrations (number, name, checksum, applied_at, works_with) VALUES ($1, $2, $3, $4, $5)",
        step.number,
        step.name,
        step.checksum,
        time.time(),
        step.works_with,
    )
