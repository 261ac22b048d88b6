"""Lists: aligned columns on a terminal, tab-separated values in a pipe, or JSON.

A terminal shows short ids and times as ages, in as many columns as fit. If they do not fit, the widest text is cut. On
a narrow terminal the less important columns go to a second line. A pipe gets a header, whole ids and ISO times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from . import show
from .screen import flat

GAP = "  "
INDENT = "    "
LEAST = 16
"""Minimum width of a text in columns. Below it, each row takes two lines."""
SHORTEST_ID = 14
"""Minimum length of a shown id in characters: the type, and the time to four milliseconds."""
LONGEST_PIPED = 200
"""Maximum length of a text in a pipe, in characters. `--json` has the whole text."""


class TableCell(NamedTuple):
    """A value as a terminal shows it, and as a pipe gets it."""

    text: str
    style: str = ""
    piped: str | None = None


class Column(NamedTuple):
    """A column, and what it shows of an item: the field of that name, another field, or the result of a function.

    `is_text` is cut to what fits; `is_id` is shortened; `can_wait` goes to a second line on a narrow terminal;
    `is_piped` is for pipes only.
    """

    name: str
    of: str | Callable[[Any], Any] = ""
    is_text: bool = False
    can_wait: bool = False
    is_piped: bool = False
    is_id: bool = False

    def cells(self, items: Sequence[Any]) -> Iterable[TableCell]:
        """Return what the column shows of some items."""
        shown = self.of if callable(self.of) else itemgetter(self.of or self.name)
        values = [shown(each) for each in items]
        return short_ids(values) if self.is_id else map(self._cell, values)

    def _cell(self, value: Any) -> TableCell:
        if isinstance(value, TableCell):
            return value
        text = "" if value is None else str(value)
        return prose(text) if self.is_text else TableCell(text)


def when(moment: str | None) -> TableCell:
    """Return a time as an age; in a pipe as ISO 8601."""
    return TableCell(show.ago(moment), piped=moment or "")


def state(status: str) -> TableCell:
    """Return the state of a run, coloured."""
    colour, text = show.MARKS.get(status, ("", status))
    return TableCell(text, colour)


def prose(text: str, instead: str = "") -> TableCell:
    """Return a text as one line. A terminal shows `instead`, if given."""
    line = show.line(text, LONGEST_PIPED)
    return TableCell(show.line(instead, LONGEST_PIPED) or line, piped=line)


def short_ids(ids: Sequence[str]) -> list[TableCell]:
    """Return ids shortened to distinct prefixes, with a margin for ids to come; whole ids in a pipe."""
    length = SHORTEST_ID
    while length < max(map(len, ids), default=0) and len({id[:length] for id in ids}) < len(set(ids)):
        length += 1
    return [TableCell(id[:length], piped=id) for id in ids]


def print_list(
    columns: Sequence[Column], items: Sequence[Any], as_json: bool = False, *, empty: str = "", json: Any = None
) -> None:
    """Print items, a row for each; or the JSON of them, or of `json` if that is given. `empty` is noted without any."""
    if not items and empty:
        show.note(empty)
    if as_json:
        sys.stdout.write(show.as_json(items if json is None else json))
        return
    cells = list(zip(*(column.cells(items) for column in columns), strict=True))
    if not show.is_terminal():
        _print_tabs(columns, cells)
    elif cells:
        _print_columns(columns, [[TableCell(flat(cell.text), cell.style) for cell in row] for row in cells])


def _print_tabs(columns: Sequence[Column], rows: Sequence[Sequence[TableCell]]) -> None:
    sys.stdout.write("\t".join(column.name for column in columns) + "\n")
    for row in rows:
        values = (cell.text if cell.piped is None else cell.piped for cell in row)
        sys.stdout.write("\t".join(map(flat, values)) + "\n")


def _print_columns(columns: Sequence[Column], rows: Sequence[Sequence[TableCell]]) -> None:
    """Print each row on one line if it fits, else on two."""
    filled = [n for n in range(len(columns)) if any(row[n].text for row in rows) or not columns[n].can_wait]
    used = [n for n in filled if not columns[n].is_piped]
    first, second = used, []
    if _width(columns, rows, used) > show.out.width:
        first = [n for n in used if not columns[n].can_wait]
        second = [n for n in used if columns[n].can_wait]
    sizes = _sizes(columns, rows, first)
    show.out.print(_line([TableCell(columns[n].name.upper(), "bold") for n in first], sizes), soft_wrap=True)
    for row in rows:
        show.out.print(_line([row[n] for n in first], sizes), soft_wrap=True)
        if below := " · ".join(row[n].text for n in second if row[n].text):
            show.out.print(Text(INDENT + _cut(below, show.out.width - len(INDENT)), "dim"), soft_wrap=True)


def _width(columns: Sequence[Column], rows: Sequence[Sequence[TableCell]], used: Sequence[int]) -> int:
    """Return the minimum width of a table, with its texts cut."""
    widths = (_natural(columns[n], [row[n] for row in rows]) for n in used)
    least = (min(width, LEAST) if columns[n].is_text else width for n, width in zip(used, widths, strict=True))
    return sum(least) + len(GAP) * (len(used) - 1)


def _sizes(columns: Sequence[Column], rows: Sequence[Sequence[TableCell]], used: Sequence[int]) -> list[int]:
    """Return the width of each column. Texts share the remaining space; the last column may be cut too."""
    sizes = [_natural(columns[n], [row[n] for row in rows]) for n in used]
    room = show.out.width - len(GAP) * (len(used) - 1)
    for at in sorted(range(len(used)), key=lambda at: (not columns[used[at]].is_text, -at)):
        spare = room - sum(sizes)
        if spare >= 0:
            break
        sizes[at] = max(min(sizes[at], LEAST if columns[used[at]].is_text else 4), sizes[at] + spare)
    return sizes


def _natural(column: Column, cells: Sequence[TableCell]) -> int:
    return max([cell_len(column.name), *(cell_len(cell.text) for cell in cells)])


def _line(cells: Sequence[TableCell], sizes: Sequence[int]) -> Text:
    line = Text()
    for at, (cell, size) in enumerate(zip(cells, sizes, strict=True)):
        last = at == len(cells) - 1
        line.append(_cut(cell.text, size) if last else set_cell_size(_cut(cell.text, size), size), cell.style)
        line.append("" if last else GAP)
    line.rstrip()
    return line


def _cut(text: str, size: int) -> str:
    return text if cell_len(text) <= size else set_cell_size(text, max(size - 1, 0)).rstrip() + "…"
