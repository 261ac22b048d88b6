"""The audit log and the data of an owner, in rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from ...events import Outcome
from .. import Document
from ..people.audit import AuditEntry, AuditFilter, chained_entry
from ..people.readers import Standing, Wanted
from . import Querying, Row, first
from .reading import Reading
from .structs import as_document, decode, encode

_LAST = sys.maxsize
_MERGED_AT_ONCE = 200  # pages of the search index that one transaction writes


class PeopleReading(Reading):
    """The reads of one transaction, those of the audit log included."""

    def read_audit(self, filter: AuditFilter, after: int, before: int | None, limit: int) -> Querying[list[AuditEntry]]:
        """Return entries of the audit log."""
        values: dict[str, Any] = {name: value for name, value in asdict(filter).items() if value not in (None, False)}
        conditions = [f"audit_of_{name}" for name in values]
        if filter.actors is not None:
            values["actors"] = self._dialect.many(filter.actors)
        query = ("audit" if before is None else "audit_newest", "audit_numbers", *conditions)
        numbers = {"after": after, "before": _LAST if before is None else before, "limit": limit}
        return [_as_entry(row) for row in (yield query, values | numbers)]

    def audit_end(self) -> Querying[tuple[int, str]]:
        """Return number and digest of the newest entry."""
        row = first((yield "audit_end", {}))
        return (0, "") if row is None else (row["n"], row["hash"])

    def sessions_of(self, owner: str, after: str, limit: int) -> Querying[list[str]]:
        """Return the ids of an owner's sessions of every kind."""
        return [row["id"] for row in (yield "sessions_of", {"owner": owner, "after": after, "limit": limit})]

    def documents_of(self, owner: str, after: tuple[str, str], limit: int) -> Querying[list[Document]]:
        """Return documents of an owner, of every kind."""
        kind, id = after
        rows = yield "documents_of", {"owner": owner, "kind": kind, "id": id, "limit": limit}
        return [as_document(row) for row in rows]

    def old_sessions(
        self, before: float, of: Sequence[str] | None, besides: Sequence[str], limit: int
    ) -> Querying[list[tuple[str, str]]]:
        """Return id and owner of chats that have not come or changed since a time."""
        conditions, owners = self.owners(of, besides)
        rows = yield ("old_sessions", "old_chat", *conditions), {"before": before, "limit": limit, **owners}
        return [(row["id"], row["owner"]) for row in rows]

    def standings(self, reader: str, session_ids: Sequence[str]) -> Querying[dict[str, Standing]]:
        """Return sessions as a person knows them."""
        asked = {"reader": reader, "ids": self._dialect.many(session_ids)}
        return {row["id"]: _as_standing(row) for row in (yield ("standings", "these_sessions"), asked)}

    def read_by(self, reader: str, after: str, limit: int) -> Querying[dict[str, Standing]]:
        """Return what a person has read."""
        rows = yield ("standings", "read_by"), {"reader": reader, "after": after, "limit": limit}
        return {row["id"]: _as_standing(row) for row in sorted(rows, key=lambda row: str(row["id"]))}


class PeopleWriting(PeopleReading):
    """The writes of one transaction to the audit log and to all data of an owner."""

    def add_audit(self, entry: AuditEntry) -> Querying[AuditEntry]:
        """Add an entry to the audit log."""
        yield "lock_audit", {}
        if (known := first((yield "audit_entry", {"id": entry.id}))) is not None:
            return _as_entry(known)
        added = chained_entry(entry, (yield from self.audit_end()))
        yield "insert_audit", _values(added)
        yield "move_audit_end", {"n": added.n, "hash": added.hash}
        return added

    def delete_audit(self, through: int) -> Querying[int]:
        """Delete the entries up to a number."""
        row = first((yield "count_audit", {"through": through}))
        yield "delete_audit", {"through": through}
        return 0 if row is None else int(row["entries"])

    def delete_documents_of(self, owner: str, limit: int) -> Querying[int]:
        """Delete documents of an owner, and the sum of what is stored for it if that is nothing."""
        numbers = [(row["n"],) for row in (yield "documents_to_delete", {"owner": owner, "limit": limit})]
        yield "delete_document_by_number", numbers
        yield "forget_nothing_stored", {"owner": owner}
        return len(numbers)

    def note_reader(self, session_id: str, reader: str, seen: int, told: int) -> Querying[bool]:
        """Move what a person has seen and was told of forward."""
        row = first((yield ("standings", "one_session"), {"reader": reader, "session_id": session_id}))
        if row is None:
            return False
        seen, told = min(seen, row["feed_n"]), min(told, row["feed_n"])
        if seen <= row["seen"] and told <= row["told"]:
            return False
        yield "note_reader", {"session_id": session_id, "reader": reader, "seen": seen, "told": told}
        return True

    def set_wanted(self, session_id: str, reader: str, wanted: Wanted | None) -> Querying[None]:
        """Set what a person wants to be told of a session."""
        yield "set_wanted", {"session_id": session_id, "reader": reader, "wanted": wanted or ""}

    def forget_reader(self, reader: str, limit: int) -> Querying[int]:
        """Delete what a person has seen of any session."""
        rows = yield "readers_to_forget", {"reader": reader, "limit": limit}
        forgotten = [(row["session"], reader) for row in rows]
        yield "forget_reader", forgotten
        return len(forgotten)

    def disown_usage(self, owner: str) -> Querying[int]:
        """Remove an owner and the keys from their usage."""
        yield "lock_spending", {}
        row = first((yield "count_usage_of", {"owner": owner}))
        yield "disown_charges_of", {"owner": owner}
        yield "disown_usage_of", {"owner": owner}
        yield "delete_usage_of", {"owner": owner}
        return 0 if row is None else int(row["entries"])

    def forget_words(self, begin: bool) -> Querying[bool]:
        """Merge a part of the search index, which drops the words of deleted sessions. False if it is merged."""
        before = first((yield "search_changes", {}))
        yield "merge_search", {"pages": -_MERGED_AT_ONCE if begin else _MERGED_AT_ONCE}
        after = first((yield "search_changes", {}))
        return before is not None and after is not None and after["changes"] - before["changes"] >= 2

    def forget_keys(self, account: str) -> Querying[int]:
        """Remove the data about a person from revoked keys."""
        yield "lock_api_keys", {}
        ids = [row["id"] for row in (yield "revoked_keys_of", {"account": account})]
        for id in ids:
            yield "forget_api_key", {"id": id, "details": b"{}"}
        return len(ids)


_COLUMNS = ("n", "id", "at", "actor", "action", "target", "hash")


def _values(entry: AuditEntry) -> dict[str, Any]:
    body = {name: value for name, value in msgspec.to_builtins(entry).items() if name not in _COLUMNS}
    return {name: getattr(entry, name) for name in _COLUMNS} | {"body": encode(body)}


class _Ended(msgspec.Struct, frozen=True):
    """What an entry of the feed says of a run that has ended."""

    outcome: Outcome


def _as_standing(row: Row) -> Standing:
    ended = None if row["data"] is None else msgspec.convert(decode(row["data"]), _Ended)
    return Standing(
        end=row["feed_n"],
        seen=row["seen"],
        told=row["told"],
        wanted=row["wanted"] or None,
        ended=row["ended"] or 0,
        outcome=None if ended is None else ended.outcome,
    )


def _as_entry(row: Row) -> AuditEntry:
    values = {name: row[name] for name in _COLUMNS}
    return msgspec.convert(values | decode(row["body"]), AuditEntry)
