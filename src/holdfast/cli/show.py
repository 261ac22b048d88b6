"""Output on a terminal and in a pipe."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from .screen import safe, safe_json, unfiltered


class _Console(Console):
    """Draws with its own escape codes on a terminal, and removes those in texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of a renderable."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(safe(part.text), part.style and part.style.update_link(None))


def _console(stream: Any) -> Console:
    """Return a console that writes no escape codes under NO_COLOR: rich alone would keep bold and dim.

    On a terminal lines are cut between words. A pipe gets them whole.
    """
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    is_piped = not stream.isatty()
    return _Console(file=unfiltered(stream), color_system=colours, highlight=False, emoji=False, soft_wrap=is_piped)


out = _console(sys.stdout)
err = _console(sys.stderr)

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
    """True if standard output is a terminal. A pipe gets no colours and no tables."""
    return out.is_terminal


def note(text: str, style: str = "dim") -> None:
    """Print to standard error."""
    err.print(text, style=style, markup=False)


class Progress:
    """The progress of a step that takes long, on standard error: percent, and bytes per second.

    Nothing is shown in the first second. A terminal has one line, which changes; a pipe gets a line every ten seconds.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, max(total, 1), 0
        self._began_at = self._shown_at = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if err.is_terminal and self._shown_at > self._began_at:
            err.file.write("\n")

    def add(self, size: int) -> None:
        """Count bytes that are done."""
        self.at(self._done + size)

    def at(self, done: int) -> None:
        """Set the number of bytes that are done."""
        self._done, now = done, time.monotonic()
        if now - self._began_at < 1 or now - self._shown_at < (0.2 if err.is_terminal else 10):
            return
        self._shown_at = now
        rate = done / (now - self._began_at) / 1e6
        line = f"{self._what}: {100 * done // self._total} % of {self._total / 1e6:,.0f} MB, {rate:,.0f} MB/s"
        err.file.write(f"\r\x1b[K{line}" if err.is_terminal else f"{line}\n")
        err.file.flush()


def as_json(value: Any) -> str:
    """Return a value as indented JSON."""
    return safe_json(msgspec.json.format(msgspec.json.encode(value)).decode()) + "\n"


def state_of(run: dict[str, Any]) -> str:
    """Return the outcome of a run, or its status while it has none."""
    match run:
        case {"settlement": {"outcome": outcome}}:
            return str(outcome)
    return str(run["status"])


def why(run: dict[str, Any]) -> str:
    """Return why a run did not complete, or what it waits for."""
    match run:
        case {"waits_for": {"model": model, "what": what, "since": since}} if (
            seconds := _seconds_since(since)
        ) >= _SHORT:
            return f"{_WAITS[what].format(model=model or 'its model')}: {seconds:.0f} s"
        case {"settlement": {"error": {"message": message}}}:
            return str(message)
        case {"settlement": {"outcome": "stopped", "by": by}}:
            return f"by {by}"
        case {"settlement": {"outcome": "truncated", "finish_reason": str(reason)}}:
            return _TRUNCATED.get(reason, reason)
    return ""


_SHORT = 3.0
"""Seconds of a wait that nobody is told of."""
_WAITS = {
    "prompt": "{model} reads the prompt",
    "first_token": "waiting for the first word of {model}",
    "more": "nothing new from {model}",
}

_TRUNCATED = {"length": "token limit reached", "content_filter": "content filter"}
"""Text for the finish reasons of a truncated answer."""


def ago(moment: str | None) -> str:
    """Return a time as an age, such as `2 hours ago`."""
    if not moment:
        return ""
    seconds = int(_seconds_since(moment))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{max(seconds, 0)} s ago"


def seconds_between(start: str, end: str) -> float:
    """Return the seconds from one time to another."""
    return _seconds_since(start) - _seconds_since(end)


def _seconds_since(moment: str) -> float:
    then = datetime.datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()


def line(text: str, width: int = 60) -> str:
    """Return a text as one short line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def plural(count: int, thing: str) -> str:
    """Return a count with its noun: `1 key`, `2 keys`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
