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
    LegStarted,
    Notice,
    Picture,
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
from .segment import NOTHING, Segment, joined, joined_texts, packed
from .steps import Steps
from .storable import characters, encodable
from .usage_meter import UsageMeter

_SLICE = 512  # maximum events in one read, so that a long replay never blocks the loop; new text may be more
_BATCH = 128  # events that are packed, and whose texts are joined, at once
_A_FEW = 16  # up to so many events are handled one by one, and segments of an ended log stay unpacked
_kind_of = attrgetter("kind")
_WITHOUT_SIZE = frozenset({RunStarted, Settled})
"""Events of every run that have no output."""


WORDLESS = frozenset({RunStarted, Notice, LegStarted, StepStarted, Usage, Settled})
"""Events that are not part of an answer."""


def _has_answer(segment: Segment) -> bool:
    return not WORDLESS.issuperset(map(type, segment.others))


class Log:
    """A list of segments, written by the run's pump, read by any number of cursors.

    A reader is only a number, the last `seq` it has seen: there is no queue for each subscriber to fill,
    drain or forget, and replay and live reading are one loop.

    A segment is *appended* when the source yields it and *published* when the store has it; readers see only
    what is published. A run that is not stored publishes at once.

    Older segments are packed, neighbours of one kind together, into a quarter of the memory. That saves time too: a
    server that has logged many tokens would otherwise always write to memory outside the processor's cache.

    Beyond its `limit` a log drops its oldest events. Backpressure: with an attached reader, unread events are kept.
    If they exceed the limit, the log is full, and the source has to wait.
    """

    # What few runs have is set once it is there: Python keeps up to 30 attributes of an object without a dict.
    successor: Callable[[], Any] | None = None
    """Returns the log in which a reader continues, if another node writes the log now."""
    usage: Usage | None = None
    answered_by: ModelName | None = None
    """The model that answers, if it is not the requested one."""
    retries = 0
    """Requests to the upstream that were repeated."""
    _times: tuple[array[int], array[float]] | None = None  # of packed segments: seqs, and their times
    _position: Callable[[], int] | None = None

    def __init__(self, run_id: str, *, limit: int | None = None) -> None:
        self.run_id = run_id
        self.limit = limit
        self.appended = 0
        """The last seq given out, published or not."""
        self.seq = 0
        """The last published seq: what a reader can see."""
        self.newest = NOTHING
        """The segment published last, or its first events of one kind: nearly all readers read this next."""
        self.newest_after = 0
        """The seq before the newest segment."""
        self.oldest = 1
        """The first seq that can still be read."""
        self.closed = False
        self.is_full = False
        """True if the attached reader is behind by more than the limit."""
        self.legs: list[LegStarted] = []
        """The legs after the first."""
        self.tool_calls: list[ToolCall] = []
        self.pictures: list[str] = []
        """The addresses of the pictures of the answer."""
        self.steps: Steps | None = None
        """The steps of an agent; None if the run is not an agent."""
        self.sealed = False
        self._segments: list[Segment] = []
        self._starts: list[int] = []  # number of events before each segment
        self._packed = 0  # number of packed segments
        self._new_times: tuple[list[int], list[float]] = [], []  # of segments that are not packed yet
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._joined_upto = 0  # the seq up to which the texts are joined
        self._size = 0
        self._meter = UsageMeter()
        self._compacted_upto = 0  # the seq up to which segments are packed
        self._compact_at = _BATCH if limit is None else min(_BATCH, limit + 1)
        self._watchers: dict[Callable[[], None], None] = {}
        self._watcher_cache: tuple[Callable[[], None], ...] | None = ()  # cache of the watchers; None if they changed

    # writing

    def append(self, segment: Segment) -> None:
        """Add a segment. Its events get the next numbers and stay invisible to readers until `publish`."""
        if self.sealed:
            raise RunSettled(self.run_id)
        self._segments.append(segment)
        self._starts.append(self.appended)
        self.appended += len(segment.texts or segment.others)

    def pending(self) -> Segment:
        """Return the events that are appended but not yet published."""
        return self.between(self.seq, self.appended)

    def publish(self, upto: int) -> None:
        """Show readers the events up to `upto`, which the store now has."""
        segments = self._parts(self.seq, upto)
        for segment in segments:
            if segment.kind is None or self.steps is not None:
                self._take_in(segment)
        if upto - self.seq > _A_FEW:  # plain text stays apart from other events, which are handled one by one
            segments = [*takewhile(lambda segment: segment.kind is segments[0].kind, segments)]
        self._publish_segment(joined(segments), upto)

    def append_published(self, segment: Segment, at: float) -> None:
        """Append a segment of a run that is not stored, record its time, and publish it at once.

        This is `append`, `publish` and `_publish_segment` in one function, since it runs for each token. A time costs
        two numbers for each call, so that a long log stays small.
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
        if upto >= self._compact_at:
            self._compact()
        watchers = self._watcher_cache
        for wake in self._cache_watchers() if watchers is None else watchers:
            wake()

    def _publish_segment(self, segment: Segment, upto: int) -> None:
        self.newest = segment if segment.kind is not None or upto - self.seq <= _SLICE else segment[:_SLICE]
        self.newest_after, self.seq = self.seq, upto
        if upto >= self._compact_at:
            self._compact()
        watchers = self._watcher_cache
        for wake in self._cache_watchers() if watchers is None else watchers:
            wake()

    def _cache_watchers(self) -> tuple[Callable[[], None], ...]:
        """Return the watchers, and cache them: they are called for each segment."""
        self._watcher_cache = tuple(self._watchers)
        return self._watcher_cache

    def _compact(self) -> None:
        """Pack new segments, join their texts, and drop events beyond the limit: when due, not for each event."""
        if self.seq - self._compacted_upto >= _BATCH:
            self._pack()
            self._join_texts(self._starts[self._packed])
            self._compacted_upto = self.seq
        if self.limit is not None and self.seq - self.oldest >= self.limit:
            self._trim(self.limit)
        due = self._compacted_upto + _BATCH
        self._compact_at = due if self.limit is None else min(due, self.oldest + self.limit)

    def _pack(self) -> None:
        """Pack the segments published since the last call, except the last one: readers are about to read it."""
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
        """Drop the older half, or as much of it as the attached reader has seen.

        To drop single events would move the rest each time.
        """
        oldest = self.seq - limit // 2
        seen = oldest if self._position is None else self._position()
        self.is_full = self.seq - seen > limit
        self._drop(min(oldest, seen))

    def _drop(self, upto: int) -> None:
        """Drop the events up to a seq."""
        if upto < self.oldest:
            return
        self._join_texts(self.seq)
        whole = bisect_right(self._starts, upto) - 1
        del self._segments[:whole], self._starts[:whole]
        self._packed = max(0, self._packed - whole)
        self._segments[0] = self._segments[0][upto - self._starts[0] :]
        self._starts[0], self.oldest = upto, upto + 1

    def _truncate(self) -> None:
        """Drop the events that were appended and never published."""
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
        self._publish_segment(last, self.appended)
        if self._joined_upto == self.seq - 1:
            self._joined_upto = self.seq  # the settlement adds no text
        if len(self._segments) > _A_FEW:
            self._pack()
        self._watchers.clear()
        self._watcher_cache = ()

    def drop_unpublished(self) -> None:
        """Drop unpublished events, which cannot be saved, and refuse further ones."""
        self.seal()
        self._truncate()
        self.publish(self.seq)

    def abandon(self, successor: Callable[[], Any] | None = None) -> None:
        """Drop unpublished events, and send readers to the `successor`: another node writes this log now."""
        self.successor = successor
        self._truncate()
        self.sealed = self.closed = True
        self.publish(self.seq)
        self._watchers.clear()
        self._watcher_cache = ()

    def _take_in(self, segment: Segment) -> None:
        """Record what events contain besides text."""
        for event in segment.others or segment:
            if type(event) is Usage:
                self.usage = event
            elif type(event) is ToolCall:
                self.tool_calls.append(event)
            elif type(event) is Picture and not event.choice:
                self.pictures.append(event.url)
            elif type(event) is Notice:
                self.answered_by = event.model or self.answered_by
                self.retries += event.code == "retry"
            elif self.steps is None and type(event) in (StepStarted, Steered):
                self.steps = Steps()
            elif type(event) is LegStarted:
                self.legs.append(event)
                self.answered_by = event.model if event.model != event.before else self.answered_by
            if self.steps is not None:
                self.steps.take_in(event)

    def _join_texts(self, upto: int) -> None:
        """Join the texts up to a seq: many at once, since they are rarely read while they grow."""
        segments, self._joined_upto = self._parts(self._joined_upto, upto), max(upto, self._joined_upto)
        texts: list[str] = []
        thoughts: list[str] = []
        for segment in segments:
            if segment.kind is not None:
                (texts if segment.kind is Text else thoughts).append(text := joined_texts(segment))
                self._meter.text += len(text)
            for event in segment.others:
                if type(event) in _WITHOUT_SIZE:
                    continue
                self._meter.hear(event)
                if type(event) is Usage:
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
        if self._joined_upto < self.seq:
            self._join_texts(self.seq)
        if len(self._text) != 1:
            self._text = ["".join(self._text)]
        return self._text[0]

    @property
    def reasoning(self) -> str:
        """All of the reasoning so far."""
        if self._joined_upto < self.seq:
            self._join_texts(self.seq)
        if len(self._reasoning) != 1:
            self._reasoning = ["".join(self._reasoning)]
        return self._reasoning[0]

    @property
    def size(self) -> int:
        """Number of characters in the events so far: text and reasoning of every choice, calls, results."""
        if self._joined_upto < self.seq:
            self._join_texts(self.seq)
        return self._size

    @property
    def has_output(self) -> bool:
        """True if part of an answer was published: text, reasoning, a piece of a call. Scans all segments."""
        return self.oldest > 1 or any(segment.kind is not None or _has_answer(segment) for segment in self._segments)

    @property
    def uncounted(self) -> int:
        """Estimated number of output tokens since the provider's last count."""
        if self._joined_upto < self.seq:
            self._join_texts(self.seq)
        return self._meter.uncounted

    def times(self) -> list[tuple[int, float]]:
        """Return when events arrived: `(last seq, time)` of each group that arrived together."""
        packed_times = () if self._times is None else zip(*self._times, strict=True)
        return [*packed_times, *zip(*self._new_times, strict=True)]

    async def snapshot(self) -> tuple[int, Snapshot]:
        """Return a snapshot of the output before the settlement, with the seq from which a reader can continue."""
        is_settled = [type(event) for event in self.newest.others[-1:]] == [Settled]
        return self.seq - is_settled, Snapshot(self.text, self.reasoning)

    def slice(self, after: int) -> Segment:
        """Return the next published events after `after`, at most `_SLICE`. If they are many, all are of one kind."""
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
        """Return the events after `start` up to `stop`, as one segment."""
        if start < stop == self.appended and start == self._starts[-1]:
            return self._segments[-1]  # the usual case: the last segment appended
        return joined(self._parts(start, stop))

    def _parts(self, start: int, stop: int) -> list[Segment]:
        """Return the events after `start` up to `stop`, as segments, cut at both ends."""
        if start >= stop:
            return []
        starts = self._starts
        if start == starts[0] and stop == self.appended:
            return self._segments[:]  # the whole log: most runs are short, and are read at their end
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
        self._watchers[wake] = self._watcher_cache = None

        def leave() -> None:
            self._watchers.pop(wake, None)
            self._watcher_cache = None

        return leave

    def keep_unread(self, position: Callable[[], int]) -> Callable[[], None]:
        """Keep all events after the seq that `position` returns, until the returned function is called."""
        self._position = position

        def release() -> None:
            self._position = None  # this does not wake a waiting source: `make_room` does

        return release

    def has_room(self) -> bool:
        """Return whether the source may emit again: the attached reader may have caught up."""
        if self.is_full and self.limit is not None:
            self._trim(self.limit)
        return not self.is_full

    def make_room(self) -> None:
        """Wake the source if it waits and the attached reader has caught up."""
        if self.is_full and self.has_room():
            for wake in tuple(self._watchers):
                wake()

    async def batch(self, after: int) -> Segment:
        """Return the events after `after` that can be read now; empty if a reader has to wait or has read the end."""
        return self.slice(after)
