"""How things look in a terminal, and in a pipe."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import rich.box
from rich.console import Console
from rich.table import Table

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

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


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as a table, or as lines with tabs where a program reads them."""
    if not is_terminal():
        for row in rows:
            sys.stdout.write("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row) + "\n")
        return
    drawn = Table(*columns, box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        drawn.add_row(*row)
    out.print(drawn)


def word(state: str) -> str:
    """Return how a run stands, coloured for a person."""
    colour, text = MARKS.get(state, ("white", state))
    return f"[{colour}]{text}[/]" if is_terminal() else text


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
