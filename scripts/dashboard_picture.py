"""Draws the dashboard from its own queries, as a real Prometheus answers them for a node under load.

`python -m scripts.dashboard_picture` writes docs/images/dashboard.svg. It is no screenshot of Grafana: the
panels are those of deploy/grafana-dashboard.json, drawn here.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg

from bench.plot import STYLE
from holdfast.markup import Markup, picture, tag
from tests.support.postgres import Postgres
from tests.support.prometheus import Prometheus, Series, busy_node, panels

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "dashboard.svg"
SECONDS = 90.0
ACROSS, DOWN = 40, 17
"""Pixels of a column and of a row of the dashboard's grid, which has 24 columns."""
MARGIN, TITLE, LEGEND = 10, 24, 34
SMALL = (
    "\n  text { font-size: 11px } .big { font-size: 18px; font-weight: 600 } .frame { fill: none; stroke: #8c959f55 }\n"
)
UNITS = {"s": "s", "bytes": "B", "Bps": "B/s", "ops": "/s"}


async def measured() -> tuple[list[tuple[dict[str, Any], list[tuple[str, Series]]]], float, float]:
    """Return each panel with its series under their names, and the time from which to which they are."""
    postgres = Postgres()
    try:
        url = postgres.url(await postgres.new_database())
        database = await asyncpg.connect(url)
        await database.execute("SELECT pg_create_physical_replication_slot('standby', TRUE)")
        await database.close()
        with tempfile.TemporaryDirectory() as folder:
            async with busy_node(Path(folder, "node"), url) as node:
                async with Prometheus(Path(folder, "prometheus"), node.metrics_port) as prometheus:
                    began = time.time()
                    while time.time() < began + SECONDS:
                        await node.cause_everything()
                    ended = time.time()
                    return [(panel, await _lines(prometheus, panel, began, ended)) for panel in panels()], began, ended
    finally:
        postgres.stop()


async def _lines(prometheus: Prometheus, panel: dict[str, Any], began: float, ended: float) -> list[tuple[str, Series]]:
    return [
        (_name(target["legendFormat"], series[0]), series)
        for target in panel["targets"]
        for series in await prometheus.series(target["expr"], began, ended)
    ]


def _name(legend: str, labels: dict[str, str]) -> str:
    shown = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)
    return re.sub(r"127\.0\.0\.1:\d+", "node", shown)


def short(value: float, unit: str) -> str:
    """Return a number with its unit, in three digits or so."""
    name = UNITS.get(unit, "")
    if unit == "percentunit":
        return f"{value * 100:.3g}%"
    if name == "s" and 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {prefix}{name}"
    return f"{value:.3g} {name}".rstrip()


def drawn(panel: dict[str, Any], lines: list[tuple[str, Series]], began: float, ended: float) -> Iterator[Markup]:
    """Yield the parts of one panel, at its place."""
    grid, unit = panel["gridPos"], panel["fieldConfig"]["defaults"].get("unit", "")
    left, top = MARGIN + grid["x"] * ACROSS, 60 + grid["y"] * DOWN
    width, height = grid["w"] * ACROSS - 8, grid["h"] * DOWN - 8
    yield tag("rect", x=left, y=top, width=width, height=height, rx=4, class_="frame")
    yield tag("text", panel["title"], x=left + 8, y=top + 16, class_="name")
    if panel["type"] == "stat":
        now = ", ".join(f"{short(series[1][-1][1], unit)} {name}" for name, series in lines)
        yield tag("text", now, x=left + 8, y=top + height / 2 + 12, class_="big")
        return
    most = max(value for _, series in lines for _, value in series[1])
    floor, ceiling = top + height - LEGEND, top + TITLE + 10
    yield tag("line", x1=left + 8, x2=left + width - 8, y1=floor, y2=floor, class_="grid")
    yield tag("text", short(most, unit), x=left + width - 8, y=top + 16, class_="quiet", text_anchor="end")
    for number, (_, (_, values)) in enumerate(lines):
        places = [
            (
                left + 8 + (at - began) / (ended - began) * (width - 16),
                floor - value / (most or 1.0) * (floor - ceiling),
            )
            for at, value in values
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield tag("polyline", points=path, class_=f"line c{number % 6}")
    yield tag("text", [*_legend([name for name, _ in lines], width / 7)], x=left + 8, y=top + height - 12)


def _legend(names: list[str], most: float) -> Iterator[Markup]:
    """Yield the names of the lines in their colours, as many as have room in `most` characters."""
    for number, name in enumerate(names):
        most -= len(name) + 2
        if most < 0:
            yield tag("tspan", "…")
            return
        yield tag("tspan", f"{name}   ", class_=f"name c{number % 6}")


async def main() -> None:
    """Measure, and write the picture. A panel without data is an error."""
    found, began, ended = await measured()
    if empty := [panel["title"] for panel, lines in found if not lines]:
        sys.exit(f"No data: {', '.join(empty)}")
    title = "The dashboard's panels, drawn from its queries"
    words = (
        f"One node on PostgreSQL under {ended - began:.0f} s of load, read by Prometheus: runs that complete, fail, "
        "wait, are retried and are stopped."
    )
    parts: list[Markup] = [
        tag("text", title, x=MARGIN, y=22, class_="title"),
        tag("text", words, x=MARGIN, y=42, class_="quiet"),
        *(part for panel, lines in found for part in drawn(panel, lines, began, ended)),
    ]
    height = 70 + DOWN * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel, _ in found)
    says = "; ".join(panel["title"] for panel, _ in found)
    PICTURE.write_text(str(picture(24 * ACROSS + 2 * MARGIN, height, title, f"{words} {says}.", STYLE + SMALL, *parts)))


if __name__ == "__main__":
    asyncio.run(main())
