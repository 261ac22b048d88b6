"""Pictures of messages, kept once by their hash instead of inside each message.

A client sends a picture as a data URL. A store keeps its bytes as a file, and the message refers to the file by its
SHA-256. A model, an export and a copy of a session get the data URL back, character for character.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..errors import BadRequest
from ..history import Message
from . import Store, StoredFile

REFERENCE = "holdfast-file:"
"""Prefix of a picture's URL, before the SHA-256 of its file."""

_BASE64 = ";base64,"
_BEGINNINGS: Mapping[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
"""The first bytes of a file of each type. Other types stay in their message, such as SVG, which can contain scripts."""


class Parted(NamedTuple):
    """Messages with references in place of their pictures, and the pictures by their hashes."""

    messages: tuple[Message, ...]
    files: dict[str, StoredFile]


def take_out(messages: Sequence[Message]) -> Parted:
    """Take the pictures out of messages."""
    files: dict[str, StoredFile] = {}

    def refer(url: str) -> str:
        file = _as_file(url)
        if file is None:
            return url
        sha256 = hashlib.sha256(file.data).hexdigest()
        files[sha256] = file
        return REFERENCE + sha256

    return Parted(tuple(_with_urls(message, refer) for message in messages), files)


async def parted(messages: Sequence[Message]) -> Parted:
    """Take the pictures out of messages: in a thread, as the base64 of a photo would block the event loop."""
    return await asyncio.to_thread(take_out, messages) if has_pictures(messages) else take_out(messages)


def put_back(messages: Sequence[Message], files: Mapping[str, StoredFile]) -> list[Message]:
    """Return the messages with their pictures as data URLs."""
    urls = {REFERENCE + sha256: _as_url(file) for sha256, file in files.items()}
    return [_with_urls(message, lambda url: urls.get(url, url)) for message in messages]


def has_pictures(messages: Sequence[Message]) -> bool:
    """Return whether a message has a picture as a data URL."""
    return any(url.startswith("data:") for url in _urls(messages))


def referred_to(messages: Sequence[Message]) -> list[str]:
    """Return the hashes of the files that messages refer to."""
    found = (url.removeprefix(REFERENCE) for url in _urls(messages) if url.startswith(REFERENCE))
    return list(dict.fromkeys(found))


def refuse_unknown(messages: Sequence[Message], known: Container[str]) -> None:
    """Refuse a reference to a file of another session: a hash must not give access to the pictures of others."""
    for sha256 in referred_to(messages):
        if sha256 not in known:
            raise BadRequest(f"The chat has no picture {sha256[:64]!r}. Send the picture itself, as a data URL.")


async def check_references(store: Store, session_id: str, messages: Sequence[Message]) -> None:
    """Refuse a reference to a picture that the session does not have, before anything is stored for the messages."""
    if named := referred_to(messages):
        refuse_unknown(messages, await store.read_files(session_id, named))


async def with_pictures(store: Store, session_id: str, messages: Sequence[Message]) -> list[Message]:
    """Return messages of a session with their pictures as data URLs: for a model, an export, a copy."""
    hashes = referred_to(messages)
    if not hashes:
        return list(messages)
    files = await store.read_files(session_id, hashes)
    return await asyncio.to_thread(put_back, messages, files)  # base64 of many megabytes


def _as_file(url: str) -> StoredFile | None:
    """Return the picture of a data URL; None if it is no picture, or the same URL could not be made from it again."""
    type, found, text = url.removeprefix("data:").partition(_BASE64)
    if not found or not url.startswith("data:") or type not in _BEGINNINGS:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    file = StoredFile(type=type, data=data)
    return file if data.startswith(_BEGINNINGS[type]) and _as_url(file) == url else None


def _as_url(file: StoredFile) -> str:
    return f"data:{file.type}{_BASE64}{base64.b64encode(file.data).decode('ascii')}"


def _urls(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        for part in message.content if isinstance(message.content, list) else ():
            if (url := _url_of(part)) is not None:
                yield url


def _with_urls(message: Message, change: Callable[[str], str]) -> Message:
    """Return a message with changed URLs of its pictures; the same object if none changes."""
    if not isinstance(message.content, list):
        return message
    content = [_with_url(part, change) for part in message.content]
    return message if content == message.content else replace(message, content=content)


def _with_url(part: Any, change: Callable[[str], str]) -> Any:
    url = _url_of(part)
    return part if url is None else {**part, "image_url": {**part["image_url"], "url": change(url)}}


def _url_of(part: Any) -> str | None:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return url
        case _:
            return None
