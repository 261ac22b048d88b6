"""Streams on our own server, which sends what a log says from within the call that brought it."""

import asyncio
import json

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from holdfast import Engine
from holdfast.asgi import events
from holdfast.asgi.cursor import RunFrames
from holdfast.asgi.event_stream import EventStream
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.served import NO_HOME, Served, protocol
from tests.support.upstream import Delta, Done, Finish, Headers, Role, Upstream
from tests.support.waiting import LONG


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
    return Served(Starlette(routes=[Route("/events", endpoint)]), lifespan="off", http=protocol())


async def until(stream, what):
    """Read until something was said; return all that was."""
    said = ""
    async with asyncio.timeout(LONG):
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


@requirement("sub.attached-waits")
async def test_a_chat_whose_client_reads_slowly_loses_no_word():
    """Its upstream is not read on meanwhile: the log, which is kept nowhere else, would have forgotten most of it."""
    words = [f"{number} " + "x" * 1000 for number in range(10_000)]
    async with Upstream([Headers(), Role(), *map(Delta, words), Finish(), Done()]) as up:
        described = ProviderSettings("up", base_url=up.base_url, models=("m",))
        app = create_app(Settings(providers=(described,)), MemoryStore(), NO_HOME)
        engine = app.state.parts.engine
        engine.limits = msgspec.structs.replace(engine.limits, log=500)
        async with Served(app, http=protocol()) as served, served.client() as client:
            body = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
            response = await client.send("POST", "/v1/chat/completions", json=body, receive_buffer=2048)
            frames = [await response.next_event()]
            (run,) = engine.live()
            async with asyncio.timeout(LONG):
                while not run.log.is_full:  # noqa: ASYNC110 - the buffers of two kernels lie between
                    await asyncio.sleep(0.01)
            frames += await response.all_events()

    chunks = [json.loads(frame.data) for frame in frames if frame.data != "[DONE]"]
    said = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
    assert words == [word for word in said if word]
    assert "stop" == chunks[-1]["choices"][0]["finish_reason"]
