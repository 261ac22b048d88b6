"""Runs batches: sends every prompt to every model, a few at a time, and stores each answer.

Each answer is a document, so that the cost of storing one does not grow with the batch. A cell with a document is never
repeated. A cell in progress when the server ends has none, and is repeated at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from ..compare.model import Price, cost
from ..concurrency.retry import Retry
from ..concurrency.tasks import OwnedTasks
from ..concurrency.watchers import Wake, Watchers
from ..engine.engine import Engine
from ..engine.run import Run
from ..errors import HoldfastError, NotFound, ShuttingDown
from ..events import Failed, Interrupted, Settlement, Stopped
from ..history import figures_of
from ..ids import new_id
from ..store import Idempotency, RunRecord, Store
from ..store.documents import Documents, IdempotencyKeys, Stored
from ..wires import native
from .model import UNANSWERED, Batch, BatchPrompt, Cell, State, agrees
from .patterns import TIME_LIMIT, PatternCheck, Patterns

logger = logging.getLogger(__name__)

KIND = "batch"
KEYS = "batch_key"
PROMPTS_TOGETHER = 100
"""Prompts in one document."""
AGAIN = 0.5
"""Seconds between two tries to start a run while there is no room for it."""
LAST_WORDS = 1.0
"""Seconds for storing the last answers when the server ends."""


class BatchNotFound(NotFound):
    """No such batch, or it is not yours."""

    code = "batch_not_found"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"There is no batch {batch_id!r}.")


class PromptPage(msgspec.Struct, frozen=True):
    """Some prompts of a batch, in one document."""

    prompts: list[BatchPrompt]


def cell_id(batch_id: str, prompt: int, model: int) -> str:
    """Return the id of the document of a cell."""
    return f"{batch_id}:{prompt:05}:{model:02}"


class BatchRunner:
    """The batches of a server. A running batch costs a task for each answer that it waits for."""

    def __init__(
        self, store: Store, engine: Engine, admit: Callable[[str], None], prices: Mapping[str, Price] | None = None
    ) -> None:
        self.documents = Documents(store, KIND, Batch, now=engine.now)
        self._store = store
        self._engine = engine
        self._keys = IdempotencyKeys(store, KEYS, now=engine.now)
        self._retry = Retry()
        self._admit = admit
        self._prices = prices or {}
        self._patterns = Patterns()
        self.pattern_check = PatternCheck()
        self._works: dict[str, BatchWork] = {}
        self._making: set[str] = set()
        self._tasks = OwnedTasks("the batches")
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # start and end

    async def take_up(self) -> None:
        """Resume the batches of the last process. Repeating it changes nothing."""
        async for stored in self.documents.all(retry=self._retry):
            if stored.body.state == "running":
                self._work_on(stored)
            elif is_hidden(stored.body):
                self._tasks.start(self._erase(stored.id, stored.body.key))

    async def close(self) -> None:
        """Store the finished answers, and leave the rest to the next process. The engine is closed before."""
        await self._tasks.wait(timeout=LAST_WORDS)
        await self._tasks.cancel()
        await self._patterns.close()

    # operations

    async def create(
        self, owner: str, batch: Batch, prompts: Sequence[BatchPrompt], key: Idempotency | None = None
    ) -> Stored[Batch]:
        """Store a batch with its prompts, then begin. A partly stored batch is erased at the next start.

        A repeated key returns the batch that it made the first time.
        """
        if key is None:
            return await self._create(new_id("bat"), owner, batch, prompts)
        key_id = self._keys.id_of(key)
        async with self._lock(key_id):  # two at once are one
            batch_id = await self._keys.claim(key, new_id("bat"))
            known = await self.documents.get(batch_id)
            if known is not None and known.body.state == "deleting":
                await self._forget_key(key_id, batch_id)
                batch_id, known = await self._keys.claim(key, new_id("bat")), None
            if known is not None and known.body.state != "making":
                return known
            await self._erase_parts(batch_id)  # of an attempt that was not acknowledged
            return await self._create(batch_id, owner, msgspec.structs.replace(batch, key=key_id), prompts)

    async def _create(self, id: str, owner: str, batch: Batch, prompts: Sequence[BatchPrompt]) -> Stored[Batch]:
        self._making.add(id)
        try:
            stored = await self._made(id, owner, batch, prompts)
        finally:
            self._making.discard(id)
        self._work_on(stored)
        return stored

    async def _made(self, id: str, owner: str, batch: Batch, prompts: Sequence[BatchPrompt]) -> Stored[Batch]:
        """Store a batch and its prompts. It is visible once all of it is stored."""
        making = await self.documents.put(id, _in_state(batch, "making"), owner=owner)
        pages = self._prompt_pages(id)
        for first in range(0, len(prompts), PROMPTS_TOGETHER):
            page = PromptPage(list(prompts[first : first + PROMPTS_TOGETHER]))
            await pages.put(f"{id}:{first:05}", page, owner=owner)
        return await self.documents.put(id, _in_state(batch, "running"), owner=owner, version=making.version)

    async def stop(self, stored: Stored[Batch]) -> Stored[Batch]:
        """Stop a batch: its runs are stopped, and their cells stay open."""
        now = self._engine.now()

        def stopped(batch: Batch) -> Batch:
            return _in_state(batch, "stopped", settled_at=now) if batch.state == "running" else batch

        async with self._lock(stored.id):
            stored = await self._change(stored.id, stopped)
            if stored.body.state == "stopped" and (work := self._works.get(stored.id)) is not None:
                await work.stop()
            return await self._change(stored.id, lambda batch: batch)

    async def resume(self, stored: Stored[Batch], *, failed: bool) -> Stored[Batch]:
        """Resume a batch; with `failed`, failed cells are repeated too."""
        now = self._engine.now()

        def going_on(batch: Batch) -> Batch:
            if batch.state == "running" or (batch.state == "finished" and not (failed and batch.failed)):
                return batch
            again_at = now if failed else batch.again_at
            return _in_state(batch, "running", again_at=again_at, settled_at=None, done=None, failed=None)

        async with self._lock(stored.id):
            stored = await self._change(stored.id, going_on)
            if stored.body.state == "running":
                self._work_on(stored)
            return stored

    async def delete(self, stored: Stored[Batch]) -> None:
        """Stop a batch and delete it. It is hidden at once; its cells are deleted in the background."""
        async with self._lock(stored.id):
            stored = await self._change(stored.id, lambda batch: _in_state(batch, "deleting"))
            if (work := self._works.get(stored.id)) is not None:
                await work.stop()
        self._tasks.start(self._erase(stored.id, stored.body.key))

    async def _erase(self, batch_id: str, key_id: str) -> None:
        """Erase a batch that is being deleted or was partly stored, unless its key has begun it again."""
        async with self._lock(key_id or batch_id):
            stored = await self._retry(lambda: self.documents.get(batch_id))
            if stored is None or not is_hidden(stored.body) or batch_id in self._making:
                return
            if key_id:
                await self._forget_key(key_id, batch_id)
        await self._erase_parts(batch_id)

    async def _forget_key(self, key_id: str, batch_id: str) -> None:
        """Delete the key of this batch. A key that stands for another batch is kept."""
        await self._retry(lambda: self._keys.forget(key_id, batch_id))

    async def _erase_parts(self, batch_id: str) -> None:
        await self._erase_all(self.cell_documents(batch_id))
        await self._erase_all(self._prompt_pages(batch_id))
        await self._retry(lambda: self.documents.delete(batch_id))

    async def _erase_all(self, documents: Documents[Any]) -> None:
        while page := await self._retry(documents.page):
            await asyncio.gather(*(self._retry(partial(documents.delete, stored.id)) for stored in page))

    # reading

    def work(self, batch_id: str) -> BatchWork | None:
        """Return the work on a batch, if it is running."""
        work = self._works.get(batch_id)
        return None if work is None or (work.task is not None and work.task.done()) else work

    async def prompts(self, batch_id: str) -> list[BatchPrompt]:
        """Return the prompts of a batch in their order."""
        pages = [stored async for stored in self._prompt_pages(batch_id).all(retry=self._retry)]
        return [prompt for page in sorted(pages, key=lambda page: page.id) for prompt in page.body.prompts]

    async def prompts_named(self, batch_id: str, numbers: Iterable[int]) -> dict[int, BatchPrompt]:
        """Return some prompts of a batch by their numbers, reading only their pages."""
        found: dict[int, BatchPrompt] = {}
        for first in sorted({number - number % PROMPTS_TOGETHER for number in numbers}):
            page = await self._prompt_pages(batch_id).get(f"{batch_id}:{first:05}")
            found.update(enumerate(page.body.prompts if page else (), first))
        return found

    def _prompt_pages(self, batch_id: str) -> Documents[PromptPage]:
        return Documents(self._store, f"prompts:{batch_id}", PromptPage, now=self._engine.now)

    def cell_documents(self, batch_id: str) -> Documents[Cell]:
        """Return the documents of a batch's cells."""
        return Documents(self._store, f"cell:{batch_id}", Cell, now=self._engine.now)

    async def cells(self, batch_id: str) -> AsyncGenerator[Cell]:
        """Yield the stored cells, the newest first."""
        async with aclosing(self.cell_documents(batch_id).all(retry=self._retry)) as kept:
            async for stored in kept:
                yield stored.body

    async def counts(self, stored: Stored[Batch]) -> dict[str, int]:
        """Return the progress of a batch."""
        batch, work = stored.body, self.work(stored.id)
        if work is not None:
            await work.ready.wait()
            return {"total": batch.total, "done": work.done, "failed": work.failed, "running": work.running}
        done, failed = batch.done, batch.failed
        if done is None or failed is None:
            outcomes = [cell.outcome async for cell in self.cells(stored.id)]
            done, failed = len(outcomes), sum(each in UNANSWERED for each in outcomes)
        return {"total": batch.total, "done": done, "failed": failed, "running": 0}

    # changing

    def _lock(self, batch_id: str) -> asyncio.Lock:
        return self._locks.setdefault(batch_id, asyncio.Lock())

    async def _change(self, batch_id: str, change: Callable[[Batch], Batch]) -> Stored[Batch]:
        """Change a batch by compare-and-set: its work may change it too."""

        async def changed(batch: Batch) -> Batch:
            if is_hidden(batch):  # deleted while the caller waited
                raise BatchNotFound(batch_id)
            return change(batch)

        stored = await self.documents.change(batch_id, changed)
        if stored is None:
            raise BatchNotFound(batch_id)
        return stored

    # working

    def _work_on(self, stored: Stored[Batch]) -> None:
        if self.work(stored.id) is None:
            self._works[stored.id] = work = BatchWork(stored)
            work.task = asyncio.create_task(self._work(work))
            self._tasks.hold(work.task)
            work.task.add_done_callback(lambda _: self._forget_work(work))

    def _forget_work(self, work: BatchWork) -> None:
        if self._works.get(work.id) is work:
            del self._works[work.id]

    async def _work(self, work: BatchWork) -> None:
        """Answer the open cells, then store the end."""
        try:
            await work.begin(await self.prompts(work.id), self.cell_documents(work.id).all(retry=self._retry))
            asking = [self._ask_on(work) for _ in range(work.batch.concurrency)]
            ended = await asyncio.gather(*asking, return_exceptions=True)  # an error of one does not cancel the others
            for error in filter(None, ended):
                raise error
            await self._retry(lambda: self._finish(work))
        except Exception:
            logger.exception("batch %s failed; it resumes at the next start", work.id)
        finally:
            work.ready.set()
            work.tell()

    async def _finish(self, work: BatchWork) -> None:
        """Store the counts of a batch that has ended, and its state `finished` unless a stop was faster."""

        async def ended(batch: Batch) -> Batch:
            counts = {"done": work.done, "failed": work.failed}
            if batch.state == "running" and work.is_finished:
                return _in_state(batch, "finished", settled_at=self._engine.now(), **counts)
            if batch.state == "stopped":
                return msgspec.structs.replace(batch, **counts)
            return batch  # it is being deleted, or the next process resumes it

        await self.documents.change(work.id, ended)

    async def _ask_on(self, work: BatchWork) -> None:
        """Answer open cells one after the other, until there are none, or the batch or the server stops."""
        while (place := work.next_open()) is not None:
            try:
                await self._answer(work, *place)
            except ShuttingDown:
                return  # the next process resumes it

    async def _answer(self, work: BatchWork, prompt: int, model: int) -> None:
        if (run := await self._begin(work, prompt, model)) is None:
            return
        with work.asking(run):
            settled = await run.settled()
        if isinstance(settled, Stopped) and (settled.by == "shutdown" or work.is_stopping):
            return  # its answer is incomplete: the cell stays open
        cell = _cell(prompt, model, run, settled, self._engine.now())
        price = self._prices.get(work.batch.models[model])
        cell = await self._judged(work, msgspec.structs.replace(cell, cost=cost(price, settled.usage)))
        await self._keep(work, cell)

    async def _begin(self, work: BatchWork, prompt: int, model: int) -> Run | None:
        """Start the run of a cell, as soon as there is room for it."""
        while not work.is_stopping:
            record = RunRecord(
                id=new_id("run"),
                owner=work.owner,
                model=work.batch.models[model],
                kind="batch",
                request={"messages": _messages(work, prompt), "params": work.batch.params},
            )
            try:
                self._admit(work.owner)
                return await self._engine.submit(record, keep=False, deadline=work.batch.timeout)
            except HoldfastError as error:
                if error.status != 429:
                    raise
                await work.pause(max(error.retry_after or 0.0, AGAIN))
        return None

    async def _judged(self, work: BatchWork, cell: Cell) -> Cell:
        """Return a completed cell with its judgement."""
        expected, how = work.prompts[cell.prompt].expected, work.batch.match
        if expected is None or cell.outcome != "completed":
            return cell
        if how != "regex":
            return msgspec.structs.replace(cell, right=agrees(how, expected, cell.text))
        right = await self._patterns.found(str(expected), cell.text)
        why = f"The search for the pattern took longer than {TIME_LIMIT:g} s, or too much memory."
        return msgspec.structs.replace(cell, right=right, not_judged=why if right is None else "")

    async def _keep(self, work: BatchWork, cell: Cell) -> None:
        """Store an answer, then count it. A cell has one document, so that it is counted once."""
        place = (cell.prompt, cell.model)
        put = partial(
            self.cell_documents(work.id).put,
            cell_id(work.id, *place),
            cell,
            owner=work.owner,
            version=work.versions.get(place),
            at=cell.settled_at,
        )
        await self._retry(put)
        work.count(cell)


class BatchWork:
    """The work on one batch: its open cells, its counts, and its watchers."""

    def __init__(self, stored: Stored[Batch]) -> None:
        self.id = stored.id
        self.owner = stored.owner
        self.batch = stored.body
        self.prompts: list[BatchPrompt] = []
        self.versions: dict[tuple[int, int], int] = {}
        """The versions of the documents of cells that are repeated."""
        self.done = 0
        self.failed = 0
        self.running = 0
        self.is_stopping = False
        self.task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()
        """Set when earlier answers have been counted."""
        self._answered = bytearray(self.batch.total)
        self._next = 0
        self._runs: dict[str, Run] = {}
        self._stopped = asyncio.Event()
        self._watchers = Watchers()

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
        self.tell()

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
        self.tell()

    def _mark(self, cell: Cell) -> None:
        self._answered[cell.prompt * len(self.batch.models) + cell.model] = 1
        self.done += 1
        self.failed += cell.outcome in UNANSWERED

    @property
    def is_finished(self) -> bool:
        """Whether every cell is answered."""
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

    async def stop(self) -> None:
        """Stop: begin no cell, stop the runs, and wait for their end."""
        self.is_stopping = True
        self._stopped.set()
        await asyncio.gather(*(run.stop(by="user") for run in list(self._runs.values())))
        if self.task is not None:
            await asyncio.wait({self.task})

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` whenever the progress changes, until the returned function is called."""
        return self._watchers.watch(wake)

    def tell(self) -> None:
        """Notify the watchers of a change."""
        self._watchers.notify()


class _Asking:
    def __init__(self, work: BatchWork, runs: dict[str, Run], run: Run) -> None:
        self._work, self._runs, self._run = work, runs, run

    def __enter__(self) -> None:
        self._runs[self._run.id] = self._run
        self._work.running = len(self._runs)
        self._work.tell()

    def __exit__(self, *exc: object) -> None:
        self._runs.pop(self._run.id, None)
        self._work.running = len(self._runs)


def is_hidden(batch: Batch) -> bool:
    """Return whether a batch is invisible: not complete yet, or being deleted."""
    return batch.state in ("making", "deleting")


def _in_state(batch: Batch, state: State, **changes: Any) -> Batch:
    return msgspec.structs.replace(batch, state=state, **changes)


def _messages(work: BatchWork, prompt: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "content": work.prompts[prompt].prompt}]
    return [{"role": "system", "content": work.batch.system}, *said] if work.batch.system else said


def _cell(prompt: int, model: int, run: Run, settled: Settlement, now: float) -> Cell:
    figures = figures_of(run.measured, settled.usage)
    return Cell(
        prompt=prompt,
        model=model,
        run_id=run.id,
        outcome=settled.outcome,
        text=settled.text,
        reasoning=run.log.snapshot()[1].reasoning,
        finish_reason=settled.finish_reason,
        error={**native.error(settled.error)} if isinstance(settled, (Failed, Interrupted)) else None,
        answered_by=settled.answered_by,
        ttft_ms=figures.ttft_ms,
        duration_ms=figures.duration_ms or 0.0,
        tokens_per_second=figures.tokens_per_second,
        input_tokens=figures.input_tokens,
        output_tokens=figures.output_tokens,
        usage_source=figures.usage_source,
        settled_at=now,
    )
