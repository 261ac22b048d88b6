"""The peers' results as one table: a column for each target, a row for each thing that a reader compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import report

Results = dict[str, Any]
Figures = dict[str, float]
NO_CHUNK = "no chunk in time"


def table(results: Results) -> str:
    """The whole comparison in Markdown, and who is not in it."""
    targets = _targets(results)
    heads = ["", *(_named(target, results) for target in targets)]
    cells = [(title, [_cell(results, name, show, target) for target in targets]) for title, name, show in ROWS]
    rows = [[title, *row] for title, row in cells if {*row} != {"-"}]
    parts = [report.markdown(heads, rows)]
    parts += [f"{name} is not in the table: {_first_line(why)}\n" for name, why in results["missing"].items()]
    return "\n".join([*parts, *_failures(results)])


def _targets(results: Results) -> list[str]:
    """All targets that were measured at least once: ours first, then the peers in the order of their list."""
    seen = {target for scenario in results["scenarios"].values() for target in scenario["median"]}
    known = ["direct", "nginx", "holdfast", *results["peers"]]
    return [target for target in known if target in seen]


def _named(target: str, results: Results) -> str:
    return f"{target} {results['peers'][target]['version']}" if target in results["peers"] else target


def _cell(results: Results, scenario: str, show: Callable[[Figures], str], target: str) -> str:
    measured = results["scenarios"].get(scenario, {"median": {}, "failures": {}})
    if target in measured["failures"]:
        return "fails"
    figures = measured["median"].get(target)
    return show(figures) if figures else "-"


def _failures(results: Results) -> list[str]:
    """Why there is no figure, once for each peer and reason."""
    said: dict[tuple[str, str], list[str]] = {}
    for name, scenario in results["scenarios"].items():
        for target, reason in scenario["failures"].items():
            if target not in results["missing"]:
                said.setdefault((target, _first_line(reason)), []).append(name)
    return [f"{target} fails in {', '.join(names)}: {reason}\n" for (target, reason), names in said.items()]


def _first_line(reason: str) -> str:
    line = reason.strip().splitlines()[0] if reason.strip() else "no reason was given"
    return NO_CHUNK if line.startswith("not one chunk in time") else line


def _ms(figure: str) -> Callable[[Figures], str]:
    return lambda figures: _short(figures[figure] / 1000)


def _plain(figure: str) -> Callable[[Figures], str]:
    return lambda figures: _short(figures[figure])


def _closed(figures: Figures) -> str:
    """Half and nearly all of those who were closed, and how many were not."""
    if not figures["closed"]:
        return "never"
    never = f", {figures['never_closed']:.0f} never" if figures["never_closed"] else ""
    return f"{_short(figures['close_p50_ms'])} / {_short(figures['close_p99_ms'])}{never}"


def _start(figures: Figures) -> str:
    return f"{_short(figures['started_in_s'])} / {figures['rss_mb']:.0f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


ROWS: list[tuple[str, str, Callable[[Figures], str]]] = [
    ("one stream: first token p50, ms", "ttft", _ms("ttft_p50_us")),
    ("20 streams x 50/s: latency p50, ms", "paced-20", _ms("latency_p50_us")),
    ("... first token p50, ms", "paced-20", _ms("ttft_p50_us")),
    ("... CPU s for 1M chunks", "paced-20", _plain("cpu_s_per_1m_chunks")),
    ("200 streams x 50/s: latency p50, ms", "paced", _ms("latency_p50_us")),
    ("... latency p99, ms", "paced", _ms("latency_p99_us")),
    ("16 streams flat out: chunks/s", "flat", _plain("chunks_per_second")),
    ("JSON requests/s, 4 connections", "json", _plain("requests_per_second")),
    ("client leaves mid-stream: upstream closed after p50 / p99, ms", "leave", _closed),
    ("... while the upstream is silent", "leave-silent", _closed),
    ("... before the upstream answers", "leave-mute", _closed),
    ("start, s / memory, MB", "start", _start),
    ("memory for an open stream at 1,000, kB", "idle", _plain("kb_per_stream")),
]
