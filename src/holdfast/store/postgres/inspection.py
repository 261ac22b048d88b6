"""The state of a PostgreSQL server, as far as it matters for a store of several nodes. Nothing is changed there."""

from __future__ import annotations

import time

import msgspec
from asyncpg import Connection

from ..records import NodeRecord
from .connections import DRIVER_ERRORS, connect_to_postgres, unreachable
from .driver import READING, drive_async
from .schema import postgres_steps

_SETTINGS = """
SELECT current_setting('server_version') AS version,
    current_setting('server_version_num')::int / 10000 AS major,
    pg_is_in_recovery() AS is_standby,
    current_setting('fsync') = 'on' AS flushes,
    (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS standby_names,
    least(
        current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', TRUE), '0')::int,
        (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
        (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())
    ) AS connections,
    (SELECT count(*) FROM pg_stat_replication) AS standbys,
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous_standbys,
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL) AS hidden_standbys
"""
_IS_OURS = "SELECT to_regclass('migrations') IS NOT NULL"
_SCHEMA = "SELECT coalesce(max(number), 0) FROM migrations"
_NEEDED_SCHEMA = """
SELECT coalesce(max(coalesce(works_with, number)), 0) FROM migrations WHERE number > $1
"""
_KEYS = "SELECT count(*) FROM api_keys WHERE revoked_at IS NULL"
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"
_PID = "SELECT pg_backend_pid()"


class ServerSettings(msgspec.Struct, frozen=True):
    """The settings and the state of a PostgreSQL server."""

    version: str
    major: int
    is_standby: bool
    flushes: bool
    """True if commits wait for the disk (`fsync`)."""
    synchronous_commit: str
    """The default of this user and database. Connections of a node turn `off` to `on`."""
    standby_names: str
    connections: int
    """Maximum number of connections for this user and database."""
    standbys: int
    synchronous_standbys: int
    hidden_standbys: int
    """Standbys whose state this user may not see."""


class Inspection(msgspec.Struct, frozen=True):
    """The result of an inspection."""

    server: ServerSettings
    schema: int
    """The last migration of the database; 0 if there is none."""
    known_schema: int
    """The last migration of this version."""
    needed_schema: int
    """The migration that a version needs to use the tables; 0 if this version has all migrations of the database."""
    clock_difference: float
    """Seconds by which the server's clock is ahead of the local one."""
    is_pooled: bool
    """True if a pooler runs the transactions of one connection in several server processes."""
    nodes: list[NodeRecord]
    keys: int


async def inspect_postgres(url: str) -> Inspection:
    """Inspect a PostgreSQL server over two connections."""
    try:
        connection = await connect_to_postgres(url)
        try:
            return await _inspect(connection, url)
        finally:
            connection.terminate()
    except DRIVER_ERRORS as error:
        raise unreachable(error) from error


async def _inspect(connection: Connection, url: str) -> Inspection:
    is_pooled = await _is_pooled(connection, url)
    await connection.execute("BEGIN")  # behind a pooler the connection stays the same until the end of a transaction
    server = ServerSettings(**dict(await connection.fetchrow(_SETTINGS)))
    known = postgres_steps()[-1].number
    is_ours = await connection.fetchval(_IS_OURS)
    schema = await connection.fetchval(_SCHEMA) if is_ours else 0
    needed = await connection.fetchval(_NEEDED_SCHEMA, known) if is_ours else 0
    is_readable = needed <= known <= schema
    return Inspection(
        server=server,
        schema=schema,
        known_schema=known,
        needed_schema=needed,
        clock_difference=await _clock_difference(connection),
        is_pooled=is_pooled,
        nodes=await drive_async(connection, READING.nodes()) if is_readable else [],
        keys=await connection.fetchval(_KEYS) if is_readable else 0,
    )


async def _is_pooled(one: Connection, url: str) -> bool:
    """Return whether two connections get the same server process, or one connection gets several."""
    before = await _process_of_transaction(one)
    other = await connect_to_postgres(url)
    try:
        await other.execute("BEGIN")
        taken = await other.fetchval(_PID)
        return bool(taken == before or await _process_of_transaction(one) != before)
    finally:
        other.terminate()


async def _process_of_transaction(connection: Connection) -> int:
    await connection.execute("BEGIN")
    try:
        process: int = await connection.fetchval(_PID)
        return process
    finally:
        await connection.execute("COMMIT")


async def _clock_difference(connection: Connection) -> float:
    """Return the difference as of the middle of the quickest of three round trips."""
    found = []
    for _ in range(3):
        sent = time.time()
        there = await connection.fetchval(_CLOCK)
        answered = time.time()
        found.append((answered - sent, there - (sent + answered) / 2))
    return float(min(found)[1])
