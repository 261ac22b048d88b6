"""The numbered events of one run."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, groupby, takewhile
from operator import attrgetter
from typing import Any

from ..errors import ResumeGap, RunSettled
from ..events import (
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
)
from ..ids import ModelName
from .said import Said
from .segment import NOTHING, Segment, joined, joined_texts, packed
from .steps import Steps
from .storable import characters, encodable

_SLICE = 512  # events handed to a reader at once, so that a long replay never holds the loop; new text may be more
_TOGETHER = 128  # events whose texts are put together, and which are packed, at once
_A_FEW = 16  # events that cost little one by one, and segments of an ended log that are not worth packing
_kind_of = attrgetter("kind")
_SHORT = frozenset({RunStarted, Usage, Settled})
"""Events of every run that hold no text of their own."""


WORDLESS = frozenset({RunStarted, Notice, StepStarted, Usage, Settled})
"""Events that are no part of an answer."""


def _speaks(segment: Segment) -> bool:
    return not WORDLESS.issuperset(map(type, segment.others))


class Log:
    """A list of segments, written by the run's pump, read by any number of cursors.

    A reader is only a number, the last `seq` it has seen: there is no queue for each subscriber to fill,
    drain or forget, and replay and live reading are one loop.

    A segment is *appended* when the source yields it and *published* when the store has it; readers see only
    what is published. A run that nobody asked to keep publishes at once.

    Older segments are packed, neighbours of one kind together: a quarter of the memory. That shows in the time too. A
    server that has passed on many tokens would otherwise always write to memory that its processor does not have at
    hand.

    Beyond its `limit` a log forgets its oldest events. Where one reader is waited for, it keeps all that this one has
    not seen, and is full when that is more than the limit: then the source has to wait.
    """

    def __init__(self, run_id: str, *, limit: int | None = None) -> None:
        self.run_id = run_id
        self.limit = limit
        self.appended = 0
        """The last seq given out, published or not."""
        self.seq = 0
        """The last published seq: what a reader can see."""
        self.newest = NOTHING
        """What was published last, or its first events of one kind: what nearly all readers are about to read."""
        self.newest_after = 0
        """The seq before the newest segment."""
        self.oldest = 1
        """The first seq that can still be read."""
        self.closed = False
        self.successor: Callable[[], Any] | None = None
        """Makes the log with which a reader continues, if another node writes this one now."""
        self.is_full = False
        """The reader that is waited for is further behind than the log may be long."""
        self.usage: Usage | None = None
        self.answered_by: ModelName | None = None
        """The model that answers, where it is not the one that was asked."""
        self.retries = 0
        """Requests to the upstream that were repeated."""
        self.tool_calls: list[ToolCall] = []
        self.steps: Steps | None = None
        """What an agent has done; None for a run that is none."""
        self.sealed = False
        self._segments: list[Segment] = []
        self._starts: list[int] = []  # how many events came before each segment
        self._packed = 0  # segments
        self._times: tuple[array[int], array[float]] | None = None  # of packed segments: seqs, and when they came
        self._new_times: tuple[list[int], list[float]] = [], []  # of those that are not packed yet
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._folded = 0  # the seq up to which the texts are put together
        self._size = 0
        self._said = Said()
        self._place: Callable[[], int] | None = None
        self._tidied = 0  # the seq up to which all is packed
        self._due = _TOGETHER if limit is None else min(_TOGETHER, limit + 1)
        self._watchers: dict[Callable[[], None], None] = {}
        self._called: tuple[Callable[[], None], ...] | None = ()  # the watchers; None if one was added or removed

    # writing

    def append(self, segment: Segment) -> None:
        """Add a segment. Its events get the next numbers and stay unseen until `publish`."""
        if self.sealed:
            raise RunSettled(self.run_id)
        self._segments.append(segment)
        self._starts.append(self.appended)
        self.appended += len(segment.texts or segment.others)

    def pending(self) -> Segment:
        """Return what is appended but not yet published."""
        return self.between(self.seq, self.appended)

    def publish(self, upto: int) -> None:
        """Let readers see everything up to `upto`, which the store now has."""
        segments = self._parts(self.seq, upto)
        for segment in segments:
            if segment.kind is None or self.steps is not None:
                self._take_in(segment)
        if upto - self.seq > _A_FEW:  # plain text stays apart from other events, which are handled one by one
            segments = [*takewhile(lambda segment: segment.kind is segments[0].kind, segments)]
        self._show(joined(segments), upto)

    def append_published(self, segment: Segment, at: float) -> None:
        """Append a segment of a run that nobody asked to keep, note its time, and show it at once.

        This is `append`, `publish` and `_show` in one, as it is done for each token. A time is two numbers for each
        call: a long log stays small.
        """
        if self.sealed:
            raise RunSettled(self.run_id)
        before = self.appended
        self._segments.append(segment)
        self._starts.append(before)
        self.appended = upto = before + len(segment.texts or segment.others)
        seqs, times = self._new_times
        seqs.append(upto)
        times.append(at)
        if segment.kind is None or self.steps is not None:
            self._take_in(segment)
        self.newest = segment if segment.kind is not None or upto - before <= _SLICE else segment[:_SLICE]
        self.newest_after, self.seq = before, upto
        if upto >= self._due:
            self._tidy()
        called = self._called
        for wake in self._watching() if called is None else called:
            wake()

    def _show(self, segment: Segment, upto: int) -> None:
        self.newest = segment if segment.kind is not None or upto - self.seq <= _SLICE else segment[:_SLICE]
        self.newest_after, self.seq = self.seq, upto
        if upto >= self._due:
            self._tidy()
        called = self._called
        for wake in self._watching() if called is None else called:
            wake()

    def _watching(self) -> tuple[Callable[[], None], ...]:
        """Return the watchers. They are remembered, since each event is shown to them."""
        self._called = tuple(self._watchers)
        return self._called

    def _tidy(self) -> None:
        """Put together what has gathered, and forget what is too much: when it is due, and not for each event."""
        if self.seq - self._tidied >= _TOGETHER:
            self._pack()
            self._fold(self._starts[self._packed])
            self._tidied = self.seq
        if self.limit is not None and self.seq - self.oldest >= self.limit:
            self._trim(self.limit)
        due = self._tidied + _TOGETHER
        self._due = due if self.limit is None else min(due, self.oldest + self.limit)

    def _pack(self) -> None:
        """Pack the segments that were published since the last time, but for the last: readers are about to read it."""
        first, stop = self._packed, max(self._packed, bisect_right(self._starts, self.seq - 1) - 1)
        fresh = self._segments[first:stop]
        together = [packed(joined([*group])) for _, group in groupby(fresh, _kind_of)]
        starts = accumulate(map(len, together), initial=self._starts[first]) if fresh else ()
        self._segments[first:stop], self._starts[first:stop] = together, [*starts][:-1]
        self._packed = first + len(together)
        self._pack_times()

    def _pack_times(self) -> None:
        (seqs, times), (new_seqs, new_times) = self._times or (array("Q"), array("d")), self._new_times
        seqs.fromlist(new_seqs)
        times.fromlist(new_times)
        self._times, self._new_times = (seqs, times), ([], [])

    def _trim(self, limit: int) -> None:
        """Forget the older half (one by one would move the rest each time), or what there is of it to forget."""
        oldest = self.seq - limit // 2
        seen = oldest if self._place is None else self._place()
        self.is_full = self.seq - seen > limit
        self._forget(min(oldest, seen))

    def _forget(self, upto: int) -> None:
        """Forget the events up to a seq."""
        if upto < self.oldest:
            return
        self._fold(self.seq)
        whole = bisect_right(self._starts, upto) - 1
        del self._segments[:whole], self._starts[:whole]
        self._packed = max(0, self._packed - whole)
        self._segments[0] = self._segments[0][upto - self._starts[0] :]
        self._starts[0], self.oldest = upto, upto + 1

    def _cut(self) -> None:
        """Forget what was appended and never published."""
        while self._starts and self._starts[-1] >= self.seq:
            self._segments.pop()
            self._starts.pop()
        if self.appended > self.seq and self._segments:
            self._segments[-1] = self._segments[-1][: self.seq - self._starts[-1]]
        self.appended = self.seq

    def seal(self) -> None:
        """Refuse all further events of the source: only the settlement may still come."""
        self.sealed = True

    def close(self, settled: Settled) -> None:
        """Add and publish the last event. Nothing comes after it."""
        if self.seq < self.appended:
            self.publish(self.appended)
        last = Segment(None, (), (settled,))
        self._segments.append(last)
        self._starts.append(self.appended)
        self.appended += 1
        self.sealed = self.closed = True
        self._show(last, self.appended)
        if self._folded == self.seq - 1:
            self._folded = self.seq  # a settlement has no text of its own
        if len(self._segments) > _A_FEW:
            self._pack()
        self._watchers.clear()
        self._called = ()

    def drop_unpublished(self) -> None:
        """Drop what was never shown, and refuse more: it cannot be saved."""
        self.seal()
        self._cut()
        self.publish(self.seq)

    def abandon(self, successor: Callable[[], Any] | None = None) -> None:
        """Forget what was never shown, and send the readers to the `successor`: another owner writes this log now."""
        self.successor = successor
        self._cut()
        self.sealed = self.closed = True
        self.publish(self.seq)
        self._watchers.clear()
        self._called = ()

    def _take_in(self, segment: Segment) -> None:
        """Note what events tell besides their text."""
        for event in segment.others or segment:
            if type(event) is Usage:
                self.usage = event
            elif type(event) is ToolCall:
                self.tool_calls.append(event)
            elif type(event) is Notice:
                self.answered_by = event.model or self.answered_by
                self.retries += event.code == "retry"
            elif self.steps is None and type(event) in (StepStarted, Steered):
                self.steps = Steps()
            if self.steps is not None:
                self.steps.take_in(event)

    def _fold(self, upto: int) -> None:
        """Put texts together up to a seq: many at once, since few ask for them while they grow."""
        segments, self._folded = self._parts(self._folded, upto), max(upto, self._folded)
        texts: list[str] = []
        thoughts: list[str] = []
        for segment in segments:
            if segment.kind is not None:
                (texts if segment.kind is Text else thoughts).append(text := joined_texts(segment))
                self._said.text += len(text)
            for event in segment.others:
                self._said.hear(event)
                if type(event) in _SHORT:
                    continue
                if type(event) is Text and not event.choice:
                    texts.append(event.text)
                    self._size += 0 if event.logprobs is None else characters(event.logprobs)
                elif type(event) is Reasoning and not event.choice:
                    thoughts.append(event.text)
                else:
                    self._size += characters(event)
        for gathered, fresh in ((self._text, texts), (self._reasoning, thoughts)):
            if fresh:
                gathered.append(encodable("".join(fresh)))
                self._size += len(gathered[-1])

    # reading

    @property
    def text(self) -> str:
        """All of the visible text so far."""
        if self._folded < self.seq:
            self._fold(self.seq)
        if len(self._text) != 1:
            self._text = ["".join(self._text)]
        return self._text[0]

    @property
    def reasoning(self) -> str:
        """All of the reasoning so far."""
        if self._folded < self.seq:
            self._fold(self.seq)
        if len(self._reasoning) != 1:
            self._reasoning = ["".join(self._reasoning)]
        return self._reasoning[0]

    @property
    def size(self) -> int:
        """The characters of all that was said so far: text and reasoning of every answer, calls, results."""
        if self._folded < self.seq:
            self._fold(self.seq)
        return self._size

    @property
    def has_output(self) -> bool:
        """Whether anything of an answer was published: text, reasoning, a piece of a call. Looks at all events."""
        return self.oldest > 1 or any(segment.kind is not None or _speaks(segment) for segment in self._segments)

    @property
    def uncounted(self) -> int:
        """An estimate of the output tokens since the last count of the provider."""
        if self._folded < self.seq:
            self._fold(self.seq)
        return self._said.tokens

    def times(self) -> list[tuple[int, float]]:
        """Return when events came: the last seq of those that came together, and their time."""
        packed_times = () if self._times is None else zip(*self._times, strict=True)
        return [*packed_times, *zip(*self._new_times, strict=True)]

    async def snapshot(self) -> tuple[int, Snapshot]:
        """Return what was visible before the settlement, and up to which seq: a reader can go on from there."""
        is_settled = [type(event) for event in self.newest.others[-1:]] == [Settled]
        return self.seq - is_settled, Snapshot(self.text, self.reasoning)

    def slice(self, after: int) -> Segment:
        """Return the next published events after `after`, at most a slice of them: many plain ones without others."""
        newest = self.newest
        if after == self.newest_after and len(newest.texts or newest.others) <= _SLICE:
            return newest
        if after < self.oldest - 1:
            raise ResumeGap(self.oldest)
        if after >= self.seq:
            return NOTHING
        stop = min(self.seq, after + _SLICE)
        segments = self._parts(after, stop)
        if stop - after > _A_FEW:
            segments = [*takewhile(lambda segment: segment.kind is segments[0].kind, segments)]
        return joined(segments)

    def between(self, start: int, stop: int) -> Segment:
        """Return the events after a seq up to another, as one segment."""
        if start < stop == self.appended and start == self._starts[-1]:
            return self._segments[-1]  # mostly: what was appended last
        return joined(self._parts(start, stop))

    def _parts(self, start: int, stop: int) -> list[Segment]:
        """Return the events after a seq up to another, as they lie in memory."""
        if start >= stop:
            return []
        starts = self._starts
        if start == starts[0] and stop == self.appended:
            return self._segments[:]  # all of it: most runs are short, and are read at their end
        first, last = bisect_right(starts, start) - 1, bisect_right(starts, stop - 1) - 1
        segments = self._segments[first : last + 1]
        if stop < self.appended and stop < self._end(last):
            segments[-1] = segments[-1][: stop - starts[last]]
        if start > starts[first]:
            segments[0] = segments[0][start - starts[first] :]
        return segments

    def _end(self, number: int) -> int:
        """Return the seq of the last event in a segment."""
        return self._starts[number + 1] if number + 1 < len(self._starts) else self.appended

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        self._watchers[wake] = self._called = None

        def leave() -> None:
            self._watchers.pop(wake, None)
            self._called = None

        return leave

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

    async def batch(self, after: int) -> Segment:
        """Return what can be read now after `after`; empty where a reader has to wait or has seen the end."""
        return self.slice(after)
