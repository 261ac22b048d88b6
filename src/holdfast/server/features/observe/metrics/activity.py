"""The runs that have settled on this node in the last minute. Each node reports them with its lease."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .....events import Failed, Interrupted, Stopped
from .....runs.run import Run

MINUTE = 60.0
MOST_RUNS = 20_000
"""Maximum number of runs in memory: the newest, if more have settled in a minute."""
MOST_CODES = 20
"""Maximum number of error codes that are reported: the most frequent."""
_ERROR = "error:"
_PLAIN = ("runs", "failed", "tokens", "ttft_p50_ms", "ttft_p95_ms", "stop_p95_ms")


class _Settled(NamedTuple):
    at: float
    tokens: int
    error: str
    """The code of the error; empty if there is none."""
    first: float | None
    """Seconds to the first output."""
    stop: float | None
    """Seconds from the stop request to the settlement."""


class Activity:
    """Remembers the runs of the last minute. A run costs one tuple."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs: deque[_Settled] = deque(maxlen=MOST_RUNS)

    def settled(self, run: Run) -> None:
        """Remember a run that has settled here."""
        settlement, measured = run.settlement, run.measured
        assert settlement is not None
        error = settlement.error.code if isinstance(settlement, (Failed, Interrupted)) else ""
        first = None if measured is None else measured.ttft
        stop = None
        if isinstance(settlement, Stopped) and (receipt := settlement.receipt) is not None:
            stop = receipt.settled_at - receipt.stop_requested_at
        self._runs.append(_Settled(self._clock(), settlement.usage.output_tokens, error, first, stop))

    def counts(self) -> dict[str, int]:
        """Return the figures of the last minute by name. Without an observation a figure is missing."""
        since = self._clock() - MINUTE
        while self._runs and self._runs[0].at < since:
            self._runs.popleft()
        errors = Counter(run.error for run in self._runs if run.error)
        counts = {
            "minute_runs": len(self._runs),
            "minute_failed": errors.total(),
            "minute_tokens": sum(run.tokens for run in self._runs),
        }
        counts |= {f"{_ERROR}{code}": count for code, count in errors.most_common(MOST_CODES)}
        return counts | self._times()

    def _times(self) -> dict[str, int]:
        first = sorted(run.first for run in self._runs if run.first is not None)
        stops = sorted(run.stop for run in self._runs if run.stop is not None)
        found = {"ttft_p50_ms": _part(first, 0.5), "ttft_p95_ms": _part(first, 0.95), "stop_p95_ms": _part(stops, 0.95)}
        return {f"minute_{name}": value for name, value in found.items() if value is not None}


def _part(values: Sequence[float], share: float) -> int | None:
    """Return the milliseconds below which a share of the sorted times lies."""
    return round(values[int(share * (len(values) - 1))] * 1000) if values else None


def last_minute(counts: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the reported last minute of a node, as `/api/nodes` shows it. None if it reports none."""
    if "minute_runs" not in counts:
        return None
    errors = {name.removeprefix(_ERROR): count for name, count in counts.items() if name.startswith(_ERROR)}
    return {name: counts.get(f"minute_{name}") for name in _PLAIN} | {"errors": errors}
