"""Sessions, their messages, their feed and the search index, written within one transaction.

The words of messages are added to the index later, in batches: see `IndexWriting`. That costs a fraction of what an
entry in each transaction does, and no reader of a stream waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...errors import MessageNotFound, SessionNotFound
from ...history import Message, Session, text_of
from .. import semantics as rules
from ..files import Parted, referred_to, refuse_unknown
from ..filing import Filing
from . import Querying, Row, first
from .long_json import decode_message, encode_message
from .reading import Reading
from .search import MOST_INDEXED, indexed, words_in
from .structs import as_session, encode, found_messages, session_values

_FEW = 8
_SESSIONS_AT_ONCE = 32
_MESSAGES_AT_ONCE = 200
_BYTES_AT_ONCE = 64 * 1024


class OpenSession:
    """A session's row while a transaction changes it."""

    def __init__(self, row: Row) -> None:
        self.n: int = row["n"]
        self.message_n: int = row["message_n"]
        self.feed_n: int = row["feed_n"]
        self.queue_n: int = row["queue_n"]
        self.indexed_n: int = row["indexed_n"]
        self.session = as_session(row)

    def change(self, **changes: Any) -> None:
        self.session = replace(self.session, **changes)

    def touch(self, now: float) -> None:
        self.change(updated_at=max(self.session.updated_at, now))

    def values(self) -> dict[str, Any]:
        """Return the values of its row as they are now."""
        values = session_values(self.session)
        values.update(n=self.n, message_n=self.message_n, feed_n=self.feed_n, queue_n=self.queue_n)
        values["indexed_n"] = self.indexed_n
        return values

    def entry(self, type: str, data: dict[str, Any] | None, message: int | None = None) -> dict[str, Any]:
        """Return the values of its next feed entry, with its own data or the number of a message."""
        self.feed_n += 1
        body = None if data is None else encode(data)
        return {"session": self.n, "n": self.feed_n, "type": type, "data": body, "message": message}


class SessionWriting(Reading):
    """The writes to sessions of one transaction."""

    # sessions

    def add_session(self, session: Session, parted: Parted) -> Querying[Session]:
        """Add a session with messages, unless it exists."""
        messages = parted.messages
        known = yield from self.session(session.id)
        if known is not None:
            if known.owner != session.owner:
                raise SessionNotFound(session.id)
            return known
        rules.refuse_known(messages, ())
        refuse_unknown(messages, parted.files)
        if messages:
            session = replace(session, head_id=messages[-1].id)
        yield "insert_session", session_values(session)
        it = yield from self._require_session(session.id)
        yield from self._keep_files(it, parted)
        yield from self._insert_messages(it, messages)
        yield "save_session", it.values()
        return session

    def update_session(self, session_id: str, changes: dict[str, Any], now: float) -> Querying[Session | None]:
        """Change some fields of a session."""
        it = yield from self._open(session_id)
        if it is None:
            return None
        after = rules.changed(it.session, changes)
        yield from self._require_message(it, after.head_id)
        if after != it.session:
            yield from self._set_title(it, after.title)
            it.session = after
            it.touch(now)
            yield "tell", it.entry("session.changed", changes)
            yield "save_session", it.values()
        return it.session

    def file_sessions(self, owner: str, ids: Sequence[str], filing: Filing) -> Querying[list[Session]]:
        """File sessions. They are locked in one order, so that two such transactions never wait for each other."""
        filed: list[Session] = []
        for id in sorted(set(ids)):
            it = yield from self._open(id)
            if it is None or it.session.owner != owner or it.session.kind != "chat":
                continue
            after = filing.of(it.session)
            if after != it.session:
                it.session = after
                yield "save_session", it.values()
            filed.append(after)
        return filed

    def delete_session(self, session_id: str) -> Querying[bool]:
        """Delete a session and all rows that refer to it."""
        it = yield from self._open(session_id)
        if it is None:
            return False
        yield "unindex_session", {"session": it.n}
        yield "delete_files", {"session": it.n}
        yield "delete_session", {"n": it.n}
        return True

    def _open(self, session_id: str) -> Querying[OpenSession | None]:
        """Return a session, locked: no other transaction can change it until this one ends."""
        row = first((yield "session_to_change", {"id": session_id}))
        return None if row is None else OpenSession(row)

    def _require_session(self, session_id: str) -> Querying[OpenSession]:
        it = yield from self._open(session_id)
        if it is None:
            raise SessionNotFound(session_id)
        return it

    def _set_title(self, it: OpenSession, title: str) -> Querying[None]:
        """Change the title. If the old one is in the index, the new one takes its place at once."""
        if title != it.session.title:
            it.change(title=title)
            if it.indexed_n >= 0 and it.session.kind == "chat":
                yield "unindex_title", {"session": it.n}
                yield from self._index(it.n, 0, indexed(rules.words(title)))

    # pictures

    def _refuse_unknown_files(self, it: OpenSession, parted: Parted) -> Querying[None]:
        named = [sha256 for sha256 in referred_to(parted.messages) if sha256 not in parted.files]
        if named:
            rows = yield "files_known", {"session": it.n, "hashes": self._dialect.many(named)}
            refuse_unknown(parted.messages, {row["sha256"] for row in rows} | parted.files.keys())

    def _keep_files(self, it: OpenSession, parted: Parted) -> Querying[None]:
        for sha256, file in parted.files.items():
            yield "insert_file", {"sha256": sha256, "type": file.type, "data": file.data}
            yield "use_file", {"session": it.n, "sha256": sha256}

    # messages, the feed and the index

    def _has_message(self, it: OpenSession, message_id: str) -> Querying[bool]:
        return first((yield "has_message", {"session": it.n, "id": message_id})) is not None

    def _require_message(self, it: OpenSession, message_id: str | None) -> Querying[None]:
        if message_id is not None and not (yield from self._has_message(it, message_id)):
            raise MessageNotFound(message_id)

    def _add(self, it: OpenSession, *messages: Message) -> Querying[None]:
        before = it.message_n
        yield from self._insert_messages(it, messages)
        yield from _each("tell", [it.entry("message.added", None, n) for n in range(before + 1, it.message_n + 1)])

    def _insert_messages(self, it: OpenSession, messages: Sequence[Message]) -> Querying[None]:
        rows: list[dict[str, Any]] = []
        for message in messages:
            it.message_n += 1
            rows.append({"session": it.n, "n": it.message_n, "id": message.id, "body": encode_message(message)})
        yield from _each("insert_message", rows)

    def _change(self, it: OpenSession, message: Message) -> Querying[None]:
        """Change a message. What it and later ones have in the index is removed, to be indexed again."""
        (row,) = yield "message", {"session": it.n, "id": message.id}
        number, message = row["n"], rules.continued(decode_message(row["body"]), message)
        yield "change_message", {"session": it.n, "n": number, "body": encode_message(message)}
        if it.indexed_n >= number and it.session.kind == "chat":
            yield "unindex_from", {"session": it.n, "n": number}
            it.indexed_n = number - 1
        yield "tell", it.entry("message.changed", None, number)

    def _index(self, session: int, number: int, words: Sequence[str]) -> Querying[None]:
        """Add an entry to the index: of a message, or of the title with the number 0."""
        if words and number < MOST_INDEXED:
            yield "index", {"session": session, "n": number, "words": self._dialect.entry(words)}


class IndexWriting(SessionWriting):
    """The words of messages, added to the search index after the transactions that have stored these messages."""

    def index_words(self, sessions: Sequence[int]) -> Querying[list[int]]:
        """Add what some sessions lack in the index, and return those that are left for another transaction.

        One transaction is short, since other writes wait for it.
        """
        later, room = list(sessions[_SESSIONS_AT_ONCE:]), _BYTES_AT_ONCE
        numbers = self._dialect.many(sessions[:_SESSIONS_AT_ONCE])
        for row in list((yield "to_index", {"numbers": numbers})):
            last = row["indexed_n"]
            if room > 0:
                last, size = yield from self._index_session(row, room)
                room -= size
            if last < row["message_n"]:
                later.append(row["n"])
        return later

    def _index_session(self, row: Row, room: int) -> Querying[tuple[int, int]]:
        """Index some messages of a session, and return the number of the last one, and their size in bytes.

        A search finds sessions, so one entry for each word of a session is enough. A common word would else have an
        entry for each of ten million messages.
        """
        session, last, size = row["n"], row["indexed_n"], 0
        known = set(words_in((yield "words", {"session": session}))) if last > 0 else set[str]()
        entries = [(0, indexed(rules.words(row["title"])))] if last < 0 else []
        values = {"session": session, "after": last, "limit": _MESSAGES_AT_ONCE, "bytes": room}
        last = max(last, 0)
        for each in (yield "messages_to_index", values):
            last, size = each["n"], size + len(each["body"])
            words = indexed(rules.words("".join(text_of(message.content) for message in found_messages([each]))))
            entries.append((last, [word for word in words if word not in known] if known else words))
            known.update(words)
            if size >= room:
                break
        for number, words in entries:
            yield from self._index(session, number, words)
        yield "note_indexed", {"n": session, "indexed_n": last}
        return last, size


def _each(query: str, rows: list[dict[str, Any]]) -> Querying[None]:
    """Run a query for each of several rows. Few rows are sent with other writes, many in a separate statement.

    A statement that joined thousands of writes would take seconds to plan.
    """
    if len(rows) > _FEW:
        yield query, rows
    else:
        for values in rows:
            yield query, values
