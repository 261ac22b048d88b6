"""Uploads: files that a person has sent ahead of a message, for a day. Only their owner can refer to them.

The bytes are in a hidden session, like those of every other file, so that they are kept once by their hash, count as
stored bytes, and are deleted with all data of their owner. A document says until when.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ....attachments.kinds import inline_url
from ....attachments.reading import Inspected, have_only_texts
from ....errors import BadRequest, Conflict, NotFound
from ....history import Message, Session
from ....ids import new_id
from ....store import Store
from ....store.documents import Documents, Stored
from ....store.files import REFERENCE, url_of, with_url

SECONDS_KEPT = 86400.0
"""Seconds for which a file without a message is kept."""
MOST_UPLOADS = 500
"""Maximum number of files of an owner that wait for a message."""
KIND = "upload"
"""Of the documents, and of the hidden sessions."""


class Upload(msgspec.Struct, frozen=True):
    """A file that waits for its message."""

    file: Inspected


class TooManyUploads(Conflict):
    """The owner has reached the maximum number of files without a message."""

    code = "too_many_uploads"
    message = f"{MOST_UPLOADS} of your files wait for a message. Send or remove some, or wait for a day."


class Uploads:
    """The uploads of all owners."""

    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        self._store, self._now = store, now
        self._all = Documents(store, KIND, Upload, now=now)

    async def keep(self, owner: str, file: Inspected, data: bytes) -> Stored[Upload]:
        """Keep a file for a day from now."""
        if len(await self._all.page(owner=owner, limit=MOST_UPLOADS)) >= MOST_UPLOADS:
            raise TooManyUploads
        id, now = _id(owner, file.sha256), self._now()
        await self._all.exchange(id, Upload(file), owner=owner)
        part = {"type": "file", "file": {"filename": file.name, "file_data": inline_url(file.type, data)}}
        session = Session(id=id, owner=owner, kind=KIND, created_at=now, updated_at=now)
        await self._store.copy_session(session, [Message(id=new_id("msg"), role="user", content=[part])])
        stored = await self._all.get(id)
        if stored is None:
            raise NotFound("The file was removed while it was sent. Send it again.")
        return stored

    async def remove(self, owner: str, sha256: str) -> None:
        """Delete an upload of an owner. Messages that refer to the file keep it."""
        if await self._all.get(_id(owner, sha256), owner=owner) is None:
            raise NotFound(f"You have not uploaded a file {sha256[:64]!r}.")
        await self._delete(_id(owner, sha256))

    async def delete_old(self) -> None:
        """Delete what no message has needed for a day."""
        before = self._now() - SECONDS_KEPT
        for id in [stored.id async for stored in self._all.all() if stored.updated_at < before]:
            await self._delete(id)

    async def _delete(self, id: str) -> None:
        await self._store.delete_session(id)
        await self._all.delete(id)

    async def brought(self, owner: str, messages: Sequence[Message]) -> list[Message]:
        """Return messages with the owner's uploads as data URLs. Other references stay: a session may have them."""
        urls = await self._urls(owner, [message.content for message in messages])
        return [
            msgspec.structs.replace(message, content=_filled(message.content, urls)) if urls else message
            for message in messages
        ]

    async def brought_in(self, owner: str, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Do the same with messages in OpenAI's shape, which have no session: other references are refused."""
        if have_only_texts(messages):
            return list(messages)
        contents = [message["content"] for message in messages if "content" in message]
        urls = await self._urls(owner, contents)
        for url in (url for content in contents for url in references_in(content)):
            if url not in urls:
                sha256 = url.removeprefix(REFERENCE)[:64]
                raise BadRequest(
                    f"You have not uploaded a file {sha256!r}. Send it to POST /api/files, or as a data URL."
                )
        return [{**said, "content": _filled(said["content"], urls)} if "content" in said else said for said in messages]

    async def _urls(self, owner: str, contents: Sequence[Any]) -> dict[str, str]:
        urls: dict[str, str] = {}
        for url in dict.fromkeys(url for content in contents for url in references_in(content)):
            sha256 = url.removeprefix(REFERENCE)
            id = _id(owner, sha256)
            if await self._all.get(id, owner=owner) is not None:
                found = await self._store.read_files(id, [sha256])
                for file in found.values():
                    urls[url] = inline_url(file.type, file.data)
        return urls


def references_in(content: Any) -> Iterator[str]:
    """Yield the references to stored files in a message's content."""
    for part in content if isinstance(content, list) else ():
        if (url := url_of(part)) is not None and url.startswith(REFERENCE):
            yield url


def _filled(content: Any, urls: dict[str, str]) -> Any:
    if not isinstance(content, list):
        return content
    return [with_url(part, urls[url]) if (url := url_of(part)) in urls else part for part in content]


def _id(owner: str, sha256: str) -> str:
    """Return the id of an owner's upload. Nobody else's has it, whatever the bytes are."""
    return "upl_" + hashlib.sha256(f"{owner}\n{sha256}".encode()).hexdigest()[:40]
