"""The settings of the UI in a store that several servers share: one document, sealed for its id and version."""

from __future__ import annotations

import asyncio
from base64 import b64decode

from ...errors import Conflict, StaleDocument
from ...store import Store
from ...store.documents import Documents, Stored
from ..config.settings import SettingsError
from ..secrets.sealer import NoSecretKey, Sealer
from .saved_settings import KeptSettings, Saved, SettingsNotSaved, opened, to_keep

KIND, ID = "settings", "ui"


class SettingsChanged(Conflict):
    """Another server has changed the settings at the same time."""

    code = "settings_changed"
    message = "The settings were changed through another server. Look at them, and repeat the change."


class SavedDocument:
    """The settings of the UI, the same for every server on the store."""

    def __init__(self, store: Store, sealer: Sealer) -> None:
        self._documents = Documents(store, KIND, KeptSettings)
        self._sealer = sealer
        self._version: int | None = None
        self._read: int | None = None

    def read(self) -> Saved:
        """Return no settings: `news` reads the store, when the server has started."""
        return Saved()

    async def seal(self) -> None:
        """Do nothing: another server may not have the new key yet. `holdfast secrets rotate` seals again."""

    async def news(self) -> Saved | None:
        """Return the stored settings, unless they are already in use or were saved here."""
        stored = await self._documents.get(ID)
        if stored is None or stored.version == self._version:
            return None
        if self._version is not None and stored.version < self._version:
            raise SettingsError(
                f"The store has version {stored.version} of the settings, and version {self._version} is in use: "
                "someone has put an older one back. If it was you, restart the servers."
            )
        self._read = stored.version
        return await self._opened(stored)

    def used(self) -> None:
        """Record that the settings from `news` are in use."""
        self._version = self._read

    async def save(self, saved: Saved) -> None:
        """Replace the settings that were read last."""
        try:
            self._version = (await self._put(saved, self._version)).version
        except StaleDocument:
            raise SettingsChanged from None
        except NoSecretKey as error:
            raise SettingsNotSaved(str(error)) from None

    async def reseal(self) -> bool:
        """Seal the settings with the first key; False if there is nothing to do."""
        stored = await self._documents.get(ID)
        if stored is None or not stored.body.sealed:
            return False
        if await asyncio.to_thread(self._sealer.is_current, b64decode(stored.body.sealed)):
            return False
        await self._put(await self._opened(stored), stored.version)
        return True

    async def sealed(self) -> KeptSettings | None:
        """Return the document if it is sealed."""
        stored = await self._documents.get(ID)
        return stored.body if stored is not None and stored.body.sealed else None

    async def reset(self) -> None:
        """Replace the settings by empty ones, with a higher version: every server applies them."""
        await self._documents.exchange(ID, KeptSettings())

    async def _put(self, saved: Saved, version: int | None) -> Stored[KeptSettings]:
        """Replace a version of the settings, sealed for the next version."""
        kept = await asyncio.to_thread(to_keep, saved, self._sealer, _name((version or 0) + 1))
        return await self._documents.put(ID, kept, version=version)

    async def _opened(self, stored: Stored[KeptSettings]) -> Saved:
        """Return the settings. Providers must be sealed: they decide which upstreams get the keys of this server."""
        if not stored.body.sealed and stored.body.providers:
            raise SettingsError(
                "The settings in the store have providers that are not encrypted, so no server has written them. "
                "Find out who can write to the database, and delete its document of the kind 'settings'."
            )
        return await asyncio.to_thread(opened, stored.body, self._sealer, _name(stored.version))


def _name(version: int) -> str:
    """Return the name under which a version of the document is sealed."""
    return f"The document {KIND}/{ID} of the store, version {version},"
