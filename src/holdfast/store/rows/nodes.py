"""Nodes, their holds, and the requests to them, in rows.

`clock` is the time for a database without a clock of its own. A database with a clock uses its own time instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from .. import semantics as rules
from ..nodes import CLAIMED_AT_ONCE, RunsElsewhere, unstored_elsewhere
from ..records import Intent, NodeDetails, NodeRecord
from . import Querying, Row, first
from .people import PeopleReading
from .spending import SpendingReading
from .structs import decode, encode, values_for


class NodesReading(SpendingReading, PeopleReading):
    """The reads of one transaction, those of nodes included."""

    def nodes(self) -> Querying[list[NodeRecord]]:
        """Return the nodes that are not fenced."""
        return [_as_node(row) for row in (yield "nodes", {"clock": self._clock()})]

    def intent(self, id: str) -> Querying[Intent | None]:
        """Return a request to the owner of a run."""
        row = first((yield "intent", {"id": id}))
        return None if row is None else _as_intent(row)

    def holder(self, kind: str, id: str) -> Querying[str]:
        """Return the node that holds a piece of work; empty if none does, or if it is fenced."""
        row = first((yield "standing_holder", {"kind": kind, "id": id}))
        return "" if row is None else str(row["node_id"])

    def left_over(self, kind: str, limit: int) -> Querying[list[str]]:
        """Return the pieces of work of a kind that fenced nodes held."""
        return [row["id"] for row in (yield "left_over", {"kind": kind, "limit": limit})]

    def running_elsewhere(self, owner: str, node_id: str) -> Querying[RunsElsewhere]:
        """Return the number of runs on other nodes."""
        (stored,) = yield "running_elsewhere", {"owner": owner, "node_id": node_id}
        unstored = unstored_elsewhere((yield from self.nodes()), owner, node_id)
        return RunsElsewhere(int(stored["runs"]) + unstored.runs, int(stored["of_owner"]) + unstored.of_owner)

    def open_intents(self, node_id: str) -> Querying[list[Intent]]:
        """Return the open requests to a node."""
        return [_as_intent(row) for row in (yield "open_intents", {"node_id": node_id})]


class NodesWriting(NodesReading):
    """The writes of one transaction to nodes, holds and intents."""

    def is_standing(self, node_id: str) -> Querying[bool]:
        """Return whether a node is known and not fenced. Its lease may have ended. It stays so in this transaction."""
        row = first((yield "standing", {"id": node_id}))
        return row is not None and not row["fenced"]

    def renew(self, node_id: str, seconds: float, details: NodeDetails) -> Querying[NodeRecord | None]:
        """Renew the lease of a node."""
        values = asdict(details) | {"counts": encode(details.counts)}
        yield "renew", {"id": node_id, "seconds": seconds, "clock": self._clock(), **values}
        row = first((yield "node", {"id": node_id, "clock": self._clock()}))
        return None if row is None or row["fenced"] else _as_node(row)

    def take_starts(self, owner: str, starts: int, per_minute: int) -> Querying[float]:
        """Take starts from the bucket of an owner, or return the seconds until there are enough."""
        yield "add_start_rate", {"owner": owner, "rest": float(per_minute), "clock": self._clock()}
        (row,) = yield "start_rate", {"owner": owner, "clock": self._clock()}
        rest, wait = rules.starts_left(row["rest"], row["age"], starts, per_minute)
        if not wait:
            yield "change_start_rate", {"owner": owner, "rest": rest, "clock": self._clock()}
        return wait

    def release(self, node_id: str) -> Querying[None]:
        """Fence a node that shuts down."""
        yield "release", {"id": node_id}

    def give_up(self, node_id: str, run_ids: Sequence[str]) -> Querying[None]:
        """Give up running runs of a node."""
        for run_id in sorted(run_ids):
            yield "give_up", {"node_id": node_id, "id": run_id}

    def claim(self, node_id: str, unbroken: float) -> Querying[dict[str, int]]:
        """Take over runs of dead nodes, and return the epochs of all runs of this node."""
        now = self._clock()
        yield "fence", {"node_id": node_id, "unbroken": unbroken, "clock": now}
        yield "take_orphans", {"node_id": node_id, "limit": CLAIMED_AT_ONCE, "clock": now}
        return {row["id"]: row["epoch"] for row in (yield "owned", {"node_id": node_id})}

    def hold(self, kind: str, id: str, node_id: str) -> Querying[bool]:
        """Take a piece of work for a node."""
        yield "hold", {"kind": kind, "id": id, "node_id": node_id}
        row = first((yield "holder", {"kind": kind, "id": id}))
        return row is not None and bool(row["node_id"] == node_id)

    def let_go(self, kind: str, id: str, node_id: str) -> Querying[None]:
        """Release a piece of work."""
        yield "let_go", {"kind": kind, "id": id, "node_id": node_id}

    def ask_owner(self, intent: Intent) -> Querying[tuple[Intent, str] | None]:
        """Store a request to the node that owns a run. Return it and the node; None if the run is not running."""
        values = {name: getattr(intent, name) for name in ("id", "run_id", "kind", "asked_by")}
        yield "ask_owner", {**values, "body": encode(intent.body), "clock": self._clock()}
        row = first((yield "intent", {"id": intent.id}))
        return None if row is None or row["status"] != "running" else (_as_intent(row), row["node_id"])

    def take_intent(self, id: str, epoch: int) -> Querying[bool]:
        """Take a request for the owner of this epoch."""
        row = first((yield "intent_to_change", {"id": id}))
        if row is None or row["answer"] is not None or row["status"] != "running" or row["epoch"] != epoch:
            return False
        yield "take_intent", {"id": id, "epoch": epoch}
        return True

    def answer_intent(self, id: str, answer: dict[str, Any]) -> Querying[Intent | None]:
        """Store the answer to a request, and return the request; None if it was answered or withdrawn."""
        row = first((yield "intent_to_change", {"id": id}))
        if row is None or row["answer"] is not None:
            return None
        yield "answer_intent", {"id": id, "answer": encode(answer)}
        return _as_intent(row)

    def withdraw_intent(self, id: str) -> Querying[Intent | None]:
        """Remove a request, and return it."""
        row = first((yield "intent_to_change", {"id": id}))
        if row is None:
            return None
        yield "withdraw_intent", {"id": id}
        return _as_intent(row)

    def forget_intents(self, seconds: float) -> Querying[None]:
        """Remove requests that are older than `seconds`."""
        yield "forget_intents", {"seconds": seconds, "clock": self._clock()}


def _as_node(row: Row) -> NodeRecord:
    values = values_for(NodeRecord, row)
    return NodeRecord(**values | {"counts": decode(values["counts"]), "fenced": bool(values["fenced"])})


def _as_intent(row: Row) -> Intent:
    values = {name: row[name] for name in ("id", "run_id", "kind", "asked_by", "asked_at", "taken")}
    answer = None if row["answer"] is None else decode(row["answer"])
    return Intent(**values, body=decode(row["body"]), answer=answer)
