"""Changes of rows by migrations that SQL alone cannot make.

A published migration never changes: it has its own statements, not those of the newest version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import msgspec

from ...history import Message
from ..files import take_out

_HAS_A_PICTURE = "instr(CAST({column} AS BLOB), CAST('data:image/' AS BLOB))"


class _Queued(msgspec.Struct):
    """The data of a feed entry about a queued run."""

    run_id: str
    queue_number: int | None
    input: list[Message]


def move_pictures(db: sqlite3.Connection) -> None:
    """Migration 8: store the pictures of messages, of queued runs and of the feed as files."""
    _move(db, "messages", "body", _without_pictures)
    _move(db, "runs", "input", _input_without_pictures, "session IS NOT NULL")
    _move(db, "feed", "data", _entry_without_pictures, "type IN ('run.queued', 'queue.changed')")


_Change = Callable[[bytes, "_Files"], bytes]


class _Files:
    """Stores the pictures of one session."""

    def __init__(self, db: sqlite3.Connection, session: int) -> None:
        self._db = db
        self._session = session

    def keep(self, messages: list[Message]) -> tuple[Message, ...]:
        """Return the messages with references in place of their pictures."""
        parted = take_out(messages)
        for sha256, file in parted.files.items():
            self._db.execute(
                "INSERT INTO files (sha256, type, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (sha256, file.type, file.data),
            )
            self._db.execute(
                "INSERT INTO files_used (session, file) SELECT ?, n FROM files WHERE sha256 = ? ON CONFLICT DO NOTHING",
                (self._session, sha256),
            )
        return parted.messages


def _move(db: sqlite3.Connection, table: str, column: str, change: _Change, condition: str = "TRUE") -> None:
    """Change the rows that have a picture, one at a time: together they may not fit into memory."""
    found = _HAS_A_PICTURE.format(column=column)
    for session, n in db.execute(f"SELECT session, n FROM {table} WHERE {condition} AND {found}").fetchall():
        (before,) = db.execute(f"SELECT {column} FROM {table} WHERE session = ? AND n = ?", (session, n)).fetchone()
        after = change(before, _Files(db, session))
        db.execute(f"UPDATE {table} SET {column} = ? WHERE session = ? AND n = ?", (after, session, n))


def _without_pictures(body: bytes, files: _Files) -> bytes:
    (message,) = files.keep([msgspec.json.decode(body, type=Message)])
    return msgspec.json.encode(message)


def _input_without_pictures(body: bytes, files: _Files) -> bytes:
    return msgspec.json.encode(files.keep(msgspec.json.decode(body, type=list[Message])))


def _entry_without_pictures(body: bytes, files: _Files) -> bytes:
    entry = msgspec.json.decode(body, type=_Queued)
    entry.input = list(files.keep(entry.input))
    return msgspec.json.encode(entry)
