"""Checks what the source of a run yields, and separates reasoning from text, before it goes to the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeGuard, get_args

import msgspec

from ..events import (
    ANSWERS,
    FAILED,
    SPOKEN,
    AnswerBegins,
    Event,
    Finish,
    Reasoning,
    RunStarted,
    Settled,
    Snapshot,
    Text,
    Thought,
    Usage,
    Yielded,
)
from ..silence import ModelAsked
from .reasoning import AnswerSplitter
from .segment import NOTHING, Segment, has_output, segment_of
from .storable import encodable, storable
from .waiting import Wait

_NO_CHOICES: frozenset[int] = frozenset()
_MAY_YIELD = frozenset((*get_args(Event), Finish)) - {RunStarted, Snapshot, Settled}


class CheckedItems(msgspec.Struct):
    """The items that a source yielded together, sorted: events, ends of choices, estimated tokens of the prompt."""

    events: Sequence[Event | AnswerBegins]
    finish: list[Finish]
    input_tokens: int | None
    goes_on: bool
    """True if part of the answer follows the last `finish`, or if there is part of the answer and no `finish`."""
    open: AbstractSet[int]
    """The choices with output after their own `finish`. A `finish` of the first choice ends all choices."""
    is_owed: bool
    """True if the source promises an answer."""
    asked: ModelAsked | None
    """The model that the source has asked."""


class Intake:
    """Checks what the source of one run yields, separates reasoning from text, and records how the source ends.

    The last `Finish` of a choice counts, but a later one does not replace a failure. A source that raises has failed,
    even after a `Finish`. Output after a `Finish` reopens the answer: a stop at that point settles the run as stopped.
    If the source ends by itself, its last `Finish` counts.
    """

    __slots__ = (
        "_open",
        "_splitter",
        "error",
        "finish",
        "has_answered",
        "input_tokens",
        "is_open",
        "is_owed",
        "is_plain",
        "wait",
    )

    def __init__(self, think: bool = True) -> None:
        self._splitter = AnswerSplitter(think)
        self.is_plain = False
        """True once further text of the first choice is visible text of the answer, and is logged unchanged."""
        self.is_owed = False
        """True if the source has promised an answer."""
        self.wait: Wait | None = None
        """The model that was asked last."""
        self.has_answered = False
        """True if part of an answer has come: a visible character, or part of a tool call."""
        self.finish: dict[int, Finish] = {}
        self._open = _NO_CHOICES  # the choices with output after their `Finish`; that of choice 0 ends all
        self.is_open = True
        """True if more of the answer may come: there was no `Finish`, or output has followed it."""
        self.error: BaseException | None = None
        """The error that ended the source; None if there was none."""
        self.input_tokens = 0

    def take(self, yielded: Sequence[Yielded]) -> Segment:
        """Return the events for the log. Raise if an item is not one that a source may yield."""
        if self.is_plain and are_texts(yielded):
            return Segment(Text, tuple(yielded))
        items = checked_items(yielded)
        if items.input_tokens is not None:
            self.input_tokens = items.input_tokens
        if items.asked is not None:
            self.wait, self.is_plain = Wait(items.asked), False  # so that its first output is noticed
        if not items.events and not items.finish:
            return NOTHING
        self.is_owed = self.is_owed or items.is_owed
        events = self._splitter.feed(items.events) if items.events else []
        for finish in items.finish:
            events += self._splitter.ended(finish)
            if (before := self.finish.get(finish.choice)) is None or not is_failure(before):
                self.finish[finish.choice] = finish
            self._open = self._open - {finish.choice} if finish.choice else _NO_CHOICES
        self._open |= items.open
        self.is_open = bool(self._open) or 0 not in self.finish
        if events and not self.has_answered:
            self.has_answered = any(map(_is_answer, events))
        self.is_plain = items.goes_on and 0 in self._open and self._splitter.is_plain and self.has_answered
        if not events:
            return NOTHING
        segment = segment_of(events)
        if self.wait is not None and not self.wait.has_begun and has_output(segment):
            self.wait.has_begun = True
        return segment

    def end(self) -> Segment:
        """Record that the source has ended by itself, without an error. Return the text that was held back."""
        self.finish.setdefault(0, Finish("stop"))
        self.is_open = False
        if not (held := self._splitter.end()):
            return NOTHING
        self.has_answered = self.has_answered or any(map(_is_answer, held))
        return segment_of(held)

    def fail(self, error: BaseException) -> Segment:
        """Record that the source has raised. Return the text that was held back."""
        self.error = error
        return segment_of(self._splitter.end(complete=False))

    @property
    def final_finish(self) -> Mapping[int, Finish] | None:
        """The `Finish` of each choice, if the answer has ended or a choice has failed; None otherwise."""
        has_ended = 0 in self.finish and (not self.is_open or any(map(is_failure, self.finish.values())))
        return self.finish if has_ended else None


def _is_answer(event: Event) -> bool:
    """Return whether an event is part of an answer. Whitespace alone is not."""
    return type(event) in ANSWERS and not (type(event) is Text and event.text.isspace())


def is_failure(finish: Finish) -> bool:
    """Return whether a `Finish` reports a failure."""
    return finish.error is not None or finish.reason in FAILED


def are_texts(yielded: Sequence[Yielded]) -> TypeGuard[Sequence[str]]:
    """Return whether all items are strings that can be logged unchanged. Only C code iterates over them."""
    if not isinstance(yielded, (list, tuple)) or {*map(type, yielded)} != _STRINGS or "" in yielded:
        return False
    text = "".join(yielded)
    return encodable(text) is text


_STRINGS = {str}


def checked_items(yielded: Sequence[Yielded]) -> CheckedItems:
    """Return the items that a source yielded, sorted. Raise if one is neither an event nor a string."""
    events: list[Event | AnswerBegins] = []
    finish: list[Finish] = []
    input_tokens, goes_on, is_owed, asked = None, False, False, None
    open_choices: set[int] = set()
    for item in yielded if isinstance(yielded, (list, tuple)) else (yielded,):
        kind = type(item)
        if kind is Text and type(item.text) is str and item.text.isascii() and item.text and _has_only_text(item):
            events.append(item)
            goes_on = True
            open_choices.add(item.choice)
        elif kind is Finish:
            finish.append(_checked(item))
            goes_on = False
            open_choices -= {item.choice} if item.choice else open_choices
        elif kind is Usage and item.source == "estimated" and not item.output_tokens:
            input_tokens = item.input_tokens if type(item.input_tokens) is int else _converted(item).input_tokens
        elif kind is Usage:
            events.append(_checked(item))
        elif kind is AnswerBegins:
            events.append(item if {type(item.think), type(item.is_owed)} == {bool} else _converted(item))
            is_owed = is_owed or item.is_owed
        elif kind is ModelAsked:
            asked = item
        elif kind is str and item.isascii() and item:
            events.append(Text(item))
            goes_on = True
            open_choices.add(0)
        elif (event := _event(item)) is not None:
            events.append(event)
            if type(event) in SPOKEN:
                goes_on = True
                open_choices.add(event.choice)  # type: ignore[union-attr]
    return CheckedItems(events, finish, input_tokens, goes_on, open_choices, is_owed, asked)


def _event(item: Any) -> Event | None:
    """Return the event to log for an item; None if there is none."""
    if isinstance(item, str):
        item = Text(item)
    is_text = isinstance(item, (Text, Reasoning)) and isinstance(item.text, str)
    if is_text and not item.text:
        return None
    if is_text and _has_only_text(item):
        event: Event = item if item.text.isascii() else storable(item)
        return event
    if type(item) not in _MAY_YIELD and not isinstance(item, Thought):
        raise TypeError(f"a source may yield events and strings, not {type(item).__name__}")
    return None if isinstance(item, Thought) else storable(_checked(item))


def _has_only_text(item: Any) -> bool:
    """Return whether only the text of an event needs a check: a value that cannot be stored would block the store."""
    is_plain = isinstance(item, Reasoning) or (item.logprobs is None and not item.refusal)
    return type(item.choice) is int and item.earlier is False and is_plain


def _checked(item: Any) -> Any:
    """Return an event whose fields have the declared types, or raise: constructors do not check types."""
    is_valid = False
    if type(item) is Finish:
        is_plain = item.error is None and item.stop_sequence is None
        is_valid = is_plain and type(item.reason) is str and type(item.choice) is int
    elif type(item) is Usage and item.source in _USAGE_SOURCES:
        counts = (item.input_tokens, item.output_tokens, item.cached_tokens, item.reasoning_tokens)
        is_valid = {*map(type, counts), type(item.cache_write_tokens)} == _INTEGERS
    return item if is_valid else _converted(item)


_USAGE_SOURCES = ("provider", "estimated")
_INTEGERS = {int}


def _converted(item: Any) -> Any:
    given = {name: value for name, value in msgspec.structs.asdict(item).items() if value is not msgspec.UNSET}
    return msgspec.convert(given, type(item))
