"""Adds the chats of an export to a store: each as a whole or not at all, none of them twice."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from ....attachments.kinds import PICTURES, clean_name, inline_url, type_of
from ....concurrency.limited_child import kill_child, limited, start_limited
from ....errors import BadRequest, HoldfastError
from ....history import Message, Session, title_from
from ....ids import ModelName, new_id
from ....store import Store
from ..filing.names import chat_folder, tag_names
from ..sessions.session_input import one_line
from ..sessions.session_transfer import as_imported, imported_time

ExportSource = Literal["chatgpt", "open-webui", "librechat"]

MOST_REFUSED = 100
"""Maximum number of refused chats that a report names. All of them are counted."""
_MEMORY = 2560 * 1024 * 1024
_SECONDS = 600  # of processor time
_LONGEST_LINE = 64 * 1024 * 1024
_LONGEST_SILENCE = 300.0  # seconds for one chat, on a busy machine
_PROGRAM = limited(
    "import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n",
    memory=_MEMORY,
    seconds=_SECONDS,
)
_CHILD, _FORMATS = (str(Path(__file__).with_name(name)) for name in ("child.py", "formats.py"))
_SKIPPED_TAGS = 20


class NoChats(BadRequest):
    """The file has no chats of a program that is known."""

    code = "no_chats"


class UnreadableExport(BadRequest):
    """The file cannot be read as an export."""

    code = "unreadable_export"


class RefusedChat(msgspec.Struct, frozen=True):
    """A chat, or a file of the export, that was not imported."""

    title: str
    why: str


class Report(msgspec.Struct, kw_only=True):
    """What became of the chats of an export until now."""

    found: int = 0
    added: int = 0
    known: int = 0
    """Those that were imported before."""
    empty: int = 0
    """Those without a message that can be shown."""
    refused: int = 0
    left_out: int = 0
    """Parts of the added chats that have no place here: calls of tools, and files that the export lacks."""
    refusals: list[RefusedChat] = []
    sources: list[ExportSource] = []


class _Part(msgspec.Struct, frozen=True):
    type: Literal["text", "asset"]
    text: str = ""
    name: str = ""
    base64: str = ""


class _ForeignMessage(msgspec.Struct, frozen=True):
    id: str
    role: Literal["user", "assistant"]
    parts: list[_Part]
    parent_id: str | None = None
    reasoning: str = ""
    model: str = ""
    partial: bool = False
    created_at: float | None = None


class _ForeignChat(msgspec.Struct, frozen=True):
    source: ExportSource
    id: str
    title: str
    messages: list[_ForeignMessage]
    head_id: str | None = None
    created_at: float | None = None
    archived: bool = False
    pinned: bool = False
    system: str = ""
    tags: list[str] = []
    folder: str = ""
    lost: int = 0


class _Line(msgspec.Struct, frozen=True):
    kind: Literal["chat", "refused", "other", "failed", "end"]
    chat: _ForeignChat | None = None
    title: str = ""
    why: str = ""


class ForeignImport:
    """One import. A chat's id follows from its owner and its content, so it is known when it is imported again."""

    def __init__(
        self,
        store: Store,
        owner: str,
        now: Callable[[], float],
        check_room: Callable[[], Awaitable[None]],
        on_added: Callable[[Session], None],
    ) -> None:
        self._store, self._owner, self._now = store, owner, now
        self._check_room, self._on_added = check_room, on_added
        self.report = Report()

    async def add_all(self, file: IO[bytes]) -> AsyncGenerator[Report]:
        """Add the chats of a file one after another, and yield the report after each."""
        child = await start_limited(_PROGRAM, _CHILD, _FORMATS, line_limit=_LONGEST_LINE, input=file)
        try:
            while (line := await self._line(child)).kind != "end":
                if line.kind == "failed":
                    raise UnreadableExport(line.why)
                await self._take(line)
                yield self.report
        finally:
            await kill_child(child)
        if not self.report.found:
            raise NoChats(
                "The file has no chats of ChatGPT, Open WebUI or LibreChat. Choose the ZIP or the JSON file that one "
                "of them has exported."
            )

    async def _line(self, child: asyncio.subprocess.Process) -> _Line:
        assert child.stdout is not None
        try:
            async with asyncio.timeout(_LONGEST_SILENCE):
                data = await child.stdout.readline()
            return await asyncio.to_thread(msgspec.json.decode, data, type=_Line)
        except (TimeoutError, ValueError, msgspec.DecodeError):
            raise UnreadableExport(
                "Reading the export took too much time or memory. Chats that were added before stay."
            ) from None

    async def _take(self, line: _Line) -> None:
        report = self.report
        if line.kind == "other":
            return
        report.found += 1
        if line.chat is None:
            return self._refuse(line.title, line.why)
        try:
            await self._add(line.chat)
        except (BadRequest, ValueError) as error:
            self._refuse(line.chat.title, str(error))

    def _refuse(self, title: str, why: str) -> None:
        self.report.refused += 1
        if len(self.report.refusals) < MOST_REFUSED:
            self.report.refusals.append(RefusedChat(one_line(title), why[:500]))

    async def _add(self, chat: _ForeignChat) -> None:
        report, id = self.report, await asyncio.to_thread(self._id, chat)
        if chat.source not in report.sources:
            report.sources.append(chat.source)
        if not chat.messages:
            report.empty += 1
        elif (found := await self._store.get_session(id)) is not None and found.owner == self._owner:
            report.known += 1
        else:
            await self._check_room()
            session, messages = await asyncio.to_thread(self._converted, chat, id)
            self._on_added(await self._store.copy_session(session, messages))
            report.added += 1
            report.left_out += chat.lost

    def _id(self, chat: _ForeignChat) -> str:
        digest = hashlib.sha256(msgspec.json.encode([self._owner, chat.source, chat.id, chat.messages]))
        return f"ses_{digest.hexdigest()[:40]}"

    def _converted(self, chat: _ForeignChat, id: str) -> tuple[Session, list[Message]]:
        now = self._now()
        messages = self._messages(chat, now)
        session = Session(
            id=id,
            owner=self._owner,
            title=one_line(chat.title) or title_from(messages[0].content),
            titled="person" if chat.title.strip() else "",
            system=chat.system or None,
            pinned=chat.pinned,
            archived=chat.archived,
            folder=_names(lambda: chat_folder(chat.folder), ""),
            tags=_names(lambda: tag_names(chat.tags[:_SKIPPED_TAGS]), ()),
        )
        return as_imported(session, messages, now), messages

    def _messages(self, chat: _ForeignChat, now: float) -> list[Message]:
        """Return the messages under new ids. The last one is the head."""
        ids = {message.id: new_id("msg") for message in chat.messages}
        ordered = sorted(chat.messages, key=lambda message: message.id == chat.head_id)
        return [
            Message(
                id=ids[message.id],
                parent_id=ids[message.parent_id] if message.parent_id is not None else None,
                role=message.role,
                content=_content(message),
                reasoning=message.reasoning or None,
                model=ModelName(message.model[:200]) if message.model else None,
                partial=message.partial,
                outcome=("interrupted" if message.partial else "completed") if message.role == "assistant" else None,
                created_at=imported_time(chat.created_at if message.created_at is None else message.created_at, now),
            )
            for message in ordered
        ]


def _content(message: _ForeignMessage) -> str | list[dict[str, Any]]:
    """Return the content of a message: a text, or parts if it has files. A response only names those but pictures."""
    parts = [_part(part, message.role) for part in message.parts]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _part(part: _Part, role: str) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    try:
        data = part.text.encode() if part.text else base64.b64decode(part.base64, validate=True)
    except ValueError:
        data = b""
    name, kind = clean_name(part.name), type_of(data) if data else None
    if kind is None or (role == "assistant" and kind not in PICTURES):
        return {"type": "text", "text": f"*[{name}: not imported]*"}
    if kind in PICTURES:
        return {"type": "image_url", "image_url": {"url": inline_url(kind, data)}}
    return {"type": "file", "file": {"filename": name, "file_data": inline_url(kind, data)}}


def _names(made: Callable[[], Any], instead: Any) -> Any:
    """Return names of a label; nothing in place of those that are not allowed here."""
    try:
        return made()
    except HoldfastError:
        return instead
