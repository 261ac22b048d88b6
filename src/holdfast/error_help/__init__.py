"""What every error code means: cause and remedy.

errors.md is the only table of codes. The server answers `GET /docs/errors/CODE` from it, `holdfast explain CODE`
prints it, and the tables of docs/protocol/03-errors.md and docs/reference/errors.md are written from it. A test fails
for a code without help.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class ErrorHelp(msgspec.Struct, frozen=True):
    """What is published about an error code. Backquotes in the texts mark code."""

    code: str
    status: str
    """The HTTP status, or the statuses. `*start*`: only commands print it, before or without a server."""
    when: str
    """What happened, as a phrase."""
    cause: str
    """The usual reasons, as sentences."""
    remedy: str
    """What to do, as sentences."""
    clause: str = ""
    """The number of the clause of the protocol that has the details."""

    @property
    def is_sent(self) -> bool:
        """Whether a server sends the code. Otherwise only commands print it."""
        return not self.status.startswith("*")


def _read(text: str) -> dict[str, tuple[ErrorHelp, ...]]:
    """Return the entries by their groups. A heading has code, status and clause; below are when, cause and remedy."""
    groups: dict[str, tuple[ErrorHelp, ...]] = {}
    group = ""
    for section in text.split("\n\n"):
        head, *texts = section.strip().split("\n")
        level, _, title = head.partition(" ")
        if level == "#":
            group = title
            groups[group] = ()
        else:
            code, status, *clause = title.split(" · ")
            groups[group] += (ErrorHelp(code, status, *texts, *clause),)
    return groups


GROUPS = _read(Path(__file__).with_name("errors.md").read_text("utf-8"))
"""All codes, by what they are about."""

ERRORS: dict[str, ErrorHelp] = {each.code: each for group in GROUPS.values() for each in group}
"""All codes by their names."""

ERROR_PAGES = "/docs/errors"
"""The path of the pages on every server: they need no internet, and fit the version that runs."""


def help_at(code: str) -> str | None:
    """Return the path of the page of a code. None for a code of an agent or a provider that is not part of Holdfast."""
    return f"{ERROR_PAGES}/{code}" if code in ERRORS else None


NOTICES = {
    "budget": "A budget ends the run, or had no room for more: it is spent, or others hold the rest of it.",
    "content_left_out": "The model was asked without what it cannot take of the conversation, such as a picture.",
    "continuing": "The response goes on: another call of a model takes over from a place that the event names.",
    "cursor_reset": "The reader asked for events after one that the run does not have. It gets all of them.",
    "fallback": "The model could not respond, so its fallback does. The notice names it.",
    "fetching_weights": "The weights of the built-in model are being downloaded.",
    "loading_model": "The built-in model is being loaded into memory.",
    "max_steps": "The agent has made as many steps as its settings allow. Continue the run for more.",
    "model_busy": "The built-in model answers others first.",
    "new_turn": "The model was asked to go on in a turn of its own.",
    "prompt_blocked": "The filter of the provider has refused the prompt.",
    "prompt_progress": "The model is still reading the prompt. The notice says how far it is.",
    "resumed": "The run goes on after a restart of the server.",
    "retry": "The upstream failed before its first word, and is asked again.",
    "starting_tools": "The agent waits for its MCP servers to start.",
    "waiting": "The provider answers only some runs at a time, and the run waits for its turn.",
}
"""What the codes of notices mean. A notice is an event of a run that is no error: it tells what is going on."""
