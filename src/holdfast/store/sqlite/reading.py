"""Reads within one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from ...errors import IdempotencyConflict, ResumeGap
from ...events import Event, Settled, decode_settlement
from ...history import Message, Session, text_of
from ...log.segment import decode_segment
from .. import (
    PAGE_BYTES,
    Document,
    FeedEntry,
    Idempotency,
    KeyRecord,
    OpenedSession,
    RunRecord,
    SearchHit,
    Status,
    StoredFile,
)
from .. import semantics as rules
from .file import queries
from .rows import (
    as_document,
    as_key,
    as_run,
    as_session,
    decode_message,
    encode,
    feed_data,
)
from .search import looked_up

_FIRST_WITH = 4  # messages of a session in which different words with one beginning are said first
_READ_FOR_HITS = 4 * 1024 * 1024  # bytes of messages that one search reads through
_READ_AT_ONCE = 256 * 1024  # bytes of a log in one read


class Reading:
    """The reads of one transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._sql = queries()

    def _rows(self, query: str, **values: Any) -> list[sqlite3.Row]:
        return self._db.execute(self._sql[query], values).fetchall()

    def _row(self, query: str, **values: Any) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(self._sql[query], values).fetchone()
        return row

    # runs

    def run(self, run_id: str) -> RunRecord | None:
        """Return a run."""
        row = self._row("run", id=run_id)
        return None if row is None else as_run(row)

    def repeated(self, idempotency: Idempotency | None) -> RunRecord | None:
        """Return the run that a key has started."""
        if idempotency is None or (key := self._row("key", owner=idempotency.owner, key=idempotency.key)) is None:
            return None
        if key["digest"] != idempotency.digest:
            raise IdempotencyConflict
        return self._run_by_number(key["run"])

    def _run_by_number(self, n: int) -> RunRecord:
        row = self._row("run_by_number", n=n)
        assert row is not None
        return as_run(row)

    def list_runs(
        self,
        owner: str | None,
        session_id: str | None,
        status: Status | None,
        prefix: str,
        before: str | None,
        limit: int,
    ) -> list[RunRecord]:
        """Return runs, the newest first."""
        conditions = ["TRUE"]
        if owner is not None:
            conditions.append("owner = :owner")
        if session_id is not None:
            conditions.append("session = (SELECT n FROM sessions WHERE id = :session_id)")
        if status is not None:
            conditions.append("status = :status" + (" AND status <> 'settled'" if status != "settled" else ""))
        if prefix:
            conditions.append("id >= :prefix AND id < :prefix || char(1114111)")
        if before is not None:
            conditions.append("n < (SELECT n FROM runs WHERE id = :before)")
        query = self._sql["list_runs"].format(conditions=" AND ".join(conditions))
        values = {"owner": owner, "session_id": session_id, "status": status, "prefix": prefix, "before": before}
        size = {"limit": max(limit, 0), "page_bytes": PAGE_BYTES}
        return [as_run(row) for row in self._db.execute(query, {**values, **size})]

    def queued(self, session_id: str) -> list[RunRecord]:
        """Return the queued runs of a session in their order."""
        return [as_run(row) for row in self._rows("queued", session_id=session_id)]

    def waiting_sessions(self) -> list[str]:
        """Return the sessions in which a run is queued and none is running."""
        return [row["id"] for row in self._rows("waiting_sessions")]

    # logs

    def read_log(self, run_id: str, after: int, limit: int) -> list[Event]:
        """Return the events after `after`. The settlement is kept with the run, so it is added here."""
        row = self._row("log", id=run_id)
        if row is None:
            return []
        after = max(after, 0)
        if after < row["oldest"] - 1:
            raise ResumeGap(row["oldest"])
        events = self._events(row["n"], after + 1, limit)
        if row["is_settled"] and len(events) < limit and after + len(events) + 1 == row["seq"]:
            events.append(Settled(decode_settlement(self._rows("settlement", id=run_id)[0]["settlement"])))
        return events

    def read_times(self, run_id: str) -> list[tuple[int, float]]:
        """Return when a run's events came."""
        return [(last, at) for last, at in self._rows("read_times", id=run_id)]

    def _events(self, run: int, next: int, limit: int) -> list[Event]:
        events: list[Event] = []
        size = 0
        for row in self._db.execute(self._sql["read_log"], {"run": run, "next": next}):
            if len(events) >= limit or size >= _READ_AT_ONCE:
                break
            size += len(row["body"])
            events += decode_segment(row["body"])[max(next - row["first"], 0) :]
        return events[: max(limit, 0)]

    # sessions

    def session(self, session_id: str) -> Session | None:
        """Return a session."""
        row = self._row("session", id=session_id)
        return None if row is None else as_session(row)

    def open_session(self, session_id: str) -> OpenedSession | None:
        """Return a session and everything that a view of it shows."""
        place = self._row("session_place", session_id=session_id)
        if place is None:
            return None
        session = self.session(session_id)
        assert session is not None
        return OpenedSession(
            session=session,
            messages=self.messages(session_id),
            running=place["running"],
            queued=self.queued(session_id),
            feed_end=place["feed_n"],
        )

    def list_sessions(self, owner: str, query: str, prefix: str, limit: int, before: str | None) -> list[Session]:
        """Return an owner's sessions: pinned ones first, then the ones changed last."""
        place: tuple[Any, ...] = (2, 0.0, "")  # before every session, since `pinned` is 0 or 1
        if before is not None:
            if (last := self.session(before)) is None:
                return []
            place = (last.pinned, last.updated_at, last.id)
        sought = [looked_up(word) for word in rules.sought(query)]
        found = self._sql["list_sessions"].format(found="\n".join([self._sql["found"]] * len(sought)))
        values = (owner, *place, prefix, prefix, *sought, max(limit, 0))
        return [as_session(row) for row in self._db.execute(found, values)]

    def find_messages(self, session_ids: Sequence[str], query: str) -> dict[str, SearchHit]:
        """Return a message with the words of a query for each session.

        The index knows where a session says a word first. Messages are read through only if no such message has all
        of the words, and in all no more than `_READ_FOR_HITS` bytes.
        """
        sought, room = rules.sought(query), _READ_FOR_HITS
        hits: dict[str, SearchHit] = {}
        for session_id, n in self._rows("numbers_of_sessions", ids=encode(session_ids)) if sought else ():
            candidates = self._first_with(n, sought)
            if not any(rules.matched(text_of(said.content), sought) == len(sought) for said in candidates):
                candidates, read = self._read_through(n, sought, room)
                room -= read
            if hit := rules.best_hit(candidates, sought):
                hits[session_id] = hit
        return hits

    def _first_with(self, session: int, sought: Sequence[str]) -> list[Message]:
        """Return the messages in which a session says each of the words first."""
        numbers: set[int] = set()
        for word in sought:
            rows = self._rows("first_with", session=session, word=looked_up(word), limit=_FIRST_WITH)
            numbers.update(row["n"] for row in rows)
        bodies = self._rows("messages_by_number", session=session, numbers=encode(sorted(numbers)))
        return [decode_message(row["body"]) for row in bodies]

    def _read_through(self, session: int, sought: Sequence[str], room: int) -> tuple[list[Message], int]:
        """Return the first messages of a session up to one that has all words, and how many bytes they have."""
        read, messages = 0, []
        for row in self._db.execute(self._sql["messages_of_number"], {"session": session}):
            read += len(row["body"])
            if read > room:
                break
            messages.append(decode_message(row["body"]))
            if rules.matched(text_of(messages[-1].content), sought) == len(sought):
                break
        return messages or self._first_with(session, sought), read

    def messages(self, session_id: str) -> list[Message]:
        """Return every message of a session in the order in which they were added."""
        return [decode_message(row["body"]) for row in self._rows("messages", session_id=session_id)]

    def read_files(self, session_id: str, hashes: Sequence[str]) -> dict[str, StoredFile]:
        """Return pictures of a session by their hashes."""
        rows = self._rows("read_files", session_id=session_id, hashes=encode(hashes))
        return {row["sha256"]: StoredFile(type=row["type"], data=row["data"]) for row in rows}

    def read_feed(self, session_id: str, after: int, limit: int) -> list[FeedEntry]:
        """Return what happened in a session."""
        rows = self._rows("read_feed", session_id=session_id, after=after, limit=max(limit, 0))
        return [FeedEntry(row["n"], row["type"], feed_data(row)) for row in rows]

    # documents

    def document(self, kind: str, id: str) -> Document | None:
        """Return a document."""
        row = self._row("document", kind=kind, id=id)
        return None if row is None else as_document(row)

    def list_documents(self, kind: str, owner: str | None, before: str | None, limit: int) -> list[Document]:
        """Return documents of a kind, those added last first."""
        conditions = ["kind = :kind"]
        if owner is not None:
            conditions.append("owner = :owner")
        if before is not None:
            conditions.append("n < (SELECT n FROM documents WHERE kind = :kind AND id = :before)")
        query = self._sql["list_documents"].format(conditions=" AND ".join(conditions))
        values = {"kind": kind, "owner": owner, "before": before, "limit": max(limit, 0), "page_bytes": PAGE_BYTES}
        return [as_document(row) for row in self._db.execute(query, values)]

    # API keys

    def api_keys(self) -> list[KeyRecord]:
        """Return all API keys in the order in which they were added."""
        return [as_key(row) for row in self._rows("api_keys")]

    def key_changes(self) -> int:
        """Return a number that grows whenever a key is added or revoked."""
        return int(self._rows("api_key_changes")[0]["changes"])
