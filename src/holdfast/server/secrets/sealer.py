"""Seals secrets with AES-256-GCM. A sealed text is bound to its name: it cannot be opened under another one.

Layout of a sealed text: one byte for the version of the layout, 8 bytes for the id of the key, 12 random bytes (the
nonce), then the ciphertext with its tag. The first two parts and the name are authenticated too.

Random nonces are safe for about four thousand million texts of one key. Secrets are sealed when a person saves them.
"""

from __future__ import annotations

import asyncio
import hmac
import importlib
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...errors import HoldfastError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_LAYOUT = b"\x01"
_ID, _NONCE, _TAG = 8, 12, 16
_HEAD = len(_LAYOUT) + _ID


class NoSecretKey(HoldfastError):
    """There is no key to seal a secret with."""

    code = "no_secret_key"
    status = 503


class CannotUnseal(HoldfastError):
    """A sealed secret cannot be opened: the key is missing, the name is another, or the bytes are damaged."""

    code = "secret_sealed"
    status = 503


class SealingKey(NamedTuple):
    """A key of AES-256 and its id, both derived from one text."""

    id: bytes
    key: bytes


def sealing_key(text: str) -> SealingKey:
    """Derive a key from a text that is too long to be guessed. The id reveals nothing of the key."""
    secret = text.encode()
    return SealingKey(
        id=hmac.digest(secret, b"holdfast sealing key id", "sha256")[:_ID],
        key=hmac.digest(secret, b"holdfast sealing key", "sha256"),
    )


class SealingKeys(Protocol):
    """The source of the keys."""

    def read(self) -> Sequence[SealingKey]:
        """Return the current keys. The first one seals, each of them opens. May block on the disk."""
        ...

    def first(self) -> SealingKey:
        """Return the key that seals; create one if possible. `NoSecretKey` if not. May block on the disk."""
        ...

    def advice(self) -> str:
        """Return the advice, as sentences, for a text that was sealed with a missing key."""
        ...


class Sealer:
    """Seals and opens secrets. Both may block on the disk: another process may have changed the keys."""

    def __init__(self, keys: SealingKeys) -> None:
        self._keys = keys

    def seal(self, name: str, data: bytes) -> bytes:
        """Return data that only this name and one of the keys open. `NoSecretKey` if there is no key."""
        key = self._keys.first()
        head, nonce = _LAYOUT + key.id, os.urandom(_NONCE)
        return head + nonce + _cipher(key).encrypt(nonce, data, head + name.encode())

    def open(self, name: str, sealed: bytes) -> bytes:
        """Return the data that was sealed under a name. `CannotUnseal` if that is not possible."""
        head, nonce, hidden = sealed[:_HEAD], sealed[_HEAD : _HEAD + _NONCE], sealed[_HEAD + _NONCE :]
        if head[:1] != _LAYOUT or len(hidden) < _TAG:
            raise CannotUnseal(
                f"{name} is damaged, or another version of Holdfast has sealed it. "
                "`holdfast secrets reset` gives it up."
            )
        key = next((key for key in self._keys.read() if key.id == head[1:]), None)
        if key is None:
            raise CannotUnseal(f"{name} is sealed with a secret key that this server does not have. {self.advice()}")
        try:
            return _cipher(key).decrypt(nonce, hidden, head + name.encode())
        except importlib.import_module("cryptography.exceptions").InvalidTag:
            raise CannotUnseal(
                f"{name} is damaged, or was sealed as something else and moved here: find out who can write there. "
                "`holdfast secrets reset` gives it up."
            ) from None

    async def seal_text(self, name: str, data: bytes) -> str:
        """Return sealed data as text, for a document."""
        return b64encode(await asyncio.to_thread(self.seal, name, data)).decode()

    async def open_text(self, name: str, sealed: str) -> bytes:
        """Return the data of a sealed text. `CannotUnseal` if that is not possible."""
        return await asyncio.to_thread(self.open, name, b64decode(sealed))

    async def resealed_text(self, name: str, sealed: str) -> str:
        """Return a sealed text as the key seals it that seals now; the same text if it was sealed with that."""
        if not sealed or await asyncio.to_thread(self.is_current, b64decode(sealed)):
            return sealed
        return await self.seal_text(name, await self.open_text(name, sealed))

    def is_current(self, sealed: bytes) -> bool:
        """Return whether a text is sealed with the key that seals now."""
        keys = self._keys.read()
        return bool(keys) and sealed[:_HEAD] == _LAYOUT + keys[0].id

    def has_older(self) -> bool:
        """Return whether there are keys that only open."""
        return len(self._keys.read()) > 1

    def advice(self) -> str:
        """Return the advice for a missing secret key."""
        return self._keys.advice()


def _cipher(key: SealingKey) -> AESGCM:
    """Return the cipher of a key. cryptography is imported here: 8 MB, and most servers have no secrets to open."""
    ciphers = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
    cipher: AESGCM = ciphers.AESGCM(key.key)
    return cipher
