"""File parts of messages as a model reads them: a text whole, with its name, a picture as one, a PDF as either."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, NamedTuple

import msgspec

from .kinds import (
    PDF,
    PICTURES,
    BadFile,
    Inline,
    clean_name,
    inline_url,
    read_inline,
    refuse_unknown_kind,
    text_in_file,
    type_of,
)
from .pdf import Pdfs

__all__ = ["Inspected", "Reader", "Takes", "has_drawn", "has_files", "shown_again", "wrapped"]

_TAG = "file"
_TEXT = {str}
_content = methodcaller("get", "content", "")
_CHARACTERS_OF_A_TOKEN = 4
_PAGE_SEEN = 1500
"""About how many tokens the picture of a page has."""


class Takes(NamedTuple):
    """What a model takes beside text. None: nobody has said."""

    pictures: bool | None = None
    pdf: bool = False
    """True if its API takes a PDF itself, with its pictures."""


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is, and about how many tokens a model reads of it. None: that depends on the model."""

    name: str
    type: str
    size: int
    sha256: str
    tokens: int | None = None
    pages: int | None = None
    has_text: bool = True
    """False for a picture, and for a PDF that is a scan: a model has to see."""


class _Attached(NamedTuple):
    """A file that is in its part."""

    name: str
    content: Inline
    wants_pictures: bool


class Reader:
    """Reads files of messages."""

    def __init__(self) -> None:
        self._pdfs = Pdfs()

    async def check(self, messages: Sequence[dict[str, Any]], takes: Takes | None = None) -> None:
        """Refuse a file that the model cannot read, with what to do."""
        await self._shown(messages, takes or Takes(), is_strict=True)

    async def shown(self, messages: Sequence[dict[str, Any]], takes: Takes | None = None) -> list[dict[str, Any]]:
        """Return messages with their files in the form that a model reads.

        In place of a file that it cannot read stands why: a chat goes on if its model is changed.
        """
        return await self._shown(messages, takes or Takes(), is_strict=False)

    async def inspect(self, name: str, data: bytes) -> Inspected:
        """Return what a file is, or refuse one that no model can read."""
        refuse_unknown_kind(name, data)
        type, name = type_of(data) or "", clean_name(name)
        sha256 = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
        found = Inspected(name=name, type=type, size=len(data), sha256=sha256, has_text=type not in PICTURES)
        if type == PDF:
            pdf = await self._pdfs.text(name, data)
            tokens = len(pdf.text) // _CHARACTERS_OF_A_TOKEN if pdf.has_text else _PAGE_SEEN * len(pdf.pages)
            return msgspec.structs.replace(found, pages=len(pdf.pages), tokens=tokens, has_text=pdf.has_text)
        if (text := text_in_file(data)) is not None and type not in PICTURES:
            return msgspec.structs.replace(found, tokens=len(wrapped(name, text)) // _CHARACTERS_OF_A_TOKEN)
        return found

    async def _shown(
        self, messages: Sequence[dict[str, Any]], takes: Takes, *, is_strict: bool
    ) -> list[dict[str, Any]]:
        if not has_files(messages):
            return list(messages)
        return [await self._message(message, takes, is_strict=is_strict) for message in messages]

    async def _message(self, message: dict[str, Any], takes: Takes, *, is_strict: bool) -> dict[str, Any]:
        if not _has_file(message):
            return message
        shown = [await self._part(part, takes, is_strict=is_strict) for part in message["content"]]
        parts = [part for each in shown for part in each]
        if all(part.keys() == {"type", "text"} for part in parts):  # some models take no list
            return {**message, "content": "\n\n".join(part["text"] for part in parts)}
        return {**message, "content": parts}

    async def _part(self, part: dict[str, Any], takes: Takes, *, is_strict: bool) -> list[dict[str, Any]]:
        try:
            attached = await asyncio.to_thread(_attached, part)
            if attached is None:
                return [part]
            refuse_unknown_kind(attached.name, attached.content.data)
            if type_of(attached.content.data) == PDF:
                return await self._pdf(part, attached, takes)
            return [await asyncio.to_thread(_shown_part, attached)]
        except BadFile as error:
            if is_strict:
                raise
            return [_text(f"[{error}]")]

    async def _pdf(self, part: dict[str, Any], attached: _Attached, takes: Takes) -> list[dict[str, Any]]:
        """Return a PDF itself, its text, or its pages as pictures: what is asked for, and what the model takes."""
        name, data = attached.name, attached.content.data
        if takes.pdf and not attached.wants_pictures:
            return [{**part, "file": {key: value for key, value in part["file"].items() if key != READ_AS}}]
        if not attached.wants_pictures:
            pdf = await self._pdfs.text(name, data)
            if pdf.has_text:
                return [_text(await asyncio.to_thread(lambda: wrapped(name, pdf.text)))]
        if takes.pictures is False:
            raise BadFile(
                name, "has no text to read: its pages are pictures, and this model sees none. Choose one that does."
            )
        pages = (await self._pdfs.pictures(name, data)).pages
        urls = [{"url": f"data:image/png;base64,{page}"} for page in pages if page]
        head = _text(f"The pages of “{clean_name(name)}”, as pictures:")
        return [head, *({"type": "image_url", "image_url": url} for url in urls)]


READ_AS = "read_as"
"""The field of a file part that asks for the pages of a PDF as `pictures`."""


def have_only_texts(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all messages are plain text, as most are: then there are no files to look for."""
    return _TEXT.issuperset(map(type, map(_content, messages)))


def has_files(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a message has a file as a data URL."""
    return any(_has_file(message) for message in messages)


def has_drawn(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an answer has pictures."""
    return any(_drawn(message) for message in messages)


def shown_again(messages: Sequence[dict[str, Any]], *, sees: bool) -> list[dict[str, Any]]:
    """Put the pictures of an answer into the question after it, as models take pictures from people only.

    A model that sees none is told that there were some.
    """
    sent: list[dict[str, Any]] = []
    carried: list[Any] = []
    for message in messages:
        if drawn := _drawn(message):
            carried += drawn if sees else []
            message = {**message, "content": "\n\n".join(_texts(message)) or _DRAWN}
        elif message["role"] == "user" and carried:
            said = message["content"]
            before, carried = carried, []
            message = {**message, "content": [*before, *([_text(said)] if isinstance(said, str) else said or ())]}
        sent.append(message)
    return sent


_DRAWN = "[This answer was pictures.]"


def _drawn(message: Mapping[str, Any]) -> list[Any]:
    match message:
        case {"role": "assistant", "content": list(parts)}:
            return [part for part in parts if _is_picture(part)]
    return []


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    for part in message["content"]:
        match part:
            case {"type": "text", "text": str(text)}:
                yield text


def _is_picture(part: Any) -> bool:
    match part:
        case {"type": "image_url"}:
            return True
    return False


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


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _shown_part(attached: _Attached) -> dict[str, Any]:
    data = attached.content.data
    if (type := type_of(data) or "") in PICTURES:
        return {"type": "image_url", "image_url": {"url": inline_url(type, data)}}
    return _text(wrapped(attached.name, text_in_file(data) or ""))


def _attached(part: Any) -> _Attached | None:
    data = _data_of(part)
    if not data.startswith("data:"):
        return None
    name = ""
    match part:
        case {"file": {"filename": str(given)}}:
            name = given
    if (content := read_inline(data)) is None:
        raise BadFile(name, "is not in base64. Its file_data is a data: URL: data:TYPE;base64,…")
    return _Attached(name, content, wants_pictures=part["file"].get(READ_AS) == "pictures")
