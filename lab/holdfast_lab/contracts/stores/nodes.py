"""Nodes: their leases by the store's clock, the runs of dead ones, and their holds."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from holdfast.events import Interrupted, Settled, Text
from holdfast.store.nodes import CLAIMED_AT_ONCE, UNSTORED
from holdfast.store.records import NodeDetails

from .case import LONG, Case, Checks

CHECKS = Checks()


# leases


@CHECKS.add
async def a_node_has_a_record_for_as_long_as_it_is_not_fenced(case: Case) -> None:
    """With its own number, and the data that it last reported."""
    one, two = await case.alive("k1"), await case.alive("k2")
    renewed = await case.store.renew(one.id, LONG, NodeDetails(address="a:1", version="7", counts={"runs": 2}))
    assert renewed is not None
    listed = {node.id: node for node in await case.store.nodes()}

    assert ("a:1", "7", {"runs": 2}) == (renewed.address, renewed.version, renewed.counts)
    assert one.number == renewed.number != two.number
    assert one.since == renewed.since <= renewed.until - LONG
    assert replace(renewed, lease_left=0.0) == replace(listed[one.id], lease_left=0.0)
    assert replace(two, lease_left=0.0) == replace(listed[two.id], lease_left=0.0)
    await case.store.release(one.id)
    assert one.id not in {node.id for node in await case.store.nodes()}
    assert await case.store.renew(one.id, LONG) is None


@CHECKS.add
async def a_lease_that_is_renewed_late_begins_anew(case: Case) -> None:
    """`since` is the time since which a node has always renewed it in time: before half of it had passed."""
    first = await case.alive("k1")
    second = await case.alive("k1", 0.0)
    third = await case.alive("k1")

    assert first.since == second.since <= second.until < third.until
    assert second.until <= third.since
    assert (LONG, 0.0, LONG) == (first.seconds, second.seconds, third.seconds)


@CHECKS.add
async def the_list_of_nodes_says_how_long_their_leases_still_last(case: Case) -> None:
    """By the store's clock: the caller's may differ."""
    renewed = await case.alive("k1")
    await case.alive("k2", 0.0)
    left = {node.id: node.lease_left for node in await case.store.nodes()}

    assert 0 < left[case.id("k1")] <= renewed.lease_left <= LONG
    assert left[case.id("k2")] <= 0


@CHECKS.add
async def runs_of_a_node_whose_lease_has_ended_are_taken_over(case: Case) -> None:
    """With the new owner and the next epoch; runs of a live owner are not."""
    run = await case.start("r", session=None)
    await case.append(run, 1, Text("a"))
    await case.alive("k2")

    assert {} == await case.claimed("k2")
    await case.alive("node_id", 0.0)
    assert {run.id: 2} == await case.claimed("k2")
    assert replace(run, node_id=case.id("k2"), epoch=2, seq=1) == await case.store.get_run(run.id)
    assert {run.id: 2} == await case.claimed("k2")
    await case.alive("k3")
    assert {} == await case.claimed("k3")
    await case.store.release(case.id("k2"))
    assert {run.id: 3} == await case.claimed("k3")


@CHECKS.add
async def a_node_whose_lease_has_ended_may_renew_it_until_it_is_fenced(case: Case) -> None:
    """Only another node's claim fences it: then it has lost its runs, and needs a new id."""
    run = await case.start("r", session=None)
    await case.alive("node_id", 0.0)
    assert await case.append(run, 1, Text("a"))
    await case.alive("node_id")
    await case.alive("k2")
    assert {} == await case.claimed("k2")
    await case.alive("node_id", 0.0)
    await case.claimed("k2")

    assert await case.store.renew(run.node_id, LONG) is None
    assert "fenced" == await case.end_after(run, 2, Text("late"))
    assert "fenced" == await case.end_after(replace(run, epoch=2), 2, Text("late"))


@CHECKS.add
async def a_node_fences_others_only_after_it_has_held_its_own_lease(case: Case) -> None:
    """After an outage of the store all leases have ended. The first node that is back must not fence live ones."""
    run = await case.start("r", session=None)
    await case.alive("k2")
    await case.alive("node_id", 0.0)

    assert {} == await case.claimed("k2", LONG)
    await case.alive("node_id")
    assert await case.append(run, 1, Text("a"))


@CHECKS.add
async def a_node_without_a_lease_takes_nothing(case: Case) -> None:
    """One that never had a lease, one whose lease has ended, and one that is fenced."""
    await case.start("r", session=None)
    await case.alive("node_id", 0.0)
    await case.alive("ended", 0.0)
    await case.alive("fenced")
    await case.store.release(case.id("fenced"))

    for name in ("never", "ended", "fenced"):
        assert {} == await case.claimed(name)


@CHECKS.add
async def runs_of_a_node_that_was_never_there_are_taken_over_at_once(case: Case) -> None:
    """It has no lease that could still be renewed, so there is no reason to wait."""
    run = await case.store.create_run(replace(case.record("r", None), node_id=case.id("never")))
    await case.alive("k2")

    assert "fenced" == await case.end_after(run, 1, Text("a"))
    assert {run.id: 2} == await case.claimed("k2", LONG)


@CHECKS.add
async def one_claim_takes_a_bounded_number_of_runs(case: Case) -> None:
    """Other nodes take some too, and the size of a transaction does not depend on the runs of a dead node."""
    await case.alive("k2")
    await case.claimed("k2")
    before = len(await case.store.claim(case.id("k2")))
    records = [case.record(f"r{number}", None) for number in range(CLAIMED_AT_ONCE + 1)]
    for record in records:
        await case.store.create_run(record)

    assert before + CLAIMED_AT_ONCE == len(await case.store.claim(case.id("k2")))
    assert {record.id for record in records} == (await case.claimed("k2")).keys()


@CHECKS.add
async def a_node_that_lost_its_run_can_no_longer_write(case: Case) -> None:
    """It may only have been suspended. The new owner continues at the end of the log."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.append(run, 1, Text("a"))
    await case.alive("node_id", 0.0)
    await case.alive("k2")
    assert {run.id: 2} == await case.claimed("k2")
    taken = replace(run, node_id=case.id("k2"), epoch=2)

    assert not await case.append(run, 2, Text("late"))
    assert await case.settle(run, seq=2, message=case.answer(run)) is None
    assert await case.append(taken, 2, Text("b"))
    ending = Interrupted(text="ab")
    assert ending == await case.settle(taken, ending, seq=3, message=case.answer(taken, "ab"))
    assert await case.settle(run, seq=2, message=case.answer(run)) is None
    assert [Text("a"), Text("b"), Settled(ending)] == await case.store.read_log(run.id, 0)


@CHECKS.add
async def a_run_that_was_given_up_goes_to_the_next_node_that_claims(case: Case) -> None:
    """At once, while its old owner is alive. That one can no longer write to it. A node gives up only its own runs."""
    run, kept = await case.start("r", session=None), await case.start("r2", session=None)
    await case.append(run, 1, Text("a"))
    await case.alive("k2")
    await case.store.give_up(case.id("k2"), [kept.id])
    for _ in range(2):
        await case.store.give_up(run.node_id, [run.id, case.id("none")])

    assert {run.id: 2} == await case.claimed("k2")
    assert not await case.append(run, 2, Text("late"))
    assert {kept.id: 1} == await case.store.claim(kept.node_id)


@CHECKS.add
async def running_runs_on_other_nodes_are_counted(case: Case) -> None:
    """Of all owners and of one; without the runs of this node, and without settled ones."""
    mine, theirs = await case.start("r1", session=None), await case.start("r2", session=None)
    await case.store.create_run(replace(case.record("r3", None), owner=case.id("other")))
    await case.settle(await case.start("r4", session=None))
    here, there = mine.node_id, case.id("k2")
    before, same = await case.store.running_elsewhere(case.owner, there), await case.store.running_elsewhere("", here)
    await case.settle(theirs)
    after = await case.store.running_elsewhere(case.owner, there)

    assert 0 == (await case.store.running_elsewhere(case.owner, here)).of_owner
    assert (2, 1) == (before.of_owner, after.of_owner)
    assert before.runs == after.runs + 1 == same.runs + 3


@CHECKS.add
async def runs_that_are_not_stored_count_as_their_node_has_told(case: Case) -> None:
    """Only the node itself can count them. A fenced node has none."""
    one, two = await case.alive("k1"), await case.alive("k2")
    counts = {UNSTORED: 5, f"{UNSTORED} {case.owner}": 3}
    before = await case.store.running_elsewhere(case.owner, two.id)
    await case.store.renew(one.id, LONG, NodeDetails(counts=counts))
    counted, own = [await case.store.running_elsewhere(case.owner, id) for id in (two.id, one.id)]
    await case.store.release(one.id)

    assert (before.runs + 5, before.of_owner + 3) == counted
    assert before == own
    assert before == await case.store.running_elsewhere(case.owner, two.id)


@CHECKS.add
async def starts_are_taken_from_one_bucket_for_each_owner(case: Case) -> None:
    """It fills evenly over a minute. A refusal takes nothing; a batch larger than the bucket takes a full one."""
    owner, other = case.owner, case.id("other")
    taken = [await case.store.take_starts(owner, 1, 2) for _ in range(2)]
    await case.reopen()
    waits = [await case.store.take_starts(owner, starts, 2) for starts in (1, 2, 1)]

    assert [0.0, 0.0] == taken
    assert 0 < waits[2] <= waits[0] <= 30 < waits[1] <= 60
    assert 0.0 == await case.store.take_starts(other, 9, 2)
    assert 0 < await case.store.take_starts(other, 1, 2) <= 30


@CHECKS.add
async def starts_that_are_given_back_can_be_taken_again(case: Case) -> None:
    """A negative number gives back. A bucket is never more than full."""
    waits = [await case.store.take_starts(case.owner, starts, 2) for starts in (2, 1, -2, 2, -9, 2, 1)]

    assert [True, False, True, True, True, True, False] == [not wait for wait in waits]


@CHECKS.add
async def of_many_starts_at_once_as_many_are_taken_as_there_are(case: Case) -> None:
    """Two nodes never take the same start."""
    waits = await asyncio.gather(*(case.store.take_starts(case.owner, 1, 5) for _ in range(12)))

    assert 5 == waits.count(0.0)


@CHECKS.add
async def whether_a_run_waits_for_a_person_is_known_to_every_node(case: Case) -> None:
    """As long as its owner is the same: the next owner records it again."""
    run = await case.start("r1", session=None)
    await case.store.note_waiting(run.id, run.epoch + 1, waits=True)
    stale = await case.store.get_run(run.id)
    await case.store.note_waiting(run.id, run.epoch, waits=True)
    noted = await case.store.list_runs(owner=case.owner, status="running")
    await case.store.release(run.node_id)
    await case.alive("k2")
    await case.claimed("k2")
    taken = await case.store.get_run(run.id)

    assert run == stale
    assert [replace(run, waits=True)] == noted
    assert taken is not None
    assert (2, False) == (taken.epoch, taken.waits)


@CHECKS.add
async def neither_queued_nor_settled_runs_are_taken_over(case: Case) -> None:
    """A queued run has no owner: it starts when its turn comes. A settled one needs none."""
    await case.session()
    settled = await case.start("r1", case.user("a"))
    await case.settle(settled)
    running = await case.start("r2", case.user("b"))
    queued = await case.start("r3", case.user("c"), if_busy="queue")
    await case.store.release(running.node_id)
    await case.alive("other")

    assert {running.id: 2} == await case.claimed("other")
    assert queued == await case.store.get_run(queued.id)


@CHECKS.add
async def what_a_dead_node_left_is_found_after_a_restart(case: Case) -> None:
    """Its logs are stored, and its runs can be taken over and settled."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.append(run, 1, Text("a"))
    await case.store.release(run.node_id)
    await case.reopen()
    await case.alive("k2")

    assert {run.id: 2} == await case.claimed("k2")
    taken = replace(run, node_id=case.id("k2"), epoch=2)
    assert [Text("a")] == await case.store.read_log(run.id, 0)
    assert await case.settle(taken, seq=2, message=case.answer(taken)) is not None


# holds


@CHECKS.add
async def one_node_holds_a_piece_of_work(case: Case) -> None:
    """Until it releases it. Repeating either call changes nothing."""
    one, two = await case.alive("k1"), await case.alive("k2")

    for _ in range(2):
        assert await case.store.hold("batch", case.id("b"), one.id)
    assert not await case.store.hold("batch", case.id("b"), two.id)
    assert await case.store.hold("webhook", case.id("b"), two.id)
    await case.store.let_go("batch", case.id("b"), two.id)
    assert not await case.store.hold("batch", case.id("b"), two.id)
    for _ in range(2):
        await case.store.let_go("batch", case.id("b"), one.id)
    assert await case.store.hold("batch", case.id("b"), two.id)


@CHECKS.add
async def what_a_fenced_node_held_can_be_taken(case: Case) -> None:
    """And a fenced node, or one that the store does not know, takes nothing."""
    one, two = await case.alive("k1"), await case.alive("k2")
    await case.store.hold("batch", case.id("b"), one.id)
    await case.store.release(one.id)

    assert not await case.store.hold("batch", case.id("other"), one.id)
    assert not await case.store.hold("batch", case.id("other"), case.id("never"))
    assert await case.store.hold("batch", case.id("b"), two.id)


@CHECKS.add
async def what_is_left_over_is_found_without_its_holder(case: Case) -> None:
    """Work of a live node is not in the list, and has a holder. Work of a fenced one is, and has none."""
    one, two = await case.alive("k1"), await case.alive("k2")
    kind = case.id("kind")
    for id, node_id in (("a", one.id), ("b", one.id), ("c", two.id)):
        await case.store.hold(kind, id, node_id)

    assert [] == await case.store.left_over(kind)
    assert one.id == await case.store.holder(kind, "a")
    assert "" == await case.store.holder(kind, "unheard of")
    await case.store.release(one.id)
    assert ["a", "b"] == await case.store.left_over(kind)
    assert ["a"] == await case.store.left_over(kind, limit=1)
    assert "" == await case.store.holder(kind, "a")
    assert await case.store.hold(kind, "a", two.id)
    assert ["b"] == await case.store.left_over(kind)
    assert two.id == await case.store.holder(kind, "a")
