"""Requests to the node that owns a run: to stop it, to steer it, to decide on a tool call.

A request is a row of the store, and a hint announces it. A lost hint delays the request, and does not lose it. A run
that is not stored has no such requests: see `unstored`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..errors import HoldfastError, OwnerRefused, OwnerSilent, RunSettled, StoreUnavailable
from ..events import ErrorInfo, StoppedBy
from ..ids import NewId
from ..log.settlement import StopIntent
from ..runs.pump import Pump
from ..runs.run import Run
from ..runs.shared import Shared
from ..store import RunRecord
from ..store.records import Intent

logger = logging.getLogger(__name__)

PATIENCE = 8.0
"""Timeout of a request, in seconds. Then it is withdrawn."""
LOOK = 1.0
"""Seconds between two checks for an answer. A hint comes sooner, unless it is lost."""

Serve = Callable[[Run, str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Handles a request on the run's own node, and returns the answer. An error is passed to the caller."""


class Intents:
    """Sends requests to the owners of runs, and answers those for the runs of this node.

    A stop is answered when the run has settled. If its owner dies before that, the request is open again for the next
    owner.
    """

    def __init__(self, shared: Shared, new_id: NewId, serve: Serve | None) -> None:
        self.shared = shared
        self._store, self._retry = shared.store, shared.retry
        self._new_id = new_id
        self._serve = serve
        self._is_due = False
        self._at_work: set[str] = set()
        self._waiting: dict[str, asyncio.Event] = {}

    # asking

    async def ask(self, run_id: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the owner of a run, and return its answer. `OwnerSilent` if there is none in time."""
        asked_by = self.shared.node_id
        intent = Intent(id=self._new_id("int"), run_id=run_id, kind=kind, body=body, asked_by=asked_by)
        answered = self._waiting[intent.id] = asyncio.Event()
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._answer(intent, answered)
        except TimeoutError:
            answer = await self._last_answer(intent)
        else:
            await self._retry(lambda: self._store.withdraw_intent(intent.id))
        finally:
            del self._waiting[intent.id]
        if (error := answer.get("error")) is not None:
            raise OwnerRefused(msgspec.convert(error, ErrorInfo))
        return answer

    async def _last_answer(self, intent: Intent) -> dict[str, Any]:
        """Withdraw a request, and return its answer if there is one after all."""
        left = await self._retry(lambda: self._store.withdraw_intent(intent.id))
        if left is not None and left.answer is not None:
            return left.answer
        record = await self._retry(lambda: self._store.get_run(intent.run_id))
        if record is None or record.status != "running":
            raise RunSettled(intent.run_id)
        raise OwnerSilent(intent.run_id, taken=left is not None and left.taken > 0)

    async def _answer(self, intent: Intent, answered: asyncio.Event) -> dict[str, Any]:
        """Repeat the request until there is an answer. After a settlement without one, check once more."""
        is_over = False
        while True:
            answered.clear()
            stored = await self._retry(lambda: self._store.ask_owner(intent))  # stored once; each call sends a hint
            known = stored or await self._retry(lambda: self._store.get_intent(intent.id))
            if known is not None and known.answer is not None:
                return known.answer
            if stored is None and (known is None or is_over):
                raise RunSettled(intent.run_id)
            is_over = stored is None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await answered.wait()

    async def stop(self, run_id: str, by: StoppedBy) -> bool:
        """Stop a run of another node, and wait for its settlement. False if it had ended, or was already stopped."""
        try:
            return bool((await self.ask(run_id, "stop", {"by": by}))["is_first"])
        except RunSettled:
            return False

    def answered(self, id: str) -> None:
        """Check for an answer now: a hint has come."""
        if (waiting := self._waiting.get(id)) is not None:
            waiting.set()

    # answering

    def hinted(self) -> None:
        """Check for requests soon, once for several hints."""
        if not self._is_due:
            self._is_due = True
            self.shared.tasks.start(self._look_now())

    async def _look_now(self) -> None:
        self._is_due = False
        with contextlib.suppress(StoreUnavailable):  # the next check repeats it
            await self.look()

    async def look(self) -> None:
        """Handle the open requests of the runs that are active on this node."""
        for intent in await self._store.open_intents(self.shared.node_id):
            if (pump := self.shared.pumps.get(intent.run_id)) is not None and pump.run.status == "running":
                self.serve(pump, intent)

    async def take_stop(self, record: RunRecord) -> Intent | None:
        """Take an open request to stop a run that this node is about to continue, if there is one."""
        for intent in await self._retry(lambda: self._store.open_intents(self.shared.node_id)):
            if intent.run_id == record.id and intent.kind == "stop" and await self._take(intent, record.epoch):
                return intent
        return None

    async def _take(self, intent: Intent, epoch: int) -> bool:
        return await self._retry(lambda: self._store.take_intent(intent.id, epoch))

    def serve(self, pump: Pump, intent: Intent) -> None:
        """Handle a request in a task."""
        if intent.id not in self._at_work:
            self._at_work.add(intent.id)
            self.shared.tasks.start(self._serve_one(pump, intent))

    async def _serve_one(self, pump: Pump, intent: Intent) -> None:
        try:
            if await self._take(intent, pump.run.record.epoch):
                await self._reply(intent, self.act(pump, intent))
        finally:
            self._at_work.discard(intent.id)

    def stop_now(self, pump: Pump, intent: Intent) -> None:
        """Stop a run by a request that was taken, before its source continues."""
        self.shared.tasks.start(self._reply(intent, self._stopped(pump, self._end(pump, intent))))

    def _end(self, pump: Pump, intent: Intent) -> bool:
        return pump.end(StopIntent(intent.body["by"], self.shared.clock()))

    async def _stopped(self, pump: Pump, is_first: bool) -> dict[str, Any]:
        await pump.run.settled()
        return {"is_first": is_first}

    async def _reply(self, intent: Intent, work: Awaitable[dict[str, Any]]) -> None:
        answer = await work
        await self._retry(lambda: self._store.answer_intent(intent.id, answer))

    async def act(self, pump: Pump, intent: Intent) -> dict[str, Any]:
        """Handle a request, and return the answer."""
        try:
            if intent.kind == "stop":
                return await self._stopped(pump, self._end(pump, intent))
            if self._serve is None:
                raise RunSettled(intent.run_id)
            return await self._serve(pump.run, intent.kind, intent.body)
        except HoldfastError as error:
            return {"error": msgspec.to_builtins(error.info())}
