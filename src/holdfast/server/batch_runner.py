"""Asks every prompt of a batch of every model, a few at a time, and keeps each answer as it comes.

Each answer is a document of its own, so that the cost of keeping one does not grow with the batch. What has a document
is never asked again. What was being asked when the server ended has none, and is asked again when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec

from ..batches import UNANSWERED, Batch, Cell, Outcome, Prompt, State, agrees
from ..comparisons import Price, cost
from ..engine import Engine
from ..errors import HoldfastError, IdempotencyConflict, NotFound, ShuttingDown, StaleDocument, StoreUnavailable
from ..events import AnySettlement, Failed, Interrupted, Reasoning, Stopped, Text, ToolCall, ToolDelta
from ..history import outcome
from ..ids import new_id
from ..run import Run
from ..store import Document, Idempotency, RunRecord, Store
from ..wire import native
from .keys import digest
from .patterns import Patterns

logger = logging.getLogger("holdfast")
T = TypeVar("T")

KIND = "batch"
KEYS = "batch_key"
PAGE = 200
PROMPTS_TOGETHER = 100
"""Prompts in one document."""
AGAIN = 0.5
"""Seconds between two tries at what is not possible just now."""
MEASURABLE = 0.001
"""Seconds between the first and the last word below which there is no speed: all came at once."""
LAST_WORDS = 1.0
"""Seconds that answers which are there may take to be kept when the server ends."""


class BatchNotFound(NotFound):
    """No such batch, or it is not yours."""

    code = "batch_not_found"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"There is no batch {batch_id!r}.")


def cells_of(batch_id: str) -> str:
    """Return the kind of the documents that hold a batch's cells."""
    return f"cell:{batch_id}"


def prompts_of(batch_id: str) -> str:
    """Return the kind of the documents that hold a batch's prompts."""
    return f"prompts:{batch_id}"


def cell_id(batch_id: str, prompt: int, model: int) -> str:
    """Return the id of the one document that a cell can have."""
    return f"{batch_id}:{prompt:05}:{model:02}"


class BatchRunner:
    """Every batch of a server. A batch that is being worked on costs a task for each answer that it waits for."""

    def __init__(
        self, store: Store, engine: Engine, admit: Callable[[str], None], prices: Mapping[str, Price] | None = None
    ) -> None:
        self._store = store
        self._engine = engine
        self._admit = admit
        self._prices = prices or {}
        self._patterns = Patterns()
        self._works: dict[str, Work] = {}
        self._making: set[str] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # life

    def start(self) -> None:
        """Take up what the last process left."""
        self._spawn(self._take_up())

    async def _take_up(self) -> None:
        async for document in self._all(KIND):
            batch = batch_in(document)
            if batch.state == "running":
                self._work_on(document)
            elif is_hidden(batch):
                self._spawn(self._erase(document.id, batch.key))

    async def close(self) -> None:
        """Keep the answers that are there, and leave the rest to the next process. The engine is closed before."""
        tasks = {work.task for work in self._works.values() if work.task} | self._chores
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._patterns.close()

    def _spawn(self, chore: Any) -> None:
        task = asyncio.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._chores.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a chore of the batches failed", exc_info=error)

    # what can be asked of it

    async def create(
        self, owner: str, batch: Batch, prompts: Sequence[Prompt], key: Idempotency | None = None
    ) -> Document:
        """Keep a batch with its prompts, then begin. What was kept only in part is erased at the next start.

        A repeated key gives the batch that it began the first time.
        """
        if key is None:
            return await self._create(new_id("bat"), owner, batch, prompts)
        key_id = digest(f"{owner}\n{key.key}")
        async with self._lock(key_id):  # two at once are one
            batch_id = await self._named_by(key, key_id)
            known = await self._store.get_document(KIND, batch_id)
            if known is not None and batch_in(known).state == "deleting":
                await self._forget_key(key_id, batch_id)
                batch_id, known = await self._named_by(key, key_id), None
            if known is not None and batch_in(known).state != "making":
                return known
            await self._erase_parts(batch_id)  # of an attempt that nobody was told of
            return await self._create(batch_id, owner, msgspec.structs.replace(batch, key=key_id), prompts)

    async def _named_by(self, key: Idempotency, key_id: str) -> str:
        """Return the id that a key stands for, kept before the batch is; `IdempotencyConflict` for another request."""
        kept = await self._store.get_document(KEYS, key_id)
        if kept is None:
            body = {"digest": key.digest, "batch": new_id("bat")}
            kept = await self._store.put_document(Document(kind=KEYS, id=key_id, owner=key.owner, body=body))
        if kept.body["digest"] != key.digest:
            raise IdempotencyConflict
        return str(kept.body["batch"])

    async def _create(self, id: str, owner: str, batch: Batch, prompts: Sequence[Prompt]) -> Document:
        self._making.add(id)
        try:
            document = await self._made(id, owner, batch, prompts)
        finally:
            self._making.discard(id)
        self._work_on(document)
        return document

    async def _made(self, id: str, owner: str, batch: Batch, prompts: Sequence[Prompt]) -> Document:
        """Keep a batch and its prompts. It is there for everybody once all of it is kept."""
        now = self._engine.now()
        made = Document(kind=KIND, id=id, owner=owner, created_at=now, updated_at=now)
        making = msgspec.structs.replace(made, body=msgspec.to_builtins(_in_state(batch, "making")))
        document = await self._store.put_document(making)
        for first in range(0, len(prompts), PROMPTS_TOGETHER):
            page = msgspec.to_builtins(prompts[first : first + PROMPTS_TOGETHER])
            kept = Document(kind=prompts_of(id), id=f"{id}:{first:05}", owner=owner, created_at=now)
            await self._store.put_document(msgspec.structs.replace(kept, body={"prompts": page}))
        return await self._put(document, _in_state(batch, "running"))

    async def stop(self, document: Document) -> Document:
        """Stop a batch: nothing new is asked, and what is being asked is stopped and stays open."""
        now = self._engine.now()

        def stopped(batch: Batch) -> Batch:
            return _in_state(batch, "stopped", settled_at=now) if batch.state == "running" else batch

        async with self._lock(document.id):
            document = await self._change(document, stopped)
            if batch_in(document).state == "stopped" and (work := self._works.get(document.id)) is not None:
                await work.stop()
            return await self._reread(document)

    async def resume(self, document: Document, *, failed: bool) -> Document:
        """Go on with a batch; with `failed` what had failed is asked again too."""
        now = self._engine.now()

        def going_on(batch: Batch) -> Batch:
            if batch.state == "running" or (batch.state == "finished" and not (failed and batch.failed)):
                return batch
            again_at = now if failed else batch.again_at
            return _in_state(batch, "running", again_at=again_at, settled_at=None, done=None, failed=None)

        async with self._lock(document.id):
            document = await self._change(document, going_on)
            if batch_in(document).state == "running":
                self._work_on(document)
            return document

    async def delete(self, document: Document) -> None:
        """Stop a batch and forget it. It is gone at once; its cells go one after the other."""
        async with self._lock(document.id):
            document = await self._change(document, lambda batch: _in_state(batch, "deleting"))
            if (work := self._works.get(document.id)) is not None:
                await work.stop()
        self._spawn(self._erase(document.id, batch_in(document).key))

    async def _erase(self, batch_id: str, key_id: str) -> None:
        """Erase what is being deleted or was kept only in part, unless its key has begun it again meanwhile."""
        async with self._lock(key_id or batch_id):
            document = await self._insist(lambda: self._store.get_document(KIND, batch_id))
            if document is None or not is_hidden(batch_in(document)) or batch_id in self._making:
                return
            if key_id:
                await self._forget_key(key_id, batch_id)
        await self._erase_parts(batch_id)

    async def _forget_key(self, key_id: str, batch_id: str) -> None:
        """Forget a key that stands for this batch. One that stands for another by now is kept."""
        kept = await self._insist(lambda: self._store.get_document(KEYS, key_id))
        if kept is not None and kept.body["batch"] == batch_id:
            await self._forget(KEYS, key_id)

    async def _erase_parts(self, batch_id: str) -> None:
        for kind in (cells_of(batch_id), prompts_of(batch_id)):
            while page := await self._insist(partial(self._store.list_documents, kind, limit=PAGE)):
                await asyncio.gather(*(self._forget(kind, each.id) for each in page))
        await self._forget(KIND, batch_id)

    async def _forget(self, kind: str, id: str) -> None:
        await self._insist(lambda: self._store.delete_document(kind, id))

    # reading

    def work(self, batch_id: str) -> Work | None:
        """Return what goes on for a batch, if anything does."""
        work = self._works.get(batch_id)
        return None if work is None or (work.task is not None and work.task.done()) else work

    async def prompts(self, batch_id: str) -> list[Prompt]:
        """Return the prompts of a batch in their order."""
        pages = [document async for document in self._all(prompts_of(batch_id))]
        ordered = sorted(pages, key=lambda page: page.id)
        return [prompt for page in ordered for prompt in msgspec.convert(page.body["prompts"], list[Prompt])]

    async def prompts_named(self, batch_id: str, numbers: Iterable[int]) -> dict[int, Prompt]:
        """Return some of the prompts of a batch by their numbers, without reading the others' pages."""
        found: dict[int, Prompt] = {}
        for first in sorted({number - number % PROMPTS_TOGETHER for number in numbers}):
            page = await self._store.get_document(prompts_of(batch_id), f"{batch_id}:{first:05}")
            for number, prompt in enumerate(page.body["prompts"] if page else (), first):
                found[number] = msgspec.convert(prompt, Prompt)
        return found

    async def cells(self, batch_id: str) -> AsyncGenerator[Cell]:
        """Yield the cells that are kept, those answered last first."""
        async for document in self._all(cells_of(batch_id)):
            yield cell_in(document)

    async def _all(self, kind: str) -> AsyncGenerator[Document]:
        before: str | None = None
        while page := await self._insist(partial(self._store.list_documents, kind, before=before, limit=PAGE)):
            for document in page:
                yield document
            before = page[-1].id

    async def counts(self, document: Document) -> dict[str, int]:
        """Return how far a batch has come."""
        batch, work = batch_in(document), self.work(document.id)
        if work is not None:
            await work.ready.wait()
            return {"total": batch.total, "done": work.done, "failed": work.failed, "running": work.running}
        done, failed = batch.done, batch.failed
        if done is None or failed is None:
            outcomes = [cell.outcome async for cell in self.cells(document.id)]
            done, failed = len(outcomes), sum(each in UNANSWERED for each in outcomes)
        return {"total": batch.total, "done": done, "failed": failed, "running": 0}

    # changing

    def _lock(self, batch_id: str) -> asyncio.Lock:
        return self._locks.setdefault(batch_id, asyncio.Lock())

    async def _reread(self, document: Document) -> Document:
        """Return a batch as it is now. Who waited while it was deleted comes too late."""
        now = await self._store.get_document(KIND, document.id)
        if now is None or is_hidden(batch_in(now)):
            raise BatchNotFound(document.id)
        return now

    async def _change(self, document: Document, change: Callable[[Batch], Batch]) -> Document:
        """Change a batch as it is now, which its work may do at the same moment. What stays the same is not written."""
        while True:
            document = await self._reread(document)
            before = batch_in(document)
            after = change(before)
            if after is before:
                return document
            try:
                return await self._put(document, after)
            except StaleDocument:
                continue

    async def _put(self, document: Document, batch: Batch) -> Document:
        changed = msgspec.structs.replace(document, body=msgspec.to_builtins(batch), updated_at=self._engine.now())
        return await self._store.put_document(changed, document.version)

    # working

    def _work_on(self, document: Document) -> None:
        if self.work(document.id) is None:
            self._works[document.id] = work = Work(document)
            work.task = asyncio.create_task(self._work(work))
            work.task.add_done_callback(lambda _: self._forget_work(work))

    def _forget_work(self, work: Work) -> None:
        if self._works.get(work.id) is work:
            del self._works[work.id]

    async def _work(self, work: Work) -> None:
        """Ask what is open, then say that it is done."""
        try:
            await work.begin(await self.prompts(work.id), self._all(cells_of(work.id)))
            asking = [self._ask_on(work) for _ in range(work.batch.concurrency)]
            ended = await asyncio.gather(*asking, return_exceptions=True)  # one that breaks leaves the others their end
            for error in filter(None, ended):
                raise error
            await self._insist(lambda: self._finish(work))
        except Exception:
            logger.exception("batch %s cannot go on; it is taken up again at the next start", work.id)
        finally:
            work.ready.set()
            work.tell()

    async def _finish(self, work: Work) -> None:
        """Write down how many there are, and that it is done where it is. Who stops it meanwhile comes first."""
        while (document := await self._store.get_document(KIND, work.id)) is not None:
            batch = msgspec.structs.replace(batch_in(document), done=work.done, failed=work.failed)
            if batch.state == "running" and work.is_finished:
                batch = _in_state(batch, "finished", settled_at=self._engine.now())
            elif batch.state != "stopped":
                return  # it is being deleted, or the next process goes on with it
            try:
                await self._put(document, batch)
                return
            except StaleDocument:
                continue

    async def _ask_on(self, work: Work) -> None:
        """Answer one open cell after the other, until there is none, or the batch is stopped, or the server ends."""
        while (place := work.next_open()) is not None:
            try:
                await self._answer(work, *place)
            except ShuttingDown:
                return  # the next process goes on

    async def _answer(self, work: Work, prompt: int, model: int) -> None:
        run, began = await self._begin(work, prompt, model), time.monotonic()
        if run is None:
            return
        with work.asking(run):
            timing = await _follow(run, began)
        settled = run.settlement
        assert settled is not None
        if isinstance(settled, Stopped) and (settled.by == "shutdown" or work.is_stopping):
            return  # nobody has heard its answer: it stays open
        cell = _cell(prompt, model, run.id, settled, timing, self._engine.now())
        price = self._prices.get(work.batch.models[model])
        cell = await self._judged(work, msgspec.structs.replace(cell, cost=cost(price, settled.usage)))
        await self._keep(work, cell)

    async def _begin(self, work: Work, prompt: int, model: int) -> Run | None:
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

    async def _judged(self, work: Work, cell: Cell) -> Cell:
        """Say whether an answer that completed is the one that was expected."""
        expected, how = work.prompts[cell.prompt].expected, work.batch.match
        if expected is None or cell.outcome != "completed":
            return cell
        if how == "regex":
            right = await self._patterns.found(str(expected), cell.text)
        else:
            right = agrees(how, expected, cell.text)
        return msgspec.structs.replace(cell, right=right)

    async def _keep(self, work: Work, cell: Cell) -> None:
        """Keep an answer, then count it. A cell has one document, so that it cannot be counted twice."""
        place = (cell.prompt, cell.model)
        document = Document(
            kind=cells_of(work.id),
            id=cell_id(work.id, *place),
            owner=work.owner,
            created_at=cell.settled_at,
            updated_at=cell.settled_at,
            body=msgspec.to_builtins(cell),
        )
        await self._insist(lambda: self._store.put_document(document, work.versions.get(place)))
        work.count(cell)

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat until the store has answered."""
        while True:
            try:
                return await ask()
            except StoreUnavailable as error:
                logger.warning("a batch waits for the store: %s", error)
                await asyncio.sleep(AGAIN)


class Work:
    """What goes on for one batch: which cells are open, how many are done, and who wants to know."""

    def __init__(self, document: Document) -> None:
        self.id = document.id
        self.owner = document.owner
        self.batch = batch_in(document)
        self.prompts: list[Prompt] = []
        self.versions: dict[tuple[int, int], int] = {}
        """Of the documents of cells that are asked again."""
        self.done = 0
        self.failed = 0
        self.running = 0
        self.is_stopping = False
        self.task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()
        """Set when what was answered before has been counted."""
        self._answered = bytearray(self.batch.total)
        self._next = 0
        self._runs: dict[str, Run] = {}
        self._stopped = asyncio.Event()
        self._wakers: dict[Callable[[], None], None] = {}

    async def begin(self, prompts: list[Prompt], kept: AsyncGenerator[Document]) -> None:
        """Take in what is answered already."""
        self.prompts = prompts
        async with aclosing(kept):
            async for document in kept:
                cell = cell_in(document)
                if cell.outcome in UNANSWERED and cell.settled_at < (self.batch.again_at or 0.0):
                    self.versions[cell.prompt, cell.model] = document.version
                else:
                    self._mark(cell)
        self.ready.set()
        self.tell()

    def next_open(self) -> tuple[int, int] | None:
        """Return the next cell that nobody has asked: prompt by prompt, so that all models come along evenly."""
        while not self.is_stopping and self._next < len(self._answered):
            place, self._next = self._next, self._next + 1
            if not self._answered[place]:
                return divmod(place, len(self.batch.models))
        return None

    def count(self, cell: Cell) -> None:
        """Count an answer that is kept."""
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
        """Count a run as going on, for as long as the block lasts."""
        return _Asking(self, self._runs, run)

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than the batch goes on."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def stop(self) -> None:
        """Ask nothing new, stop what is being asked, and wait until all of it has ended."""
        self.is_stopping = True
        self._stopped.set()
        await asyncio.gather(*(run.stop(by="user") for run in list(self._runs.values())))
        if self.task is not None:
            await asyncio.wait({self.task})

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever the progress changes, until the returned function is called."""
        self._wakers[wake] = None
        return lambda: self._wakers.pop(wake, None)

    def tell(self) -> None:
        """Wake those who want to know."""
        for wake in tuple(self._wakers):
            wake()


class _Asking:
    def __init__(self, work: Work, runs: dict[str, Run], run: Run) -> None:
        self._work, self._runs, self._run = work, runs, run

    def __enter__(self) -> None:
        self._runs[self._run.id] = self._run
        self._work.running = len(self._runs)
        self._work.tell()

    def __exit__(self, *exc: object) -> None:
        self._runs.pop(self._run.id, None)
        self._work.running = len(self._runs)


def batch_in(document: Document) -> Batch:
    """Return the batch that a document holds."""
    return msgspec.convert(document.body, Batch)


def is_hidden(batch: Batch) -> bool:
    """Tell whether a batch is not there for anybody: not yet, or no more."""
    return batch.state in ("making", "deleting")


def cell_in(document: Document) -> Cell:
    """Return the cell that a document holds."""
    return msgspec.convert(document.body, Cell)


def _in_state(batch: Batch, state: State, **changes: Any) -> Batch:
    return msgspec.structs.replace(batch, state=state, **changes)


def _messages(work: Work, prompt: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "content": work.prompts[prompt].prompt}]
    return [{"role": "system", "content": work.batch.system}, *said] if work.batch.system else said


class _Timing(msgspec.Struct, frozen=True):
    first: float | None
    """Seconds to the first word, thought or call, and..."""
    last: float
    """...to the last of them."""
    all: float
    reasoning: str


async def _follow(run: Run, began: float) -> _Timing:
    """Read a run to its end, and note when it began to speak."""
    first: float | None = None
    last = 0.0
    thoughts: list[str] = []
    async with aclosing(run.read()) as events:
        async for _, event in events:
            if isinstance(event, (Text, Reasoning, ToolDelta, ToolCall)):
                last = time.monotonic() - began
                first = last if first is None else first
            if isinstance(event, Reasoning):
                thoughts.append(event.text)
    await run.settled()
    return _Timing(first, last, time.monotonic() - began, "".join(thoughts))


def _cell(prompt: int, model: int, run_id: str, settled: AnySettlement, timing: _Timing, now: float) -> Cell:
    used = settled.usage
    speaking = timing.last - (timing.first or 0.0)
    return Cell(
        prompt=prompt,
        model=model,
        run_id=run_id,
        outcome=cast(Outcome, outcome(settled)),
        text=settled.text,
        reasoning=timing.reasoning,
        finish_reason=settled.finish_reason,
        error=native.error(settled.error) if isinstance(settled, (Failed, Interrupted)) else None,
        answered_by=settled.answered_by,
        ttft_ms=None if timing.first is None else round(timing.first * 1000, 3),
        duration_ms=round(timing.all * 1000, 3),
        tokens_per_second=round(used.output_tokens / speaking, 3) if speaking > MEASURABLE else None,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        usage_source=used.source,
        settled_at=now,
    )
