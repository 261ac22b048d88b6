"""Tables of Markdown, drawn for a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_RULE = re.compile(r"[\s:|-]*-[\s:|-]*")
_BETWEEN = re.compile(r"(?<!\\)\|")


def drawn_table(rows: Sequence[str], width: int, drawn: Callable[[str], str]) -> str:
    """Return the rows of a table as lines that fit into a width: too wide cells are wrapped.

    `drawn` returns a cell with its styles. Rows without a rule below the first stay as they are.
    """
    if len(rows) < 2 or not _RULE.fullmatch(rows[1]):
        return "".join(f"{row}\n" for row in rows)
    head, rule, *others = map(_cells, rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, place in zip(head, [*rule, *[""] * len(head)], strict=False):
        is_right = place.endswith(":") and not place.startswith(":")
        table.add_column(Text.from_ansi(drawn(name)), justify="right" if is_right else "left", overflow="fold")
    for cells in others:
        table.add_row(*[Text.from_ansi(drawn(cell)) for cell in [*cells, *[""] * len(head)][: len(head)]])
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system="standard", legacy_windows=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in _BETWEEN.split(inner)]
