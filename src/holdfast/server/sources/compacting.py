"""The summary of a conversation that may be longer than what its model can hold: it is sent in less and less."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from ...asks import SessionAsk
from ...errors import ProviderError
from ...history.compaction import condensed, room_for_summary
from ...store import RunRecord

_TRIES = 6
TOO_LONG = "context_length_exceeded"


class Conversation(NamedTuple):
    """A conversation with the request for its summary at the end, and the window of the model that is asked."""

    messages: list[dict[str, Any]]
    window: int | None


def is_compaction(record: RunRecord) -> bool:
    """Return whether the answer of a run is a summary."""
    return isinstance(record.ask, SessionAsk) and record.ask.compacts


async def summarised(
    ask: Callable[[Sequence[dict[str, Any]]], Awaitable[None]], read: Callable[[], Awaitable[Conversation]]
) -> None:
    """Ask for a summary of the whole conversation, and of half as much each time that it is too long."""
    messages, window = await read()
    for tried in range(_TRIES):
        room = room_for_summary(messages, window, tried)
        try:
            return await ask(messages if room is None else condensed(messages, room))
        except ProviderError as error:
            if error.code != TOO_LONG or tried == _TRIES - 1:
                raise
