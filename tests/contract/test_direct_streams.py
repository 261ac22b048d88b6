"""Streams on our own server, which sends what a log says from within the call that brought it."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from holdfast import Engine
from holdfast.asgi import EventStream, RunFrames, events
from holdfast.server.serving import Protocol
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.served import Served


class Gated:
    """A source that says its next word when the test lets it."""

    def __init__(self, *words):
        self.words = words
        self.gates = [asyncio.Event() for _ in words]

    async def __call__(self):
        for word, gate in zip(self.words, self.gates, strict=True):
            await gate.wait()
            yield word


@pytest.fixture
async def engine():
    async with Engine(MemoryStore()) as engine:
        yield engine


def served(endpoint):
    return Served(Starlette(routes=[Route("/events", endpoint)]), lifespan="off", http=Protocol)


async def until(stream, what):
    """Read until something was said; return all that was."""
    said = ""
    async with asyncio.timeout(20):
        while (frame := await stream.next_event()) is not None:
            said += frame.data
            if what in frame.data:
                return said
    raise AssertionError(f"{what!r} was never said, only {said!r}")


@requirement("sub.replay-then-live")
async def test_a_run_that_goes_on_in_another_process_is_followed(engine):
    """Its log is read from the store now and then: nobody here wakes a stream for it."""
    source = Gated("one ", "two")
    run = await engine.start(source(), keep=True)
    async with Engine(engine.store) as other:

        async def read(request):
            return events(await other.open(run.id), request, heartbeat=3600)

        async with served(read) as server, server.client() as client:
            stream = await client.get("/events")
            source.gates[0].set()
            await until(stream, "one ")
            source.gates[1].set()
            await until(stream, "two")
            await until(stream, "completed")


async def test_a_stream_that_cannot_be_rendered_hurts_nobody_else(engine):
    """The log is written by the run's own task: an error of one reader must not become the run's."""
    source = Gated("one ", "two ", "three")
    run = await engine.start(source())

    def render(first, said):
        if any(getattr(event, "text", "") == "two " for event in said):
            raise RuntimeError("this rendering is broken")
        return b"data: %d\n\n" % first

    async def read(request):
        return EventStream(RunFrames(run.log, render))

    async with served(read) as server, server.client() as client:
        stream = await client.get("/events")
        source.gates[0].set()
        await until(stream, "2")
        source.gates[1].set()
        source.gates[2].set()
        settled = await run.settled()

    assert "one two three" == settled.text
