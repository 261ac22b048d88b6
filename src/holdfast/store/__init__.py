"""What must outlive the process, and the promises that every store makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from ..events import AnySettlement, Event
from ..history import Message, Session

Lifetime = Literal["detached", "attached"]
Status = Literal["queued", "running", "settled"]
IfBusy = Literal["reject", "queue", "interrupt"]
HEAD = "head"
"""Stands for the last message of the branch that a session shows."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is stored. `request` is the starter's own business: what it needs to make the source again."""

    id: str
    owner: str = ""
    session_id: str | None = None
    message_id: str | None = None
    parent_id: str | None = None
    """The message that the answer follows."""
    model: str = ""
    kind: str = "chat"
    lifetime: Lifetime = "detached"
    status: Status = "running"
    keeper: str = ""
    """The process that owns the run, and..."""
    epoch: int = 1
    """...the number that fences out the one before."""
    request: dict[str, Any] = {}
    queue_number: int | None = None
    input: tuple[Message, ...] = ()
    """The messages of a queued run: they enter the session when it starts."""
    seq: int = 0
    oldest: int = 1
    created_at: float = 0.0
    started_at: float | None = None
    settled_at: float | None = None
    settlement: AnySettlement | None = None


class Idempotency(msgspec.Struct, frozen=True):
    """A caller's promise that two requests with the same key are one. `digest` stands for the request's body."""

    owner: str
    key: str
    digest: str


class Append(msgspec.Struct, frozen=True):
    """Events of one run, the first of which has the number `first`."""

    run_id: str
    epoch: int
    first: int
    events: Sequence[Event]
    at: float = 0.0


class FeedEntry(msgspec.Struct, frozen=True):
    """One thing that happened in a session: `message.added`, `run.queued`, `run.started`, `run.settled`, ..."""

    n: int
    type: str
    data: dict[str, Any]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a feature keeps as a whole: a comparison, a setting, a webhook. The store looks at no `body`.

    `version` counts its changes from 1, and is the store's to give: whoever changes a document says which version it
    has seen.
    """

    kind: str
    id: str
    owner: str = ""
    version: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    body: dict[str, Any] = {}


class Store(Protocol):
    """Keeps runs, their logs, sessions, and the documents of features.

    Every method is one transaction: all of it happens or nothing. A method that fails to reach its medium raises
    `StoreUnavailable`, and the caller cannot tell whether it happened: so each write can be repeated without harm.
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
        there. `expect_head` other than HEAD must be the head's id, otherwise `StaleView`. Where another run is
        running or queued in the session: `SessionBusy` with the running (or else the first queued) run's id; with
        `if_busy="queue"` the record is kept as `queued` with its input and the next `queue_number` (1, 2, ... for
        each session, never used twice); with `"interrupt"` only a running one counts as busy.
        A known idempotency key returns the record it made the first time (`IdempotencyConflict` for another digest),
        and so does the id of a run that exists already. A session that is not there raises `SessionNotFound`.
        A session without a title gets one from the first user message.
        Feed: `message.added` for each input message, then `run.started`, or `run.queued`.
        """
        ...

    async def find_repeated(self, idempotency: Idempotency) -> RunRecord | None:
        """Return the run that a key has started, or None; `IdempotencyConflict` for another digest."""
        ...

    async def start_queued(self, session_id: str, *, keeper: str, now: float) -> RunRecord | None:
        """Make the first queued run of a session the running one, and return it; its input enters the session.

        None where nothing is queued, where another run is running, or where the session is gone.
        Feed: as for a run that starts at once.
        """
        ...

    async def append(self, entries: Sequence[Append]) -> list[bool]:
        """Add events to logs, in one group commit. False for a run that has settled or has another epoch by now.

        Repeating an append that had happened changes nothing and is True.
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
    ) -> AnySettlement | None:
        """Record how a run ended, as event `seq`, with the message it leaves: compare-and-set.

        Returns the settlement that stands: this one, or the one that was there first. None where another epoch owns
        the run, or where it is gone. The message enters the session after the run's `parent_id`, and becomes the
        head where the head is still that parent. Where the message is that parent itself, the run has gone on with
        it: it stays where it is and says what the new one says. Queued runs are settled by `drop_queued`.
        Feed: `message.added` (or `message.changed`) where there is one, then `run.settled`.
        """
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
        before: str | None = None,
        limit: int = 50,
    ) -> list[RunRecord]:
        """Return runs, the newest first; `before` is the id to go on from."""
        ...

    async def read_log(self, run_id: str, after: int, limit: int = 512) -> list[Event]:
        """Return the events with the numbers `after + 1`, `after + 2`, ... in order, at most about `limit`.

        The settlement is the last of them. Raises `ResumeGap` where events after `after` were trimmed.
        """
        ...

    async def read_times(self, run_id: str) -> list[tuple[int, float]]:
        """Return when a run's events came: the last seq of each append, and its `at`. What was trimmed has no time."""
        ...

    async def trim_logs(self, settled_before: float) -> int:
        """Forget the events of runs that settled before a time; the settlement stays as the log's last event.

        Returns how many runs it trimmed.
        """
        ...

    async def delete_run(self, run_id: str) -> bool:
        """Delete a settled run that belongs to no session, with its log and its idempotency key.

        False where it is not there, has not settled, or belongs to a session: that one is deleted as a whole.
        """
        ...

    # the queue of a session

    async def queued(self, session_id: str) -> list[RunRecord]:
        """Return the queued runs of a session in their order."""
        ...

    async def change_queued(self, run_id: str, input: Sequence[Message]) -> RunRecord | None:
        """Change what a queued run will say; None where it is no longer queued. Feed: `queue.changed`."""
        ...

    async def drop_queued(self, run_id: str, settlement: AnySettlement, now: float) -> RunRecord | None:
        """Settle a queued run that has not started, without a trace in the transcript.

        Returns the record as it then stands; None where it is not queued (any more). Its log holds one event, the
        settlement. Feed: `run.settled`.
        """
        ...

    # sessions

    async def create_session(self, session: Session) -> Session:
        """Add a session. One with the same id and owner is returned as it is; with another owner `SessionNotFound`."""
        ...

    async def get_session(self, session_id: str) -> Session | None:
        """Return a session."""
        ...

    async def list_sessions(
        self, owner: str, *, query: str = "", limit: int = 50, before: str | None = None
    ) -> list[Session]:
        """Return an owner's sessions of the kind "chat": pinned ones first, then the ones changed last.

        `query` looks for words (or their beginnings) in titles and messages. `before` is the id of the last session
        of the page before.
        """
        ...

    async def update_session(self, session_id: str, changes: dict[str, Any], now: float) -> Session | None:
        """Change `title`, `model`, `system`, `params`, `pinned` or `head_id`; None where it is gone.

        Feed: `session.changed` with the changes.
        """
        ...

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session, its messages, runs, logs, feed and idempotency keys; False where it was not there."""
        ...

    async def copy_session(self, session: Session, messages: Sequence[Message]) -> Session:
        """Add a session together with messages (a fork or an import) whose last one is its head."""
        ...

    async def messages(self, session_id: str) -> list[Message]:
        """Return every message of a session, the siblings too, in the order in which they were added."""
        ...

    async def read_feed(self, session_id: str, after: int, limit: int = 512) -> list[FeedEntry]:
        """Return what happened in a session after entry `after`: entries are numbered 1, 2, ... without gaps."""
        ...

    async def feed_end(self, session_id: str) -> int:
        """Return the number of the newest entry of a session's feed; 0 where there is none."""
        ...

    # documents

    async def put_document(self, document: Document, expected_version: int | None = None) -> Document:
        """Keep a document, and return it with its new version: compare-and-set.

        `expected_version` is the one that the caller has read; None or 0 says that there is none yet. Where another
        one is kept, or its owner is another: `StaleDocument`. When it was made stays as it was first said.
        Repeating a put that had happened changes nothing and returns what is kept.
        """
        ...

    async def get_document(self, kind: str, id: str) -> Document | None:
        """Return a document. Kinds are apart: two of them may use the same id."""
        ...

    async def list_documents(
        self, kind: str, owner: str | None = None, *, before: str | None = None, limit: int = 50
    ) -> list[Document]:
        """Return documents of a kind, those added last first; `before` is the id to go on from."""
        ...

    async def delete_document(self, kind: str, id: str) -> bool:
        """Forget a document; False where it was not there."""
        ...

    # leases

    async def renew(self, keeper: str, until: float) -> None:
        """Say that a process is alive until a time: the lease of every run that it owns."""
        ...

    async def claim(self, keeper: str, now: float) -> list[RunRecord]:
        """Take over the unsettled runs whose keeper's lease has ended: each gets this keeper and the next epoch."""
        ...

    async def adopt(self, run_id: str, epoch: int, keeper: str) -> RunRecord | None:
        """Give a run that was claimed for nobody, under this epoch, a keeper who goes on with it.

        None where it has settled, or someone else has it. Repeating an adoption that had happened returns the same.
        """
        ...

    async def waiting_sessions(self) -> list[str]:
        """Return the sessions in which a run is queued and none is running."""
        ...

    async def close(self) -> None:
        """Finish what was asked for and let go of the medium."""
        ...
