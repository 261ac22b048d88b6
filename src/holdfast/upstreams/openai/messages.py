"""Messages for upstreams with OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import methodcaller
from typing import Any

from ...history import alternating, text_of

UpstreamMessage = dict[str, Any]

_NOT_FOR_UPSTREAMS = frozenset({"thoughts", "reasoned", "placed", "cache_control"})
"""Fields of a message that are ours, or another dialect's."""

_SYSTEM = ("system", "developer")

_role = methodcaller("get", "role")


def messages_for(
    messages: Iterable[UpstreamMessage], *, strict: bool, developer: bool, reasoning: bool
) -> list[UpstreamMessage]:
    """Return the messages of a request.

    `strict` is for templates that require one system message at the start and alternating turns. `developer` means that
    the upstream knows that role. With `reasoning`, a message with tool calls includes the reasoning before them.
    """
    chat = [*messages]
    if reasoning or not _NOT_FOR_UPSTREAMS.isdisjoint(chain.from_iterable(chat)):
        chat = [_own(message, reasoning) for message in chat]
    if "tool" in map(_role, chat):
        chat = pictures_after_results(chat)
    if strict:
        return alternating(system_first(chat))
    if developer or "developer" not in map(_role, chat):
        return chat
    return [{**message, "role": "system"} if message.get("role") == "developer" else message for message in chat]


def _own(message: UpstreamMessage, reasoning: bool) -> UpstreamMessage:
    """Return a message without the fields that are not for upstreams."""
    own = {name: value for name, value in message.items() if name not in _NOT_FOR_UPSTREAMS}
    if reasoning and message.get("tool_calls"):
        return {"reasoning_content": message.get("reasoned", ""), **own}
    return own


def pictures_after_results(messages: Sequence[UpstreamMessage]) -> list[UpstreamMessage]:
    """Move parts of tool results that are not text into a user's message after them: OpenAI accepts only text there."""
    moved: list[UpstreamMessage] = []
    pictures: list[Any] = []
    for message in messages:
        if message.get("role") != "tool" and pictures:
            moved.append({"role": "user", "content": pictures})
            pictures = []
        if message.get("role") == "tool" and isinstance(message.get("content"), list):
            message, others = _text_and_others(message)
            pictures += others
        moved.append(message)
    return [*moved, {"role": "user", "content": pictures}] if pictures else moved


def _text_and_others(result: UpstreamMessage) -> tuple[UpstreamMessage, list[Any]]:
    """Return a result with its text only, and its other parts."""
    parts = result["content"]
    texts = [text_of(parts)]
    others = [part for part in parts if not (isinstance(part, dict) and part.get("type") == "text")]
    if others:
        texts.append("(What else it returned follows in the next message.)")
    return {**result, "content": "\n\n".join(filter(None, texts))}, others


def system_first(messages: Sequence[UpstreamMessage]) -> list[UpstreamMessage]:
    """Join the system messages at the start into one, and make each later one a user's message in its place."""
    start = next((n for n, message in enumerate(messages) if message.get("role") not in _SYSTEM), len(messages))
    contents = [message.get("content") for message in messages[:start]]
    first = [{"role": "system", "content": _joined(contents)}] if contents else []
    rest = [{**message, "role": "user"} if message.get("role") in _SYSTEM else message for message in messages[start:]]
    return [*first, *rest]


def _joined(contents: Sequence[Any]) -> Any:
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(contents)
    parts: list[Any] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    return parts
