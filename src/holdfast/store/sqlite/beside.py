"""The keys and documents of a database, for a command that runs beside the server, or before there is one."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from ...history import Message, Session
from .. import Document, KeyDetails, KeyRecord, RunRecord, StoredFile
from ..files import parted
from ..folder import check_folder
from ..people.audit import AuditEntry, AuditFilter
from ..records import UsageRow
from ..rows import Querying
from ..rows.migrations import StoreInUse
from .driver import READING, WRITING, drive
from .file import connect_beside, connect_reader, explained, is_current, locate, prepare, roll_back

_PATIENCE = 10.0  # seconds for another process to create or migrate the database

T = TypeVar("T")


class SqliteBeside:
    """Reads and changes keys and documents of a database that a server may have open. Each change is one transaction.

    The async methods are those of a store.

    Root may use it for another user's folder: the files that it creates belong to that user.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = locate(path)

    # keys

    def list(self) -> list[KeyRecord]:
        """Return all keys, including revoked ones; none if there is no database."""
        return self._read("api_keys", READING.api_keys(), [])

    def add(self, *keys: KeyRecord) -> None:
        """Add keys, all or none; see `Store.add_key`. Create the database if there is none."""
        self._write(WRITING.add_keys(keys))

    def revoke(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key; None if no active key has the id."""
        return self._write(WRITING.revoke_key(id, now))

    async def list_keys(self) -> Sequence[KeyRecord]:
        """Return all keys."""
        return await asyncio.to_thread(self.list)

    async def add_key(self, key: KeyRecord) -> KeyRecord:
        """Add a key."""
        return await asyncio.to_thread(self._write, WRITING.add_key(key))

    async def add_account(self, account: Document, owner: str) -> Document:
        """Store a new account together with its claim on an owner."""
        return await asyncio.to_thread(self._write, WRITING.add_account(account, owner))

    async def account_of(self, owner: str) -> str | None:
        """Return the account of an owner."""
        return await asyncio.to_thread(self._read, "owners", READING.account_of(owner), None)

    async def release_owner(self, owner: str) -> bool:
        """Delete an owner."""
        return await asyncio.to_thread(self._write, WRITING.release_owner(owner))

    async def revoke_key(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key."""
        return await asyncio.to_thread(self.revoke, id, now)

    async def change_key(self, id: str, details: KeyDetails) -> KeyRecord | None:
        """Change the limits of a key."""
        return await asyncio.to_thread(self._write, WRITING.change_key(id, details))

    # documents

    async def get_document(self, kind: str, id: str) -> Document | None:
        """Return a document."""
        return await asyncio.to_thread(self._read, "documents", READING.document(kind, id), None)

    async def list_documents(
        self, kind: str, owner: str | None = None, *, before: str | None = None, limit: int = 50
    ) -> Sequence[Document]:
        """Return documents of a kind, the last added first."""
        steps = READING.list_documents(kind, owner, before, limit)
        return await asyncio.to_thread(lambda: self._read("documents", steps, []))

    async def put_document(self, document: Document, expected_version: int | None = None) -> Document:
        """Store a document."""
        return await asyncio.to_thread(self._write, WRITING.put_document(document, expected_version))

    async def put_documents(self, puts: Sequence[tuple[Document, int | None]]) -> Sequence[Document]:
        """Store documents, all or none."""
        return await asyncio.to_thread(self._write, WRITING.put_documents(puts))

    async def delete_document(self, kind: str, id: str, version: int | None = None) -> bool:
        """Delete a document."""
        return await asyncio.to_thread(self._write, WRITING.delete_document(kind, id, version))

    # the data of an owner

    async def sessions_of(self, owner: str, *, after: str = "", limit: int = 100) -> Sequence[str]:
        """Return the ids of an owner's sessions of every kind."""
        steps = READING.sessions_of(owner, after, limit)
        return await asyncio.to_thread(lambda: self._read("sessions", steps, []))

    async def documents_of(
        self, owner: str, *, after: tuple[str, str] = ("", ""), limit: int = 20
    ) -> Sequence[Document]:
        """Return documents of an owner, of every kind."""
        steps = READING.documents_of(owner, after, limit)
        return await asyncio.to_thread(lambda: self._read("documents", steps, []))

    async def get_session(self, session_id: str) -> Session | None:
        """Return a session."""
        return await asyncio.to_thread(self._read, "sessions", READING.session(session_id), None)

    async def messages(self, session_id: str) -> Sequence[Message]:
        """Return every message of a session."""
        return await asyncio.to_thread(lambda: self._read("messages", READING.messages(session_id), []))

    async def read_files(self, session_id: str, hashes: Sequence[str]) -> dict[str, StoredFile]:
        """Return pictures of a session by their hashes."""
        return await asyncio.to_thread(lambda: self._read("files", READING.read_files(session_id, hashes), {}))

    async def list_runs(
        self, *, owner: str | None = None, before: str | None = None, limit: int = 50
    ) -> Sequence[RunRecord]:
        """Return runs of an owner, the newest first."""
        steps = READING.list_runs(owner, None, None, "", before, limit)
        return await asyncio.to_thread(lambda: self._read("runs", steps, []))

    async def usage(
        self, since: int, until: int, *, owner: str | None = None, limit: int = 10_000
    ) -> Sequence[UsageRow]:
        """Return the usage of some days."""
        steps = READING.usage(since, until, owner, limit)
        return await asyncio.to_thread(lambda: self._read("usage", steps, []))

    async def copy_session(self, session: Session, messages: Sequence[Message]) -> Session:
        """Add a session together with messages."""
        split = await parted(messages)
        return await asyncio.to_thread(self._write, WRITING.add_session(session, split))

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session."""
        return await asyncio.to_thread(self._write, WRITING.delete_session(session_id))

    # the audit log

    async def add_audit(self, entry: AuditEntry) -> AuditEntry:
        """Add an entry to the audit log."""
        return await asyncio.to_thread(self._write, WRITING.add_audit(entry))

    async def read_audit(
        self, filter: AuditFilter, *, after: int = 0, before: int | None = None, limit: int = 200
    ) -> Sequence[AuditEntry]:
        """Return entries of the audit log."""
        steps = READING.read_audit(filter, after, before, limit)
        return await asyncio.to_thread(lambda: self._read("audit", steps, []))

    async def audit_end(self) -> tuple[int, str]:
        """Return number and digest of the newest entry."""
        return await asyncio.to_thread(self._read, "audit_end", READING.audit_end(), (0, ""))

    def _read(self, table: str, steps: Querying[T], nothing: T) -> T:
        if not self.path.exists():
            return nothing
        with explained(self.path), closing(connect_reader(self.path)) as db:
            has_it = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone()
            return drive(db, steps) if has_it else nothing

    def _write(self, steps: Querying[T]) -> T:
        self._bring_up_to_date()
        with explained(self.path), closing(connect_beside(self.path)) as db, _transaction(db):
            return drive(db, steps)

    def _bring_up_to_date(self) -> None:
        """Create or migrate the database, unless a process that has it open does so."""
        give_up = time.monotonic() + _PATIENCE
        while not self._is_current():
            try:
                lock, db = prepare(self.path, guest=True)
            except StoreInUse as error:
                if time.monotonic() > give_up:
                    raise StoreInUse(f"{error} If it is a server of an older version, start it again first.") from None
                time.sleep(0.05)
            else:
                db.close()
                lock.release()

    def _is_current(self) -> bool:
        if not self.path.exists():
            return False
        check_folder(self.path.parent, guest=True)
        return is_current(self.path)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        roll_back(db)
