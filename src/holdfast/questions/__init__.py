"""What a run asks a person, and the answers: events of its log. A question outlives restarts."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec


class ApprovalRequested(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="approval.requested"):
    """The run waits for a person to allow a tool call. `expires_at`, if set, is the deadline in Unix seconds."""

    id: str
    tool: str
    arguments: str
    call: str = ""
    expires_at: float | None = None
    preview: str = ""
    """What the call would change, as a unified diff of whole files. Empty if the tool has no preview."""
    beginning: str = ""
    """The words with which the call begins, by which others can be allowed: `git status`. Empty if it has none."""


class ApprovalDecided(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="approval.decided"
):
    """A person has allowed or denied a tool call."""

    id: str
    decision: Literal["allow", "deny"]
    note: str = ""
    arguments: str = ""
    """The arguments with which the call runs, if the person has changed them, as JSON."""


class OutcomeRequested(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="outcome.requested"):
    """The run waits for a person to say what became of a tool call that a crash has interrupted: it may have run.

    `since` is the time at which the call began, `expires_at`, if set, the deadline, both in Unix seconds. `printed` is
    its output up to the crash, and `problem` the reason why the tool could not find out itself.
    """

    id: str
    tool: str
    arguments: str
    call: str
    effect_id: str
    since: float
    printed: str = ""
    problem: str = ""
    expires_at: float | None = None


class OutcomeDecided(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="outcome.decided"
):
    """A person has said that an interrupted call ran, or that it is to be made again, or left out."""

    id: str
    decision: Literal["ran", "again", "skip"]
    note: str = ""


class FormOption(msgspec.Struct, frozen=True):
    """One of the choices of a field."""

    value: str
    title: str


class FormField(msgspec.Struct, frozen=True):
    """A field that a person fills in: text, a number, yes or no, one choice (`string`), or several (`array`).

    `lowest` and `highest` limit a number, the length of a text, or how many are chosen.
    """

    name: str
    kind: Literal["string", "number", "integer", "boolean", "array"]
    title: str
    description: str = ""
    required: bool = False
    options: tuple[FormOption, ...] = ()
    default: bool | int | float | str | list[str] | None = None
    format: str = ""
    lowest: float | None = None
    highest: float | None = None


class InputRequested(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="input.requested"):
    """A tool asks the person something while it runs, and waits. Without fields it only asks for consent."""

    id: str
    tool: str
    call: str
    message: str
    fields: tuple[FormField, ...] = ()
    expires_at: float | None = None


class InputDecided(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="input.decided"):
    """The person has filled the form in, declined, or not answered: `note` may say why. Then there is no content."""

    id: str
    decision: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = {}
    note: str = ""


Question: TypeAlias = ApprovalRequested | OutcomeRequested | InputRequested
"""What a run can ask of a person. It waits until the person has answered."""
Answered: TypeAlias = ApprovalDecided | OutcomeDecided | InputDecided
"""The answer of a person."""
