"""Joins a continued answer to its beginning: without a repeated word, and without a missing one.

A model continues an answer in one of two ways. With a *prefill* it writes on after its own last message. Otherwise it
is told in a *turn* to repeat the last words, the anchor, before it goes on: what it repeats shows where the two parts
meet, in the middle of a word too. A continuation that cannot be joined so is refused: a doubtful answer is worse than
a part of one.
"""

from __future__ import annotations

import re

ANCHOR = 60
"""Least number of characters of an anchor, if the text has as many."""
PREAMBLE = 80
"""Most characters that a model may write before the anchor. They are dropped."""
_ENOUGH = 12
"""Characters that are alike by chance in no answer."""
_FEW = 64
"""Characters after which a continuation that is like the beginning of the answer is taken for a new beginning."""
_SPACE = 64
"""Most characters of white space at the end of an answer that a continuation is compared with."""

TURN = (
    "Your answer was cut off by a technical fault. These were its last characters:\n\n{anchor}\n\n"
    "Continue it: first repeat exactly these characters, then go on with what follows them. "
    "Write nothing before them, and do not begin the answer again."
)


class NotJoined(Exception):
    """A continuation does not fit behind the answer so far."""


def anchor_of(text: str) -> str:
    """Return the end of a text that a model is told to repeat, from the beginning of a word on if it has words."""
    text = text.rstrip()
    start = max(0, len(text) - ANCHOR)
    while start > 0 and len(text) - start < 2 * ANCHOR and not text[start - 1].isspace():
        start -= 1
    return text[start:].strip()


class Joint:
    """Holds back the beginning of a continuation until it is known how it fits."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._held: str | None = ""
        """What is held back; None once the rest is passed on as it comes."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held back."""
        return not self._held

    def feed(self, piece: str) -> str:
        """Return the new text of the answer. Raise `NotJoined` if the continuation does not fit."""
        if self._held is None:
            return piece
        self._held += piece
        return self._judged(is_last=False)

    def end(self) -> str:
        """Return what is left at the end of the continuation."""
        return "" if self._held is None else self._judged(is_last=True)

    def _judged(self, *, is_last: bool) -> str:
        raise NotImplementedError

    def _pass_on(self, text: str) -> str:
        self._held = None
        return text


class PrefillJoint(Joint):
    """The continuation of a message that ended with the answer so far, without its trailing white space."""

    def _judged(self, *, is_last: bool) -> str:
        held, text = self._held or "", self._text
        shared = min(len(held), len(text), _FEW)
        if held[:shared] == text[:shared]:
            if shared == len(held) < min(len(text), _FEW) and not is_last:
                return ""  # it may begin anew
            if shared >= _ENOUGH:
                raise NotJoined("it began the answer again")
        if _may_be_repeated(text, held) and not is_last:
            return ""
        return self._pass_on(_after_space(text, held))


class TurnJoint(Joint):
    """The continuation in a further turn, which repeats the anchor."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._words = anchor_of(text).split()
        self._anchor = re.compile(r"\s+".join(map(re.escape, self._words)))
        self._most = PREAMBLE + 2 * len(anchor_of(text))

    def _judged(self, *, is_last: bool) -> str:
        held = self._held or ""
        if found := self._find(held):
            if self._begins_anew(held[: found.start()]):
                raise NotJoined("it began the answer again")
            rest = held[found.end() :]
            if _may_be_repeated(self._text, rest) and not is_last:
                return ""
            return self._pass_on(_after_space(self._text, rest))
        if is_last or len(held) > self._most:
            raise NotJoined("it did not begin with the last words of the answer")
        return ""

    def _find(self, held: str) -> re.Match[str] | None:
        """Return where the anchor ends. A short one is looked for at the beginning only: it may stand anywhere."""
        if len("".join(self._words)) >= _ENOUGH:
            return self._anchor.search(held)
        return self._anchor.match(held, len(held) - len(held.lstrip()))

    def _begins_anew(self, before: str) -> bool:
        return len(before) > PREAMBLE or (len(before.strip()) >= _ENOUGH and self._text.startswith(before.strip()))


def _space_at_the_end(text: str) -> str:
    end = text[-_SPACE:]
    return end[len(end.rstrip()) :]


def _may_be_repeated(text: str, more: str) -> bool:
    """Return whether a continuation is so far only white space, with which the text before it may end already."""
    return len(more) < len(_space_at_the_end(text)) and not more.strip()


def _after_space(text: str, more: str) -> str:
    """Return a continuation without the white space with which the text before it ends."""
    space = _space_at_the_end(text)
    own = more[: len(space)]
    own = own[: len(own) - len(own.lstrip())]
    shared = next(n for n in range(min(len(space), len(own)), -1, -1) if space.endswith(own[:n]))
    return more[shared:]
