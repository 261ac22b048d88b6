"""State that the parts of one engine share: its runs, its limits, its tasks, and its node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from ..concurrency.background import Background
from ..concurrency.in_progress import InProgress
from ..concurrency.retry import Retry
from ..concurrency.tasks import OwnedTasks
from ..events import Source, StoppedBy
from ..store import RunRecord, Store
from ..store.records import NodeRecord
from .admission import Admission
from .pump import Pump, PumpKeeper, PumpNode
from .run import Cost, Limits, Run
from .stored_log import StoredLog

Clock = Callable[[], float]


class Pumps(InProgress[Pump]):
    """The queued and running runs of this engine, by id and by session."""

    def __init__(self) -> None:
        super().__init__(attrgetter("run.record.session_id"))

    def running(self) -> list[Pump]:
        """Return the runs that have started and are not settled."""
        return [pump for pump in self.values() if pump.run.status == "running"]

    def of_session(self, session_id: str) -> list[Pump]:
        """Return the runs of a session."""
        return self.of(session_id)


class ThisNode(PumpNode, Protocol):
    """This process as one of the nodes that share a store: the methods that runs and sessions need."""

    async def renew(self) -> None:
        """Renew the lease now. A fenced node loses its runs."""
        ...

    def log_of(self, record: RunRecord) -> StoredLog:
        """Return the log of a run that is not active on this node."""
        ...

    async def learn(self, run: Run) -> None:
        """Wait for the settlement of a run that is not active on this node, and show it."""
        ...

    def changed(self, run: Run) -> None:
        """Record that a run has started or ended: limits count the runs of all nodes."""
        ...

    async def ask_to_stop(self, run_id: str, by: StoppedBy) -> bool:
        """Stop a stored run of another node, and wait for its settlement. False if it was ending before."""
        ...


@dataclass(slots=True)
class Shared:
    """State that the parts of one engine share, for its lifetime."""

    store: Store
    has_store: bool
    """If False, every call of `store` raises TypeError."""
    node_id: str
    """The id of this node in the store. A fenced node takes a new one."""
    limits: Limits
    clock: Clock
    sources: Callable[[Run], Source]
    admission: Admission
    cost: Cost
    work: OwnedTasks
    """Tasks that may start or settle a run. `Core.close` waits for them."""
    tasks: OwnedTasks = field(default_factory=lambda: OwnedTasks("the engine"))
    abandoned: OwnedTasks = field(default_factory=lambda: OwnedTasks("an abandoned source"))
    pumps: Pumps = field(default_factory=Pumps)
    retry: Retry = field(default_factory=Retry)
    background: Background = field(default_factory=Background)
    others: list[NodeRecord] = field(default_factory=list)
    """The other nodes, without fenced ones, as last read from the store."""
    changed: Callable[[Pump], None] = field(init=False)
    """`Committer.changed`: called when a run has new events."""
    watch: Callable[[Pump], None] = field(init=False)
    """`Watchdog.watch`: called when the limits of a run have changed."""
    keeper: PumpKeeper = field(init=False)
    this_node: ThisNode = field(init=False)
