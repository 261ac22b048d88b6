"""The metrics of a server at one moment, and their changes between two moments."""

from __future__ import annotations

import re
from typing import NamedTuple

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)(?: \d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Labels = dict[str, str]


class Sample(NamedTuple):
    """One value of one metric."""

    name: str
    labels: Labels
    value: float


class Moment:
    """The samples of one request for the metrics, and its time in seconds of a monotonic clock."""

    def __init__(self, text: str, at: float) -> None:
        self.at = at
        self._samples: dict[str, list[Sample]] = {}
        for line in text.splitlines():
            if not line.startswith("#") and (match := _SAMPLE.fullmatch(line.strip())):
                sample = Sample(match[1], _labels(match[2] or ""), float(match[3]))
                self._samples.setdefault(sample.name, []).append(sample)

    def of(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples of a metric with these labels."""
        return [sample for sample in self._samples.get(name, ()) if labels.items() <= sample.labels.items()]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a metric."""
        return sum(sample.value for sample in self.of(name, **labels))


def _labels(text: str) -> Labels:
    return {
        name: re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), value)
        for name, value in _LABEL.findall(text)
    }


class Interval:
    """The changes between two moments. A server that was restarted in between counts from zero."""

    def __init__(self, before: Moment, now: Moment) -> None:
        self.now = now
        self._before = before
        self.seconds = max(now.at - before.at, 1e-9)

    def more(self, name: str, **labels: str) -> float:
        """Return by how much a counter has grown."""
        grown = self.now.total(name, **labels) - self._before.total(name, **labels)
        return grown if grown >= 0 else self.now.total(name, **labels)

    def rate(self, name: str, **labels: str) -> float:
        """Return the growth of a counter in a second."""
        return self.more(name, **labels) / self.seconds

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """Return a quantile of a histogram, interpolated in its bucket; None if nothing was observed."""
        bounds = sorted({sample.labels["le"] for sample in self.now.of(f"{name}_bucket", **labels)}, key=float)
        counts = [(float(bound), self.more(f"{name}_bucket", le=bound, **labels)) for bound in bounds]
        if not counts or not counts[-1][1]:
            return None
        target, lower, below = share * counts[-1][1], 0.0, 0.0
        for bound, count in counts:
            if count >= target:
                return lower if bound == float("inf") else lower + (bound - lower) * (target - below) / (count - below)
            lower, below = bound, count
        return lower

    def values(self, name: str, *labels: str) -> list[tuple[str, ...]]:
        """Return the values of some labels that a metric has."""
        return list(dict.fromkeys(tuple(sample.labels[label] for label in labels) for sample in self.now.of(name)))
