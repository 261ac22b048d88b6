"""Separate a model's reasoning from its answer while the text is still arriving.

Many models write `<think>...</think>` before the answer. The two become different events here, once, so that nothing
later has to strip reasoning from an answer.

The rules, for any way the text is cut into deltas:

- Only a leading `<think>` or `<thinking>`, in any case, opens reasoning; several in a row are all reasoning. After the
  first visible character every tag is text, so code and prose about tags stay whole.
- The first close tag ends reasoning, with either of the two names: the answer of a model that confuses them would
  otherwise be lost. An open tag inside reasoning is reasoning.
- Whitespace around the tags is layout and dropped; inside reasoning, and if no tag follows it, it is kept.
- Inside reasoning a close tag is only *quoted* if a backtick span or fence is open and a quotation mark (one of `"'`
  or a backtick) follows the tag at once: that is how models write it when they think about tags. Any other close tag
  counts, in an unclosed fence too: a wrong "quoted" hides the answer, a wrong "close" only shows some reasoning.
- If the text ends properly and all its close tags were judged quoted, the text after the first of them is emitted
  again as the answer: it is better shown twice than lost.
- Reasoning that is never closed is reasoning to the end.

Cost: linear in the text. At most an unfinished tag (12 characters) is held back, and `MAX_LEADING_SPACE` whitespace
characters at the start. Once an answer has begun, a delta costs one test.

`ThinkSplitter` splits strings. `AnswerSplitter`, its only user, splits the items of a source. Every reader of a source
(the engine, an agent that calls a model) has one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..events import (
    FAILED,
    TRUNCATED,
    AnswerBegins,
    Finish,
    Notice,
    Reasoning,
    Steered,
    StepFinished,
    StepStarted,
    Text,
    ToolCall,
    ToolDelta,
    ToolResult,
    Usage,
    Yielded,
)
from ..silence import ModelAsked

__all__ = ["MAX_LEADING_SPACE", "AnswerSplitter", "Piece", "ThinkSplitter"]

Piece = tuple[bool, str]
"""Some text, and whether it is reasoning."""

MAX_LEADING_SPACE = 256
"""Maximum number of leading whitespace characters held back for a tag. More of it begins the answer."""

# ASCII: without it, a dotless i matches an i here but not in `str.lower`, which finds unfinished tags.
_TAG_FLAGS = re.IGNORECASE | re.ASCII
_SPACE = re.compile(r"[ \t\r\n]*")
_OPEN_TAG = re.compile(r"<think(?:ing)?>", _TAG_FLAGS)
_LANDMARK = re.compile(r"</think(?:ing)?>|`+|\n", _TAG_FLAGS)

# An unfinished `<think>` is an unfinished `<thinking>` too.
_LONGEST_OPEN = "<thinking>"
_LONGEST_CLOSE = "</thinking>"

_FENCE = 3


class ThinkSplitter:
    """Cuts the text of one answer into reasoning and visible text.

    `open` is for models whose prompt template already holds the open tag: their text begins inside reasoning.
    """

    __slots__ = ("_backticks", "_code", "_doubtful", "_held", "_open", "_plain", "_reasoning", "_thought")

    def __init__(self, open: bool = False) -> None:
        self._plain = False  # visible text has begun: all that follows is text
        self._reasoning = False  # between an open tag and its close tag
        self._thought = False  # a block of reasoning was closed: whitespace is layout now
        self._open = open  # without a tag, the text is reasoning
        self._held = ""
        self._code = 0  # length of the backtick run that opened the code we are in
        self._backticks = 0  # length of a backtick run that may go on in the next delta
        self._doubtful: list[str] | None = None  # the reasoning since the first close tag judged quoted

    def feed(self, delta: str) -> list[Piece]:
        """Split one more delta; a part that may belong to a tag is held back for the next."""
        if self._plain:
            return [(False, delta)] if delta else []
        if self._reasoning and self._is_uneventful(delta):
            return [(True, delta)] if delta else []
        return self._split(self._held + delta, last=False)

    def finish(self, *, complete: bool = True) -> list[Piece]:
        """Return what was held back.

        `complete` means that the model ended of its own accord. If it was cut off, by a length limit or a broken
        connection, open reasoning is expected, and no answer is looked for in it.
        """
        pieces = self._split(self._held, last=True)
        if complete and self._reasoning and self._doubtful is not None:
            answer = "".join(self._doubtful).lstrip(" \t\r\n")
            return [*pieces, (False, answer)] if answer else pieces
        return pieces

    def _split(self, data: str, last: bool) -> list[Piece]:
        self._held = ""
        thoughts: list[str] = []
        at = 0
        while at < len(data) and not self._plain:
            at = self._read_reasoning(data, at, last, thoughts) if self._reasoning else self._read_start(data, at, last)
        pieces = [(True, "".join(thoughts)), (False, data[at:])]
        return [piece for piece in pieces if piece[1]]

    def _is_uneventful(self, delta: str) -> bool:
        """Return whether a delta is wholly reasoning: most deltas of reasoning are a few plain words."""
        pending = self._held or self._code or self._backticks or self._doubtful is not None
        return not pending and "<" not in delta and "`" not in delta

    def _read_start(self, data: str, at: int, last: bool) -> int:
        """Read up to the end of an open tag, or find that there is none. Return the position to continue from."""
        tag_at = _skip_space(data, at)
        kept_from = tag_at if self._thought else at
        if tag_at - kept_from <= MAX_LEADING_SPACE:
            if tag := _OPEN_TAG.match(data, tag_at):
                self._reasoning = True
                return tag.end()
            if not last and len(data) - tag_at < len(_LONGEST_OPEN) and _LONGEST_OPEN.startswith(data[tag_at:].lower()):
                self._held = data[kept_from:]
                return len(data)
        self._reasoning = self._open and not self._thought
        self._plain = not self._reasoning and kept_from < len(data)
        return kept_from

    def _read_reasoning(self, data: str, at: int, last: bool, thoughts: list[str]) -> int:
        """Read up to the end of the close tag, or of the data. Return the position to continue from."""
        begin = at
        if self._backticks and data[at] != "`":
            self._end_backticks()
        for landmark in _LANDMARK.finditer(data, at):
            start, at = landmark.span()
            if data[start] != "<":
                self._follow_code(data, start, at)
            elif self._code and at == len(data) and not last:
                self._hold(data, begin, start, thoughts)
                return at
            elif not (self._code and data.startswith(("`", '"', "'"), at)):
                self._think(data[begin:start], thoughts)
                self._close()
                return at
            elif self._doubtful is None:
                self._think(data[begin:at], thoughts)
                self._doubtful = []
                begin = at
        self._hold(data, begin, len(data) if last else _unfinished_close_tag(data, at), thoughts)
        return len(data)

    def _hold(self, data: str, begin: int, held_from: int, thoughts: list[str]) -> None:
        self._think(data[begin:held_from], thoughts)
        self._held = data[held_from:]

    def _think(self, text: str, thoughts: list[str]) -> None:
        thoughts.append(text)
        if self._doubtful is not None:
            self._doubtful.append(text)

    def _close(self) -> None:
        self._reasoning = False
        self._thought = True
        self._code = self._backticks = 0
        self._doubtful = None

    def _follow_code(self, data: str, start: int, end: int) -> None:
        """Update the code state after a run of backticks or a line end. A line end ends any code but a fence."""
        if data[start] == "`":
            self._backticks += end - start
            if end < len(data):
                self._end_backticks()
        elif self._code < _FENCE:
            self._code = 0

    def _end_backticks(self) -> None:
        """Open code, or close it: with as many backticks as opened it, or more for a fence (CommonMark)."""
        run, self._backticks = self._backticks, 0
        if not self._code:
            self._code = run
        elif run == self._code or run > self._code >= _FENCE:
            self._code = 0


_NEXT_ANSWER = (StepStarted, StepFinished, ToolResult, Steered)
"""Events between two answers of a model."""

_PLAIN = frozenset({Reasoning, Usage, Notice, ToolDelta, ModelAsked})
"""Frequent events that neither end an answer nor have text to split."""


class AnswerSplitter(msgspec.Struct):
    """Separates reasoning from text in the items of a source, for each choice and each answer of a model.

    An answer begins with the source, and again at `AnswerBegins`, a step, or after a tool's result. Text that was held
    back is returned before the event that ends its answer. Costs one test for each event once visible text has begun.
    """

    _think: bool = True
    _splitters: dict[int, ThinkSplitter | None] = {}
    """The splitter of each choice, from its first text on; None once visible text has begun."""

    @property
    def is_plain(self) -> bool:
        """True if all further text of the first choice is visible text."""
        return not self._think or self._splitters.get(0, self) is None

    def feed(self, items: Sequence[Yielded]) -> list[Any]:
        """Return the items with reasoning separate from text; text that may belong to a tag is held back."""
        out: list[Any] = []
        for item in items:
            kind = type(item)
            if kind is Text:
                self._take_text(item, out)  # type: ignore[arg-type]
            elif kind in _PLAIN:
                out.append(item)
            elif kind is AnswerBegins:
                self._next_answer(item.think, out)  # type: ignore[union-attr]
            elif isinstance(item, str):
                self._take_text(Text(item), out)
            else:
                self._take_mark(item, out)
        return out

    def ended(self, finish: Finish) -> list[Any]:
        """Return what was held back of the choice that a `Finish` ends."""
        out: list[Any] = []
        if self._splitters.get(finish.choice) is not None:
            self._give_held(finish.choice, out, complete=_is_whole(finish))
        return out

    def end(self, *, complete: bool = True) -> list[Any]:
        """Return what was held back of every choice. `complete` means that the source ended of its own accord."""
        out: list[Any] = []
        for choice in tuple(self._splitters):
            if self._splitters[choice] is not None:
                self._give_held(choice, out, complete=complete)
        return out

    def _take_text(self, event: Text, out: list[Any]) -> None:
        if event.refusal:  # a refusal is never reasoning, even if it begins with a tag
            self._give_held(event.choice, out, complete=False)
        if not self._think or event.refusal:
            out.append(event)
            return
        if event.choice not in self._splitters:
            is_visible = event.text.lstrip(" \t\r\n")[:1] not in ("", "<")
            self._splitters[event.choice] = None if is_visible else ThinkSplitter()
        splitter = self._splitters[event.choice]
        if splitter is None:
            out.append(event)
        else:
            self._give(splitter.feed(event.text), out, event.choice, event.logprobs)

    def _take_mark(self, item: Yielded, out: list[Any]) -> None:
        """Take an item that is not text, and may end an answer or stand between two."""
        if isinstance(item, Finish):
            out += self.ended(item)
        elif isinstance(item, ToolCall):
            self._give_held(item.choice, out, complete=False)
        elif isinstance(item, _NEXT_ANSWER):
            self._next_answer(self._think, out)
        out.append(item)

    def _next_answer(self, think: bool, out: list[Any]) -> None:
        if self._splitters:
            out += self.end()
            self._splitters.clear()
        self._think = think

    def _give_held(self, choice: int, out: list[Any], *, complete: bool) -> None:
        if (splitter := self._splitters.get(choice)) is not None:
            self._give(splitter.finish(complete=complete), out, choice)

    def _give(self, pieces: Sequence[Piece], out: list[Any], choice: int, logprobs: Any = None) -> None:
        for is_reasoning, text in pieces:
            if is_reasoning:
                out.append(Reasoning(text, choice))
                continue
            self._splitters[choice] = None  # visible text has begun: all that follows is text
            out.append(Text(text, choice, logprobs))
            logprobs = None


def _is_whole(finish: Finish) -> bool:
    return finish.error is None and finish.reason not in TRUNCATED and finish.reason not in FAILED


def _skip_space(data: str, at: int) -> int:
    space = _SPACE.match(data, at)
    return space.end() if space else at


def _unfinished_close_tag(data: str, at: int) -> int:
    """Return the start of a close tag that the end of the data cuts off; the end of the data if there is none."""
    start = data.rfind("<", max(at, len(data) - len(_LONGEST_CLOSE) + 1))
    return start if start >= 0 and _LONGEST_CLOSE.startswith(data[start:].lower()) else len(data)
