"""The API keys of a store in memory."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import KeyExists
from . import KeyDetails, KeyRecord


class MemoryKeys:
    """API keys, each with the number of its last change."""

    def __init__(self) -> None:
        self._api_keys: dict[str, KeyRecord] = {}
        self._changed: dict[str, int] = {}
        self._last_change = 0

    async def add_key(self, key: KeyRecord) -> KeyRecord:
        """Add an API key."""
        if (known := self._api_keys.get(key.id)) is not None:
            return known
        for other in self._api_keys.values():
            if (other.owner, other.name, other.revoked_at) == (key.owner, key.name, None):
                raise KeyExists(key.name)
        return self._put(key)

    async def revoke_key(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key."""
        key = self._in_force(id)
        return None if key is None else self._put(replace(key, revoked_at=now))

    async def change_key(self, id: str, details: KeyDetails) -> KeyRecord | None:
        """Change what a key is limited to."""
        key = self._in_force(id)
        return None if key is None else self._put(replace(key, details=details))

    async def list_keys(self, *, after: int = 0, account: str | None = None) -> list[KeyRecord]:
        """Return the API keys."""
        keys = self._api_keys.values()
        return [key for key in keys if self._changed[key.id] > after and account in (None, key.account)]

    async def key_changes(self) -> int:
        """Return a number that grows whenever a key is added, changed or revoked."""
        return self._last_change

    async def keys_used(self, ids: Sequence[str], now: float) -> None:
        """Note when keys were used last."""
        for id in ids:
            if (key := self._api_keys.get(id)) is not None:
                self._api_keys[id] = replace(key, last_used_at=now)

    def _in_force(self, id: str) -> KeyRecord | None:
        key = self._api_keys.get(id)
        return None if key is None or key.revoked_at is not None else key

    def _put(self, key: KeyRecord) -> KeyRecord:
        self._last_change += 1
        self._api_keys[key.id] = key
        self._changed[key.id] = self._last_change
        return key
