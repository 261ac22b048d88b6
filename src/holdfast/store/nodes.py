"""The part of a store that several nodes share: who lives, who has to do what, and how to ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from .records import Intent, NodeDetails, NodeRecord

CLAIMED_AT_ONCE = 200
"""Runs of dead nodes that one call of `claim` takes at most: others take their share."""
UNSTORED = "unstored"
"""The count of a node's runs that are not stored. With a space and an owner: of that owner's."""


class RunsElsewhere(NamedTuple):
    """How many runs other nodes have."""

    runs: int = 0
    of_owner: int = 0


def unstored_elsewhere(nodes: Sequence[NodeRecord], owner: str, keeper: str) -> RunsElsewhere:
    """Return how many runs that are not stored other nodes have told of."""
    counts = [node.counts for node in nodes if node.id != keeper]
    of_owner = f"{UNSTORED} {owner}"
    return RunsElsewhere(sum(each.get(UNSTORED, 0) for each in counts), sum(each.get(of_owner, 0) for each in counts))


class NodeStore(Protocol):
    """Nodes that share a store. Times are those of the store's own clock."""

    # nodes

    async def renew(self, keeper: str, seconds: float, details: NodeDetails | None = None) -> NodeRecord | None:
        """Renew the lease of a node, which covers every run that it owns, for some seconds by the store's clock.

        Returns its record, and makes one for a new id. None if the node is fenced: its runs belong to others, and it
        needs a new id. `since` starts anew if more than half of the lease had passed before it was renewed.
        """
        ...

    async def release(self, keeper: str) -> None:
        """Fence a node that ends in good order: others may take what it leaves at once."""
        ...

    async def give_up(self, keeper: str, run_ids: Sequence[str]) -> None:
        """Leave running runs of a node to the others: whichever claims next takes them."""
        ...

    async def nodes(self) -> list[NodeRecord]:
        """Return the nodes that are not fenced, in the order of their numbers. The lease of some may have ended."""
        ...

    async def running_elsewhere(self, owner: str, keeper: str) -> RunsElsewhere:
        """Return how many runs other nodes than this one have, in all and of an owner.

        Stored runs are counted now. Of those that are not stored a node tells when it renews its lease: `UNSTORED`.
        """
        ...

    async def take_starts(self, owner: str, starts: int, per_minute: int) -> float:
        """Take starts from the owner's bucket, which all nodes share, and return 0.0.

        A bucket has `per_minute` starts, and fills evenly over a minute of the store's clock. If it has too few, they
        are left in it, and the seconds until there are enough are returned.
        """
        ...

    async def claim(self, keeper: str, unbroken: float = 0.0) -> dict[str, int]:
        """Take over runs of dead nodes, and return the epoch of each running run that this node then owns, by id.

        Other nodes whose lease has ended are fenced, but only if this node has renewed its own in time for `unbroken`
        seconds: after an outage of the store, the living can renew theirs first. Half a lease is the limit because an
        outage of that length ends before the lease of any living node does.
        Each running run of a node that is fenced, or that the store does not know, gets this owner and the next epoch;
        at most `CLAIMED_AT_ONCE` in one call. A node without a lease in force takes nothing.
        """
        ...

    async def hold(self, kind: str, id: str, keeper: str) -> bool:
        """Take a piece of work for a node: a batch, a webhook, a chore. True if this node has it now.

        A node that is fenced, or that the store does not know, holds nothing: its work can be taken.
        """
        ...

    async def holder(self, kind: str, id: str) -> str:
        """Return the node that has a piece of work; empty if none has, or if it is fenced."""
        ...

    async def left_over(self, kind: str, limit: int = 100) -> list[str]:
        """Return the pieces of work of a kind that fenced nodes have left, for others to take."""
        ...

    async def let_go(self, kind: str, id: str, keeper: str) -> None:
        """Give back a piece of work, if this node has it."""
        ...

    # requests to the owner of a run

    async def ask_owner(self, intent: Intent) -> Intent | None:
        """Keep a request to the node that owns a run, and hint at it. None if there is no such run that is running.

        The store sets `asked_at`. A known id changes nothing: the intent is returned as it is stored.
        """
        ...

    async def get_intent(self, id: str) -> Intent | None:
        """Return a request to the owner of a run."""
        ...

    async def open_intents(self, keeper: str) -> list[Intent]:
        """Return the requests to a node, oldest first: of its running runs, unanswered, not taken in this epoch.

        What a dead owner had taken and not answered is open again for its successor.
        """
        ...

    async def take_intent(self, id: str, epoch: int) -> bool:
        """Take a request for the owner of this epoch: compare-and-set. Repeating it returns the same.

        False if it was withdrawn or answered, or if the run has settled or has another epoch.
        """
        ...

    async def answer_intent(self, id: str, answer: dict[str, Any]) -> None:
        """Answer a request, unless it was answered or withdrawn, and hint at the answer."""
        ...

    async def withdraw_intent(self, id: str) -> Intent | None:
        """Remove a request, and return it as it was; None if there was none.

        If it was not taken, it never takes effect.
        """
        ...

    async def forget_intents(self, seconds: float) -> None:
        """Remove requests that are older: their callers wait no more. One that no owner has taken yet stays."""
        ...

    # hints

    async def hint(self, topic: str, ids: Sequence[str], to: str = "") -> None:
        """Wake a node, or all nodes: something has changed. It may be lost, and so carries no fact.

        Topics of the store's own are `intent` and `answer`, each with the id of a run or an intent.
        """
        ...

    def listen(self, keeper: str, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Call `hear` with topic and id of each hint for a node, until the returned function is called.

        Both are empty if hints may have been lost, because a connection had broken: then everything is looked at.
        """
        ...
