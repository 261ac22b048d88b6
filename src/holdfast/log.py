"""The numbered events of one run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from .errors import ResumeGap, RunSettled
from .events import Event, Notice, Reasoning, Settled, Snapshot, Steered, StepStarted, Text, ToolCall, Usage
from .steps import Steps

_SLICE = 512  # events handed to a reader at once, so that a long replay never holds the loop


class Log:
    """Written by the run's pump, read by any number of cursors.

    A reader is only a number, the last `seq` it has seen: there is no queue for each subscriber to fill,
    drain or forget, and replay and live reading are one loop.

    An event is *appended* when the source yields it and *published* when the store has it; readers see only
    what is published. A run that nobody asked to keep publishes at once.
    """

    __slots__ = (
        "_events",
        "_parts",
        "_reasoning",
        "_times",
        "_trimmed",
        "_watchers",
        "answered_by",
        "closed",
        "limit",
        "run_id",
        "sealed",
        "seq",
        "steps",
        "tool_calls",
        "usage",
    )

    def __init__(self, run_id: str, *, limit: int | None = None) -> None:
        self.run_id = run_id
        self.limit = limit
        self.seq = 0
        """The last published seq: what a reader can see."""
        self.closed = False
        self.usage: Usage | None = None
        self.answered_by: str | None = None
        """The model that answers, where it is not the one that was asked."""
        self.tool_calls: list[ToolCall] = []
        self.steps: Steps | None = None
        """What an agent has done; None for a run that is none."""
        self._events: list[Event] = []
        self._times: tuple[array[int], array[float]] | None = None
        self._trimmed = 0
        self.sealed = False
        self._parts: list[str] = []
        self._reasoning: list[str] = []
        self._watchers: dict[Callable[[], None], None] = {}

    # writing

    @property
    def appended(self) -> int:
        """The last seq given out, published or not."""
        return self._trimmed + len(self._events)

    def append(self, events: Sequence[Event]) -> None:
        """Add events; they get the next numbers and stay unseen until `publish`."""
        if self.sealed:
            raise RunSettled(self.run_id)
        self._events.extend(events)

    def pending(self) -> Sequence[Event]:
        """Return what is appended but not yet published."""
        return self._events[self.seq - self._trimmed :]

    def publish(self, upto: int) -> None:
        """Let readers see everything up to `upto`, which the store now has."""
        self._take_in(self._events[self.seq - self._trimmed : upto - self._trimmed])
        self.seq = upto
        if self.limit is not None and self.seq - self._trimmed > self.limit:
            self._trim()
        for wake in tuple(self._watchers):
            wake()

    def say(self, events: Sequence[Event], at: float) -> None:
        """Append events of a run that nobody asked to keep, note their time, and show them at once.

        This is `append` and `publish` in one, as it is done for each token. A time is two numbers for each call: a long
        log stays small.
        """
        if self.sealed:
            raise RunSettled(self.run_id)
        self._events += events
        self._take_in(events)
        self.seq = self._trimmed + len(self._events)
        if self._times is None:
            self._times = array("Q"), array("d")
        self._times[0].append(self.seq)
        self._times[1].append(at)
        if self.limit is not None and len(self._events) > self.limit:
            self._trim()
        for wake in tuple(self._watchers):
            wake()

    def seal(self) -> None:
        """Refuse all further events of the source: only the settlement may still come."""
        self.sealed = True

    def close(self, settled: Settled) -> None:
        """Add and publish the last event. Nothing comes after it."""
        self.sealed = True
        self._events.append(settled)
        self.closed = True
        self.publish(self.appended)
        self._watchers.clear()

    def abandon(self) -> None:
        """Forget what was never shown and send the readers off: another owner writes this log now."""
        del self._events[self.seq - self._trimmed :]
        self.sealed = self.closed = True
        self.publish(self.seq)
        self._watchers.clear()

    def _take_in(self, events: Sequence[Event]) -> None:
        texts = [event.text for event in events if type(event) is Text and event.choice == 0]
        if len(texts) == len(events) and self.steps is None:
            self._parts += texts
            return
        for event in events:
            if type(event) is Text:
                if event.choice == 0:
                    self._parts.append(event.text)
            elif isinstance(event, Reasoning):
                if event.choice == 0:
                    self._reasoning.append(event.text)
            elif isinstance(event, Usage):
                self.usage = event
            elif isinstance(event, ToolCall):
                self.tool_calls.append(event)
            elif isinstance(event, Notice) and event.model:
                self.answered_by = event.model
            elif isinstance(event, (StepStarted, Steered)) and self.steps is None:
                self.steps = Steps()
            if self.steps is not None:
                self.steps.take_in(event)

    def _trim(self) -> None:
        """Forget the older half: trimming event by event would move the list each time."""
        assert self.limit is not None
        drop = self.seq - self._trimmed - self.limit // 2
        del self._events[:drop]
        self._trimmed += drop

    # reading

    @property
    def oldest(self) -> int:
        """The first seq that can still be read."""
        return self._trimmed + 1

    @property
    def text(self) -> str:
        """All of the visible text so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def reasoning(self) -> str:
        """All of the reasoning so far."""
        if len(self._reasoning) > 1:
            self._reasoning = ["".join(self._reasoning)]
        return self._reasoning[0] if self._reasoning else ""

    def times(self) -> list[tuple[int, float]]:
        """Return when events came: the last seq of those that came together, and their time."""
        return [] if self._times is None else list(zip(*self._times, strict=True))

    def snapshot(self) -> tuple[int, Snapshot]:
        """Return what was visible, and up to which seq: a reader can go on from there."""
        return self.seq, Snapshot(self.text, self.reasoning)

    def slice(self, after: int) -> Sequence[Event]:
        """Return the next published events after `after`, at most a slice of them."""
        if after < self._trimmed:
            raise ResumeGap(self.oldest)
        start = after - self._trimmed
        return self._events[start : min(self.seq - self._trimmed, start + _SLICE)]

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        self._watchers[wake] = None
        return lambda: self._watchers.pop(wake, None)

    async def batch(self, after: int) -> Sequence[Event]:
        """Return what can be read now after `after`; empty where a reader has to wait or has seen the end."""
        return self.slice(after)
