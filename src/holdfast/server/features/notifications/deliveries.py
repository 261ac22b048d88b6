"""Deliveries: what happens to a run is told at least once, even across restarts, to webhooks and to people's browsers.

A delivery is stored before the run starts and deleted when it was accepted, one document for each target. So neither a
crash nor an unreachable target loses it; a repeated delivery has the same id. Of several nodes on a store one holds
each delivery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from ....concurrency.retry import Backoff
from ....engine.core import Core
from ....errors import RunNotFound, StaleDocument, StoreUnavailable
from ....ids import NewId, new_id
from ....nodes.jobs import Jobs, JobWork
from ....runs.run import Run
from ....store import RunRecord, Store
from ....store.documents import Documents, Stored
from ...config.settings import AGENT
from .listeners import Listener
from .news import News, Target
from .people import PUSH, Persons
from .posting import Posting
from .push import PersonsBrowsers, Pushes

logger = logging.getLogger(__name__)

KIND = "webhook"
PAUSE, LONGEST_PAUSE = 0.5, 3600.0
"""First and longest pause between two attempts, in seconds."""
TOLD = ("chat", AGENT)
"""The kinds of runs that are told of: no panes of comparisons, and no cells of batches."""


class Delivery(msgspec.Struct, frozen=True):
    """One delivery: what happens to a run, to the target of this name."""

    run_id: str
    listener: str
    is_told: bool = False
    """True if the target, or the person, knows that the run waits for a person now."""
    waits: int = 0
    """How often the run has waited by now."""


class DeliveryJob(JobWork):
    """The work on one delivery."""

    def __init__(self, deliveries: Deliveries, stored: Stored[Delivery]) -> None:
        super().__init__(stored.id)
        self._deliveries, self._stored = deliveries, stored

    async def work(self) -> None:
        """Deliver, then forget the delivery."""
        await self._deliveries.deliver(self._stored)
        await self._deliveries.forget(self.id)


class Deliveries:
    """The deliveries of a server. Costs a task for each open one."""

    def __init__(
        self,
        store: Store,
        engine: Core,
        listeners: Sequence[Listener],
        persons: Persons,
        pushes: Pushes,
        posting: Posting,
        *,
        new_id: NewId = new_id,
    ) -> None:
        """`listeners` are those of the operator."""
        self._listeners, self._persons, self._pushes, self._posting = listeners, persons, pushes, posting
        self._deliveries = Documents(store, KIND, Delivery, now=engine.now)
        self._store, self._engine, self._new_id = store, engine, new_id
        self.jobs: Jobs[Delivery, DeliveryJob] = Jobs(
            KIND, self._deliveries, engine.holds, is_open=lambda _: True, resume=self._resume
        )

    # before and after the start of a run

    async def expect(self, record: RunRecord) -> list[Stored[Delivery]]:
        """Store the deliveries of a run that is about to start."""
        if record.kind not in TOLD:
            return []
        names = [each.name for each in self._listeners if each.expects(record)]
        names += (await self._persons.of(record.owner)).targets
        return [await self._expected(record, name) for name in names]

    async def _expected(self, record: RunRecord, name: str) -> Stored[Delivery]:
        id = self._new_id("hook") if name != PUSH else _push_id(record.id)
        return await self._put(id, Delivery(record.id, name), record.owner)

    def promise(self, run: Run, expected: Sequence[Stored[Delivery]]) -> None:
        """Begin the deliveries. Those of a repeated request, which started no run, are dropped."""
        for stored in expected:
            if stored.body.run_id == run.id:
                self.jobs.tasks.start(self._begin(stored))
            else:
                self.jobs.tasks.start(self.forget(stored.id))

    async def _begin(self, stored: Stored[Delivery]) -> None:
        """Begin a delivery. Store it again if another server took it up before the run was there, and dropped it."""
        if await self.jobs.retry(partial(self._deliveries.get, stored.id)) is None:
            stored = await self.jobs.retry(partial(self._put, stored.id, stored.body, stored.owner))
        self.jobs.begin(DeliveryJob(self, stored))

    async def _put(self, id: str, delivery: Delivery, owner: str) -> Stored[Delivery]:
        await self.jobs.reserve(id)
        return await self._deliveries.put(id, delivery, owner=owner)

    def withdraw(self, expected: Sequence[Stored[Delivery]]) -> None:
        """Drop the deliveries of a run that was not started. It may be there, if only the store's answer was lost."""
        for stored in expected:
            self.jobs.begin(DeliveryJob(self, stored))

    async def begin_push(self, owner: str) -> None:
        """Tell a person of the runs that go on already: notifications were turned on while one waits for them."""
        for run in (await self._engine.running(owner)).values():
            if run.record.kind in TOLD and await self._deliveries.get(_push_id(run.id)) is None:
                with suppress(StaleDocument):  # another browser was turned on at the same moment
                    self.promise(run, [await self._expected(run.record, PUSH)])

    async def note_told(self, session_id: str) -> None:
        """Note that a page has told its person that the run of a session waits: no notification is sent for it."""

        def told(delivery: Delivery) -> Delivery:
            return delivery if delivery.is_told else replace(delivery, is_told=True)

        for run in await self._engine.of_session(session_id):
            if run.waits:
                await self._deliveries.change(_push_id(run.id), told)

    # the work on one

    async def _resume(self, stored: Stored[Delivery]) -> None:
        self.jobs.begin(DeliveryJob(self, stored))

    async def forget(self, id: str) -> None:
        """Delete a delivery."""
        await self.jobs.retry(partial(self._deliveries.delete, id))
        await self.jobs.let_go(id)

    async def deliver(self, stored: Stored[Delivery]) -> None:
        """Deliver what happens to a run, unless its target is gone."""
        target = await self.target_of(stored)
        if target is None:
            return
        try:
            run: Run = await self.jobs.retry(partial(self._engine.open, stored.body.run_id))
        except RunNotFound:
            return  # the run was never started, or was deleted
        if target.hears_waits and run.record.session_id is not None:
            await self._tell_waits(stored, run, run.record.session_id, target)
        settled = await run.settled()
        at = run.record.settled_at or self._engine.now()
        await asyncio.sleep(target.pause)
        await self._tell(stored, target, News(run, settled, at))

    async def target_of(self, stored: Stored[Delivery]) -> Target | None:
        """Return the one who is told; None if it is gone."""
        name, owner = stored.body.listener, stored.owner
        if name == PUSH:
            return PersonsBrowsers(owner, self._pushes)
        of_operator = next((each for each in self._listeners if each.name == name), None)
        if of_operator is not None:
            return of_operator
        chosen = await self.jobs.retry(partial(self._persons.of, owner))
        webhook = next((each for each in chosen.webhooks if each.id == name), None)
        if webhook is None:
            return None
        return Listener(webhook.url, await self._persons.key_of(webhook), webhook.events, self._posting, name=name)

    async def _tell_waits(self, stored: Stored[Delivery], run: Run, session_id: str, target: Target) -> None:
        """Tell each time that the run begins to wait for a person, until it has settled."""
        changed = asyncio.Event()
        unwatch = self._engine.watch_session(session_id, changed.set)
        ended = asyncio.ensure_future(run.settled())
        ended.add_done_callback(lambda _: changed.set())
        is_told = False
        try:
            while not ended.done():
                changed.clear()
                if await self._waits(run, session_id) != is_told:
                    if not is_told:
                        await asyncio.wait({ended}, timeout=target.pause or 0.001)
                    is_told = await self._waits(run, session_id)
                    times = await self._note_waiting(stored.id, is_told=is_told)
                    if times is not None:
                        await self._tell(stored, target, News(run, None, self._engine.now(), times))
                await changed.wait()
        finally:
            unwatch()
            ended.cancel()

    async def _waits(self, run: Run, session_id: str) -> bool:
        runs = await self.jobs.retry(partial(self._engine.of_session, session_id))
        return any(each.waits for each in runs if each.id == run.id)

    async def _note_waiting(self, id: str, *, is_told: bool) -> int | None:
        """Store whether the target knows that the run waits. Returns how often it has waited if that is news."""
        times: list[int] = []

        def noted(delivery: Delivery) -> Delivery:
            times.clear()
            if delivery.is_told == is_told:
                return delivery
            after = replace(delivery, is_told=is_told, waits=delivery.waits + is_told)
            times.extend([after.waits] * is_told)
            return after

        await self.jobs.retry(lambda: self._deliveries.change(id, noted))
        return times[0] if times else None

    async def _tell(self, stored: Stored[Delivery], target: Target, news: News) -> None:
        """Tell a target until it has heard, or nobody wants to hear it any more."""
        backoff = Backoff(PAUSE, LONGEST_PAUSE, spread=(0.8, 1.2))
        while not await self._has_heard(stored, target, news):
            if self._engine.now() > news.at + target.gives_up:
                logger.error("%s: giving up on %s", target.place, news.run.id)
                return
            await asyncio.sleep(backoff.next())

    async def _has_heard(self, stored: Stored[Delivery], target: Target, news: News) -> bool:
        """Tell once, unless the target was removed meanwhile.

        A store that is away means another try by the same target, which knows whom it has told.
        """
        try:
            return await self.target_of(stored) is None or await target.tell(news)
        except StoreUnavailable:
            return False


def _push_id(run_id: str) -> str:
    return f"push_{run_id}"
