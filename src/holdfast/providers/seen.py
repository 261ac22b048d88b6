"""What was seen of an answer that is told again from its beginning, after the one who read it was killed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import AnswerLost
from ..events import Finish, Reasoning, Text, Yielded

__all__ = ["Seen", "lost"]


def lost(who: str, how: str) -> AnswerLost:
    """Return the error of an answer that cannot be attached to."""
    return AnswerLost(f"{who} {how}.")


class Seen:
    """Takes off what a reader has seen of `who`'s answer, and refuses one that is not the same."""

    def __init__(self, who: str, text: str, reasoning: str) -> None:
        self._who = who
        self._left: dict[type, str] = {Text: text, Reasoning: reasoning}

    def taken_off(self, events: Sequence[Yielded]) -> list[Yielded]:
        """Return what is new in the events. An answer that is not the one that was seen is an error."""
        unseen: list[Yielded] = []
        for event in events:
            if isinstance(event, Text | Reasoning) and (left := self._left[type(event)]):
                if not left.startswith(event.text) and not event.text.startswith(left):
                    raise lost(self._who, "tells another answer than the one that was seen")
                self._left[type(event)] = left[len(event.text) :]
                event = replace(event, text=event.text[len(left) :])
            if isinstance(event, Finish) and any(self._left.values()):
                raise lost(self._who, "tells less than what was seen")
            if not isinstance(event, Text | Reasoning) or event.text:
                unseen.append(event)
        return unseen
