"""The transactions of every SQL store, written once.

A transaction is a generator. It yields the name of a query with its values, and receives the rows. A driver for each
database runs it: `store/sqlite/driver.py` in a thread, `store/postgres/driver.py` on a connection of a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")


class Row(Protocol):
    """One row of a result: values by the names of their columns, or in order."""

    def __getitem__(self, column: str, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def keys(self) -> Iterable[str]: ...


Query: TypeAlias = "str | tuple[str, ...]"
"""The name of a query; with conditions, the names of these after it. See `Queries`."""
Values: TypeAlias = "dict[str, Any] | list[tuple[Any, ...]] | list[dict[str, Any]]"
"""The values of a query by name; or a list, to run the query once for each of its entries."""
Querying: TypeAlias = Generator[tuple[Query, Values], Iterable[Row], T]
"""A transaction, or a part of one, that returns a T. The rows that it receives can be read once."""


class Dialect(NamedTuple):
    """The differences of the databases in values of queries. Their differences in SQL are in `store/sql`."""

    many: Callable[[Sequence[Any]], Any]
    """Converts a list to one value."""
    entry: Callable[[Sequence[str]], Any]
    """Returns the index value of a message, from its words and prefixes of words."""
    sought: Callable[[str], str]
    """Returns the search expression for an index entry."""
    sought_beginning: Callable[[str], str]
    """Returns the search expression for index entries with a prefix."""


def first(rows: Iterable[Row]) -> Row | None:
    """Return the first row of a result; None if it has none."""
    return next(iter(rows), None)
