"""Runs the transactions of `store/rows` on a connection to SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from ..rows import Dialect, Querying, Row
from ..rows.nodes import NodesReading
from ..rows.queries import queries
from ..rows.transactions import Writing
from .file import roll_back

T = TypeVar("T")

DIALECT = Dialect(
    many=msgspec.json.encode,
    entry=" ".join,
    sought='"{}"'.format,
    sought_beginning='"{}"*'.format,
)
"""Lists are JSON, search expressions are those of FTS5."""

READING = NodesReading(DIALECT)
WRITING = Writing(DIALECT)


def drive(db: sqlite3.Connection, steps: Querying[T]) -> T:
    """Run the steps of a transaction that has begun, and return its result. Rows are read as the steps need them."""
    sql, execute, send = queries("sqlite"), db.execute, steps.send
    rows: Iterable[Row] = ()
    try:
        query, values = next(steps)
        while True:
            if isinstance(values, list):
                rows = db.executemany(sql[query], values)
            elif text := sql[query]:
                rows = execute(text, values)
            query, values = send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def drive_snapshot(db: sqlite3.Connection, steps: Querying[T]) -> T:
    """Run steps that only read, all in one snapshot."""
    db.execute("BEGIN")
    try:
        return drive(db, steps)
    finally:
        roll_back(db)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done in the block; after an error nothing of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        roll_back(db)
