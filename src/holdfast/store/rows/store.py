"""A store whose medium is a SQL database: the methods of `Store`, by the transactions on rows."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ...errors import StoreUnavailable
from ...events import AnySettlement, Event
from ...history import Message, Session
from .. import (
    HEAD,
    Append,
    Charge,
    Document,
    Draw,
    DrawResult,
    FeedEntry,
    FeedPlace,
    Idempotency,
    IfBusy,
    KeyDetails,
    KeyRecord,
    LogEnd,
    OpenedSession,
    RunEnd,
    RunRecord,
    SearchHit,
    Status,
    StoredFile,
    UsageRow,
)
from ..files import parted, take_out
from ..filing import ANY, Filing, FilingLabels, Filter
from ..indexing import Indexer
from ..nodes import RunsElsewhere
from ..people.audit import AuditEntry, AuditFilter
from ..people.readers import Standing, Wanted
from ..records import Intent, NodeDetails, NodeRecord
from . import Querying
from .nodes import NodesReading
from .transactions import Writing

_FOLDED_AT_ONCE = 1000
_INDEXED_AT_ONCE = 1000  # sessions: further ones are left for the next time
_TRIMMED_AT_ONCE = 100  # runs: a larger transaction would delay all other writes

T = TypeVar("T")


class RowStore(ABC):
    """Implements `Store` for a database that can run the steps of a transaction."""

    _indexer: Indexer | None = None
    """Adds words to the search index before they are searched; without one, a search adds them."""

    @abstractmethod
    async def _write(self, work: Callable[[Writing], Querying[T]], *, durable: bool = True) -> T:
        """Run one transaction. If it is not `durable`, it survives `kill -9`, but perhaps not a power cut."""

    @abstractmethod
    async def _read(self, work: Callable[[NodesReading], Querying[T]], *, snapshot: bool = False) -> T:
        """Run a transaction that only reads. With `snapshot`, all of its reads see one snapshot."""

    @abstractmethod
    async def _read_keys(self, work: Callable[[NodesReading], Querying[T]]) -> T:
        """Read API keys. Long reads must not delay it: a key may have been revoked."""

    @abstractmethod
    async def hint(self, topic: str, ids: Sequence[str], to: str = "") -> None:
        """Wake a node, or all nodes."""

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
        split = await parted(input)
        return await self._write(lambda rows: rows.create_run(run, split, parent, expect_head, if_busy, idempotency))

    async def find_repeated(self, idempotency: Idempotency) -> RunRecord | None:
        """Return the run that an idempotency key has started."""
        return await self._read(lambda rows: rows.repeated(idempotency))

    async def start_queued(self, session_id: str, *, node_id: str, now: float) -> RunRecord | None:
        """Make the first queued run of a session the running one. Most have none: to see that takes no transaction."""
        if not await self._read(lambda rows: rows.is_waiting(session_id)):
            return None
        return await self._write(lambda rows: rows.start_queued(session_id, node_id, now))

    async def append(self, node_id: str, entries: Sequence[Append]) -> list[LogEnd]:
        """Add events to logs."""
        return await self._write(lambda rows: rows.append(node_id, entries), durable=False)

    async def settle(
        self,
        run_id: str,
        epoch: int,
        *,
        seq: int,
        settlement: AnySettlement,
        message: Message | None,
        now: float,
    ) -> RunEnd | None:
        """Record how a run ended: compare-and-set."""
        split = await parted(() if message is None else (message,))
        ended = await self._write(lambda rows: rows.settle(run_id, epoch, seq, settlement, split, now))
        self._index_soon()
        return ended

    async def note_waiting(self, run_id: str, epoch: int, *, waits: bool) -> None:
        """Record whether a running run waits for a person."""
        await self._write(lambda rows: rows.note_waiting(run_id, epoch, waits), durable=False)

    async def get_run(self, run_id: str) -> RunRecord | None:
        """Return a run."""
        return await self._read(lambda rows: rows.run(run_id))

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
        return await self._read(lambda rows: rows.list_runs(owner, session_id, status, prefix, before, limit))

    async def read_log(self, run_id: str, after: int, limit: int = 512) -> list[Event]:
        """Return the events after `after`."""
        return await self._read(lambda rows: rows.read_log(run_id, after, limit), snapshot=True)

    async def read_times(self, run_id: str) -> list[tuple[int, float]]:
        """Return the times of a run's events."""
        return await self._read(lambda rows: rows.read_times(run_id))

    async def trim_logs(self, settled_before: float) -> int:
        """Delete the events of runs that settled before a time, some runs in each transaction."""
        return await self._in_parts(lambda rows: rows.trim_logs(settled_before, _TRIMMED_AT_ONCE))

    async def delete_runs(
        self, settled_before: float, *, of: Sequence[str] | None = None, besides: Sequence[str] = ()
    ) -> int:
        """Delete runs outside of sessions that settled before a time, some runs in each transaction."""
        return await self._in_parts(lambda rows: rows.delete_runs(settled_before, of, besides, _TRIMMED_AT_ONCE))

    async def forget_idempotency(self, settled_before: float) -> int:
        """Delete the idempotency keys of runs that settled before a time, some of them in each transaction."""
        return await self._in_parts(lambda rows: rows.forget_idempotency(settled_before, _TRIMMED_AT_ONCE))

    async def _in_parts(self, change: Callable[[Writing], Querying[int]]) -> int:
        """Repeat a change of at most `_TRIMMED_AT_ONCE` runs until none is left, and return how many were changed."""
        changed = latest = await self._write(change)
        while latest == _TRIMMED_AT_ONCE:
            latest = await self._write(change)
            changed += latest
        return changed

    async def delete_run(self, run_id: str) -> bool:
        """Delete a settled run that belongs to no session."""
        return await self._write(lambda rows: rows.delete_run(run_id))

    # the queue of a session

    async def queued(self, session_id: str) -> list[RunRecord]:
        """Return the queued runs of a session in their order."""
        return await self._read(lambda rows: rows.queued(session_id))

    async def change_queued(self, run_id: str, input: Sequence[Message]) -> RunRecord | None:
        """Change the input of a queued run."""
        split = await parted(input)
        return await self._write(lambda rows: rows.change_queued(run_id, split))

    async def move_queued(self, run_id: str, place: int) -> RunRecord | None:
        """Put a queued run at a place of its queue."""
        return await self._write(lambda rows: rows.move_queued(run_id, place))

    async def drop_queued(self, run_id: str, settlement: AnySettlement, now: float) -> RunRecord | None:
        """Settle a queued run that has not started."""
        return await self._write(lambda rows: rows.drop_queued(run_id, settlement, now))

    async def refuse_start(self, run_id: str, node_id: str, settlement: AnySettlement, now: float) -> RunRecord | None:
        """Settle a run that did not start for its caller, and forget its key."""
        return await self._write(lambda rows: rows.refuse_start(run_id, node_id, settlement, now))

    # sessions

    async def create_session(self, session: Session) -> Session:
        """Add a session."""
        return await self._write(lambda rows: rows.add_session(session, take_out(())))

    async def get_session(self, session_id: str) -> Session | None:
        """Return a session."""
        return await self._read(lambda rows: rows.session(session_id))

    async def open_session(self, session_id: str) -> OpenedSession | None:
        """Return a session and everything that a view of it shows."""
        return await self._read(lambda rows: rows.open_session(session_id), snapshot=True)

    async def list_sessions(
        self,
        owner: str,
        *,
        query: str = "",
        prefix: str = "",
        limit: int = 50,
        before: str | None = None,
        filter: Filter = ANY,
    ) -> list[Session]:
        """Return an owner's sessions: pinned ones first, then the ones changed last.

        A search first completes the index, so that it finds whatever was stored before.
        """
        if query:
            with suppress(StoreUnavailable):  # a full disk: what is in the index can be found
                await self._index(owner)
        return await self._read(lambda rows: rows.list_sessions(owner, query, prefix, limit, before, filter))

    async def find_messages(self, session_ids: Sequence[str], query: str) -> dict[str, SearchHit]:
        """Return the message that matches a query best, by session."""
        return await self._read(lambda rows: rows.find_messages(session_ids, query), snapshot=True)

    async def update_session(self, session_id: str, changes: dict[str, Any], now: float) -> Session | None:
        """Change some fields of a session."""
        return await self._write(lambda rows: rows.update_session(session_id, changes, now))

    async def labels(self, owner: str) -> FilingLabels:
        """Return the folders and tags that the chats of an owner have."""
        return await self._read(lambda rows: rows.labels(owner))

    async def file_sessions(self, owner: str, ids: Sequence[str], filing: Filing) -> list[Session]:
        """File chats of an owner, all in one transaction."""
        return await self._write(lambda rows: rows.file_sessions(owner, ids, filing))

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session and all that belongs to it."""
        return await self._write(lambda rows: rows.delete_session(session_id))

    async def copy_session(self, session: Session, messages: Sequence[Message]) -> Session:
        """Add a session together with messages."""
        split = await parted(messages)
        added = await self._write(lambda rows: rows.add_session(session, split))
        self._index_soon()
        return added

    async def add_branch(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        parent: str | None,
        expect_head: str | None,
        now: float,
    ) -> Session:
        """Add messages to a session, and show the branch that ends with them."""
        session = await self._write(lambda rows: rows.add_branch(session_id, messages, parent, expect_head, now))
        self._index_soon()
        return session

    async def get_message(self, session_id: str, message_id: str) -> Message | None:
        """Return one message of a session."""
        return await self._read(lambda rows: rows.get_message(session_id, message_id))

    async def messages(self, session_id: str) -> list[Message]:
        """Return every message of a session."""
        return await self._read(lambda rows: rows.messages(session_id))

    async def conversation(self, session_id: str) -> tuple[Session, list[Message]] | None:
        """Return a session with its messages."""
        return await self._read(lambda rows: rows.conversation(session_id))

    async def read_files(self, session_id: str, hashes: Sequence[str]) -> dict[str, StoredFile]:
        """Return pictures of a session by their hashes."""
        return await self._read(lambda rows: rows.read_files(session_id, hashes))

    async def read_feed(self, session_id: str, after: int, limit: int = 512) -> list[FeedEntry]:
        """Return the feed entries of a session after entry `after`."""
        return await self._read(lambda rows: rows.read_feed(session_id, after, limit))

    async def feed_place(self, session_id: str, n: int) -> FeedPlace | None:
        """Return a place in the feed of a session."""
        return await self._read(lambda rows: rows.feed_place(session_id, n))

    # the search index

    def _index_soon(self) -> None:
        if self._indexer is not None:
            self._indexer.begin()

    async def _end_indexing(self) -> None:
        if self._indexer is not None:
            await self._indexer.end()

    async def _index(self, owner: str | None) -> None:
        """Add the words of what is stored now to the index: of one owner, or of some sessions of all."""
        limit = _INDEXED_AT_ONCE if owner is None else sys.maxsize
        sessions = await self._read(lambda rows: rows.unindexed(owner, limit))
        while sessions:
            sessions = await self._index_some(sessions)

    async def _index_some(self, sessions: Sequence[int]) -> list[int]:
        return await self._write(lambda rows: rows.index_words(sessions), durable=False)

    # documents

    async def put_document(self, document: Document, expected_version: int | None = None) -> Document:
        """Store a document: compare-and-set."""
        return await self._write(lambda rows: rows.put_document(document, expected_version))

    async def put_documents(self, puts: Sequence[tuple[Document, int | None]]) -> list[Document]:
        """Store documents, all or none."""
        return await self._write(lambda rows: rows.put_documents(puts))

    async def get_document(self, kind: str, id: str) -> Document | None:
        """Return a document."""
        return await self._read(lambda rows: rows.document(kind, id))

    async def list_documents(
        self, kind: str, owner: str | None = None, *, before: str | None = None, limit: int = 50
    ) -> list[Document]:
        """Return documents of a kind, the last added first."""
        return await self._read(lambda rows: rows.list_documents(kind, owner, before, limit))

    async def delete_document(self, kind: str, id: str, version: int | None = None) -> bool:
        """Delete a document."""
        return await self._write(lambda rows: rows.delete_document(kind, id, version))

    # usage and budgets

    async def draw(self, draws: Sequence[Draw], now: float) -> list[DrawResult]:
        """Share out budgets."""
        return await self._write(lambda rows: rows.draw(draws, now))

    async def charge(self, charges: Sequence[Charge], now: float) -> None:
        """Record the total usage of ended runs."""
        await self._write(lambda rows: rows.charge(charges, now))

    async def drop_charge(self, id: str) -> None:
        """Delete the charge of a run that has not started."""
        await self._write(lambda rows: rows.drop_charge(id))

    async def fold_charges(self, before: float, now: float) -> int:
        """Add charges to the sums of their days, some of them in each transaction."""
        folded = latest = await self._write(lambda rows: rows.fold_charges(before, now, _FOLDED_AT_ONCE))
        while latest == _FOLDED_AT_ONCE:
            latest = await self._write(lambda rows: rows.fold_charges(before, now, _FOLDED_AT_ONCE))
            folded += latest
        return folded

    async def usage(self, since: int, until: int, *, owner: str | None = None, limit: int = 10_000) -> list[UsageRow]:
        """Return the usage of some days."""
        return await self._read(lambda rows: rows.usage(since, until, owner, limit))

    async def stored_bytes(self, owner: str) -> int:
        """Return the size of an owner's messages and pictures."""
        return await self._read(lambda rows: rows.stored_bytes(owner))

    # nodes

    async def renew(self, node_id: str, seconds: float, details: NodeDetails | None = None) -> NodeRecord | None:
        """Renew the lease of a node."""
        return await self._write(lambda rows: rows.renew(node_id, seconds, details or NodeDetails()))

    async def release(self, node_id: str) -> None:
        """Fence a node that shuts down."""
        await self._write(lambda rows: rows.release(node_id))

    async def give_up(self, node_id: str, run_ids: Sequence[str]) -> None:
        """Give up running runs of a node."""
        await self._write(lambda rows: rows.give_up(node_id, run_ids))

    async def nodes(self) -> list[NodeRecord]:
        """Return the nodes that are not fenced."""
        return await self._read(lambda rows: rows.nodes())

    async def running_elsewhere(self, owner: str, node_id: str) -> RunsElsewhere:
        """Return the number of runs on other nodes."""
        return await self._read(lambda rows: rows.running_elsewhere(owner, node_id))

    async def take_starts(self, owner: str, starts: int, per_minute: int) -> float:
        """Take starts from the bucket of an owner, or return the seconds until there are enough."""
        return await self._write(lambda rows: rows.take_starts(owner, starts, per_minute), durable=False)

    async def claim(self, node_id: str, unbroken: float = 0.0) -> dict[str, int]:
        """Take over runs of dead nodes, and return the epochs of all runs of this node."""
        return await self._write(lambda rows: rows.claim(node_id, unbroken))

    async def hold(self, kind: str, id: str, node_id: str) -> bool:
        """Take a piece of work for a node."""
        return await self._write(lambda rows: rows.hold(kind, id, node_id))

    async def holder(self, kind: str, id: str) -> str:
        """Return the node that holds a piece of work."""
        return await self._read(lambda rows: rows.holder(kind, id))

    async def left_over(self, kind: str, limit: int = 100) -> list[str]:
        """Return the pieces of work of a kind that fenced nodes held."""
        return await self._read(lambda rows: rows.left_over(kind, limit))

    async def let_go(self, kind: str, id: str, node_id: str) -> None:
        """Release a piece of work."""
        await self._write(lambda rows: rows.let_go(kind, id, node_id))

    # requests to the owner of a run

    async def ask_owner(self, intent: Intent) -> Intent | None:
        """Store a request to the node that owns a run."""
        stored = await self._write(lambda rows: rows.ask_owner(intent))
        if stored is None:
            return None
        kept, node_id = stored
        await self.hint("intent", [kept.run_id], node_id)
        return kept

    async def get_intent(self, id: str) -> Intent | None:
        """Return a request to the owner of a run."""
        return await self._read(lambda rows: rows.intent(id))

    async def open_intents(self, node_id: str) -> list[Intent]:
        """Return the open requests to a node."""
        return await self._read(lambda rows: rows.open_intents(node_id))

    async def take_intent(self, id: str, epoch: int) -> bool:
        """Take a request for the owner of this epoch."""
        return await self._write(lambda rows: rows.take_intent(id, epoch))

    async def answer_intent(self, id: str, answer: dict[str, Any]) -> None:
        """Answer a request."""
        intent = await self._write(lambda rows: rows.answer_intent(id, answer))
        if intent is not None:
            await self.hint("answer", [id], intent.asked_by)

    async def withdraw_intent(self, id: str) -> Intent | None:
        """Remove a request."""
        return await self._write(lambda rows: rows.withdraw_intent(id))

    async def forget_intents(self, seconds: float) -> None:
        """Remove requests that are older than `seconds`."""
        await self._write(lambda rows: rows.forget_intents(seconds))

    # owners and API keys

    async def add_account(self, account: Document, owner: str) -> Document:
        """Store a new account together with its claim on an owner."""
        return await self._write(lambda rows: rows.add_account(account, owner))

    async def account_of(self, owner: str) -> str | None:
        """Return the account of an owner."""
        return await self._read_keys(lambda rows: rows.account_of(owner))

    async def release_owner(self, owner: str) -> bool:
        """Delete an owner."""
        return await self._write(lambda rows: rows.release_owner(owner))

    async def add_key(self, key: KeyRecord, most: int | None = None) -> KeyRecord:
        """Add an API key."""
        return await self._write(lambda rows: rows.add_key(key, most))

    async def misplaced_keys(self) -> list[str]:
        """Return the ids of active keys whose owner belongs to another account."""
        return await self._read_keys(lambda rows: rows.misplaced_keys())

    async def revoke_key(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key."""
        return await self._write(lambda rows: rows.revoke_key(id, now))

    async def change_key(self, id: str, change: Callable[[KeyDetails], KeyDetails]) -> KeyRecord | None:
        """Change the limits of a key."""
        return await self._write(lambda rows: rows.change_key(id, change))

    async def list_keys(self, *, after: int = 0, account: str | None = None) -> list[KeyRecord]:
        """Return the API keys."""
        return await self._read_keys(lambda rows: rows.api_keys(after=after, account=account))

    async def keys_used(self, ids: Sequence[str], now: float) -> None:
        """Record the time of the last use of keys."""
        await self._write(lambda rows: rows.keys_used(ids, now))

    async def key_changes(self) -> int:
        """Return a number that grows whenever a key is added, changed or revoked, by any process."""
        return await self._read_keys(lambda rows: rows.key_changes())

    # the audit log, and the data of an owner

    async def add_audit(self, entry: AuditEntry) -> AuditEntry:
        """Add an entry to the audit log."""
        return await self._write(lambda rows: rows.add_audit(entry))

    async def read_audit(
        self, filter: AuditFilter, *, after: int = 0, before: int | None = None, limit: int = 200
    ) -> list[AuditEntry]:
        """Return entries of the audit log."""
        return await self._read(lambda rows: rows.read_audit(filter, after, before, limit))

    async def audit_end(self) -> tuple[int, str]:
        """Return number and digest of the newest entry."""
        return await self._read(lambda rows: rows.audit_end())

    async def delete_audit(self, through: int) -> int:
        """Delete the entries up to a number."""
        return await self._write(lambda rows: rows.delete_audit(through))

    async def sessions_of(self, owner: str, *, after: str = "", limit: int = 100) -> list[str]:
        """Return the ids of an owner's sessions of every kind."""
        return await self._read(lambda rows: rows.sessions_of(owner, after, limit))

    async def documents_of(self, owner: str, *, after: tuple[str, str] = ("", ""), limit: int = 20) -> list[Document]:
        """Return documents of an owner, of every kind."""
        return await self._read(lambda rows: rows.documents_of(owner, after, limit))

    async def old_sessions(
        self, before: float, limit: int = 100, *, of: Sequence[str] | None = None, besides: Sequence[str] = ()
    ) -> list[tuple[str, str]]:
        """Return id and owner of chats that have not changed since a time."""
        return await self._read(lambda rows: rows.old_sessions(before, of, besides, limit))

    async def delete_documents_of(self, owner: str, limit: int = 100) -> int:
        """Delete documents of an owner."""
        return await self._write(lambda rows: rows.delete_documents_of(owner, limit))

    async def note_reader(self, session_id: str, reader: str, *, seen: int = 0, told: int = 0) -> bool:
        """Move what a person has seen and was told of forward."""
        return await self._write(lambda rows: rows.note_reader(session_id, reader, seen, told), durable=False)

    async def set_wanted(self, session_id: str, reader: str, wanted: Wanted | None) -> None:
        """Set what a person wants to be told of a session."""
        await self._write(lambda rows: rows.set_wanted(session_id, reader, wanted))

    async def standings(self, reader: str, session_ids: Sequence[str]) -> dict[str, Standing]:
        """Return sessions as a person knows them."""
        return await self._read(lambda rows: rows.standings(reader, session_ids))

    async def read_by(self, reader: str, *, after: str = "", limit: int = 500) -> dict[str, Standing]:
        """Return what a person has read."""
        return await self._read(lambda rows: rows.read_by(reader, after, limit))

    async def forget_reader(self, reader: str, limit: int = 500) -> int:
        """Delete what a person has seen of any session."""
        return await self._write(lambda rows: rows.forget_reader(reader, limit))

    async def disown_usage(self, owner: str) -> int:
        """Remove an owner and the keys from their usage."""
        return await self._write(lambda rows: rows.disown_usage(owner))

    async def forget_words(self, *, begin: bool) -> bool:
        """Remove the words of deleted sessions from a part of the search index."""
        return await self._write(lambda rows: rows.forget_words(begin))

    async def forget_keys(self, account: str) -> int:
        """Remove the data about a person from revoked keys."""
        return await self._write(lambda rows: rows.forget_keys(account))

    async def waiting_sessions(self) -> list[str]:
        """Return the sessions in which a run is queued and none is running."""
        return await self._read(lambda rows: rows.waiting_sessions())
