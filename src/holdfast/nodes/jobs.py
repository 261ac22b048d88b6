"""Jobs: stored work besides runs, such as batches and deliveries of webhooks.

A job is a document. One node at a time holds it and works on it in a task. If that node ends or is fenced, another one
takes the job up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from ..concurrency.retry import Retry
from ..concurrency.tasks import OwnedTasks
from ..errors import StoreUnavailable
from ..store.documents import Documents, Stored
from .holds import ASK_AGAIN, PATIENCE, Holds

CLOSE_TIMEOUT = 1.0
"""Seconds for storing the last results when the server ends."""


class JobWork:
    """The work of this node on one job."""

    look_every = 0.0
    """Seconds between two looks at what other nodes have changed, unless a hint comes; 0 if they change nothing."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.task: asyncio.Task[None] | None = None
        self.look = asyncio.Event()
        """Set when another node may have changed the job."""
        self.is_lost = False
        """True if another node has the job. Then this node stores nothing of it."""

    async def work(self) -> None:
        """Do the job to its end, and store the result."""
        raise NotImplementedError

    async def take_changes(self) -> None:
        """Apply what other nodes have changed in the job's document."""

    async def lose(self) -> None:
        """End the work: another node has the job."""
        if self.task is not None:
            self.task.cancel()

    async def heed_requests(self) -> None:
        """Take the changes of other nodes, again and again."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.look_every):
                    await self.look.wait()
            self.look.clear()
            await self.take_changes()


T = TypeVar("T")
J = TypeVar("J", bound=JobWork)
Found = TypeVar("Found")


class Jobs(Generic[T, J]):
    """The jobs of one kind: those in the store, and those that this node works on."""

    def __init__(
        self,
        kind: str,
        documents: Documents[T],
        holds: Holds,
        *,
        is_open: Callable[[T], bool],
        resume: Callable[[Stored[T]], Awaitable[None]],
    ) -> None:
        """`resume` continues an open job that another node has left, or ends it."""
        self.documents = documents
        self.holds = holds
        self.retry = Retry()
        """Closed when the server ends. What is not stored by then is done at the next start."""
        self.tasks = OwnedTasks(f"the jobs of kind {kind}")
        self._kind = kind
        self._is_open = is_open
        self._resume = resume
        self._at_work: dict[str, J] = {}
        self._beginning: set[str] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        holds.add(kind, self)

    def lock(self, id: str) -> asyncio.Lock:
        """Return the lock for changes of a job by this node."""
        return self._locks.setdefault(id, asyncio.Lock())

    # jobs that this node works on

    def of(self, id: str) -> J | None:
        """Return the work on a job, if this node has it."""
        return self._at_work.get(id)

    def all_of(self) -> list[J]:
        """Return the work on every job that this node has."""
        return list(self._at_work.values())

    def is_ours(self, id: str) -> bool:
        """Return whether this node works on a job, or is about to."""
        return id in self._at_work or id in self._beginning

    def is_beginning(self, id: str) -> bool:
        """Return whether this node is about to work on a job."""
        return id in self._beginning

    async def take(self, id: str) -> bool:
        """Take a job. False if another node has it, or if this one shuts down."""
        return await self.holds.take(self._kind, id)

    async def reserve(self, id: str) -> None:
        """Take a job whose work begins later, with `begin`, or never: then `let_go` releases it."""
        self._beginning.add(id)
        await self.take(id)

    @asynccontextmanager
    async def beginning(self, id: str) -> AsyncGenerator[bool]:
        """Take a job whose work begins within the block, and release it if it does not. False if it was not taken."""
        self._beginning.add(id)
        is_taken = False
        try:
            is_taken = await self.take(id)
            yield is_taken
        finally:
            self._beginning.discard(id)
            if is_taken and id not in self._at_work:
                await self.let_go(id)

    def begin(self, job: J) -> J:
        """Work on a job that this node holds, once. Return the work."""
        self._beginning.discard(job.id)
        if (known := self._at_work.get(job.id)) is not None:
            return known
        self._at_work[job.id] = job
        job.task = self.tasks.spawn(self._work(job))
        return job

    async def _work(self, job: J) -> None:
        heeding = self.tasks.spawn(job.heed_requests()) if job.look_every else None
        try:
            await job.work()
        finally:
            if heeding is not None:
                heeding.cancel()
            self.forget(job)

    def forget(self, job: J) -> None:
        """Remove the work on a job that is done."""
        if self._at_work.get(job.id) is job:
            del self._at_work[job.id]

    async def let_go(self, id: str) -> None:
        """Release a job. The end of a node releases its jobs too."""
        self._beginning.discard(id)
        with suppress(StoreUnavailable):
            await self.retry(lambda: self.holds.let_go(self._kind, id))

    # jobs on other nodes

    async def is_elsewhere(self, id: str) -> bool:
        """Return whether another node has a job."""
        return await self.holds.is_elsewhere(self._kind, id)

    async def ended_elsewhere(self, id: str) -> None:
        """Wait until no other node has a job that was told to end, for a few seconds at most."""
        await self.holds.ended_elsewhere(self._kind, id)

    async def tell(self, id: str) -> None:
        """Send a hint about a changed job to the node that has it."""
        await self.holds.tell(self._kind, id)

    async def made_elsewhere(self, id: str, read: Callable[[], Awaitable[Found | None]]) -> Found | None:
        """Return what `read` finds of a job, and wait a few seconds while another node is storing it."""
        for _ in range(int(PATIENCE / ASK_AGAIN)):
            if (found := await read()) is not None:
                return found
            if not await self.is_elsewhere(id):
                break
            await asyncio.sleep(ASK_AGAIN)
        return await read()

    # for the node: see HeldWork

    async def take_up_all(self) -> None:
        """Resume the open jobs that no node holds. Repeating it changes nothing."""
        async for stored in self.documents.all(retry=self.retry):
            is_left = self._is_open(stored.body) and not self.is_ours(stored.id)
            if is_left and await self.holds.take(self._kind, stored.id):
                await self.take_up(stored.id)

    async def take_up(self, id: str) -> None:
        """Resume a job that another node has left, or release it if it is done."""
        stored = await self.retry(lambda: self.documents.get(id))
        if self.is_ours(id):
            return
        if stored is None or not self._is_open(stored.body):
            await self.let_go(id)
        else:
            await self._resume(stored)

    def heed(self, id: str) -> None:
        """Look at a job that another node has changed."""
        if (job := self._at_work.get(id)) is not None:
            job.look.set()

    def drop(self) -> None:
        """Leave all jobs to the other nodes."""
        lost, self._at_work = self._at_work, {}
        for job in lost.values():
            job.is_lost = True
            self.tasks.start(job.lose())

    async def close(self) -> None:
        """Wait a moment for the work to be stored. The rest is left to other nodes, or to the next start."""
        await self.tasks.wait(timeout=CLOSE_TIMEOUT)
        self.retry.close()
        await self.tasks.cancel()
