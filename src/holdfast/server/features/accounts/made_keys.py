"""New API keys: their record in the store, and their names."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from typing import NamedTuple

import msgspec

from ....access import LOCAL
from ....ids import new_id
from ....store import KeyDetails, KeyRecord
from ...config.settings import Settings, SettingsError

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
    sha256 = digest(key)
    record = KeyRecord(
        id=f"key_{sha256[:32]}",  # from the digest, so that no key can be added twice
        name=name,
        sha256=sha256,
        created_at=time.time(),
        admin=admin,
        owner=owner or new_id("svc"),
        account=account,
        details=shown,
    )
    return NewKey(key, record)


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
