"""The audit log of a store: numbered entries that are only added, each with a digest that covers the one before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

AuditResult = Literal["begun", "done", "refused", "failed"]
"""`begun` is written before a change takes effect; one of the others follows when the result is known."""
TRIMMED = "audit.trim"
"""The action of the entry about a deletion of old entries. Its details name the last deleted one."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry: actor, action, target, address and result. Ids only: no names, contents or secrets.

    Defaults are not stored, so that a new field does not change the digests of older entries.
    """

    id: str
    at: float
    action: str
    """The action, such as `key.revoke`."""
    result: AuditResult
    actor: str = ""
    """The id of the person, or the owner of a service's key; empty for a caller that is not known."""
    via: str = ""
    """How the actor was recognised: `sign_in`, `key`, `local`, `command`, or `server`."""
    credential: str = ""
    """The id of the key, or the beginning of the id of the sign-in."""
    address: str = ""
    target: str = ""
    """The id of the changed object."""
    code: str = ""
    """The code of the error, if the action was refused or failed."""
    of: str = ""
    """The id of the `begun` entry of the same action."""
    details: dict[str, str] = {}
    n: int = 0
    """From 1, without gaps. The store sets it."""
    hash: str = ""
    """The digest of this entry and of the one before. The store sets it."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of entries. A field that is None matches all."""

    actors: tuple[str, ...] | None = None
    action: str | None = None
    """An action such as `key.revoke`, or the first part of several: `key`."""
    changes: bool | None = None
    """True leaves out the reads of admins."""
    person: str | None = None
    """The id of a person who is the actor or the target."""
    since: float | None = None
    until: float | None = None


class AuditStore(Protocol):
    """The methods of a store for the audit log. There is none that changes an entry."""

    async def add_audit(self, entry: AuditEntry) -> AuditEntry:
        """Add an entry to the end, and return it with its number and digest. A known id changes nothing."""
        ...

    async def read_audit(
        self, filter: AuditFilter, *, after: int = 0, before: int | None = None, limit: int = 200
    ) -> Sequence[AuditEntry]:
        """Return entries: those with numbers above `after`, oldest first; with `before`, those below, newest first."""
        ...

    async def audit_end(self) -> tuple[int, str]:
        """Return number and digest of the entry that was added last; 0 and an empty text if there was none."""
        ...

    async def delete_audit(self, through: int) -> int:
        """Delete the entries up to a number, because of their age. Returns how many there were."""
        ...


def chained_entry(entry: AuditEntry, last: tuple[int, str]) -> AuditEntry:
    """Return an entry with its number and digest. `last` has those of the entry before; (0, "") for none."""
    numbered = replace(entry, n=last[0] + 1, hash="")
    return replace(numbered, hash=_digest(numbered, last[1]))


def _digest(entry: AuditEntry, previous: str) -> str:
    return hashlib.sha256(previous.encode() + b"\n" + msgspec.json.encode(entry)).hexdigest()


class ChainCheck:
    """Checks entries in order. `problem` names the first gap or change; empty if there is none so far."""

    def __init__(self) -> None:
        self.checked = 0
        self.problem = ""
        self.last: tuple[int, str] = (0, "")
        """Number and digest of the newest entry. Kept elsewhere, they show later whether entries were cut off."""
        self._first: AuditEntry | None = None
        self._trimmed = 0

    def add(self, entries: Iterable[AuditEntry]) -> None:
        """Check the next entries."""
        for entry in entries:
            if not self.problem:
                self._add(entry)

    def _add(self, entry: AuditEntry) -> None:
        if self._first is None:
            self._first = entry
        if entry.action == TRIMMED:
            self._trimmed = max(self._trimmed, int(entry.details.get("through", "0")))
        is_oldest_left = self.checked == 0 and entry.n > 1  # its digest cannot be made again without the one before
        if not is_oldest_left:
            self._compare(entry)
        self.checked += 1
        self.last = entry.n, entry.hash

    def _compare(self, entry: AuditEntry) -> None:
        if entry.n != self.last[0] + 1:
            self.problem = f"Entries {self.last[0] + 1} to {entry.n - 1} are missing."
        elif _digest(replace(entry, hash=""), self.last[1]) != entry.hash:
            self.problem = f"Entry {entry.n} was changed, or the one before it."

    def end(self, newest: tuple[int, str]) -> str:
        """Return the problem of the log, after all entries up to `newest` were checked; empty if there is none.

        Old entries may be missing only if an entry records their deletion.
        """
        if not self.problem and self._first is not None and self._first.n > self._trimmed + 1:
            self.problem = f"Entries {self._trimmed + 1} to {self._first.n - 1} are missing."
        if not self.problem and self.last[0] < newest[0]:
            self.problem = f"Entries {self.last[0] + 1} to {newest[0]} are missing."
        if not self.problem and self.last != newest:
            self.problem = f"Entry {newest[0]} was changed, or all entries were made again."
        return self.problem
