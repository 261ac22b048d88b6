"""The runs of other nodes that are not stored. Only the node of such a run has its state."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from ..errors import RunNotFound
from ..events import AnySettlement, Interrupted, Snapshot, StoppedBy
from ..log.segment import NOTHING, Segment
from ..runs.shared import Shared
from ..runs.stored_log import LOOK_AGAIN
from ..store import RunRecord, Store
from .remote_log import Follow, RemoteLog

TRIES = 3
"""Number of failed requests in a row after which an unstored run counts as lost."""
MOST_SEARCHES = 32
"""Maximum number of concurrent searches at other nodes. They accept few new connections."""


class FoundRun(msgspec.Struct, frozen=True):
    """A run that is not stored, as its node describes it."""

    record: RunRecord
    text: str = ""
    reasoning: str = ""


class Unstored(Protocol):
    """Requests to another node about its unstored runs."""

    async def find(self, address: str, run_id: str) -> FoundRun | None:
        """Return a run; None if the node does not have it or does not answer."""
        ...

    async def stop(self, address: str, run_id: str, by: StoppedBy) -> bool:
        """Stop a run, and wait for its settlement. True if that is why it ended. `OwnerSilent` without an answer."""
        ...


class UnstoredLog(RemoteLog):
    """The log of an unstored run, read at its node. Nothing can replace that node."""

    def __init__(self, store: Store, found: FoundRun, follow: Follow, address: str, nodes: Unstored) -> None:
        super().__init__(store, found.record, follow, lambda node_id: address)
        self.address, self._nodes = address, nodes
        self.text, self._reasoning = found.text, found.reasoning
        self.closed = False
        self._tries = TRIES

    async def look(self) -> None:
        """Do nothing: the node has sent the text so far, and the store has none."""

    async def snapshot(self) -> tuple[int, Snapshot]:
        """Return what the node has sent, and up to which seq."""
        return self.seq - (self.record.settlement is not None), Snapshot(self.text, self._reasoning)

    async def _take(self, first: int, segment: Segment) -> None:
        await super()._take(first, segment)
        self._tries = TRIES  # the node has the run

    async def _stored(self, after: int) -> Segment:
        if self._tries < 0:
            raise RunNotFound(self.record.id)
        return NOTHING

    async def _last_record(self) -> RunRecord | None:
        found = await self._nodes.find(self.address, self.record.id)
        return None if found is None else found.record

    async def _address(self) -> str:
        """Return the address of the run's node. After `TRIES` failures in a row, the run counts as lost."""
        self._tries -= 1
        if self._tries < 0:
            self.closed = True
            self._watchers.notify()
            return ""
        return self.address


class UnstoredRuns:
    """The unstored runs of other nodes."""

    def __init__(self, shared: Shared, unstored: Unstored | None, follow: Follow | None) -> None:
        self._shared = shared
        self._nodes = unstored
        self._follow = follow
        self._searches = asyncio.Semaphore(MOST_SEARCHES)

    async def find(self, run_id: str) -> tuple[RunRecord, UnstoredLog] | None:
        """Search a run at all other nodes. None if none of those that answer has it."""
        addresses = [node.address for node in self._shared.others if node.address]
        if self._nodes is None or self._follow is None:
            return None
        async with self._searches:  # limited: any caller can search for ids that do not exist
            answers = await asyncio.gather(*(self._nodes.find(address, run_id) for address in addresses))
        for address, found in zip(addresses, answers, strict=True):
            if found is not None:
                return found.record, UnstoredLog(self._shared.store, found, self._follow, address, self._nodes)
        return None

    async def stop(self, run_id: str, log: UnstoredLog, by: StoppedBy) -> bool:
        """Stop a run, and wait for its settlement. True if that is why it ended."""
        assert self._nodes is not None
        return await self._nodes.stop(log.address, run_id, by)

    async def settlement(self, run_id: str, log: UnstoredLog) -> AnySettlement:
        """Wait for the settlement of a run. If its node is lost, the run was interrupted."""
        assert self._nodes is not None
        tries = TRIES
        while tries:
            found = await self._nodes.find(log.address, run_id)
            if found is not None and found.record.settlement is not None:
                return found.record.settlement
            tries = TRIES if found is not None else tries - 1
            await asyncio.sleep(LOOK_AGAIN)
        return Interrupted(text=log.text)
