"""Ended runs that are not stored, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict

from ..log.log import Log
from ..log.storable import characters
from .run import Run

_EVENTS_OF_A_RUN = 32  # the memory of a run without events, counted in events: 4 kB
_CHARACTERS_OF_AN_EVENT = 128


class Recent:
    """Keeps ended runs for a while, so that a client can still read one to its end: as many as have `limit` events."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: OrderedDict[str, tuple[Run, int]] = OrderedDict()
        self._weight = 0

    def add(self, run: Run, log: Log) -> None:
        """Keep an ended run."""
        size = log.size + characters(run.record.ask)
        weight = log.seq + _EVENTS_OF_A_RUN + size // _CHARACTERS_OF_AN_EVENT
        self._runs[run.id] = run, weight
        self._weight += weight
        while self._weight > self._limit and len(self._runs) > 1:
            self._weight -= self._runs.popitem(last=False)[1][1]

    def get(self, run_id: str) -> Run | None:
        """Return a run that is still kept."""
        return self._runs[run_id][0] if run_id in self._runs else None

    def all(self) -> list[Run]:
        """Return all runs that are still kept."""
        return [run for run, _ in self._runs.values()]

    def forget(self, run_id: str) -> None:
        """Drop a run now."""
        if (entry := self._runs.pop(run_id, None)) is not None:
            self._weight -= entry[1]
