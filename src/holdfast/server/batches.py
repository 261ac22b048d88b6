"""Batches: a set of prompts over several models, asked in the background, kept answer by answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..asgi import EventStream
from ..batches import MOST_AT_ONCE, MOST_MODELS, MOST_PROMPTS, Batch, Cell, Match, Prompt, Report, last_number
from ..errors import BadRequest
from ..store import Document
from ..wire import native, sse
from .batch_runner import KIND, BatchNotFound, Work, batch_in, cell_in, cells_of, is_hidden
from .context import Endpoint, Parts, check_params, decode, idempotency, owner_of, read_body, whole_number
from .errors import Json
from .sessions import user_message
from .tables import csv_answer, wants_csv

OFTEN = 0.2
"""Seconds between two frames of progress."""


class NewBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A set of prompts, and who is to answer them."""

    models: list[str]
    prompts: list[Prompt]
    name: str = ""
    system: str | None = None
    params: dict[str, Any] = {}
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=MOST_AT_ONCE)] = 4
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    match: Match = "contains"


class Resumption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to go on."""

    failed: bool = False
    """Ask again what had failed, too."""


async def own_batch(parts: Parts, request: Request) -> Document:
    """Return the batch that the path names. Another owner's is not there."""
    batch_id = request.path_params["batch_id"]
    document = await parts.store.get_document(KIND, batch_id)
    if document is None or document.owner != owner_of(request) or is_hidden(batch_in(document)):
        raise BatchNotFound(batch_id)
    return document


async def shown(parts: Parts, document: Document) -> dict[str, Any]:
    """Return a batch as JSON."""
    batch = batch_in(document)
    return {
        "id": document.id,
        "name": batch.name,
        "status": batch.state,
        "models": batch.models,
        "prompts": batch.prompts,
        "system": batch.system,
        "params": batch.params,
        "concurrency": batch.concurrency,
        "timeout": batch.timeout,
        "match": batch.match,
        "created_at": native.moment(document.created_at),
        "settled_at": native.moment(batch.settled_at),
        "progress": await parts.batches.counts(document),
    }


async def create_batch(parts: Parts, request: Request) -> Response:
    """Ask a set of prompts of several models, in the background. Answers at once."""
    raw = await read_body(parts, request)
    new, key = decode(raw, NewBatch), idempotency(request, raw)
    check_params(new.params)
    models = await _models(parts, new.models)
    await _check_prompts(new)
    batch = Batch(
        name=new.name,
        models=models,
        prompts=len(new.prompts),
        system=new.system,
        params=new.params,
        concurrency=new.concurrency,
        timeout=new.timeout,
        match=new.match,
    )
    document = await parts.batches.create(owner_of(request), batch, new.prompts, key)
    headers = {"location": f"/api/batches/{document.id}"}
    return Json(await shown(parts, document), status_code=202, headers=headers)


async def _models(parts: Parts, names: list[str]) -> tuple[str, ...]:
    """Return the full names of the models, or refuse them."""
    if not 1 <= len(names) <= MOST_MODELS:
        raise BadRequest(f"models names 1 to {MOST_MODELS} models.", param="models")
    found = [await parts.providers.find(name) for name in names]
    full = tuple(f"{provider.name}/{model}" for provider, model in found)
    for name in full:
        parts.agents.require_model(name, "a batch")
    if len(set(full)) < len(full):
        raise BadRequest("Each model may be named once.", param="models")
    return full


async def _check_prompts(new: NewBatch) -> None:
    if not 1 <= len(new.prompts) <= MOST_PROMPTS:
        raise BadRequest(f"prompts has 1 to {MOST_PROMPTS} prompts.", param="prompts")
    for number, each in enumerate(new.prompts):
        user_message(each.prompt, param=f"prompts[{number}].prompt")
        _check_expected(each, new.match, f"prompts[{number}].expected")
        if len(each.kind) > 64 or len(each.id) > 256:
            raise BadRequest("A kind has at most 64 characters, an id 256.", param=f"prompts[{number}]")
    if new.match == "regex":
        await asyncio.to_thread(_check_patterns, new.prompts)


def _check_expected(each: Prompt, match: Match, param: str) -> None:
    """Refuse what every answer would be, or none could be: a share of right answers would say nothing."""
    if each.expected is None:
        return
    if match == "number" and last_number(str(each.expected)) is None:
        raise BadRequest("There is no number in it, so that no answer could be right.", param=param)
    if match != "exact" and not str(each.expected).strip():
        raise BadRequest("It is empty, so that every answer would be right. Leave it out.", param=param)


def _check_patterns(prompts: list[Prompt]) -> None:
    for number, each in enumerate(prompts):
        try:
            re.compile(str(each.expected or ""))
        except (re.error, RecursionError, OverflowError) as error:
            raise BadRequest(f"This is no pattern: {error}.", param=f"prompts[{number}].expected") from None


async def list_batches(parts: Parts, request: Request) -> Response:
    """List batches, the newest first."""
    limit = whole_number(request, "limit", 50, 200)
    found: list[Document] = []
    before = request.query_params.get("before")
    while len(found) <= limit and (
        page := await parts.store.list_documents(KIND, owner_of(request), before=before, limit=limit + 1)
    ):
        found += [each for each in page if not is_hidden(batch_in(each))]
        before = page[-1].id
    data = [await shown(parts, document) for document in found[:limit]]
    return Json({"data": data, "has_more": len(found) > limit})


async def get_batch(parts: Parts, request: Request) -> Response:
    """Return a batch with its progress."""
    return Json(await shown(parts, await own_batch(parts, request)))


async def stop_batch(parts: Parts, request: Request) -> Response:
    """Stop a batch. What is answered is kept, what is being asked stays open."""
    document = await parts.batches.stop(await own_batch(parts, request))
    return Json(await shown(parts, document))


async def resume_batch(parts: Parts, request: Request) -> Response:
    """Go on with a batch that was stopped; what is answered is not asked again."""
    document = await own_batch(parts, request)
    body = await read_body(parts, request)
    how = decode(body, Resumption) if body.strip() else Resumption()
    return Json(await shown(parts, await parts.batches.resume(document, failed=how.failed)))


async def delete_batch(parts: Parts, request: Request) -> Response:
    """Stop a batch and delete it with all its answers."""
    await parts.batches.delete(await own_batch(parts, request))
    return Response(status_code=204)


# What came of it.


async def batch_report(parts: Parts, request: Request) -> Response:
    """Return what there is to say of each model so far."""
    document = await own_batch(parts, request)
    as_table, kind = wants_csv(request), request.query_params.get("kind")
    prompts = await parts.batches.prompts(document.id)
    if len(prompts) != batch_in(document).prompts:
        raise BatchNotFound(document.id)  # it was deleted while we read
    report = Report(batch_in(document).models, prompts)
    async for cell in parts.batches.cells(document.id):
        if kind is None or prompts[cell.prompt].kind == kind:
            report.add(cell)
    if as_table:
        return csv_answer(report.models(), f"{document.id}.csv")
    return Json({"batch": await shown(parts, document), "models": report.models()})


async def list_cells(parts: Parts, request: Request) -> Response:
    """List the answers of a batch, the last first, each with its prompt."""
    document = await own_batch(parts, request)
    limit = whole_number(request, "limit", 100, 1000)
    before = request.query_params.get("before")
    kind = cells_of(document.id)
    page = await parts.store.list_documents(kind, document.owner, before=before, limit=limit + 1)
    cells = {each.id: cell_in(each) for each in page[:limit]}
    prompts = await parts.batches.prompts_named(document.id, (cell.prompt for cell in cells.values()))
    if not all(cell.prompt in prompts for cell in cells.values()):
        raise BatchNotFound(document.id)  # it was deleted while we read
    data = [_told(id, cell, prompts[cell.prompt], batch_in(document).models) for id, cell in cells.items()]
    return Json({"data": data, "has_more": len(page) > limit})


def _told(id: str, cell: Cell, asked: Prompt, models: tuple[str, ...]) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(cell),
        "id": id,
        "number": cell.prompt + 1,
        "prompt": asked.prompt,
        "prompt_id": asked.id or str(cell.prompt + 1),
        "expected": asked.expected,
        "kind": asked.kind,
        "model": models[cell.model],
        "settled_at": native.moment(cell.settled_at),
    }


async def batch_events(parts: Parts, request: Request) -> Response:
    """Send the progress of a batch as it changes, and end when the batch has."""
    document = await own_batch(parts, request)
    return EventStream(
        _Progress(parts, document),
        parts.closing,
        farewell=sse.farewell(1000),
        heartbeat=parts.settings.heartbeat,
        send_timeout=parts.settings.send_timeout,
    )


class _Progress:
    """One reader of a batch's progress. Who reads slowly misses steps, never the end."""

    def __init__(self, parts: Parts, document: Document) -> None:
        self._parts = parts
        self._id = document.id
        self._work: Work | None = None
        self._sent = 0
        self._told: dict[str, int] | None = None
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
        """Return the progress where it has changed, and not too often; then how it ended."""
        if self.is_over:
            return b""
        if (work := self._found()) is not None:
            return await self._progress(work)
        document = await self._parts.store.get_document(KIND, self._id)
        if document is not None and batch_in(document).state == "running":
            self._look_at(asyncio.get_running_loop().time() + OFTEN)  # it is about to be taken up
            return b""
        self.is_over = True
        if document is None:
            return b""
        return self._frame(b"batch.settled", {"batch": await shown(self._parts, document)})

    def _found(self) -> Work | None:
        """Return what goes on for the batch, and watch it from now on."""
        work = self._parts.batches.work(self._id)
        if work is not self._work:
            self._unwatch()
            self._work = work
            self._unwatch = work.watch(self._wake) if work is not None else lambda: None
        return work

    async def _progress(self, work: Work) -> bytes:
        loop = asyncio.get_running_loop()
        await work.ready.wait()
        told = {"total": work.batch.total, "done": work.done, "failed": work.failed, "running": work.running}
        if told == self._told:
            return b""
        if loop.time() < self._free_at:
            self._look_at(self._free_at)
            return b""
        self._told, self._free_at = told, loop.time() + OFTEN
        return self._frame(b"batch.progress", {"batch": self._id, "progress": told})

    def _look_at(self, moment: float) -> None:
        self._timer = self._timer or asyncio.get_running_loop().call_at(moment, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._wake()

    def _frame(self, event: bytes, told: dict[str, Any]) -> bytes:
        self._sent += 1
        return sse.frame(str(self._sent).encode(), event, msgspec.json.encode(told))


_GONE = {404: "no such batch"}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/batches",
        create_batch,
        takes=NewBatch,
        answers={
            202: "the batch",
            400: "bad input",
            404: "no such model",
            409: "the key was used for another request",
            413: "too large",
        },
    ),
    Endpoint(
        "GET",
        "/api/batches",
        list_batches,
        query={"limit": "1 to 200", "before": "the last id of the page before"},
        answers={200: "batches, and whether there are more", 400: "a bad query"},
    ),
    Endpoint("GET", "/api/batches/{batch_id}", get_batch, answers={200: "the batch", **_GONE}),
    Endpoint(
        "GET",
        "/api/batches/{batch_id}/events",
        batch_events,
        answers={200: "its progress, to its end", **_GONE},
        streams=True,
    ),
    Endpoint(
        "GET",
        "/api/batches/{batch_id}/report",
        batch_report,
        query={"format": "json or csv", "kind": "only prompts of this kind"},
        answers={200: "what each model did", 400: "a bad query", **_GONE},
    ),
    Endpoint(
        "GET",
        "/api/batches/{batch_id}/cells",
        list_cells,
        query={"limit": "1 to 1000", "before": "the last id of the page before"},
        answers={200: "answers, and whether there are more", 400: "a bad query", **_GONE},
    ),
    Endpoint("POST", "/api/batches/{batch_id}/stop", stop_batch, answers={200: "the batch", **_GONE}),
    Endpoint(
        "POST",
        "/api/batches/{batch_id}/resume",
        resume_batch,
        takes=Resumption,
        answers={200: "the batch", 400: "bad input", 413: "too large", **_GONE},
    ),
    Endpoint("DELETE", "/api/batches/{batch_id}", delete_batch, answers={204: "deleted", **_GONE}),
]
