"""What is read and written within one transaction, in rows.

A method that refuses does so before it writes anything, so that a refusal does not spoil the transaction of others.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict, replace

from ...errors import SessionBusy, StaleView
from ...events import AnySettlement, encode_settlement
from ...history import Message
from .. import HEAD, Append, Document, Idempotency, IfBusy, KeyRecord, LogEnd, RunRecord
from .. import semantics as rules
from ..files import Parted
from .nodes import NodesWriting
from .rows import (
    encode,
    rows_of,
)
from .session_writing import OpenSession, SessionWriting


class Writing(NodesWriting, SessionWriting):
    """What can be done in a transaction."""

    # runs

    def create_run(
        self,
        run: RunRecord,
        parted: Parted,
        parent: str | None,
        expect_head: str | None,
        if_busy: IfBusy,
        idempotency: Idempotency | None,
    ) -> RunRecord:
        """Accept a run, with the messages that it answers."""
        input = parted.messages
        known = self.repeated(idempotency) or self.run(run.id)
        if known is not None:
            return known
        if run.session_id is None:
            return self._insert_run(replace(run, status="running"), None, parent, idempotency)
        it = self._require_session(run.session_id)
        self._check(it, run, input, parent, expect_head)
        self._refuse_unknown_files(it, parted)
        busy = self._busy(it, if_busy)
        if busy is not None and if_busy != "queue":
            raise SessionBusy(busy)
        self._keep_files(it, parted)
        it.touch(run.created_at)
        if busy is not None:
            return self._enqueue(it, run, input, parent, idempotency)
        self._insert_run(run, it, parent, idempotency)
        return self._begin(it, run, input, parent, keeper=run.keeper, at=run.started_at)

    def _check(
        self, it: OpenSession, run: RunRecord, input: Sequence[Message], parent: str | None, expect_head: str | None
    ) -> None:
        if expect_head not in (HEAD, it.session.head_id):
            raise StaleView
        if parent != HEAD:
            self._require_message(it, parent)
        self._refuse_known(it, run, input)

    def _refuse_known(self, it: OpenSession, run: RunRecord, input: Sequence[Message]) -> None:
        taken = {message.id for message in input if self._has_message(it, message.id)}
        waiting = [other.input for other in self.queued(it.session.id) if other.id != run.id]
        rules.refuse_known(input, taken | {message.id for messages in waiting for message in messages})

    def _busy(self, it: OpenSession, if_busy: IfBusy) -> str | None:
        """Return the run that makes the session busy: the running one, or else the first queued."""
        for run_id, status in self._rows("unsettled", session=it.n):
            if status == "running" or if_busy != "interrupt":
                return str(run_id)
        return None

    def _insert_run(
        self, run: RunRecord, it: OpenSession | None, follows: str | None, idempotency: Idempotency | None
    ) -> RunRecord:
        values = asdict(run) | {
            "session": None if it is None else it.n,
            "request": encode(run.request),
            "input": encode(run.input),
            "follows": follows,
        }
        number = self._db.execute(self._sql["insert_run"], values).lastrowid
        if idempotency is not None:
            self._db.execute(self._sql["insert_key"], asdict(idempotency) | {"run": number})
        return run

    def _enqueue(
        self,
        it: OpenSession,
        run: RunRecord,
        input: Sequence[Message],
        parent: str | None,
        idempotency: Idempotency | None,
    ) -> RunRecord:
        it.queue_n += 1
        waiting = {"status": "queued", "keeper": "", "started_at": None, "queue_number": it.queue_n}
        run = self._insert_run(replace(run, **waiting, input=tuple(input)), it, parent, idempotency)
        self._tell(it, rules.queued_entry(run))
        self._save(it)
        return run

    def _begin(
        self,
        it: OpenSession,
        run: RunRecord,
        input: Sequence[Message],
        parent: str | None,
        *,
        keeper: str,
        at: float | None,
    ) -> RunRecord:
        """Let a run start: what it answers enters the session, and the head moves there."""
        parent_id = rules.resolve_parent(parent, it.session.head_id)
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
            self._tell(it, rules.settled_entry(run_id, settlement, message))
            self._save(it)
        return settlement

    def _leave(self, it: OpenSession, run: RunRecord, message: Message | None) -> None:
        """Add the answer to the session; if the run continued an older answer, change that one."""
        if message is not None and message.id == run.parent_id:
            self._change(it, message)
            return
        if message is None or self._has_message(it, message.id):
            return
        self._add(it, replace(message, parent_id=run.parent_id))
        if it.session.head_id == run.parent_id:
            it.change(head_id=message.id)

    def change_queued(self, run_id: str, parted: Parted) -> RunRecord | None:
        """Change what a queued run will say."""
        run = self.run(run_id)
        if run is None or run.status != "queued":
            return None
        if run.input != parted.messages:
            it = self._require_session(run.session_id or "")
            self._refuse_known(it, run, parted.messages)
            self._refuse_unknown_files(it, parted)
            self._keep_files(it, parted)
            run = replace(run, input=parted.messages)
            self._rows("change_input", id=run_id, input=encode(run.input))
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
        self._tell(it, rules.settled_entry(run_id, settlement, None))
        self._save(it)
        return self.run(run_id)

    def delete_run(self, run_id: str) -> bool:
        """Delete a settled run that belongs to no session; what refers to it goes with it."""
        return self._db.execute(self._sql["delete_run"], {"id": run_id}).rowcount > 0

    def delete_runs(self, settled_before: float, limit: int) -> int:
        """Delete at most `limit` runs outside of sessions that settled before a time."""
        return self._db.execute(self._sql["delete_runs"], {"before": settled_before, "limit": limit}).rowcount

    # logs

    def append(self, keeper: str, entries: Sequence[Append]) -> list[LogEnd]:
        """Add events to logs."""
        if not self.is_standing(keeper):
            return ["fenced" for _ in entries]
        ends = self._ends_of_logs(entries)
        rows: list[tuple[int, int, int, bytes, float]] = []
        answers: list[LogEnd] = []
        for entry in entries:
            run, end = ends.get((entry.run_id, entry.epoch), (None, 0))
            if run is not None and rules.extends(entry, end):
                rows += rows_of(run, end + 1, entry)
                end = entry.first + len(entry.events) - 1
                ends[entry.run_id, entry.epoch] = run, end
            answers.append("lost" if run is None else end)
        self._db.executemany(self._sql["append"], rows)
        return answers

    def _ends_of_logs(self, entries: Sequence[Append]) -> dict[tuple[str, int], tuple[int, int]]:
        """Return number and last seq of each run that can be written to, by its id and epoch; in one query for all."""
        rows = self._rows("ends_of_logs", ids=encode([entry.run_id for entry in entries]))
        return {(run_id, epoch): (n, end or 0) for run_id, epoch, n, end in rows}

    def trim_logs(self, settled_before: float, limit: int) -> int:
        """Forget the events of at most `limit` runs that settled before a time."""
        due = [tuple(row) for row in self._rows("due_for_trim", before=settled_before, limit=limit)]
        self._db.executemany(self._sql["trim_events"], due)
        self._db.executemany(self._sql["trim_run"], due)
        return len(due)

    # documents

    def put_document(self, document: Document, expected_version: int | None) -> Document:
        """Keep a document: compare-and-set."""
        known = self.document(document.kind, document.id)
        after = rules.after_put(document, known, expected_version)
        values = asdict(after) | {"body": encode(after.body)}
        if known is None:
            self._rows("insert_document", **values)
        elif after != known:
            self._rows("change_document", **values)
        return after

    def delete_document(self, kind: str, id: str) -> bool:
        """Forget a document."""
        return self._db.execute(self._sql["delete_document"], {"kind": kind, "id": id}).rowcount > 0

    # API keys

    def add_key(self, key: KeyRecord) -> KeyRecord:
        """Add an API key."""
        keys = self.api_keys()
        if (known := next((each for each in keys if each.id == key.id), None)) is not None:
            return known
        rules.refuse_taken(key.name, keys)
        self._rows("insert_api_key", **asdict(key))
        return key

    def revoke_key(self, name: str, now: float) -> KeyRecord | None:
        """Revoke the key of that name."""
        key = rules.key_in_force(name, self.api_keys())
        if key is None:
            return None
        self._rows("revoke_api_key", id=key.id, now=now)
        return replace(key, revoked_at=now)
