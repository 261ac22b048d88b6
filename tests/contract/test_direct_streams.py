"""Streams on our own server, which sends what a log says from within the call that brought it."""

import asyncio
import json

import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from uvicorn.server import ServerState

from holdfast.asgi import events
from holdfast.asgi.cursor import RunFrames
from holdfast.asgi.event_stream import EventStream
from holdfast.engine.core import Core
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.framing import Wire
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
    async with Core(MemoryStore()) as engine:
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
    async with Core(engine.store) as other:

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
        return EventStream(RunFrames(run, render))

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
        engine = app.state.server.engine
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


class Writes(Wire):
    """A connection that notes each write."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self._wrote = asyncio.Event()

    def write(self, data):
        self.writes.append(bytes(data))
        super().write(data)
        self._wrote.set()

    async def until(self, is_so):
        """Wait until something is so of all that was written."""
        async with asyncio.timeout(LONG):
            while not is_so(self.written):
                self._wrote.clear()
                await self._wrote.wait()


class Line:
    """A connection of our server that has the stream of a run, for each request."""

    def __init__(self, run):
        self._run = run
        self.wire, self._state = Writes(), ServerState()
        config = uvicorn.Config(self._app, lifespan="off", log_config=None, interface="asgi3", proxy_headers=False)
        loop = asyncio.get_running_loop()
        self._protocol = protocol()(config=config, server_state=self._state, app_state={}, _loop=loop)

    async def _app(self, scope, receive, send):
        frames = RunFrames(self._run, lambda first, said: b"data: %d\n\n" % first)
        await EventStream(frames)(scope, receive, send)

    async def __aenter__(self):
        self._protocol.connection_made(self.wire)
        return self

    async def __aexit__(self, *_):
        self._protocol.connection_lost(None)
        while self._state.tasks:
            await asyncio.wait(self._state.tasks)

    def ask(self):
        self._protocol.data_received(b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n")


async def test_the_first_words_go_with_the_head_and_the_last_with_the_end(engine):
    """Each write wakes the client once more: the start and the end of an answer need one each."""
    source = Gated("one")
    run = await engine.start(source())

    async with Line(run) as line:
        line.ask()
        await line.wire.until(lambda written: b"data: 1" in written)
        source.gates[0].set()
        await line.wire.until(lambda written: written.endswith(b"0\r\n\r\n"))

    first, word, last = line.wire.writes
    assert first.startswith(b"HTTP/1.1 200")
    assert first.endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n")
    assert b"9\r\ndata: 2\n\n\r\n" == word
    assert b"9\r\ndata: 3\n\n\r\n0\r\n\r\n" == last


async def test_a_stream_ends_before_the_answer_to_a_request_that_came_meanwhile(engine):
    """The connection has the next request by then, but the end belongs to the first."""
    source = Gated("one")
    run = await engine.start(source())

    async with Line(run) as line:
        line.ask()
        await line.wire.until(lambda written: b"data: 1" in written)
        line.ask()
        source.gates[0].set()
        await line.wire.until(lambda written: written.count(b"0\r\n\r\n") == 2)

    first, second, rest = line.wire.written.split(b"0\r\n\r\n")
    assert [1, 1, 0] == [answer.count(b"HTTP/1.1 200") for answer in (first, second, rest)]
    assert b"data: 3" in first
    assert b"data: 1" in second
