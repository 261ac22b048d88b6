"""A store in memory: plain dicts, for tests, simulations, and runs that need not be kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ..errors import (
    IdempotencyConflict,
    MessageNotFound,
    ResumeGap,
    SessionBusy,
    SessionNotFound,
    StaleView,
)
from ..events import AnySettlement, Event, Settled, encode_event
from ..history import Message, Session, text_of
from . import (
    HEAD,
    Append,
    Document,
    FeedEntry,
    FeedPlace,
    Idempotency,
    IfBusy,
    LogEnd,
    OpenedSession,
    RunRecord,
    SearchHit,
    Status,
    StoredFile,
)
from . import semantics as rules
from .files import refuse_unknown, take_out
from .memory_keys import MemoryDocuments, MemoryKeys, MemorySpending
from .memory_nodes import MemoryNodes, StoredRun
from .people.audit import MemoryAudit


class StoredSession:
    """A session and everything that is deleted with it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages: dict[str, Message] = {}
        self.words: set[str] = set()
        self.feed: list[FeedEntry] = []
        self.files: dict[str, StoredFile] = {}
        self.runs: dict[str, StoredRun] = {}
        self.unsettled: dict[str, StoredRun] = {}
        self.last_queue_number = 0

    def running(self) -> StoredRun | None:
        return next((run for run in self.unsettled.values() if run.record.status == "running"), None)

    def queued(self) -> list[StoredRun]:
        waiting = [run for run in self.unsettled.values() if run.record.status == "queued"]
        return sorted(waiting, key=lambda run: (not run.record.ahead, run.record.queue_number or 0))

    def require(self, message_id: str | None) -> None:
        if message_id is not None and message_id not in self.messages:
            raise MessageNotFound(message_id)

    def ids(self, *, besides: RunRecord) -> set[str]:
        """Return the ids that are in use, those of the messages of queued runs included."""
        waiting = [run.record.input for run in self.queued() if run.record.id != besides.id]
        return self.messages.keys() | {message.id for input in waiting for message in input}

    def add(self, message: Message) -> None:
        self.messages[message.id] = message
        self.words.update(rules.words(text_of(message.content)))

    def change(self, **changes: Any) -> None:
        self.session = replace(self.session, **changes)

    def touch(self, now: float) -> None:
        self.change(updated_at=max(self.session.updated_at, now))

    def add_entry(self, item: rules.FeedItem) -> None:
        self.feed.append(FeedEntry(len(self.feed) + 1, item[0], rules.plain_json(item[1])))

    def begin(self, run: StoredRun, input: Sequence[Message], *, node_id: str, at: float | None) -> RunRecord:
        """Let a run start: what it answers enters the session, and the head moves there."""
        parent_id = rules.resolve_parent(run.parent, self.session.head_id)
        messages = rules.chained(input, parent_id)
        head = messages[-1].id if messages else parent_id
        run.record = replace(run.record, status="running", node_id=node_id, parent_id=head, started_at=at, input=())
        for message in messages:
            self.add(message)
            self.add_entry(rules.added(message))
        self.change(head_id=head, title=rules.title_for(self.session.title, messages))
        self.add_entry(rules.started(run.record))
        return run.record

    def add_answer(self, run: RunRecord, message: Message | None) -> None:
        """Add the answer of a run; if the run continued an older answer, change that one."""
        if message is not None and message.id == run.parent_id:
            message = rules.continued(self.messages[message.id], message)
            self.add(message)
            self.add_entry(rules.went_on(message))
            return
        if message is None or message.id in self.messages:
            return
        message = replace(message, parent_id=run.parent_id)
        self.add(message)
        self.add_entry(rules.added(message))
        if self.session.head_id == run.parent_id:
            self.change(head_id=message.id)


class MemoryStore(MemoryNodes, MemoryDocuments, MemoryKeys, MemorySpending, MemoryAudit):
    """Stores everything in dicts, on the event loop's thread. No method ever suspends, so each is one transaction."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        MemoryNodes.__init__(self, clock)
        MemoryDocuments.__init__(self)
        MemoryKeys.__init__(self)
        MemorySpending.__init__(self)
        MemoryAudit.__init__(self)
        self.stored_sessions: dict[str, StoredSession] = {}
        """By their ids."""
        self.idempotency_keys: dict[tuple[str, str], tuple[str, str]] = {}
        """By owner and key: the digest of the request, and the id of the run that it has started."""

    # the data of an owner

    async def add_account(self, account: Document, owner: str) -> Document:
        """Store a new account together with its claim on an owner."""
        self.claim_owner(owner, account.id)
        return await self.put_document(account)

    async def sessions_of(self, owner: str, *, after: str = "", limit: int = 100) -> list[str]:
        """Return the ids of an owner's sessions of every kind."""
        ids = [id for id, it in self.stored_sessions.items() if it.session.owner == owner and id > after]
        return sorted(ids)[:limit]

    async def old_sessions(
        self, before: float, limit: int = 100, *, of: Sequence[str] | None = None, besides: Sequence[str] = ()
    ) -> list[tuple[str, str]]:
        """Return id and owner of chats that have not changed since a time."""
        chats = [
            it.session for it in self.stored_sessions.values() if it.session.kind == "chat" and not it.session.pinned
        ]
        chats = [each for each in chats if _is_wanted(each.owner, of, besides)]
        old = sorted((each for each in chats if each.updated_at < before), key=lambda each: each.updated_at)
        return [(session.id, session.owner) for session in old[:limit]]

    async def forget_words(self, *, begin: bool) -> bool:
        """Do nothing: words are deleted with their session."""
        return False

    # runs

    async def create_run(
        self,
        run: RunRecord,
        input: Sequence[Message] = (),
        *,
        parent: str | None = HEAD,
        expect_head: str | None = HEAD,
        if_busy: IfBusy = "reject",
        idempotency: Idempotency | None = None,
    ) -> RunRecord:
        """Accept a run, with the messages that it answers."""
        known = self._repeated(idempotency) or self.stored_runs.get(run.id)
        if known is not None:
            return known.record
        if run.session_id is None:
            return self._add(StoredRun(replace(run, status="running"), parent, idempotency))
        session = self._require_session(run.session_id)
        input, files = take_out(input)
        self._check(session, run, input, parent, expect_head)
        refuse_unknown(input, session.files.keys() | files.keys())
        busy = self.busy(session, if_busy)
        if busy is not None and if_busy == "reject":
            raise SessionBusy(busy.record.id)
        session.files |= files
        made = StoredRun(run if busy is None else rules.waiting(run, if_busy), parent, idempotency)
        self._add(made, session)
        session.touch(run.created_at)
        if busy is not None:
            return self._enqueue(session, made, input)
        return session.begin(made, input, node_id=run.node_id, at=run.started_at)

    def _check(
        self,
        session: StoredSession,
        run: RunRecord,
        input: Sequence[Message],
        parent: str | None,
        expect_head: str | None,
    ) -> None:
        if expect_head not in (HEAD, session.session.head_id):
            raise StaleView
        if parent != HEAD:
            session.require(parent)
        rules.refuse_known(input, session.ids(besides=run))

    def busy(self, session: StoredSession, if_busy: IfBusy) -> StoredRun | None:
        """Return the run that keeps a new one of its session from starting; None if it may start."""
        running = session.running()
        if running is not None:
            return running
        return next((run for run in session.queued() if run.record.ahead or if_busy != "interrupt"), None)

    def _add(self, run: StoredRun, session: StoredSession | None = None) -> RunRecord:
        self.stored_runs[run.record.id] = run
        if session is not None:
            session.runs[run.record.id] = session.unsettled[run.record.id] = run
        if run.key is not None:
            self.idempotency_keys[run.key.owner, run.key.key] = run.key.digest, run.record.id
        return run.record

    def _enqueue(self, session: StoredSession, run: StoredRun, input: Sequence[Message]) -> RunRecord:
        session.last_queue_number += 1
        run.record = replace(run.record, queue_number=session.last_queue_number, input=tuple(input))
        session.add_entry(rules.queued_entry(run.record))
        return run.record

    async def find_repeated(self, idempotency: Idempotency) -> RunRecord | None:
        """Return the run that an idempotency key has started."""
        found = self._repeated(idempotency)
        return None if found is None else found.record

    def _repeated(self, idempotency: Idempotency | None) -> StoredRun | None:
        known = None if idempotency is None else self.idempotency_keys.get((idempotency.owner, idempotency.key))
        if known is None or idempotency is None:
            return None
        digest, run_id = known
        if digest != idempotency.digest:
            raise IdempotencyConflict
        return self.stored_runs[run_id]

    async def start_queued(self, session_id: str, *, node_id: str, now: float) -> RunRecord | None:
        """Make the first queued run of a session the running one."""
        session = self.stored_sessions.get(session_id)
        if session is None or session.running() is not None or not (queued := session.queued()):
            return None
        if queued[0].record.node_id not in ("", node_id) and self.is_standing(queued[0].record.node_id):
            return None
        session.touch(now)
        return session.begin(queued[0], queued[0].record.input, node_id=node_id, at=now)

    async def append(self, node_id: str, entries: Sequence[Append]) -> list[LogEnd]:
        """Add events to logs."""
        return [self._append(node_id, entry) for entry in entries]

    def _append(self, node_id: str, entry: Append) -> LogEnd:
        run = self._writable(entry.run_id, entry.epoch)
        if not self.is_standing(node_id):
            return "fenced"
        if run is None:
            return "lost"
        if rules.extends(entry, run.record.seq):
            run.extend(entry.events[run.record.seq + 1 - entry.first :])
            run.times.append((run.record.seq, entry.at))
        return run.record.seq

    def _writable(self, run_id: str, epoch: int) -> StoredRun | None:
        run = self.stored_runs.get(run_id)
        return run if run is not None and run.record.status == "running" and run.record.epoch == epoch else None

    async def settle(
        self,
        run_id: str,
        epoch: int,
        *,
        seq: int,
        settlement: AnySettlement,
        message: Message | None,
        now: float,
    ) -> AnySettlement | None:
        """Record how a run ended: compare-and-set."""
        run = self.stored_runs.get(run_id)
        if run is None or run.record.epoch != epoch or run.record.status == "queued":
            return None
        if run.record.settlement is not None:
            return run.record.settlement
        rules.refuse_other_end(run.record, seq)
        session = self.stored_sessions.get(run.record.session_id or "")
        if session is not None:
            session.add_answer(run.record, message)
            session.touch(now)
        self._end_charge(rules.charge_of(run.record, settlement), now)
        self._end(run, settlement, now)
        if session is not None:
            session.add_entry(rules.settled_entry(run_id, settlement, message))
        return settlement

    def _end(self, run: StoredRun, settlement: AnySettlement, now: float) -> None:
        run.extend([Settled(settlement)])
        run.record = replace(run.record, status="settled", settlement=settlement, settled_at=now, waits=False)
        if run.record.session_id is not None:
            self.stored_sessions[run.record.session_id].unsettled.pop(run.record.id, None)

    async def note_waiting(self, run_id: str, epoch: int, *, waits: bool) -> None:
        """Record whether a running run waits for a person."""
        if (run := self._writable(run_id, epoch)) is not None:
            run.record = replace(run.record, waits=waits)

    async def get_run(self, run_id: str) -> RunRecord | None:
        """Return a run."""
        run = self.stored_runs.get(run_id)
        return None if run is None else run.record

    async def list_runs(
        self,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        status: Status | None = None,
        prefix: str = "",
        before: str | None = None,
        limit: int = 50,
    ) -> list[RunRecord]:
        """Return runs, the newest first."""
        found: list[RunRecord] = []
        reached = before is None
        for run in reversed(self.stored_runs.values()):
            is_sought = run.record.id.startswith(prefix) and _matches(run.record, owner, session_id, status)
            if reached and len(found) < limit and is_sought:
                found.append(run.record)
            reached = reached or run.record.id == before
        return found

    async def read_log(self, run_id: str, after: int, limit: int = 512) -> list[Event]:
        """Return the events after `after`."""
        run = self.stored_runs.get(run_id)
        if run is None:
            return []
        start = max(after, 0) - (run.record.oldest - 1)
        if start < 0:
            raise ResumeGap(run.record.oldest)
        return run.events[start : start + limit]

    async def read_times(self, run_id: str) -> list[tuple[int, float]]:
        """Return the times of a run's events."""
        run = self.stored_runs.get(run_id)
        return list(run.times) if run is not None else []

    async def trim_logs(self, settled_before: float) -> int:
        """Delete the events of runs that settled before a time."""
        due = [run for run in self.stored_runs.values() if _is_due(run.record, settled_before)]
        for run in due:
            del run.events[:-1]
            run.times.clear()
            run.record = replace(run.record, oldest=run.record.seq)
        return len(due)

    async def delete_run(self, run_id: str) -> bool:
        """Delete a settled run that belongs to no session."""
        run = self.stored_runs.get(run_id)
        if run is None or run.record.status != "settled" or run.record.session_id is not None:
            return False
        del self.stored_runs[run_id]
        self._forget_key(run)
        return True

    def _forget_key(self, run: StoredRun) -> None:
        """Delete the key of a run, unless it was deleted before and is now that of another run."""
        place = ("", "") if run.key is None else (run.key.owner, run.key.key)
        if self.idempotency_keys.get(place, ("", ""))[1] == run.record.id:
            del self.idempotency_keys[place]

    async def forget_idempotency(self, settled_before: float) -> int:
        """Delete the idempotency keys of runs that settled before a time."""
        ended = {it.record.id: it.record.settled_at for it in self.stored_runs.values()}
        due = [
            key
            for key, (_, run) in self.idempotency_keys.items()
            if (at := ended[run]) is not None and at < settled_before
        ]
        for key in due:
            del self.idempotency_keys[key]
        return len(due)

    async def delete_runs(
        self, settled_before: float, *, of: Sequence[str] | None = None, besides: Sequence[str] = ()
    ) -> int:
        """Delete runs outside of sessions that settled before a time."""
        ended = [it.record for it in self.stored_runs.values() if _is_wanted(it.record.owner, of, besides)]
        due = [record.id for record in ended if record.settled_at is not None and record.settled_at < settled_before]
        return sum([await self.delete_run(run_id) for run_id in due])

    # the queue of a session

    async def queued(self, session_id: str) -> list[RunRecord]:
        """Return the queued runs of a session in their order."""
        session = self.stored_sessions.get(session_id)
        return [] if session is None else [run.record for run in session.queued()]

    async def change_queued(self, run_id: str, input: Sequence[Message]) -> RunRecord | None:
        """Change the input of a queued run."""
        run = self._queued_run(run_id)
        if run is None:
            return None
        input, files = take_out(input)
        if run.record.input != input:
            session = self.stored_sessions[run.record.session_id or ""]
            rules.refuse_known(input, session.ids(besides=run.record))
            refuse_unknown(input, session.files.keys() | files.keys())
            session.files |= files
            run.record = replace(run.record, input=input)
            session.add_entry(rules.queue_changed(run.record))
        return run.record

    async def drop_queued(self, run_id: str, settlement: AnySettlement, now: float) -> RunRecord | None:
        """Settle a queued run that has not started."""
        run = self._queued_run(run_id)
        if run is None:
            return None
        self._end(run, settlement, now)
        self._charges.pop(run_id, None)
        self.stored_sessions[run.record.session_id or ""].add_entry(rules.settled_entry(run_id, settlement, None))
        return run.record

    async def refuse_start(self, run_id: str, node_id: str, settlement: AnySettlement, now: float) -> RunRecord | None:
        """Settle a run that did not start for its caller, and forget its key."""
        run = self.stored_runs.get(run_id)
        if run is None or not rules.is_refusable(run.record, node_id):
            return None
        self._forget_key(run)
        if run.record.status == "queued":
            return await self.drop_queued(run_id, settlement, now)
        await self.settle(run_id, run.record.epoch, seq=1, settlement=settlement, message=None, now=now)
        return run.record

    def _queued_run(self, run_id: str) -> StoredRun | None:
        run = self.stored_runs.get(run_id)
        return run if run is not None and run.record.status == "queued" else None

    # sessions

    async def stored_bytes(self, owner: str) -> int:
        """Return the size of all that an owner has stored."""
        own = [it for it in self.stored_sessions.values() if it.session.owner == owner]
        runs = [it for it in self.stored_runs.values() if it.record.owner == owner]
        kept: list[Any] = [message for it in own for message in it.messages.values()]
        kept += [(it.record.request, it.record.input, it.record.settlement) for it in runs]
        kept += [event for it in runs if it.record.settlement for event in it.events]
        kept += [it.body for it in self._documents.values() if it.owner == owner]
        return sum(len(encode_event(it)) for it in kept) + sum(
            len(file.data) for it in own for file in it.files.values()
        )

    async def create_session(self, session: Session) -> Session:
        """Add a session."""
        return self._own(session) or self._insert(session, ())

    async def get_session(self, session_id: str) -> Session | None:
        """Return a session."""
        found = self.stored_sessions.get(session_id)
        return None if found is None else found.session

    async def open_session(self, session_id: str) -> OpenedSession | None:
        """Return a session and everything that a view of it shows."""
        found = self.stored_sessions.get(session_id)
        if found is None:
            return None
        running = found.running()
        return OpenedSession(
            session=found.session,
            messages=list(found.messages.values()),
            running=None if running is None else running.record.id,
            queued=[run.record for run in found.queued()],
            feed_end=len(found.feed),
        )

    async def list_sessions(
        self, owner: str, *, query: str = "", prefix: str = "", limit: int = 50, before: str | None = None
    ) -> list[Session]:
        """Return an owner's sessions: pinned ones first, then the ones changed last."""
        chats = [found for found in self.stored_sessions.values() if found.session.kind == "chat"]
        own = [found for found in chats if found.session.owner == owner and found.session.id.startswith(prefix)]
        found = sorted((it.session for it in own if _is_sought(it, query)), key=_place, reverse=True)
        if before is not None:
            last = self.stored_sessions.get(before)
            found = [] if last is None else [it for it in found if _place(it) < _place(last.session)]
        return [replace(it, system=None, params={}) for it in found[:limit]]

    async def find_messages(self, session_ids: Sequence[str], query: str) -> dict[str, SearchHit]:
        """Return the message that matches a query best, by session."""
        sought = rules.sought(query)
        messages = {id: self.stored_sessions[id].messages.values() for id in session_ids if id in self.stored_sessions}
        hits = {id: rules.best_hit(listed, sought) for id, listed in messages.items()}
        return {id: hit for id, hit in hits.items() if hit is not None}

    async def update_session(self, session_id: str, changes: dict[str, Any], now: float) -> Session | None:
        """Change some fields of a session."""
        session = self.stored_sessions.get(session_id)
        if session is None:
            return None
        after = rules.changed(session.session, changes)
        session.require(after.head_id)
        if after != session.session:
            session.session = after
            session.touch(now)
            session.add_entry(("session.changed", changes))
        return session.session

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session and all that belongs to it."""
        session = self.stored_sessions.pop(session_id, None)
        for run_id, run in session.runs.items() if session is not None else ():
            del self.stored_runs[run_id]
            self._forget_key(run)
        return session is not None

    async def copy_session(self, session: Session, messages: Sequence[Message]) -> Session:
        """Add a session together with messages."""
        return self._own(session) or self._insert(session, messages)

    def _own(self, session: Session) -> Session | None:
        """Return the session if it exists and belongs to the same owner."""
        known = self.stored_sessions.get(session.id)
        if known is not None and known.session.owner != session.owner:
            raise SessionNotFound(session.id)
        return None if known is None else known.session

    def _insert(self, session: Session, messages: Sequence[Message]) -> Session:
        new = StoredSession(session)
        messages, new.files = take_out(messages)
        rules.refuse_known(messages, ())
        refuse_unknown(messages, new.files)
        for message in messages:
            new.add(message)
        if messages:
            new.change(head_id=messages[-1].id)
        self.stored_sessions[session.id] = new
        return new.session

    def _require_session(self, session_id: str) -> StoredSession:
        if session_id not in self.stored_sessions:
            raise SessionNotFound(session_id)
        return self.stored_sessions[session_id]

    async def get_message(self, session_id: str, message_id: str) -> Message | None:
        """Return one message of a session."""
        session = self.stored_sessions.get(session_id)
        return None if session is None else session.messages.get(message_id)

    async def messages(self, session_id: str) -> list[Message]:
        """Return every message of a session."""
        session = self.stored_sessions.get(session_id)
        return [] if session is None else list(session.messages.values())

    async def read_files(self, session_id: str, hashes: Sequence[str]) -> dict[str, StoredFile]:
        """Return pictures of a session by their hashes."""
        session = self.stored_sessions.get(session_id)
        known = {} if session is None else session.files
        return {sha256: known[sha256] for sha256 in hashes if sha256 in known}

    async def read_feed(self, session_id: str, after: int, limit: int = 512) -> list[FeedEntry]:
        """Return the feed entries of a session after entry `after`."""
        session = self.stored_sessions.get(session_id)
        return [] if session is None else session.feed[max(after, 0) :][:limit]

    async def feed_place(self, session_id: str, n: int) -> FeedPlace | None:
        """Return a place in the feed of a session."""
        session = self.stored_sessions.get(session_id)
        return None if session is None else FeedPlace(rules.active_run(session.feed[:n]), len(session.feed))

    async def waiting_sessions(self) -> list[str]:
        """Return the sessions in which a run is queued and none is running."""
        return [id for id, it in self.stored_sessions.items() if it.unsettled and it.running() is None]

    async def close(self) -> None:
        """Do nothing: the memory is freed with the object."""


def _is_wanted(owner: str, of: Sequence[str] | None, besides: Sequence[str]) -> bool:
    return (of is None or owner in of) and owner not in besides


def _matches(run: RunRecord, owner: str | None, session_id: str | None, status: Status | None) -> bool:
    return owner in (None, run.owner) and session_id in (None, run.session_id) and status in (None, run.status)


def _is_due(run: RunRecord, settled_before: float) -> bool:
    return run.settled_at is not None and run.settled_at < settled_before and run.oldest < run.seq


def _place(session: Session) -> tuple[bool, float, str]:
    """The sort key of a list of sessions; the id decides between equal times."""
    return session.pinned, session.updated_at, session.id


def _is_sought(it: StoredSession, query: str) -> bool:
    known = it.words.union(rules.words(it.session.title))
    return all(any(word.startswith(start) for word in known) for start in rules.sought(query))
