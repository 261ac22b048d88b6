"""What one load cost: the processor, and how far the measurement was disturbed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import machine
from bench.instruments import Failed, Upstream
from bench.targets import Target

Figures = dict[str, float]


@dataclass(frozen=True)
class Moment:
    """All the clocks at one moment."""

    at: float
    target: float
    waited: float
    upstream: float
    driver: float
    stolen: float
    everybody: dict[int, float]


class Meter:
    """Reads the clocks before and after a load.

    Times of processes are the scheduler's own, in ns. What `/proc/stat` says of a core is not used: the kernel samples
    it at its tick, and loads that are woken by timers run just then, which made a quiet machine look a quarter busy.
    """

    def __init__(self, target: Target, upstream: Upstream) -> None:
        self._target, self._upstream = target, upstream
        self._before = self._now()

    def _now(self) -> Moment:
        return Moment(
            time.monotonic(),
            self._target.cpu_seconds(),
            sum(map(machine.waited_seconds, self._target.pids)),
            self._upstream.cpu_seconds(),
            time.process_time(),
            machine.stolen_seconds(),
            machine.everybody(),
        )

    def target_cpu(self) -> float:
        """CPU seconds of the target since the meter was made."""
        return self._target.cpu_seconds() - self._before.target

    def figures(self, client_cpu: float) -> Figures:
        """How busy everything was, as shares of one core, and how much of it was somebody else's."""
        before, after = self._before, self._now()
        wall = after.at - before.at
        load = after.upstream - before.upstream + after.driver - before.driver + client_cpu
        return {
            "target_busy": (after.target - before.target) / wall,
            "load_busy": load / wall,
            "target_waited": (after.waited - before.waited) / wall,
            "others_busy": self._others(before, after) / wall,
            "stolen": (after.stolen - before.stolen) / wall,
        }

    def _others(self, before: Moment, after: Moment) -> float:
        ours = {os.getpid(), self._upstream.pid}
        ours |= {each for pid in self._target.pids for each in machine.processes(pid)}
        used = (seconds - before.everybody.get(pid, 0.0) for pid, seconds in after.everybody.items() if pid not in ours)
        return sum(max(0.0, each) for each in used)


def metered(
    target: Target, upstream: Upstream, load: Callable[[], dict[str, Any]], end: Callable[[], None] | None = None
) -> Figures:
    """What a load saw and cost. CPU is counted from its start to its end, and so are the chunks it is divided by.

    `end` ends what still runs when the clients have left, before streams that were left open are counted.
    """
    upstream.reset()
    meter = Meter(target, upstream)
    seen = load()
    cpu, busy, late = meter.target_cpu(), meter.figures(seen["cpu_seconds"]), upstream.stats()["late_mean_us"]
    refuse_nothing(seen)
    if end:
        end()
    return {
        **of_client(seen),
        "cpu_s_per_1m_chunks": cpu / seen["chunks_all"] * 1e6,
        "cpu_us_per_request": cpu / max(1, seen["requests"]) * 1e6,
        **busy,
        "upstream_late_mean_us": late,
        "left_open": upstream.still_active(),
    }


def refuse_nothing(seen: dict[str, Any]) -> None:
    """A load that got nothing through has measured nothing."""
    if not seen["chunks"]:
        raise Failed(f"not one chunk in time: {seen['error_kinds']} {seen.get('first_error', '')}")


def percentile(values: list[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("nan")


def of_client(seen: dict[str, Any]) -> Figures:
    """The figures of a load client's report that every scenario shares."""
    return {
        "chunks_per_second": seen["chunks_per_second"],
        "requests_per_second": seen["requests_per_second"],
        "latency_p50_us": seen["latency_us"]["p50"],
        "latency_p99_us": seen["latency_us"]["p99"],
        "latency_max_us": seen["latency_us"]["max"],
        "ttft_p50_us": seen["ttft_us"]["p50"],
        "ttft_p99_us": seen["ttft_us"]["p99"],
        "ttft_max_us": seen["ttft_us"]["max"],
        "errors": seen["errors"],
    }
