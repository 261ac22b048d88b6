"""Pictures and attached files of messages, kept once by their hash instead of inside each message.

A client sends a file as a data URL. A store keeps its bytes, and the message refers to them by their SHA-256. A model,
an export and a copy of a session get the data URL back: that of a picture character for character, that of an attached
file with the type that its bytes have. So a hash has one type, whoever sends the file.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..attachments.kinds import PICTURES, clean_name, inline_url, read_inline, type_of
from ..errors import BadRequest
from ..history import Message
from . import Store, StoredFile

REFERENCE = "holdfast-file:"
"""Prefix of a file's URL, before the SHA-256 of its file."""


class Parted(NamedTuple):
    """Messages with references in place of their files, and the files by their hashes."""

    messages: tuple[Message, ...]
    files: dict[str, StoredFile]


def take_out(messages: Sequence[Message]) -> Parted:
    """Take the files out of messages."""
    files: dict[str, StoredFile] = {}

    def refer(part: Any) -> Any:
        if (url := url_of(part)) is None:
            return part
        file = _as_picture(url) if part["type"] == "image_url" else _as_file(url)
        if file is None:
            return part
        sha256 = hashlib.sha256(file.data).hexdigest()
        files[sha256] = file
        return _with_clean_name(with_url(part, REFERENCE + sha256))

    return Parted(tuple(_with_parts(message, refer) for message in messages), files)


async def parted(messages: Sequence[Message]) -> Parted:
    """Take the files out of messages: in a thread, as the base64 of a photo would block the event loop."""
    return await asyncio.to_thread(take_out, messages) if has_inline(messages) else take_out(messages)


def put_back(messages: Sequence[Message], files: Mapping[str, StoredFile]) -> list[Message]:
    """Return the messages with their files as data URLs."""
    urls = {REFERENCE + sha256: inline_url(file.type, file.data) for sha256, file in files.items()}

    def insert(part: Any) -> Any:
        url = urls.get(url_of(part) or "")
        return part if url is None else with_url(part, url)

    return [_with_parts(message, insert) for message in messages]


def has_inline(messages: Sequence[Message]) -> bool:
    """Return whether a message has a picture or a file as a data URL."""
    return any(url.startswith("data:") for url in _urls(messages))


def referred_to(messages: Sequence[Message]) -> list[str]:
    """Return the hashes of the files that messages refer to."""
    found = (url.removeprefix(REFERENCE) for url in _urls(messages) if url.startswith(REFERENCE))
    return list(dict.fromkeys(found))


def refuse_unknown(messages: Sequence[Message], known: Container[str]) -> None:
    """Refuse a reference to a file of another session: a hash must not give access to the files of others."""
    for sha256 in referred_to(messages):
        if sha256 not in known:
            raise BadRequest(f"The chat has no file {sha256[:64]!r}. Send the file itself, as a data URL.")


async def check_references(store: Store, session_id: str, messages: Sequence[Message]) -> None:
    """Refuse a reference to a file that the session does not have, before anything is stored for the messages."""
    if named := referred_to(messages):
        refuse_unknown(messages, await store.read_files(session_id, named))


async def with_files(store: Store, session_id: str, messages: Sequence[Message]) -> list[Message]:
    """Return messages of a session with their files as data URLs: for a model, an export, a copy."""
    hashes = referred_to(messages)
    if not hashes:
        return list(messages)
    files = await store.read_files(session_id, hashes)
    return await asyncio.to_thread(put_back, messages, files)  # base64 of many megabytes


async def pictures_of(store: Store, session_id: str, messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the pictures of answers as data URLs."""
    return tuple(_urls(await with_files(store, session_id, messages)))


def _as_picture(url: str) -> StoredFile | None:
    """Return the picture of a data URL; None if it is no picture, or the same URL could not be made from it again."""
    found = read_inline(url)
    if found is None or found.type not in PICTURES or type_of(found.data) != found.type:
        return None
    return StoredFile(type=found.type, data=found.data) if inline_url(*found) == url else None


def _as_file(url: str) -> StoredFile | None:
    """Return the attached file of a data URL; None if it is of no type that is known by its bytes."""
    found = read_inline(url)
    type = None if found is None else type_of(found.data)
    return None if found is None or type is None else StoredFile(type=type, data=found.data)


def _urls(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        for part in message.content if isinstance(message.content, list) else ():
            if (url := url_of(part)) is not None:
                yield url


def _with_parts(message: Message, change: Callable[[Any], Any]) -> Message:
    """Return a message with changed parts; the same object if none changes."""
    if not isinstance(message.content, list):
        return message
    content = [change(part) for part in message.content]
    return message if content == message.content else replace(message, content=content)


def url_of(part: Any) -> str | None:
    """Return the URL of a picture, or of an attached file; None for other parts."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "file", "file": {"file_data": str(url)}}:
            return url
    return None


def with_url(part: dict[str, Any], url: str) -> dict[str, Any]:
    """Return a part that has a URL with another one."""
    kind = part["type"]
    return {**part, kind: {**part[kind], "url" if kind == "image_url" else "file_data": url}}


def _with_clean_name(part: dict[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "file", "file": {"filename": str(name)} as file}:
            return {**part, "file": {**file, "filename": clean_name(name)}}
    return part
