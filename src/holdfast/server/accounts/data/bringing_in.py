"""Bringing in the sessions of an archive: with new ids, each as a whole or not at all, and nothing is overwritten."""

from __future__ import annotations

import asyncio
import base64
import zipfile
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Any, Protocol

import msgspec
from msgspec.structs import replace

from ....errors import BadRequest
from ....history import Message, Session, title_from
from ....ids import new_id
from ....store.files import REFERENCE
from ...api.session_input import one_line
from ...api.session_transfer import ImportedMessage, imported_message
from ...budgets.caps import StorageFull
from ...request import System, check_size
from .archive import FORMAT, HEAD, PICTURES, SESSIONS, VERSION

LARGEST_ENTRY = 64 * 1024 * 1024
"""Maximum size of one session or picture of an archive, in bytes."""
MOST_PICTURES = 256 * 1024 * 1024
"""Maximum size of all pictures of one session, each as often as it is shown, in bytes."""
MOST_MESSAGES = 100_000
LARGEST_LIST = 32 * 1024 * 1024
"""Maximum size of the list of an archive's files, in bytes. All of it is in memory."""
MOST_IN_ALL = 8 * 1024 * 1024 * 1024
"""Maximum size of all that is read from an archive, in bytes: a small file can hold far more than its own size."""
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How files of an archive may be compressed. Of the other ways, Python unpacks a whole file at once."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)
_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


class SessionStore(Protocol):
    """What an import needs of a store."""

    async def copy_session(self, session: Session, messages: Sequence[Message]) -> Session:
        """Add a session together with messages."""
        ...


class BadArchive(BadRequest):
    """A file is no archive of a person's data."""

    code = "bad_archive"


class _Head(msgspec.Struct, frozen=True):
    format: str = ""
    version: int = 0


class _ArchivedMessage(ImportedMessage, frozen=True, kw_only=True):
    """A message of an archive, with its place in the tree."""

    id: str
    parent_id: str | None = None


class _ArchivedSession(msgspec.Struct, frozen=True):
    """A session of an archive, with all of its branches."""

    messages: list[_ArchivedMessage]
    kind: str = "chat"
    title: str = ""
    model: str | None = None
    system: System | None = None
    params: dict[str, Any] = {}
    pinned: bool = False
    head_id: str | None = None


class BroughtIn(msgspec.Struct):
    """How many sessions were brought in, and how many could not be, with the first reason."""

    sessions: int = 0
    refused: int = 0
    reason: str = ""
    ids: list[str] = []


class Importing:
    """Reads an archive from a file, and adds its chats to a store under an owner."""

    def __init__(
        self,
        file: IO[bytes],
        store: SessionStore,
        owner: str,
        now: Callable[[], float],
        *,
        check_room: Callable[[], Awaitable[None]] | None = None,
        most: int = MOST_IN_ALL,
    ) -> None:
        """Read the list of files, which blocks. `check_room` raises if the owner has stored as much as it may."""
        self._left = most
        self._check_room = check_room
        try:
            listed = _WithShortList(file)
            self._zip = zipfile.ZipFile(listed)
            listed.is_read = True
            head = msgspec.json.decode(self._read(HEAD), type=_Head)
        except (*_DAMAGE, KeyError, ValueError, msgspec.DecodeError) as error:
            raise BadArchive("The file is not an archive of a person's data, or it is not complete.") from error
        if head.format != FORMAT or head.version != VERSION:
            raise BadArchive(f"The archive has the version {head.version}. This server reads version {VERSION}.")
        self._names = self._zip.namelist()
        self._pictures = {name[len(PICTURES) :][:64]: name for name in self._names if name.startswith(PICTURES)}
        self._store = store
        self._owner = owner
        self._now = now
        self._room = 0
        """Bytes of pictures that the session which is being read may still have."""

    async def bring_in(self) -> BroughtIn:
        """Add the chats, one after the other. One that is invalid is left out, and counted."""
        result = BroughtIn()
        names = [name for name in self._names if name.startswith(SESSIONS)]
        for number, name in enumerate(names):
            try:
                if self._check_room is not None:
                    await self._check_room()
                made = await asyncio.to_thread(self._session, name)
            except (BadRequest, StorageFull) as error:
                is_full = isinstance(error, StorageFull)
                result.refused += len(names) - number if is_full else 1
                result.reason = result.reason or f"{name}: {error}"
                if is_full:
                    break
                continue
            if made is not None:
                result.ids.append((await self._store.copy_session(*made)).id)
                result.sessions += 1
        return result

    def _session(self, name: str) -> tuple[Session, list[Message]] | None:
        """Return a session of the archive under new ids; None for one that is no chat."""
        try:
            brought = msgspec.json.decode(self._read(name), type=_ArchivedSession)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadArchive(f"The session is not valid: {error}.") from None
        if brought.kind != "chat":
            return None  # a pane of a comparison is nothing without it
        check_size(brought.params)
        if len(brought.messages) > MOST_MESSAGES:
            raise BadArchive(f"A session has {MOST_MESSAGES} messages at most.")
        now, self._room = self._now(), MOST_PICTURES
        messages = self._messages(brought, now)
        session = Session(
            id=new_id("ses"),
            owner=self._owner,
            title=one_line(brought.title) or (title_from(messages[0].content) if messages else ""),
            model=brought.model,
            system=brought.system,
            params=brought.params,
            pinned=brought.pinned,
            head_id=messages[-1].id if messages else None,
            created_at=now,
            updated_at=now,
        )
        return session, messages

    def _messages(self, brought: _ArchivedSession, now: float) -> list[Message]:
        """Return the messages under new ids, the last one of the branch that was shown at the end."""
        ids: dict[str | None, str | None] = {None: None}
        messages: list[Message] = []
        for said in brought.messages:
            if said.id in ids:
                raise BadArchive(f"Two messages of the session have the id {said.id!r}.")
            if said.parent_id not in ids:
                raise BadArchive(f"The message {said.id!r} does not follow one that is before it.")
            id = ids[said.id] = new_id("msg")
            message = replace(imported_message(said, now), id=id, parent_id=ids[said.parent_id])
            messages.append(self._with_pictures(message))
        return sorted(messages, key=lambda message: message.id == ids.get(brought.head_id))

    def _with_pictures(self, message: Message) -> Message:
        """Put the pictures of the archive in the place of references to them."""
        if not isinstance(message.content, list):
            return message
        return replace(message, content=[self._with_picture(part) for part in message.content])

    def _with_picture(self, part: Any) -> Any:
        match part:
            case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith(REFERENCE):
                return {**part, "image_url": {**part["image_url"], "url": self._url(url.removeprefix(REFERENCE))}}
            case _:
                return part

    def _url(self, sha256: str) -> str:
        if (name := self._pictures.get(sha256)) is None:
            raise BadArchive(f"The archive lacks the picture {sha256[:64]!r}.")
        data = self._read(name)
        self._room -= len(data)
        if self._room < 0:
            raise BadArchive(f"The pictures of a session have {MOST_PICTURES} bytes at most.")
        kind = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
        return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"

    def _read(self, name: str) -> bytes:
        """Return a file of the archive, whatever size it claims to have."""
        if self._left <= 0:
            raise BadArchive("The archive has more in it than can be brought in at once.")
        if self._zip.getinfo(name).compress_type not in _READABLE:
            raise BadArchive(f"{name} is compressed in a way that is not accepted: deflate is.")
        try:
            with self._zip.open(name) as entry:
                data = entry.read(LARGEST_ENTRY + 1)
        except _DAMAGE as error:
            raise BadArchive(f"{name} is damaged: {error}.") from None
        self._left -= len(data)
        if len(data) > LARGEST_ENTRY:
            raise BadArchive(f"{name} is larger than {LARGEST_ENTRY} bytes.")
        return data


class _WithShortList:
    """A file whose list of files is refused if it is too long: `ZipFile` reads it at once, before anything else."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.is_read = False
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > LARGEST_LIST and not self.is_read:
            raise BadArchive("The archive has too many files.")
        return self._file.read(size)
