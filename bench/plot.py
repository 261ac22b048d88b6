"""Plots as SVG text: bars, and lines on logarithmic axes. They follow light and dark, and have words too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.markup import Markup, picture, tag

Short = Callable[[float], str]

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 } .quiet { fill: #59636e; font-size: 12px }
  .grid { stroke: #d1d9e0; stroke-width: 1 } .line { fill: none; stroke-width: 2 }
  .c0 { --c: #0969da } .c1 { --c: #bc4c00 } .c2 { --c: #1a7f37 } .c3 { --c: #8250df }
  .c4 { --c: #9a6700 } .c5 { --c: #cf222e }
  .line { stroke: var(--c) } .dot, .bar { fill: var(--c) } .name { fill: var(--c); font-weight: 600 }
  .rest { --c: #8c959f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .grid { stroke: #3d444d }
    .c0 { --c: #58a6ff } .c1 { --c: #f0883e } .c2 { --c: #3fb950 } .c3 { --c: #bc8cff }
    .c4 { --c: #d29922 } .c5 { --c: #ff7b72 }
    .rest { --c: #6e7681 }
  }
"""


@dataclass(frozen=True)
class Group:
    """Bars that share a scale."""

    name: str
    bars: list[tuple[str, float]]


@dataclass(frozen=True)
class Line:
    name: str
    points: list[tuple[float, float]]


def _text(x: float, y: float, text: str, kind: str | None = None, anchor: str = "start") -> Markup:
    return tag("text", text, x=x, y=y, class_=kind, text_anchor=anchor)


# ---- bars ----

_WIDTH, _NAMES, _VALUES, _BAR = 720, 110, 90, 20


def bars(title: str, groups: list[Group], short: Short, ours: str = "holdfast") -> str:
    """Horizontal bars, a block for each figure; what it is about stands out."""
    parts, y = [_text(16, 26, title, "title")], 40.0
    for group in groups:
        parts.append(_text(16, y + 18, group.name, "quiet"))
        y += 28
        most = max((value for _, value in group.bars), default=1.0) or 1.0
        for name, value in group.bars:
            length = max(1.0, value / most * (_WIDTH - _NAMES - _VALUES - 16))
            kind = "c0" if name == ours else "rest"
            parts += [
                _text(_NAMES - 8, y + 15, name, anchor="end"),
                tag("rect", x=_NAMES, y=y, width=length, height=_BAR, rx=3, class_=f"bar {kind}"),
                _text(_NAMES + length + 8, y + 15, short(value)),
            ]
            y += _BAR + 6
        y += 8
    says = "; ".join(f"{group.name}: " + ", ".join(f"{n} {short(v)}" for n, v in group.bars) for group in groups)
    return str(picture(_WIDTH, int(y + 8), title, says, STYLE, *parts))


# ---- lines ----

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 70, 190, 48, 46, 360


def curves(title: str, unit: str, lines: list[Line], short: Short) -> str:
    """Lines on logarithmic axes: a cost that grows as the work does rises by one decade in one."""
    xs = _decades([x for line in lines for x, _ in line.points])
    ys = _decades([y for line in lines for _, y in line.points if y > 0])
    across = _Axis(xs, _LEFT, _WIDTH - _RIGHT)
    up = _Axis(ys, _HEIGHT - _BOTTOM, _TOP)
    parts = [_text(16, 26, title, "title"), *_grid(across, up, short)]
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, unit, "quiet", "middle"))
    ends = _apart([up.at(line.points[-1][1]) for line in lines])
    for number, (line, end) in enumerate(zip(lines, ends, strict=True)):
        places = [(across.at(x), up.at(y)) for x, y in line.points if y > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(tag("polyline", points=path, class_=f"line c{number}"))
        parts += [tag("circle", cx=x, cy=y, r=3.5, class_=f"dot c{number}") for x, y in places]
        parts.append(_text(_WIDTH - _RIGHT + 12, end + 4, line.name, f"name c{number}"))
    says = "; ".join(
        f"{line.name}: " + ", ".join(f"{short(y)} at {short(x)}" for x, y in line.points) for line in lines
    )
    return str(picture(_WIDTH, _HEIGHT, title, f"By {unit}. {says}", STYLE, *parts))


class _Axis:
    """Where a value stands between two pixels."""

    def __init__(self, decades: range, start: float, end: float) -> None:
        self.decades, self._start, self._end = decades, start, end

    def at(self, value: float) -> float:
        share = (math.log10(max(value, 1e-9)) - self.decades[0]) / max(1, len(self.decades) - 1)
        return self._start + min(max(share, 0.0), 1.0) * (self._end - self._start)


def _decades(values: list[float]) -> range:
    low, high = math.floor(math.log10(min(values, default=1))), math.ceil(math.log10(max(values, default=10)))
    return range(low, max(high, low + 1) + 1)


def _grid(across: _Axis, up: _Axis, short: Short) -> list[Markup]:
    parts = []
    for decade in across.decades:
        x = across.at(10.0**decade)
        parts.append(tag("line", x1=x, y1=_TOP, x2=x, y2=_HEIGHT - _BOTTOM, class_="grid"))
        parts.append(_text(x, _HEIGHT - _BOTTOM + 18, short(10.0**decade), "quiet", "middle"))
    for decade in up.decades:
        y = up.at(10.0**decade)
        parts.append(tag("line", x1=_LEFT, y1=y, x2=_WIDTH - _RIGHT, y2=y, class_="grid"))
        parts.append(_text(_LEFT - 8, y + 4, short(10.0**decade), "quiet", "end"))
    return parts


def _apart(places: list[float], least: float = 17.0) -> list[float]:
    """The places of names, moved so that none covers another."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for before, after in itertools.pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    over = max(0.0, max(moved, default=0.0) - (_HEIGHT - _BOTTOM))
    return [place - over for place in moved]
