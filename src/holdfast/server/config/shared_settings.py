"""The settings of the UI in a store that several servers share: one document, sealed with the cluster key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import secrets

import msgspec

from ...errors import Conflict, StaleDocument
from ...store import Store
from ...store.documents import Documents
from .live_settings import Saved, SettingsNotSaved
from .settings import SettingsError

KIND, ID = "settings", "ui"
_NONCE, _TAG = 16, 32


class SettingsChanged(Conflict):
    """Another server has changed the settings at the same moment."""

    code = "settings_changed"

    def __init__(self) -> None:
        super().__init__("The settings were changed through another server. Look at them, and repeat the change.")


class SharedSettings(msgspec.Struct, frozen=True):
    """The document. Settings with providers are sealed: they may hold keys."""

    sealed: str = ""
    plain: Saved = Saved()


class SavedDocument:
    """The settings of the UI, the same for every server on the store."""

    def __init__(self, store: Store, cluster_key: str) -> None:
        self._documents = Documents(store, KIND, SharedSettings)
        self._key = cluster_key.encode()
        self._version: int | None = None
        self._read: int | None = None

    def read(self) -> Saved:
        """Return no settings: the store is asked by `news`, when the server has started."""
        return Saved()

    async def news(self) -> Saved | None:
        """Return the settings if they are neither in use nor saved here."""
        stored = await self._documents.get(ID)
        if stored is None or stored.version == self._version:
            return None
        self._read = stored.version
        return self._opened(stored.body)

    def used(self) -> None:
        """Note that what `news` returned is in use."""
        self._version = self._read

    async def save(self, saved: Saved) -> None:
        """Replace the settings that were read last."""
        if saved.providers and not self._key:
            raise SettingsNotSaved("Set the same cluster_key on every server first: it encrypts the keys of providers.")
        body = SharedSettings(plain=saved)
        if saved.providers:
            body = SharedSettings(sealed=base64.b64encode(seal(self._key, msgspec.json.encode(saved))).decode())
        try:
            self._version = (await self._documents.put(ID, body, version=self._version)).version
        except StaleDocument:
            raise SettingsChanged from None

    def _opened(self, body: SharedSettings) -> Saved:
        """Return the settings. Providers must be sealed: they decide who gets the keys of this server."""
        if body.sealed:
            return self._unsealed(body.sealed)
        if body.plain.providers:
            raise SettingsError(
                "The settings in the store have providers that are not encrypted, so no server has written them. "
                "Find out who can write to the database, and delete its document of the kind 'settings'."
            )
        return body.plain

    def _unsealed(self, sealed: str) -> Saved:
        try:
            return msgspec.json.decode(unseal(self._key, base64.b64decode(sealed)), type=Saved)
        except ValueError:
            raise SettingsError(
                "The settings in the store were saved with another cluster_key. Give every server the same one."
            ) from None


def seal(key: bytes, text: bytes) -> bytes:
    """Return a text encrypted and signed. HMAC-SHA-256 of a nonce and a counter is the key stream."""
    nonce = secrets.token_bytes(_NONCE)
    hidden = nonce + _mixed(key, nonce, text)
    return hidden + hmac.digest(_derived(key, b"sign"), hidden, hashlib.sha256)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Return the text. `ValueError` if it was not sealed with this key, or if the key is empty: anyone has that."""
    hidden, tag = sealed[:-_TAG], sealed[-_TAG:]
    if (
        not key
        or len(hidden) < _NONCE
        or not hmac.compare_digest(hmac.digest(_derived(key, b"sign"), hidden, "sha256"), tag)
    ):
        raise ValueError("sealed with another key")
    return _mixed(key, hidden[:_NONCE], hidden[_NONCE:])


def _derived(key: bytes, use: bytes) -> bytes:
    return hmac.digest(key, b"holdfast settings " + use, "sha256")


def _mixed(key: bytes, nonce: bytes, text: bytes) -> bytes:
    secret = _derived(key, b"encrypt")
    blocks = (hmac.digest(secret, nonce + number.to_bytes(8), "sha256") for number in itertools.count())
    stream = b"".join(itertools.islice(blocks, len(text) // 32 + 1))
    return bytes(one ^ other for one, other in zip(text, stream, strict=False))
