"""Schedules: persons set them up, the code that ships starts their occurrences, and each of them must run once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from holdfast.engine.core import Core
from holdfast.runs.run import Run
from holdfast.server.features.schedules.model import Plan, Schedule
from holdfast.server.features.schedules.schedules import KIND
from holdfast.server.features.schedules.times import due_times
from holdfast.server.features.schedules.unattended import UnattendedRun
from holdfast.store import RunRecord
from holdfast.store.documents import Documents, Stored

from .checker import is_accepted
from .history import RunFacts, SendFacts
from .loop import PROCESS
from .scenario import SchedulePlan, SendPlan, SourcePlan
from .store import peek

if TYPE_CHECKING:
    from .world import Server, World

OWNER = "me"
EXPECTED = {"run_limit", "rate_limited", "queue_full"}
"""Why an occurrence may have no run."""


class Starts:
    """Starts the runs of a server's schedules: what is asked of it is one key, one run."""

    def __init__(self, world: World, engine: Core) -> None:
        self.world, self.engine = world, engine

    async def start(self, order: UnattendedRun) -> Run:
        """Start a run, or return the one that its key has started before."""
        if (known := await self.engine.repeated(order.key)) is not None:
            return known
        facts = self._made(order)
        record = RunRecord(id=facts.id, owner=order.owner, lifetime="detached")
        run = await self.engine.submit(record, idempotency=order.key)
        self.world.history.runs[run.id].accepted = self.world.loop.steps
        return run

    def _made(self, order: UnattendedRun) -> RunFacts:
        plan = SendPlan(0.0, None, True, "detached", "queue", SourcePlan([(0.05, "It is time. ")]), False, again="yes")
        send = SendFacts(-1, plan, None)
        facts = RunFacts(self.world.new_id("run"), send, True, None, "detached", None, occurrence=order.new_session)
        server = PROCESS.get()
        assert server is not None
        facts.processes.append(server)
        facts.unsure = True
        self.world.history.runs[facts.id] = facts
        return facts


class Planner:
    """The persons who set schedules up, and who pause them when it is time to count."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def add(self, plan: SchedulePlan) -> None:
        """Set a schedule up. A second try may make a second one: each of them has its own occurrences."""
        await asyncio.sleep(plan.at)
        wanted = Plan(name="it", prompt="Go", when=plan.when, missed=plan.missed)
        for _ in range(50):
            server = await self.world.server()
            if (await self.world.request(partial(self._add, server, wanted), None, server)).kind == "ok":
                return
            await asyncio.sleep(0.5)

    async def _add(self, server: Server, plan: Plan, engine: Core) -> None:
        assert server.schedules is not None
        await server.schedules.add(OWNER, "", plan)

    async def pause_all(self) -> None:
        """Pause every schedule."""
        for stored in peek(kept_schedules(self.world)):
            for _ in range(50):
                server = await self.world.server()
                reply = await self.world.request(partial(self._pause, server, stored.id), None, server)
                if reply.kind == "ok":
                    break
                await asyncio.sleep(0.5)

    async def _pause(self, server: Server, id: str, engine: Core) -> None:
        assert server.schedules is not None
        await server.schedules.pause(OWNER, id)


async def kept_schedules(world: World) -> list[Stored[Schedule]]:
    """Return all schedules as they are stored."""
    documents = Documents(world.medium, KIND, Schedule, now=world.clock)
    return [each async for each in documents.all(owner=OWNER)]


def check_occurrences(world: World) -> Iterator[str]:
    """Yield what is wrong with the occurrences of all schedules: runs equal occurrences."""
    for stored in peek(kept_schedules(world)):
        yield from _check(world, stored)


def _check(world: World, stored: Stored[Schedule]) -> Iterator[str]:
    schedule = stored.body
    ran = Counter(
        run.occurrence for run in world.history.runs.values() if is_accepted(peek(world.medium.get_run(run.id)))
    )
    times = due_times(schedule.plan.when, schedule.since, schedule.since, schedule.cursor)
    counted = sum(1 + each.others for each in schedule.history)
    if counted != len(times):
        yield f"{stored.id}: an occurrence was lost or is there twice: {len(times)} were due, {counted} are known"
    for each in schedule.history:
        if ran[each.session_id] > 1:
            yield f"{stored.id}: the occurrence {each.key} ran {ran[each.session_id]} times"
        if each.state == "begun":
            yield f"{stored.id}: the occurrence {each.key} never ran: it is still about to"
        elif each.state == "started" and not ran[each.session_id]:
            yield f"{stored.id}: the occurrence {each.key} never ran, and is said to have started"
        elif each.state == "refused" and (each.error is None or each.error.code not in EXPECTED):
            yield f"{stored.id}: the occurrence {each.key} was refused: {each.error}"
        elif each.state != "started" and ran[each.session_id]:
            yield f"{stored.id}: the occurrence {each.key} ran, and is said to be {each.state}"
