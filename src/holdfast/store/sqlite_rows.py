"""What is read and written within one transaction, in rows.

Whoever refuses something refuses it before writing anything, so that a refusal spoils nobody else's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from ..errors import IdempotencyConflict, MessageNotFound, ResumeGap, SessionBusy, SessionNotFound, StaleView
from ..events import AnySettlement, Event, Settled, decode_events, decode_settlement, encode_events, encode_settlement
from ..history import Message, Session
from . import HEAD, Append, Document, FeedEntry, Idempotency, IfBusy, RunRecord, Status, rules
from .sqlite_file import queries

_MOST_INDEXED = 1 << 20  # messages of one session: the index has no room for more, see the schema
_BEGINNING = 3  # letters: beginnings of words up to here are entries of the index of their own
_EVENTS_IN_A_ROW = 512
_READ_AT_ONCE = 256 * 1024  # bytes of a log: a reader takes them in as slowly as it likes

_encode = msgspec.json.encode
_decode = msgspec.json.decode
_decode_message = msgspec.json.Decoder(Message).decode
_decode_messages = msgspec.json.Decoder(tuple[Message, ...]).decode


class Reading:
    """What can be asked in a transaction."""

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
        return None if row is None else _run(row)

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
        return _run(row)

    def list_runs(
        self, owner: str | None, session_id: str | None, status: Status | None, before: str | None, limit: int
    ) -> list[RunRecord]:
        """Return runs, the newest first."""
        conditions = ["TRUE"]
        if owner is not None:
            conditions.append("owner = :owner")
        if session_id is not None:
            conditions.append("session = (SELECT n FROM sessions WHERE id = :session_id)")
        if status is not None:
            conditions.append("status = :status" + (" AND status <> 'settled'" if status != "settled" else ""))
        if before is not None:
            conditions.append("n < (SELECT n FROM runs WHERE id = :before)")
        query = self._sql["list_runs"].format(conditions=" AND ".join(conditions))
        values = {"owner": owner, "session_id": session_id, "status": status, "before": before, "limit": max(limit, 0)}
        return [_run(row) for row in self._db.execute(query, values)]

    def queued(self, session_id: str) -> list[RunRecord]:
        """Return the queued runs of a session in their order."""
        return [_run(row) for row in self._rows("queued", session_id=session_id)]

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
            events += decode_events(row["body"])[max(next - row["first"], 0) :]
        return events[: max(limit, 0)]

    # sessions

    def session(self, session_id: str) -> Session | None:
        """Return a session."""
        row = self._row("session", id=session_id)
        return None if row is None else _session(row)

    def list_sessions(self, owner: str, query: str, limit: int, before: str | None) -> list[Session]:
        """Return an owner's sessions: pinned ones first, then the ones changed last."""
        place: tuple[Any, ...] = (2, 0.0, "")  # before every session, since `pinned` is 0 or 1
        if before is not None:
            if (last := self.session(before)) is None:
                return []
            place = (last.pinned, last.updated_at, last.id)
        sought = [_looked_up(word) for word in rules.sought(query)]
        found = self._sql["list_sessions"].format(found="\n".join([self._sql["found"]] * len(sought)))
        return [_session(row) for row in self._db.execute(found, (owner, *place, *sought, max(limit, 0)))]

    def messages(self, session_id: str) -> list[Message]:
        """Return every message of a session in the order in which they were added."""
        return [_decode_message(row["body"]) for row in self._rows("messages", session_id=session_id)]

    def read_feed(self, session_id: str, after: int, limit: int) -> list[FeedEntry]:
        """Return what happened in a session."""
        rows = self._rows("read_feed", session_id=session_id, after=after, limit=max(limit, 0))
        return [FeedEntry(row["n"], row["type"], _data(row)) for row in rows]

    def feed_end(self, session_id: str) -> int:
        """Return the number of the newest entry."""
        row = self._row("feed_end", session_id=session_id)
        return row["feed_n"] if row else 0

    # documents

    def document(self, kind: str, id: str) -> Document | None:
        """Return a document."""
        row = self._row("document", kind=kind, id=id)
        return None if row is None else _document(row)

    def list_documents(self, kind: str, owner: str | None, before: str | None, limit: int) -> list[Document]:
        """Return documents of a kind, those added last first."""
        conditions = ["kind = :kind"]
        if owner is not None:
            conditions.append("owner = :owner")
        if before is not None:
            conditions.append("n < (SELECT n FROM documents WHERE kind = :kind AND id = :before)")
        query = self._sql["list_documents"].format(conditions=" AND ".join(conditions))
        values = {"kind": kind, "owner": owner, "before": before, "limit": max(limit, 0)}
        return [_document(row) for row in self._db.execute(query, values)]


class _Session:
    """A session's row while a transaction changes it."""

    def __init__(self, row: sqlite3.Row) -> None:
        self.n: int = row["n"]
        self.message_n: int = row["message_n"]
        self.feed_n: int = row["feed_n"]
        self.queue_n: int = row["queue_n"]
        self.session = _session(row)
        self.words: set[str] | None = None
        """The words of its messages that the index has; None as long as nobody has looked."""

    def change(self, **changes: Any) -> None:
        self.session = replace(self.session, **changes)

    def touch(self, now: float) -> None:
        self.change(updated_at=max(self.session.updated_at, now))


class Writing(Reading):
    """What can be done in a transaction."""

    # runs

    def create_run(
        self,
        run: RunRecord,
        input: Sequence[Message],
        parent: str | None,
        expect_head: str | None,
        if_busy: IfBusy,
        idempotency: Idempotency | None,
    ) -> RunRecord:
        """Accept a run, with the messages that it answers."""
        known = self.repeated(idempotency) or self.run(run.id)
        if known is not None:
            return known
        if run.session_id is None:
            return self._insert_run(replace(run, status="running"), None, parent, idempotency)
        it = self._require_session(run.session_id)
        self._check(it, run, input, parent, expect_head)
        busy = self._busy(it, if_busy)
        if busy is not None and if_busy != "queue":
            raise SessionBusy(busy)
        it.touch(run.created_at)
        if busy is not None:
            return self._enqueue(it, run, input, parent, idempotency)
        self._insert_run(run, it, parent, idempotency)
        return self._begin(it, run, input, parent, keeper=run.keeper, at=run.started_at)

    def _check(
        self, it: _Session, run: RunRecord, input: Sequence[Message], parent: str | None, expect_head: str | None
    ) -> None:
        if expect_head not in (HEAD, it.session.head_id):
            raise StaleView
        if parent != HEAD:
            self._require_message(it, parent)
        self._refuse_known(it, run, input)

    def _refuse_known(self, it: _Session, run: RunRecord, input: Sequence[Message]) -> None:
        taken = {message.id for message in input if self._has_message(it, message.id)}
        waiting = [other.input for other in self.queued(it.session.id) if other.id != run.id]
        rules.refuse_known(input, taken | {message.id for messages in waiting for message in messages})

    def _busy(self, it: _Session, if_busy: IfBusy) -> str | None:
        """Return the run that stands in the way: the running one, or else the first queued."""
        for run_id, status in self._rows("unsettled", session=it.n):
            if status == "running" or if_busy != "interrupt":
                return str(run_id)
        return None

    def _insert_run(
        self, run: RunRecord, it: _Session | None, follows: str | None, idempotency: Idempotency | None
    ) -> RunRecord:
        values = asdict(run) | {
            "session": None if it is None else it.n,
            "request": _encode(run.request),
            "input": _encode(run.input),
            "follows": follows,
        }
        number = self._db.execute(self._sql["insert_run"], values).lastrowid
        if idempotency is not None:
            self._db.execute(self._sql["insert_key"], asdict(idempotency) | {"run": number})
        return run

    def _enqueue(
        self,
        it: _Session,
        run: RunRecord,
        input: Sequence[Message],
        parent: str | None,
        idempotency: Idempotency | None,
    ) -> RunRecord:
        it.queue_n += 1
        waiting = {"status": "queued", "keeper": "", "started_at": None, "queue_number": it.queue_n}
        run = self._insert_run(replace(run, **waiting, input=tuple(input)), it, parent, idempotency)
        self._tell(it, rules.queued(run))
        self._save(it)
        return run

    def _begin(
        self,
        it: _Session,
        run: RunRecord,
        input: Sequence[Message],
        parent: str | None,
        *,
        keeper: str,
        at: float | None,
    ) -> RunRecord:
        """Let a run start: what it answers enters the session, and the head moves there."""
        parent_id = rules.resolve(parent, it.session.head_id)
        messages = rules.chained(input, parent_id)
        head = messages[-1].id if messages else parent_id
        run = replace(run, status="running", keeper=keeper, parent_id=head, started_at=at, input=())
        self._rows("start_run", id=run.id, keeper=keeper, parent_id=head, at=at, input=b"[]")
        for message in messages:
            self._add(it, message)
        self._set_title(it, rules.title_for(it.session.title, messages))
        it.change(head_id=head)
        self._tell(it, rules.started(run))
        self._save(it)
        return run

    def start_queued(self, session_id: str, keeper: str, now: float) -> RunRecord | None:
        """Make the first queued run of a session the running one."""
        if not (waiting := self.queued(session_id)):
            return None
        it = self._require_session(session_id)
        if self._busy(it, "interrupt") is not None:
            return None
        run = waiting[0]
        (follows,) = self._rows("follows", id=run.id)[0]
        it.touch(now)
        return self._begin(it, run, run.input, follows, keeper=keeper, at=now)

    def settle(
        self, run_id: str, epoch: int, seq: int, settlement: AnySettlement, message: Message | None, now: float
    ) -> AnySettlement | None:
        """Record how a run ended: compare-and-set."""
        run = self.run(run_id)
        if run is None or run.epoch != epoch or run.status == "queued":
            return None
        if run.settlement is not None:
            return run.settlement
        rules.refuse_other_end(run, seq)
        self._rows("settle_run", id=run_id, seq=seq, settlement=encode_settlement(settlement), now=now)
        if run.session_id is not None:
            it = self._require_session(run.session_id)
            self._leave(it, run, message)
            it.touch(now)
            self._tell(it, rules.settled(run_id, settlement, message))
            self._save(it)
        return settlement

    def _leave(self, it: _Session, run: RunRecord, message: Message | None) -> None:
        """Put the answer into the session, or what was added to it where the run went on with one."""
        if message is not None and message.id == run.parent_id:
            self._change(it, message)
            return
        if message is None or self._has_message(it, message.id):
            return
        self._add(it, replace(message, parent_id=run.parent_id))
        if it.session.head_id == run.parent_id:
            it.change(head_id=message.id)

    def change_queued(self, run_id: str, input: Sequence[Message]) -> RunRecord | None:
        """Change what a queued run will say."""
        run = self.run(run_id)
        if run is None or run.status != "queued":
            return None
        if run.input != tuple(input):
            it = self._require_session(run.session_id or "")
            self._refuse_known(it, run, input)
            run = replace(run, input=tuple(input))
            self._rows("change_input", id=run_id, input=_encode(run.input))
            self._tell(it, rules.queue_changed(run))
            self._save(it)
        return run

    def drop_queued(self, run_id: str, settlement: AnySettlement, now: float) -> RunRecord | None:
        """Settle a queued run that has not started."""
        run = self.run(run_id)
        if run is None or run.status != "queued":
            return None
        it = self._require_session(run.session_id or "")
        self._rows("settle_run", id=run_id, seq=1, settlement=encode_settlement(settlement), now=now)
        self._tell(it, rules.settled(run_id, settlement, None))
        self._save(it)
        return self.run(run_id)

    def delete_run(self, run_id: str) -> bool:
        """Delete a settled run that belongs to no session; what refers to it goes with it."""
        return self._db.execute(self._sql["delete_run"], {"id": run_id}).rowcount > 0

    # logs

    def append(self, entries: Sequence[Append]) -> list[bool]:
        """Add events to logs."""
        ends = self._ends_of_logs(entries)
        saved: list[bool] = []
        rows: list[tuple[int, int, int, bytes, float]] = []
        for entry in entries:
            end = ends.get((entry.run_id, entry.epoch))
            saved.append(end is not None)
            if end is not None:
                run, seq = end
                ends[entry.run_id, entry.epoch] = run, rules.end_of(entry, seq)
                rows += _rows_of(run, seq + 1, entry)
        self._db.executemany(self._sql["append"], rows)
        return saved

    def _ends_of_logs(self, entries: Sequence[Append]) -> dict[tuple[str, int], tuple[int, int]]:
        """Return number and last seq of each run that can be written to, by its id and epoch; in one query for all."""
        rows = self._rows("ends_of_logs", ids=_encode([entry.run_id for entry in entries]))
        return {(run_id, epoch): (n, end or 0) for run_id, epoch, n, end in rows}

    def trim_logs(self, settled_before: float, limit: int) -> int:
        """Forget the events of at most `limit` runs that settled before a time."""
        due = [tuple(row) for row in self._rows("due_for_trim", before=settled_before, limit=limit)]
        self._db.executemany(self._sql["trim_events"], due)
        self._db.executemany(self._sql["trim_run"], due)
        return len(due)

    # sessions

    def add_session(self, session: Session, messages: Sequence[Message]) -> Session:
        """Add a session with messages, unless it is there."""
        known = self.session(session.id)
        if known is not None:
            if known.owner != session.owner:
                raise SessionNotFound(session.id)
            return known
        rules.refuse_known(messages, ())
        if messages:
            session = replace(session, head_id=messages[-1].id)
        self._db.execute(self._sql["insert_session"], _session_values(session))
        it = self._require_session(session.id)
        self._index(it, 0, indexed(rules.words(session.title)))
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
        self._rows("delete_session", n=it.n)
        return True

    def _open(self, session_id: str) -> _Session | None:
        row = self._row("session", id=session_id)
        return None if row is None else _Session(row)

    def _require_session(self, session_id: str) -> _Session:
        it = self._open(session_id)
        if it is None:
            raise SessionNotFound(session_id)
        return it

    def _save(self, it: _Session) -> None:
        numbers = {"n": it.n, "message_n": it.message_n, "feed_n": it.feed_n, "queue_n": it.queue_n}
        self._db.execute(self._sql["save_session"], _session_values(it.session) | numbers)

    def _set_title(self, it: _Session, title: str) -> None:
        if title != it.session.title:
            if it.session.title:
                self._rows("unindex_title", session=it.n)
            it.change(title=title)
            self._index(it, 0, indexed(rules.words(title)))

    # messages, the feed and the index

    def _has_message(self, it: _Session, message_id: str) -> bool:
        return self._row("has_message", session=it.n, id=message_id) is not None

    def _require_message(self, it: _Session, message_id: str | None) -> None:
        if message_id is not None and not self._has_message(it, message_id):
            raise MessageNotFound(message_id)

    def _add(self, it: _Session, message: Message) -> None:
        self._insert_message(it, message)
        self._tell(it, ("message.added", None), it.message_n)

    def _insert_message(self, it: _Session, message: Message) -> None:
        it.message_n += 1
        self._rows("insert_message", session=it.n, n=it.message_n, id=message.id, body=_encode(message))
        self._index_message(it, it.message_n, message)

    def _change(self, it: _Session, message: Message) -> None:
        (row,) = self._rows("message", session=it.n, id=message.id)
        number, message = row["n"], rules.continued(_decode_message(row["body"]), message)
        self._rows("change_message", session=it.n, n=number, body=_encode(message))
        self._index_again(it, number, message)
        self._tell(it, ("message.changed", None), number)

    def _tell(self, it: _Session, item: tuple[str, dict[str, Any] | None], message: int | None = None) -> None:
        it.feed_n += 1
        data = None if item[1] is None else _encode(item[1])
        self._rows("tell", session=it.n, n=it.feed_n, type=item[0], data=data, message=message)

    def _index_message(self, it: _Session, number: int, message: Message, already: Sequence[str] = ()) -> None:
        """Add the words that the session has not said before: a search looks for sessions, so one mention is enough.

        Without that, a word that everybody uses would be found in each of ten million messages.
        """
        if it.session.kind != "chat":
            return
        known = self._known_words(it)
        fresh = [word for word in indexed(rules.words(rules.text_of(message))) if word not in known]
        known.update(fresh)
        self._index(it, number, [*already, *fresh])

    def _known_words(self, it: _Session) -> set[str]:
        if it.words is None:
            it.words = set(_words(self._rows("words", session=it.n)))
        return it.words

    def _index_again(self, it: _Session, number: int, message: Message) -> None:
        """Add the words of a message that was continued to those that it gave before."""
        already = _words(self._rows("words_of", session=it.n, n=number))
        self._known_words(it)  # before they are forgotten
        self._rows("forget_words", session=it.n, n=number)
        self._index_message(it, number, message, already)

    def _index(self, it: _Session, number: int, words: Sequence[str]) -> None:
        if it.session.kind == "chat" and number < _MOST_INDEXED and words:
            self._rows("index", session=it.n, n=number, words=" ".join(words))

    # documents

    def put_document(self, document: Document, expected_version: int | None) -> Document:
        """Keep a document: compare-and-set."""
        known = self.document(document.kind, document.id)
        after = rules.put(document, known, expected_version)
        values = asdict(after) | {"body": _encode(after.body)}
        if known is None:
            self._rows("insert_document", **values)
        elif after != known:
            self._rows("change_document", **values)
        return after

    def delete_document(self, kind: str, id: str) -> bool:
        """Forget a document."""
        return self._db.execute(self._sql["delete_document"], {"kind": kind, "id": id}).rowcount > 0

    # leases

    def renew(self, keeper: str, until: float) -> None:
        """Say that a process is alive until a time."""
        self._rows("renew", keeper=keeper, until=until)

    def claim(self, keeper: str, now: float) -> list[RunRecord]:
        """Take over the running runs whose keeper's lease has ended."""
        orphans = [row["n"] for row in self._rows("orphans", now=now)]
        self._db.executemany(self._sql["take_over"], [(keeper, n) for n in orphans])
        return [self._run_by_number(n) for n in orphans]

    def adopt(self, run_id: str, epoch: int, keeper: str) -> RunRecord | None:
        """Give a run that was claimed for nobody a keeper who goes on with it."""
        run = self.run(run_id)
        if run is None or not rules.may_adopt(run, epoch, keeper):
            return None
        self._rows("adopt", id=run_id, keeper=keeper)
        return replace(run, keeper=keeper)


# rows and structs


def _rows_of(run: int, next: int, entry: Append) -> Iterator[tuple[int, int, int, bytes, float]]:
    """Yield the rows for what of an append is new: small ones, since a reader decodes whole rows."""
    fresh = entry.events[next - entry.first :]
    for start in range(0, len(fresh), _EVENTS_IN_A_ROW):
        events = fresh[start : start + _EVENTS_IN_A_ROW]
        yield run, next + start, len(events), encode_events(events), entry.at


def _run(row: sqlite3.Row) -> RunRecord:
    values = dict(row)
    del values["n"]
    values["request"] = _decode(values["request"])
    values["input"] = _decode_messages(values["input"])
    if values["settlement"] is not None:
        values["settlement"] = decode_settlement(values["settlement"])
    return RunRecord(**values)


def _session(row: sqlite3.Row) -> Session:
    values = dict(row)
    for name in ("n", "message_n", "feed_n", "queue_n"):
        del values[name]
    values["params"] = _decode(values["params"])
    values["pinned"] = bool(values["pinned"])
    return Session(**values)


def _document(row: sqlite3.Row) -> Document:
    values = dict(row)
    del values["n"]
    values["body"] = _decode(values["body"])
    return Document(**values)


def _session_values(session: Session) -> dict[str, Any]:
    return asdict(session) | {"params": _encode(session.params)}


def indexed(words: Sequence[str]) -> list[str]:
    """Return what the index has of words: themselves, and their beginnings, after a dot that is in no word."""
    beginnings = longest = {word[:_BEGINNING] for word in words}
    for letters in range(1, _BEGINNING):
        beginnings = beginnings | {word[:letters] for word in longest}
    return [*words, *map("·".__add__, sorted(beginnings))]


def _looked_up(start: str) -> str:
    """Return what the index is asked for words that begin so."""
    return f'"·{start}"' if len(start) <= _BEGINNING else f'"{start}"*'


def _words(rows: Sequence[sqlite3.Row]) -> list[str]:
    return [word for row in rows for word in row["words"].split(" ")]


def _data(row: sqlite3.Row) -> dict[str, Any]:
    data: dict[str, Any] = _decode(row["data"]) if row["data"] is not None else {"message": _decode(row["body"])}
    return data
