"""Runs batches: sends every prompt to every model, a few at a time, and stores each answer.

Each answer is a document, so that the cost of storing one does not grow with the batch. A cell with a document is never
repeated. A cell in progress when the server ends has none, and is repeated at the next start. The run of an agent is
found again instead, since its tools may have run. If several nodes share a store, one of them holds each batch. A stop
is requested through the batch's document, which the holder reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from ..access import Payer
from ..asks import ChatAsk
from ..engine.core import Core
from ..errors import HoldfastError, NotFound, ShuttingDown, StaleDocument
from ..events import Failed, Interrupted, Settlement, Stopped
from ..history import figures_of
from ..ids import ModelName, new_id
from ..nodes.jobs import Jobs
from ..pricing import Prices, cost
from ..runs.run import Run
from ..server.config.settings import AGENT
from ..store import Idempotency, RunRecord, Store
from ..store.documents import Documents, IdempotencyKeys, Stored
from ..wires import native
from .model import UNANSWERED, Batch, BatchPrompt, Cell, State, agrees
from .patterns import TIME_LIMIT, PatternCheck, Patterns
from .work import BatchWork

logger = logging.getLogger(__name__)

KIND = "batch"
KEYS = "batch_key"
PROMPTS_TOGETHER = 100
"""Prompts in one document."""
AGAIN = 0.5
"""Seconds between two tries to start a run while there is no room for it."""
LOOK_EVERY = 1.0
"""Seconds between two reads of a batch that another node may have changed. A hint causes one sooner."""
TELL_EVERY = 0.25
"""The same if there are other nodes. Each time, the progress is stored for them."""


class BatchNotFound(NotFound):
    """No such batch, or it is not yours."""

    code = "batch_not_found"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"There is no batch {batch_id!r}.")


class BatchHalfMade(HoldfastError):
    """Another node is still storing the batch with the same key."""

    code = "batch_half_made"
    status = 503
    retry_after = 2.0
    message = "Another server is storing the batch with this key. Repeat the request."


class PromptPage(msgspec.Struct, frozen=True):
    """Some prompts of a batch, in one document."""

    prompts: list[BatchPrompt]


def cell_id(batch_id: str, prompt: int, model: int) -> str:
    """Return the id of the document of a cell."""
    return f"{batch_id}:{prompt:05}:{model:02}"


class BatchRunner:
    """The batches of a server. A running batch costs a task for each answer that it waits for."""

    def __init__(
        self,
        store: Store,
        engine: Core,
        start: Callable[..., Awaitable[Run]],
        payer_now: Callable[[Payer], Awaitable[Payer]],
        prices: Prices,
    ) -> None:
        """`start` starts a run as the engine does, within the limits of its owner and its payer."""
        self.documents = Documents(store, KIND, Batch, now=engine.now)
        self._store = store
        self._engine = engine
        self._keys = IdempotencyKeys(store, KEYS, now=engine.now)
        self.jobs: Jobs[Batch, BatchWork] = Jobs(
            KIND, self.documents, engine.holds, is_open=_is_open, resume=self._resume
        )
        self._retry = self.jobs.retry
        self._start = start
        self._payer_now = payer_now
        self._prices = prices
        self._patterns = Patterns()
        self.pattern_check = PatternCheck()

    async def _resume(self, stored: Stored[Batch]) -> None:
        """Continue a batch that another node has left: its answers, or its deletion."""
        if stored.body.state == "running":
            self._work_on(stored)
        else:
            self.jobs.tasks.start(self._erase(stored.id, stored.body.key))

    async def close(self) -> None:
        """End the process that matches patterns."""
        await self._patterns.close()

    # operations

    async def repeated(self, key: Idempotency) -> Stored[Batch] | None:
        """Return the batch that a key has made, whatever its caller may use now; None if there is none."""
        batch_id = await self._keys.find(key)
        known = None if batch_id is None else await self.documents.get(batch_id)
        return None if known is None or is_hidden(known.body) else known

    async def create(
        self, owner: str, batch: Batch, prompts: Sequence[BatchPrompt], key: Idempotency | None = None
    ) -> Stored[Batch]:
        """Store a batch with its prompts, then begin. A partly stored batch is erased at the next start.

        A repeated key returns the batch that it made the first time.
        """
        if key is None:
            return await self._create(new_id("bat"), owner, batch, prompts)
        key_id = self._keys.id_of(key)
        async with self.jobs.lock(key_id):  # concurrent requests with one key make one batch
            batch_id = await self._keys.claim(key, new_id("bat"))
            known = await self.documents.get(batch_id)
            if known is not None and known.body.state == "deleting":
                await self._forget_key(key_id, batch_id)
                batch_id, known = await self._keys.claim(key, new_id("bat")), None
            if known is not None and known.body.state != "making":
                return known
            if not await self.jobs.take(batch_id):
                return await self._made_elsewhere(batch_id)
            await self._erase_parts(batch_id)  # of an attempt that was not acknowledged
            return await self._create(batch_id, owner, msgspec.structs.replace(batch, key=key_id), prompts)

    async def _made_elsewhere(self, id: str) -> Stored[Batch]:
        """Wait for a batch that another node is making for the same key."""

        async def made() -> Stored[Batch] | None:
            stored = await self.documents.get(id)
            return None if stored is None or is_hidden(stored.body) else stored

        if (found := await self.jobs.made_elsewhere(id, made)) is None:
            raise BatchHalfMade
        return found

    async def _create(self, id: str, owner: str, batch: Batch, prompts: Sequence[BatchPrompt]) -> Stored[Batch]:
        async with self.jobs.beginning(id) as is_taken:
            if not is_taken:
                raise ShuttingDown
            stored = await self._made(id, owner, batch, prompts)
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

        async with self.jobs.lock(stored.id):
            stored = await self._change(stored.id, stopped)
            if stored.body.state == "stopped":
                await self._end_work(stored.id)
            return await self._change(stored.id, lambda batch: batch)

    async def _end_work(self, id: str) -> None:
        """Wait for the end of the work on a batch that is no longer running, here or on another node."""
        if (work := self.jobs.of(id)) is not None:
            await work.stop()
            return
        await self.jobs.ended_elsewhere(id)

    async def stop_of_keys(self, keys: Container[str]) -> None:
        """Stop the batches here that were begun with one of these API keys."""
        for work in [work for work in self.jobs.all_of() if work.batch.payer.key in keys]:
            if (stored := await self.documents.get(work.id)) is not None:
                await self.stop(stored)

    async def resume(self, stored: Stored[Batch], payer: Payer, *, failed: bool) -> Stored[Batch]:
        """Resume a batch, for who pays for the rest; with `failed`, failed cells are repeated too."""
        now = self._engine.now()

        def going_on(batch: Batch) -> Batch:
            if batch.state == "running" or (batch.state == "finished" and not (failed and batch.failed)):
                return batch
            again_at = now if failed else batch.again_at
            counts = {"done": None, "failed": None}
            resumed = {"rounds": batch.rounds + 1, "again_at": again_at, "settled_at": None, "payer": payer}
            return _in_state(batch, "running", **resumed, **counts)

        async with self.jobs.lock(stored.id):
            stored = await self._change(stored.id, going_on)
            if stored.body.state == "running":
                self.jobs.tasks.start(self._work_when_free(stored))
            return stored

    async def _work_when_free(self, stored: Stored[Batch]) -> None:
        """Work on a batch as soon as no other node holds it. The other node may continue it instead."""
        now: Stored[Batch] | None = stored
        while now is not None and now.body.state == "running" and not self._engine.closing:
            if await self._retry(lambda: self.jobs.take(stored.id)):
                self._work_on(now)
                return
            await asyncio.sleep(LOOK_EVERY)
            now = await self._retry(lambda: self.documents.get(stored.id))

    async def delete(self, stored: Stored[Batch]) -> None:
        """Stop a batch and delete it. It is hidden at once; its cells are deleted in the background."""
        async with self.jobs.lock(stored.id):
            stored = await self._change(stored.id, lambda batch: _in_state(batch, "deleting"))
            if (work := self.jobs.of(stored.id)) is not None:
                await work.stop()  # the end of the work erases it
            elif await self.jobs.take(stored.id):
                self.jobs.tasks.start(self._erase(stored.id, stored.body.key))
            else:
                await self.jobs.tell(stored.id)  # the node that holds it erases it

    async def _erase(self, batch_id: str, key_id: str) -> None:
        """Erase a batch that is being deleted or was partly stored, unless its key has begun it again."""
        async with self.jobs.lock(key_id or batch_id):
            stored = await self._retry(lambda: self.documents.get(batch_id))
            if stored is None or not is_hidden(stored.body) or self.jobs.is_beginning(batch_id):
                return
            if key_id:
                await self._forget_key(key_id, batch_id)
        await self._erase_parts(batch_id)
        await self.jobs.let_go(batch_id)

    async def forget_old_keys(self, before: float) -> None:
        """Forget the idempotency keys that were used before a time."""
        await self._keys.forget_old(before)

    async def _forget_key(self, key_id: str, batch_id: str) -> None:
        """Delete the key of this batch. A key that stands for another batch is kept."""
        await self._retry(lambda: self._keys.forget(key_id, batch_id))

    async def _erase_parts(self, batch_id: str) -> None:
        await self._erase_runs(batch_id)
        await self._erase_all(self.cell_documents(batch_id))
        await self._erase_all(self._prompt_pages(batch_id))
        await self._retry(lambda: self.documents.delete(batch_id))

    async def _erase_runs(self, batch_id: str) -> None:
        """Delete the runs of agents, which are stored."""
        stored = await self._retry(lambda: self.documents.get(batch_id))
        agents = set() if stored is None else {n for n, model in enumerate(stored.body.models) if _is_agent(model)}
        if agents:
            async for cell in self.cells(batch_id):
                if cell.model in agents and cell.run_id:
                    await self._retry(partial(self._store.delete_run, cell.run_id))

    async def _erase_all(self, documents: Documents[Any]) -> None:
        while page := await self._retry(documents.page):
            await asyncio.gather(*(self._retry(partial(documents.delete, stored.id)) for stored in page))

    # reading

    def work(self, batch_id: str) -> BatchWork | None:
        """Return the work on a batch, if it is running."""
        return self.jobs.of(batch_id)

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
            return work.progress
        done, failed = batch.done, batch.failed
        if done is None or failed is None:
            outcomes = [cell.outcome async for cell in self.cells(stored.id)]
            done, failed = len(outcomes), sum(each in UNANSWERED for each in outcomes)
        running = batch.progress.get("running", 0) if batch.state == "running" else 0
        return {"total": batch.total, "done": done, "failed": failed, "running": min(running, batch.total - done)}

    # changing

    async def _change(self, batch_id: str, change: Callable[[Batch], Batch]) -> Stored[Batch]:
        """Change a batch by compare-and-set: its work may change it too."""

        def changed(batch: Batch) -> Batch:
            if is_hidden(batch):  # deleted while the caller waited
                raise BatchNotFound(batch_id)
            return change(batch)

        stored = await self.documents.change(batch_id, changed)
        if stored is None:
            raise BatchNotFound(batch_id)
        return stored

    # working

    def _work_on(self, stored: Stored[Batch]) -> None:
        look_every = LOOK_EVERY if self._engine.is_alone else TELL_EVERY
        self.jobs.begin(BatchWork(stored, self._work, self._take_changes, look_every))

    async def _work(self, work: BatchWork) -> None:
        """Answer the open cells, then store the end."""
        try:
            await work.begin(await self.prompts(work.id), self.cell_documents(work.id).all(retry=self._retry))
            asking = [self._ask_on(work) for _ in range(work.batch.concurrency)]
            ended = await asyncio.gather(*asking, return_exceptions=True)  # an error of one does not cancel the others
            for error in filter(None, ended):
                raise error
            await self._retry(lambda: self._finish(work))
            if not work.is_lost:
                await self._leave(work)
        except Exception:
            logger.exception("batch %s failed; it resumes at the next start", work.id)

    async def _take_changes(self, work: BatchWork) -> None:
        """Stop the work if the batch was stopped or deleted through another node. Store the progress for others."""
        stored = await self._retry(lambda: self.documents.get(work.id))
        if stored is None or stored.body.state != "running":
            self.jobs.tasks.start(work.stop())
        elif not self._engine.is_alone and work.ready.is_set() and stored.body.progress != work.progress:
            await self._retry(lambda: self._note_progress(work))

    async def _note_progress(self, work: BatchWork) -> None:
        await self.documents.change(
            work.id,
            lambda batch: msgspec.structs.replace(batch, progress=work.progress) if batch.state == "running" else batch,
        )

    async def _leave(self, work: BatchWork) -> None:
        """Release the hold of a batch that has ended. One that is still `running` is left to the next process."""
        stored = await self._retry(lambda: self.documents.get(work.id))
        if stored is not None and is_hidden(stored.body):
            self.jobs.tasks.start(self._erase(work.id, stored.body.key))
        elif stored is None or stored.body.state != "running":
            await self.jobs.let_go(work.id)

    async def _finish(self, work: BatchWork) -> None:
        """Store the counts of a batch that has ended, and the state `finished` unless it was stopped before."""

        def ended(batch: Batch) -> Batch:
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
        run = await self._begin(work, prompt, model)
        if run is None:
            return
        if isinstance(run, HoldfastError):
            error = {**native.error(run.info())}
            refused = Cell(prompt=prompt, model=model, outcome="failed", error=error, settled_at=self._engine.now())
            return await self._keep(work, refused)
        is_found = run.settlement is not None  # the run of an agent, which a node that is gone has begun
        with work.asking(run):
            settled = await run.settled()
        if isinstance(settled, Stopped) and not is_found and (settled.by == "shutdown" or work.is_stopping):
            if run.kept and settled.by != "shutdown":
                await self._retry(partial(self._store.delete_run, run.id))
            return  # its answer is incomplete: the cell stays open
        _, seen = await run.log.snapshot()
        cell = _cell(prompt, model, run, settled, seen.reasoning, self._engine.now())
        price = self._prices.of(work.batch.models[model])
        cell = await self._judged(work, msgspec.structs.replace(cell, cost=cost(price, settled.usage)))
        await self._keep(work, cell)

    async def _begin(self, work: BatchWork, prompt: int, model: int) -> Run | HoldfastError | None:
        """Start the run of a cell, as soon as there is room for it. Return the error if it may not start."""
        key = _key(work, prompt, model)
        while not work.is_stopping:
            try:
                if key is not None and (known := await self._engine.repeated(key)) is not None:
                    return known
                record = RunRecord(
                    id=new_id("run"),
                    owner=work.owner,
                    model=work.batch.models[model],
                    kind="batch",
                    ask=ChatAsk(messages=_messages(work, prompt), params=work.batch.params),
                    payer=await self._payer_now(work.batch.payer),
                )
                how = {"keep": key is not None, "idempotency": key, "deadline": work.batch.timeout}
                return await self._start(record, **how)
            except ShuttingDown:
                raise
            except HoldfastError as error:
                if error.status not in (429, 503):
                    return error
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
        try:
            await self._retry(put)
        except StaleDocument:  # another node had the batch meanwhile, and has stored this answer
            logger.warning("batch %s: a cell was answered on another node, too", work.id)
        work.count(cell)


def _is_open(batch: Batch) -> bool:
    return batch.state == "running" or is_hidden(batch)


def is_hidden(batch: Batch) -> bool:
    """Return whether a batch is invisible: not complete yet, or being deleted."""
    return batch.state in ("making", "deleting")


def _in_state(batch: Batch, state: State, **changes: Any) -> Batch:
    return msgspec.structs.replace(batch, state=state, **changes)


def _is_agent(model: ModelName) -> bool:
    return model.partition("/")[0] == AGENT


def _key(work: BatchWork, prompt: int, model: int) -> Idempotency | None:
    """Return the key of the run of an agent: after a crash it is found again, since its tools may have run."""
    if not _is_agent(work.batch.models[model]):
        return None
    return Idempotency(work.owner, f"batch\n{cell_id(work.id, prompt, model)}:{work.batch.rounds}", "")


def _messages(work: BatchWork, prompt: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": work.prompts[prompt].prompt}]
    return [{"role": "system", "content": work.batch.system}, *messages] if work.batch.system else messages


def _cell(prompt: int, model: int, run: Run, settled: Settlement, reasoning: str, now: float) -> Cell:
    figures = figures_of(run.measured, settled.usage)
    return Cell(
        prompt=prompt,
        model=model,
        run_id=run.id,
        outcome=settled.outcome,
        text=settled.text,
        reasoning=reasoning,
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
