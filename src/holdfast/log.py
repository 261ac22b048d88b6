"""The numbered events of one run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .errors import ResumeGap, RunSettled
from .events import (
    Event,
    Notice,
    Reasoning,
    RunStarted,
    Settled,
    Snapshot,
    Steered,
    StepStarted,
    Text,
    ToolCall,
    Usage,
    Words,
    encode_event,
)
from .steps import Steps
from .tape import Tape

_SLICE = 512  # events handed to a reader at once, so that a long replay never holds the loop
_FOLDED = 1024  # events whose texts are put together at once
_OF_AN_ITEM = 64  # as many characters take the memory of one item of a list or an object
_SHORT = frozenset({RunStarted, Usage, Settled})
"""Events of every run that hold no text of their own: nobody has to look for it."""


class Log:
    """Written by the run's pump, read by any number of cursors.

    A reader is only a number, the last `seq` it has seen: there is no queue for each subscriber to fill,
    drain or forget, and replay and live reading are one loop.

    An event is *appended* when the source yields it and *published* when the store has it; readers see only
    what is published. A run that nobody asked to keep publishes at once.

    Beyond its `limit` a log forgets its oldest events. Where one reader is waited for, it keeps all that this one has
    not seen, and is full when that is more than the limit: then the source has to wait.
    """

    __slots__ = (
        "_due",
        "_folded",
        "_heard",
        "_newest",
        "_newest_after",
        "_place",
        "_reasoning",
        "_size",
        "_tape",
        "_text",
        "_times",
        "_watchers",
        "answered_by",
        "closed",
        "is_full",
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
        self.is_full = False
        """The reader that is waited for is further behind than the log may be long."""
        self.usage: Usage | None = None
        self.answered_by: str | None = None
        """The model that answers, where it is not the one that was asked."""
        self.tool_calls: list[ToolCall] = []
        self.steps: Steps | None = None
        """What an agent has done; None for a run that is none."""
        self.sealed = False
        self._tape = Tape()
        self._times: tuple[array[int], array[float]] | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._heard: list[Event | Words] = []  # of which the texts are still to be put together
        self._folded = 0
        self._size = 0
        self._place: Callable[[], int] | None = None
        self._due = _FOLDED if limit is None else min(_FOLDED, limit + 1)
        self._newest: Sequence[Event] = ()  # what was shown last: what nearly all who read are about to
        self._newest_after = 0
        self._watchers: dict[Callable[[], None], None] = {}

    # writing

    @property
    def appended(self) -> int:
        """The last seq given out, published or not."""
        return self._tape.end

    def append(self, events: Sequence[Event]) -> None:
        """Add events; they get the next numbers and stay unseen until `publish`."""
        if self.sealed:
            raise RunSettled(self.run_id)
        self._tape.extend(events)

    def pending(self) -> Iterator[tuple[int, Sequence[Event]]]:
        """Yield what is appended but not yet published, each time as much as lies together, with its first number."""
        at, tape = self.seq, self._tape
        while at < tape.end:
            events = tape.some(at, tape.end)
            yield at + 1, events
            at += len(events)

    def publish(self, upto: int) -> None:
        """Let readers see everything up to `upto`, which the store now has."""
        events = self._tape.some(self.seq, upto)
        if len(events) < upto - self.seq:
            events = self._tape.read(self.seq, upto)
        self._take_in(events)
        self._show(events, upto)

    def say(self, events: Sequence[Event], at: float) -> None:
        """Append events of a run that nobody asked to keep, note their time, and show them at once."""
        if not self.sealed:
            self._take_in(events)
        self.say_words(events, at)

    def say_words(self, events: Sequence[Event], at: float) -> None:
        """Say what is only text: there is nothing to take in, unless the run is an agent's.

        This is `append` and `publish` in one, as it is done for each token. A time is two numbers for each call: a long
        log stays small.
        """
        if self.sealed:
            raise RunSettled(self.run_id)
        tape = self._tape
        tape.extend(events)
        upto, times = tape.end, self._times
        if times is None:
            times = self._times = array("Q"), array("d")
        times[0].append(upto)
        times[1].append(at)
        self._show(events, upto)

    def _show(self, events: Sequence[Event], upto: int) -> None:
        if type(events) is Words:
            self._heard.append(events)
        else:
            self._heard += events
        self._newest, self._newest_after, self.seq = events, self.seq, upto
        if upto >= self._due:
            self._tidy()
        for wake in tuple(self._watchers):
            wake()

    def _tidy(self) -> None:
        """Put together what has gathered, and forget what is too much: when it is due, and not for each event."""
        if self.seq - self._folded >= _FOLDED:
            self._fold()
        if self.limit is not None and self.seq - self._tape.start > self.limit:
            self._trim(self.limit)
        due = self._folded + _FOLDED
        self._due = due if self.limit is None else min(due, self._tape.start + self.limit + 1)

    def _trim(self, limit: int) -> None:
        """Forget the older half (one by one would move the rest each time), or what there is of it to forget."""
        oldest = self.seq - limit // 2
        seen = oldest if self._place is None else self._place()
        self.is_full = self.seq - seen > limit
        self._tape.forget(max(0, min(oldest, seen) - self._tape.start))

    def seal(self) -> None:
        """Refuse all further events of the source: only the settlement may still come."""
        self.sealed = True

    def close(self, settled: Settled) -> None:
        """Add and publish the last event. Nothing comes after it."""
        self.sealed = True
        self._tape.extend([settled])
        self.closed = True
        self.publish(self.appended)
        self._watchers.clear()

    def abandon(self) -> None:
        """Forget what was never shown and send the readers off: another owner writes this log now."""
        self._tape.cut(self.seq)
        self.sealed = self.closed = True
        self.publish(self.seq)
        self._watchers.clear()

    def _take_in(self, events: Sequence[Event]) -> None:
        """Note what events tell besides their text."""
        if type(events) is Words and self.steps is None:
            return
        for event in events:
            if type(event) is Text and self.steps is None:
                continue
            if type(event) is Usage:
                self.usage = event
            elif type(event) is ToolCall:
                self.tool_calls.append(event)
            elif type(event) is Notice and event.model:
                self.answered_by = event.model
            elif self.steps is None and type(event) in (StepStarted, Steered):
                self.steps = Steps()
            if self.steps is not None:
                self.steps.take_in(event)

    def _fold(self) -> None:
        """Put texts together and pack the events: many at once, since few ask for them while they grow."""
        texts: list[str] = []
        thoughts: list[str] = []
        for said in self._heard:
            if type(said) is Words:
                texts += said.texts
            elif type(said) is Text and not said.choice:
                texts.append(said.text)
                if said.logprobs is not None:
                    self._size += characters(said.logprobs)
            elif type(said) is Reasoning and not said.choice:
                thoughts.append(said.text)
            elif type(said) not in _SHORT:
                self._size += characters(said)
        if texts:
            self._text.append(encodable("".join(texts)))
            self._size += len(self._text[-1])
        if thoughts:
            self._reasoning.append(encodable("".join(thoughts)))
            self._size += len(self._reasoning[-1])
        self._heard.clear()
        self._folded = self.seq
        self._tape.pack(self.seq)

    # reading

    @property
    def oldest(self) -> int:
        """The first seq that can still be read."""
        return self._tape.start + 1

    @property
    def text(self) -> str:
        """All of the visible text so far."""
        if self._heard:
            self._fold()
        if len(self._text) != 1:
            self._text = ["".join(self._text)]
        return self._text[0]

    @property
    def reasoning(self) -> str:
        """All of the reasoning so far."""
        if self._heard:
            self._fold()
        if len(self._reasoning) != 1:
            self._reasoning = ["".join(self._reasoning)]
        return self._reasoning[0]

    @property
    def size(self) -> int:
        """The characters of all that was said so far: text and reasoning of every answer, calls, results."""
        if self._heard:
            self._fold()
        return self._size

    def times(self) -> list[tuple[int, float]]:
        """Return when events came: the last seq of those that came together, and their time."""
        return [] if self._times is None else list(zip(*self._times, strict=True))

    def snapshot(self) -> tuple[int, Snapshot]:
        """Return what was visible, and up to which seq: a reader can go on from there."""
        return self.seq, Snapshot(self.text, self.reasoning)

    def slice(self, after: int) -> Sequence[Event]:
        """Return the next published events after `after`, at most a slice of them."""
        if after == self._newest_after and len(self._newest) <= _SLICE:
            return self._newest
        if after < self._tape.start:
            raise ResumeGap(self.oldest)
        if after >= self.seq:
            return ()
        return self._tape.some(after, min(self.seq, after + _SLICE))

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        self._watchers[wake] = None
        return lambda: self._watchers.pop(wake, None)

    def wait_for(self, place: Callable[[], int]) -> Callable[[], None]:
        """Forget nothing after the seq that `place` returns, until the returned function is called."""
        self._place = place

        def release() -> None:
            self._place = None  # a source that waits is not woken by that, but by `make_room`

        return release

    def has_room(self) -> bool:
        """Say whether the source may go on: the reader that is waited for may have come on."""
        if self.is_full and self.limit is not None:
            self._trim(self.limit)
        return not self.is_full

    def make_room(self) -> None:
        """Tell the source to go on, where the reader that is waited for has read enough."""
        if self.is_full and self.has_room():
            for wake in tuple(self._watchers):
                wake()

    async def batch(self, after: int) -> Sequence[Event]:
        """Return what can be read now after `after`; empty where a reader has to wait or has seen the end."""
        return self.slice(after)


def encodable(text: str) -> str:
    """Return a text without lone surrogates: half an emoji can be neither sent nor stored."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def characters(value: Any) -> int:
    """Return how many characters take the memory of a value: those of its JSON, and some for each item in it."""
    try:
        text = encode_event(value)
    except Exception:  # noqa: BLE001 - half an emoji, or what a source of one's own has put there: no run ends by that
        text = ascii(value).encode()
    return len(text) + _OF_AN_ITEM * (text.count(b",") + text.count(b"[") + text.count(b"{"))
