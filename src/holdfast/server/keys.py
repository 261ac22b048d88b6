"""Keys that open the server: those of the settings, and those that `holdfast key new` has made.

The made ones stand in a file of the data folder, as digests. It is read again every second, so that a new key works,
and a revoked one stops working, without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pathlib
import secrets
import time
from collections.abc import Mapping

import msgspec

from .settings import Settings, SettingsError

LOCAL = "local"


class MadeKey(msgspec.Struct, frozen=True):
    """A key that was made here. The key itself is shown once and kept nowhere."""

    name: str
    sha256: str
    created_at: float
    admin: bool = False
    """May change the settings."""


def digest(key: str) -> str:
    """Return what is kept of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


class KeyFile:
    """The keys that were made here, as they were when the file was last read."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "keys.json"
        self.made: tuple[MadeKey, ...] = ()
        self.read()

    def read(self) -> None:
        """Read the file. This waits for the disk."""
        try:
            self.made = msgspec.json.decode(self.path.read_bytes(), type=tuple[MadeKey, ...])
        except FileNotFoundError:
            self.made = ()
        except msgspec.DecodeError as error:
            raise SettingsError(f"{self.path} is damaged: {error}. Delete it and make new keys.") from error

    def new(self, name: str, *, admin: bool = False) -> str:
        """Make a key and return it: this is the only time that it is seen."""
        if any(key.name == name for key in self.made):
            raise SettingsError(f"There is a key {name!r} already. Revoke it first, or choose another name.")
        key = "hf-" + secrets.token_urlsafe(32)
        self._write((*self.made, MadeKey(name, digest(key), time.time(), admin)))
        return key

    def revoke(self, name: str) -> bool:
        """Forget a key; False where there is none of that name."""
        left = tuple(key for key in self.made if key.name != name)
        if len(left) == len(self.made):
            return False
        self._write(left)
        return True

    def _write(self, keys: tuple[MadeKey, ...]) -> None:
        """Replace the file in one step, readable by nobody else."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(keys))
        new.replace(self.path)
        self.made = keys


class Keys:
    """Every key that opens the server, and the owner whom each stands for."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], file: KeyFile | None = None) -> None:
        self.file = file
        self._owners: dict[str, str] = {}
        self._admins = {key.name for key in settings.keys if key.admin} | ({LOCAL} if settings.api_key else set())
        if settings.api_key:
            self._owners[digest(settings.api_key)] = LOCAL
        for key in settings.keys:
            value = environ.get(key.key_env, "") if key.key_env else ""
            hashed = key.sha256.lower() or (digest(value) if value else "")
            if not hashed:
                raise SettingsError(f"The key {key.name!r} has no sha256, and {key.key_env or 'key_env'} is not set.")
            self._owners[hashed] = key.name

    def __bool__(self) -> bool:
        return bool(self._owners) or bool(self.file and self.file.made)

    def is_admin(self, owner: str) -> bool:
        """Tell whether an owner may change the settings: the one of `api_key` may, others where their key says so."""
        made = self.file.made if self.file is not None else ()
        return owner in self._admins or any(key.admin and key.name == owner for key in made)

    def owner(self, authorization: str) -> str | None:
        """Return whom a bearer key stands for. Comparing digests tells an attacker nothing about the key."""
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key:
            return None
        hashed = digest(key.strip())
        owners = dict(self._owners)
        if self.file is not None:
            owners |= {key.sha256: key.name for key in self.file.made}
        return next((owner for known, owner in owners.items() if hmac.compare_digest(known, hashed)), None)
