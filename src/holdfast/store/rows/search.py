"""The entries of the search index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import Dialect, Row

MOST_INDEXED = 1 << 20  # maximum messages of one session that the index can number, see the schema
_BEGINNING = 3  # letters: prefixes of words up to this length are index entries


def indexed(words: Sequence[str]) -> list[str]:
    """Return the index entries of words: the words, and their prefixes with a leading dot, which no word has."""
    beginnings = longest = {word[:_BEGINNING] for word in words}
    for letters in range(1, _BEGINNING):
        beginnings = beginnings | {word[:letters] for word in longest}
    return [*words, *map("·".__add__, beginnings)]


def looked_up(start: str, dialect: Dialect) -> str:
    """Return the search expression for words with this prefix."""
    return dialect.sought(f"·{start}") if len(start) <= _BEGINNING else dialect.sought_beginning(start)


def words_in(rows: Iterable[Row]) -> list[str]:
    """Return the words of some rows of the index."""
    return [word for row in rows for word in row["words"].split(" ")]
