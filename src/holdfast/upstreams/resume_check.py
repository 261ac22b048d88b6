"""The check of an answer that is sent again from its beginning, after a crash of its reader."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import AnswerLost
from ..events import Finish, Outlet, Reasoning, Text, Yielded
from ..log.reasoning import AnswerSplitter

__all__ = ["SeenEvents", "lost"]


def lost(who: str, how: str) -> AnswerLost:
    """Return the error of an answer that cannot be attached to."""
    return AnswerLost(f"{who} {how}.")


class SeenEvents:
    """An outlet that drops the part of an answer that was seen, and passes on the rest.

    It raises `AnswerLost`, with the name `who`, if the answer is another. The seen text and reasoning are separate, so
    reasoning is split from the text here. `think` means that tags in the text mark reasoning.
    """

    def __init__(self, out: Outlet, who: str, text: str, reasoning: str, *, think: bool) -> None:
        self._out = out
        self.room = out.room
        self._who = who
        self._splitter = AnswerSplitter(think)
        self._seen_rest: dict[type, str] = {Text: text, Reasoning: reasoning}

    def emit(self, events: Sequence[Yielded]) -> bool:
        """Pass on the new part of the events. Raise `AnswerLost` if the answer is not the one that was seen."""
        return self._pass_on(self._splitter.feed(events))

    def cut_off(self) -> None:
        """Pass on the text that was held back, of an answer that was interrupted."""
        self._pass_on(self._splitter.end(complete=False))

    def _pass_on(self, events: Sequence[Yielded]) -> bool:
        return self._out.emit(self._unseen(events))

    def _unseen(self, events: Sequence[Yielded]) -> list[Yielded]:
        unseen: list[Yielded] = []
        for event in events:
            if isinstance(event, Text | Reasoning) and (seen := self._seen_rest[type(event)]):
                if not seen.startswith(event.text) and not event.text.startswith(seen):
                    raise lost(self._who, "tells another answer than the one that was seen")
                self._seen_rest[type(event)] = seen[len(event.text) :]
                event = replace(event, text=event.text[len(seen) :])
            if isinstance(event, Finish) and any(self._seen_rest.values()):
                raise lost(self._who, "tells less than what was seen")
            if not isinstance(event, Text | Reasoning) or event.text:
                unseen.append(event)
        return unseen
