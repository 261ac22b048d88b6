"""What an agent asks a person, as the terminal shows it, and the lines that answer it."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from typing import Protocol

import msgspec
from rich.cells import chop_cells

from ..client import Object
from ..screen import visible

SCOPES = {"y": "once", "s": "session", "a": "always"}
OUTCOMES = {"r": "ran", "a": "again", "s": "skip"}
MARGIN = "  │ "
"""Prefix of each line of a call, so that no call can imitate our own output."""


class TerminalQuestion(Protocol):
    """A question of a run. A line may allow something only if all of it was shown."""

    needs: str
    """What a script is told whose run was stopped because nobody could answer."""
    title: str
    choices: str
    refusals: str
    """The choices until all of it was shown."""
    path: str
    """The part of the path of its answers: `approvals`."""

    def shown(self) -> list[str]:
        """Return its lines below the title."""
        ...

    def reply(self, choice: str, note: str, *, is_whole: bool) -> Object | None:
        """Return the body of the answer; None if the line is none. `is_whole` is true once all of it was shown."""
        ...


class ApprovalQuestion:
    """May a tool be called?"""

    choices = "[y]es, [s]ession, [a]lways, [n]o + reason"
    refusals = "[n]o + reason"
    path = "approvals"

    def __init__(self, asked: Object) -> None:
        self._asked = asked
        tool = asked["tool"]
        self.needs = f"{tool} needs approval, and this is not a terminal. Use --approve {tool} to allow it."
        self.title = f"Allow {visible(tool)}?"

    def shown(self) -> list[str]:
        """Return the arguments."""
        return lines_of(self._asked["arguments"])

    def reply(self, choice: str, note: str, *, is_whole: bool) -> Object | None:
        """Return the decision."""
        if choice in SCOPES and not note and is_whole:
            return {"decision": "allow", "scope": SCOPES[choice]}
        return {"decision": "deny", "note": note} if choice == "n" else None


class OutcomeQuestion:
    """What became of a call that a crash has interrupted?"""

    choices = "it [r]an, run it [a]gain, [s]kip + reason"
    refusals = "it [r]an, [s]kip + reason"
    path = "outcomes"

    def __init__(self, asked: Object) -> None:
        self._asked = asked
        tool = asked["tool"]
        self.needs = f"{tool} may have run before the server ended, and this is not a terminal."
        self.title = f"The server ended while {visible(tool)} was running. It may have run."

    def shown(self) -> list[str]:
        """Return the evidence: the arguments, when it began, and what it had printed."""
        asked, since = self._asked, datetime.fromtimestamp(self._asked["since"]).astimezone()
        lines = [*lines_of(asked["arguments"]), f"Started {since:%Y-%m-%d %H:%M:%S %Z}."]
        if asked["printed"]:
            lines += ["Its output until then:", *visible(asked["printed"].rstrip()).split("\n")]
        return [*lines, *([visible(asked["problem"])] if asked["problem"] else [])]

    def reply(self, choice: str, note: str, *, is_whole: bool) -> Object | None:
        """Return the decision."""
        if choice not in OUTCOMES or (choice == "a" and not is_whole):
            return None
        return {"decision": OUTCOMES[choice], "note": note}


KINDS: dict[str, type[ApprovalQuestion | OutcomeQuestion]] = {
    "approval.requested": ApprovalQuestion,
    "outcome.requested": OutcomeQuestion,
}
"""The questions by the types of their events."""
ANSWERED = frozenset({"approval.decided", "outcome.decided"})


def parts_of(lines: list[str], width: int, height: int) -> list[str]:
    """Return lines in parts that fit on a screen, with every character visible."""
    pieces = [MARGIN + piece for line in lines for piece in chop_cells(line, max(width - 6, 20)) or [""]]
    size = max(height - 4, 4)
    return ["\n".join(pieces[first : first + size]) for first in range(0, len(pieces), size)]


def lines_of(arguments: str) -> list[str]:
    """Return JSON as lines. A line end in a string stays visible, and also begins a new line on the screen."""
    with suppress(msgspec.DecodeError):
        arguments = msgspec.json.format(arguments)
    return visible(_LINE_END.sub(r"\1\n", arguments)).split("\n")


_LINE_END = re.compile(r"((?<!\\)(?:\\\\)*\\n)(?!\")")
