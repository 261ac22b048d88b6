"""Push sources: coroutines that emit events into an outlet."""

import asyncio

import pytest

from holdfast import Completed, Failed, Finish, Limits, Stopped, Text
from holdfast.engine.core import Core
from holdfast.errors import RunSettled
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.waiting import LONG


@pytest.fixture(name="engine")
async def _engine():
    async with Core(MemoryStore(), limits=Limits(grace=0.05)) as engine:
        yield engine


@pytest.fixture(name="keep", params=[False, True], ids=["in memory", "kept"])
def _keep(request):
    return request.param


class Told:
    """A push source that emits what the test tells it to, when the test does."""

    def __init__(self):
        self.out = None
        self.started = asyncio.Event()
        self.ends = asyncio.Event()
        self.was_left = asyncio.Event()

    async def __call__(self, out):
        self.out = out
        self.started.set()
        try:
            await self.ends.wait()
        finally:
            self.was_left.set()


@requirement("start.text-exact")
async def test_what_is_emitted_is_the_answer(engine, keep):
    """Strings, events and several at once: the same as an iterator may yield."""

    async def source(out):
        out.emit(["a, ", Text("b, ")])
        out.emit([Text("c")])
        out.emit([Finish("stop")])

    settled = await (await engine.start(source, keep=keep)).settled()

    assert (Completed, "a, b, c") == (type(settled), settled.text)


@requirement("stop.partial-once")
async def test_a_stop_ends_a_push_source_and_refuses_what_it_still_emits(engine, keep):
    """The partial is kept, the coroutine is cancelled, and the sealed log takes nothing more."""
    source = Told()
    run = await engine.start(source, keep=keep)
    await source.started.wait()
    source.out.emit([Text("so far")])

    settled = (await run.stop()).settlement

    assert (Stopped, "so far") == (type(settled), settled.text)
    await asyncio.wait_for(source.was_left.wait(), LONG)
    with pytest.raises(RunSettled):
        source.out.emit([Text(" and too late")])
    assert "so far" == run.text


@requirement("truth.last-word")
async def test_a_push_source_that_raises_after_its_finish_has_failed(engine, keep):
    """An error wins over what the source said before."""

    async def source(out):
        out.emit([Text("some"), Finish("stop")])
        raise ConnectionResetError

    settled = await (await engine.start(source, keep=keep)).settled()

    assert (Failed, "some") == (type(settled), settled.text)


@requirement("truth.last-word")
async def test_a_push_source_that_goes_on_after_its_finish_has_not_finished(engine, keep):
    """Text that follows is part of the answer, although plain text takes a shorter way into the log."""
    source = Told()
    run = await engine.start(source, keep=keep)
    await source.started.wait()
    for events in ([Text("first")], [Finish("stop")], [", more"]):
        source.out.emit(events)

    settled = (await run.stop()).settlement

    assert (Stopped, "first, more") == (type(settled), settled.text)


async def test_a_pushed_text_that_cannot_be_stored_is_mended(engine, keep):
    """Half an emoji can be neither sent nor stored, wherever in the answer it comes."""

    async def source(out):
        for text in ("a", "b", "\ud83d", "c"):
            out.emit([Text(text)])

    settled = await (await engine.start(source, keep=keep)).settled()

    assert (Completed, "ab?c") == (type(settled), settled.text)


async def test_a_push_source_that_emits_something_else_has_failed(engine, keep):
    """The check of an iterator's events holds for emitted events too."""

    async def source(out):
        out.emit([Text("some"), 7])

    settled = await (await engine.start(source, keep=keep)).settled()

    assert (Failed, "") == (type(settled), settled.text)


async def test_a_push_source_waits_for_a_store_that_is_far_behind():
    """`emit` returns False when enough is unsaved, and `room` returns when the store has it."""
    store, went_on = Held(), asyncio.Event()

    async def source(out):
        assert out.emit([Text("x")])
        assert not out.emit([Text("x")] * 5)
        await out.room()
        went_on.set()
        assert out.emit([Text("y")])

    async with Core(store, limits=Limits(unsaved=3)) as engine:
        run = await engine.start(source, keep=True)
        await store.was_asked.wait()
        assert not went_on.is_set()
        store.is_open.set()
        settled = await run.settled()

    assert (Completed, "xxxxxxy") == (type(settled), settled.text)


@requirement("stop.partial-once")
async def test_a_generator_is_closed_by_the_task_that_iterated_it(engine, keep):
    """Whatever ended it: its `finally` runs in the task, and with the context variables, that it began with."""
    tasks = []
    yielded = asyncio.Event()

    async def generator():
        tasks.append(asyncio.current_task())
        try:
            yield "so far"
            yielded.set()
            await asyncio.Event().wait()
        finally:
            tasks.append(asyncio.current_task())

    run = await engine.start(generator(), keep=keep)
    await yielded.wait()

    settled = (await run.stop()).settlement

    assert (Stopped, "so far") == (type(settled), settled.text)
    assert 2 == len(tasks)
    assert tasks[0] is tasks[1]


class Held(MemoryStore):
    """Saves no events before it is opened."""

    def __init__(self):
        super().__init__()
        self.is_open = asyncio.Event()
        self.was_asked = asyncio.Event()

    async def append(self, node_id, entries):
        self.was_asked.set()
        await self.is_open.wait()
        return await super().append(node_id, entries)
