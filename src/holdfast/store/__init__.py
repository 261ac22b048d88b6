"""The store: the data that outlives the process, and the promises of every store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ..access import Payer as Payer
from ..asks import Ask, ProgramAsk
from ..errors import IdempotencyConflict
from ..events import AnySettlement, Event
from ..history import Message, Session
from ..ids import ModelName
from .filing import ANY, FilingStore, Filter
from .nodes import NodeStore
from .people.audit import AuditStore
from .people.owned import OwnedStore
from .people.readers import ReaderStore
from .records import Cap as Cap
from .records import CapKind as CapKind
from .records import Charge as Charge
from .records import Draw as Draw
from .records import DrawResult as DrawResult
from .records import Intent as Intent
from .records import KeyDetails as KeyDetails
from .records import KeyRecord as KeyRecord
from .records import NodeDetails as NodeDetails
from .records import NodeRecord as NodeRecord
from .records import RunEnd as RunEnd
from .records import SearchHit as SearchHit
from .records import Spent as Spent
from .records import UsageRow as UsageRow

Lifetime = Literal["detached", "attached"]
Status = Literal["queued", "running", "settled"]
IfBusy = Literal["reject", "queue", "interrupt"]
HEAD = "head"
"""Stands for the last message of the branch that a session shows."""
PAGE_BYTES = 8 * 1024 * 1024
"""Maximum size, in bytes, of a page of runs or documents. The first entry of a page does not count."""
LONGEST_KEY = 256
"""Maximum length, in characters, of a key under which a program starts a run."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is stored."""

    id: str
    owner: str = ""
    session_id: str | None = None
    message_id: str | None = None
    parent_id: str | None = None
    """The message that the answer follows."""
    model: ModelName = ModelName("")
    """Empty for a source of the program's own that names none."""
    asked: str = ""
    """The model as the client wrote it; empty if the client left the choice to the server."""
    kind: str = "chat"
    lifetime: Lifetime = "detached"
    status: Status = "running"
    node_id: str = ""
    """The process that owns the run."""
    epoch: int = 1
    """The number of the owner: a writer with a lower one is refused."""
    ask: Ask = ProgramAsk()
    queue_number: int | None = None
    ahead: bool = False
    """True for a run that was queued to interrupt: it starts before the other queued runs."""
    input: tuple[Message, ...] = ()
    """The messages of a queued run. They are added to the session when it starts."""
    seq: int = 0
    oldest: int = 1
    created_at: float = 0.0
    started_at: float | None = None
    settled_at: float | None = None
    settlement: AnySettlement | None = None
    payer: Payer = Payer()
    waits: bool = False
    """True while the run waits for a person."""

    @property
    def echo(self) -> str:
        """The model's name in answers of a wire that repeats what its client wrote."""
        return self.asked or self.model


class Idempotency(msgspec.Struct, frozen=True):
    """An idempotency key: two requests of an owner with the same key are one. Who only looks for it has no `digest`."""

    owner: str
    key: str
    digest: str | None

    def check(self, digest: str | None) -> None:
        """Raise `IdempotencyConflict` if the key was first used for a request with another digest."""
        if self.digest not in (None, digest):
            raise IdempotencyConflict


def caller_key(owner: str, key: str, digest: str | None) -> Idempotency:
    """Return the key of a program's run. Its line break keeps it apart from the Idempotency-Key of an HTTP request."""
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        raise ValueError(f"a run's key has 1 to {LONGEST_KEY} printable characters")
    return Idempotency(owner, f"run\n{key}", digest)


class Append(msgspec.Struct, frozen=True):
    """Events of one run. `first` is the seq of the first one."""

    run_id: str
    epoch: int
    first: int
    events: Sequence[Event]
    at: float = 0.0


AppendRefusal = Literal["lost", "fenced"]
"""Why events were refused. Lost: the run has settled, is gone, or has another epoch. Fenced: the node has no lease."""
LogEnd = int | AppendRefusal
"""The last seq of a log after an append, or why the append was refused."""


class FeedEntry(msgspec.Struct, frozen=True):
    """One change in a session: `message.added`, `run.queued`, `run.started`, `run.settled`, ..."""

    n: int
    type: str
    data: dict[str, Any]


class FeedPlace(msgspec.Struct, frozen=True):
    """A place in the feed of a session."""

    run_id: str | None
    """The run that had started by then and had not settled."""
    end: int
    """The number of the newest entry."""


class OpenedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session and everything that a view of it shows, from one snapshot."""

    session: Session
    messages: list[Message]
    """Every message, siblings included, in the order in which they were added."""
    running: str | None
    """The id of the run that is running."""
    queued: list[RunRecord]
    feed_end: int
    """The number of the newest feed entry. Changes that are not in this snapshot have higher numbers."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of a message, which refers to it by the SHA-256 of `data`."""

    type: str
    """Its media type: image/png, image/jpeg, image/gif or image/webp."""
    data: bytes


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a feature: a comparison, a batch, a webhook. The store does not interpret `body`.

    `version` counts its changes from 1. The store sets it; a caller that changes a document passes the version that it
    has read.
    """

    kind: str
    id: str
    owner: str = ""
    version: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    body: dict[str, Any] = {}


class Store(NodeStore, AuditStore, OwnedStore, FilingStore, ReaderStore, Protocol):
    """Keeps runs, their logs, sessions, the documents of features, and the server's API keys.

    Every method is one transaction: it takes effect as a whole or not at all. If the medium cannot be reached, a method
    raises `StoreUnavailable`. Then the caller does not know whether it took effect, so every write can be repeated.
    Acknowledged writes survive a power cut; `append` survives `kill -9`.
    """

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
        """Accept a run, with the messages that it answers, and return its record.

        In a session: `input` is added after `parent` (an edit or regenerate names an older message; None is the
        very beginning), the record's `parent_id` becomes the last message it answers, and the session's head moves
        there. `expect_head` other than HEAD must be the head's id, otherwise `StaleView`. If another run is
        running or queued in the session: `SessionBusy` with the id of the running (or else the first queued) run. With
        `if_busy="queue"` the record is instead stored as `queued`, with its input and the next `queue_number` (1, 2,
        ... for each session, never used twice). With `"interrupt"` it passes the queued runs: only a running run and
        one that is queued `ahead` count as busy. Then it is queued `ahead`: after the others that are, before the rest.
        It keeps its owner, which starts it.
        A known idempotency key returns the record of its first request (`IdempotencyConflict` for another digest),
        and the id of an existing run returns that run. `SessionNotFound` if there is no such session.
        A session without a title gets one from the first user message.
        Feed: `message.added` for each input message, then `run.started`, or `run.queued`.
        """
        ...

    async def find_repeated(self, idempotency: Idempotency) -> RunRecord | None:
        """Return the run that an idempotency key has started, or None. `IdempotencyConflict` for another digest."""
        ...

    async def start_queued(self, session_id: str, *, node_id: str, now: float) -> RunRecord | None:
        """Make the first queued run of a session the running one, and return it. Its input is added to the session.

        None if no run is queued, if another run is running, if the session was deleted, or if the first one is `ahead`
        and belongs to another live node: that node starts it.
        Feed: as for a run that starts at once.
        """
        ...

    async def append(self, node_id: str, entries: Sequence[Append]) -> list[LogEnd]:
        """Add events to logs, in one group commit. Return the last seq of each log, or why the append was refused.

        A log that ends before `first - 1` is not changed: it was rolled back, and its owner has to send the missing
        events again. Repeating an append changes nothing and returns the same.
        """
        ...

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
        """Record how a run ended, as event `seq`, with the message it leaves: compare-and-set.

        Returns the end that is stored, with this settlement or an earlier one. None if the run has another epoch, or
        was deleted. `LogBehind` if the log does not end at `seq - 1`. The message is added to the session after the
        run's `parent_id`, and becomes the head if the head is still that parent. If it has the id of that parent, the
        run has continued it: it keeps its place and gets the new content. Queued runs are settled by `drop_queued`.
        Feed: `message.added` (or `message.changed`) if there is a message, then `run.settled`.
        The run's usage becomes its charge, in the same transaction.
        """
        ...

    async def note_waiting(self, run_id: str, epoch: int, *, waits: bool) -> None:
        """Record whether a running run waits for a person. A call with another epoch changes nothing."""
        ...

    async def get_run(self, run_id: str) -> RunRecord | None:
        """Return a run."""
        ...

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
        """Return a page of runs, the newest first. `prefix` is that of their ids, `before` the id to continue after.

        A page has at most `limit` runs, and may have fewer: besides its first run it has at most about `PAGE_BYTES`.
        Only an empty page is the end.
        """
        ...

    async def read_log(self, run_id: str, after: int, limit: int = 512) -> list[Event]:
        """Return the events with the numbers `after + 1`, `after + 2`, ... in order, at most about `limit`.

        The settlement is the last of them. `ResumeGap` if events after `after` were trimmed.
        """
        ...

    async def read_times(self, run_id: str) -> list[tuple[int, float]]:
        """Return the times of a run's events: the last seq of each append, and its `at`. Trimmed events have none."""
        ...

    async def trim_logs(self, settled_before: float) -> int:
        """Delete the events of runs that settled before a time. The settlement stays as the log's last event.

        Returns how many runs it trimmed.
        """
        ...

    async def delete_run(self, run_id: str) -> bool:
        """Delete a settled run that belongs to no session, with its log and its idempotency key.

        False if it does not exist, has not settled, or belongs to a session: a session is deleted as a whole.
        """
        ...

    async def delete_runs(
        self, settled_before: float, *, of: Sequence[str] | None = None, besides: Sequence[str] = ()
    ) -> int:
        """Delete the runs outside of sessions that settled before a time, with their logs and idempotency keys.

        `of` are their owners; None for all but those in `besides`. Returns how many were deleted.
        """
        ...

    async def forget_idempotency(self, settled_before: float) -> int:
        """Delete the idempotency keys of runs that settled before a time. The runs stay. Returns the number of keys."""
        ...

    # the queue of a session

    async def queued(self, session_id: str) -> list[RunRecord]:
        """Return the queued runs of a session in their order."""
        ...

    async def change_queued(self, run_id: str, input: Sequence[Message]) -> RunRecord | None:
        """Change the input of a queued run. None if it is no longer queued. Feed: `queue.changed`."""
        ...

    async def move_queued(self, run_id: str, place: int) -> RunRecord | None:
        """Put a queued run at a place of its queue, from 1 on; those in between get each other's numbers.

        A run that is queued `ahead` stays where it is. None if the run is no longer queued. Feed: `queue.changed` for
        each run whose number has changed.
        """
        ...

    async def drop_queued(self, run_id: str, settlement: AnySettlement, now: float) -> RunRecord | None:
        """Settle a queued run that has not started. No message is added to the session.

        Returns the changed record; None if the run is not queued, or no longer. Its log has one event, the
        settlement. Feed: `run.settled`.
        """
        ...

    async def refuse_start(self, run_id: str, node_id: str, settlement: AnySettlement, now: float) -> RunRecord | None:
        """Settle a run whose caller was told that it did not start, and forget its idempotency key.

        So a repeated request starts another run. If the head is the run's input, it goes back to where it was. Returns
        the changed record; None if the run is neither queued nor one of this node without an event.
        """
        ...

    async def waiting_sessions(self) -> list[str]:
        """Return the sessions in which a run is queued and none is running."""
        ...

    # sessions

    async def create_session(self, session: Session) -> Session:
        """Add a session. An existing one with the same id and owner is returned; of another owner `SessionNotFound`."""
        ...

    async def get_session(self, session_id: str) -> Session | None:
        """Return a session."""
        ...

    async def open_session(self, session_id: str) -> OpenedSession | None:
        """Return a session with its messages, its runs in progress and the end of its feed; None if it does not exist.

        It is one snapshot: together with every feed entry after `feed_end`, a reader misses no change.
        """
        ...

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
        """Return an owner's sessions of the kind "chat": pinned ones first, then the ones changed last.

        `prefix` is that of their ids. `query` are words, or prefixes of words, in titles and messages. `before` is the
        id of the last session of the page before. A search finds whatever was stored before it began.

        `system` and `params` can be long, and are left out: they are None and {}.
        """
        ...

    async def find_messages(self, session_ids: Sequence[str], query: str) -> dict[str, SearchHit]:
        """Return the message that matches a query best, by session. Sessions without a matching message are left out.

        It is the first message with all words of the query, or else one with as many as the store finds at little cost.
        Titles do not count. A query without words matches nothing.
        """
        ...

    async def update_session(self, session_id: str, changes: dict[str, Any], now: float) -> Session | None:
        """Change the fields that `semantics.CHANGEABLE` names. None if the session does not exist.

        Feed: `session.changed` with the changes.
        """
        ...

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session, its messages, runs, logs, feed, idempotency keys, and pictures that no other session has.

        False if it did not exist.
        """
        ...

    async def copy_session(self, session: Session, messages: Sequence[Message]) -> Session:
        """Add a session together with messages (a fork or an import) whose last one is its head."""
        ...

    async def add_branch(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        parent: str | None,
        expect_head: str | None,
        now: float,
    ) -> Session:
        """Add messages as a chain after `parent` (None is the very beginning), and show the branch that ends there.

        Without messages the branch ends with `parent`. The messages name only files that the session has. No run may
        be running or queued: `SessionBusy`. `expect_head` must be the head's id, otherwise `StaleView`.
        Feed: `message.added` for each message, then `session.changed` with the new head.
        """
        ...

    async def get_message(self, session_id: str, message_id: str) -> Message | None:
        """Return one message of a session."""
        ...

    async def messages(self, session_id: str) -> list[Message]:
        """Return every message of a session, including siblings, in the order in which they were added."""
        ...

    async def conversation(self, session_id: str) -> tuple[Session, list[Message]] | None:
        """Return a session with its messages, as `messages` does; None if it does not exist."""
        ...

    async def read_files(self, session_id: str, hashes: Sequence[str]) -> dict[str, StoredFile]:
        """Return pictures of a session by their hashes: those that its messages or queued runs contain or contained.

        `create_run`, `change_queued` and `copy_session` store each picture that is in a message as a data URL, and put
        a reference in its place (`holdfast.store.files`). `BadRequest` for a reference to a picture that the session
        does not have.
        """
        ...

    async def read_feed(self, session_id: str, after: int, limit: int = 512) -> list[FeedEntry]:
        """Return the feed entries of a session after entry `after`. They are numbered 1, 2, ... without gaps."""
        ...

    async def feed_place(self, session_id: str, n: int) -> FeedPlace | None:
        """Return the place after entry `n` of a session's feed, for a reader that resumes; None without the session."""
        ...

    # documents

    async def put_document(self, document: Document, expected_version: int | None = None) -> Document:
        """Store a document, and return it with its new version: compare-and-set.

        `expected_version` is the one that the caller has read; None or 0 for a new document. `StaleDocument` if another
        version is stored, or the owner is another. The time of creation never changes.
        Repeating a put changes nothing and returns the stored document.
        """
        ...

    async def put_documents(self, puts: Sequence[tuple[Document, int | None]]) -> list[Document]:
        """Store documents, all or none: each as `put_document` does, with its expected version."""
        ...

    async def get_document(self, kind: str, id: str) -> Document | None:
        """Return a document. Two kinds may use the same id."""
        ...

    async def list_documents(
        self, kind: str, owner: str | None = None, *, before: str | None = None, limit: int = 50
    ) -> list[Document]:
        """Return a page of documents of a kind, the last added first. `before` is the last id of the page before.

        Pages are limited like those of `list_runs`. Only an empty page is the end.
        """
        ...

    async def documents_of(
        self, owner: str, *, after: tuple[str, str] = ("", ""), limit: int = 20
    ) -> Sequence[Document]:
        """Return documents of an owner, of every kind, by kind and id. `after` is that of the last one seen."""
        ...

    async def delete_document(self, kind: str, id: str, version: int | None = None) -> bool:
        """Delete a document, of this version if one is given; False if it did not exist."""
        ...

    # owners

    async def add_account(self, account: Document, owner: str) -> Document:
        """Store a new account together with its claim on an owner, which is made if there is none: both or none.

        `OwnerTaken` if another account or the settings file has it. The keys of a service become keys of the account.
        """
        ...

    async def account_of(self, owner: str) -> str | None:
        """Return the id of an owner's account: empty for a service, None if there is no such owner."""
        ...

    async def release_owner(self, owner: str) -> bool:
        """Delete an owner, so that an account can claim its data; False if there is none."""
        ...

    # API keys

    async def add_key(self, key: KeyRecord, most: int | None = None) -> KeyRecord:
        """Add an API key, together with its owner if that is a new service.

        `OwnerTaken` if its owner belongs to anyone else, `KeyExists` if an active key of the same person, or of any
        service, has the same name, `KeyLimitReached` if its person has `most` active keys. A known id changes nothing:
        the stored key is returned, which may be revoked.
        """
        ...

    async def misplaced_keys(self) -> list[str]:
        """Return the ids of active keys whose owner belongs to another account than the key, or does not exist."""
        ...

    async def revoke_key(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key and return it; None if no active key has the id."""
        ...

    async def change_key(self, id: str, change: Callable[[KeyDetails], KeyDetails]) -> KeyRecord | None:
        """Change the limits of a key, and return it; None if no active key has the id. `change` is called within the
        transaction, perhaps in another thread or twice. What it raises is raised.
        """
        ...

    async def list_keys(self, *, after: int = 0, account: str | None = None) -> list[KeyRecord]:
        """Return the API keys, including revoked ones, in the order in which they were added.

        With `after`, only keys that have changed since `key_changes` was that number; with `account`, only its keys.
        """
        ...

    async def key_changes(self) -> int:
        """Return a number that grows whenever a key is added, changed or revoked, by this process or another.

        This is a cheap read, to notice changes by another process that has the store open.
        """
        ...

    async def keys_used(self, ids: Sequence[str], now: float) -> None:
        """Record the time of the last use of keys. This does not count as a change of the keys."""
        ...

    # usage and budgets

    async def draw(self, draws: Sequence[Draw], now: float) -> list[DrawResult]:
        """Share out budgets. The sum that all runs hold never exceeds a budget, even if several nodes draw at once."""
        ...

    async def charge(self, charges: Sequence[Charge], now: float) -> None:
        """Record the total usage of runs that are not stored. Each run counts once, even if the call is repeated."""
        ...

    async def drop_charge(self, id: str) -> None:
        """Delete the charge of a run that has not started."""
        ...

    async def fold_charges(self, before: float, now: float) -> int:
        """Add the charges that ended before a time to the sums of their days, and return their number.

        If the node of a charge is dead and no other node will settle its run, all that the run held counts as used.
        """
        ...

    async def usage(self, since: int, until: int, *, owner: str | None = None, limit: int = 10_000) -> list[UsageRow]:
        """Return the usage of some days by owner, key and model, the newest day first."""
        ...

    async def stored_bytes(self, owner: str) -> int:
        """Return the size of all that an owner has stored, in bytes: also of its runs, their logs, and documents."""
        ...

    async def close(self) -> None:
        """Finish the calls in progress, and close the medium."""
        ...
