"""A store whose commits are spans of the runs that they belong to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace
from opentelemetry.propagate import inject
from opentelemetry.trace import Span, SpanKind, Tracer, get_current_span, set_span_in_context, use_span

from .....store import Append, LogEnd, RunEnd, RunRecord, Store
from .attributes import note_error
from .calls import span_of

SLOW = 0.05
"""Minimum seconds of a commit of events that gets a span. There are very many commits: faster ones are only counted."""


class RunSpan:
    """The span of a run in progress, and its commits."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.commits = 0
        self.commit_seconds = 0.0

    def end(self) -> None:
        """End it."""
        self.span.set_attribute("holdfast.store.commits", self.commits)
        self.span.set_attribute("holdfast.store.commit_seconds", round(self.commit_seconds, 6))
        self.span.end()


RunSpans = dict[str, RunSpan]
"""The spans of the runs in progress on this node, by the ids of the runs."""


class TracedStore:
    """Passes every call on to a store, and creates spans of the commits."""

    def __init__(self, store: Store, tracer: Tracer, runs: RunSpans) -> None:
        self._store, self._tracer, self._runs = store, tracer, runs
        self.claimed: dict[str, int] = {}
        """The times at which runs of dead nodes were claimed, in nanoseconds, by id."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        setattr(self, name, found)  # cached for the next call
        return found

    async def create_run(self, run: RunRecord, *args: Any, **named: Any) -> RunRecord:
        """Add a run, with the trace of the request that starts it."""
        if not get_current_span().get_span_context().is_valid:
            return await self._store.create_run(run, *args, **named)
        carrier: dict[str, str] = {}
        inject(carrier)
        with span_of(self._tracer, "store create_run", {"holdfast.run.id": run.id}, SpanKind.CLIENT):
            return await self._store.create_run(replace(run, ask=replace(run.ask, trace=carrier)), *args, **named)

    async def append(self, node_id: str, entries: Sequence[Append]) -> list[LogEnd]:
        """Add events to logs. A commit that is slow or fails is a span of each run in it."""
        began = time.time_ns()
        failure: Exception | None = None
        try:
            return await self._store.append(node_id, entries)
        except Exception as error:
            failure = error
            raise
        finally:
            self._note_commit(entries, began, failure)

    def _note_commit(self, entries: Sequence[Append], began: int, failure: Exception | None) -> None:
        seconds = (time.time_ns() - began) / 1e9
        runs = [(entry, run) for entry in entries if (run := self._runs.get(entry.run_id)) is not None]
        for entry, run in runs:
            run.commits += 1
            run.commit_seconds += seconds
            if failure is not None or seconds >= SLOW:
                self._make_commit(run, entry, began, failure)

    def _make_commit(self, run: RunSpan, entry: Append, began: int, failure: Exception | None) -> None:
        """Create the span of a finished commit."""
        span = self._tracer.start_span(
            "store append",
            set_span_in_context(run.span),
            SpanKind.CLIENT,
            {"holdfast.run.id": entry.run_id, "holdfast.store.events": len(entry.events)},
            start_time=began,
        )
        if failure is not None:
            note_error(span, failure)
        span.end()

    async def settle(self, run_id: str, epoch: int, **named: Any) -> RunEnd | None:
        """Record how a run ended."""
        if (run := self._runs.get(run_id)) is None:
            return await self._store.settle(run_id, epoch, **named)
        with use_span(run.span), span_of(self._tracer, "store settle", {"holdfast.run.id": run_id}, SpanKind.CLIENT):
            return await self._store.settle(run_id, epoch, **named)

    async def claim(self, node_id: str, unbroken: float = 0.0) -> dict[str, int]:
        """Take over runs of dead nodes, and record the time."""
        owned = await self._store.claim(node_id, unbroken)
        now = time.time_ns()
        new = [run_id for run_id, epoch in owned.items() if epoch > 1 and run_id not in self._runs]
        self.claimed = {run_id: self.claimed.get(run_id, now) for run_id in new}
        return owned


def as_store(store: TracedStore) -> Store:
    """Return it with the type of a store."""
    return cast(Store, store)
