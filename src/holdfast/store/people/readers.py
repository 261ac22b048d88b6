"""The readers of sessions: what each person has seen of a session, whoever owns it, and wants to hear of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from ...events import Outcome

Wanted = Literal["all", "needs_you", "none"]
"""What a person wants to be told of: every end and every question; only what needs them; nothing."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A session as one person knows it. Numbers are those of entries of its feed."""

    end: int
    """The newest entry."""
    seen: int = 0
    """The last entry that the person has seen, on any device. It only grows."""
    told: int = 0
    """The last entry that the person was told of, by a notification or by a page that was looked at. It only grows."""
    wanted: Wanted | None = None
    """What the person wants to be told of; None for what they have chosen for all sessions."""
    ended: int = 0
    """The last end of a run."""
    outcome: Outcome | None = None
    """How that run ended."""

    @property
    def unread(self) -> Outcome | None:
        """How the last run ended, if the person has not seen that."""
        return self.outcome if self.ended > self.seen else None


class ReaderStore(Protocol):
    """The methods of a store for what people have seen. It is deleted with the session."""

    async def note_reader(self, session_id: str, reader: str, *, seen: int = 0, told: int = 0) -> bool:
        """Move what a person has seen and was told of forward. Never backward, nor beyond the end. False: no change."""
        ...

    async def set_wanted(self, session_id: str, reader: str, wanted: Wanted | None) -> None:
        """Set what a person wants to be told of a session."""
        ...

    async def standings(self, reader: str, session_ids: Sequence[str]) -> dict[str, Standing]:
        """Return sessions as a person knows them, by their ids. Those that do not exist are left out."""
        ...

    async def read_by(self, reader: str, *, after: str = "", limit: int = 500) -> dict[str, Standing]:
        """Return what a person has read, by the ids of the sessions in their order, after one of them."""
        ...

    async def forget_reader(self, reader: str, limit: int = 500) -> int:
        """Delete what a person has seen of sessions, at most `limit` of them. Returns how many; 0 if none is left."""
        ...
