"""The reads and writes within one transaction, in rows.

A method that refuses does so before it writes anything, so that others in the same transaction can commit. It
reads before it writes if it can: a driver may send writes together if there is no read between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from ...errors import SessionBusy, StaleView
from ...events import AnySettlement
from ...history import Message, Session
from .. import HEAD, Append, Document, Idempotency, IfBusy, KeyDetails, KeyRecord, LogEnd, RunEnd, RunRecord
from .. import semantics as rules
from ..files import Parted
from . import Querying, Row, first
from .long_json import encode_ending
from .nodes import NodesWriting
from .people import PeopleWriting
from .session_writing import IndexWriting, OpenSession
from .spending import SpendingWriting
from .structs import (
    as_document,
    as_key,
    as_run,
    encode,
    rows_of,
)


class Writing(NodesWriting, IndexWriting, SpendingWriting, PeopleWriting):
    """All writes of one transaction."""

    # runs

    def create_run(
        self,
        run: RunRecord,
        parted: Parted,
        parent: str | None,
        expect_head: str | None,
        if_busy: IfBusy,
        idempotency: Idempotency | None,
    ) -> Querying[RunRecord]:
        """Accept a run, with the messages that it answers."""
        input = parted.messages
        known = (yield from self.repeated(idempotency)) or (yield from self.run(run.id))
        if known is not None:
            return known
        if run.session_id is None:
            return (yield from self._insert_run(replace(run, status="running"), None, parent, idempotency))
        it = yield from self._require_session(run.session_id)
        if (known := (yield from self.repeated(idempotency))) is not None:
            return known  # another node has started it while this one waited for the session's lock
        in_progress = yield from self._in_progress(it)
        has_queue = any(each["status"] == "queued" for each in in_progress)
        yield from self._check(it, run, input, parent, expect_head, has_queue=has_queue)
        yield from self._refuse_unknown_files(it, parted)
        busy = _busy(in_progress, if_busy)
        if busy is not None and if_busy == "reject":
            raise SessionBusy(busy)
        yield from self._keep_files(it, parted)
        it.touch(run.created_at)
        if busy is not None:
            run = rules.waiting(run, if_busy)
            return (yield from self._enqueue(it, run, input, parent, idempotency))
        messages, started = _started(it, run, input, parent, run.node_id, run.started_at)
        yield from self._insert_run(started, it, it.session.head_id, idempotency)
        yield from self._begin(it, started, messages)
        return started

    def _check(
        self,
        it: OpenSession,
        run: RunRecord,
        input: Sequence[Message],
        parent: str | None,
        expect_head: str | None,
        *,
        has_queue: bool,
    ) -> Querying[None]:
        if expect_head not in (HEAD, it.session.head_id):
            raise StaleView
        if parent != HEAD:
            yield from self._require_message(it, parent)
        yield from self._refuse_known(it, run, input, has_queue=has_queue)

    def _refuse_known(
        self, it: OpenSession, run: RunRecord, input: Sequence[Message], *, has_queue: bool
    ) -> Querying[None]:
        taken: set[str] = set()
        if input:
            values = {"session": it.n, "ids": self._dialect.many([message.id for message in input])}
            taken = {row["id"] for row in (yield "known_messages", values)}
        queued = (yield from self.queued(it.session.id)) if has_queue else []
        waiting = (message.id for other in queued if other.id != run.id for message in other.input)
        rules.refuse_known(input, taken.union(waiting))

    def _in_progress(self, it: OpenSession) -> Querying[list[Row]]:
        """Return id, status and `ahead` of each unsettled run: the running one, then the queued ones in order."""
        return list((yield "unsettled", {"session": it.n}))

    def _insert_run(
        self, run: RunRecord, it: OpenSession | None, follows: str | None, idempotency: Idempotency | None
    ) -> Querying[RunRecord]:
        values = asdict(run) | {
            "session": None if it is None else it.n,
            "ask": encode(run.ask),
            "input": encode(run.input),
            "follows": follows,
            "payer": encode(run.payer),
            "ahead": int(run.ahead),
        }
        yield "insert_run", values
        if idempotency is not None:
            yield "insert_key", asdict(idempotency) | {"run_id": run.id}
        return run

    def _enqueue(
        self,
        it: OpenSession,
        run: RunRecord,
        input: Sequence[Message],
        parent: str | None,
        idempotency: Idempotency | None,
    ) -> Querying[RunRecord]:
        it.queue_n += 1
        run = replace(run, queue_number=it.queue_n, input=tuple(input))
        yield from self._insert_run(run, it, parent, idempotency)
        yield "tell", it.entry(*rules.queued_entry(run))
        yield "save_session", it.values()
        return run

    def _begin(self, it: OpenSession, run: RunRecord, messages: Sequence[Message]) -> Querying[None]:
        """Add the input of a run to the session, and move the head there."""
        yield from self._add(it, *messages)
        yield from self._set_title(it, rules.title_for(it.session.title, messages))
        it.change(head_id=run.parent_id)
        yield "tell", it.entry(*rules.started(run))
        yield "save_session", it.values()

    def start_queued(self, session_id: str, node_id: str, now: float) -> Querying[RunRecord | None]:
        """Make the first queued run of a session the running one."""
        it = yield from self._open(session_id)
        in_progress = [] if it is None else (yield from self._in_progress(it))
        if it is None or not in_progress or in_progress[0]["status"] == "running":
            return None
        (run, *_) = yield from self.queued(session_id)
        if run.node_id not in ("", node_id) and (yield from self.is_standing(run.node_id)):
            return None
        (row,) = yield "follows", {"id": run.id}
        it.touch(now)
        messages, started = _started(it, run, run.input, row["follows"], node_id, now)
        values = {"id": run.id, "node_id": node_id, "parent_id": started.parent_id, "at": now, "input": b"[]"}
        yield "start_run", values | {"follows": it.session.head_id}
        yield from self._begin(it, started, messages)
        return started

    def settle(
        self, run_id: str, epoch: int, seq: int, settlement: AnySettlement, left: Parted, now: float
    ) -> Querying[RunEnd | None]:
        """Record how a run ended: compare-and-set. `left` has its message, if it leaves one."""
        message = next(iter(left.messages), None)
        run = yield from self._run_to_change(run_id)
        if run is None or run.epoch != epoch or run.status == "queued":
            return None
        if run.settlement is not None:
            return RunEnd(run.settlement)
        rules.refuse_other_end(run, seq)
        is_followed = run.session_id is not None and (yield from self.is_waiting(run.session_id))
        yield from self.charge([rules.charge_of(run, settlement)], now)
        if run.session_id is None:
            yield "settle_run", _settled(run_id, seq, settlement, now)
            return RunEnd(settlement, may_be_followed=False)
        it = yield from self._require_session(run.session_id)
        yield from self._keep_files(it, left)
        yield from self._leave(it, run, message)
        it.touch(now)
        yield "settle_run", _settled(run_id, seq, settlement, now)
        yield "tell", it.entry(*rules.settled_entry(run_id, settlement, message))
        yield "save_session", it.values()
        return RunEnd(settlement, may_be_followed=is_followed)

    def add_branch(
        self, session_id: str, messages: Sequence[Message], parent: str | None, expect_head: str | None, now: float
    ) -> Querying[Session]:
        """Add messages to a session after one of them, and show the branch that ends with them."""
        it = yield from self._require_session(session_id)
        head = messages[-1].id if messages else parent
        if it.session.head_id == head:
            return it.session  # the call is repeated
        if expect_head != it.session.head_id:
            raise StaleView
        if (busy := _busy((yield from self._in_progress(it)), "reject")) is not None:
            raise SessionBusy(busy)
        yield from self._require_message(it, parent)
        if messages:
            values = {"session": it.n, "ids": self._dialect.many([message.id for message in messages])}
            rules.refuse_known(messages, {row["id"] for row in (yield "known_messages", values)})
        yield from self._add(it, *rules.chained(messages, parent))
        it.change(head_id=head)
        it.touch(now)
        yield "tell", it.entry("session.changed", {"head_id": head})
        yield "save_session", it.values()
        return it.session

    def note_waiting(self, run_id: str, epoch: int, waits: bool) -> Querying[None]:
        """Record whether a running run waits for a person."""
        yield "note_waiting", {"id": run_id, "epoch": epoch, "waits": int(waits)}

    def _run_to_change(self, run_id: str) -> Querying[RunRecord | None]:
        """Return a run, locked with its session: no other transaction can change them until this one ends.

        The session is locked first, as everywhere: transactions that lock in the same order cannot deadlock.
        """
        yield "lock_session_of_run", {"id": run_id}
        row = first((yield "run_to_change", {"id": run_id}))
        return None if row is None else as_run(row)

    def _leave(self, it: OpenSession, run: RunRecord, message: Message | None) -> Querying[None]:
        """Add the answer to the session; if the run continued an older answer, change that one."""
        if message is not None and message.id == run.parent_id:
            yield from self._change(it, message)
            return
        if message is None or first((yield "has_message", {"session": it.n, "id": message.id})) is not None:
            return
        yield from self._add(it, replace(message, parent_id=run.parent_id))
        if it.session.head_id == run.parent_id:
            it.change(head_id=message.id)

    def change_queued(self, run_id: str, parted: Parted) -> Querying[RunRecord | None]:
        """Change the input of a queued run."""
        run = yield from self._run_to_change(run_id)
        if run is None or run.status != "queued":
            return None
        if run.input != parted.messages:
            it = yield from self._require_session(run.session_id or "")
            yield from self._refuse_known(it, run, parted.messages, has_queue=True)
            yield from self._refuse_unknown_files(it, parted)
            yield from self._keep_files(it, parted)
            run = replace(run, input=parted.messages)
            yield "change_input", {"id": run_id, "input": encode(run.input)}
            yield "tell", it.entry(*rules.queue_changed(run))
            yield "save_session", it.values()
        return run

    def move_queued(self, run_id: str, place: int) -> Querying[RunRecord | None]:
        """Put a queued run at a place of its queue."""
        run = yield from self._run_to_change(run_id)
        if run is None or run.status != "queued" or run.ahead:
            return run if run is not None and run.status == "queued" else None
        it = yield from self._require_session(run.session_id or "")
        waiting = [each for each in (yield from self.queued(it.session.id)) if not each.ahead]
        for each in rules.reordered(waiting, run_id, place):
            yield "number_queued", {"id": each.id, "queue_number": each.queue_number}
            yield "tell", it.entry(*rules.queue_changed(each))
        yield "save_session", it.values()
        return (yield from self.run(run_id))

    def drop_queued(self, run_id: str, settlement: AnySettlement, now: float) -> Querying[RunRecord | None]:
        """Settle a queued run that has not started."""
        run = yield from self._run_to_change(run_id)
        if run is None or run.status != "queued":
            return None
        it = yield from self._require_session(run.session_id or "")
        yield "settle_run", _settled(run_id, 1, settlement, now)
        yield "drop_charge", {"id": run_id}
        yield "tell", it.entry(*rules.settled_entry(run_id, settlement, None))
        yield "save_session", it.values()
        return replace(run, status="settled", seq=1, settlement=settlement, settled_at=now)

    def refuse_start(
        self, run_id: str, node_id: str, settlement: AnySettlement, now: float
    ) -> Querying[RunRecord | None]:
        """Settle a run that did not start for its caller, and forget its key. Its input is shown no longer."""
        run = yield from self._run_to_change(run_id)
        if run is None or not rules.is_refusable(run, node_id):
            return None
        yield "forget_key_of_run", {"id": run_id}
        if run.status == "queued":
            return (yield from self.drop_queued(run_id, settlement, now))
        yield from self.settle(run_id, run.epoch, 1, settlement, Parted((), {}), now)
        session = yield from self.session(run.session_id or "")
        if session is not None and session.head_id == run.parent_id:
            (row,) = yield "follows", {"id": run_id}
            yield from self.update_session(session.id, {"head_id": row["follows"]}, now)
        return (yield from self.run(run_id))

    def delete_run(self, run_id: str) -> Querying[bool]:
        """Delete a settled run that belongs to no session, and all rows that refer to it."""
        return (yield from self._delete_all((yield "deletable_run", {"id": run_id}))) > 0

    def delete_runs(
        self, settled_before: float, of: Sequence[str] | None, besides: Sequence[str], limit: int
    ) -> Querying[int]:
        """Delete at most `limit` runs outside of sessions that settled before a time."""
        conditions, owners = self.owners(of, besides)
        values = {"before": settled_before, "limit": limit, **owners}
        return (yield from self._delete_all((yield ("deletable_runs", "deletable", *conditions), values)))

    def forget_idempotency(self, settled_before: float, limit: int) -> Querying[int]:
        """Delete at most `limit` idempotency keys of runs that settled before a time."""
        rows = yield "old_idempotency", {"before": settled_before, "limit": limit}
        due = [(row["owner"], row["key"]) for row in rows]
        yield "forget_idempotency", due
        return len(due)

    def _delete_all(self, rows: Any) -> Querying[int]:
        numbers = [(row["n"],) for row in rows]
        yield "delete_run", numbers
        return len(numbers)

    # logs

    def append(self, node_id: str, entries: Sequence[Append]) -> Querying[list[LogEnd]]:
        """Add events to logs."""
        if not (yield from self.is_standing(node_id)):
            return ["fenced" for _ in entries]
        ends = yield from self._ends_of_logs(entries)
        rows: list[tuple[int, int, int, bytes, float]] = []
        answers: list[LogEnd] = []
        for entry in entries:
            run, end = ends.get((entry.run_id, entry.epoch), (None, 0))
            if run is not None and rules.extends(entry, end):
                rows += rows_of(run, end + 1, entry)
                end = entry.first + len(entry.events) - 1
                ends[entry.run_id, entry.epoch] = run, end
            answers.append("lost" if run is None else end)
        yield "append", rows
        return answers

    def _ends_of_logs(self, entries: Sequence[Append]) -> Querying[dict[tuple[str, int], tuple[int, int]]]:
        """Return row number and last seq of each writable run, by its id and epoch, in one query."""
        rows = yield "ends_of_logs", {"ids": self._dialect.many([entry.run_id for entry in entries])}
        return {(run_id, epoch): (n, end or 0) for run_id, epoch, n, end in rows}

    def trim_logs(self, settled_before: float, limit: int) -> Querying[int]:
        """Delete the events of at most `limit` runs that settled before a time."""
        rows = yield "due_for_trim", {"before": settled_before, "limit": limit}
        due = [(row["n"],) for row in rows]
        yield "trim_events", due
        yield "trim_run", due
        return len(due)

    # documents

    def put_document(self, document: Document, expected_version: int | None) -> Querying[Document]:
        """Store a document: compare-and-set."""
        row = first((yield "document_to_change", {"kind": document.kind, "id": document.id}))
        known = None if row is None else as_document(row)
        after = rules.after_put(document, known, expected_version)
        values = asdict(after) | {"body": encode(after.body)}
        if known is None:
            yield "insert_document", values
        elif after != known:
            yield "change_document", values
        return after

    def put_documents(self, puts: Sequence[tuple[Document, int | None]]) -> Querying[list[Document]]:
        """Store documents, all or none. They are locked in one order, so that two calls cannot deadlock."""
        kept: dict[int, Document] = {}
        for n, (document, expected) in sorted(enumerate(puts), key=lambda put: (put[1][0].kind, put[1][0].id)):
            kept[n] = yield from self.put_document(document, expected)
        return [kept[n] for n in range(len(puts))]

    def delete_document(self, kind: str, id: str, version: int | None) -> Querying[bool]:
        """Delete a document, of this version if one is given."""
        row = first((yield "document_to_change", {"kind": kind, "id": id}))
        if row is None or version not in (None, row["version"]):
            return False
        yield "delete_document", {"kind": kind, "id": id}
        return True

    # API keys

    def add_account(self, account: Document, owner: str) -> Querying[Document]:
        """Store a new account together with its claim on an owner."""
        yield "lock_api_keys", {}
        rules.check_claim(owner, (yield from self.account_of(owner)), account.id)
        yield "put_owner", {"id": owner, "account": account.id}
        yield "give_api_keys", {"owner": owner, "account": account.id}
        return (yield from self.put_document(account, None))

    def release_owner(self, owner: str) -> Querying[bool]:
        """Delete an owner."""
        known = yield from self.account_of(owner)
        yield "delete_owner", {"id": owner}
        return known is not None

    def add_key(self, key: KeyRecord, most: int | None = None) -> Querying[KeyRecord]:
        """Add an API key."""
        yield "lock_api_keys", {}
        if (known := first((yield "api_key", {"id": key.id}))) is not None:
            return as_key(known)
        others = yield from self.api_keys(account=key.account)
        rules.check_key(key, (yield from self.account_of(key.owner)), others, most)
        yield "put_owner", {"id": key.owner, "account": key.account}
        yield "insert_api_key", asdict(key) | {"details": encode(key.details)}
        return key

    def add_keys(self, keys: Sequence[KeyRecord]) -> Querying[None]:
        """Add API keys, all or none."""
        for key in keys:
            yield from self.add_key(key)

    def revoke_key(self, id: str, now: float) -> Querying[KeyRecord | None]:
        """Revoke a key."""
        return (yield from self._change_key(id, lambda key: replace(key, revoked_at=now)))

    def change_key(self, id: str, change: Callable[[KeyDetails], KeyDetails]) -> Querying[KeyRecord | None]:
        """Change the limits of a key."""
        return (yield from self._change_key(id, lambda key: replace(key, details=change(key.details))))

    def _change_key(self, id: str, change: Callable[[KeyRecord], KeyRecord]) -> Querying[KeyRecord | None]:
        yield "lock_api_keys", {}
        row = first((yield "api_key", {"id": id}))
        if row is None or row["revoked_at"] is not None:
            return None
        key = change(as_key(row))
        yield "change_api_key", {"id": id, "revoked_at": key.revoked_at, "details": encode(key.details)}
        return key

    def keys_used(self, ids: Sequence[str], now: float) -> Querying[None]:
        """Record the time of the last use of keys."""
        for id in sorted(ids):
            yield "api_key_used", {"id": id, "now": now}


def _busy(in_progress: Sequence[Row], if_busy: IfBusy) -> str | None:
    """Return the run that makes a session busy: the running one, or else the first queued."""
    for run in in_progress:
        if run["status"] == "running" or run["ahead"] or if_busy != "interrupt":
            return str(run["id"])
    return None


def _started(
    it: OpenSession, run: RunRecord, input: Sequence[Message], parent: str | None, node_id: str, at: float | None
) -> tuple[tuple[Message, ...], RunRecord]:
    """Return the messages of a run that starts, with their parents, and its record."""
    parent_id = rules.resolve_parent(parent, it.session.head_id)
    messages = rules.chained(input, parent_id)
    head = messages[-1].id if messages else parent_id
    return messages, replace(run, status="running", node_id=node_id, parent_id=head, started_at=at, input=())


def _settled(run_id: str, seq: int, settlement: AnySettlement, now: float) -> dict[str, Any]:
    return {"id": run_id, "seq": seq, "settlement": encode_ending(settlement), "now": now}
