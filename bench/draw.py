"""`python -m bench.draw`: the tables and plots of docs/performance.md and bench/FIGURES.md, from the newest results.

A part of a document between `<!-- bench: NAME -->` and `<!-- end -->` is written here and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import aims, compared, plot, report
from bench.machine import ROOT
from bench.scenarios import SCENARIOS

DOCUMENTS = (ROOT / "docs" / "performance.md", ROOT / "bench" / "FIGURES.md")
"""The page for users, and the one with all figures."""
IMAGES = ROOT / "docs" / "images" / "performance"
PART = re.compile(r"(<!-- bench: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING = "Not measured yet.\n"
IN_PICTURES = "](PICTURES/"
KINDS = {"bench": (), "instructions": (), "scale": ("curve-", "scale-"), "peers": ("peers",)}
"""The kinds of results, and how the names of the parts that are written from each begin; the rest are scenarios."""

Results = dict[str, Any]


def main() -> None:
    results = newest(report.RESULTS)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, text in images(results).items():
        (IMAGES / name).write_text(text, encoding="utf-8")
        print(IMAGES / name)
    for document in DOCUMENTS:
        document.write_text(written(document.read_text(encoding="utf-8"), results, document.parent), encoding="utf-8")
        print(document)


def newest(folder: Path) -> dict[str, Results]:
    """The results by their kind, the newest of each."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    kinds = [each for each in found if each.get("kind") in KINDS]
    return {each["kind"]: each for each in sorted(kinds, key=lambda each: str(each["date"]))}


def written(document: str, results: dict[str, Results], folder: Path = IMAGES.parents[1]) -> str:
    """The document with every part of it written again; its pictures as they are found from its folder."""
    images = os.path.relpath(IMAGES, folder)
    return PART.sub(
        lambda part: part[1] + _part(part["name"], results).replace(IN_PICTURES, f"]({images}/") + part[3], document
    )


def _part(name: str, results: dict[str, Results]) -> str:
    kind = next((kind for kind, begins in KINDS.items() if name.startswith(begins)), "bench")
    if kind not in results:
        return NOTHING
    if name.endswith("machine"):
        return _machine(results[kind])
    if name == "aims":
        return aims.table(results)
    if kind in TOGETHER:
        return f"{_picture(name, TOGETHER[kind][0])}\n{compared.table(results[kind])}"
    if kind == "scale":
        curve = results[kind]["curves"].get(name.removeprefix("curve-"))
        return _curve(name, curve) if curve and curve["points"] else NOTHING
    scenario = results[kind]["scenarios"].get(name)
    return _scenario(name, scenario) if scenario else NOTHING


def _picture(name: str, says: str) -> str:
    return f"![{says}{IN_PICTURES}{name}.svg)\n"


def _machine(results: Results) -> str:
    machine = results["machine"]
    rounds = f", {_count(results['rounds'], 'round')} of {results['seconds']:g} s" if "rounds" in results else ""
    date = results["date"][:16].replace("T", " ")
    peers = "".join(f"; {name} {facts['version']}" for name, facts in results.get("peers", {}).items())
    return (
        f"Measured {date} UTC on {machine['cores']} cores of "
        f"{machine['cpu']}, Linux {machine['kernel']}, Python {machine['python']}; load average before: "
        f"{machine['load_before']:.1f}{rounds}{peers if results['kind'] == 'bench' else ''}.\n"
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


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
    lines = [_picture(name, f"{BARS[name][0]}, by target")] if name in BARS and summary else []
    lines += [report.markdown(["", *targets], rows)] if rows else []
    lines += [f"{target} failed: {reason.splitlines()[0]}\n" for target, reason in measured["failures"].items()]
    lines += [f"{target}: {doubt}.\n" for target in summary for doubt in report.doubts(target, summary[target])]
    return "\n".join(lines)


def _cell(figure: str, figures: dict[str, float] | None) -> str:
    return report.number(figure, (figures or {}).get(figure))


# ---- curves ----


def _curve(name: str, curve: Results) -> str:
    points = curve["points"]
    figures = [figure for figure in points[0] if figure != "size"]
    heads = [curve["unit"], *(f"{point['size']:,}" for point in points), "for ten times as many"]
    rows = [
        [report.words(figure), *(report.number(figure, point[figure]) for point in points), _growth(points, figure)]
        for figure in figures
    ]
    picture = _picture(name, f"{curve['title']}: {curve['unit']} against cost, both logarithmic")
    return f"{picture}\n{report.markdown(heads, rows)}"


def _growth(points: list[dict[str, float]], figure: str) -> str:
    """What the last step up cost: times as much for ten times as many."""
    if figure == "errors" or len(points) < 2 or not points[-2][figure]:
        return "-"
    return f"{points[-1][figure] / points[-2][figure]:.2f}x"


def images(results: dict[str, Results]) -> dict[str, str]:
    """Every picture by its file's name."""
    drawn = {}
    for name, (title, figures) in BARS.items():
        groups = _groups(results.get("bench", {}), [(report.words(figure), name, figure) for figure in figures])
        if groups:
            drawn[f"{name}.svg"] = plot.bars(title, groups, report.short)
    for kind, (title, ours, shown) in TOGETHER.items():
        if groups := _groups(results.get(kind, {}), shown, without="direct"):
            drawn[f"{kind}.svg"] = plot.bars(title, groups, report.short, ours)
    for name, curve in results.get("scale", {}).get("curves", {}).items():
        if len(curve["points"]) > 1:
            drawn[f"curve-{name}.svg"] = _plotted(name, curve)
    return drawn


def _groups(results: Results, shown: Sequence[tuple[str, str, str]], without: str = "") -> list[plot.Group]:
    """A block of bars for each figure of a scenario, with those who have it."""
    groups = []
    for title, name, figure in shown:
        median = results.get("scenarios", {}).get(name, {}).get("median", {})
        found = [(each, values[figure]) for each, values in median.items() if figure in values and each != without]
        groups += [plot.Group(title, found)] if found else []
    return groups


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

TOGETHER: dict[str, tuple[str, str, list[tuple[str, str, str]]]] = {
    "peers": (
        "Beside other servers",
        "holdfast",
        [
            ("16 streams flat out: chunks/s", "flat", "chunks_per_second"),
            ("requests without a stream: requests/s", "json", "requests_per_second"),
            ("one stream: first token p50, µs", "ttft", "ttft_p50_us"),
        ],
    ),
}
"""The kinds that are worth one picture: its title, whose bars stand out, and each block's title, scenario, figure."""

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
