"""The import of the chats and comparisons of an archive: with new ids, all or nothing, nothing is overwritten."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from ....attachments.kinds import ENDINGS, inline_url
from ....compare.model import DOCUMENT, Comparison
from ....errors import BadRequest
from ....history import Figures, Message, Session
from ....ids import new_id
from ....store import Store
from ....store.documents import Documents
from ....store.files import REFERENCE, url_of, with_url
from ...kit.request import check_size
from ..importing.zips import MOST_IN_ALL, BoundedZip, ZipRefused
from ..sessions.session_transfer import ImportedMessage, ImportedSession, imported_message, imported_session
from .archive import FILES, FORMAT, HEAD, SESSIONS, VERSION, safe_name
from .archived_comparisons import COMPARISONS, NewIdFor, checked_comparison, moved, sessions_of

LARGEST_ENTRY = 64 * 1024 * 1024
"""Maximum size of one session or file of an archive, in bytes."""
MOST_FILES = 256 * 1024 * 1024
"""Maximum size of all files of one session, in bytes. A file counts each time it occurs."""
MOST_MESSAGES = 100_000
_TYPES = {ending: type for type, ending in ENDINGS.items()}


class BadArchive(BadRequest):
    """The file is not an archive of a person's data."""

    code = "bad_archive"


class _Head(msgspec.Struct, frozen=True):
    format: str = ""
    version: int = 0


class _ArchivedMessage(ImportedMessage, frozen=True, kw_only=True):
    """A message of an archive, with its place in the tree. Names of authors are left out: they can be forged."""

    id: str
    parent_id: str | None = None
    run_id: str | None = None
    figures: Figures | None = None


class _ArchivedSession(ImportedSession, frozen=True):
    """A session of an archive, with all of its branches."""

    messages: Sequence[_ArchivedMessage]
    id: str = ""
    kind: str = "chat"
    pinned: bool = False
    archived: bool = False
    head_id: str | None = None


_Chat = tuple[Session, list[Message]]


class BroughtIn(msgspec.Struct):
    """The result of an import: numbers of new and of known chats and comparisons, and the error if it is invalid."""

    sessions: int = 0
    comparisons: int = 0
    known: int = 0
    refused: int = 0
    """Number of invalid chats and comparisons. If there is one, nothing is imported."""
    reason: str = ""
    """The error of the first of them."""
    added: list[Session] = []
    """The chats, and the sessions of the panes of comparisons."""
    compared: list[str] = []
    """The ids of the comparisons."""


@dataclass(frozen=True)
class _NewComparison:
    """A comparison to add, with the sessions of its panes."""

    comparison: Comparison
    panes: list[_Chat]


class _Known:
    """An object that the owner already has."""


class Importing:
    """Reads an archive from a file, and adds its chats and comparisons to a store for an owner: all or nothing.

    An added object gets an id from the owner, its old id and its content. So it is recognised when it is imported
    again, and a chat with new messages is imported as another one.
    """

    def __init__(
        self,
        file: IO[bytes],
        store: Store,
        owner: str,
        now: Callable[[], float],
        *,
        check_room: Callable[[], Awaitable[None]] | None = None,
        most: int = MOST_IN_ALL,
    ) -> None:
        """Read the list of files, which blocks. `check_room` raises if the owner's storage quota is used up."""
        self._most = most
        self._check_room = check_room
        try:
            self._zip = BoundedZip(file, most)
            head = msgspec.json.decode(self._read(HEAD), type=_Head)
        except ZipRefused as error:
            raise BadArchive(str(error)) from error
        except (KeyError, ValueError, msgspec.DecodeError) as error:
            raise BadArchive("The file is not an archive of a person's data, or it is not complete.") from error
        if head.format != FORMAT or head.version != VERSION:
            raise BadArchive(f"The archive has the version {head.version}. This server reads version {VERSION}.")
        self._names = self._zip.names
        self._files = {name[len(FILES) :][:64]: name for name in self._names if name.startswith(FILES)}
        self._store = store
        self._comparisons = Documents(store, DOCUMENT, Comparison, now=now)
        self._owner = owner
        self._now = now
        self._room = 0
        """Bytes that are left for files of the current session."""

    async def bring_in(self, *, dry_run: bool = False) -> BroughtIn:
        """Read everything, and then add it. A `dry_run` only reads, and returns the error instead of raising it."""
        result = await self._look_through()
        if dry_run:
            return result
        if result.refused:
            raise BadArchive(f"Nothing was brought in. {result.reason}")
        self._zip.left = self._most
        added = BroughtIn(known=result.known)
        try:
            async for item in self._items():
                await self._add(item, added)
        except BaseException:
            await self._undo(added)
            raise
        return added

    async def _look_through(self) -> BroughtIn:
        """Count the objects to add, and the invalid ones."""
        result = BroughtIn()
        await self._require_room()
        for name in self._wanted():
            try:
                item = await self._item(name)
            except BadRequest as error:
                result.refused += 1
                result.reason = result.reason or f"{name}: {error}"
                continue
            if isinstance(item, _Known):
                result.known += 1
            elif isinstance(item, tuple):
                result.sessions += 1
            elif item is not None:
                result.comparisons += 1
        return result

    async def _items(self) -> AsyncGenerator[_Chat | _NewComparison]:
        """Yield the new objects of the archive."""
        for name in self._wanted():
            item = await self._item(name)
            if item is not None and not isinstance(item, _Known):
                yield item

    def _wanted(self) -> list[str]:
        return [name for name in self._names if name.startswith((SESSIONS, COMPARISONS))]

    async def _item(self, name: str) -> _Chat | _NewComparison | _Known | None:
        """Return the object in a file of the archive; None if it is not imported by itself, or was still running."""
        if name.startswith(COMPARISONS):
            return await self._comparison(name)
        brought, data = await asyncio.to_thread(self._archived, name)
        if brought.kind != "chat":
            return None  # a pane is imported with its comparison
        id = self._id("ses", brought.id or name, data)
        if await self._is_own(brought.id) or await self._is_own(id):
            return _Known()
        return await asyncio.to_thread(self._session, brought, id)

    async def _comparison(self, name: str) -> _NewComparison | _Known | None:
        data = await asyncio.to_thread(self._read, name)
        if (comparison := checked_comparison(data)) is None:
            return None

        def new(kind: str, id: str) -> str:
            return self._id(kind, id, data)

        self._room = MOST_FILES
        after = await asyncio.to_thread(moved, comparison, self._owner, new, self._with_file)
        for id in (comparison.id, after.id):
            if await self._comparisons.get(id, owner=self._owner) is not None:
                return _Known()
        there = {id: f"{SESSIONS}{safe_name(id)}.json" for id in sessions_of(comparison)}
        panes = [
            await asyncio.to_thread(self._pane, entry, new("ses", id), new)
            for id, entry in there.items()
            if entry in self._names
        ]
        return _NewComparison(after, panes)

    async def _is_own(self, session_id: str) -> bool:
        found = await self._store.get_session(session_id)
        return found is not None and found.owner == self._owner

    def _id(self, kind: str, id: str, data: bytes) -> str:
        named = "\n".join((self._owner, id, hashlib.sha256(data).hexdigest()))
        return f"{kind}_{hashlib.sha256(named.encode('utf-8', 'replace')).hexdigest()[:40]}"

    async def _add(self, item: _Chat | _NewComparison, result: BroughtIn) -> None:
        await self._require_room()
        for session, messages in [item] if isinstance(item, tuple) else item.panes:
            await self._store.copy_session(session, messages)
            result.added.append(session)
        if isinstance(item, tuple):
            result.sessions += 1
        else:
            await self._comparisons.put(item.comparison.id, item.comparison, owner=self._owner)
            result.comparisons += 1
            result.compared.append(item.comparison.id)

    async def _undo(self, result: BroughtIn) -> None:
        """Delete the objects that a failed import has added, unless another import added them, or they have changed."""
        for id in result.compared:
            await self._comparisons.delete(id)
        for session in result.added:
            if await self._store.get_session(session.id) == session:
                await self._store.delete_session(session.id)

    async def _require_room(self) -> None:
        if self._check_room is not None:
            await self._check_room()

    def _archived(self, name: str) -> tuple[_ArchivedSession, bytes]:
        data = self._read(name)
        try:
            brought = msgspec.json.decode(data, type=_ArchivedSession)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadArchive(f"The session is not valid: {error}.") from None
        check_size(brought.params)
        if len(brought.messages) > MOST_MESSAGES:
            raise BadArchive(f"A session has {MOST_MESSAGES} messages at most.")
        return brought, data

    def _pane(self, name: str, id: str, new: NewIdFor) -> _Chat:
        """Return the session of a pane. Its messages have the ids of their runs, by which the comparison finds them."""
        brought, _ = self._archived(name)
        session, messages = self._session(brought, id)
        runs = [archived.run_id and new("run", archived.run_id) for archived in self._in_order(brought)]
        messages = [replace(message, run_id=run) for message, run in zip(messages, runs, strict=True)]
        return replace(session, kind="pane", title="", pinned=False), messages

    def _session(self, brought: _ArchivedSession, id: str) -> _Chat:
        """Return a session of the archive under its new id."""
        now, self._room = self._now(), MOST_FILES
        messages = self._messages(brought, now)
        session = imported_session(brought, messages, id, self._owner, now)
        return replace(session, pinned=brought.pinned, archived=brought.archived), messages

    @staticmethod
    def _in_order(brought: _ArchivedSession) -> list[_ArchivedMessage]:
        """Return the messages in an order that ends with the head of the current branch."""
        return sorted(brought.messages, key=lambda archived: archived.id == brought.head_id)

    def _messages(self, brought: _ArchivedSession, now: float) -> list[Message]:
        """Return the messages under new ids, with their original times and figures."""
        ids: dict[str | None, str | None] = {None: None}
        messages: dict[str, Message] = {}
        for archived in brought.messages:
            if archived.id in ids:
                raise BadArchive(f"Two messages of the session have the id {archived.id!r}.")
            if archived.parent_id not in ids:
                raise BadArchive(f"The message {archived.id!r} does not follow one that is before it.")
            id = ids[archived.id] = new_id("msg")
            message = imported_message(archived, now)
            message = replace(message, id=id, parent_id=ids[archived.parent_id], figures=archived.figures)
            messages[archived.id] = self._with_files(message)
        return [messages[archived.id] for archived in self._in_order(brought)]

    def _with_files(self, message: Message) -> Message:
        """Replace references by the files of the archive."""
        if not isinstance(message.content, list):
            return message
        return replace(message, content=[self._with_file(part) for part in message.content])

    def _with_file(self, part: Any) -> Any:
        url = url_of(part) or ""
        return with_url(part, self._url(url.removeprefix(REFERENCE))) if url.startswith(REFERENCE) else part

    def _url(self, sha256: str) -> str:
        if (name := self._files.get(sha256)) is None:
            raise BadArchive(f"The archive lacks the file {sha256[:64]!r}.")
        data = self._read(name)
        self._room -= len(data)
        if self._room < 0:
            raise BadArchive(f"The files of a session have {MOST_FILES} bytes at most.")
        kind = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
        return inline_url(kind, data)

    def _read(self, name: str) -> bytes:
        """Return the contents of a file."""
        try:
            return self._zip.read(name, LARGEST_ENTRY)
        except ZipRefused as error:
            raise BadArchive(str(error)) from None
