"""The nodes of a store in memory: their leases, their holds, and the requests to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from ..events import Event
from . import Idempotency, RunRecord
from . import semantics as rules
from .hints import Hints
from .nodes import CLAIMED_AT_ONCE, OnHint, RunsElsewhere, unstored_elsewhere
from .records import Intent, NodeDetails, NodeRecord


class StoredRun:
    """A run and its log. `parent` is that of the request of a queued run."""

    def __init__(self, record: RunRecord, parent: str | None, key: Idempotency | None) -> None:
        self.record = record
        self.parent = parent
        self.key = key
        self.events: list[Event] = []
        self.times: list[tuple[int, float]] = []
        self.intents: dict[str, Intent] = {}

    def extend(self, events: Sequence[Event]) -> None:
        """Add events to the log."""
        self.events.extend(events)
        self.record = replace(self.record, seq=self.record.seq + len(events))


class MemoryNodes:
    """The part of a store in memory that several engines share: leases, holds, intents and hints."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.stored_runs: dict[str, StoredRun] = {}
        """By their ids. A test may look at what is stored, and spoil it, as in the other public dicts."""
        self.stored_nodes: dict[str, NodeRecord] = {}
        """By their ids, the fenced ones too."""
        self._holds: dict[tuple[str, str], str] = {}
        self._start_rates: dict[str, tuple[float, float]] = {}
        self._hints = Hints()

    # leases

    async def renew(self, node_id: str, seconds: float, details: NodeDetails | None = None) -> NodeRecord | None:
        """Renew the lease of a node."""
        now, known = self._clock(), self.stored_nodes.get(node_id)
        if known is not None and known.fenced:
            return None
        self.stored_nodes[node_id] = renewed = NodeRecord(
            number=len(self.stored_nodes) + 1 if known is None else known.number,
            id=node_id,
            since=known.since if known is not None and _is_in_time(known, now) else now,
            until=now + seconds,
            seconds=seconds,
            lease_left=seconds,
            **asdict(details or NodeDetails()),
        )
        return renewed

    async def release(self, node_id: str) -> None:
        """Fence a node that ends in good order."""
        if (known := self.stored_nodes.get(node_id)) is not None:
            self.stored_nodes[node_id] = replace(known, fenced=True)

    async def give_up(self, node_id: str, run_ids: Sequence[str]) -> None:
        """Leave running runs of a node to the others."""
        for run in (self.stored_runs[id] for id in run_ids if id in self.stored_runs):
            if run.record.status == "running" and run.record.node_id == node_id:
                run.record = replace(run.record, node_id="")

    async def nodes(self) -> list[NodeRecord]:
        """Return the nodes that are not fenced."""
        now = self._clock()
        return [replace(node, lease_left=node.until - now) for node in self.stored_nodes.values() if not node.fenced]

    async def running_elsewhere(self, owner: str, node_id: str) -> RunsElsewhere:
        """Return the number of runs on other nodes."""
        running = [run.record for run in self.stored_runs.values() if run.record.status == "running"]
        owners = [record.owner for record in running if record.node_id != node_id]
        unstored = unstored_elsewhere(await self.nodes(), owner, node_id)
        return RunsElsewhere(len(owners) + unstored.runs, owners.count(owner) + unstored.of_owner)

    async def take_starts(self, owner: str, starts: int, per_minute: int) -> float:
        """Take starts from the bucket of an owner, or return the seconds until there are enough."""
        now = self._clock()
        rest, at = self._start_rates.get(owner, (float(per_minute), now))
        rest, wait = rules.starts_left(rest, now - at, starts, per_minute)
        if not wait:
            self._start_rates[owner] = rest, now
        return wait

    async def claim(self, node_id: str, unbroken: float = 0.0) -> dict[str, int]:
        """Take over runs of dead nodes, and return the epochs of all runs of this node."""
        now, own = self._clock(), self.stored_nodes.get(node_id)
        if own is not None and not own.fenced and own.until > now:
            if _is_in_time(own, now) and now - own.since >= unbroken:
                self._fence(now)
            self._take_orphans(node_id)
        running = [run.record for run in self.stored_runs.values() if run.record.status == "running"]
        return {record.id: record.epoch for record in running if record.node_id == node_id}

    def _fence(self, now: float) -> None:
        for node in self.stored_nodes.values():
            if node.until <= now:
                self.stored_nodes[node.id] = replace(node, fenced=True)

    def _take_orphans(self, node_id: str) -> None:
        running = [run for run in self.stored_runs.values() if run.record.status == "running"]
        orphans = [run for run in running if not self.is_standing(run.record.node_id)]
        for run in orphans[:CLAIMED_AT_ONCE]:
            run.record = replace(run.record, node_id=node_id, epoch=run.record.epoch + 1, waits=False)

    def is_standing(self, node_id: str) -> bool:
        """Return whether a node is known and not fenced. Its lease may have ended."""
        node = self.stored_nodes.get(node_id)
        return node is not None and not node.fenced

    async def hold(self, kind: str, id: str, node_id: str) -> bool:
        """Take a piece of work for a node."""
        holder = self._holds.get((kind, id), "")
        if self.is_standing(node_id) and not self.is_standing(holder):
            self._holds[kind, id] = holder = node_id
        return holder == node_id

    async def holder(self, kind: str, id: str) -> str:
        """Return the node that has a piece of work."""
        holder = self._holds.get((kind, id), "")
        return holder if self.is_standing(holder) else ""

    async def left_over(self, kind: str, limit: int = 100) -> list[str]:
        """Return the pieces of work of a kind that fenced nodes have left."""
        held = sorted((of, id) for (of, id), node_id in self._holds.items() if not self.is_standing(node_id))
        return [id for of, id in held if of == kind][:limit]

    async def let_go(self, kind: str, id: str, node_id: str) -> None:
        """Give back a piece of work."""
        if self._holds.get((kind, id)) == node_id:
            del self._holds[kind, id]

    # requests to the owner of a run

    async def ask_owner(self, intent: Intent) -> Intent | None:
        """Store a request to the node that owns a run."""
        run = self.stored_runs.get(intent.run_id)
        if run is None or run.record.status != "running":
            return None
        stored = run.intents.setdefault(intent.id, replace(intent, asked_at=self._clock()))
        await self.hint("intent", [run.record.id], run.record.node_id)
        return stored

    async def get_intent(self, id: str) -> Intent | None:
        """Return a request to the owner of a run."""
        run = self._run_of_intent(id)
        return None if run is None else run.intents[id]

    async def open_intents(self, node_id: str) -> list[Intent]:
        """Return the open requests to a node."""
        mine = [run for run in self.stored_runs.values() if run.record.node_id == node_id]
        opened = [intent for run in mine for intent in run.intents.values() if _is_open(intent, run.record)]
        return sorted(opened, key=lambda intent: intent.asked_at)

    async def take_intent(self, id: str, epoch: int) -> bool:
        """Take a request for the owner of this epoch."""
        run = self._run_of_intent(id)
        if run is None or run.record.epoch != epoch or run.record.status != "running":
            return False
        if run.intents[id].answer is not None:
            return False
        run.intents[id] = replace(run.intents[id], taken=epoch)
        return True

    async def answer_intent(self, id: str, answer: dict[str, Any]) -> None:
        """Answer a request."""
        run = self._run_of_intent(id)
        if run is not None and run.intents[id].answer is None:
            run.intents[id] = replace(run.intents[id], answer=answer)
            await self.hint("answer", [id], run.intents[id].asked_by)

    async def withdraw_intent(self, id: str) -> Intent | None:
        """Remove a request."""
        run = self._run_of_intent(id)
        return None if run is None else run.intents.pop(id)

    async def forget_intents(self, seconds: float) -> None:
        """Remove requests that are older than `seconds`."""
        for run in self.stored_runs.values():
            old = [intent for intent in run.intents.values() if intent.asked_at < self._clock() - seconds]
            for intent in old:
                if not _is_open(intent, run.record):
                    del run.intents[intent.id]

    def _run_of_intent(self, id: str) -> StoredRun | None:
        return next((run for run in self.stored_runs.values() if id in run.intents), None)

    # hints

    async def hint(self, topic: str, ids: Sequence[str], to: str = "") -> None:
        """Wake a node, or all nodes."""
        self._hints.send(topic, ids, to)

    def listen(self, node_id: str, on_hint: OnHint) -> Callable[[], None]:
        """Call `on_hint` with each hint for a node."""
        return self._hints.listen(node_id, on_hint)


def _is_in_time(node: NodeRecord, now: float) -> bool:
    """Return whether less than half of a lease has passed."""
    return now < node.until - node.seconds / 2


def _is_open(intent: Intent, run: RunRecord) -> bool:
    return run.status == "running" and intent.answer is None and intent.taken < run.epoch
