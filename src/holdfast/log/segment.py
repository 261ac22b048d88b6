"""Events that arrived together: the unit in which the log, the store and every wire handle events."""

from __future__ import annotations

from abc import ABCMeta
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias, overload

import msgspec

from ..events import SPOKEN, Event, Reasoning, StepStarted, Text, encode_event

PlainKind: TypeAlias = type[Text] | type[Reasoning]
"""The two kinds of events that usually contain nothing but text of the first choice."""


class _StructSequence(msgspec.StructMeta, ABCMeta):
    """Metaclass of a struct that is a `Sequence`. A struct's constructor is in C, and one is made for each token."""


class Segment(Sequence[Event], msgspec.Struct, metaclass=_StructSequence, frozen=True, gc=False, eq=False):
    """Events that arrived together, in order. Immutable.

    Most segments are *plain*: all events are text, or all are reasoning, of the first choice and without other fields.
    A plain segment stores only the texts, and creates events when it is iterated.
    """

    kind: PlainKind | None = None
    """The type of all events of a plain segment; None for others."""
    texts: Sequence[str] = ()
    """The texts of a plain segment; empty for others."""
    others: Sequence[Event] = ()
    """The events of a segment that is not plain."""

    def __len__(self) -> int:
        return len(self.texts or self.others)

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> Segment: ...

    def __getitem__(self, index: int | slice) -> Event | Segment:
        if isinstance(index, slice):
            return Segment(self.kind, self.texts[index], self.others[index])
        return self.others[index] if self.kind is None else self.kind(self.texts[index])

    def __iter__(self) -> Iterator[Event]:
        return iter(self.others) if self.kind is None else map(self.kind, self.texts)


NOTHING = Segment()


def segment_of(events: Sequence[Event]) -> Segment:
    """Return events as a segment, a plain one if possible."""
    if not events:
        return NOTHING
    if type(events) is Segment:
        return events
    kinds = {*map(type, events)}
    if kinds == _TEXT and not [
        True
        for event in events
        if event.choice or event.logprobs is not None or event.refusal or event.earlier  # type: ignore[union-attr]
    ]:
        return Segment(Text, [event.text for event in events])  # type: ignore[union-attr]
    if kinds == _REASONING and not [True for event in events if event.choice or event.earlier]:  # type: ignore[union-attr]
        return Segment(Reasoning, [event.text for event in events])  # type: ignore[union-attr]
    return Segment(None, (), tuple(events))


_TEXT, _REASONING = {Text}, {Reasoning}


def joined(segments: Sequence[Segment]) -> Segment:
    """Return one segment with the events of several. It is not packed, so that repeated reads are cheap."""
    if not segments:
        return NOTHING
    if len(segments) == 1:
        first = segments[0]
        return Segment(first.kind, first.texts[:]) if type(first.texts) is _Packed else first
    kind = segments[0].kind
    if kind is not None and not [True for segment in segments if segment.kind is not kind]:
        return Segment(kind, [text for segment in segments for text in segment.texts])
    events: list[Event] = []
    for segment in segments:
        events += segment.others if segment.kind is None else map(segment.kind, segment.texts)
    return Segment(None, (), events)


def packed(segment: Segment) -> Segment:
    """Return a compact copy. Plain text takes a quarter of the memory."""
    if segment.kind is None or type(segment.texts) is _Packed:
        return segment
    return Segment(segment.kind, _Packed(segment.texts))


def joined_texts(segment: Segment) -> str:
    """Return the texts of a plain segment as one string, without a copy if it is packed."""
    return segment.texts.whole if type(segment.texts) is _Packed else "".join(segment.texts)


class _Packed(Sequence[str]):
    """Texts as one string, with the offset at which each ends."""

    __slots__ = ("_ends", "whole")

    def __init__(self, texts: Sequence[str]) -> None:
        self.whole = "".join(texts)
        self._ends = array("I", accumulate(map(len, texts), initial=0))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if not isinstance(index, slice):
            return self[:][index]
        first, last, _ = index.indices(len(self))
        return [self.whole[start:stop] for start, stop in pairwise(self._ends[first : last + 1])]

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])


# Encoding of segments for stores.


def needs_no_escape(text: str) -> bool:
    """Return whether a text needs no escaping in JSON."""
    return len(encode_event(text)) == len(text.encode()) + 2


def encode_segment(segment: Segment) -> bytes:
    """Return a segment as a JSON array: of strings if it is plain text, else of objects."""
    if segment.kind is not Text:
        return encode_event([*segment])
    if (count := len(segment.texts)) > 1:
        joined = '","'.join(segment.texts)
        body = joined.encode()
        if len(encode_event(joined)) == len(body) + 2 * count:  # only the quotes between the texts need an escape
            return b'["%b"]' % body
    return encode_event(segment.texts if type(segment.texts) is list else [*segment.texts])


def decode_segment(body: bytes) -> Segment:
    """Return the segment that `encode_segment` has encoded."""
    return Segment(Text, _decode_texts(body)) if body.startswith(b'["') else segment_of(_decode_events(body))


_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode


def has_output(segment: Segment) -> bool:
    """Return whether part of an answer is in a segment."""
    if segment.texts:
        return True
    return any(type(event) in SPOKEN and not _is_earlier(event) for event in segment.others)


class OutputTimes:
    """When the first step of an agent began, and when the first output of a run came."""

    asked_at: float | None = None
    first_at: float | None = None
    thinking_at: float | None = None
    """When the last piece of reasoning came, if nothing has come since."""
    thought: float | None = None
    """The seconds from each piece of reasoning to what came next; None if there was none."""

    def think(self, segment: Segment, now: float) -> None:
        """Note the time of a segment that is reasoning, or the first that comes after some."""
        if self.thinking_at is not None:
            self.thought = (self.thought or 0.0) + now - self.thinking_at
        kinds = [segment.kind] if segment.kind else [*map(type, segment.others)]
        self.thinking_at = now if kinds and kinds[-1] is Reasoning else None
        if self.thought is None and Reasoning in kinds:
            self.thought = 0.0

    def note(self, segment: Segment, now: float) -> None:
        """Note the time of a segment. Called up to the first with output."""
        kinds = {*map(type, segment.others)}
        if self.asked_at is None and StepStarted in kinds:
            self.asked_at = now
        if has_output(segment):
            self.first_at = now


def _is_earlier(event: Event) -> bool:
    return isinstance(event, (Text, Reasoning)) and event.earlier
