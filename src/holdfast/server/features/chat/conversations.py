"""Names that clients give to runs. A name stands for its newest run, which replaces the one before.

A name is a document with the id of its run. It is changed by compare-and-set after the start of a run: of two that
start at once, the one that takes the name later replaces the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request

from ....engine.core import Core
from ....errors import BadRequest, HoldfastError, RunNotFound
from ....runs.run import Run
from ....store import Store
from ....store.documents import Documents, Stored
from ...kit.request import check_name, header
from ..sessions.runs import stop_within

_KIND = "conversation"


class NamedRun(msgspec.Struct, frozen=True):
    """The run that has a name now."""

    run_id: str


def named_in(request: Request) -> str | None:
    """Return the name in a request's header; None if there is none."""
    name = header(request, b"x-conversation-id")
    if not name:
        return None
    if header(request, b"idempotency-key") is not None:
        raise BadRequest("Send X-Conversation-Id or an Idempotency-Key, not both.", param="Idempotency-Key")
    return check_name(name, "X-Conversation-Id")


class RunNames:
    """Names of runs."""

    def __init__(self, store: Store, engine: Core) -> None:
        self._store, self._engine = store, engine

    async def start(self, name: str, begin: Callable[[], Awaitable[Run]]) -> Run:
        """Start a run with a name, and stop the one that had it. If the name cannot be set, the run is stopped."""
        run = await begin()
        try:
            before = await self._give(name, run)
        except HoldfastError:
            await stop_within(run)
            raise
        if before is not None:
            await stop_within(before, by="replaced")
        return run

    async def find(self, owner: str, name: str) -> Run | None:
        """Return the newest run of a name; None if there is none, or its log was trimmed."""
        run = await self._holder(await self._names().get(_id(owner, name)))
        return run if run is not None and run.log.oldest == 1 else None

    async def _give(self, name: str, run: Run) -> Run | None:
        """Set the run of a name, and return the one before."""
        owner = run.record.owner
        return await self._holder(await self._names().exchange(_id(owner, name), NamedRun(run.id), owner=owner))

    def _names(self) -> Documents[NamedRun]:
        return Documents(self._store, _KIND, NamedRun, now=self._engine.now)

    async def _holder(self, named: Stored[NamedRun] | None) -> Run | None:
        """Return the run that has a name; None if it was deleted."""
        if named is None:
            return None
        try:
            return await self._engine.open(named.body.run_id)
        except RunNotFound:
            return None


def _id(owner: str, name: str) -> str:
    return "conv_" + hashlib.sha256(f"{owner}\n{name}".encode()).hexdigest()
