"""What the source of a run says, on its way to the log: checked, and with reasoning apart from text."""

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
from .reasoning import AnswerSplitter
from .segment import NOTHING, Segment, segment_of
from .storable import encodable, storable

_NONE: frozenset[int] = frozenset()
_MAY_YIELD = frozenset((*get_args(Event), Finish)) - {RunStarted, Snapshot, Settled}


class CheckedItems(msgspec.Struct):
    """What a source has yielded at once, sorted: events, how it ends, and its estimate of the prompt's tokens."""

    events: Sequence[Event | AnswerBegins]
    finish: list[Finish]
    input_tokens: int | None
    goes_on: bool
    """Part of the answer follows the last `finish`, or there is no `finish` and something of the answer."""
    open: AbstractSet[int]
    """The choices that have spoken since their own `finish`. The one of the first choice is for all of them."""
    is_owed: bool
    """The source promises an answer."""


class Intake:
    """What the source of one run yields, on its way to the log: checked, and with reasoning apart from text.

    It remembers what the source has said of its own end. The last `Finish` of a choice counts, but a failure is never
    taken back. A source that raises has failed, whatever it said before. What it says after a `Finish` is part of the
    answer: then it has not ended yet, and whoever stops it there has stopped it. If it ends by itself, its last
    `Finish` counts.
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
    )

    def __init__(self, think: bool = True) -> None:
        self._splitter = AnswerSplitter(think)
        self.is_plain = False
        """The answer has begun, and text of its first choice needs no look: it may go to the log as it is."""
        self.is_owed = False
        """The source has promised an answer."""
        self.has_answered = False
        """It has said something that answers: a visible character, or part of a tool call."""
        self.finish: dict[int, Finish] = {}
        self._open = _NONE  # the choices that have spoken since their `Finish`; that of 0 ends all
        self.is_open = True
        """More of the answer may come: nothing was said of its end, or something has followed."""
        self.error: BaseException | None = None
        """What the source raised of its own accord."""
        self.input_tokens = 0

    def take(self, yielded: Sequence[Yielded]) -> Segment:
        """Return what the log gets of it; raise if any of it is not what a source may say."""
        if self.is_plain and are_texts(yielded):
            return Segment(Text, tuple(yielded))
        items = checked_items(yielded)
        if items.input_tokens is not None:
            self.input_tokens = items.input_tokens
        if not items.events and not items.finish:
            return NOTHING
        self.is_owed = self.is_owed or items.is_owed
        events = self._splitter.feed(items.events)
        for finish in items.finish:
            events += self._splitter.ended(finish)
            if (before := self.finish.get(finish.choice)) is None or not is_failure(before):
                self.finish[finish.choice] = finish
            self._open = self._open - {finish.choice} if finish.choice else _NONE
        self._open |= items.open
        self.is_open = bool(self._open) or 0 not in self.finish
        self._note_answer(events)
        self.is_plain = items.goes_on and 0 in self._open and self._splitter.is_plain and self.has_answered
        return segment_of(events)

    def _note_answer(self, events: Sequence[Event]) -> None:
        self.has_answered = self.has_answered or any(map(_answers, events))

    def end(self) -> Segment:
        """Note that the source has ended by itself, without an error. Return what was held back."""
        self.finish.setdefault(0, Finish("stop"))
        self.is_open = False
        held = self._splitter.end()
        self._note_answer(held)
        return segment_of(held)

    def fail(self, error: BaseException) -> Segment:
        """Note that the source has raised. Return what was held back."""
        self.error = error
        return segment_of(self._splitter.end(complete=False))

    @property
    def last_word(self) -> Mapping[int, Finish] | None:
        """How the source ended, by its own words; None if they do not tell."""
        told = 0 in self.finish and (not self.is_open or any(map(is_failure, self.finish.values())))
        return self.finish if told else None


def _answers(event: Event) -> bool:
    """Tell whether an event answers. Whitespace alone does not."""
    return type(event) in ANSWERS and not (type(event) is Text and event.text.isspace())


def is_failure(finish: Finish) -> bool:
    """Tell whether a source says that it failed."""
    return finish.error is not None or finish.reason in FAILED


def are_texts(yielded: Sequence[Yielded]) -> TypeGuard[Sequence[str]]:
    """Tell whether all of it is text that can be logged as it is. Lists are looked through by C code alone."""
    if not isinstance(yielded, (list, tuple)) or {*map(type, yielded)} != _STRINGS or "" in yielded:
        return False
    text = "".join(yielded)
    return encodable(text) is text


_STRINGS = {str}


def checked_items(yielded: Sequence[Yielded]) -> CheckedItems:
    """Return what a source yielded, or raise if it yielded anything else than events and strings."""
    events: list[Event | AnswerBegins] = []
    finish: list[Finish] = []
    input_tokens, goes_on, is_owed = None, False, False
    open_choices: set[int] = set()
    for item in yielded if isinstance(yielded, (list, tuple)) else (yielded,):
        kind = type(item)
        if kind is Text and type(item.text) is str and item.text.isascii() and item.text and _is_text_alone(item):
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
        elif (event := _event(item)) is not None:
            events.append(event)
            if type(event) in SPOKEN:
                goes_on = True
                open_choices.add(event.choice)  # type: ignore[union-attr]
    return CheckedItems(events, finish, input_tokens, goes_on, open_choices, is_owed)


def _event(item: Any) -> Event | None:
    """Return what is logged of something that a source yielded; None where it is nothing."""
    if isinstance(item, str):
        item = Text(item)
    is_text = isinstance(item, (Text, Reasoning)) and isinstance(item.text, str)
    if is_text and not item.text:
        return None
    if is_text and _is_text_alone(item):
        event: Event = item if item.text.isascii() else storable(item)
        return event
    if type(item) not in _MAY_YIELD and not isinstance(item, Thought):
        raise TypeError(f"a source may yield events and strings, not {type(item).__name__}")
    return None if isinstance(item, Thought) else storable(_checked(item))


def _is_text_alone(item: Any) -> bool:
    """Tell that nothing stands beside a text which has to be looked at: what cannot be stored would halt the store."""
    is_plain = isinstance(item, Reasoning) or (item.logprobs is None and not item.refusal)
    return type(item.choice) is int and is_plain


def _checked(item: Any) -> Any:
    """Return an event whose fields have the types they should have, or raise: Python itself does not look."""
    is_as_usual = False
    if type(item) is Finish:
        is_plain = item.error is None and item.stop_sequence is None
        is_as_usual = is_plain and type(item.reason) is str and type(item.choice) is int
    elif type(item) is Usage and item.source in _COUNTED_BY:
        counts = (item.input_tokens, item.output_tokens, item.cached_tokens, item.reasoning_tokens)
        is_as_usual = {*map(type, counts), type(item.cache_write_tokens)} == _A_COUNT
    return item if is_as_usual else _converted(item)


_COUNTED_BY = ("provider", "estimated")
_A_COUNT = {int}


def _converted(item: Any) -> Any:
    given = {name: value for name, value in msgspec.structs.asdict(item).items() if value is not msgspec.UNSET}
    return msgspec.convert(given, type(item))
