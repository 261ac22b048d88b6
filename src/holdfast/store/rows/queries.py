"""Queries by name, from the files in `store/sql`."""

from __future__ import annotations

import functools
from pathlib import Path

from . import Query

SQL = Path(__file__).parents[1] / "sql"


class Queries(dict[Query, str]):
    """The text of each query of one dialect. A query that this dialect does not need has no text.

    The key `(name, condition, ...)` is a query with `{conditions}` in its text, and the conditions that take its place.
    `{n}` in a condition is its number, so that one condition can stand there twice, with different values.
    """

    def __missing__(self, key: Query) -> str:
        """Build a query from its text and its conditions, and cache it. There are few different ones."""
        if isinstance(key, str):
            raise KeyError(key)
        name, *conditions = key
        parts = (self[condition].replace("{n}", str(n)) for n, condition in enumerate(conditions))
        text = self[key] = self[name].replace("{conditions}", " AND ".join(parts))
        return text


@functools.cache
def queries(dialect: str) -> Queries:
    """Return the queries of a dialect: the common ones, and those of the dialect's own file."""
    return Queries(_named("queries") | _named(dialect))


def _named(file: str) -> dict[Query, str]:
    _, *sections = (SQL / f"{file}.sql").read_text("utf-8").split("-- name: ")
    named = (section.partition("\n") for section in sections)
    return {name.strip(): "\n".join(_code_lines(sql)) for name, _, sql in named}


def _code_lines(sql: str) -> list[str]:
    return [line for line in sql.splitlines() if line.strip() and not line.startswith("--")]
