"""What a node knows of the runs of others: their place in a queue, whether they wait, and how many there are."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.engine.core import Core
from holdfast.errors import OwnerSilent, RunLimitReached, StoreUnavailable
from holdfast.events import Failed, Stopped
from holdfast.history import Message, Session, branch
from holdfast.ids import new_id
from holdfast.nodes import intents
from holdfast.runs.run import Limits, Run
from holdfast.server.starting.rate_limit import StartRate, TooManyStarts
from holdfast.store import Idempotency, IfBusy, RunRecord
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.simulation.loop import SeededLoop
from tests.support.waiting import LONG
from tests.unit.test_nodes import LosesHints, forever, nodes, spoken, until


def in_session(session_id: str = "ses_1", owner: str = "") -> RunRecord:
    return RunRecord(id=new_id("run"), owner=owner, session_id=session_id, message_id=new_id("msg"))


def said(text: str) -> Message:
    return Message(id=new_id("usr"), role="user", content=text)


async def say(engine: Core, text: str, if_busy: IfBusy = "queue") -> Run:
    async with asyncio.timeout(LONG):
        return await engine.submit(in_session(), [said(text)], if_busy=if_busy)


def answers(run: Run) -> AsyncIterator[str]:
    return forever(f"{run.record.model}answer ")


@requirement("nodes.interrupt")
@pytest.mark.parametrize("store", [MemoryStore, LosesHints])
async def test_a_message_that_interrupts_another_nodes_run_comes_before_the_queued_ones(store):
    """The owner of the run started the first queued one as soon as its own had stopped, as on one node it does not."""
    medium = store()
    await medium.create_session(Session(id="ses_1", owner=""))
    async with nodes(medium, sources=answers, lease=0.6) as (one, two):
        running = await say(one, "one")
        queued = await say(one, "queued")
        await spoken(running, "answer ")
        urgent = await say(two, "urgent", "interrupt")
        replaced = await running.settled()
        waiting = [record.id for record in await medium.queued("ses_1")]
        await spoken(urgent, "answer ")
        await urgent.stop()
        async with asyncio.timeout(LONG):
            while (await one.open(queued.id)).status != "running":  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        said = [message.content for message in await medium.messages("ses_1") if message.role == "user"]

    assert isinstance(replaced, Stopped)
    assert "replaced" == replaced.by
    assert [queued.id] == waiting
    assert ["one", "urgent", "queued"] == said


@requirement("nodes.interrupt")
async def test_of_two_messages_that_interrupt_at_once_the_later_replaces_the_earlier():
    """Each stops what is running before it, on whichever node that is."""
    store = MemoryStore()
    await store.create_session(Session(id="ses_1", owner=""))
    async with nodes(store, 3, sources=answers) as (one, two, three):
        running = await say(one, "one")
        queued = await say(one, "queued")
        await spoken(running, "answer ")
        urgent = await asyncio.gather(say(two, "two", "interrupt"), say(three, "three", "interrupt"))

        async def one_is_left() -> bool:
            return [run.status for run in [await one.open(run.id) for run in urgent]].count("running") == 1

        await until(one_is_left)
        ended = [each.settlement for each in [await one.open(run.id) for run in urgent] if each.settlement is not None]
        waiting = [record.id for record in await store.queued("ses_1")]

    assert ["replaced"] == [each.by for each in ended if isinstance(each, Stopped)]
    assert [queued.id] == waiting


@requirement("nodes.interrupt")
async def test_a_message_whose_interruption_is_not_answered_has_failed(monkeypatch):
    """The other run goes on: it must not seem stopped, and the message must not wait behind it unnoticed."""
    monkeypatch.setattr(intents, "PATIENCE", 0.2)
    store = MemoryStore()
    await store.create_session(Session(id="ses_1", owner=""))
    silent = Core(store, sources=answers)
    running = await say(silent, "one")
    await spoken(running, "answer ")
    store.listen(silent.node_id, lambda topic, id: None)
    async with Core(store, sources=answers) as other:
        with pytest.raises(OwnerSilent):
            await say(other, "urgent", "interrupt")
        (urgent,) = [run for run in await store.list_runs() if run.id != running.id]
        waiting = await store.queued("ses_1")
    await silent.close()

    assert isinstance(urgent.settlement, Failed)
    assert [] == waiting


@requirement("nodes.interrupt", "start.idempotent")
async def test_an_interruption_that_was_not_answered_can_be_repeated_with_its_key(monkeypatch):
    """Its caller was told to try again. The key had been used up: the repeat was accepted, and no model was asked."""
    monkeypatch.setattr(intents, "PATIENCE", 0.2)
    store, key = MemoryStore(), Idempotency("", "once", "digest")
    await store.create_session(Session(id="ses_1", owner=""))
    silent = Core(store, sources=answers)
    running = await say(silent, "one")
    await spoken(running, "answer ")
    store.listen(silent.node_id, lambda topic, id: None)
    async with Core(store, sources=answers) as other:
        with pytest.raises(OwnerSilent):
            await other.submit(in_session(), [said("urgent")], if_busy="interrupt", idempotency=key)
        await silent.close()
        await other.look()
        again = await other.submit(in_session(), [said("urgent")], if_busy="interrupt", idempotency=key)
        await spoken(again, "answer ")
        known = await other.repeated(key)
        asked = [message.content for message in await store.messages("ses_1") if message.role == "user"]

    assert known is again
    assert ["one", "urgent"] == asked


class LosesReply(MemoryStore):
    """The reply to the first creation of a run is lost."""

    is_lost = False

    async def create_run(self, run, **how):
        made = await super().create_run(run, **how)
        if not self.is_lost:
            self.is_lost = True
            raise StoreUnavailable("The connection was lost.")
        return made


@requirement("nodes.store-away", "start.idempotent")
@pytest.mark.parametrize("session_id", ["ses_1", None])
async def test_a_start_whose_reply_was_lost_can_be_repeated_with_its_key(session_id):
    """The run is in the store, and was withdrawn. A repeated request got that run, and no model was asked."""
    store, key = LosesReply(), Idempotency("", "once", "digest")
    await store.create_session(Session(id="ses_1", owner=""))
    async with Core(store, sources=answers) as engine:
        record = RunRecord(id=new_id("run"), session_id=session_id)
        with pytest.raises(StoreUnavailable):
            await engine.submit(record, [said("hi")] if session_id else [], idempotency=key)
        repeated = replace(record, id=new_id("run"))
        again = await engine.submit(repeated, [said("hi")] if session_id else [], idempotency=key)
        await spoken(again, "answer ")
        withdrawn = await store.get_run(record.id)
        session = await store.get_session("ses_1")
        messages = await store.messages("ses_1")

    assert withdrawn is not None
    assert isinstance(withdrawn.settlement, Failed)
    assert session is not None
    asked = [message.content for message in branch(messages, session.head_id) if message.role == "user"]
    assert (["hi"] if session_id else []) == asked, "the message stands twice"


@requirement("nodes.needs-approval")
async def test_every_node_knows_which_run_waits_for_a_person():
    """A list of sessions says so. The owner hints at it once the store has it."""
    store = MemoryStore()
    await store.create_session(Session(id="ses_1", owner="ann"))
    async with nodes(store, sources=answers) as (one, two):
        run = await one.submit(in_session(owner="ann"))
        woken = asyncio.Event()
        unwatch = two.changes.watch("ann", woken.set)

        async def waits_at_the_other() -> bool:
            (seen,) = (await two.running("ann")).values()
            return seen.waits

        async def waits_no_more() -> bool:
            return not await waits_at_the_other()

        before = await waits_at_the_other()
        woken.clear()
        run.waits = True
        async with asyncio.timeout(LONG):
            await woken.wait()
        during = await waits_at_the_other()
        run.waits = False
        await until(waits_no_more)
        unwatch()

    assert (False, True) == (before, during)


@requirement("nodes.needs-approval")
async def test_a_run_that_was_stopped_while_it_waited_needs_no_person():
    """And neither does one that another node goes on with, until its source waits there."""
    store = MemoryStore()
    async with nodes(store) as (one, two):
        run = await one.start(forever("one "), keep=True)
        run.waits = True

        async def is_noted() -> bool:
            return (await two.open(run.id)).waits

        await until(is_noted)
        await run.stop()
        seen = await two.open(run.id)

    assert not seen.waits


@requirement("nodes.limits")
@pytest.mark.parametrize("limits", [Limits(runs=2), Limits(runs_per_owner=2)])
@pytest.mark.parametrize("keep", [True, False])
async def test_runs_are_limited_over_all_nodes(limits, keep):
    """A second server must not double what may go on at once, whether it is stored or not."""
    async with nodes(MemoryStore(), limits=limits) as (one, two):
        first = await one.start(forever("one "), keep=keep, owner="ann")
        await two.start(forever("two "), keep=keep, owner="ann")
        for node in (one, two):
            await until(told_of(node, 1))
            with pytest.raises(RunLimitReached):
                await node.start(forever("three "), keep=keep, owner="ann")
            with pytest.raises(RunLimitReached):
                await node.reserve("ann", 1)
        await first.stop()
        async with asyncio.timeout(LONG):
            third = await two.start(forever("three "), keep=keep, owner="ann")

        assert "running" == third.status


def told_of(node: Core, runs: int) -> Any:
    async def is_so() -> bool:
        assert node.store is not None
        return (await node.store.running_elsewhere("ann", node.node_id)).runs == runs

    return is_so


@requirement("nodes.limits")
async def test_a_node_that_is_alone_or_far_from_its_limit_asks_the_store_for_no_count():
    """A start costs no more than before."""
    store = Counts()
    async with nodes(store, 1, limits=Limits(runs=2, runs_per_owner=2)) as (one,):
        await one.start(forever("one "), keep=True)
    async with nodes(store, 2, limits=Limits(runs=10)) as (one, _):
        await one.start(forever("one "))
        await one.start(forever("one "), keep=True)

    assert 0 == store.counted


class Counts(MemoryStore):
    """Counts how often it was asked for the runs of other nodes."""

    counted = 0

    async def running_elsewhere(self, owner: str, node_id: str) -> Any:
        self.counted += 1
        return await super().running_elsewhere(owner, node_id)


@requirement("nodes.limits")
async def test_starts_in_a_minute_are_counted_over_all_nodes():
    """Three servers must not triple what an owner may start."""
    store = MemoryStore()
    async with nodes(store) as engines:
        one, two = [StartRate(3, engine, store) for engine in engines]
        await one.take("ann", 2)
        await two.take("ann")
        with pytest.raises(TooManyStarts) as refused:
            await one.take("ann")
        await two.take("bob")

    assert 0 < refused.value.retry_after <= 20


@requirement("nodes.limits")
async def test_owners_who_start_nothing_take_no_memory():
    """A server that is alone counts in memory: what it has of an owner is of no use after a minute."""
    now = 0.0
    async with nodes(MemoryStore(), count=1) as (engine,):
        rate = StartRate(2, engine, MemoryStore(), clock=lambda: now)
        for n in range(100):
            await rate.take(f"owner-{n}")
        now = 59.0
        await rate.take("owner-0", 2)
        now = 61.0
        await rate.take("owner-x")
        with pytest.raises(TooManyStarts):
            await rate.take("owner-0", 2)

        assert 2 == len(rate)


class Silent(MemoryStore):
    """Answers nothing after a moment, like a database behind a network that drops everything."""

    is_silent = False

    async def _wait(self) -> None:
        if self.is_silent:
            await asyncio.Event().wait()

    async def renew(self, *args: Any, **kwargs: Any) -> Any:
        await self._wait()
        return await super().renew(*args, **kwargs)

    async def nodes(self) -> Any:
        await self._wait()
        return await super().nodes()

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        await self._wait()
        return await super().settle(*args, **kwargs)

    async def give_up(self, *args: Any, **kwargs: Any) -> Any:
        await self._wait()
        return await super().give_up(*args, **kwargs)

    async def release(self, *args: Any, **kwargs: Any) -> Any:
        await self._wait()
        return await super().release(*args, **kwargs)


@requirement("nodes.store-away")
def test_a_node_ends_in_its_time_while_the_store_is_silent():
    """Each step had a time limit of its own, and together they took longer than what ends the process waits."""

    async def world() -> None:
        store = Silent()
        engine = Core(store, limits=Limits(grace=0.2))
        await engine.__aenter__()
        waiting, _ = [await engine.start(forever("one "), keep=True) for _ in range(2)]
        waiting.waits = True
        store.is_silent = True
        await engine.close(within=10.0)

    clock = SeededLoop(Random(0), disorder=0.0)
    clock.run(world())
    clock.discard()

    assert clock.time() <= 10.0
