"""Sessions, their messages, their feed and the search index, written within one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...errors import MessageNotFound, SessionNotFound
from ...history import Message, Session, text_of
from .. import semantics as rules
from ..files import Parted, referred_to, refuse_unknown
from . import Querying, Row, first
from .long_json import decode_message, encode_message
from .reading import Reading
from .search import MOST_INDEXED, indexed, words_in
from .structs import (
    as_session,
    encode,
    session_values,
)

_FEW = 8


class OpenSession:
    """A session's row while a transaction changes it."""

    def __init__(self, row: Row) -> None:
        self.n: int = row["n"]
        self.message_n: int = row["message_n"]
        self.feed_n: int = row["feed_n"]
        self.queue_n: int = row["queue_n"]
        self.session = as_session(row)
        self.words: set[str] | None = None
        """The indexed words of its messages; None until they are read."""

    @property
    def lacks_words(self) -> bool:
        """Whether it has an index whose words are not read yet."""
        return self.words is None and self.session.kind == "chat"

    def new_words(self, message: Message) -> list[str]:
        """Return the words of a message that are new in the session, and add them to its words.

        A search finds sessions, so one entry for each session is enough. A common word would else have an entry for
        each of ten million messages.
        """
        if self.words is None:
            return []
        known = self.words
        fresh = [word for word in indexed(rules.words(text_of(message.content))) if word not in known]
        known.update(fresh)
        return fresh

    def change(self, **changes: Any) -> None:
        self.session = replace(self.session, **changes)

    def touch(self, now: float) -> None:
        self.change(updated_at=max(self.session.updated_at, now))

    def values(self) -> dict[str, Any]:
        """Return the values of its row as they are now."""
        values = session_values(self.session)
        values.update(n=self.n, message_n=self.message_n, feed_n=self.feed_n, queue_n=self.queue_n)
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
        it.words = set()
        if entry := self._entry(it, 0, indexed(rules.words(session.title))):
            yield "index", entry
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
        if title != it.session.title:
            if it.session.title:
                yield "unindex_title", {"session": it.n}
            it.change(title=title)
            if entry := self._entry(it, 0, indexed(rules.words(title))):
                yield "index", entry

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
        if it.lacks_words:
            yield from self._read_words(it)
        rows: list[dict[str, Any]] = []
        entries: list[dict[str, Any]] = []
        for message in messages:
            it.message_n += 1
            rows.append({"session": it.n, "n": it.message_n, "id": message.id, "body": encode_message(message)})
            if entry := self._entry(it, it.message_n, it.new_words(message)):
                entries.append(entry)
        yield from _each("insert_message", rows)
        yield from _each("index", entries)

    def _change(self, it: OpenSession, message: Message) -> Querying[None]:
        yield from self._read_words(it)
        (row,) = yield "message", {"session": it.n, "id": message.id}
        number, message = row["n"], rules.continued(decode_message(row["body"]), message)
        already = words_in((yield "words_of", {"session": it.n, "n": number}))
        yield "change_message", {"session": it.n, "n": number, "body": encode_message(message)}
        yield "forget_words", {"session": it.n, "n": number}
        if entry := self._entry(it, number, [*already, *it.new_words(message)]):
            yield "index", entry
        yield "tell", it.entry("message.changed", None, number)

    def _read_words(self, it: OpenSession) -> Querying[None]:
        """Read the words of a session: before the first write, since a read after a write costs more."""
        if it.lacks_words:
            it.words = set(words_in((yield "words", {"session": it.n})))

    def _entry(self, it: OpenSession, number: int, words: Sequence[str]) -> dict[str, Any] | None:
        """Return the values of an entry of the index; None if there is nothing to index."""
        if it.session.kind != "chat" or number >= MOST_INDEXED or not words:
            return None
        return {"session": it.n, "n": number, "words": self._dialect.entry(words)}


def _each(query: str, rows: list[dict[str, Any]]) -> Querying[None]:
    """Run a query for each of several rows. Few rows are sent with other writes, many in a separate statement.

    A statement that joined thousands of writes would take seconds to plan.
    """
    if len(rows) > _FEW:
        yield query, rows
    else:
        for values in rows:
            yield query, values
