"""Leases: who works on a run."""

from __future__ import annotations

from msgspec.structs import replace

from ...events import (
    Interrupted,
    Settled,
    Text,
)
from .. import RunRecord
from .case import Case, Checks

CHECKS = Checks()


@CHECKS.add
async def runs_of_a_process_whose_lease_has_ended_are_taken_over(case: Case) -> None:
    """With the new owner and the next epoch; runs of a live owner are not."""
    run = await case.start("r", session=None)
    await case.append(run, 1, Text("a"))

    async def claimed(by: str, now: float) -> list[RunRecord]:
        return [found for found in await case.store.claim(case.id(by), now) if found.id == run.id]

    await case.store.renew(run.keeper, 100.0)
    await case.store.renew(case.id("k2"), 1000.0)
    assert [] == await claimed("k2", 99.0)
    taken = await claimed("k2", 100.0)
    assert [replace(run, keeper=case.id("k2"), epoch=2, seq=1)] == taken
    assert taken == [await case.store.get_run(run.id)]
    assert [] == await claimed("k3", 999.0)
    await case.store.renew(case.id("k2"), 0.0)
    assert [3] == [found.epoch for found in await claimed("k3", 500.0)]


@CHECKS.add
async def a_process_that_lost_its_run_can_no_longer_write(case: Case) -> None:
    """It may only have slept. The new owner continues at the end of the log."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.append(run, 1, Text("a"))
    await case.store.renew(case.id("k2"), 1000.0)
    (taken,) = [found for found in await case.store.claim(case.id("k2"), 100.0) if found.id == run.id]

    assert not await case.append(run, 2, Text("late"))
    assert await case.settle(run, seq=2, message=case.answer(run)) is None
    assert await case.append(taken, 2, Text("b"))
    ending = Interrupted(text="ab")
    assert ending == await case.settle(taken, ending, seq=3, message=case.answer(taken, "ab"))
    assert await case.settle(run, seq=2, message=case.answer(run)) is None
    assert [Text("a"), Text("b"), Settled(ending)] == await case.store.read_log(run.id, 0)


@CHECKS.add
async def a_lease_can_be_renewed_again_and_again(case: Case) -> None:
    """The last word counts, a shorter one too; a process that never had a lease is dead."""
    run = await case.start("r", session=None)

    async def is_orphan(now: float) -> bool:
        return run.id in {found.id for found in await case.store.claim(case.id("other"), now)}

    for until in (50.0, 50.0, 200.0):
        await case.store.renew(run.keeper, until)
    assert not await is_orphan(199.0)
    await case.store.renew(run.keeper, 60.0)
    assert await is_orphan(61.0)
    never = await case.store.create_run(replace(case.record("r2", None), keeper=case.id("never")))
    assert never.id in {found.id for found in await case.store.claim(case.id("other"), 0.0)}


@CHECKS.add
async def what_was_claimed_for_nobody_can_be_claimed_again(case: Case) -> None:
    """A process that fails half-way leaves the rest to the next claim, under one more epoch."""
    run = await case.start("r", session=None)
    epochs = []
    for _ in range(3):
        epochs += [found.epoch for found in await case.store.claim("", 100.0) if found.id == run.id]

    assert [2, 3, 4] == epochs
    assert not await case.append(run, 1, Text("late"))


@CHECKS.add
async def a_run_that_was_claimed_for_nobody_can_be_adopted_once(case: Case) -> None:
    """By one process. A repeated adoption changes nothing; another process is refused."""
    run = await case.start("r", session=None)
    (claimed,) = [found for found in await case.store.claim("", 100.0) if found.id == run.id]
    adopted = await case.store.adopt(run.id, claimed.epoch, case.id("k2"))

    assert replace(claimed, keeper=case.id("k2")) == adopted == await case.store.get_run(run.id)
    assert adopted == await case.store.adopt(run.id, claimed.epoch, case.id("k2"))
    assert await case.store.adopt(run.id, claimed.epoch, case.id("k3")) is None
    assert await case.store.adopt(run.id, run.epoch, case.id("k2")) is None
    assert adopted is not None
    await case.settle(adopted)
    assert await case.store.adopt(run.id, claimed.epoch, case.id("k2")) is None


@CHECKS.add
async def neither_queued_nor_settled_runs_are_taken_over(case: Case) -> None:
    """A queued run has no owner: it starts when its turn comes. A settled one needs none."""
    await case.session()
    settled = await case.start("r1", case.user("a"))
    await case.settle(settled)
    running = await case.start("r2", case.user("b"))
    queued = await case.start("r3", case.user("c"), if_busy="queue")
    claimed = {found.id for found in await case.store.claim(case.id("other"), 100.0)}

    assert {running.id} == claimed & {settled.id, running.id, queued.id}
    assert queued == await case.store.get_run(queued.id)


@CHECKS.add
async def what_a_dead_process_left_is_found_after_a_restart(case: Case) -> None:
    """Its log is there, and its runs can be taken over and settled."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.append(run, 1, Text("a"))
    await case.reopen()

    (taken,) = [found for found in await case.store.claim(case.id("k2"), 1e12) if found.id == run.id]
    assert [Text("a")] == await case.store.read_log(run.id, 0)
    assert await case.settle(taken, seq=2, message=case.answer(taken)) is not None
