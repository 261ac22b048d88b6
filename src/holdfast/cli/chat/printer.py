"""Prints a run as it arrives: the answer on standard output, everything else on standard error."""

from __future__ import annotations

import asyncio
import shutil
import sys

from rich.markup import escape

from ...history import SHORTEST
from .. import show
from ..client import Object
from ..commands import more_about
from ..screen import safe, visible
from .prose import Prose

HELD = 0.2
"""Seconds for which a word without an end is held back, so that it is not cut at the edge of the screen."""
WIDEST = 100
"""Maximum length of a call's arguments, or of its error, on the screen, in characters."""


class Printer:
    """Prints one run. On a terminal everything but the answer is on separate lines.

    With `plain` the answer is as the model has written it, on a terminal too.
    """

    def __init__(self, silent: bool, *, plain: bool = False, prints_answer: bool = True) -> None:
        self._prints_answer = prints_answer
        self._silent, self._is_plain = silent, plain or not show.is_terminal()
        self._first = self._last = 0.0
        self._thinks = False
        self._noticed = ""
        self._at_line_start = True
        self._screen_at_line_start = True
        self._names: dict[str, str] = {}
        self._takes_escapes = show.err.is_terminal and show.err.color_system is not None
        self._held: asyncio.TimerHandle | None = None
        self._prose = Prose(show.out.file.write, _columns, styles=show.out.color_system is not None)

    def take(self, event: Object) -> None:
        """Print one event."""
        if self._silent:
            return
        if event["type"] in _OF_THE_MODEL:
            self._last = asyncio.get_running_loop().time()
            self._first = self._first or self._last
        if event["type"] == "text.delta":
            self._stop_aside()
            if self._prints_answer:
                self._write(event["text"])
        elif event["type"] == "reasoning.delta" and show.err.is_terminal:
            self._think(event["text"])
        elif event["type"] == "notice":
            self._notice(event["code"], event["message"])
        elif event["type"] == "run.settled":
            self._end(event["settlement"])
        else:
            self._print_work(event)

    def aside(self, text: str, style: str = "dim", end: str = "\n") -> None:
        """Print something that is not part of the answer, on a separate line."""
        self._stop_aside()
        self._break_line()
        show.err.print(text, style=style, markup=False, end=end)
        self._screen_at_line_start = True

    # an agent's work

    def _print_work(self, event: Object) -> None:
        """Print the work of an agent: a line when a call begins, and one when it has ended."""
        match event:
            case {"type": "tool.call", "own": True}:
                self._names[event["id"]] = event["name"]
                self.aside(f"→ {visible(event['name'])} {show.line(visible(event['arguments']), WIDEST)}")
            case {"type": "tool.progress", "id": id} if id in self._names:
                self._notice(f"progress of {id}", f"  {self._names[id]}: {_how_far(event)}")
            case {"type": "tool.result", "id": id} if id in self._names:
                self._result(event)
            case {"type": "approval.decided" | "outcome.decided" | "input.decided", "note": str(note)} if note:
                self.aside(f"  {_DECIDED[event['decision']]}: {show.line(note, WIDEST)}")
            case {"type": "approval.decided" | "outcome.decided" | "input.decided"}:
                self.aside(f"  {_DECIDED[event['decision']]}")
            case {"type": "picture", "url": str(url)}:
                self.aside(f"[a picture: {_picture(url)}]")
            case {"type": "run.steered"}:
                self.aside(f"» {show.line(event['text'], WIDEST)}")

    def _result(self, event: Object) -> None:
        match event:
            case {"seconds": int() | float() as seconds}:
                took = f" {seconds:.1f} s" if seconds >= 1 else f" {seconds * 1000:.0f} ms"
            case _:
                took = ""
        name = self._names[event["id"]]
        if event["is_error"]:
            self.aside(f"✗ {name}{took}: {show.line(event['output'], WIDEST)}", "yellow")
        else:
            self.aside(f"✓ {name}{took}")

    # the answer, and everything else

    def _write(self, text: str) -> None:
        if not self._is_plain:
            self._prose.take(text)
            self._screen_at_line_start = self._prose.is_at_line_start
            if self._held is not None:
                self._held.cancel()
            self._held = asyncio.get_running_loop().call_later(HELD, self._show_word)
        else:
            sys.stdout.write(safe(text) if show.is_terminal() else text)
            self._screen_at_line_start = text.endswith("\n")
        sys.stdout.flush()
        self._at_line_start = text.endswith("\n")

    def _show_word(self) -> None:
        """Print the last word although its end is not known: the model may be silent for long."""
        self._prose.flush()
        sys.stdout.flush()

    def _finish(self) -> None:
        """Print all of the answer that is held back."""
        if not self._is_plain:
            self._prose.finish()
            self._screen_at_line_start = self._prose.is_at_line_start
        sys.stdout.flush()

    def _think(self, text: str) -> None:
        if not self._thinks:
            self._stop_aside()
            self._thinks = True
            show.err.print("" if self._takes_escapes else "(thinking) ", end="")
        show.err.print(text, style="dim italic", end="", markup=False, soft_wrap=True)

    def _notice(self, code: str, message: str) -> None:
        """Print a notice. A progress notice replaces the one before it, and is left out if the output is a file."""
        if code == self._noticed and not self._takes_escapes:
            return
        if code == self._noticed:
            show.err.file.write("\r\x1b[2K")
        else:
            self._stop_aside()
            self._break_line()
        self._noticed = code
        show.err.print(message, style="dim", markup=False, end="" if self._takes_escapes else "\n")

    def _stop_aside(self) -> None:
        """End the current output besides the answer."""
        if self._thinks:
            show.err.print("\n")
        elif self._noticed and self._takes_escapes:
            show.err.print()
        self._thinks, self._noticed = False, ""

    def _break_line(self) -> None:
        """Begin a new line on the screen within an answer. A file or pipe gets the answer without this break."""
        if not self._screen_at_line_start and show.is_terminal():
            self._finish()
            self._prose.break_line()
            show.err.print()
        self._screen_at_line_start = True

    def _end(self, settled: Object) -> None:
        """End the line. If the run did not complete, print how it ended."""
        self._stop_aside()
        self._finish()
        if not (self._screen_at_line_start if show.is_terminal() else self._at_line_start):
            self._write("\n")
        if settled["outcome"] != "completed":
            colour = show.MARKS[settled["outcome"]][0]
            show.err.print(f"[{colour}]{settled['outcome'].capitalize()}[/]{escape(_reason(settled))}")

    def print_figures(self, run: Object, currency: str) -> None:
        """Print what an answer took: tokens, speed as it was seen here, seconds, and cost."""
        written, figures = self._last - self._first, []
        match run:
            case {"settlement": {"usage": {"output_tokens": int(tokens), "source": source}}} if tokens:
                about = "≈ " if source == "estimated" else ""
                speed = [f"{about}{tokens / written:.1f} tokens/s"] if written > SHORTEST else []
                figures = [f"{about}{tokens:,} tokens", *speed]
        match run:
            case {"started_at": str(start), "settled_at": str(end)}:
                figures.append(f"{show.seconds_between(start, end):.1f} s")
        match run:
            case {"cost": int() | float() as cost}:
                figures.append(f"{cost:.4g} {currency}")
        if figures:
            self.aside("  ·  ".join(figures))


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _picture(url: str) -> str:
    """Return the kind of a picture and its size, or its address."""
    kind, found, data = url.removeprefix("data:").partition(";base64,")
    return f"{kind}, {len(data) * 3 // 4:,} bytes" if found else visible(url)


_OF_THE_MODEL = ("text.delta", "reasoning.delta", "tool.call")
_DECIDED = {
    "allow": "allowed",
    "deny": "denied",
    "ran": "it ran",
    "again": "run again",
    "skip": "skipped",
    "accept": "answered",
    "decline": "declined",
    "cancel": "not answered",
}


def _how_far(progress: Object) -> str:
    share, said = "", ""
    match progress:
        case {"fraction": int() | float() as fraction}:
            share = f" {fraction:.0%}"
    match progress:
        case {"message": str(message)}:
            said = message
    return show.line(said, WIDEST) + share


def _reason(settled: Object) -> str:
    """Return the reason of a run's end, and whether a partial answer was saved."""
    match settled:
        case {"by": "user"}:
            reason = ""
        case _:
            reason = show.why({"settlement": settled})
    ending = f": {reason.rstrip('.')}." if reason else "."
    saved = " The partial response was saved." if settled["partial"] else ""
    match settled:
        case {"error": {"code": code}}:
            return f"{ending}{saved}{more_about(code)}"
    return f"{ending}{saved}"
