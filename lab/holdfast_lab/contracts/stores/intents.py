"""Requests to the owner of a run, and hints."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from holdfast.store import RunRecord
from holdfast.store.records import Intent

from .case import Case, Checks

CHECKS = Checks()


def _stop(case: Case, run: RunRecord, name: str = "i") -> Intent:
    return Intent(id=case.id(name), run_id=run.id, kind="stop", body={"by": "user"}, asked_by=case.id("asker"))


@CHECKS.add
async def a_request_is_kept_for_the_owner_of_a_run(case: Case) -> None:
    """Oldest first, and once for each id, even if the call is repeated."""
    run = await case.start("r", session=None)
    stored = [await case.store.ask_owner(_stop(case, run, name)) for name in ("i1", "i2", "i1")]

    first, second, again = stored
    assert first is not None
    assert replace(_stop(case, run, "i1"), asked_at=first.asked_at) == first == again
    assert first.asked_at > 0
    assert [first, second] == await case.store.open_intents(run.node_id)
    assert [] == await case.store.open_intents(case.id("other"))
    assert first == await case.store.get_intent(first.id)


@CHECKS.add
async def a_request_is_taken_by_the_owner_of_this_epoch(case: Case) -> None:
    """By compare-and-set. A repeated take changes nothing: its first reply may have been lost."""
    run = await case.start("r", session=None)
    intent = _stop(case, run)
    await case.store.ask_owner(intent)

    assert not await case.store.take_intent(intent.id, 2)
    assert [True, True] == [await case.store.take_intent(intent.id, 1) for _ in range(2)]
    assert [] == await case.store.open_intents(run.node_id)
    taken = await case.store.get_intent(intent.id)
    assert taken is not None
    assert (1, None) == (taken.taken, taken.answer)


@CHECKS.add
async def requests_of_callers_who_have_gone_are_removed(case: Case) -> None:
    """Those that were taken or answered, or whose run has ended. One that no owner has taken may still be served."""
    run, ended = await case.start("r", session=None), await case.start("r2", session=None)
    names = {"open": run, "taken": run, "answered": run, "late": ended}
    for name, of in names.items():
        await case.store.ask_owner(_stop(case, of, name))
    for name in ("taken", "answered"):
        await case.store.take_intent(case.id(name), 1)
    await case.store.answer_intent(case.id("answered"), {})
    await case.settle(ended)

    await case.store.forget_intents(3600.0)
    assert len(names) == len([name for name in names if await case.store.get_intent(case.id(name))])
    await case.store.forget_intents(-1.0)
    assert ["open"] == [name for name in names if await case.store.get_intent(case.id(name))]


@CHECKS.add
async def the_first_answer_stands(case: Case) -> None:
    """An answered request is not open, and cannot be taken."""
    run = await case.start("r", session=None)
    intent = _stop(case, run)
    await case.store.ask_owner(intent)
    await case.store.take_intent(intent.id, 1)
    for first in (True, False):
        await case.store.answer_intent(intent.id, {"first": first})

    answered = await case.store.get_intent(intent.id)
    assert answered is not None
    assert {"first": True} == answered.answer
    assert not await case.store.take_intent(intent.id, 1)
    assert answered == await case.store.withdraw_intent(intent.id)
    await case.store.answer_intent(intent.id, {"late": True})
    assert await case.store.get_intent(intent.id) is None


@CHECKS.add
async def a_request_that_was_withdrawn_is_never_taken(case: Case) -> None:
    """Its caller got the answer that it had no effect."""
    run = await case.start("r", session=None)
    intent = _stop(case, run)
    await case.store.ask_owner(intent)
    withdrawn = await case.store.withdraw_intent(intent.id)

    assert withdrawn is not None
    assert 0 == withdrawn.taken
    assert not await case.store.take_intent(intent.id, 1)
    assert [] == await case.store.open_intents(run.node_id)
    assert await case.store.withdraw_intent(intent.id) is None


@CHECKS.add
async def the_successor_of_a_dead_owner_finds_its_requests(case: Case) -> None:
    """Including those that the dead one had taken and not answered: they may have had no effect."""
    run = await case.start("r", session=None)
    for name in ("taken", "open", "answered"):
        await case.store.ask_owner(_stop(case, run, name))
    for name in ("taken", "answered"):
        await case.store.take_intent(case.id(name), 1)
    await case.store.answer_intent(case.id("answered"), {})
    await case.store.release(run.node_id)
    await case.alive("k2")
    await case.claimed("k2")

    found = [it.id for it in await case.store.open_intents(case.id("k2")) if it.run_id == run.id]
    assert [case.id("taken"), case.id("open")] == found
    assert [] == await case.store.open_intents(run.node_id)
    assert not await case.store.take_intent(case.id("taken"), 1)
    assert await case.store.take_intent(case.id("taken"), 2)


@CHECKS.add
async def only_the_owner_of_a_running_run_can_be_asked(case: Case) -> None:
    """A run that has settled, waits in its queue or does not exist has none."""
    await case.session()
    run = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    intent = _stop(case, run)
    await case.store.ask_owner(intent)
    await case.settle(run)

    for record in (run, queued, case.record("unknown")):
        assert await case.store.ask_owner(_stop(case, record, f"late-{record.id}")) is None
    assert await case.store.ask_owner(intent) is None
    assert not await case.store.take_intent(intent.id, 1)
    assert [] == await case.store.open_intents(run.node_id)


@CHECKS.add
async def hints_wake_those_who_listen(case: Case) -> None:
    """The owner of the run of an intent, the node that waits for its answer, and all nodes if none is named.

    A store may need a while until it receives hints. Then an empty hint says that some may be lost.
    """
    run = await case.start("r", session=None)
    hints: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
    await case.alive("asker")

    def receive(name: str, topic: str, id: str) -> None:
        hints.put_nowait((name, topic, id))

    ends = [case.store.listen(case.id(name), partial(receive, name)) for name in ("node_id", "asker")]
    intent = _stop(case, run)

    async with asyncio.timeout(60):
        await _until_all_listen(case, hints, 2)
        await case.store.ask_owner(intent)
        assert ("node_id", "intent", run.id) == await _next(hints)
        await case.store.answer_intent(intent.id, {})
        assert ("asker", "answer", intent.id) == await _next(hints)
        await case.store.hint("session", ["s"])
        assert {("node_id", "session", "s"), ("asker", "session", "s")} == {await _next(hints), await _next(hints)}
        ends[0]()
        await case.store.hint("session", ["s2"], run.node_id)
        await case.store.hint("session", ["s3"])
        assert ("asker", "session", "s3") == await _next(hints)
    ends[1]()


_HintQueue = asyncio.Queue[tuple[str, str, str]]


async def _until_all_listen(case: Case, hints: _HintQueue, count: int) -> None:
    """Send hints until each listener has received one."""
    names: set[str] = set()
    while len(names) < count:
        await case.store.hint("probe", ["p"])
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                names.add((await hints.get())[0])


async def _next(hints: _HintQueue) -> tuple[str, str, str]:
    """Return the next hint that is neither empty nor a probe."""
    while (found := await hints.get())[1] in ("", "probe"):
        pass
    return found
