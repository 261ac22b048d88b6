"""A busy session and its queue."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from holdfast.errors import (
    SessionBusy,
)
from holdfast.events import (
    Completed,
    ErrorInfo,
    Failed,
    Receipt,
    Settled,
    Stopped,
    Text,
)

from .case import Case, Checks, raised

CHECKS = Checks()


# a busy session


@CHECKS.add
async def a_busy_session_refuses_and_names_the_run(case: Case) -> None:
    """The running one, or else the first that is queued."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    before = await case.everything()

    error = await raised(SessionBusy, case.start("r3", case.user("c")))
    assert running.id == error.run_id
    assert before == await case.everything()
    await case.settle(running)
    error = await raised(SessionBusy, case.start("r3", case.user("c")))
    assert queued.id == error.run_id


@CHECKS.add
async def a_queued_run_keeps_its_input_out_of_the_session(case: Case) -> None:
    """It waits with its messages and its number, and has no owner."""
    await case.session()
    await case.start("r1", case.user("a"))
    message = case.user("b")
    queued = await case.store.create_run(replace(case.record("r2"), started_at=3.0), [message], if_busy="queue")

    assert ("queued", 1, (message,), None) == (queued.status, queued.queue_number, queued.input, queued.started_at)
    assert [case.id("a")] == [id for id, _ in await case.transcript()]
    assert case.id("a") == await case.head()
    assert queued == await case.store.get_run(queued.id)
    assert [queued] == await case.store.queued(case.id("s"))


@CHECKS.add
async def a_run_that_may_queue_starts_at_once_where_nothing_is_busy(case: Case) -> None:
    """It is not queued, and uses no number."""
    await case.session()
    run = await case.start("r1", case.user("a"), if_busy="queue")

    assert ("running", None) == (run.status, run.queue_number)


@CHECKS.add
async def the_end_of_a_run_tells_whether_another_may_wait(case: Case) -> None:
    """Where none waits, the engine does not look for the next."""
    await case.session()
    ends = []
    for run in (await case.start("r1", case.user("a")), await case.start("r2", case.user("b"), if_busy="queue")):
        if run.status == "queued":
            await case.store.start_queued(case.id("s"), node_id=run.node_id, now=7.0)
        end = await case.store.settle(run.id, 1, seq=1, settlement=Completed(), message=None, now=9.0)
        ends.append(end is not None and end.may_be_followed)

    assert [True, False] == ends


@CHECKS.add
async def a_run_that_interrupts_passes_the_queue(case: Case) -> None:
    """The engine has stopped the running one; the queue continues after the one that interrupted."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    await case.start("r2", case.user("b"), if_busy="queue")
    await case.settle(running)
    passed = await case.start("r3", case.user("c"), if_busy="interrupt")

    assert ("running", False) == (passed.status, passed.ahead)
    assert [case.id("r2")] == [run.id for run in await case.store.queued(case.id("s"))]


@CHECKS.add
async def a_run_that_interrupts_waits_for_a_running_one_ahead_of_the_queue(case: Case) -> None:
    """Another node has the running one, and starts the next. Interrupting runs keep their order."""
    await case.session()
    running = await case.start("r0", case.user("m0"))
    await case.start("r1", case.user("m1"), if_busy="queue")
    for n in (2, 3):
        await case.start(f"r{n}", case.user(f"m{n}"), if_busy="interrupt")
    await case.settle(running)
    late = await case.start("r4", case.user("m4"), if_busy="interrupt")
    waiting = await case.store.queued(case.id("s"))
    opened = await case.store.open_session(case.id("s"))
    other = await case.store.start_queued(case.id("s"), node_id=case.id("k2"), now=7.0)
    first = await case.store.start_queued(case.id("s"), node_id=running.node_id, now=7.0)

    assert ("queued", 4, True, running.node_id) == (late.status, late.queue_number, late.ahead, late.node_id)
    assert other is None
    expected = [case.id(f"r{n}") for n in (2, 3, 4, 1)]
    assert expected == [run.id for run in waiting]
    assert opened is not None
    assert expected == [run.id for run in opened.queued]
    assert [True, True, True, False] == [run.ahead for run in waiting]
    assert first is not None
    assert case.id("r2") == first.id


@CHECKS.add
async def a_run_that_interrupts_is_started_by_another_node_if_its_own_has_ended(case: Case) -> None:
    """Otherwise the session would wait for a dead node."""
    await case.session()
    running = await case.start("r0", case.user("m0"))
    await case.start("r1", case.user("m1"), if_busy="interrupt")
    await case.settle(running)
    await case.store.release(running.node_id)
    started = await case.store.start_queued(case.id("s"), node_id=case.id("k2"), now=7.0)

    assert started is not None
    assert (case.id("r1"), case.id("k2")) == (started.id, started.node_id)


@CHECKS.add
async def queue_numbers_are_never_used_twice(case: Case) -> None:
    """Even if a run was dropped or started, or the store was closed in between."""
    await case.session()
    running = await case.start("r1", case.user("m1"))
    two, three = [await case.start(f"r{n}", case.user(f"m{n}"), if_busy="queue") for n in (2, 3)]
    await case.store.drop_queued(three.id, Stopped(by="user"), 2.0)
    await case.settle(running)
    await case.store.start_queued(case.id("s"), node_id="k", now=3.0)
    await case.reopen()
    four = await case.start("r4", case.user("m4"), if_busy="queue")

    assert [1, 2, 3] == [run.queue_number for run in (two, three, four)]


@CHECKS.add
async def of_many_that_start_at_once_one_runs(case: Case) -> None:
    """A session has at most one run at a time; the others are refused, or queued each with a number of its own."""
    await case.session("reject")
    await case.session("queue")
    refused = await asyncio.gather(
        *(case.start(f"r{n}", case.user(f"m{n}"), session="reject") for n in range(8)), return_exceptions=True
    )
    queued = await asyncio.gather(
        *(case.start(f"q{n}", case.user(f"m{n}"), session="queue", if_busy="queue") for n in range(8))
    )

    assert 7 == sum(isinstance(result, SessionBusy) for result in refused)
    assert [None, *range(1, 8)] == sorted((run.queue_number for run in queued), key=lambda number: number or 0)
    assert 1 == len(await case.store.messages(case.id("queue")))


# the queue


@CHECKS.add
async def queued_runs_start_in_their_order(case: Case) -> None:
    """Each after the one before has settled; its input enters the session then, after the head of that moment."""
    await case.session()
    running = await case.start("r0", case.user("m0"))
    for n in (1, 2, 3):
        await case.start(f"r{n}", case.user(f"m{n}"), if_busy="queue")
    started = []
    for _ in range(3):
        await case.settle(running, message=case.answer(running))
        promoted = await case.store.start_queued(case.id("s"), node_id=case.id("k2"), now=7.0)
        assert promoted is not None
        assert promoted == await case.store.get_run(promoted.id)
        started.append(running := promoted)

    assert [case.id(f"r{n}") for n in (1, 2, 3)] == [run.id for run in started]
    assert {("running", case.id("k2"), 7.0, ())} == {(r.status, r.node_id, r.started_at, r.input) for r in started}
    assert [case.id(f"m{n}") for n in (1, 2, 3)] == [run.parent_id for run in started]
    expected = [case.id(name) for name in ("m0", "answer-r0", "m1", "answer-r1", "m2", "answer-r2", "m3")]
    assert list(zip(expected, [None, *expected[:-1]], strict=True)) == await case.transcript()


@CHECKS.add
async def a_queued_edit_remembers_where_it_belongs(case: Case) -> None:
    """After the message that it named, or at the very beginning, even if the session has new messages meanwhile."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    await case.start("r2", case.user("b"), parent=case.id("a"), if_busy="queue")
    await case.start("r3", case.user("c"), parent=None, if_busy="queue")
    await case.settle(running, message=case.answer(running))
    second = await case.store.start_queued(case.id("s"), node_id="k", now=7.0)
    assert second is not None
    await case.settle(second)
    await case.store.start_queued(case.id("s"), node_id="k", now=8.0)

    assert [(case.id("b"), case.id("a")), (case.id("c"), None)] == (await case.transcript())[2:]


@CHECKS.add
async def nothing_is_promoted_into_a_busy_or_empty_session(case: Case) -> None:
    """A repeated call starts no second run."""
    await case.session()
    start = case.store.start_queued
    assert await start(case.id("s"), node_id="k", now=7.0) is None
    assert await start(case.id("gone"), node_id="k", now=7.0) is None

    running = await case.start("r1", case.user("a"))
    for n in (2, 3):
        await case.start(f"r{n}", case.user(f"m{n}"), if_busy="queue")
    assert await start(case.id("s"), node_id="k", now=7.0) is None
    await case.settle(running)
    assert await start(case.id("s"), node_id="k", now=7.0) is not None
    before = await case.everything()
    assert await start(case.id("s"), node_id="k", now=7.0) is None
    assert before == await case.everything()


@CHECKS.add
async def a_queued_run_can_say_something_else(case: Case) -> None:
    """Until it starts. The same input again changes nothing."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    changed = await case.store.change_queued(queued.id, [case.user("c", "other")])
    before = await case.everything()

    assert replace(queued, input=(case.user("c", "other"),)) == changed
    assert changed == await case.store.change_queued(queued.id, [case.user("c", "other")])
    assert before == await case.everything()
    assert "queue.changed" == (await case.feed())[-1].type
    await case.settle(running)
    await case.store.start_queued(case.id("s"), node_id="k", now=7.0)
    assert case.id("c") == (await case.transcript())[-1][0]
    for run_id in (queued.id, running.id, case.id("unknown")):
        assert await case.store.change_queued(run_id, []) is None


@CHECKS.add
async def a_queued_run_moves_and_keeps_what_it_says(case: Case) -> None:
    """The numbers stay those of the queue: what moved, and what it passed, get each other's."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    one, two, three = [await case.start(f"q{n}", case.user(f"m{n}"), if_busy="queue") for n in (1, 2, 3)]
    moved = await case.store.move_queued(three.id, 1)
    waiting = await case.store.queued(case.id("s"))

    assert replace(three, queue_number=one.queue_number) == moved
    assert [three.id, one.id, two.id] == [run.id for run in waiting]
    assert [one.queue_number, two.queue_number, three.queue_number] == [run.queue_number for run in waiting]
    assert ["queue.changed"] * 3 == [entry.type for entry in (await case.feed())[-3:]]
    before = await case.everything()
    assert moved == await case.store.move_queued(three.id, 1)
    assert before == await case.everything()
    await case.store.move_queued(three.id, 99)
    assert [one.id, two.id, three.id] == [run.id for run in await case.store.queued(case.id("s"))]
    for run_id in (running.id, case.id("unknown")):
        assert await case.store.move_queued(run_id, 1) is None


@CHECKS.add
async def a_dropped_run_leaves_no_trace_in_the_transcript(case: Case) -> None:
    """It is settled, and its log is that settlement alone."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    stopped = Stopped(by="user", receipt=Receipt(1.0, 1.0, 1.0))
    dropped = await case.store.drop_queued(queued.id, stopped, 8.0)

    assert dropped is not None
    assert dropped == await case.store.get_run(queued.id)
    assert ("settled", stopped, 8.0, 1) == (dropped.status, dropped.settlement, dropped.settled_at, dropped.seq)
    assert [Settled(stopped)] == await case.store.read_log(queued.id, 0)
    assert [case.id("a")] == [id for id, _ in await case.transcript()]
    assert [] == await case.store.queued(case.id("s"))
    last = (await case.feed())[-1]
    assert ("run.settled", queued.id) == (last.type, last.data["run_id"])
    before = await case.everything()
    for run_id in (queued.id, running.id, case.id("unknown")):
        assert await case.store.drop_queued(run_id, Stopped(by="shutdown"), 9.0) is None
    assert before == await case.everything()


@CHECKS.add
async def a_refused_start_is_settled_and_frees_its_key(case: Case) -> None:
    """Its caller was told that it did not start: a repeated request starts another run."""
    await case.session()
    failed, key, other = Failed(error=ErrorInfo("owner_silent", "Not now.")), case.key("k"), case.key("other")
    unheard = await case.start("r1", case.user("a"), idempotency=key)
    assert await case.store.refuse_start(unheard.id, case.id("another node"), failed, 8.0) is None
    refused = await case.store.refuse_start(unheard.id, unheard.node_id, failed, 8.0)
    shown = await case.store.get_session(case.id("s"))
    told = (await case.feed())[-1]
    again = await case.start("r2", case.user("b"), idempotency=key)
    waiting = await case.start("r3", case.user("c"), if_busy="queue", idempotency=other)
    dropped = await case.store.refuse_start(waiting.id, waiting.node_id, failed, 9.0)

    assert shown is not None
    assert shown.head_id is None, "the input that its caller sends again is shown"
    assert ("session.changed", {"head_id": None}) == (told.type, told.data)
    for record in (refused, dropped):
        assert record is not None
        assert ("settled", failed) == (record.status, record.settlement)
        assert record == await case.store.get_run(record.id)
        assert [Settled(failed)] == await case.store.read_log(record.id, 0)
    assert again == await case.store.find_repeated(key)
    assert await case.store.find_repeated(other) is None
    await case.append(again, 1, Text("one "))
    before = await case.everything()
    for run_id in (unheard.id, waiting.id, again.id, case.id("unknown")):
        assert await case.store.refuse_start(run_id, unheard.node_id, failed, 9.0) is None
    assert before == await case.everything()


@CHECKS.add
async def sessions_that_wait_are_found(case: Case) -> None:
    """Those in which a run is queued and none is running."""

    async def waiting() -> bool:
        return case.id("s") in await case.store.waiting_sessions()

    await case.session()
    assert not await waiting()
    running = await case.start("r1", case.user("a"))
    await case.start("r2", case.user("b"), if_busy="queue")
    assert not await waiting()
    await case.settle(running)
    assert await waiting()
    await case.reopen()
    assert await waiting()
    await case.store.start_queued(case.id("s"), node_id="k", now=7.0)
    assert not await waiting()
