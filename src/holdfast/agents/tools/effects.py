"""What a tool is told of a call that may have run, and what it can answer."""

from __future__ import annotations

from typing import Any

import msgspec


class Effect(msgspec.Struct, frozen=True):
    """A call that a crash has interrupted."""

    id: str
    """The effect id, which the call was given."""
    arguments: dict[str, Any]
    since: float
    """When the call began, in Unix seconds."""


class NotRun(msgspec.Struct, frozen=True):
    """The answer of a tool that is certain that a call has had no effect, and will have none."""
