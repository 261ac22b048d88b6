"""Messages for upstreams with OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import methodcaller
from typing import Any

from msgspec.structs import replace

from ...history import alternating
from ...prompt import AnyTurn, AssistantTurn, SystemTurn, UserTurn
from ...prompt.openai_shape import OURS, openai_message, turns_of
from ..parts import content_parts, pictures_after_results

UpstreamMessage = dict[str, Any]

_role = methodcaller("get", "role")


def messages_for(
    messages: Iterable[UpstreamMessage], *, strict: bool, developer: bool, reasoning: bool
) -> list[UpstreamMessage]:
    """Return the messages of a request. Those that need no change are sent as they are, without being read.

    `strict` is for templates that require one system message at the start and alternating turns. `developer` means that
    the upstream knows that role. With `reasoning`, a message with tool calls includes the reasoning before them.
    """
    chat = [*messages]
    roles = {*map(_role, chat)}
    changes = strict or reasoning or "tool" in roles or ("developer" in roles and not developer)
    if not changes and OURS.isdisjoint(chain.from_iterable(chat)):
        return chat
    read = [*turns_of(chat)]
    as_it_was = dict(zip(map(id, read), chat, strict=True))
    turns = pictures_after_results(read)
    if strict:
        turns = _system_first(turns)
    elif not developer:
        turns = [replace(turn, role="system") if isinstance(turn, SystemTurn) else turn for turn in turns]
    sent = [_message(turn, as_it_was.get(id(turn)) or openai_message(turn), reasoning) for turn in turns]
    return alternating(sent) if strict else sent


def _message(turn: AnyTurn, message: UpstreamMessage, reasoning: bool) -> UpstreamMessage:
    """Return the message of a turn without the fields that are not for upstreams."""
    message = {name: value for name, value in message.items() if name not in OURS}
    if reasoning and isinstance(turn, AssistantTurn) and turn.calls:
        return {"reasoning_content": turn.reasoned, **message}
    return message


def _system_first(turns: Sequence[AnyTurn]) -> list[AnyTurn]:
    """Join the system turns at the start into one, and make each later one a user's turn in its place."""
    start = next((n for n, turn in enumerate(turns) if not isinstance(turn, SystemTurn)), len(turns))
    contents = [turn.content for turn in turns[:start]]
    if all(isinstance(content, str) for content in contents):
        joined: Any = "\n\n".join(map(str, contents))
    else:
        joined = tuple(part for content in contents for part in content_parts(content))
    first: list[AnyTurn] = [SystemTurn(joined)] if contents else []
    rest = [UserTurn(turn.content, "", turn.extra) if isinstance(turn, SystemTurn) else turn for turn in turns[start:]]
    return [*first, *rest]
