"""From the rounds' figures to medians, ratios, a table and a file."""

import json
import math
import re
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine
from bench.measure import Figures
from bench.scenarios import Scenario

RESULTS = Path(__file__).parent / "results"

RATE = {"flat": "chunks_per_second", "flat-short": "chunks_per_second", "json": "requests_per_second"}
"""The figure whose ratio to direct and nginx a scenario is read by."""

ADDED = {
    "added_p50_us": "latency_p50_us",
    "added_p99_us": "latency_p99_us",
    "added_ttft_p50_us": "ttft_p50_us",
}


def summarize(scenario: Scenario, rounds: dict[str, list[Figures]]) -> dict[str, Figures]:
    """Medians over the rounds for each target, with what it adds to direct and its share of direct and nginx."""
    summary = {target: _medians(figures) for target, figures in rounds.items() if figures}
    for target, figures in summary.items():
        for added, total in ADDED.items():
            if target != "direct" and total in figures and "direct" in summary:
                figures[added] = figures[total] - summary["direct"][total]
        rate = RATE.get(scenario.name)
        for other in ("direct", "nginx"):
            if rate and other in summary:
                figures[f"of_{other}"] = figures[rate] / summary[other][rate]
    return summary


def _medians(figures: list[Figures]) -> Figures:
    return {name: statistics.median(each[name] for each in figures) for name in figures[0]}


def table(scenario: Scenario, summary: dict[str, Figures], failures: dict[str, str]) -> str:
    """One scenario as text: a row for each target, a mark where the instruments were the limit."""
    heads = ["", *map(words, scenario.columns)]
    rows = [
        [target, *(number(name, figures.get(name)) for name in scenario.columns)] for target, figures in summary.items()
    ]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = [f"{scenario.name}: {scenario.title}"]
    lines += [_line(row, widths) for row in [heads, *rows]]
    lines += [f"  {target}: {doubt}" for target, figures in summary.items() for doubt in doubts(target, figures)]
    lines += [f"  {target}: FAILED, {reason}" for target, reason in failures.items()]
    return "\n".join(lines)


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """A table for a document: words to the left, figures to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _line(row: list[str], widths: list[int]) -> str:
    return "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))


def doubts(target: str, figures: Figures) -> list[str]:
    """Why a figure says less about its target than it seems to."""
    found = []
    if target != "direct" and figures.get("load_busy", 0) > 0.9 > figures.get("target_busy", 1):
        found.append("the load's core was the limit, not this target")
    for name, limit, what in (
        ("others_busy", 0.15, "other processes used {:.0%} of a core"),
        ("target_waited", 0.05, "it waited for its core for {:.0%} of the time"),
        ("stolen", 0.02, "the host took {:.0%} of a core away"),
    ):
        if figures.get(name, 0) > limit:
            found.append("disturbed, " + what.format(figures[name]))
    return found


def words(name: str) -> str:
    text = re.sub(r"_us(?=_|$)", " µs", name)
    text = re.sub(r"_ms$", " ms", text)
    text = re.sub(r"_mb$", " MB", text)
    text = re.sub(r"_s$", " s", text)
    return text.replace("per_second", "/s").replace("per_1m_chunks", "/1M").replace("_", " ").replace(" /s", "/s")


def short(value: float) -> str:
    """A number for people, to two or three digits."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def number(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if name.endswith(("busy", "waited", "stolen")) or name.startswith("stalled"):
        return f"{value:.0%}"
    if name.startswith("of_") or name.endswith("of_first"):
        return f"{value:.3f}x"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


def save(results: dict[str, Any], to: Path | None, name: str = "") -> Path:
    """Writes the results, by default under their date and commit."""
    now = datetime.now(UTC)
    commit = machine.commit()
    if to is None:
        RESULTS.mkdir(exist_ok=True)
        parts = [f"{now:%Y-%m-%d-%H%M}", commit.replace("+", "-dirty"), *([name] if name else [])]
        to = RESULTS / f"{'-'.join(parts)}.json"
    whole = {"date": now.isoformat(timespec="seconds"), "commit": commit, "machine": machine.facts(), **results}
    to.write_text(json.dumps(whole, indent=1) + "\n")
    return to
