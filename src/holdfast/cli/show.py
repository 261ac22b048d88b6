"""How things look in a terminal, and in a pipe."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import rich.box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def _console(*, stderr: bool = False) -> Console:
    """Return a console for which NO_COLOR means no escape code at all: rich alone would keep bold and dim."""
    colours = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, color_system=colours, highlight=False, emoji=False, soft_wrap=True)  # type: ignore[arg-type]


out = _console()
err = _console(stderr=True)

Cell = str | Text

MARKS = {
    "completed": ("green", "completed"),
    "truncated": ("yellow", "truncated"),
    "stopped": ("yellow", "stopped"),
    "failed": ("red", "failed"),
    "interrupted": ("red", "interrupted"),
    "running": ("cyan", "running"),
    "queued": ("blue", "queued"),
}


def is_terminal() -> bool:
    """Tell whether a person is looking: in a pipe there are no colours and no tables."""
    return out.is_terminal


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print rows as a table, or as lines with tabs where a program reads them."""
    if not is_terminal():
        for row in rows:
            sys.stdout.write("\t".join(str(cell).translate(_SPACES) for cell in row) + "\n")
        return
    drawn = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        drawn.add_column(column, no_wrap=number == 0)  # an id is there to be copied
    for row in rows:
        drawn.add_row(*(Text(safe(cell)) if isinstance(cell, str) else cell for cell in row))
    out.print(drawn, soft_wrap=False)


_SPACES = {ord(character): " " for character in "\t\n\r"}
_CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {ord("\t"), ord("\n")})


def safe(text: str) -> str:
    """Return a text that cannot command the terminal: what a model says may hold escape codes."""
    return text.translate(_CONTROLS)


def word(state: str) -> Text:
    """Return how a run stands, coloured for a person."""
    colour, text = MARKS.get(state, ("white", state))
    return Text(text, style=colour)


def state_of(run: dict[str, Any]) -> str:
    """Return the one word for how a run stands."""
    settled = run.get("settlement")
    return str(settled["outcome"] if settled else run["status"])


def why(run: dict[str, Any]) -> str:
    """Return why a run did not complete, in a few words."""
    settled = run.get("settlement") or {}
    if settled.get("error"):
        return str(settled["error"]["message"])
    if settled.get("outcome") == "stopped":
        return f"by {settled['by']}"
    return str(settled.get("finish_reason") or "") if settled.get("outcome") == "truncated" else ""


def ago(moment: str | None) -> str:
    """Return how long ago something was."""
    if not moment:
        return ""
    then = datetime.datetime.fromisoformat(moment.replace("Z", "+00:00"))
    seconds = int((datetime.datetime.now(datetime.UTC) - then).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{max(seconds, 0)} s ago"


def line(text: str, width: int = 60) -> str:
    """Return a text as one short line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
