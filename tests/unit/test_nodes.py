"""Several engines on one store: each stands for a node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from holdfast.engine.core import Core
from holdfast.errors import CannotSteer, HoldfastError, OwnerSilent, RunLimitReached, ShuttingDown, StoreUnavailable
from holdfast.events import LEFT_TO_OTHERS, Completed, Failed, Finish, Interrupted, Stopped, Text
from holdfast.history import Message, Session
from holdfast.ids import new_id
from holdfast.nodes import intents
from holdfast.runs.run import Limits, Run
from holdfast.store import Append, RunRecord
from holdfast.store.memory import MemoryStore
from holdfast.store.records import NodeDetails
from tests.requirements import requirement
from tests.support.rows import lose_events
from tests.support.waiting import LONG, SOON


async def forever(*words: str) -> AsyncIterator[str]:
    for word in words:
        yield word
    await asyncio.Event().wait()


async def spoken(run: Run, text: str) -> None:
    async with asyncio.timeout(LONG):
        while run.text != text:  # noqa: ASYNC110 - the log has no event for a text
            await asyncio.sleep(0.005)


class Clock:
    """The store's clock, which a test sets forward."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LosesHints(MemoryStore):
    """No hint arrives."""

    async def hint(self, topic, ids, to=""):
        pass


@asynccontextmanager
async def nodes(store: MemoryStore, count: int = 2, **options: Any) -> AsyncIterator[list[Core]]:
    async with AsyncExitStack() as stack:
        engines = [Core(store, **options) for _ in range(count)]
        for engine in engines:
            await stack.enter_async_context(engine)
        for engine in engines:
            await engine.look()  # so that each knows of the others
        yield engines


@requirement("nodes.any")
@pytest.mark.parametrize("store", [MemoryStore, LosesHints])
async def test_a_stop_through_another_node_ends_the_run(store):
    """Any node answers any client. A lost hint costs one look."""
    async with nodes(store(), lease=0.6) as (owner, other):
        run = await owner.start(forever("one "), keep=True)
        await spoken(run, "one ")
        async with asyncio.timeout(LONG):
            result = await (await other.open(run.id)).stop()

        assert isinstance(result.settlement, Stopped)
        assert ("one ", "user", True) == (result.settlement.text, result.settlement.by, result.by_this_call)
        assert result.settlement == await run.settled()


@requirement("nodes.takeover")
async def test_a_stop_whose_owner_has_died_is_found_by_the_successor():
    """It settles as stopped by the user, not as interrupted: the stop was accepted before the death."""
    store = MemoryStore()
    dead = Core(store)
    run = await dead.start(forever("one "), keep=True)
    await spoken(run, "one ")
    store.listen(dead.node_id, lambda topic, id: None)
    async with Core(store, lease=0.6) as other:
        stopping = asyncio.create_task((await other.open(run.id)).stop())
        async with asyncio.timeout(LONG):
            while not await store.open_intents(dead.node_id):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await store.release(dead.node_id)
            result = await stopping
    await dead.close()

    assert isinstance(result.settlement, Stopped)
    assert ("one ", "user") == (result.settlement.text, result.settlement.by)
    record = await store.get_run(run.id)
    assert record is not None
    assert 2 == record.epoch


@requirement("nodes.any")
async def test_a_stop_that_its_owner_does_not_answer_is_withdrawn_and_says_so(monkeypatch):
    """A caller must not believe that a run has stopped which goes on, and must not wait for ever."""
    monkeypatch.setattr(intents, "PATIENCE", 0.2)
    store = MemoryStore()
    silent = Core(store)
    run = await silent.start(forever("one "), keep=True)
    await spoken(run, "one ")
    await store.renew("other", 3600.0)
    silent_listens = store.listen(silent.node_id, lambda topic, id: None)
    async with Core(store) as other:
        with pytest.raises(OwnerSilent, match="The request was withdrawn"):
            await (await other.open(run.id)).stop()
        open_ones = await store.open_intents(silent.node_id)
    silent_listens()
    await silent.close()

    assert [] == open_ones


@requirement("nodes.any")
async def test_stopping_a_session_reaches_the_run_of_another_node():
    """And a message that interrupts does, too: it starts after the partial of the run that it replaces."""
    store = MemoryStore()
    await store.create_session(Session(id="ses_1", owner=""))

    def message() -> list[Message]:
        return [Message(id=new_id("usr"), role="user", content="Hi.")]

    def record() -> RunRecord:
        return RunRecord(id=new_id("run"), session_id="ses_1", message_id=new_id("msg"))

    async with nodes(store) as (one, two):
        first = await one.submit(record(), message(), source=forever("one "))
        await spoken(first, "one ")
        async with asyncio.timeout(LONG):
            second = await two.submit(record(), message(), source=forever("two "), if_busy="interrupt")
            replaced = await first.settled()
        await spoken(second, "two ")
        async with asyncio.timeout(LONG):
            stopped = await one.stop_session("ses_1")

        assert isinstance(replaced, Stopped)
        assert "replaced" == replaced.by
        assert [second.id] == [run.id for run in stopped]
        assert isinstance(await second.settled(), Stopped)
        texts = [message.content for message in await store.messages("ses_1")]
        assert ["Hi.", "one ", "Hi.", "two "] == texts


@requirement("nodes.any")
async def test_a_request_to_the_owner_is_answered_by_it():
    """Steering and approvals are of the process that runs the agent. An error of it is the caller's error."""
    asked = []

    async def serve(run: Run, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        asked.append((run.id, kind, body))
        if body["text"] == "no":
            raise CannotSteer("It is finishing.")
        return {"took": body["text"]}

    async with nodes(MemoryStore(), serve=serve) as (owner, other):
        run = await owner.start(forever("one "), keep=True)
        far = await other.open(run.id)
        answer = await other.ask_owner(far, "steer", {"text": "left"})
        with pytest.raises(HoldfastError, match=r"It is finishing\.") as refused:
            await other.ask_owner(far, "steer", {"text": "no"})

        assert {"took": "left"} == answer
        assert ("cannot_steer", 409) == (refused.value.code, refused.value.status)
        assert [(run.id, "steer", {"text": "left"}), (run.id, "steer", {"text": "no"})] == asked
        assert other.is_elsewhere(far)
        assert not owner.is_elsewhere(run)


@requirement("nodes.fence")
async def test_a_node_that_was_fenced_drops_its_runs_and_goes_on_under_a_new_id():
    """It may only have slept. Its sources are closed, and it serves new runs."""
    closed = asyncio.Event()

    async def source() -> AsyncIterator[str]:
        try:
            yield "one "
            await asyncio.Event().wait()
        finally:
            closed.set()

    store = MemoryStore()
    async with Core(store, lease=0.3) as engine:
        before = engine.node_id
        run = await engine.start(source(), keep=True)
        await spoken(run, "one ")
        async with Core(store) as successor:
            await store.release(before)
            await successor.look()
            async with asyncio.timeout(LONG):
                await closed.wait()
                settlement = await run.settled()
        again = await engine.start(forever("two "), keep=True)
        await spoken(again, "two ")

        assert isinstance(settlement, Interrupted)
        assert "one " == settlement.text
        assert before != engine.node_id == again.record.node_id


@requirement("nodes.outage")
async def test_after_an_outage_of_the_store_no_run_is_taken_from_a_living_node():
    """All leases have ended by then: the first node that comes back must leave the others time to renew theirs."""
    clock = Clock()
    store = MemoryStore(clock)
    async with nodes(store, 3) as (owner, *others):
        run = await owner.start(forever("one "), keep=True)
        clock.now += 3600
        for other in others:
            await other.check_store()
            await other.look()
        await owner.check_store()
        for other in others:
            await other.look()

        record = await store.get_run(run.id)
        assert record is not None
        assert (1, owner.node_id) == (record.epoch, record.node_id)


class SlowToHint(MemoryStore):
    """A hint is sent only after the lease was renewed."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals = 0
        self.renewed = asyncio.Event()

    async def renew(self, node_id, seconds, details):
        self.renewals += 1
        if self.renewals > 1:
            self.renewed.set()
        return await super().renew(node_id, seconds, details)

    async def hint(self, topic, ids, to=""):
        await self.renewed.wait()
        await super().hint(topic, ids, to)


@requirement("nodes.outage")
async def test_a_node_renews_its_lease_while_the_store_is_slow_to_tell_the_others_of_it():
    """The lease would end before the start is over, and others would take the first run of a living node."""
    async with asyncio.timeout(SOON), Core(SlowToHint(), lease=0.3) as engine:
        run = await engine.start(forever("one "), keep=True)

    assert (1, engine.node_id) == (run.record.epoch, run.record.node_id)


@requirement("nodes.rollback")
async def test_a_store_that_was_rolled_back_gets_again_what_it_lacks():
    """After a failover to a standby that was behind, the living owner has every word."""
    store = MemoryStore()
    more = asyncio.Event()

    async def source() -> AsyncIterator[str]:
        yield "one "
        yield "two "
        await more.wait()
        yield "three"

    async with Core(store) as engine:
        run = await engine.start(source(), keep=True)
        await spoken(run, "one two ")
        lose_events(store, run.id, 1)
        more.set()
        async with asyncio.timeout(LONG):
            settlement = await run.settled()
        log = await store.read_log(run.id, 0)

    assert isinstance(settlement, Completed)
    assert "one two three" == "".join(getattr(event, "text", "") for event in log)


class Faulty(MemoryStore):
    """Leases cannot be renewed while `is_full`. One append of a run that is sent again is refused by a bug."""

    is_full = False
    broken = ""

    async def renew(self, *node, **details):
        if self.is_full:
            raise StoreUnavailable("The disk is full.")
        return await super().renew(*node, **details)

    async def append(self, node_id, entries):
        if [self.broken] == [entry.run_id for entry in entries if entry.first == 2]:
            self.broken = ""
            raise RuntimeError("a bug of the store")
        return await super().append(node_id, entries)


@requirement("nodes.rollback")
async def test_a_run_that_cannot_be_sent_again_fails_alone():
    """The others of its commit were saved, and must be shown and settled."""
    store, more = Faulty(), asyncio.Event()

    async def source() -> AsyncIterator[str]:
        yield "one "
        await more.wait()
        yield "two"

    async with Core(store) as engine:
        runs = [await engine.start(source(), keep=True) for _ in range(2)]
        for run in runs:
            await spoken(run, "one ")
        lose_events(store, runs[0].id, 1)
        store.broken = runs[0].id
        more.set()
        async with asyncio.timeout(LONG):
            first, second = [await run.settled() for run in runs]

    assert (Failed, "store_failed") == (type(first), first.error.code)
    assert (Completed, "one two") == (type(second), second.text)


@requirement("nodes.fence")
async def test_the_first_run_after_a_node_was_fenced_is_its_own():
    """It was stored under the old id of the node, and settled as one whose server had died."""
    store = Faulty()
    async with Core(store, lease=0.2) as engine:
        store.is_full = True
        await store.release(engine.node_id)
        await asyncio.sleep(0.4)  # its lease ends
        store.is_full = False
        async with asyncio.timeout(LONG):
            run = await engine.start(forever("hello"), keep=True)
            await spoken(run, "hello")
            settlement, _ = await run.stop(by="user")

    assert isinstance(settlement, Stopped)


@requirement("nodes.outage")
async def test_looks_at_a_store_that_cannot_write_start_nothing_twice():
    """Each look started a task for each session that waits, for as long as the disk was full."""
    store = Faulty()
    async with Core(store, sources=lambda run: forever("x"), lease=0.2) as engine:
        for id in ("ses_1", "ses_2"):
            await store.create_session(Session(id=id, owner="u"))
            for _ in range(2):
                record = RunRecord(id=new_id("run"), owner="u", session_id=id, message_id=new_id("msg"))
                await engine.submit(record, [], if_busy="queue")
        store.is_full = True
        await asyncio.sleep(0.4)  # its lease ends
        for _ in range(20):
            await engine.look()
        work = engine.held["work"]
        store.is_full = False

    assert work <= 4


@requirement("nodes.any")
@pytest.mark.parametrize("store", [MemoryStore, LosesHints])
async def test_who_watches_a_session_on_another_node_is_woken(store):
    """By a hint, or by the next look if the hint was lost."""
    medium = store()
    await medium.create_session(Session(id="ses_1", owner=""))
    woken = asyncio.Event()
    async with nodes(medium, lease=0.6) as (one, two):
        unwatch = two.watch_session("ses_1", woken.set)
        one.touch("ses_1", "")
        async with asyncio.timeout(LONG):
            await woken.wait()
        unwatch()


async def test_a_node_tells_of_itself():
    """Its address for the other nodes, its version, and how much it does."""
    store = MemoryStore()
    async with Core(store, node=NodeDetails(address="10.0.0.1:8788", version="1")) as engine:
        await engine.start(forever("one "), keep=True)
        await engine.check_store()
        (node,) = await store.nodes()

    assert (engine.node_id, "10.0.0.1:8788", "1") == (node.id, node.address, node.version)
    assert {"runs": 1, "draining": 0, "unstored": 0} == node.counts
    assert [] == await store.nodes()
    assert ["fenced"] == await store.append(engine.node_id, [Append("run", 1, 1, ())])


@requirement("nodes.limits")
async def test_the_stored_runs_of_an_owner_are_limited_over_all_nodes():
    """A second server must not double what an owner may have at once. Runs of others do not count."""
    async with nodes(MemoryStore(), limits=Limits(runs_per_owner=2)) as (one, two):
        first = await one.start(forever("one "), keep=True, owner="ann")
        await two.start(forever("two "), keep=True, owner="ann")
        await one.start(forever("other "), keep=True, owner="bob")
        for node in (one, two):
            with pytest.raises(RunLimitReached):
                await node.start(forever("three "), keep=True, owner="ann")
        await first.stop()
        third = await two.start(forever("three "), keep=True, owner="ann")

        assert "running" == third.status


# a node that ends


def is_claimed_by(store: MemoryStore, run: Run, node: Core) -> Any:
    async def is_so() -> bool:
        record = await store.get_run(run.id)
        return record is not None and record.node_id == node.node_id

    return is_so


async def until(is_so: Any) -> None:
    async with asyncio.timeout(LONG):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@requirement("nodes.drain")
async def test_a_node_that_drains_says_so_and_gives_up_at_once_what_only_waits():
    """A person who decides meanwhile must not wait for the end of the drain: another node has the run by then."""
    store = MemoryStore()

    async def again(record: RunRecord, log: Any) -> Any:
        return forever("again ")

    async with nodes(store, again=again) as (one, two):
        waiting, busy = [await one.start(forever("one "), keep=True) for _ in range(2)]
        waiting.waits = True
        closing = asyncio.create_task(one.close(drain=LONG))
        await until(is_claimed_by(store, waiting, two))
        drained = {node.id: node.counts for node in await store.nodes()}
        is_closing = not closing.done()
        with pytest.raises(ShuttingDown):
            await one.start(forever("late "), keep=True)
        await busy.stop()
        async with asyncio.timeout(LONG):
            await closing
        await spoken(await two.open(waiting.id), "one again ")

        assert is_closing
        assert (1, 0) == (drained[one.node_id]["draining"], drained[two.node_id]["draining"])
        assert [two.node_id] == [node.id for node in await store.nodes()]


@requirement("nodes.drain")
async def test_a_run_that_another_node_can_go_on_with_is_left_to_it_after_the_drain():
    """Its source learns that its upstream is not to be stopped. What no other node can go on with is stopped here."""
    store, cancels = MemoryStore(), []

    async def noting() -> AsyncIterator[str]:
        yield "one "
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            cancels.append(cancelled.args)
            raise

    async def rest() -> AsyncIterator[str]:
        yield "two"

    async def again(record: RunRecord, log: Any) -> Any:
        return rest() if record.model == "keeps" else None

    async def elsewhere(record: RunRecord, log: Any) -> bool:
        return record.model == "keeps"

    async with nodes(store, again=again, elsewhere=elsewhere) as (one, two):
        left, stopped = [await one.start(noting(), keep=True, model=model) for model in ("keeps", "forgets")]
        for run in (left, stopped):
            await spoken(run, "one ")
        await one.close(drain=0.0)
        async with asyncio.timeout(LONG):
            ends = [await (await two.open(run.id)).settled() for run in (left, stopped)]

    assert isinstance(ends[0], Completed)
    assert isinstance(ends[1], Stopped)
    assert ["one two", "one "] == [end.text for end in ends]
    assert "shutdown" == ends[1].by
    assert [(LEFT_TO_OTHERS,), ()] == cancels


@requirement("nodes.drain")
async def test_the_only_node_leaves_to_the_next_start_what_that_can_go_on_with():
    """A deploy of one server must not cut answers either. What nobody can go on with is stopped."""
    store = MemoryStore()

    async def elsewhere(record: RunRecord, log: Any) -> bool:
        return record.model == "continues"

    async def again(record: RunRecord, log: Any) -> Any:
        return one_word()

    async with Core(store, elsewhere=elsewhere) as only:
        left, stopped = [await only.start(forever("and "), keep=True, model=each) for each in ("continues", "ends")]
        for run in (left, stopped):
            await spoken(run, "and ")
        await only.close()
    async with Core(store, again=again) as started:
        async with asyncio.timeout(LONG):
            completed = await (await started.open(left.id)).settled()

    settled = await stopped.settled()
    assert isinstance(settled, Stopped)
    assert ("and ", "shutdown") == (settled.text, settled.by)
    assert isinstance(completed, Completed)
    assert "and one" == completed.text


def submitted(engine: Core) -> Any:
    """Submit a message to the session of a test, which may wait."""
    record = RunRecord(id=new_id("run"), session_id="ses_1", message_id=new_id("msg"))
    message = Message(id=new_id("usr"), role="user", content="Hi.")
    return engine.submit(record, [message], if_busy="queue")


@requirement("nodes.follow")
async def test_a_message_that_waits_at_one_node_is_read_there_as_soon_as_another_starts_it():
    """Its reader must not see a message that waits while the answer grows elsewhere: the next look is far away."""
    store = MemoryStore()
    await store.create_session(Session(id="ses_1", owner=""))

    async with nodes(store, sources=lambda run: forever("said "), lease=600) as (one, two):
        first, second = await submitted(one), await submitted(two)
        await first.stop()
        async with asyncio.timeout(SOON):
            text = await first_text(second)

    assert "said " == text


async def first_text(run: Run) -> str:
    async for _, event in run.read():
        if isinstance(event, Text):
            return event.text
    raise AssertionError("it ended without a word")


@requirement("nodes.any")
async def test_no_node_says_of_a_message_that_it_waits_once_another_has_started_it():
    """Hints may be lost: whoever asks for the run gets it as the store has it."""
    store = LosesHints()
    await store.create_session(Session(id="ses_1", owner=""))

    async with nodes(store, sources=lambda run: forever("said "), lease=600) as (one, two):
        first, second = await submitted(one), await submitted(two)
        await first.stop()
        await until(is_claimed_by(store, second, one))
        opened = await two.open(second.id)

    assert ("queued", "running") == (second.status, opened.status)


@requirement("nodes.drain")
async def test_the_next_message_of_a_session_starts_on_another_node_while_one_drains():
    """It does not wait for the end of the drain, nor for the next look."""
    store = MemoryStore()
    await store.create_session(Session(id="ses_1", owner=""))

    async with nodes(store, sources=lambda run: forever("said ")) as (one, two):
        first, other = await submitted(one), await one.start(forever("busy "), keep=True)
        second = await submitted(one)
        await spoken(first, "said ")
        closing = asyncio.create_task(one.close(drain=LONG))
        await until(lambda: closes(one))
        await first.stop()
        await until(is_claimed_by(store, second, two))
        is_closing = not closing.done()
        await other.stop()
        await closing

        assert is_closing


async def closes(engine: Core) -> bool:
    return engine.closing


async def read_all(run: Run, after: int = 0) -> list[int]:
    async with asyncio.timeout(LONG):
        return [seq async for seq, _ in run.read(after)]


@requirement("nodes.follow")
async def test_a_reader_of_a_run_that_its_node_has_lost_reads_on_to_the_end():
    """Its node was taken for dead. The reader is connected to it, and sees the end that another node has decided."""
    store = MemoryStore(clock := Clock())
    async with nodes(store, lease=9.0) as (owner, other):
        run = await owner.start(forever("one "), keep=True)
        await spoken(run, "one ")
        reading = asyncio.create_task(read_all(run))
        clock.now += 10.0
        await store.renew(other.node_id, 3600.0)
        clock.now += 7.0
        await other.look()
        await owner.check_store()  # it learns that it was fenced
        settled = await (await other.open(run.id)).settled()
        seen = await reading

    assert isinstance(settled, Interrupted)
    assert [1, 2, 3] == seen


@requirement("nodes.any")
async def test_a_stop_through_another_node_returns_the_run_as_its_owner_has_it():
    """The text, the number of the last event and the time of the end are those of the run that has ended."""
    async with nodes(MemoryStore()) as (owner, other):
        run = await owner.start(forever("one "), keep=True)
        await spoken(run, "one ")
        there = await other.open(run.id)
        await there.stop()

        assert (run.text, run.seq, run.record.settled_at) == (there.text, there.seq, there.record.settled_at)


@requirement("nodes.follow")
async def test_a_reader_that_has_seen_more_than_its_node_shows_continues_from_the_store():
    """The store has events whose confirmation was lost. Another node shows them, and this one does not yet."""
    store = MemoryStore()
    async with nodes(store) as (owner, other):
        run = await owner.start(forever("one "), keep=True)
        await spoken(run, "one ")
        await store.append(owner.node_id, [Append(run.id, 1, 3, [Text("two")])])
        there = await other.open(run.id)
        here = await owner.at(run, there.seq)

        assert (2, 3, 3) == (run.seq, there.seq, here.seq)
        assert run is await owner.at(run, 2)
        assert run is await owner.at(run, 4), "no node has shown it"


class SlowToCreate(MemoryStore):
    """Adds a run when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def create_run(self, *args, **options):
        self.asked.set()
        await self.goes_on.wait()
        return await super().create_run(*args, **options)


async def test_a_run_that_was_accepted_as_its_node_began_to_end_may_end_by_itself():
    """It has as long as any other run of a node that drains."""
    store = SlowToCreate()
    engine = Core(store)
    starting = asyncio.create_task(engine.start(one_word(), keep=True))
    await store.asked.wait()
    closing = asyncio.create_task(engine.close(drain=LONG))
    async with asyncio.timeout(LONG):
        while not engine.closing:  # noqa: ASYNC110
            await asyncio.sleep(0)
        store.goes_on.set()
        settled = await (await starting).settled()
        await closing

    assert isinstance(settled, Completed)
    assert "one" == settled.text


async def one_word() -> AsyncIterator[Any]:
    yield "one"
    yield Finish("stop")


async def test_a_run_that_its_node_has_lost_ends_there_with_the_text_that_another_has_stored():
    """A stop at the old owner returns the run: its text and the number of its last event, not what was shown there."""
    store = MemoryStore(clock := Clock())
    async with nodes(store, lease=9.0) as (owner, other):
        run = await owner.start(forever("one "), keep=True)
        await spoken(run, "one ")
        await store.append(owner.node_id, [Append(run.id, 1, 3, [Text("two")])])
        clock.now += 10.0
        await store.renew(other.node_id, 3600.0)
        clock.now += 7.0
        await other.look()
        await owner.check_store()
        async with asyncio.timeout(LONG):
            settled = await run.settled()

    assert ("one two", "one two", 4) == (settled.text, run.text, run.seq)


class CountsHints(MemoryStore):
    """Counts the hints that a node has left something."""

    left = 0

    async def hint(self, topic, ids, to=""):
        self.left += topic == "left"
        await super().hint(topic, ids, to)


@requirement("nodes.drain")
async def test_nodes_that_all_drain_do_not_send_each_other_after_a_message_that_waits():
    """None of them starts it. A hint that each answers with another would keep them and the store busy to the end."""
    store = CountsHints()
    await store.create_session(Session(id="ses_1", owner=""))
    async with nodes(store, sources=lambda run: forever("said ")) as (one, two):
        busy = [await engine.start(forever("busy "), keep=True) for engine in (one, two)]
        for run in busy:
            await spoken(run, "busy ")
        first, _ = [await submitted(one) for _ in range(2)]
        await spoken(first, "said ")
        closing = [asyncio.create_task(engine.close(drain=LONG)) for engine in (one, two)]
        for engine in (one, two):
            await until(partial(closes, engine))
        await first.stop()
        for _ in range(200):  # turns of the loop: each would carry a hint
            await asyncio.sleep(0)
        sent = store.left
        for run in busy:
            await run.stop()
        await asyncio.gather(*closing)

    assert sent <= 2, "a run has ended on one node, which hints at it once"


@requirement("nodes.drain", "stop.prompt")
async def test_a_run_that_is_stopped_while_its_node_asks_who_could_continue_it_is_not_left_to_another():
    """The other node would go on with an answer that the user has stopped."""
    store, asked, answer, gone = MemoryStore(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> AsyncIterator[str]:
        yield "one "
        try:
            await gone.wait()
        finally:
            answer.set()
            await gone.wait()

    async def again(record: RunRecord, log: Any) -> Any:
        return one_word()

    async def elsewhere(record: RunRecord, log: Any) -> bool:
        asked.set()
        await answer.wait()
        return True

    async with nodes(store, again=again, elsewhere=elsewhere) as (one, _):
        run = await one.start(slow_to_end(), keep=True)
        await spoken(run, "one ")
        closing = asyncio.create_task(one.close())
        async with asyncio.timeout(LONG):
            await asked.wait()
            result = await run.stop()
            gone.set()
            await closing

    assert isinstance(result.settlement, Stopped)
    assert ("one ", "user", True) == (result.settlement.text, result.settlement.by, result.by_this_call)


@requirement("nodes.drain", "stop.prompt")
async def test_a_run_that_waits_and_was_stopped_is_not_left_to_another_node():
    """Another node would wait for a decision on a run that the user has stopped."""
    store, gone = MemoryStore(), asyncio.Event()

    async def slow_to_end() -> AsyncIterator[str]:
        yield "one "
        try:
            await gone.wait()
        finally:
            await gone.wait()

    async def again(record: RunRecord, log: Any) -> Any:
        return one_word()

    async with nodes(store, again=again) as (one, _):
        run = await one.start(slow_to_end(), keep=True)
        await spoken(run, "one ")
        run.waits = True
        stopping = asyncio.create_task(run.stop())
        await asyncio.sleep(0)
        await one.close()
        async with asyncio.timeout(LONG):
            result = await stopping
        gone.set()

    assert isinstance(result.settlement, Stopped)
    assert "user" == result.settlement.by


@requirement("nodes.drain")
async def test_a_node_that_ends_asks_for_all_of_its_runs_at_once_who_could_continue_them():
    """An upstream that does not answer costs a moment, not a moment for each run."""
    store, asked = MemoryStore(), 0

    async def elsewhere(record: RunRecord, log: Any) -> bool:
        nonlocal asked
        asked += 1
        async with asyncio.timeout(LONG):
            while asked < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return True

    async with nodes(store, elsewhere=elsewhere) as (one, two):
        runs = [await one.start(forever("one "), keep=True) for _ in range(5)]
        await one.close()
        async with asyncio.timeout(LONG):
            settled = [await (await two.open(run.id)).settled() for run in runs]

    assert 5 == sum(isinstance(each, Interrupted) for each in settled), "the other node has no way to go on"


class LosesReplies(MemoryStore):
    """Does what it is asked to hold, and loses the reply for as long as the test says."""

    loses = False

    async def hold(self, kind, id, node_id):
        held = await super().hold(kind, id, node_id)
        if self.loses:
            raise StoreUnavailable("The reply was lost.")
        return held


class Pieces:
    """Work of a kind that only notes what it takes up."""

    def __init__(self) -> None:
        self.taken_up: list[str] = []

    async def take_up(self, id: str) -> None:
        self.taken_up.append(id)

    def heed(self, id: str) -> None:
        pass

    def drop(self) -> None:
        pass

    async def close(self) -> None:
        pass


@requirement("nodes.work")
async def test_a_piece_of_work_whose_taking_the_store_did_not_confirm_is_taken_up_later():
    """This node has it then, so that no other would ever take it: a batch would stand still until a restart."""
    store, pieces = LosesReplies(), Pieces()
    dead = Core(store)
    await dead.check_store()
    for id in ("one", "two"):
        await dead.holds.take("piece", id)
    async with Core(store) as engine:
        engine.holds.add("piece", pieces)
        await store.release(dead.node_id)
        store.loses = True
        with pytest.raises(StoreUnavailable):
            await engine.holds.look()
        store.loses = False
        await engine.holds.look()
        await until(lambda: _has(pieces.taken_up, 2))
        await engine.holds.look()
    await dead.close()

    assert ["one", "two"] == sorted(pieces.taken_up)


@requirement("nodes.work")
async def test_a_request_waits_until_another_node_has_let_go_of_a_piece_of_work():
    """The other node is told, and ends its work in its own time."""
    store = MemoryStore()
    async with Core(store) as owner, Core(store) as other:
        await owner.holds.take("piece", "one")
        waiting = asyncio.create_task(other.holds.ended_elsewhere("piece", "one"))
        has_waited = not (await asyncio.wait({waiting}, timeout=0.05))[0]
        await owner.holds.let_go("piece", "one")
        await asyncio.wait_for(waiting, LONG)

        assert has_waited
        assert not await other.holds.is_elsewhere("piece", "one")


async def _has(found: list[str], count: int) -> bool:
    return len(found) >= count
