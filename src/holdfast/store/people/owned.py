"""All data of one owner in a store: to export it, to delete it, and to delete old sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class OwnedStore(Protocol):
    """The methods of a store for all data of one owner, of every feature."""

    async def sessions_of(self, owner: str, *, after: str = "", limit: int = 100) -> list[str]:
        """Return the ids of an owner's sessions of every kind, in their order; `after` is the last one seen."""
        ...

    async def old_sessions(
        self, before: float, limit: int = 100, *, of: Sequence[str] | None = None, besides: Sequence[str] = ()
    ) -> list[tuple[str, str]]:
        """Return id and owner of chats that are not pinned and have not come or changed since a time, the oldest first.

        `of` are their owners; None for all but those in `besides`.
        """
        ...

    async def delete_documents_of(self, owner: str, limit: int = 100) -> int:
        """Delete documents of an owner, at most `limit`. Returns how many; 0 if none is left."""
        ...

    async def disown_usage(self, owner: str) -> int:
        """Remove an owner and the keys from their usage: it counts for the owner "" from then on, in all sums.

        Returns the number of changed entries.
        """
        ...

    async def forget_words(self, *, begin: bool) -> bool:
        """Remove the words of deleted sessions from the search index, a part in each call; False at the end.

        `begin` starts it. An index may keep words of deleted messages until it is reorganised.
        """
        ...

    async def forget_keys(self, account: str) -> int:
        """Remove the data about a person from revoked keys: name, owner, account, limits. Returns the number of keys.

        The digests stay, so that such a key cannot be added a second time.
        """
        ...
