"""`/api/labels`, and what is done to several sessions in one call: they are filed, or deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....engine.core import Core
from ....errors import HoldfastError
from ....history import Session
from ....store import Store
from ....store.filing import Filing, Filter
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ...kit.request import Bodies, decode
from ..audit.audit import note_of
from .names import chat_folder, tag_names

MOST_AT_ONCE = 200
"""Maximum number of sessions in one call."""

Chosen = Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_AT_ONCE)]
Delete = Callable[[str, str], Awaitable[None]]
"""Deletes a session, by its id and its owner, with everything that belongs to it."""


class FileSessions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How some sessions are filed from then on. What is left out stays."""

    sessions: Chosen
    folder: str | None = None
    """The name of a folder; empty for none."""
    add_tags: list[str] = []
    remove_tags: list[str] = []
    archived: bool | None = None

    def filing(self) -> Filing:
        """Return the change, with the names as they are stored."""
        return Filing(
            folder=None if self.folder is None else chat_folder(self.folder),
            add_tags=tag_names(self.add_tags, "add_tags"),
            remove_tags=tag_names(self.remove_tags, "remove_tags"),
            archived=self.archived,
        )


class DeleteSessions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sessions to delete."""

    sessions: Chosen


class RenameLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder or a tag with its new name. Without one it is removed from its sessions, which stay."""

    kind: Literal["folder", "tag"]
    name: str
    to: str = ""

    def names_another(self) -> bool:
        """Return whether anything changes: names that are stored as the same one are no two names."""
        stored = chat_folder(self.to) if self.kind == "folder" else "".join(tag_names([self.to], "to"))
        return self.name not in ("", stored)

    def filter(self) -> Filter:
        """Return which sessions have it."""
        return Filter(folder=self.name) if self.kind == "folder" else Filter(tag=self.name)

    def filing(self) -> Filing:
        """Return what changes in them."""
        if self.kind == "folder":
            return Filing(folder=chat_folder(self.to))
        return Filing(add_tags=tag_names([self.to], "to"), remove_tags=(self.name,))


class Label(msgspec.Struct, frozen=True):
    """A folder or a tag, and the number of chats that have it and are not archived."""

    name: str
    sessions: int


class Labelled(msgspec.Struct, frozen=True):
    """The folders and tags of an owner, and the number of archived chats."""

    folders: list[Label]
    tags: list[Label]
    archived: int


class NotDeleted(msgspec.Struct, frozen=True):
    """A session that could not be deleted, and why."""

    id: str
    code: str
    message: str


class Deleted(msgspec.Struct, frozen=True):
    """What became of the sessions that were to be deleted. Missing: those that are not there."""

    deleted: list[str]
    missing: list[str]
    failed: list[NotDeleted]


class FilingApi(Feature):
    """Folders, tags, the archive, and several sessions at once."""

    def __init__(self, bodies: Bodies, engine: Core, store: Store, delete: Delete) -> None:
        self._bodies, self._engine, self._store, self._delete = bodies, engine, store, delete

    @Endpoint("GET", "/api/labels", who=READ)
    async def get_labels(self, request: Request) -> ASGIApp:
        """Return the caller's folders and tags, and the number of archived chats."""
        found = await self._store.labels(owner_of(request))
        folders, tags = ([Label(*each) for each in labels.items()] for labels in (found.folders, found.tags))
        return Json(Labelled(folders, tags, found.archived))

    @Endpoint("POST", "/api/labels/rename", who=CHAT, takes=RenameLabel, stores=False)
    async def rename_label(self, request: Request) -> ASGIApp:
        """Rename a folder or a tag in all of the caller's sessions, or remove it from them. No session is deleted."""
        body = decode(await self._bodies.read(request), RenameLabel)
        owner, filing, changed = owner_of(request), body.filing(), 0
        if not body.names_another():
            return Json({"sessions": 0})
        while page := await self._store.list_sessions(owner, limit=MOST_AT_ONCE, filter=body.filter()):
            filed = await self._file([session.id for session in page], owner, filing)
            changed += len(filed)
            if not filed:
                break  # all of them were deleted meanwhile
        return Json({"sessions": changed})

    @Endpoint(
        "POST",
        "/api/sessions/file",
        who=CHAT,
        takes=FileSessions,
        stores=False,
        answers={400: "bad input: nothing was changed"},
    )
    async def file_sessions(self, request: Request) -> ASGIApp:
        """Move sessions to a folder, change their tags, archive them or take them out: all or none of those there."""
        body = decode(await self._bodies.read(request), FileSessions)
        filed = [session.id for session in await self._file(body.sessions, owner_of(request), body.filing())]
        return Json({"filed": filed, "missing": _besides(body.sessions, filed)})

    async def _file(self, ids: list[str], owner: str, filing: Filing) -> list[Session]:
        filed = await self._store.file_sessions(owner, ids, filing)
        for session in filed:
            self._engine.touch(session.id, owner)
        return filed

    @Endpoint("POST", "/api/sessions/delete", who=CHAT, takes=DeleteSessions, audit="session.delete", stores=False)
    async def delete_sessions(self, request: Request) -> ASGIApp:
        """Stop the runs of sessions and delete them, one after another. The answer says what became of each."""
        body = decode(await self._bodies.read(request), DeleteSessions)
        owner, deleted, failed = owner_of(request), list[str](), list[NotDeleted]()
        for id in dict.fromkeys(body.sessions):
            session = await self._store.get_session(id)
            if session is None or session.owner != owner or session.kind != "chat":
                continue
            try:
                await self._delete(id, owner)
            except HoldfastError as error:
                failed.append(NotDeleted(id, error.code, str(error)))
            else:
                deleted.append(id)
        note_of(request).details = {"sessions": " ".join(deleted)}
        missing = _besides(body.sessions, [*deleted, *(each.id for each in failed)])
        return Json(Deleted(deleted, missing, failed))


def _besides(ids: list[str], known: list[str]) -> list[str]:
    """Return the ids that are not known, each once, in their order."""
    return [id for id in dict.fromkeys(ids) if id not in set(known)]
