"""Names that clients give to runs: the newest run under a name is meant, and it replaces the one before.

A name is a document that says which run has it. It is changed by compare-and-set once a run has started: of two that
start at once, the one that takes the name later replaces the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from msgspec.structs import replace
from starlette.requests import Request

from ..errors import BadRequest, HoldfastError, RunNotFound, StaleDocument
from ..run import Run
from ..store import Document, RunRecord
from .context import Parts, check_name, header
from .runs import stop_within

CONVERSATION = "conversation"
"""Where a run's request says under which name it was started, and the kind of a name's document."""


def named_in(request: Request) -> str | None:
    """Return the name that a request's header gives to its run; None where it gives none."""
    name = header(request, b"x-conversation-id")
    if not name:
        return None
    if header(request, b"idempotency-key") is not None:
        raise BadRequest("Send X-Conversation-Id or an Idempotency-Key, not both.", param="Idempotency-Key")
    return check_name(name, "X-Conversation-Id")


async def start(parts: Parts, name: str, record: RunRecord, begin: Callable[[RunRecord], Awaitable[Run]]) -> Run:
    """Start a run under a name, and stop the one that had it. A run that cannot be given its name does not go on."""
    record.request[CONVERSATION] = name
    run = await begin(record)
    try:
        before = await _give(parts, name, run)
    except HoldfastError:
        await stop_within(run)
        raise
    if before is not None:
        await stop_within(before, by="replaced")
    return run


async def find(parts: Parts, owner: str, name: str) -> Run | None:
    """Return the newest run of a name; None where there is none, or its log is no longer whole."""
    run = await _holder(parts, await parts.store.get_document(CONVERSATION, _id(owner, name)))
    return run if run is not None and run.log.oldest == 1 else None


async def _give(parts: Parts, name: str, run: Run) -> Run | None:
    """Give a name to a run, and return the one that had it."""
    owner, id = run.record.owner, _id(run.record.owner, name)
    while True:
        known = await parts.store.get_document(CONVERSATION, id)
        document = known or Document(kind=CONVERSATION, id=id, owner=owner, created_at=parts.engine.now())
        try:
            await parts.store.put_document(replace(document, body={"run_id": run.id}), document.version)
        except StaleDocument:
            continue  # another was quicker, and is the one before
        return await _holder(parts, known)


async def _holder(parts: Parts, document: Document | None) -> Run | None:
    """Return the run that has a name; None where it was deleted."""
    if document is None:
        return None
    try:
        return await parts.engine.open(document.body["run_id"])
    except RunNotFound:
        return None


def _id(owner: str, name: str) -> str:
    return "conv_" + hashlib.sha256(f"{owner}\n{name}".encode()).hexdigest()
