"""Runs schedules: one node holds each, waits for its next time, and starts its occurrences, each of them once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from ....concurrency.retry import Backoff
from ....engine.core import Core
from ....errors import HoldfastError, NotFound, ShuttingDown, StoreUnavailable
from ....ids import NewId, new_id
from ....nodes.holds import PATIENCE
from ....nodes.jobs import Jobs, JobWork
from ....runs.run import Run
from ....store import Store
from ....store.documents import DocumentGuard, Documents, Stored
from .model import Occurrence, Plan, Schedule, decided, is_open, notice_of_occurrence, run_key
from .times import EveryInterval, When, load_times
from .unattended import StartsRuns, UnattendedRun

logger = logging.getLogger(__name__)

KIND = "schedule"
MOST_SCHEDULES = 100
"""Maximum number of schedules of an owner."""
LOOK_EVERY = 60.0
"""Seconds between two reads of a schedule that another node may have changed. A hint causes one sooner."""
AGAIN = 1.0
"""Seconds until an occurrence without a result is looked at again."""
TRY_FOR = 300.0
"""Seconds for which an occurrence that finds no place is tried again. Then it is refused."""
_FULL = frozenset({"run_limit", "rate_limited"})
"""Codes of refusals that pass by themselves."""
_AWAY = frozenset({"store_unavailable", "shutting_down", "keys_unavailable"})
"""Codes of errors after which nobody knows yet: the run may have started, or another node will start it."""


class ScheduleNotFound(NotFound):
    """No such schedule, or it is not yours."""

    code = "schedule_not_found"

    def __init__(self, id: str) -> None:
        super().__init__(f"There is no schedule {id[:64]!r}.")


class ScheduleJob(JobWork):
    """The work on one schedule: it waits for the next time, again and again."""

    def __init__(self, schedules: Schedules, id: str) -> None:
        super().__init__(id)
        self.is_closing = False
        """True when the server ends."""
        self.is_taken_up = False
        """True once it is stored that this node works on the schedule."""
        self._schedules = schedules

    async def work(self) -> None:
        """Start what is due, until nothing will be any more."""
        wait: float | None = 0.0
        while wait is not None:
            await self.pause(wait)
            if self.is_closing:
                return
            wait = await self._schedules.step(self)

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the schedule has changed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.look.wait()
        self.look.clear()

    async def decide(self, schedule: Schedule) -> Schedule:
        """Return the schedule with all decided that is due. The first time it is also marked as taken up."""
        if not self.is_taken_up:
            schedule = replace(schedule, turn=schedule.turn + 1)
        return await self._schedules.decided(schedule)


class ScheduleJobs(Jobs[Schedule, ScheduleJob]):
    """The schedules that this node works on. Those that only wait do not delay its end."""

    async def close(self) -> None:
        """End the work on all of them."""
        for job in self.all_of():
            job.is_closing = True
            job.look.set()
        await super().close()


class Schedules:
    """The schedules of a server. Each that waits costs a task on one node."""

    def __init__(self, store: Store, engine: Core, starts: StartsRuns, *, new_id: NewId = new_id) -> None:
        self._store, self._engine, self._starts, self._new_id = store, engine, starts, new_id
        self._documents = Documents(store, KIND, Schedule, now=engine.now)
        self._one_at_a_time = DocumentGuard(store, "schedules")
        self._loaded: set[str] = set()
        """The time zones that are loaded."""
        self.jobs = ScheduleJobs(KIND, self._documents, engine.holds, is_open=is_open, resume=self._resume)

    def now(self) -> float:
        """Return the time that decides what is due: that of the store, which the nodes share."""
        return self._engine.store_now()

    async def load(self, when: When) -> None:
        """Load what the times of a plan need, once. `BadTime` for an unknown zone."""
        if isinstance(when, EveryInterval) or when.time_zone in self._loaded:
            return
        await asyncio.to_thread(load_times, when)
        self._loaded.add(when.time_zone)

    async def decided(self, schedule: Schedule) -> Schedule:
        """Return a schedule with all decided that is due by now."""
        await self.load(schedule.plan.when)
        return decided(schedule, self.now(), partial(self._new_id, "ses"))

    # reading

    async def of(self, owner: str) -> list[Stored[Schedule]]:
        """Return an owner's schedules, the newest first."""
        return [await self._ready(stored) async for stored in self._documents.all(owner=owner)]

    async def get(self, owner: str, id: str) -> Stored[Schedule]:
        """Return one of an owner's schedules."""
        if (stored := await self._documents.get(id, owner=owner)) is None:
            raise ScheduleNotFound(id)
        return await self._ready(stored)

    async def _ready(self, stored: Stored[Schedule]) -> Stored[Schedule]:
        await self.load(stored.body.plan.when)
        return stored

    # changing

    async def add(self, owner: str, key: str, plan: Plan, *, is_paused: bool = False) -> Stored[Schedule]:
        """Add a schedule. Its first time is after now."""
        now = float(int(self.now()))
        check = partial(self._documents.require_room, owner, MOST_SCHEDULES, KIND)
        schedule = Schedule(plan=plan, key=key, since=now, cursor=now, is_paused=is_paused)
        id = self._new_id("sch")
        stored = await self._documents.add_alone(id, schedule, check, among=self._one_at_a_time, owner=owner)
        await self._attend(id)
        return stored

    async def replace(self, owner: str, key: str, id: str, plan: Plan) -> Stored[Schedule]:
        """Replace the plan. With other times it begins anew from now; what was missed before is dropped."""

        def replaced(schedule: Schedule) -> Schedule:
            if plan.when == schedule.plan.when:
                return replace(schedule, plan=plan, key=key)
            now = float(int(self.now()))
            return replace(schedule, plan=plan, key=key, since=now, cursor=now)

        return await self._change(owner, id, replaced)

    async def pause(self, owner: str, id: str) -> Stored[Schedule]:
        """Pause it, and wait until what was about to start has started, or was taken back."""
        stored = await self._change(owner, id, lambda schedule: replace(schedule, is_paused=True))
        await self._without_begun(id)
        return await self.get(owner, stored.id)

    async def resume(self, owner: str, id: str) -> Stored[Schedule]:
        """Go on after a pause, with the next time after now."""

        def resumed(schedule: Schedule) -> Schedule:
            if not schedule.is_paused:
                return schedule
            return replace(schedule, is_paused=False, cursor=max(schedule.cursor, self.now()))

        return await self._change(owner, id, resumed)

    async def delete(self, owner: str, id: str) -> None:
        """Delete it. Its chats and runs stay."""
        await self.get(owner, id)
        with suppress(ScheduleNotFound):
            await self.pause(owner, id)  # nothing starts after this
            await self._documents.delete(id)
        if (job := self.jobs.of(id)) is not None:
            job.look.set()

    async def run_now(self, owner: str, id: str, asked: str, by_key: str) -> tuple[Stored[Schedule], Occurrence]:
        """Start an occurrence now, once for each `asked`, and return what became of it.

        One that was refused is tried again. If its node does not answer in time, it is still `begun`, and will start.
        """
        key, now = f"now:{asked}", self.now()
        one = Occurrence(at=now, how="asked", decided_at=now, key=key, by_key=by_key)

        def begun(schedule: Schedule) -> Schedule:
            known = next((each for each in schedule.history if each.key == key), None)
            if known is not None and known.state in ("begun", "started"):
                return schedule
            rest = replace(schedule, history=[each for each in schedule.history if each.key != key])
            return rest.with_one(replace(one, session_id="" if schedule.plan.session else self._new_id("ses")))

        await self._change(owner, id, begun)
        await self._without_begun(id, key)
        stored = await self.get(owner, id)
        return stored, next(each for each in stored.body.history if each.key == key)

    async def _change(self, owner: str, id: str, change: Callable[[Schedule], Schedule]) -> Stored[Schedule]:
        stored = await self._documents.change(id, change, owner=owner)
        if stored is None:
            raise ScheduleNotFound(id)
        await self._attend(id)
        return stored

    async def _without_begun(self, id: str, key: str = "") -> None:
        """Wait until no occurrence is about to start, or not this one, for some seconds: its node may have died."""
        pauses = Backoff(0.02, 0.5)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while (stored := await self._documents.get(id)) is not None:
                    if not any(key in ("", each.key) for each in stored.body.begun()):
                        return
                    await asyncio.sleep(pauses.next())

    # the work of nodes

    async def _attend(self, id: str) -> None:
        """Let the node that has a schedule look at it. If none has it, this one takes it."""
        with suppress(StoreUnavailable):  # the next look of a node finds it
            async with self.jobs.lock(id):
                if (job := self.jobs.of(id)) is not None:
                    job.look.set()
                    return
                async with self.jobs.beginning(id) as is_taken:
                    if is_taken:
                        self.jobs.begin(ScheduleJob(self, id))
                        return
            await self.jobs.tell(id)

    async def _resume(self, stored: Stored[Schedule]) -> None:
        self.jobs.begin(ScheduleJob(self, stored.id))

    async def step(self, job: ScheduleJob) -> float | None:
        """Start what is due. Return the seconds until the next look; None if the work on the schedule has ended."""
        stored = await self.jobs.retry(lambda: self._documents.change_awaiting(job.id, job.decide))
        job.is_taken_up = True
        if stored is not None:
            for one in stored.body.begun():
                await self._resolve(job, stored, one)
        async with self.jobs.lock(job.id):  # a change of now begins the work anew
            stored = await self.jobs.retry(partial(self._documents.get, job.id))
            if stored is None or not (stored.body.begun() or (await self._ready(stored)).body.next_at()):
                self.jobs.forget(job)
                await self.jobs.let_go(job.id)
                return None
        if stored.body.begun():
            return AGAIN
        return min(LOOK_EVERY, max(0.0, (stored.body.next_at() or 0.0) - self.now()))

    async def _resolve(self, job: ScheduleJob, stored: Stored[Schedule], one: Occurrence) -> None:
        """Start the run of an occurrence that is decided, or find it, and store the result."""
        pauses = Backoff(0.5, 15.0)
        while True:
            result = await self._tried(stored, one)
            code = "" if result.error is None else result.error.code
            is_over = one.how == "asked" or self.now() > one.decided_at + TRY_FOR
            if code not in _AWAY and (code not in _FULL or is_over):
                break
            await job.pause(pauses.next())
        await self.jobs.retry(
            lambda: self._documents.change(stored.id, lambda schedule: schedule.with_result(result, stored.body.turn))
        )
        if result.error is not None:
            logger.warning("schedule %s: no run for %s: %s", stored.id, one.key, result.error.code)
            await self._drop_empty(stored, one)

    async def _tried(self, stored: Stored[Schedule], one: Occurrence) -> Occurrence:
        """Return the result of one try: the run, or why there is none."""
        try:
            run = await self._run(stored, one)
        except HoldfastError as error:
            return replace(one, state="refused", error=error.info())
        if run is None:
            return replace(one, state="skipped", why="The schedule was paused before it could start.")
        return replace(one, state="started", run_id=run.id)

    async def _run(self, stored: Stored[Schedule], one: Occurrence) -> Run | None:
        """Start the run, or find it. If the schedule was paused or deleted meanwhile, it is only looked for."""
        now, key = await self._documents.get(stored.id), run_key(stored.owner, stored.id, one.key)
        if now is None or (now.body.is_paused and one.how != "asked"):
            return await self._engine.repeated(key)
        plan = stored.body.plan
        return await self._starts.start(
            UnattendedRun(
                owner=stored.owner,
                credential=one.by_key or stored.body.key,
                asked=plan,
                text=plan.prompt,
                new_session=one.session_id,
                title=plan.name,
                key=key,
                notice=notice_of_occurrence(plan.name, one),
            )
        )

    async def _drop_empty(self, stored: Stored[Schedule], one: Occurrence) -> None:
        """Delete the new chat of a run that was refused after all."""
        if one.session_id:
            with suppress(StoreUnavailable, ShuttingDown):
                session = await self._store.get_session(one.session_id)
                if session is not None and session.owner == stored.owner and session.head_id is None:
                    await self._engine.delete_session(one.session_id)
