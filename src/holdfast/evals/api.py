"""`/api/batches`: a set of prompts over several models, answered in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ..access import BATCHES, READ
from ..errors import BadRequest
from ..ids import ModelName
from ..server.features.budgets.budgets import Budgets
from ..server.features.sessions.session_input import check_prompt
from ..server.kit.caller import access_of, owner_of
from ..server.kit.csv_responses import csv_answer, wants_csv
from ..server.kit.feature import Endpoint, Feature
from ..server.kit.http.errors import Json, NoContent, json_of
from ..server.kit.request import Bodies, System, check_params, decode, idempotency, whole_number
from ..server.kit.streams import Streams
from ..server.sources.models import AllowedModels
from ..server.starting.starting import CheckFiles
from ..store.documents import Stored
from ..wires import native, sse
from .model import MOST_AT_ONCE, MOST_MODELS, MOST_PROMPTS, Batch, BatchPrompt, BatchReport, Cell, Match, last_number
from .patterns import LONGEST_PATTERN
from .runner import BatchNotFound, BatchRunner, is_hidden
from .work import BatchWork

OFTEN = 0.2
"""Minimum seconds between two frames of progress."""


class NewBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A set of prompts, and the models that answer them."""

    models: list[str]
    prompts: list[BatchPrompt]
    name: str = ""
    system: System | None = None
    params: dict[str, Any] = {}
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=MOST_AT_ONCE)] = 4
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    match: Match = "contains"


class Resumption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a resume."""

    failed: bool = False
    """Repeat failed cells too."""


class _Progress:
    """One reader of a batch's progress. A slow reader misses steps, never the end."""

    def __init__(self, batches: BatchRunner, stored: Stored[Batch]) -> None:
        self._batches = batches
        self._id = stored.id
        self._work: BatchWork | None = None
        self._sent = 0
        self._last_progress: dict[str, int] | None = None
        self._free_at = 0.0
        self._wake: Callable[[], None] = lambda: None
        self._unwatch: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self.is_over = False

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever the progress changes."""
        self._wake = wake

        def stop() -> None:
            self._unwatch()
            if self._timer is not None:
                self._timer.cancel()

        return stop

    async def next(self) -> bytes:
        """Return the progress if it has changed, at most every `OFTEN` seconds; then the end."""
        if self.is_over:
            return b""
        if (work := self._current_work()) is not None:
            return await self._progress(work)
        stored = await self._batches.documents.get(self._id)
        if stored is not None and stored.body.state == "running":
            self._wake_at(asyncio.get_running_loop().time() + OFTEN)  # another node has it, or it is about to start
            return self._frame_if_new(stored.body.progress)
        self.is_over = True
        if stored is None:
            return b""
        return self._frame(b"batch.settled", {"batch": await batch_json(self._batches, stored)})

    def _current_work(self) -> BatchWork | None:
        """Return the current work on the batch, and watch it."""
        work = self._batches.work(self._id)
        if work is not self._work:
            self._unwatch()
            self._work = work
            self._unwatch = work.watch(self._wake) if work is not None else lambda: None
        return work

    async def _progress(self, work: BatchWork) -> bytes:
        await work.ready.wait()
        return self._frame_if_new(work.progress)

    def _frame_if_new(self, progress: dict[str, int]) -> bytes:
        """Return a frame if the progress is known and has changed, at most every `OFTEN` seconds."""
        loop = asyncio.get_running_loop()
        if not progress or progress == self._last_progress:
            return b""
        if loop.time() < self._free_at:
            self._wake_at(self._free_at)
            return b""
        self._last_progress, self._free_at = progress, loop.time() + OFTEN
        return self._frame(b"batch.progress", {"batch": self._id, "progress": progress})

    def _wake_at(self, moment: float) -> None:
        self._timer = self._timer or asyncio.get_running_loop().call_at(moment, self._wake_now)

    def _wake_now(self) -> None:
        self._timer = None
        self._wake()

    def _frame(self, event: bytes, data: dict[str, Any]) -> bytes:
        self._sent += 1
        return sse.frame(str(self._sent).encode(), event, msgspec.json.encode(data))


class BatchesApi(Feature):
    """Batches: their cells, progress and reports."""

    def __init__(
        self,
        bodies: Bodies,
        streams: Streams,
        models: AllowedModels,
        budgets: Budgets,
        batches: BatchRunner,
        check_files: CheckFiles,
    ) -> None:
        self._bodies, self._streams, self._models = bodies, streams, models
        self._budgets, self._batches, self._check_files = budgets, batches, check_files

    async def own_batch(self, request: Request) -> Stored[Batch]:
        """Return the batch of the path. That of another owner is not found."""
        batch_id = request.path_params["batch_id"]
        stored = await self._batches.documents.get(batch_id, owner=owner_of(request))
        if stored is None or is_hidden(stored.body):
            raise BatchNotFound(batch_id)
        return stored

    @Endpoint(
        "POST",
        "/api/batches",
        who=BATCHES,
        takes=NewBatch,
        answers={202: "the batch", 404: "no such model", 409: "the key was used for another request"},
    )
    async def create_batch(self, request: Request) -> ASGIApp:
        """Send a set of prompts to several models, in the background. Returns at once."""
        raw = await self._bodies.read(request)
        new, key = decode(raw, NewBatch), idempotency(request, raw)
        if key is not None and (known := await self._batches.repeated(key)) is not None:
            return await self._created(known)
        check_params(new.params)
        models, payer = await self._named_models(request, new.models), self._budgets.payer(request)
        await self._budgets.require_prices(payer, models)
        await self._check_prompts(new)
        batch = Batch(
            name=new.name,
            models=models,
            prompts=len(new.prompts),
            system=new.system,
            params=new.params,
            concurrency=new.concurrency,
            timeout=new.timeout,
            match=new.match,
            payer=payer,
        )
        return await self._created(await self._batches.create(owner_of(request), batch, new.prompts, key))

    async def _created(self, stored: Stored[Batch]) -> ASGIApp:
        headers = {"location": f"/api/batches/{stored.id}"}
        return Json(await batch_json(self._batches, stored), status_code=202, headers=headers)

    async def _named_models(self, request: Request, names: list[str]) -> tuple[ModelName, ...]:
        """Return the full names of the models, or refuse them."""
        if not 1 <= len(names) <= MOST_MODELS:
            raise BadRequest(f"models names 1 to {MOST_MODELS} models.", param="models")
        providers = self._models.providers(access_of(request))
        full = tuple([(await providers.find(name)).name for name in names])
        if len(set(full)) < len(full):
            raise BadRequest("Each model may be named once.", param="models")
        return full

    async def _check_prompts(self, new: NewBatch) -> None:
        if not 1 <= len(new.prompts) <= MOST_PROMPTS:
            raise BadRequest(f"prompts has 1 to {MOST_PROMPTS} prompts.", param="prompts")
        for number, each in enumerate(new.prompts):
            await check_prompt(each.prompt, f"prompts[{number}].prompt", self._check_files)
            _check_expected(each, new.match, f"prompts[{number}].expected")
            if len(each.kind) > 64 or len(each.id) > 256:
                raise BadRequest("A kind has at most 64 characters, an id 256.", param=f"prompts[{number}]")
        if new.match == "regex":
            await self._check_patterns([str(each.expected or "") for each in new.prompts])

    async def _check_patterns(self, patterns: list[str]) -> None:
        for number, pattern in enumerate(patterns):
            if len(pattern) > LONGEST_PATTERN:
                param = f"prompts[{number}].expected"
                raise BadRequest(f"A pattern has at most {LONGEST_PATTERN:,} characters.", param=param)
        if (fault := await self._batches.pattern_check.fault(patterns)) is not None:
            param = "prompts" if fault.number is None else f"prompts[{fault.number}].expected"
            raise BadRequest(fault.message, param=param)

    @Endpoint("GET", "/api/batches", who=READ, query={"limit": "1 to 200", "before": "the last id of the page before"})
    async def list_batches(self, request: Request) -> ASGIApp:
        """List batches, the newest first."""
        limit = whole_number(request, "limit", 50, 200)
        found: list[Stored[Batch]] = []
        owner, before = owner_of(request), request.query_params.get("before")
        while len(found) <= limit and (
            page := await self._batches.documents.page(owner=owner, before=before, limit=limit + 1)
        ):
            found += [each for each in page if not is_hidden(each.body)]
            before = page[-1].id
        data = [_listed(await batch_json(self._batches, stored)) for stored in found[:limit]]
        return json_of({"data": data, "has_more": len(found) > limit})

    @Endpoint("GET", "/api/batches/{batch_id}", who=READ)
    async def get_batch(self, request: Request) -> ASGIApp:
        """Return a batch with its progress."""
        return Json(await batch_json(self._batches, await self.own_batch(request)))

    @Endpoint("POST", "/api/batches/{batch_id}/stop", who=BATCHES, stores=False)
    async def stop_batch(self, request: Request) -> ASGIApp:
        """Stop a batch. Answers are kept; cells in progress stay open."""
        stored = await self._batches.stop(await self.own_batch(request))
        return Json(await batch_json(self._batches, stored))

    @Endpoint("POST", "/api/batches/{batch_id}/resume", who=BATCHES, takes=Resumption)
    async def resume_batch(self, request: Request) -> ASGIApp:
        """Resume a stopped batch; answered cells are not repeated."""
        stored = await self.own_batch(request)
        body = await self._bodies.read(request)
        how = decode(body, Resumption) if body.strip() else Resumption()
        resumed = await self._batches.resume(stored, self._budgets.payer(request), failed=how.failed)
        return Json(await batch_json(self._batches, resumed))

    @Endpoint("DELETE", "/api/batches/{batch_id}", who=BATCHES, audit="batch.delete")
    async def delete_batch(self, request: Request) -> ASGIApp:
        """Stop a batch and delete it with all its answers."""
        await self._batches.delete(await self.own_batch(request))
        return NoContent()

    # Results.

    @Endpoint(
        "GET",
        "/api/batches/{batch_id}/report",
        who=READ,
        query={"format": "json or csv", "kind": "only prompts of this kind"},
    )
    async def batch_report(self, request: Request) -> ASGIApp:
        """Return the figures of each model so far."""
        stored = await self.own_batch(request)
        as_table, kind = wants_csv(request), request.query_params.get("kind")
        prompts = await self._batches.prompts(stored.id)
        if len(prompts) != stored.body.prompts:
            raise BatchNotFound(stored.id)  # it was deleted while we read
        report = BatchReport(stored.body.models, prompts)
        async for cell in self._batches.cells(stored.id):
            if kind is None or prompts[cell.prompt].kind == kind:
                report.add(cell)
        if as_table:
            return csv_answer(report.models(), f"{stored.id}.csv")
        return Json({"batch": await batch_json(self._batches, stored), "models": report.models()})

    @Endpoint(
        "GET",
        "/api/batches/{batch_id}/cells",
        who=READ,
        query={"limit": "1 to 1000", "before": "the last id of the page before"},
    )
    async def list_cells(self, request: Request) -> ASGIApp:
        """List the answers of a batch, the last first, each with its prompt."""
        stored = await self.own_batch(request)
        limit = whole_number(request, "limit", 100, 1000)
        kept = self._batches.cell_documents(stored.id)
        page = await kept.page(before=request.query_params.get("before"), limit=limit)
        cells = {each.id: each.body for each in page}
        prompts = await self._batches.prompts_named(stored.id, (cell.prompt for cell in cells.values()))
        if not all(cell.prompt in prompts for cell in cells.values()):
            raise BatchNotFound(stored.id)  # it was deleted while we read
        data = [_cell_json(id, cell, prompts[cell.prompt], stored.body.models) for id, cell in cells.items()]
        more = page and await kept.page(before=page[-1].id, limit=1)
        return json_of({"data": data, "has_more": bool(more)})

    @Endpoint("GET", "/api/batches/{batch_id}/events", who=READ, streams=True)
    async def batch_events(self, request: Request) -> ASGIApp:
        """Send the progress of a batch as it changes, until the batch ends."""
        stored = await self.own_batch(request)
        return self._streams.stream(_Progress(self._batches, stored), farewell=sse.farewell(1000))


async def batch_json(batches: BatchRunner, stored: Stored[Batch]) -> dict[str, Any]:
    """Return a batch as JSON."""
    batch = stored.body
    return {
        "id": stored.id,
        "name": batch.name,
        "status": batch.state,
        "models": batch.models,
        "prompts": batch.prompts,
        "system": batch.system,
        "params": batch.params,
        "concurrency": batch.concurrency,
        "timeout": batch.timeout,
        "match": batch.match,
        "created_at": native.moment(stored.created_at),
        "settled_at": native.moment(batch.settled_at),
        "progress": await batches.counts(stored),
    }


def _check_expected(each: BatchPrompt, match: Match, param: str) -> None:
    """Refuse an expected answer that would match every answer, or none."""
    if each.expected is None:
        return
    if match == "number" and last_number(str(each.expected)) is None:
        raise BadRequest("It has no number, so no answer could be right.", param=param)
    if match != "exact" and not str(each.expected).strip():
        raise BadRequest("It is empty, so every answer would be right. Leave it out.", param=param)


def _listed(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch as a list shows it: without its system prompt and its parameters."""
    return {name: value for name, value in batch.items() if name not in ("system", "params")}


def _cell_json(id: str, cell: Cell, prompt: BatchPrompt, models: tuple[str, ...]) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(cell),
        "id": id,
        "number": cell.prompt + 1,
        "prompt": prompt.prompt,
        "prompt_id": prompt.id or str(cell.prompt + 1),
        "expected": prompt.expected,
        "kind": prompt.kind,
        "model": models[cell.model],
        "settled_at": native.moment(cell.settled_at),
    }
