"""The part of a store that several nodes share: leases, holds, intents and hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from .records import Intent, NodeDetails, NodeRecord

CLAIMED_AT_ONCE = 200
"""Maximum number of runs that one call of `claim` takes over, so that other nodes get some too."""
OnHint = Callable[[str, str], None]
"""Called with the topic and the id of a hint. Both are empty if hints may have been lost."""
UNSTORED = "unstored"
"""The name of the count of a node's runs that are not stored. With a space and an owner: of that owner's runs."""


class RunsElsewhere(NamedTuple):
    """The number of runs on other nodes: of all owners, and of one."""

    runs: int = 0
    of_owner: int = 0


def unstored_elsewhere(nodes: Sequence[NodeRecord], owner: str, node_id: str) -> RunsElsewhere:
    """Return the number of runs on other nodes that are not stored, from the counts that the nodes last reported."""
    counts = [node.counts for node in nodes if node.id != node_id]
    of_owner = f"{UNSTORED} {owner}"
    return RunsElsewhere(sum(each.get(UNSTORED, 0) for each in counts), sum(each.get(of_owner, 0) for each in counts))


class NodeStore(Protocol):
    """Nodes that share a store. Times are those of the store's own clock."""

    # nodes

    async def renew(self, node_id: str, seconds: float, details: NodeDetails | None = None) -> NodeRecord | None:
        """Renew the lease of a node, which covers every run that it owns, for some seconds by the store's clock.

        Returns its record, and creates it for a new id. None if the node is fenced: its runs belong to other nodes, and
        it needs a new id. `since` is reset if more than half of the lease had passed before it was renewed.
        """
        ...

    async def release(self, node_id: str) -> None:
        """Fence a node that shuts down: other nodes may take over its runs and holds at once."""
        ...

    async def give_up(self, node_id: str, run_ids: Sequence[str]) -> None:
        """Give up running runs of a node: the next node that claims takes them over."""
        ...

    async def nodes(self) -> list[NodeRecord]:
        """Return the nodes that are not fenced, in the order of their numbers. The lease of some may have ended."""
        ...

    async def running_elsewhere(self, owner: str, node_id: str) -> RunsElsewhere:
        """Return the number of runs on other nodes, of all owners and of one.

        Stored runs are counted now. Each node reports its unstored runs when it renews its lease: `UNSTORED`.
        """
        ...

    async def take_starts(self, owner: str, starts: int, per_minute: int) -> float:
        """Take starts from the owner's bucket, which all nodes share, and return 0.0.

        A bucket holds `per_minute` starts, and fills evenly over a minute of the store's clock. If it has too few, none
        is taken, and the seconds until there are enough are returned. A negative number gives starts back.
        """
        ...

    async def claim(self, node_id: str, unbroken: float = 0.0) -> dict[str, int]:
        """Take over runs of dead nodes, and return the epoch of each running run that this node then owns, by id.

        Other nodes whose lease has ended are fenced, but only if this node has renewed its own in time for `unbroken`
        seconds: so after an outage of the store, live nodes can renew their leases first. In time means within half a
        lease, because an outage of that length ends before the lease of any live node does.
        Each running run of a node that is fenced, or unknown to the store, gets this owner and the next epoch, at most
        `CLAIMED_AT_ONCE` in one call. A node without a valid lease takes nothing.
        """
        ...

    async def hold(self, kind: str, id: str, node_id: str) -> bool:
        """Take a piece of work for a node: a batch, a webhook, a chore. Return whether this node now holds it.

        A node that is fenced, or unknown to the store, holds nothing: its work can be taken.
        """
        ...

    async def holder(self, kind: str, id: str) -> str:
        """Return the node that holds a piece of work; empty if none does, or if it is fenced."""
        ...

    async def left_over(self, kind: str, limit: int = 100) -> list[str]:
        """Return the pieces of work of a kind that fenced nodes held, for other nodes to take."""
        ...

    async def let_go(self, kind: str, id: str, node_id: str) -> None:
        """Release a piece of work, if this node holds it."""
        ...

    # requests to the owner of a run

    async def ask_owner(self, intent: Intent) -> Intent | None:
        """Store a request to the node that owns a run, and send it a hint. None if the run is not running.

        The store sets `asked_at`. A known id changes nothing: the stored intent is returned.
        """
        ...

    async def get_intent(self, id: str) -> Intent | None:
        """Return a request to the owner of a run."""
        ...

    async def open_intents(self, node_id: str) -> list[Intent]:
        """Return the requests to a node, oldest first: of its running runs, unanswered, not taken in this epoch.

        A request that a dead owner had taken and not answered is open again for the next owner.
        """
        ...

    async def take_intent(self, id: str, epoch: int) -> bool:
        """Take a request for the owner of this epoch: compare-and-set. Repeating it returns the same.

        False if it was withdrawn or answered, or if the run has settled or has another epoch.
        """
        ...

    async def answer_intent(self, id: str, answer: dict[str, Any]) -> None:
        """Store the answer to a request, unless it was answered or withdrawn, and send a hint to `asked_by`."""
        ...

    async def withdraw_intent(self, id: str) -> Intent | None:
        """Remove a request, and return it; None if there was none.

        If it was not taken yet, it never takes effect.
        """
        ...

    async def forget_intents(self, seconds: float) -> None:
        """Remove requests older than `seconds`: their callers no longer wait. One that no owner has taken yet stays."""
        ...

    # hints

    async def hint(self, topic: str, ids: Sequence[str], to: str = "") -> None:
        """Wake a node, or all nodes: something has changed. A hint may be lost, so it carries no data but ids.

        The store itself sends the topics `intent`, with the id of a run, and `answer`, with the id of an intent.
        """
        ...

    def listen(self, node_id: str, on_hint: OnHint) -> Callable[[], None]:
        """Call `on_hint` with topic and id of each hint for a node, until the returned function is called.

        Both are empty if hints may have been lost because a connection broke: then the caller must check everything.
        """
        ...
