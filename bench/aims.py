"""The targets, as a table of the newest results: reached or missed. It is never written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import report

Results = dict[str, Any]
Figure = Callable[[dict[str, Results]], float | None]
OURS = "holdfast"
NO_PEERS = {"direct", "nginx", OURS}
ROUTER = "vllm-router"


@dataclass(frozen=True)
class Aim:
    """A figure that is to be at least, or at most, a number."""

    says: str
    number: float
    figure: Figure
    unit: str = "x"
    at_least: bool = False

    def row(self, results: dict[str, Results]) -> list[str]:
        reached = self.figure(results)
        if reached is None:
            return [self.says, self._limit(), "-", "-"]
        is_met = reached >= self.number if self.at_least else reached <= self.number
        return [self.says, self._limit(), self._shown(reached), "yes" if is_met else "**no**"]

    def _limit(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {self.number:,g}{self._unit()}"

    def _shown(self, reached: float) -> str:
        return f"{reached:,.0f}{self._unit()}" if abs(reached) >= 100 else f"{reached:.2f}{self._unit()}"

    def _unit(self) -> str:
        return self.unit if self.unit == "x" else f" {self.unit}".rstrip()


def table(results: dict[str, Results]) -> str:
    """Every aim with what was reached."""
    return report.markdown(["aim", "limit", "reached", "met"], [aim.row(results) for aim in AIMS])


def _of(kind: str, scenario: str, target: str, figure: str) -> Figure:
    def find(results: dict[str, Results]) -> float | None:
        median = results.get(kind, {}).get("scenarios", {}).get(scenario, {}).get("median", {})
        found: float | None = median.get(target, {}).get(figure)
        return found

    return find


def _ours(scenario: str, figure: str, scale: float = 1) -> Figure:
    def find(results: dict[str, Results]) -> float | None:
        found = _of("bench", scenario, OURS, figure)(results)
        return None if found is None else found * scale

    return find


def _worst(figure: str, *scenarios: str) -> Figure:
    def find(results: dict[str, Results]) -> float | None:
        found = [value for each in scenarios if (value := _ours(each, figure)(results)) is not None]
        return max(found, default=None)

    return find


def _of_nginx(scenario: str, figure: str) -> Figure:
    def find(results: dict[str, Results]) -> float | None:
        ours = _ours(scenario, figure)(results)
        theirs = _of("bench", scenario, "nginx", figure)(results)
        return ours / theirs if ours is not None and theirs else None

    return find


def _of_router(scenario: str, figure: str) -> Figure:
    """Of the router's, in one run: ours, or the one beside all peers if the router was not in ours."""

    def find(results: dict[str, Results]) -> float | None:
        for kind in ("bench", "peers"):
            ours, theirs = (_of(kind, scenario, target, figure)(results) for target in (OURS, ROUTER))
            if ours is not None and theirs:
                return ours / theirs
        return None

    return find


def _of_the_best(scenario: str, figure: str) -> Figure:
    def find(results: dict[str, Results]) -> float | None:
        median = results.get("peers", {}).get("scenarios", {}).get(scenario, {}).get("median", {})
        theirs = [figures[figure] for name, figures in median.items() if name not in NO_PEERS and figures.get(figure)]
        ours = median.get(OURS, {}).get(figure)
        return ours / max(theirs) if ours is not None and theirs else None

    return find


def _steepest(results: dict[str, Results]) -> float | None:
    """The last step of the curve that grows most: times as much for ten times as many."""
    curves = results.get("scale", {}).get("curves", {}).values()
    steps = [
        last[figure] / before[figure]
        for curve in curves
        for before, last in [curve["points"][-2:]]
        for figure in last
        if figure not in ("size", "errors") and before[figure]
    ]
    return max(steps, default=None)


CLOSES = ("stop", "leave", "leave-silent", "leave-mute")

AIMS = [
    Aim("flat out: chunks/s, of nginx's", 0.3, _of_nginx("flat", "chunks_per_second"), at_least=True),
    Aim(
        "flat out: chunks/s, of the best peer's",
        4,
        _of_the_best("flat", "chunks_per_second"),
        at_least=True,
    ),
    Aim("flat out: chunks/s, of vllm-router's", 4.4, _of_router("flat", "chunks_per_second"), at_least=True),
    Aim("200 streams of 50/s: processor time for a chunk, of nginx's", 2, _of_nginx("paced", "cpu_s_per_1m_chunks")),
    Aim(
        "200 streams of 50/s: processor time for a chunk, of vllm-router's",
        1.1,
        _of_router("paced", "cpu_s_per_1m_chunks"),
    ),
    Aim("200 streams of 50/s: added latency p50, of nginx's", 3, _of_nginx("paced", "added_p50_us")),
    Aim("1,000 streams of 50/s: chunks/s", 49_500, _ours("paced-1000", "chunks_per_second"), "", at_least=True),
    Aim("1,000 streams of 50/s: latency p99", 30, _ours("paced-1000", "latency_p99_us", 1e-3), "ms"),
    Aim("time to the first token, of nginx's", 2.3, _of_nginx("ttft", "ttft_p50_us")),
    Aim(
        "without a stream: processor time for a request, of vllm-router's",
        3.3,
        _of_router("json", "cpu_us_per_request"),
    ),
    Aim("without a stream: instructions for a request", 620_000, _of("instructions", "json", OURS, "instructions"), ""),
    Aim("stored sessions: chunks/s, of runs that are not stored", 0.5, _ours("durable", "of_stateless"), at_least=True),
    Aim("stored sessions: added latency p50", 10, _ours("durable", "added_p50_us", 1e-3), "ms"),
    Aim("idle streams held", 5000, _ours("idle", "held"), "", at_least=True),
    Aim("memory for an idle stream with its log", 40, _ours("idle", "kb_per_stream"), "kB"),
    Aim("start, warm", 1, _ours("start", "warm_start_s"), "s"),
    Aim("memory after the start", 55, _ours("start", "rss_mb"), "MB"),
    Aim("stop and leave under 1,000 streams: upstream closed, worst p99", 50, _worst("close_p99_ms", *CLOSES), "ms"),
    Aim("stop and leave under 1,000 streams: upstream closed, worst", 250, _worst("close_max_ms", *CLOSES), "ms"),
    Aim("replay of a million events: longest stall", 50, _ours("replay", "longest_stall_ms"), "ms"),
    Aim("a further subscriber, of the first", 0.2, _ours("fan-out", "next_of_first")),
    Aim("the steepest curve: times as much for ten times as many (10x is linear)", 11, _steepest),
]
