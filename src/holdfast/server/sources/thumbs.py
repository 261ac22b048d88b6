"""Thumbs: what a person thinks of one answer of a chat. Each answer has one vote of its chat's owner at most.

They count beside the votes of comparisons, and never as ratings: nobody has compared the answer with another one.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from ...store import Store
from ...store.documents import Documents

ThumbVote = Literal["up", "down"]
MOST_WORDS = 2_000
"""Maximum number of characters of the reason of a vote."""


class Thumb(msgspec.Struct, frozen=True, kw_only=True):
    """A vote on an answer."""

    session_id: str
    message_id: str
    run_id: str | None
    model: str
    vote: ThumbVote
    why: str = ""


def thumbs_in(store: Store) -> Documents[Thumb]:
    """Return the thumbs of all owners."""
    return Documents(store, "thumb", Thumb)


def thumb_id(session_id: str, message_id: str) -> str:
    """Return the id of the vote on a message."""
    return f"thb_{hashlib.sha256(f'{session_id} {message_id}'.encode()).hexdigest()[:40]}"


async def forget_thumbs(store: Store, owner: str, session_id: str) -> None:
    """Delete the votes on the answers of a deleted session."""
    thumbs = thumbs_in(store)
    for thumb in [each async for each in thumbs.all(owner=owner)]:
        if thumb.body.session_id == session_id:
            await thumbs.delete(thumb.id)
