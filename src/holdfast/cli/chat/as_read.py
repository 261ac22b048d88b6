"""The messages of a session as a person reads them: a response that was continued is one."""

from __future__ import annotations

from collections.abc import Sequence

from ...history import text_of
from ..client import Object


def as_read(messages: Sequence[Object]) -> list[Object]:
    """Return the messages without the turns that the server wrote, and with the parts of each response joined."""
    read: list[Object] = []
    is_continued = False
    for message in messages:
        if message.get("automatic"):
            is_continued = bool(read) and read[-1]["role"] == "assistant"
            continue
        if is_continued and message["role"] == "assistant":
            content = text_of(read[-1]["content"]) + text_of(message["content"])
            message = {**message, "content": content}
            read.pop()
        is_continued = False
        read.append(message)
    return read
