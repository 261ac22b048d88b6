"""What clients asked several nodes for and what they were answered, and what the nodes keep in the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.http import Frame

END_OF_READING, END_OF_FEED = "no reader reads on", "the end of the round"
"""Titles of every session: a feed has no end of its own, so readers leave at these entries, live and afterwards."""


@dataclass
class Send:
    """A message to a session under an idempotency key, which may have been sent several times, to several nodes."""

    session_id: str
    input: str
    tokens: int
    """The words that the model says, if nothing ends its answer early."""
    run_ids: list[str] = field(default_factory=list)
    """The run of each answer that accepted it."""


@dataclass
class Stop:
    """A stop that was answered with the run."""

    run_id: str
    run: dict[str, Any]


@dataclass
class Reading:
    """The frames that one reader got, over all its connections. `path` names what it reads."""

    path: str
    frames: list[Frame] = field(default_factory=list)


@dataclass
class History:
    """Everything that the clients of one round know."""

    sessions: list[str] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    deleting: set[str] = field(default_factory=set)
    """The sessions that a client tried to delete."""
    deleted: set[str] = field(default_factory=set)
    """The sessions whose deletion was answered."""
    broken: list[str] = field(default_factory=list)
    """Answers that no fault excuses, such as a status 500."""


@dataclass
class Kept:
    """What one node says in the end. A session that it does not find is None."""

    sessions: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    streams: dict[str, list[Frame]] = field(default_factory=dict)
    """By the path of the stream: the events of each run, and the feed of each session."""


@dataclass
class Story:
    """A round: what the clients know, and what each node keeps."""

    history: History
    nodes: Sequence[Kept]


def events_path(run_id: str) -> str:
    """Return the path of the events of a run."""
    return f"/api/runs/{run_id}/events"


def feed_path(session_id: str) -> str:
    """Return the path of the feed of a session."""
    return f"/api/sessions/{session_id}/events"
