"""What a store in a file has kept."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

Kept = dict[str, list[tuple[Any, ...]]]
"""The rows of each table."""


def kept_in(file: Path, *, but: Collection[str] = ()) -> Kept:
    """All rows, without those of some tables, and without the search index, which follows the messages by itself."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: _rows(db, name) for name in names if name not in but and not name.startswith("search")}


def _rows(db: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "indexed_n"]
    return db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
