"""A store whose calls are measured."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any, cast

from .....errors import HoldfastError, StoreUnavailable
from .....store import Append, LogEnd, Store
from .....store.records import NodeRecord
from .values import MetricTable, MetricValue

OPERATIONS = frozenset(name for name, _ in inspect.getmembers(Store, inspect.iscoroutinefunction))
"""Methods of every store: the values of the label `operation`."""


class TimedStore:
    """Passes every call on to a store. Costs two readings of the clock for each."""

    def __init__(self, store: Store, table: MetricTable) -> None:
        self._store = store
        self._seconds = table["holdfast_store_operation_seconds"]
        self._errors = table["holdfast_store_errors_total"]
        self._saved = table["holdfast_events_saved_total"].of()
        self._nodes = table["holdfast_nodes"].of()
        self._takeovers = table["holdfast_takeovers_total"].of()
        self._taken: set[tuple[str, int]] = set()
        """The runs, with their epochs, that the last `claim` returned and that other nodes had owned."""
        self._append, self._appending = store.append, self._seconds.of("append")
        self._claim = self._timed("claim")
        self._list_nodes = self._timed("nodes")

    def __getattr__(self, name: str) -> Any:
        found = self._timed(name) if name in OPERATIONS else getattr(self._store, name)
        setattr(self, name, found)  # cached for the next call
        return found

    async def append(self, node_id: str, entries: Sequence[Append]) -> list[LogEnd]:
        """Add events to logs, and count them. Measured here and not by the general wrapper, as it is called often."""
        began = perf_counter()
        try:
            ends = await self._append(node_id, entries)
        except Exception as error:
            _count_failure(self._errors.of("append"), error)
            raise
        finally:
            self._appending.observe(perf_counter() - began)
        self._saved.total += sum([len(entry.events) for entry in entries])
        return ends

    async def claim(self, node_id: str, unbroken: float = 0.0) -> dict[str, int]:
        """Take over the runs of dead nodes, and count the new ones."""
        owned: dict[str, int] = await self._claim(node_id, unbroken)
        taken = {claim for claim in owned.items() if claim[1] > 1}
        self._takeovers.inc(len(taken - self._taken))
        self._taken = taken
        return owned

    async def nodes(self) -> list[NodeRecord]:
        """Return the nodes that are not fenced, and count them."""
        nodes: list[NodeRecord] = await self._list_nodes()
        self._nodes.set(len(nodes))
        return nodes

    def _timed(self, name: str) -> Callable[..., Awaitable[Any]]:
        call: Callable[..., Awaitable[Any]] = getattr(self._store, name)
        observe = self._seconds.of(name).observe
        errors = self._errors.of(name)

        async def timed(*args: Any, **named: Any) -> Any:
            began = perf_counter()
            try:
                return await call(*args, **named)
            except Exception as error:
                _count_failure(errors, error)
                raise
            finally:
                observe(perf_counter() - began)

        return timed


def _count_failure(errors: MetricValue, error: Exception) -> None:
    """Count an error, unless it is a regular result, such as a busy session."""
    if isinstance(error, StoreUnavailable) or not isinstance(error, HoldfastError):
        errors.inc()


def timed_store(store: Store, table: MetricTable) -> Store:
    """Return a store that measures its calls."""
    return cast(Store, TimedStore(store, table))
