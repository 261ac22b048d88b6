"""The API keys of a server: those of the settings, and those that `holdfast key new` has added to the store.

Another process may add and revoke keys in the store at any time, so the server reads changes twice a second. Once a
key is required, it is required until the process ends. If the store cannot be read for a while, its keys are
refused: they may have been revoked.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Literal

from ....access import KEY_SCOPES, LOCAL, MEMBER_SCOPES, Access, Allowed, KeyScope, is_of_settings, settings_owner
from ....errors import HoldfastError, KeyEnd
from ....store import KeyRecord, Store
from ...config.settings import Settings, SettingsError
from .made_keys import NAME_RULE, digest, is_name

logger = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds for which the keys last read from the store are valid."""
LOOK_EVERY = 0.5
"""Seconds between two checks for keys that were added or revoked."""
TRY_AGAIN = 1.0
"""Minimum seconds between two attempts to read outdated keys, for all requests together; also the timeout of one."""
NOTE_USE_EVERY = 60.0
"""Seconds between two writes of the times of use of keys."""
SHORTEST = 16
"""Minimum length of a key, in characters, for a server that listens beyond loopback."""


WhyNot = Literal["wrong_key", "expired_key", "revoked_key"]
"""Why a key is refused. The response is the same for all of them."""


class KeysUnavailable(HoldfastError):
    """The store's keys cannot be read, so revoked ones are unknown."""

    code = "keys_unavailable"
    status = 503
    retry_after = 2.0
    message = "The server cannot read its API keys. See its log."


class Keys:
    """All valid API keys. A request costs one digest and one look-up."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        store: Store | None = None,
        *,
        patience: float = PATIENCE,
    ) -> None:
        """Use the keys of the settings. Those of the `store` are read by `refresh`, or for the first request."""
        self._store = store
        self._patience = patience
        self._environ = environ
        self._fixed = _fixed(settings, environ)
        self._made: dict[str, Access] = {}
        """Access by the digest of its key."""
        self._digests: dict[str, str] = {}
        """Digests of active keys, by the ids of the keys."""
        self._of_owner: dict[str, dict[str, Access]] = {}
        """The access of each owner's keys, by their ids."""
        self._expiring: dict[str, Access] = {}
        self._ended: dict[str, tuple[WhyNot, str]] = {}
        """Why keys are no longer active, and their ids, by their digests."""
        self._gone: set[str] = set()
        """Keys that have ended since `on_end` was called."""
        self._used: set[str] = set()
        self._noted_at = 0.0
        self._changes = -1
        self._read_at = self._tried_at = -math.inf
        self._reading = asyncio.Lock()
        self.is_needed = bool(self._fixed)
        """Whether requests need a key. Never becomes false again."""
        self.everyone = Access(LOCAL, role="admin", via="local")
        """The access of all requests while no key is needed."""
        self.on_end: Callable[[frozenset[str]], object] = lambda ids: None
        """Called with the ids of keys that were active here, and are no longer."""

    @property
    def is_stale(self) -> bool:
        """Whether the keys last read from the store are no longer valid."""
        return self._store is not None and time.monotonic() - self._read_at > self._patience

    def find(self, key: bytes) -> Access | None:
        """Return the access that a key gives; None if the key is unknown."""
        hashed = hashlib.sha256(key).hexdigest()
        if (access := self._fixed.get(hashed)) is not None:
            return access
        if self.is_stale:
            raise KeysUnavailable
        access = self._made.get(hashed)
        if access is None or (access.expires_at is not None and access.expires_at <= time.time()):
            return None
        self._used.add(access.credential)
        return access

    def why_not(self, key: bytes) -> tuple[WhyNot, str]:
        """Return why a key is not active, and its id; an empty id if there never was such a key."""
        hashed = hashlib.sha256(key).hexdigest()
        if (access := self._made.get(hashed)) is not None:  # it expired a moment ago
            return "expired_key", access.credential
        return self._ended.get(hashed, ("wrong_key", ""))

    async def in_force(self, id: str) -> Access | None:
        """Return the access of an active key of the store, by its id. Another node may have created it just now."""
        if id not in self._digests:
            await self.has_news()
        if self.is_stale:
            raise KeysUnavailable  # it may have been revoked
        return self._made.get(self._digests.get(id, ""))

    def rights(self, owner: str) -> Access | None:
        """Return an owner's rights without a request: those common to all of its keys. None if it has no key."""
        if not self.is_needed:
            return self.everyone if owner == LOCAL else None
        fixed = [access for access in self._fixed.values() if access.owner == owner]
        if self.is_stale and not fixed:
            raise KeysUnavailable  # one of the keys may have been revoked
        found = [*fixed, *self._of_owner.get(owner, {}).values()]
        is_admin = not self.is_stale and all(access.admin for access in found)
        return Access(owner, role="admin" if is_admin else "member") if found else None

    def fixed_by(self, settings: Settings) -> dict[str, Access]:
        """Return the keys of new settings by their digests. An unchanged key keeps its access."""
        fixed = _fixed(settings, self._environ)
        return {
            hashed: known if (known := self._fixed.get(hashed)) is not None and _are_equal(known, access) else access
            for hashed, access in fixed.items()
        }

    def change_fixed(self, fixed: dict[str, Access]) -> None:
        """Use the keys of new settings, and revoke those that were removed or have other rights."""
        before, self._fixed = self._fixed, fixed
        if fixed:
            self.need()
        for hashed, access in before.items():
            if fixed.get(hashed) is not access:
                how: KeyEnd = "changed" if hashed in fixed else "revoked"
                logger.warning("key of %s: %s; ended %d open responses", access.name, how, access.revoke(how))

    # the keys of the store

    async def refresh(self) -> None:
        """Read the keys that any process has added or revoked since the last call."""
        async with self._reading:  # two concurrent calls would end a key that both of them read
            await self._refresh()

    async def has_news(self) -> bool:
        """Read the keys for a request with an unknown one, which another node may have created. True if any changed.

        Concurrent requests share one read of the store.
        """
        requested_at, before = time.monotonic(), self._changes
        async with self._reading:
            if self._read_at < requested_at:
                try:
                    async with asyncio.timeout(TRY_AGAIN):
                        await self._refresh()
                except (HoldfastError, OSError) as error:
                    logger.warning("cannot look for new keys: %r", error)
        return self._changes != before

    async def _refresh(self) -> None:
        if self._store is None:
            return
        began = time.monotonic()
        changes = await self._store.key_changes()
        if changes != self._changes:
            records = await self._store.list_keys(after=max(self._changes, 0))
            self._take(records, frozenset(await self._store.misplaced_keys()))
            self._changes = changes
        self._read_at = began
        self._end_expired()
        if self._gone:
            gone, self._gone = frozenset(self._gone), set()
            self.on_end(gone)
        await self._note_used()

    async def revoke_all(self, account: str, now: float) -> int:
        """Revoke all keys of a person, and return their number."""
        if self._store is None:
            return 0
        active = [key for key in await self._store.list_keys(account=account) if key.revoked_at is None]
        for key in active:
            await self._store.revoke_key(key.id, now)
        await self.refresh()
        return len(active)

    async def catch_up(self) -> None:
        """Try to read outdated keys again. If that fails, `find` raises the error."""
        async with self._reading:
            if not self.is_stale or time.monotonic() - self._tried_at < TRY_AGAIN:
                return
            try:
                async with asyncio.timeout(TRY_AGAIN):
                    await self._refresh()
            except (HoldfastError, OSError) as error:  # a timeout is an OSError
                logger.error("cannot read the keys, so none of them is accepted: %r", error)
            self._tried_at = time.monotonic()

    def _take(self, records: Iterable[KeyRecord], misplaced: Container[str]) -> None:
        """Apply keys that were added, changed or revoked. A key with other rights gets a new access.

        Another budget and another end are no other rights: the access stays, and with it what it has opened.

        A key whose owner is somebody else opens nothing: no command makes one, so the store was changed otherwise.
        """
        for record in records:
            access = access_of_key(record)
            is_allowed = record.revoked_at is None and record.id not in misplaced and not is_of_settings(record.owner)
            if is_allowed and self._digests.get(record.id) == record.sha256 and self._limit(access):
                continue
            is_gone = self._end(record.id, "changed" if is_allowed else "revoked")
            if record.revoked_at is not None:
                self._ended[record.sha256] = "revoked_key", record.id
                self._gone |= {record.id} if is_gone else set()
            elif not is_allowed:
                logger.error("refused the key %s: its owner %r belongs to another", record.id, record.owner)
                self.need()
            else:
                self._made[record.sha256] = access
                self._digests[record.id] = record.sha256
                self._of_owner.setdefault(access.owner, {})[record.id] = access
                if access.expires_at is not None:
                    self._expiring[record.id] = access
                self.need()

    def _limit(self, new: Access) -> bool:
        """Give the active access of a key another budget and end. False if there is none, or if its rights differ."""
        known = self._of_owner.get(new.owner, {}).get(new.credential)
        if known is None or _rights(known) != _rights(new):
            return False
        known.limit(new.allowed.budget, new.expires_at)
        if not new.account:  # otherwise it has the name of its person
            known.name = new.name
        self._expiring.pop(new.credential, None)
        if new.expires_at is not None:
            self._expiring[new.credential] = known
        return True

    def _end(self, id: str, how: KeyEnd) -> bool:
        """End the access of a key; False if it was not active."""
        self._expiring.pop(id, None)
        hashed = self._digests.pop(id, None)
        if hashed is not None:
            access = self._made.pop(hashed)
            of_owner = self._of_owner[access.owner]
            del of_owner[id]
            if not of_owner:
                del self._of_owner[access.owner]
            logger.warning("key of %s: %s; ended %d open responses", access.name, how, access.revoke(how))
        return hashed is not None

    def _end_expired(self) -> None:
        now = time.time()
        for id, access in list(self._expiring.items()):
            if access.expires_at is not None and access.expires_at <= now:
                self._ended[self._digests[id]] = "expired_key", id
                self._end(id, "expired")
                self._gone.add(id)

    async def _note_used(self) -> None:
        """Write which keys were used, once a minute."""
        if self._store is not None and self._used and time.monotonic() - self._noted_at > NOTE_USE_EVERY:
            used, self._used, self._noted_at = self._used, set(), time.monotonic()
            await self._store.keys_used(sorted(used), time.time())

    def need(self) -> None:
        """From now on, refuse requests without a key or a sign-in."""
        if not self.is_needed:
            self.is_needed = True
            self.everyone.revoke()


def access_of_key(record: KeyRecord) -> Access:
    """Return the access of a key. A person's key has no rights until they are read."""
    details = record.details
    return Access(
        record.owner,
        name=record.name,
        role=None if record.account else "admin" if record.admin else "member",
        scopes=scopes_of(record),
        account=record.account,
        credential=record.id,
        expires_at=details.expires_at,
        allowed=Allowed(details.models, details.agents, details.budget),
    )


def scopes_of(record: KeyRecord) -> frozenset[KeyScope]:
    """Return the scopes of a key. Without a choice they are all but admin, which only an admin key has."""
    if record.details.scopes is None:
        return KEY_SCOPES if record.admin else MEMBER_SCOPES
    return frozenset(scope for scope in KEY_SCOPES if scope in record.details.scopes)


def _are_equal(one: Access, other: Access) -> bool:
    return (one.owner, one.role) == (other.owner, other.role)


def _rights(access: Access) -> tuple[object, ...]:
    """Return what a change of a key in the store must not change, if its access is to stay."""
    role = None if access.account else access.role  # a person's role is that of the account
    return access.account, role, access.scopes, access.allowed.models, access.allowed.agents


def _fixed(settings: Settings, environ: Mapping[str, str]) -> dict[str, Access]:
    """Return the keys of the settings by their digests."""
    keys = {digest(settings.api_key): Access(LOCAL, role="admin")} if settings.api_key else {}
    for key in settings.keys:
        if not is_name(key.name):
            raise SettingsError(f"In keys: {key.name!r} is not a valid name. It must have {NAME_RULE}.")
        value = environ.get(key.key_env, "") if key.key_env else ""
        hashed = key.sha256.lower() or (digest(value) if value else "")
        if not hashed:
            raise SettingsError(f"Key {key.name!r}: neither sha256 nor {key.key_env or 'key_env'} is set.")
        keys[hashed] = Access(settings_owner(key.name), name=key.name, role="admin" if key.admin else "member")
    return keys


def short_keys(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return the names of the keys in the settings that are too short."""
    given = [(LOCAL, settings.api_key), *((key.name, environ.get(key.key_env, "")) for key in settings.keys)]
    return [name for name, key in given if key and len(key) < SHORTEST]
