"""Runs the transactions of `store/rows` on a connection to PostgreSQL, in few round trips.

Writes return no rows. So they are collected, and sent as one statement before the next read, or at the end.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from asyncpg import Connection

from ..rows import Dialect, Query, Querying, Row
from ..rows.nodes import NodesReading
from ..rows.queries import queries
from ..rows.transactions import Writing

T = TypeVar("T")

DIALECT = Dialect(
    many=list,
    entry=list,
    sought="'{}'".format,
    sought_beginning="'{}':*".format,
)
"""Lists are arrays, search expressions are those of tsquery. Words contain no character that is special in tsquery."""

READING = NodesReading(DIALECT)
WRITING = Writing(DIALECT)

_VALUE = re.compile(r"(?<!:):([a-z_]\w*)|\?")
_CLOCK = "date_part('epoch', statement_timestamp())"  # the time of the database: the same for every node
_WRITE = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM) (\w+)")
_MOST_TOGETHER = 60  # writes in a statement at most: planning thousands takes seconds, and 32,767 values are the limit
_NUL, _MARK = "\x00", "\ufdd0"  # PostgreSQL has no NUL in texts; the mark is no character, and stands for one


class _Statement(NamedTuple):
    """A query with numbered values: `$1`, `$2`, ..."""

    text: str
    names: tuple[str, ...]
    """The names of its values in order."""
    verb: str
    """INSERT INTO, UPDATE or DELETE FROM; empty for a query that returns rows."""
    table: str
    reads: bool
    """True if it contains a SELECT: it must see the writes before it."""


@functools.cache
def statement(query: Query) -> _Statement:
    """Return a query in PostgreSQL's form."""
    text = queries("postgres")[query]
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found[1] or f"?{len(names)}"
        if name == "clock":
            return _CLOCK
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    numbered = _VALUE.sub(number, text)
    found = _WRITE.match(text)
    verb, table = (found[1], found[2]) if found else ("", "")
    return _Statement(numbered, tuple(names), verb, table, "SELECT" in text)


async def drive_async(connection: Connection, steps: Querying[T]) -> T:
    """Run the steps of a transaction, and return its result."""
    writes = _Writes(connection)
    rows: Iterable[Row] = ()
    try:
        query, values = next(steps)
        while True:
            compiled = statement(query)
            if isinstance(values, list):
                await writes.send()
                await connection.executemany(compiled.text, [_in_order(compiled, each) for each in values])
            elif compiled.verb:
                await writes.add(query, compiled, values)
            elif compiled.text:
                await writes.send()
                rows = await queried(connection, compiled, values)
            query, values = steps.send(rows)
    except StopIteration as end:
        await writes.send()
        result: T = end.value
        return result


def _in_order(compiled: _Statement, values: tuple[Any, ...] | dict[str, Any]) -> tuple[Any, ...]:
    """Return the values of one of many equal writes."""
    return values if isinstance(values, tuple) else tuple(sendable(values[name]) for name in compiled.names)


async def queried(connection: Connection, compiled: _Statement, values: dict[str, Any]) -> list[Row]:
    """Run a query that returns rows."""
    rows = await connection.fetch(compiled.text, *[sendable(values[name]) for name in compiled.names])
    return [_restored(row) for row in rows]


class _Writes:
    """Writes that were not sent yet.

    The parts of one statement do not see each other's changes. So a statement may have any number of inserts, but a
    change or deletion in a table that it already writes to begins a new one, and so does a write that reads.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queries: list[Query] = []
        self._values: list[dict[str, Any]] = []
        self._verbs: dict[str, str] = {}

    async def add(self, query: Query, compiled: _Statement, values: dict[str, Any]) -> None:
        is_full = len(self._queries) == _MOST_TOGETHER
        changes = self._verbs.get(compiled.table, "INSERT INTO") != "INSERT INTO" or self._would_change(compiled)
        if compiled.reads or changes or is_full:
            await self.send()
        self._queries.append(query)
        self._values.append(values)
        self._verbs[compiled.table] = compiled.verb

    def _would_change(self, compiled: _Statement) -> bool:
        """Return whether a write changes or deletes rows of a table that an earlier write adds rows to."""
        return compiled.table in self._verbs and compiled.verb != "INSERT INTO"

    async def send(self) -> None:
        """Send the collected writes as one statement."""
        if not self._queries:
            return
        joined = _joined(tuple(self._queries))
        values = [values[name] for values, (_, names) in zip(self._values, joined.parts, strict=True) for name in names]
        self._queries, self._values, self._verbs = [], [], {}
        await self._connection.execute(joined.text, *map(sendable, values))


class _Joined(NamedTuple):
    """Several writes as one statement."""

    text: str
    parts: list[tuple[Query, tuple[str, ...]]]
    """Each query with the names of its values."""


@functools.lru_cache(1024)
def _joined(names: tuple[Query, ...]) -> _Joined:
    parts = [(name, statement(name)) for name in names]
    texts: list[str] = []
    values = 0
    for _, compiled in parts:
        texts.append(_renumbered(compiled.text, values))
        values += len(compiled.names)
    *first, last = texts
    withs = ", ".join(f"w{n} AS ({text})" for n, text in enumerate(first))
    return _Joined(f"WITH {withs} {last}" if first else last, [(name, compiled.names) for name, compiled in parts])


def _renumbered(text: str, by: int) -> str:
    return re.sub(r"\$(\d+)", lambda found: f"${int(found[1]) + by}", text)


# NUL characters in texts


def sendable(value: Any) -> Any:
    """Return a value that PostgreSQL accepts: a NUL in a text becomes a mark and a digit, as does the mark itself."""
    if isinstance(value, str):
        if _NUL in value or _MARK in value:
            return value.replace(_MARK, f"{_MARK}1").replace(_NUL, f"{_MARK}0")
    elif isinstance(value, list):
        return [sendable(each) for each in value]
    return value


def _restored(row: Row) -> Row:
    """Return a row with its original texts."""
    if any(isinstance(value, str) and _MARK in value for value in row):
        return _Restored({name: original(row[name]) for name in row.keys()})  # noqa: SIM118  a row yields values
    return row


def original(value: Any) -> Any:
    """Return a value as it was before `sendable`."""
    if not isinstance(value, str):
        return value
    return value.replace(f"{_MARK}0", _NUL).replace(f"{_MARK}1", _MARK)


class _Restored(dict[str, Any]):
    """A row whose texts were restored. It yields its values, as rows do."""

    def __iter__(self) -> Any:
        return iter(self.values())
