"""File parts of messages as a model reads them: a text whole, with its name, and a picture as a picture."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .kinds import (
    PDF,
    PICTURES,
    BadFile,
    Inline,
    clean_name,
    inline_url,
    read_inline,
    refuse_unknown,
    text_in_file,
    type_of,
)

__all__ = ["Reader", "has_files", "wrapped"]

_TAG = "file"


class _Attached(NamedTuple):
    """A file that is in its part."""

    name: str
    content: Inline


class Reader:
    """Reads files of messages."""

    async def shown(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return messages with their files in the form that a model reads. Refuse a file that none can."""
        if not has_files(messages):
            return list(messages)
        return await asyncio.to_thread(lambda: [_shown(message) for message in messages])


def has_files(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a message has a file as a data URL."""
    return any(_has_file(message) for message in messages)


def wrapped(name: str, text: str) -> str:
    """Return a file's text between tags that are not in it, the first with the name."""
    tag, number = _TAG, 1
    while f"</{tag}>" in text:
        number += 1
        tag = f"{_TAG}-{number}"
    shown = clean_name(name).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<{tag} name="{shown}">\n{text.rstrip()}\n</{tag}>'


def _has_file(message: Mapping[str, Any]) -> bool:
    match message:
        case {"content": list(parts)}:
            return any(_data_of(part).startswith("data:") for part in parts)
    return False


def _data_of(part: Any) -> str:
    match part:
        case {"type": "file", "file": {"file_data": str(data)}}:
            return data
    return ""


def _shown(message: dict[str, Any]) -> dict[str, Any]:
    if not _has_file(message):
        return message
    parts = [_shown_part(part) for part in message["content"]]
    if all(part.keys() == {"type", "text"} for part in parts):  # some models take no list
        return {**message, "content": "\n\n".join(part["text"] for part in parts)}
    return {**message, "content": parts}


def _shown_part(part: dict[str, Any]) -> dict[str, Any]:
    if (attached := _attached(part)) is None:
        return part
    name, (_, data) = attached
    refuse_unknown(name, data)
    if (type := type_of(data) or "") in PICTURES:
        return {"type": "image_url", "image_url": {"url": inline_url(type, data)}}
    text = text_in_file(data)
    return part if type == PDF or text is None else {"type": "text", "text": wrapped(name, text)}


def _attached(part: Any) -> _Attached | None:
    name, data = "", _data_of(part)
    match part:
        case {"file": {"filename": str(given)}}:
            name = given
    if not data.startswith("data:"):
        return None
    if (content := read_inline(data)) is None:
        raise BadFile(name, "is not in base64. Its file_data is a data: URL: data:TYPE;base64,…")
    return _Attached(name, content)
