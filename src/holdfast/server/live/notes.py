"""The notes of providers, as documents of the store: every node finds them, after a crash too."""

from __future__ import annotations

import msgspec

from ...store import Store
from ...store.documents import Documents


class KeptNote(msgspec.Struct, frozen=True):
    """A short text."""

    text: str


class StoredNotes:
    """Keeps short texts of providers in the store."""

    def __init__(self, store: Store) -> None:
        self._documents = Documents(store, "note", KeptNote)

    async def keep(self, name: str, text: str) -> None:
        """Keep a text under a name. One that is there already stays."""
        await self._documents.get_or_create(name, KeptNote(text))

    async def find(self, name: str) -> str | None:
        """Return the text of a name; None if there is none."""
        found = await self._documents.get(name)
        return None if found is None else found.body.text

    async def drop(self, name: str) -> None:
        """Delete a text."""
        await self._documents.delete(name)
