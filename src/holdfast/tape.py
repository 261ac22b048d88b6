"""The events of a log by their place, in little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from .events import Event, Reasoning, Text, Words, plain_texts

BLOCK = 512
"""Events that are packed together, where they came one by one."""


class Tape:
    """A list of events that grows at its end and may be forgotten from its start; places count from the first ever.

    The last events are as they came, for those who read them now. What is older can be packed where it is all words:
    one string and where it is cut, a quarter of the memory. That shows in the time too: a server that has passed on
    many tokens would otherwise always write to memory that its processor does not have at hand.
    """

    __slots__ = ("_blocks", "_packed", "_starts", "end", "start")

    def __init__(self) -> None:
        self.start = 0
        """The first place that is not forgotten."""
        self.end = 0
        self._blocks: list[_Block] = [[]]
        self._starts = [0]
        self._packed = 0  # blocks

    def extend(self, events: Sequence[Event]) -> None:
        """Add events at the end."""
        if type(events) is list and type(last := self._blocks[-1]) is list and len(last) < BLOCK:
            last += events
        elif events:
            self._blocks.append(events if type(events) is Words else [*events])
            self._starts.append(self.end)
        self.end += len(events)

    def pack(self, stop: int) -> None:
        """Pack what is before a place, but for the block that it is in: somebody may read that now."""
        while self._packed + 1 < len(self._starts) and self._starts[self._packed + 1] < stop:
            self._blocks[self._packed] = _packed(self._blocks[self._packed])
            self._packed += 1

    def some(self, start: int, stop: int) -> Sequence[Event]:
        """Return the first events from a place that is not forgotten up to another: as many as lie together."""
        at = self._starts[-1]
        if start >= at:
            return self._blocks[-1][start - at : stop - at]
        number = bisect_right(self._starts, start) - 1
        at = self._starts[number]
        return self._blocks[number][start - at : stop - at]

    def read(self, start: int, stop: int) -> list[Event]:
        """Return all events from a place that is not forgotten up to another, or up to the end."""
        stop = min(stop, self.end)
        events = [*self.some(start, stop)]
        while start + len(events) < stop:
            events += self.some(start + len(events), stop)
        return events

    def forget(self, count: int) -> None:
        """Forget the first events: so many, or a few less where they lie together with others."""
        blocks = 0
        while blocks + 1 < len(self._blocks) and len(self._blocks[blocks]) <= count:
            count -= len(self._blocks[blocks])
            blocks += 1
        del self._blocks[:blocks], self._starts[:blocks]
        self._packed = max(0, self._packed - blocks)
        first = self._blocks[0]
        if type(first) is list:
            del first[:count]
            self._starts[0] += count
        self.start = self._starts[0]

    def cut(self, stop: int) -> None:
        """Forget all from a place on."""
        while self._starts[-1] > stop:
            self._blocks.pop()
            self._starts.pop()
        self._packed = min(self._packed, len(self._blocks) - 1)
        self._blocks[-1] = [*self._blocks[-1][: stop - self._starts[-1]]]
        self.end = stop


class _Packed:
    """A block of text, or of thoughts, of the first answer."""

    __slots__ = ("_ends", "_kind", "_text")

    def __init__(self, kind: type[Text] | type[Reasoning], texts: Sequence[str]) -> None:
        self._kind = kind
        self._text = "".join(texts)
        self._ends = array("I", accumulate(map(len, texts), initial=0))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, places: slice) -> Sequence[Event]:
        first, last, _ = places.indices(len(self))
        texts = [self._text[start:stop] for start, stop in pairwise(self._ends[first : last + 1])]
        return Words(texts) if self._kind is Text else [Reasoning(text) for text in texts]


_Block: TypeAlias = list[Event] | Words | _Packed


def _packed(block: _Block) -> _Block:
    """Return a block in as little memory as may be: nothing that an event says is lost."""
    if isinstance(block, _Packed):
        return block
    if (texts := plain_texts(block)) is not None:
        return _Packed(Text, texts)
    if {*map(type, block)} == {Reasoning} and not [True for thought in block if thought.choice]:  # type: ignore[union-attr]
        return _Packed(Reasoning, [thought.text for thought in block])  # type: ignore[union-attr]
    return block
