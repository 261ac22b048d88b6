"""Reads within one transaction."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ResumeGap
from ...events import Event, Settled
from ...history import Message, Session, text_of
from ...log.segment import decode_segment
from .. import (
    PAGE_BYTES,
    Document,
    FeedEntry,
    FeedPlace,
    Idempotency,
    KeyRecord,
    OpenedSession,
    RunRecord,
    SearchHit,
    Status,
    StoredFile,
)
from .. import semantics as rules
from ..filing import FilingLabels, Filter
from . import Dialect, Querying, first
from .long_json import decode_ending
from .search import looked_up
from .structs import (
    as_document,
    as_key,
    as_messages,
    as_run,
    as_session,
    feed_data,
    filter_values,
    found_messages,
    tags_in,
)

_FIRST_WITH = 4  # first messages of a session with different words of one prefix
_READ_FOR_HITS = 4 * 1024 * 1024  # maximum bytes of messages that one search reads
_READ_AT_ONCE = 256 * 1024  # bytes of a log in one read
_LAST = 2**31 - 1  # no number of a session is higher


class Reading:
    """The reads of one transaction."""

    def __init__(self, dialect: Dialect, clock: Callable[[], float] = time.time) -> None:
        self._dialect = dialect
        self._clock = clock

    # runs

    def run(self, run_id: str) -> Querying[RunRecord | None]:
        """Return a run."""
        row = first((yield "run", {"id": run_id}))
        return None if row is None else as_run(row)

    def repeated(self, idempotency: Idempotency | None) -> Querying[RunRecord | None]:
        """Return the run that an idempotency key has started."""
        if idempotency is None:
            return None
        key = first((yield "key", {"owner": idempotency.owner, "key": idempotency.key}))
        if key is None:
            return None
        idempotency.check(key["digest"])
        row = first((yield "run_by_number", {"n": key["run"]}))
        return None if row is None else as_run(row)

    def list_runs(
        self,
        owner: str | None,
        session_id: str | None,
        status: Status | None,
        prefix: str,
        before: str | None,
        limit: int,
    ) -> Querying[list[RunRecord]]:
        """Return runs, the newest first."""
        given = {"owner": owner, "session_id": session_id, "status": status, "prefix": prefix or None, "before": before}
        values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        conditions = [f"runs_of_{name}" for name in values]
        if status not in (None, "settled"):  # a few of all runs: the index of those in progress, not the owner's
            conditions = ["unindexed_owner" if name == "runs_of_owner" else name for name in conditions]
            conditions.append("runs_in_progress")
        values |= {"limit": max(limit, 0), "page_bytes": PAGE_BYTES}
        return [as_run(row) for row in (yield ("list_runs", "any_run", *conditions), values)]

    def queued(self, session_id: str) -> Querying[list[RunRecord]]:
        """Return the queued runs of a session in their order."""
        return [as_run(row) for row in (yield "queued", {"session_id": session_id})]

    def is_waiting(self, session_id: str) -> Querying[bool]:
        """Return whether a run of a session is queued."""
        return first((yield "is_waiting", {"session_id": session_id})) is not None

    def waiting_sessions(self) -> Querying[list[str]]:
        """Return the sessions in which a run is queued and none is running."""
        return [row["id"] for row in (yield "waiting_sessions", {})]

    # logs

    def read_log(self, run_id: str, after: int, limit: int) -> Querying[list[Event]]:
        """Return the events after `after`. The settlement is kept with the run, so it is added here."""
        row = first((yield "log", {"id": run_id}))
        if row is None:
            return []
        after = max(after, 0)
        if after < row["oldest"] - 1:
            raise ResumeGap(row["oldest"])
        events = yield from self._events(row["n"], after + 1, limit)
        if row["is_settled"] and len(events) < limit and after + len(events) + 1 == row["seq"]:
            (end,) = yield "settlement", {"id": run_id}
            events.append(Settled(decode_ending(end["settlement"])))
        return events

    def read_times(self, run_id: str) -> Querying[list[tuple[int, float]]]:
        """Return the times of a run's events."""
        return [(row["last"], row["at"]) for row in (yield "read_times", {"id": run_id})]

    def _events(self, run: int, next: int, limit: int) -> Querying[list[Event]]:
        events: list[Event] = []
        size = 0
        for row in (yield "read_log", {"run": run, "next": next, "limit": max(limit, 0), "bytes": _READ_AT_ONCE}):
            if len(events) >= limit or size >= _READ_AT_ONCE:
                break
            size += len(row["body"])
            events += decode_segment(row["body"])[max(next - row["first"], 0) :]
        return events[: max(limit, 0)]

    # sessions

    def session(self, session_id: str) -> Querying[Session | None]:
        """Return a session."""
        row = first((yield "session", {"id": session_id}))
        return None if row is None else as_session(row)

    def open_session(self, session_id: str) -> Querying[OpenedSession | None]:
        """Return a session and everything that a view of it shows."""
        place = first((yield "session_place", {"session_id": session_id}))
        if place is None:
            return None
        session = yield from self.session(session_id)
        assert session is not None
        return OpenedSession(
            session=session,
            messages=(yield from self.messages(session_id)),
            running=place["running"],
            queued=(yield from self.queued(session_id)),
            feed_end=place["feed_n"],
        )

    def list_sessions(
        self, owner: str, query: str, prefix: str, limit: int, before: str | None, filter: Filter
    ) -> Querying[list[Session]]:
        """Return an owner's sessions: pinned ones first, then the ones changed last."""
        values: dict[str, Any] = {"owner": owner, "prefix": prefix, "limit": max(limit, 0)}
        filed = filter_values(filter)
        values |= filed
        place = {"pinned": 2, "updated_at": 0.0, "id": ""}  # before every session, since `pinned` is 0 or 1
        if before is not None:
            if (last := (yield from self.session(before))) is None:
                return []
            place = {"pinned": int(last.pinned), "updated_at": last.updated_at, "id": last.id}
        sought = [looked_up(word, self._dialect) for word in rules.sought(query)]
        values |= place | {f"sought_{n}": word for n, word in enumerate(sought, 1)}
        conditions = [*["has_word"] * len(sought), *(f"has_{name}" for name in filed)]
        found = yield ("list_sessions", "chats_after", *conditions), values
        return [as_session(row) for row in found]

    def labels(self, owner: str) -> Querying[FilingLabels]:
        """Return the folders and tags of an owner."""
        folders, tags, archived = Counter[str](), Counter[str](), 0
        for row in (yield "labels", {"owner": owner}):
            count = 0 if row["archived"] else row["sessions"]
            folders.update({row["folder"]: count})
            tags.update(dict.fromkeys(tags_in(row["tags"]), count))
            archived += row["sessions"] - count
        del folders[""]
        return FilingLabels(folders=dict(sorted(folders.items())), tags=dict(sorted(tags.items())), archived=archived)

    def unindexed(self, owner: str | None, limit: int) -> Querying[list[int]]:
        """Return the sessions, of one owner or of all, whose words are not all in the index."""
        condition = "any_session" if owner is None else "sessions_of_one"
        values = {"limit": limit} | ({} if owner is None else {"owner": owner})
        return [row["n"] for row in (yield ("unindexed", condition), values)]

    def find_messages(self, session_ids: Sequence[str], query: str) -> Querying[dict[str, SearchHit]]:
        """Return the message that matches a query best, by session.

        The index has the first message of a session with a word. Messages are scanned only if none of these has all
        words, and no more than `_READ_FOR_HITS` bytes in total.
        """
        sought, room = rules.sought(query), _READ_FOR_HITS
        hits: dict[str, SearchHit] = {}
        if not sought:
            return hits
        for row in list((yield "numbers_of_sessions", {"ids": self._dialect.many(session_ids)})):
            candidates = yield from self._first_with(row["n"], sought)
            if not any(rules.matched(text_of(message.content), sought) == len(sought) for message in candidates):
                candidates, read = yield from self._read_through(row["n"], sought, room)
                room -= read
            if hit := rules.best_hit(candidates, sought):
                hits[row["id"]] = hit
        return hits

    def _first_with(self, session: int, sought: Sequence[str]) -> Querying[list[Message]]:
        """Return, for each of the words, the first messages of a session with it."""
        numbers: set[int] = set()
        for word in sought:
            expression = looked_up(word, self._dialect)
            rows = yield "first_with", {"session": session, "word": expression, "limit": _FIRST_WITH}
            numbers.update(row["n"] for row in rows)
        ordered = self._dialect.many(sorted(numbers))
        bodies = yield "messages_by_number", {"session": session, "numbers": ordered}
        return found_messages(bodies)

    def _read_through(self, session: int, sought: Sequence[str], room: int) -> Querying[tuple[list[Message], int]]:
        """Return the messages of a session up to one that has all words, and their size in bytes."""
        read, messages = 0, list[Message]()
        for row in (yield "messages_of_number", {"session": session, "bytes": room}):
            read += len(row["body"])
            if read > room:
                break
            messages += (found := found_messages([row]))
            if any(rules.matched(text_of(message.content), sought) == len(sought) for message in found):
                break
        return messages or (yield from self._first_with(session, sought)), read

    def get_message(self, session_id: str, message_id: str) -> Querying[Message | None]:
        """Return one message of a session."""
        found = found_messages((yield "message_of_session", {"session_id": session_id, "id": message_id}))
        return found[0] if found else None

    def messages(self, session_id: str) -> Querying[list[Message]]:
        """Return every message of a session in the order in which they were added."""
        return as_messages((yield "messages", {"session_id": session_id}))

    def conversation(self, session_id: str) -> Querying[tuple[Session, list[Message]] | None]:
        """Return a session with its messages."""
        session = yield from self.session(session_id)
        return None if session is None else (session, (yield from self.messages(session_id)))

    def owners(self, of: Sequence[str] | None, besides: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
        """Return the conditions that select the rows of some owners, and their values."""
        conditions = [*(["owners_of"] if of is not None else []), *(["owners_besides"] if besides else [])]
        values = {"of": self._dialect.many(of or ()), "besides": self._dialect.many(besides)}
        return conditions, {name: values[name] for name in values if f"owners_{name}" in conditions}

    def read_files(self, session_id: str, hashes: Sequence[str]) -> Querying[dict[str, StoredFile]]:
        """Return pictures of a session by their hashes."""
        rows = yield "read_files", {"session_id": session_id, "hashes": self._dialect.many(hashes)}
        return {row["sha256"]: StoredFile(type=row["type"], data=row["data"]) for row in rows}

    def read_feed(self, session_id: str, after: int, limit: int) -> Querying[list[FeedEntry]]:
        """Return feed entries of a session."""
        rows = yield "read_feed", {"session_id": session_id, "after": min(after, _LAST), "limit": max(limit, 0)}
        return [FeedEntry(row["n"], row["type"], feed_data(row)) for row in rows]

    def feed_place(self, session_id: str, n: int) -> Querying[FeedPlace | None]:
        """Return a place in the feed of a session."""
        rows = list((yield "feed_place", {"session_id": session_id, "n": min(n, _LAST)}))
        entries = [FeedEntry(row["n"], row["type"], feed_data(row)) for row in rows if row["n"] is not None]
        return FeedPlace(rules.active_run(entries), rows[0]["feed_n"]) if rows else None

    # documents

    def document(self, kind: str, id: str) -> Querying[Document | None]:
        """Return a document."""
        row = first((yield "document", {"kind": kind, "id": id}))
        return None if row is None else as_document(row)

    def list_documents(self, kind: str, owner: str | None, before: str | None, limit: int) -> Querying[list[Document]]:
        """Return documents of a kind, the last added first."""
        given = {"kind": kind, "owner": owner, "before": before}
        values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        conditions = [f"documents_of_{name}" for name in values]
        values |= {"limit": max(limit, 0), "page_bytes": PAGE_BYTES}
        return [as_document(row) for row in (yield ("list_documents", *conditions), values)]

    # owners and API keys

    def account_of(self, owner: str) -> Querying[str | None]:
        """Return the account of an owner."""
        row = first((yield "owner", {"id": owner}))
        return None if row is None else str(row["account"])

    def misplaced_keys(self) -> Querying[list[str]]:
        """Return the ids of active keys whose owner belongs to another account."""
        return [row["id"] for row in (yield "misplaced_api_keys", {})]

    def api_keys(self, *, after: int = 0, account: str | None = None) -> Querying[list[KeyRecord]]:
        """Return API keys in the order in which they were added."""
        if not after and account is None:
            return [as_key(row) for row in (yield "every_api_key", {})]
        conditions = ("api_keys_of_changed",) if account is None else ("api_keys_of_changed", "api_keys_of_account")
        rows = yield ("api_keys", *conditions), {"after": after} | ({} if account is None else {"account": account})
        return [as_key(row) for row in rows]

    def key_changes(self) -> Querying[int]:
        """Return a number that grows whenever a key is added, changed or revoked."""
        (row,) = yield "api_key_changes", {}
        changes: int = row["changes"]
        return changes
