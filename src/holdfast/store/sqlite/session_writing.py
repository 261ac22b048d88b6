"""Sessions, their messages, their feed and the search index, written within one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...errors import MessageNotFound, SessionNotFound
from ...history import Message, Session, text_of
from .. import semantics as rules
from ..files import Parted, referred_to, refuse_unknown
from .reading import Reading
from .rows import (
    as_session,
    decode_message,
    encode,
    session_values,
)
from .search import MOST_INDEXED, indexed, words_in


class OpenSession:
    """A session's row while a transaction changes it."""

    def __init__(self, row: sqlite3.Row) -> None:
        self.n: int = row["n"]
        self.message_n: int = row["message_n"]
        self.feed_n: int = row["feed_n"]
        self.queue_n: int = row["queue_n"]
        self.session = as_session(row)
        self.words: set[str] | None = None
        """The words of its messages that are in the index; None until they are read."""

    def change(self, **changes: Any) -> None:
        self.session = replace(self.session, **changes)

    def touch(self, now: float) -> None:
        self.change(updated_at=max(self.session.updated_at, now))


class SessionWriting(Reading):
    """The writes to sessions of one transaction."""

    # sessions

    def add_session(self, session: Session, parted: Parted) -> Session:
        """Add a session with messages, unless it exists."""
        messages = parted.messages
        known = self.session(session.id)
        if known is not None:
            if known.owner != session.owner:
                raise SessionNotFound(session.id)
            return known
        rules.refuse_known(messages, ())
        refuse_unknown(messages, parted.files)
        if messages:
            session = replace(session, head_id=messages[-1].id)
        self._db.execute(self._sql["insert_session"], session_values(session))
        it = self._require_session(session.id)
        self._index(it, 0, indexed(rules.words(session.title)))
        self._keep_files(it, parted)
        for message in messages:
            self._insert_message(it, message)
        self._save(it)
        return session

    def update_session(self, session_id: str, changes: dict[str, Any], now: float) -> Session | None:
        """Change some fields of a session."""
        it = self._open(session_id)
        if it is None:
            return None
        after = rules.changed(it.session, changes)
        self._require_message(it, after.head_id)
        if after != it.session:
            self._set_title(it, after.title)
            it.session = after
            it.touch(now)
            self._tell(it, ("session.changed", changes))
            self._save(it)
        return it.session

    def delete_session(self, session_id: str) -> bool:
        """Delete a session; what refers to it goes with it."""
        it = self._open(session_id)
        if it is None:
            return False
        self._rows("unindex_session", session=it.n)
        self._rows("delete_files", session=it.n)
        self._rows("delete_session", n=it.n)
        return True

    def _open(self, session_id: str) -> OpenSession | None:
        row = self._row("session", id=session_id)
        return None if row is None else OpenSession(row)

    def _require_session(self, session_id: str) -> OpenSession:
        it = self._open(session_id)
        if it is None:
            raise SessionNotFound(session_id)
        return it

    def _save(self, it: OpenSession) -> None:
        numbers = {"n": it.n, "message_n": it.message_n, "feed_n": it.feed_n, "queue_n": it.queue_n}
        self._db.execute(self._sql["save_session"], session_values(it.session) | numbers)

    def _set_title(self, it: OpenSession, title: str) -> None:
        if title != it.session.title:
            if it.session.title:
                self._rows("unindex_title", session=it.n)
            it.change(title=title)
            self._index(it, 0, indexed(rules.words(title)))

    # pictures

    def _refuse_unknown_files(self, it: OpenSession, parted: Parted) -> None:
        named = [sha256 for sha256 in referred_to(parted.messages) if sha256 not in parted.files]
        if named:
            known = {row["sha256"] for row in self._rows("files_known", session=it.n, hashes=encode(named))}
            refuse_unknown(parted.messages, known | parted.files.keys())

    def _keep_files(self, it: OpenSession, parted: Parted) -> None:
        for sha256, file in parted.files.items():
            self._rows("insert_file", sha256=sha256, type=file.type, data=file.data)
            self._rows("use_file", session=it.n, sha256=sha256)

    # messages, the feed and the index

    def _has_message(self, it: OpenSession, message_id: str) -> bool:
        return self._row("has_message", session=it.n, id=message_id) is not None

    def _require_message(self, it: OpenSession, message_id: str | None) -> None:
        if message_id is not None and not self._has_message(it, message_id):
            raise MessageNotFound(message_id)

    def _add(self, it: OpenSession, message: Message) -> None:
        self._insert_message(it, message)
        self._tell(it, ("message.added", None), it.message_n)

    def _insert_message(self, it: OpenSession, message: Message) -> None:
        it.message_n += 1
        self._rows("insert_message", session=it.n, n=it.message_n, id=message.id, body=encode(message))
        self._index_message(it, it.message_n, message)

    def _change(self, it: OpenSession, message: Message) -> None:
        (row,) = self._rows("message", session=it.n, id=message.id)
        number, message = row["n"], rules.continued(decode_message(row["body"]), message)
        self._rows("change_message", session=it.n, n=number, body=encode(message))
        self._index_again(it, number, message)
        self._tell(it, ("message.changed", None), number)

    def _tell(self, it: OpenSession, item: tuple[str, dict[str, Any] | None], message: int | None = None) -> None:
        it.feed_n += 1
        data = None if item[1] is None else encode(item[1])
        self._rows("tell", session=it.n, n=it.feed_n, type=item[0], data=data, message=message)

    def _index_message(self, it: OpenSession, number: int, message: Message, already: Sequence[str] = ()) -> None:
        """Index the words that are new in the session: a search looks for sessions, so one entry for each is enough.

        Otherwise a common word would have an entry for each of ten million messages.
        """
        if it.session.kind != "chat":
            return
        known = self._known_words(it)
        fresh = [word for word in indexed(rules.words(text_of(message.content))) if word not in known]
        known.update(fresh)
        self._index(it, number, [*already, *fresh])

    def _known_words(self, it: OpenSession) -> set[str]:
        if it.words is None:
            it.words = set(words_in(self._rows("words", session=it.n)))
        return it.words

    def _index_again(self, it: OpenSession, number: int, message: Message) -> None:
        """Add the words of a message that was continued to those that it gave before."""
        already = words_in(self._rows("words_of", session=it.n, n=number))
        self._known_words(it)  # before they are forgotten
        self._rows("forget_words", session=it.n, n=number)
        self._index_message(it, number, message, already)

    def _index(self, it: OpenSession, number: int, words: Sequence[str]) -> None:
        if it.session.kind == "chat" and number < MOST_INDEXED and words:
            self._rows("index", session=it.n, n=number, words=" ".join(words))
