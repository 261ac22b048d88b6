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
    refusals: str
    """The choices until all of it was shown."""
    path: str
    """The part of the path of its answers: `approvals`."""
    alone: Object | None
    """The answer if this is not a terminal; None if the run has to be stopped."""

    @property
    def choices(self) -> str:
        """What can be typed."""
        ...

    def shown(self) -> list[str]:
        """Return its lines below the title."""
        ...

    def reply(self, choice: str, note: str, *, is_whole: bool) -> Object | None:
        """Return the body of the answer; None if the line is none. `is_whole` is true once all of it was shown."""
        ...


class ApprovalQuestion:
    """May a tool be called?"""

    refusals = "[n]o + reason"
    path = "approvals"
    alone: Object | None = None

    def __init__(self, asked: Object) -> None:
        self._asked = asked
        tool = asked["tool"]
        self.needs = f"{tool} needs approval, and this is not a terminal. Use --approve {tool} to allow it."
        self.title = f"Allow {visible(tool)}?"
        begins = f'always if it [b]egins with "{visible(asked["beginning"])}", ' if asked["beginning"] else ""
        self.choices = f"[y]es, [s]ession, {begins}[a]lways, [e]dit + arguments as JSON, [n]o + reason"

    def shown(self) -> list[str]:
        """Return the arguments."""
        return lines_of(self._asked["arguments"])

    def reply(self, choice: str, note: str, *, is_whole: bool) -> Object | None:
        """Return the decision."""
        if choice in SCOPES and not note and is_whole:
            return {"decision": "allow", "scope": SCOPES[choice]}
        if choice == "b" and self._asked["beginning"] and is_whole:
            return {"decision": "allow", "scope": "always", "beginning": self._asked["beginning"]}
        if choice == "e" and is_whole:
            return _edited(note)
        return {"decision": "deny", "note": note} if choice == "n" else None


class OutcomeQuestion:
    """What became of a call that a crash has interrupted?"""

    choices = "it [r]an, run it [a]gain, [s]kip + reason"
    refusals = "it [r]an, [s]kip + reason"
    path = "outcomes"
    alone: Object | None = None

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


class InputQuestion:
    """What does a tool want to know? Its fields are asked for one after the other."""

    refusals = "/decline + reason, /dismiss"
    path = "inputs"
    alone: Object | None = {"decision": "decline", "note": "This is not a terminal: nobody is there to ask."}  # noqa: RUF012

    def __init__(self, asked: Object) -> None:
        self.needs = ""
        self.title = f"{visible(asked['tool'])} asks: {visible(asked['message'])}"
        self._fields: list[Object] = asked["fields"]
        self._content: Object = {}
        self._place = 0

    @property
    def _field(self) -> Object | None:
        return self._fields[self._place] if self._place < len(self._fields) else None

    @property
    def choices(self) -> str:
        """Return what can be typed for the next field."""
        field = self._field
        if field is None:
            return f"Enter to agree, {self.refusals}"
        several = field["kind"] == "array"
        takes = {"boolean": "[y]es or [n]o", "array": "numbers"}.get(
            field["kind"], "a number" if field["options"] else ""
        )
        own = "" if field["title"] or several else " or own words"
        what = f"{takes}{own}" if field["options"] or takes else "answer"
        return f"{what}{'' if field['required'] else ', Enter to leave out'}, {self.refusals}"

    def shown(self) -> list[str]:
        """Return the next field, with its choices."""
        field = self._field
        if field is None:
            return []
        options = [f"{place}. {visible(each['title'])}" for place, each in enumerate(field["options"], 1)]
        about = [visible(text) for text in (field["title"], field["description"]) if text]
        return [*about, *options]

    def reply(self, choice: str, note: str, *, is_whole: bool) -> Object | None:
        """Return the answer once the last field is filled in."""
        if choice in ("/decline", "/dismiss"):
            return {"decision": "decline" if choice == "/decline" else "cancel", "note": note}
        line, field = f"{choice} {note}".strip(), self._field
        if field is not None and not self._fill(field, line):
            return None
        if field is not None and field["title"] and self._place < len(self._fields):
            return None
        content, self._content, self._place = self._content, {}, 0
        return {"decision": "accept", "content": content}

    def _fill(self, field: Object, line: str) -> bool:
        """Take a line as the value of a field, and go on to the next. False if it is none."""
        value = _value(field, line)
        name = field["name"]
        if value is None and line and field["options"] and not field["title"]:  # in one's own words
            name, value = self._fields[-1]["name"], line
        if value is None and (line or field["required"]):
            return False
        self._place += 1
        if value is not None:
            self._content[name] = value
        return True


KINDS: dict[str, type[ApprovalQuestion | OutcomeQuestion | InputQuestion]] = {
    "approval.requested": ApprovalQuestion,
    "outcome.requested": OutcomeQuestion,
    "input.requested": InputQuestion,
}
"""The questions by the types of their events."""
ANSWERED = frozenset({"approval.decided", "outcome.decided", "input.decided"})


def _edited(arguments: str) -> Object | None:
    """Return an allow with other arguments; None if they are no JSON object."""
    try:
        return {"decision": "allow", "arguments": msgspec.json.decode(arguments, type=dict[str, object])}
    except msgspec.DecodeError:
        return None


def _value(field: Object, line: str) -> object:
    """Return a line as the value of a field; None if it is none."""
    kind, options = field["kind"], field["options"]
    if not line:
        return field["default"]
    if options:
        numbers = [int(each) for each in line.replace(",", " ").split() if each.isdecimal()]
        chosen = [options[number - 1]["value"] for number in numbers if 0 < number <= len(options)]
        if len(chosen) != len(line.replace(",", " ").split()):
            return None
        return chosen if kind == "array" else chosen[0] if len(chosen) == 1 else None
    if kind == "boolean":
        return {"y": True, "yes": True, "n": False, "no": False}.get(line.lower())
    if kind in ("number", "integer"):
        with suppress(ValueError):
            return int(line) if kind == "integer" else float(line)
        return None
    return line


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
