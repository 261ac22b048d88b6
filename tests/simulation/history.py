"""What was asked, told, shown and really done in one schedule: the facts, without judgement.

`step` is the number of callbacks that the loop has run: it orders what happens at the same virtual instant.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from holdfast.events import FAILED, Event, Finish, Reasoning, Settled, Settlement, Text, ToolCall
from holdfast.runs.run import Run
from holdfast.store import FeedEntry

from .loop import Process
from .scenario import SendPlan, SourcePlan


def flat(item: Any) -> list[Any]:
    """Return the things that came in one yield: none of them counts where one of them is nonsense."""
    items = item if isinstance(item, list) else [item]
    return [] if any(type(one) is object for one in items) else items


@dataclass(slots=True)
class Ask:
    """Someone asked for an end."""

    step: int
    by: str
    asker: str = ""
    """The run that was to replace another."""


@dataclass(slots=True, eq=False)
class SourceFacts:
    """What a source really did."""

    run_id: str
    plan: SourcePlan
    process: Process | None
    after: int | None = None
    """It goes on with a run of which so many events were logged."""
    entered: int | None = None
    yielded: list[tuple[int, float, Any]] = field(default_factory=list)
    cancels: list[tuple[int, float]] = field(default_factory=list)
    before_cancel: int | None = None
    """How many items it had yielded when it was first cancelled."""
    how: str = ""
    """How it ended: returned, raised, cancelled, closed. Empty while it goes on."""
    broke: bool = False
    """It raised of its own accord: nobody had cancelled or closed it."""
    ended: int | None = None
    closes: int = 0
    """Calls of `aclose()` on an iterator that is no generator."""
    closed_at: float | None = None
    """The wall clock's time when nothing more was left to close."""

    def note_cancel(self, step: int, time: float) -> None:
        """Note that the source was cancelled."""
        if self.before_cancel is None:
            self.before_cancel = len(self.yielded)
        self.cancels.append((step, time))

    @property
    def said(self) -> tuple[int, Finish] | None:
        """Its last word on its own end before anyone cancelled it, and when it said so.

        A failure is never taken back. What follows any other word takes it back, unless the source then ends by itself.
        """
        last: tuple[int, Finish] | None = None
        going_on: set[int] = set()
        for step, one in [(step, one) for step, _, item in self.yielded[: self.before_cancel] for one in flat(item)]:
            if last is not None and last[1].reason in FAILED:
                return last
            if isinstance(one, Finish):
                going_on = going_on - {one.choice} if one.choice else set()
                last = (step, one) if one.choice == 0 else last
            elif isinstance(one, (str, Text, Reasoning, ToolCall)) and getattr(one, "text", one):
                going_on.add(getattr(one, "choice", 0))
        ended_by_itself = self.how == "returned" and not self.cancels
        return None if going_on and not ended_by_itself else last

    @property
    def last_yield(self) -> float | None:
        """When it last yielded before anyone cancelled it."""
        until = self.cancels[0][0] if self.cancels else float("inf")
        return max((time for step, time, _ in self.yielded if step < until), default=None)


@dataclass(slots=True, eq=False)
class ViewFacts:
    """What one subscriber was shown, across all of its visits."""

    run_id: str
    shown: list[tuple[int, Event]] = field(default_factory=list)
    gave_up: bool = False
    refused: str = ""

    @property
    def cursor(self) -> int:
        """The last seq it has seen."""
        return self.shown[-1][0] if self.shown else 0

    @property
    def has_seen_the_end(self) -> bool:
        """Tell whether it was shown the settlement."""
        return bool(self.shown) and isinstance(self.shown[-1][1], Settled)


@dataclass(slots=True, eq=False)
class FeedFacts:
    """What someone who watches a session was told of it."""

    session_id: str
    told: list[FeedEntry] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class RunFacts:
    """All that is known of a run from outside of the engine."""

    id: str
    send: SendFacts
    kept: bool
    session_id: str | None
    lifetime: str
    message_id: str | None
    accepted: int | None = None
    """The step at which a caller was told that it had started, or was queued."""
    run: Run | None = None
    unsure: bool = False
    """The caller got an error, or nothing at all: it may have started or not."""
    sources: list[SourceFacts] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    told: list[tuple[int, Settlement]] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    hooked: bool = False
    views: list[ViewFacts] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    """The processes in which it was submitted or has run."""
    is_told_of: bool = False
    """It was started by a request that has promised to tell of its end."""
    occurrence: str = ""
    """The chat that a schedule has made for the occurrence that it was started for."""


@dataclass(slots=True, eq=False)
class SendFacts:
    """A client's request, with all of its attempts and repeats."""

    number: int
    plan: SendPlan
    key: str | None
    runs: list[RunFacts] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """The ids of the runs that its attempts were given."""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """A run was accepted, or there will be none."""


@dataclass(slots=True, eq=False)
class Stopping:
    """A call that should return soon: from when to when it went on (virtual seconds)."""

    what: str
    began: float
    ended: float | None = None
    calm: bool = True
    """Nothing else can have held it up: no crash, pause or store away in the meantime."""


@dataclass(slots=True, eq=False)
class History:
    """Everything that happened."""

    sends: list[SendFacts] = field(default_factory=list)
    runs: dict[str, RunFacts] = field(default_factory=dict)
    session_asks: dict[str, list[Ask]] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    """Sessions whose deletion was asked for."""
    feeds: list[FeedFacts] = field(default_factory=list)
    stoppings: list[Stopping] = field(default_factory=list)
    left: dict[str, Stopping] = field(default_factory=dict)
    """Attached runs whose client left before it knew of them."""
    violations: list[str] = field(default_factory=list)
    lines: list[str] | None = None

    def violate(self, text: str) -> None:
        """Note a broken promise that only the instant itself shows."""
        if text not in self.violations:
            self.violations.append(text)
