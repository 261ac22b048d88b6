"""The work on one batch: its open cells, its counts, and its watchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from ..events import StoppedBy
from ..nodes.jobs import JobWork
from ..runs.run import Run
from ..store.documents import Stored
from ..watchers import Wake, Watchers
from .model import UNANSWERED, Batch, BatchPrompt, Cell


class BatchWork(JobWork):
    """The work on one batch: its open cells, its counts, and its watchers."""

    def __init__(
        self,
        stored: Stored[Batch],
        answer: Callable[[BatchWork], Awaitable[None]],
        take_changes: Callable[[BatchWork], Awaitable[None]],
        look_every: float,
    ) -> None:
        """`answer` answers the open cells."""
        super().__init__(stored.id)
        self._answer, self._take_changes = answer, take_changes
        self.look_every = look_every
        self.owner = stored.owner
        self.batch = stored.body
        self.prompts: list[BatchPrompt] = []
        self.versions: dict[tuple[int, int], int] = {}
        """The versions of the documents of cells that are repeated."""
        self.done = 0
        self.failed = 0
        self.running = 0
        self.is_stopping = False
        self.ready = asyncio.Event()
        """Set when earlier answers have been counted."""
        self._answered = bytearray(self.batch.total)
        self._next = 0
        self._runs: dict[str, Run] = {}
        self._stopped = asyncio.Event()
        self._watchers = Watchers()

    async def work(self) -> None:
        """Answer the open cells, and store the end."""
        try:
            await self._answer(self)
        finally:
            self.ready.set()
            self.notify()

    async def take_changes(self) -> None:
        """Stop if the batch was stopped or deleted through another node. Store the progress for others."""
        if not self.is_stopping:
            await self._take_changes(self)

    async def lose(self) -> None:
        """Stop: another node has the batch."""
        await self.stop(by="shutdown")

    async def begin(self, prompts: list[BatchPrompt], kept: AsyncGenerator[Stored[Cell]]) -> None:
        """Count the stored answers."""
        self.prompts = prompts
        async with aclosing(kept):
            async for stored in kept:
                cell = stored.body
                if cell.outcome in UNANSWERED and cell.settled_at < (self.batch.again_at or 0.0):
                    self.versions[cell.prompt, cell.model] = stored.version
                else:
                    self._mark(cell)
        self.ready.set()
        self.look.set()
        self.notify()

    def next_open(self) -> tuple[int, int] | None:
        """Return the next open cell: prompt by prompt, so that all models advance evenly."""
        while not self.is_stopping and self._next < len(self._answered):
            place, self._next = self._next, self._next + 1
            if not self._answered[place]:
                return divmod(place, len(self.batch.models))
        return None

    def count(self, cell: Cell) -> None:
        """Count a stored answer."""
        self._mark(cell)
        self.notify()

    def _mark(self, cell: Cell) -> None:
        self._answered[cell.prompt * len(self.batch.models) + cell.model] = 1
        self.done += 1
        self.failed += cell.outcome in UNANSWERED

    @property
    def progress(self) -> dict[str, int]:
        """The counts of its cells. Those from before the start are included once the work is `ready`."""
        return {"total": self.batch.total, "done": self.done, "failed": self.failed, "running": self.running}

    @property
    def is_finished(self) -> bool:
        """True if every cell is answered."""
        return self.done == self.batch.total

    def asking(self, run: Run) -> _Asking:
        """Count a run as running within the block."""
        return _Asking(self, self._runs, run)

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than until the batch is stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def stop(self, by: StoppedBy = "user") -> None:
        """Stop: begin no cell, stop the runs, and wait for their end."""
        self.is_stopping = True
        self._stopped.set()
        await asyncio.gather(*(run.stop(by=by) for run in list(self._runs.values())))
        if self.task is not None:
            await asyncio.wait({self.task})

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` whenever the progress changes, until the returned function is called."""
        return self._watchers.watch(wake)

    def notify(self) -> None:
        """Notify the watchers of a change."""
        self._watchers.notify()


class _Asking:
    def __init__(self, work: BatchWork, runs: dict[str, Run], run: Run) -> None:
        self._work, self._runs, self._run = work, runs, run

    def __enter__(self) -> None:
        self._runs[self._run.id] = self._run
        self._work.running = len(self._runs)
        self._work.notify()

    def __exit__(self, *exc: object) -> None:
        self._runs.pop(self._run.id, None)
        self._work.running = len(self._runs)
