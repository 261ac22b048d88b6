"""Sources whose events are handed over in the call that brings them: the same runs, without a task for each token."""

import asyncio

import pytest

from holdfast import Completed, Engine, Failed, Finish, Limits, Stopped, Text
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement


class Brook:
    """A flow that says what the test tells it to, when the test does."""

    def __init__(self):
        self.is_over = False
        self.has_said = False
        self.flows = asyncio.Event()
        self.takers = []

    async def pour(self, take):
        self.takers.append(take)
        self.enough = asyncio.Event()
        self.flows.set()
        await self.enough.wait()

    def say(self, *events):
        self.has_said = True
        if not self.takers[-1](list(events)):
            self.enough.set()

    def end(self):
        self.is_over = True
        self.enough.set()


@pytest.fixture
def brook():
    return Brook()


@pytest.fixture
async def engine():
    async with Engine(MemoryStore(), limits=Limits(grace=0.05)) as engine:
        yield engine


async def source(brook, *after, closed=None):
    try:
        yield "before, "
        yield brook
        for item in after:
            yield item
    finally:
        if closed is not None:
            closed.set()


@requirement("start.text-exact")
async def test_what_flows_stands_between_what_is_yielded(engine, brook):
    """A source goes on after its flow as if it had yielded all of that itself."""
    run = await engine.start(source(brook, "after", Finish("stop")))
    await brook.flows.wait()
    brook.say(Text("within, "), Text("and more, "))
    assert "before, within, and more, " == run.text
    brook.end()

    settled = await run.settled()

    assert isinstance(settled, Completed)
    assert "before, within, and more, after" == settled.text


@requirement("stop.partial-once")
async def test_a_run_is_stopped_in_the_middle_of_a_flow(engine, brook):
    """The partial is kept, the source is closed, and what still flows is refused."""
    closed = asyncio.Event()
    run = await engine.start(source(brook, closed=closed))
    await brook.flows.wait()
    brook.say(Text("so far"))

    settled = await run.stop()

    assert isinstance(settled, Stopped)
    assert "before, so far" == settled.text
    await asyncio.wait_for(closed.wait(), 5)
    with pytest.raises(Exception, match=r"settled|ended"):
        brook.say(Text(" and too late"))
    assert "before, so far" == run.text


@requirement("truth.raise")
async def test_a_flow_that_breaks_fails_its_run(engine, brook):
    """As with any source, what was said before stays."""

    async def pour(take):
        take([Text("some")])
        raise ConnectionResetError

    brook.pour = pour
    settled = await (await engine.start(source(brook))).settled()

    assert isinstance(settled, Failed)
    assert "before, some" == settled.text


async def test_a_flow_waits_for_a_store_that_is_far_behind():
    """Or its events would fill the memory."""
    store = Held()
    async with Engine(store, limits=Limits(unsaved=3)) as engine:
        brook = Brook()
        run = await engine.start(source(brook, Finish("stop")), keep=True)
        await brook.flows.wait()
        brook.flows.clear()
        brook.say(*[Text("x")] * 5)
        assert brook.enough.is_set()
        assert 1 == len(brook.takers)

        store.is_open.set()
        await brook.flows.wait()
        brook.end()
        settled = await run.settled()

    assert "before, xxxxx" == settled.text


class Held(MemoryStore):
    """Saves no events before it is opened."""

    def __init__(self):
        super().__init__()
        self.is_open = asyncio.Event()

    async def append(self, entries):
        await self.is_open.wait()
        return await super().append(entries)
