"""How an owner files chats: in folders, under tags, and in the archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ..errors import BadRequest
from ..history import Session

MOST_TAGS = 20
"""Maximum number of tags of a session."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions a list has. None stands for any."""

    folder: str | None = None
    """Empty for the sessions outside of folders."""
    tag: str | None = None
    archived: bool | None = None


ANY = Filter()


class Filing(msgspec.Struct, frozen=True, kw_only=True):
    """A change of how sessions are filed. None and () leave a field as it is. It is no change of the conversation."""

    folder: str | None = None
    """Empty to take the sessions out of their folders."""
    tags: tuple[str, ...] | None = None
    """All of their tags from then on; `add_tags` and `remove_tags` change these."""
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    archived: bool | None = None

    def of(self, session: Session) -> Session:
        """Return a session as it is filed after the change."""
        tags = (set(session.tags if self.tags is None else self.tags) | set(self.add_tags)) - set(self.remove_tags)
        if len(tags) > MOST_TAGS:
            raise BadRequest(f"A chat has {MOST_TAGS} tags at most.", param="tags")
        return replace(
            session,
            folder=session.folder if self.folder is None else self.folder,
            tags=tuple(sorted(tags)),
            archived=session.archived if self.archived is None else self.archived,
        )


class FilingLabels(msgspec.Struct, frozen=True, kw_only=True):
    """The folders and tags of an owner, each with its number of chats that are not archived. Also of archived ones."""

    folders: dict[str, int] = {}
    tags: dict[str, int] = {}
    archived: int = 0


class FilingStore(Protocol):
    """The methods of a store for folders, tags and the archive."""

    async def labels(self, owner: str) -> FilingLabels:
        """Return the folders and tags that the chats of an owner have. One that only archived chats have counts 0."""
        ...

    async def file_sessions(self, owner: str, ids: Sequence[str], filing: Filing) -> list[Session]:
        """File chats of an owner, all or none, and return them. Ids of others are left out. Their times of change stay.

        Feed: nothing, since readers of a shared session are not told how its owner files it.
        """
        ...


def unfiled(session: Session) -> Session:
    """Return a session as others see it: how it is filed is its owner's business."""
    return replace(session, pinned=False, folder="", tags=(), archived=False)
