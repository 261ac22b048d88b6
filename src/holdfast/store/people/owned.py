"""What one owner has in a store, of every kind: to export it, to delete it, and to let old sessions go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class OwnedStore(Protocol):
    """The methods of a store that reach all that one owner has, whichever feature has made it."""

    async def sessions_of(self, owner: str, *, after: str = "", limit: int = 100) -> list[str]:
        """Return the ids of an owner's sessions of every kind, in their order; `after` is the last one seen."""
        ...

    async def old_sessions(
        self, before: float, limit: int = 100, *, of: Sequence[str] | None = None, besides: Sequence[str] = ()
    ) -> list[tuple[str, str]]:
        """Return id and owner of chats that are not pinned and have not changed since a time, the oldest first.

        `of` are their owners; None for all, besides some.
        """
        ...

    async def delete_documents_of(self, owner: str, limit: int = 100) -> int:
        """Delete documents of an owner, at most `limit`. Returns how many; 0 if none is left."""
        ...

    async def delete_usage_of(self, owner: str) -> int:
        """Delete what an owner has used, by key, model and day. Sums of groups stay. Returns how many rows it had."""
        ...

    async def forget_words(self, *, begin: bool) -> bool:
        """Remove the words of deleted sessions from the search index, some of it in each call; False at the end.

        `begin` starts it. An index may keep words of what was deleted until it is reorganised.
        """
        ...

    async def forget_keys(self, account: str) -> int:
        """Remove all that revoked keys say about a person: name, owner, account, limits. Their digests stay.

        So no one can add such a key a second time. Returns how many there were.
        """
        ...
