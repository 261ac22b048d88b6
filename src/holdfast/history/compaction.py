"""Compaction: a summary takes the place of earlier messages in what a model is asked. The messages stay.

In a session it is a turn of the server: a message that `compacts`, and the answer to it, which is the summary. So it is
a branch like any other, a person can read and edit it, and without it everything is as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from . import Message, estimate_tokens, text_of

__all__ = ["COMPACT", "SO_FAR", "compacted", "condensed", "is_summary"]

COMPACT = (
    "Summarise the conversation so far for a model that goes on with it and sees nothing else of it: what the user "
    "wants, what was decided and done, the facts, names, numbers and code that are still needed, and what is left to "
    "do. Answer with the summary alone."
)
"""The prompt for a summary of a conversation."""
SO_FAR = "Summary of the conversation so far:"

_CHARACTERS_OF_A_TOKEN = 3
"""A cautious estimate, for what must fit."""
_SHORTEST = 200
_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Result of a tool"}


def is_summary(request: Message, answer: Message) -> bool:
    """Return whether an answer is a whole summary: one that broke off would lose what it does not say."""
    is_whole = not answer.partial or answer.edited
    return request.compacts and answer.role == "assistant" and is_whole and bool(text_of(answer.content).strip())


def compacted(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of a branch as a model is asked: the last summary, and what follows it.

    A compaction that came to nothing is left out. A request for a summary at the end stays: it is what is asked now.
    """
    shown: list[Message] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        if not message.compacts or not rest:
            shown.append(message)
        elif is_summary(message, rest[0]):
            shown = [_said_as_user(rest.pop(0))]
        elif rest[0].role == "assistant":
            rest.pop(0)
    return shown


def _said_as_user(summary: Message) -> Message:
    text = f"{SO_FAR}\n\n{text_of(summary.content)}"
    return Message(id=summary.id, role="user", content=text, automatic=True)


def condensed(messages: Sequence[dict[str, Any]], tokens: int) -> list[dict[str, Any]]:
    """Return a conversation with a request for its summary at the end, as one message of about so many tokens.

    Of each long message the middle is left out, and of too many messages those in the middle. Pictures are left out.
    """
    *said, asked = messages
    lines = [f"{_SPEAKERS.get(each['role'], 'Instructions')}: {_text(each)}" for each in said]
    room = max(_SHORTEST, tokens * _CHARACTERS_OF_A_TOKEN)
    most = max(1, room // _SHORTEST)
    if len(lines) > most:
        first = most // 4
        lines = [*lines[:first], "[…]", *lines[len(lines) - (most - first) :]]
    longest = _cap([len(line) for line in lines], room)
    told = "\n\n".join(_cut(line, longest) for line in lines)
    return [{"role": "user", "content": f"{told}\n\n---\n\n{text_of(asked['content'])}"}]


def _text(message: dict[str, Any]) -> str:
    said = text_of(message["content"])
    match message:
        case {"tool_calls": [*calls]}:
            return "\n".join(filter(None, [said, *(str(call["function"]) for call in calls if "function" in call)]))
    return said


def _cap(lengths: Sequence[int], room: int) -> int:
    """Return the length to which the longest are cut so that all of them fit."""
    low, high = 1, max([1, *lengths])
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(length, middle) for length in lengths) <= room else (low, middle - 1)
    return low


def _cut(line: str, longest: int) -> str:
    if len(line) <= longest:
        return line
    half = max(1, longest // 2)
    return f"{line[:half]} […] {line[len(line) - half :]}"


def room_for_summary(messages: Sequence[dict[str, Any]], window: int | None, tries: int) -> int | None:
    """Return the tokens that a conversation is condensed to at a try, from 0; None to send it whole."""
    whole = estimate_tokens(messages)
    most = whole if window is None else min(whole, window * 3 // 4)
    if tries == 0:
        return None if most == whole else most
    return max(100, most >> tries)


def with_compaction(message: Message) -> Message:
    """Return a user's message as the server's request for a summary."""
    return replace(message, automatic=True, compacts=True)
