"""Nodes, what they hold, and the requests to them, in rows."""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec.structs import asdict

from .. import CLAIMED_AT_ONCE, Intent, NodeDetails, NodeRecord
from .reading import Reading
from .rows import decode, encode


class NodesReading(Reading):
    """The reads of one transaction, those of nodes included."""

    def nodes(self) -> list[NodeRecord]:
        """Return the nodes that are not fenced."""
        return [_as_node(row) for row in self._rows("keepers")]

    def intent(self, id: str) -> Intent | None:
        """Return a request to the owner of a run."""
        row = self._row("intent", id=id)
        return None if row is None else _as_intent(row)

    def open_intents(self, keeper: str) -> list[Intent]:
        """Return the open requests to a node."""
        return [_as_intent(row) for row in self._rows("open_intents", keeper=keeper)]


class NodesWriting(NodesReading):
    """What can be done to nodes in a transaction."""

    def is_standing(self, keeper: str) -> bool:
        """Return whether a node is known and not fenced, though its lease may have ended."""
        row = self._row("keeper", id=keeper)
        return row is not None and not row["fenced"]

    def renew(self, keeper: str, seconds: float, details: NodeDetails, now: float) -> NodeRecord | None:
        """Renew the lease of a node."""
        values = asdict(details) | {"counts": encode(details.counts)}
        self._rows("renew", id=keeper, seconds=seconds, now=now, **values)
        row = self._row("keeper", id=keeper)
        return None if row is None or row["fenced"] else _as_node(row)

    def release(self, keeper: str) -> None:
        """Fence a node that ends in good order."""
        self._rows("release", id=keeper)

    def claim(self, keeper: str, unbroken: float, now: float) -> dict[str, int]:
        """Take over runs of dead nodes, and return what this node then owns."""
        own = self._row("keeper", id=keeper)
        if own is not None and not own["fenced"] and own["until"] > now:
            if now < own["until"] - own["seconds"] / 2 and now - own["since"] >= unbroken:
                self._rows("fence", now=now)
            self._rows("take_orphans", keeper=keeper, limit=CLAIMED_AT_ONCE)
        return {row["id"]: row["epoch"] for row in self._rows("owned", keeper=keeper)}

    def hold(self, kind: str, id: str, keeper: str) -> bool:
        """Take a piece of work for a node."""
        self._rows("hold", kind=kind, id=id, keeper=keeper)
        row = self._row("holder", kind=kind, id=id)
        return row is not None and bool(row["keeper"] == keeper)

    def let_go(self, kind: str, id: str, keeper: str) -> None:
        """Give back a piece of work."""
        self._rows("let_go", kind=kind, id=id, keeper=keeper)

    def ask_owner(self, intent: Intent, now: float) -> tuple[Intent, str] | None:
        """Keep a request to the node that owns a run, and return it with that node; None if the run is not running."""
        values = {name: getattr(intent, name) for name in ("id", "run_id", "kind", "asked_by")}
        self._rows("ask_owner", body=encode(intent.body), now=now, **values)
        row = self._row("intent", id=intent.id)
        return None if row is None or row["status"] != "running" else (_as_intent(row), row["keeper"])

    def take_intent(self, id: str, epoch: int) -> bool:
        """Take a request for the owner of this epoch."""
        return self._db.execute(self._sql["take_intent"], {"id": id, "epoch": epoch}).rowcount > 0

    def answer_intent(self, id: str, answer: dict[str, Any]) -> Intent | None:
        """Answer a request, and return it; None if it was answered or withdrawn."""
        answered = self._db.execute(self._sql["answer_intent"], {"id": id, "answer": encode(answer)}).rowcount
        return self.intent(id) if answered else None

    def withdraw_intent(self, id: str) -> Intent | None:
        """Remove a request, and return it as it was."""
        intent = self.intent(id)
        self._rows("withdraw_intent", id=id)
        return intent


def _as_node(row: sqlite3.Row) -> NodeRecord:
    values = dict(row)
    return NodeRecord(**values | {"counts": decode(values["counts"]), "fenced": bool(values["fenced"])})


def _as_intent(row: sqlite3.Row) -> Intent:
    values = {name: row[name] for name in ("id", "run_id", "kind", "asked_by", "asked_at", "taken")}
    answer = None if row["answer"] is None else decode(row["answer"])
    return Intent(**values, body=decode(row["body"]), answer=answer)
