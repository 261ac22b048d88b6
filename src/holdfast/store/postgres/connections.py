"""A limited number of connections to PostgreSQL, and its errors as errors of the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg
from asyncpg import Connection

from ...errors import StoreUnavailable

_STATEMENT_SECONDS = 5.0
_ANSWER_SECONDS = 8.0  # timeout of a transaction: then the server counts as unreachable
_CONNECT_SECONDS = 5.0
_WAIT_SECONDS = 10.0  # timeout of waiting for a connection that another caller uses
_TRIES = 8  # of a transaction that conflicts with another one
_STATEMENTS = 400  # maximum number of prepared statements of a connection

_FLUSH_COMMITS = (
    "SELECT set_config('synchronous_commit', 'on', FALSE) WHERE current_setting('synchronous_commit') = 'off'"
)

T = TypeVar("T")

_MET_ANOTHER = (
    asyncpg.UniqueViolationError,
    asyncpg.ForeignKeyViolationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.InvalidCachedStatementError,  # a newer version has changed the tables: asyncpg prepares it again
    asyncpg.SerializationError,
)
"""Errors of a conflict with another transaction. A retry sees the changes of that one."""

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    EOFError,
)
"""Errors of a broken connection, a dead server or a refused statement."""


def unreachable(error: BaseException) -> StoreUnavailable:
    """Return the error for a failure of PostgreSQL, without the values of statements and without the password."""
    code = getattr(error, "sqlstate", None)
    empty = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    reason = str(getattr(error, "message", None) or error).partition("\n")[0] or empty
    named = f"{type(error).__name__} {code}" if code else type(error).__name__
    what = _REFUSED if code and code.startswith(("28", "3D")) else _AWAY
    return StoreUnavailable(f"PostgreSQL did not do it: {reason} ({named}). {what}; nothing acknowledged is lost.")


_AWAY = "Look whether the server is up and can be reached from here"
_REFUSED = "Check the user, the password and the database in the address of the store"


_BAD_URL = "The URL of the PostgreSQL store is not valid. In a password write / as %2F, ? as %3F, # as %23, @ as %40."


async def connect_to_postgres(url: str, *, statement_seconds: float = _STATEMENT_SECONDS) -> Connection:
    """Open a connection. Commits are flushed to the disk, whatever the server's default is."""
    try:
        connection = await asyncpg.connect(
            url,
            timeout=_CONNECT_SECONDS,
            statement_cache_size=_STATEMENTS,
            server_settings={
                "application_name": "holdfast",
                "statement_timeout": str(int(statement_seconds * 1000)),
                "idle_in_transaction_session_timeout": "15000",
            },
        )
    except asyncpg.InterfaceError:
        raise  # some of these are ValueErrors too
    except ValueError:
        raise StoreUnavailable(_BAD_URL) from None  # its message has a part of the URL, perhaps of the password
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await connection.execute(_FLUSH_COMMITS)
    except BaseException:
        connection.terminate()
        raise
    return connection


class PostgresPool:
    """At most `most` connections, opened when they are needed. A connection is not reused after an error.

    A call is completed even if its caller is cancelled.
    """

    def __init__(self, url: str, most: int) -> None:
        self._url = url
        self._idle: list[Connection] = []
        self._places = asyncio.Semaphore(most)
        self._calls: set[asyncio.Task[object]] = set()

    async def call(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` with a connection. After a conflict with another transaction, retry it."""
        call: asyncio.Task[T] = asyncio.create_task(self._repeated(work))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await asyncio.shield(call)

    async def _repeated(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        for tried in range(1, _TRIES + 1):
            try:
                async with self._taken() as connection:
                    return await work(connection)
            except _MET_ANOTHER as error:
                if tried == _TRIES:
                    raise unreachable(error) from error
                await asyncio.sleep(random.uniform(0, 0.01 * tried))
            except asyncpg.DataError:
                raise  # an invalid value, which a retry would not change
            except DRIVER_ERRORS as error:
                raise unreachable(error) from error
        raise AssertionError("not reached")

    @asynccontextmanager
    async def _taken(self) -> AsyncGenerator[Connection]:
        async with asyncio.timeout(_WAIT_SECONDS):
            await self._places.acquire()
        try:
            connection = self._open_one() or await connect_to_postgres(self._url)
            is_sound = False
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    yield connection
                is_sound = True
            except _MET_ANOTHER:
                is_sound = not connection.is_in_transaction()
                raise
            except DRIVER_ERRORS:
                raise
            except Exception:
                is_sound = not connection.is_in_transaction()  # an error of our own code, after a rollback
                raise
            finally:
                if is_sound and not connection.is_closed():
                    self._idle.append(connection)
                else:
                    connection.terminate()
        finally:
            self._places.release()

    def _open_one(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def close(self) -> None:
        """Finish the calls in progress, and close all connections."""
        while self._calls:
            await asyncio.wait(self._calls)
        for connection in self._idle:
            try:
                await connection.close(timeout=_CONNECT_SECONDS)
            except DRIVER_ERRORS:
                connection.terminate()
        self._idle.clear()
