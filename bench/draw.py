"""`python -m bench.draw`: the tables and plots of docs/performance.md, from the newest results of each kind.

A part of the document between `<!-- bench: NAME -->` and `<!-- end -->` is written here and nowhere else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench import compared, plot, report
from bench.machine import ROOT
from bench.scenarios import SCENARIOS

DOCUMENT = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images" / "performance"
PART = re.compile(r"(<!-- bench: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING = "Not measured yet.\n"

Results = dict[str, Any]


def main() -> None:
    results = newest(report.RESULTS)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, text in images(results).items():
        (IMAGES / name).write_text(text, encoding="utf-8")
        print(IMAGES / name)
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")
    print(DOCUMENT)


def newest(folder: Path) -> dict[str, Results]:
    """The results by their kind, the newest of each."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    kinds = [each for each in found if each.get("kind") in ("bench", "scale", "peers")]
    return {each["kind"]: each for each in sorted(kinds, key=lambda each: str(each["date"]))}


def written(document: str, results: dict[str, Results]) -> str:
    """The document with every part of it written again."""
    return PART.sub(lambda part: part[1] + _part(part["name"], results) + part[3], document)


def _part(name: str, results: dict[str, Results]) -> str:
    kind = "scale" if name.startswith(("curve-", "scale-")) else "peers" if name.startswith("peers") else "bench"
    if kind not in results:
        return NOTHING
    if name.endswith("machine"):
        return _machine(results[kind])
    if kind == "peers":
        return compared.table(results[kind])
    if kind == "scale":
        curve = results[kind]["curves"].get(name.removeprefix("curve-"))
        return _curve(name, curve) if curve and curve["points"] else NOTHING
    scenario = results[kind]["scenarios"].get(name)
    return _scenario(name, scenario) if scenario else NOTHING


def _machine(results: Results) -> str:
    machine = results["machine"]
    rounds = f", {results['rounds']} rounds of {results['seconds']:g} s" if "rounds" in results else ""
    date = results["date"][:16].replace("T", " ")
    return (
        f"Measured {date} UTC at commit {results['commit']} on {machine['cores']} cores of "
        f"{machine['cpu']}, Linux {machine['kernel']}, Python {machine['python']}; load average before: "
        f"{machine['load_before']:.1f}{rounds}.\n"
    )


# ---- scenarios ----


def _scenario(name: str, measured: Results) -> str:
    """A column for each target and a row for each figure: ten figures side by side are too wide for a page."""
    summary = measured["median"]
    targets = [*summary, *(name for name in measured["failures"] if name not in summary)]
    rows = [
        [report.words(figure), *(_cell(figure, summary.get(target)) for target in targets)]
        for figure in SCENARIOS[name].columns
        if any(summary.get(target, {}).get(figure) is not None for target in targets)
    ]
    lines = [f"![{BARS[name][0]}, by target](images/performance/{name}.svg)\n"] if name in BARS and summary else []
    lines += [_table(["", *targets], rows)] if rows else []
    lines += [f"{target} failed: {reason.splitlines()[0]}\n" for target, reason in measured["failures"].items()]
    lines += [f"{target}: {doubt}.\n" for target in summary for doubt in report.doubts(target, summary[target])]
    return "\n".join(lines)


def _cell(figure: str, figures: dict[str, float] | None) -> str:
    return report.number(figure, (figures or {}).get(figure))


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


# ---- curves ----


def _curve(name: str, curve: Results) -> str:
    points = curve["points"]
    figures = [figure for figure in points[0] if figure != "size"]
    heads = [curve["unit"], *(f"{point['size']:,}" for point in points), "for ten times as many"]
    rows = [
        [report.words(figure), *(report.number(figure, point[figure]) for point in points), _growth(points, figure)]
        for figure in figures
    ]
    picture = f"![{curve['title']}: {curve['unit']} against cost, both logarithmic](images/performance/{name}.svg)\n"
    return f"{picture}\n{_table(heads, rows)}"


def _growth(points: list[dict[str, float]], figure: str) -> str:
    """What the last step up cost: times as much for ten times as many."""
    if figure == "errors" or len(points) < 2 or not points[-2][figure]:
        return "-"
    return f"{points[-1][figure] / points[-2][figure]:.2f}x"


def images(results: dict[str, Results]) -> dict[str, str]:
    """Every picture by its file's name."""
    drawn = {}
    for name, (title, figures) in BARS.items():
        measured = results.get("bench", {}).get("scenarios", {}).get(name)
        if measured and measured["median"]:
            groups = [
                plot.Group(
                    report.words(figure), [(target, values[figure]) for target, values in measured["median"].items()]
                )
                for figure in figures
                if all(figure in values for values in measured["median"].values())
            ]
            drawn[f"{name}.svg"] = plot.bars(title, groups, report.short)
    for name, curve in results.get("scale", {}).get("curves", {}).items():
        if len(curve["points"]) > 1:
            drawn[f"curve-{name}.svg"] = _plotted(name, curve)
    return drawn


BARS: dict[str, tuple[str, tuple[str, ...]]] = {
    "flat": ("16 streams flat out", ("chunks_per_second", "cpu_s_per_1m_chunks")),
    "paced": (
        "200 streams of 50 chunks a second",
        ("latency_p50_us", "latency_p99_us", "cpu_s_per_1m_chunks"),
    ),
    "ttft": ("Time to the first token", ("ttft_p50_us", "ttft_p99_us")),
    "json": ("Requests without a stream", ("requests_per_second", "cpu_us_per_request")),
}
"""The scenarios that are worth a picture: its title, and the figures in it."""

DRAWN: dict[str, tuple[str, ...]] = {
    "chunks": ("ms_per_run", "cpu_us_per_chunk"),
    "subscribers": ("cpu_us_per_chunk", "cpu_us_per_delivery"),
    "log": ("replay_ms", "longest_stall_ms"),
    "stored": ("search_common_ms", "search_rare_ms", "search_one_letter_ms", "list_ms", "open_ms", "start_run_ms"),
}
"""The figures of each curve that are drawn; the tables have all of them."""


def _plotted(name: str, curve: Results) -> str:
    lines = [
        plot.Line(report.words(figure), [(point["size"], point[figure]) for point in curve["points"]])
        for figure in DRAWN[name]
    ]
    return plot.curves(curve["title"], curve["unit"], lines, report.short)


if __name__ == "__main__":
    main()
