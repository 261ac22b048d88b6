"""New API keys: their record in the store, their names, and the key file of earlier versions."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import re
import secrets
import time
from typing import NamedTuple

import msgspec

from ...access import LOCAL
from ...errors import KeyExists, OwnerTaken
from ...ids import new_id
from ...store import KeyDetails, KeyRecord
from ...store.folder import read_file
from ..config.settings import Settings, SettingsError

PREFIX = 9
"""Number of characters of a key that lists show: too few to guess the others."""
NAME_RULE = "1 to 64 letters, digits or any of . _ @ -"
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


def digest(key: str) -> str:
    """Return a key's digest, the only form in which it is stored."""
    return hashlib.sha256(key.encode()).hexdigest()


class NewKey(NamedTuple):
    """A new key, which is shown once and not stored, and its record for the store."""

    key: str
    record: KeyRecord


def new_key(
    name: str, *, admin: bool = False, owner: str = "", account: str = "", details: KeyDetails | None = None
) -> NewKey:
    """Create a key, for an account or a service. Without an owner it is the key of a new service."""
    key = "hf-" + secrets.token_urlsafe(32)
    shown = msgspec.structs.replace(details or KeyDetails(), prefix=key[:PREFIX])
    record = _record(name, digest(key), time.time(), admin, owner or new_id("svc"))
    return NewKey(key, msgspec.structs.replace(record, account=account, details=shown))


def _record(name: str, sha256: str, created_at: float, admin: bool, owner: str) -> KeyRecord:
    """Return the record of a key. Its id comes from the digest, so that no key can be added twice."""
    id = f"key_{sha256[:32]}"
    return KeyRecord(id=id, name=name, sha256=sha256, created_at=created_at, admin=admin, owner=owner)


def is_name(name: str) -> bool:
    """Return whether a text is a valid name of a key."""
    return _NAME.fullmatch(name) is not None


def check_key_name(name: str, settings: Settings) -> None:
    """Refuse an invalid name for a new key, or one that a list would show twice. A name is only a label."""
    if not is_name(name):
        raise SettingsError(f"A key name must have {NAME_RULE}.")
    if name == LOCAL:
        raise SettingsError(f"{LOCAL!r} is reserved for requests with api_key or without a key. Choose another name.")
    if any(key.name == name for key in settings.keys):
        raise SettingsError(f"The settings file already has a key {name!r}. Choose another name.")


class _FileKey(msgspec.Struct, frozen=True):
    name: str
    sha256: str
    created_at: float
    admin: bool = False


class KeyFile:
    """`keys.json`, the key file of earlier versions. Its keys are moved into the store once; then it is renamed."""

    def __init__(self, folder: pathlib.Path, *, keep: bool = False) -> None:
        """With `keep` the file stays, for a store that loses its keys when the process ends."""
        self.path = folder / "keys.json"
        self._keep = keep

    def read(self) -> list[KeyRecord]:
        """Return the keys in the file; none if there is no file. Blocks on the disk."""
        try:
            content = read_file(self.path)
            keys = msgspec.json.decode(content, type=list[_FileKey]) if content is not None else []
        except OSError as error:
            raise SettingsError(
                f"{self.path} cannot be read ({error.strerror}), so the keys are unknown. "
                "Give it to this user (chown), or delete it and create new keys."
            ) from error
        except msgspec.DecodeError as error:
            raise SettingsError(f"{self.path} is damaged: {error}. Delete it and create new keys.") from error
        return [self._checked(key) for key in keys]

    def _checked(self, key: _FileKey) -> KeyRecord:
        if not is_name(key.name) or key.name == LOCAL:
            raise SettingsError(
                f"{self.path} has a key {key.name!r}, which is no longer a valid name. Remove it from the file, and "
                "create another with `holdfast key new NAME`."
            )
        return _record(key.name, key.sha256, key.created_at, key.admin, owner=key.name)

    def is_in_the_way(self, error: KeyExists | OwnerTaken) -> SettingsError:
        """Return the error for a name that another key or account in the store has."""
        return SettingsError(
            f"{self.path}: {error} The store has another one of that name. If the file is old, delete it."
        )

    def put_away(self) -> None:
        """Rename the file, so that its keys are not added again."""
        if not self._keep:
            with contextlib.suppress(FileNotFoundError):
                self.path.replace(self.path.with_suffix(".json.imported"))
