"""Clients that read more slowly than their run speaks, in virtual time: no load makes these tests slower or other."""

import asyncio
import contextlib
from random import Random

import pytest
from starlette.requests import Request

from holdfast import Completed, Limits, Stopped, Text
from holdfast.asgi import events
from holdfast.asgi.event_stream import EventStream
from holdfast.engine.core import Core
from holdfast.events import put
from tests.requirements import requirement
from tests.simulation.loop import SeededLoop
from tests.support.http import FrameParser
from tests.support.waiting import LONG

WORDS = 2000
LOG = 100
LIMITS = Limits(log=LOG, idle=2.0, deadline=None)


class Speaker:
    """A source that always has another word, and knows how many it has said."""

    def __init__(self):
        self.said = 0

    async def one_by_one(self):
        while self.said < WORDS:
            self.said += 1
            yield "w"

    def pushed(self):
        return self._push

    async def _push(self, out):
        while self.said < WORDS:
            self.said += 1
            await put(out, [Text("w")])


class SlowClient:
    """Reads a run's events, and takes some seconds for each piece that it is sent."""

    def __init__(self, run, seconds):
        self._seconds = seconds
        self._parser = FrameParser()
        self.left = asyncio.Event()
        self._noticed = asyncio.Event()
        """Set when the server has received the disconnect. Only then do its writes return, in every Python."""
        self.frames = []
        self.ahead = 0
        """How many events the source was ahead of it, at the most."""
        request = Request({"type": "http", "query_string": b"", "headers": []})
        self.stream: EventStream = events(run, request, send_timeout=60.0)

    async def read(self, speaker=None):
        async def send(message):
            self.frames += [frame for frame in self._parser.feed(message.get("body", b"")) if frame.kind == "event"]
            with contextlib.suppress(TimeoutError):  # a server does not wait for one who has left
                await asyncio.wait_for(self._noticed.wait(), self._seconds)
            self.ahead = max(self.ahead, speaker.said - len(self.frames) if speaker else 0)

        await self.stream({"type": "http"}, self._receive, send)

    async def _receive(self):
        await self.left.wait()
        self._noticed.set()
        return {"type": "http.disconnect"}


def in_virtual_time(world):
    loop = SeededLoop(Random(0), disorder=0.0)
    loop.run(world())
    return loop.time()


@requirement("sub.attached-waits")
@pytest.mark.parametrize("how", ["one_by_one", "pushed"])
def test_an_attached_run_that_is_kept_nowhere_waits_for_its_client(how):
    """What the log forgot would be gone for the only one who wants it; and slow is not silent."""

    async def world():
        async with Core(limits=LIMITS) as engine:
            speaker = Speaker()
            run = await engine.start(getattr(speaker, how)(), lifetime="attached")
            client = SlowClient(run, seconds=5.0)
            await client.read(speaker)

            assert isinstance(await run.settled(), Completed)
            assert [str(seq) for seq in range(1, WORDS + 3)] == [frame.id for frame in client.frames]
            assert client.ahead <= LOG + 1

    assert in_virtual_time(world) > 5.0 * WORDS / (2 * LOG)


@requirement("sub.attached-waits", "gone.detached")
def test_a_detached_run_waits_for_nobody():
    """It outlives its readers: one who falls too far behind is cut off, and is never told that this was the end."""

    async def world():
        async with Core(limits=LIMITS) as engine:
            speaker = Speaker()
            run = await engine.start(speaker.one_by_one())
            client = SlowClient(run, seconds=5.0)
            reading = asyncio.create_task(client.read())

            assert "w" * WORDS == (await run.settled()).text
            assert 1.0 > asyncio.get_running_loop().time()
            await reading
            assert "run.settled" not in [frame.event for frame in client.frames]

    in_virtual_time(world)


@requirement("sub.attached-waits", "stop.prompt", "gone.attached")
@pytest.mark.parametrize("by", ["user", "disconnect"])
def test_a_run_that_waits_for_its_client_is_stopped_at_once(by):
    """Whoever says stop, or leaves, does not read on first."""

    async def world():
        async with Core(limits=LIMITS) as engine:
            speaker = Speaker()
            run = await engine.start(speaker.pushed(), lifetime="attached")
            client = SlowClient(run, seconds=50.0)
            reading = asyncio.create_task(client.read())
            await asyncio.sleep(10.0)  # of the loop's own time: five times the idle limit
            assert "running" == run.status
            stopped_at = asyncio.get_running_loop().time()
            if by == "user":
                await run.stop()
            else:
                client.left.set()
                await run.settled()

            assert isinstance(run.settlement, Stopped)
            assert (by, "w" * speaker.said) == (run.settlement.by, run.settlement.text)
            assert speaker.said <= LOG + 1
            assert 1.0 > asyncio.get_running_loop().time() - stopped_at
            await reading

    in_virtual_time(world)


class Thoughtful(Speaker):
    """A source that takes some time for each word, once it was let go on."""

    async def one_by_one(self):
        async for word in super().one_by_one():
            if self.said > LOG:
                await asyncio.sleep(0.75 * LIMITS.idle)
            if self.said > 3 * LOG:
                return
            yield word


@requirement("sub.attached-waits")
@pytest.mark.parametrize("seconds", [5.0, 5.25, 5.5, 5.75])
def test_the_idle_limit_counts_from_when_a_source_may_go_on(seconds):
    """While it waits for its run's client it cannot say anything, and what it does then takes its own time."""

    async def world():
        async with Core(limits=LIMITS) as engine:
            speaker = Thoughtful()
            run = await engine.start(speaker.one_by_one(), lifetime="attached")
            client = SlowClient(run, seconds)
            await client.read(speaker)

            assert isinstance(await run.settled(), Completed)

    in_virtual_time(world)


@requirement("sub.attached-waits")
def test_a_run_whose_client_was_sent_off_waits_no_longer():
    """The client has not left: it was told to come back. Nobody would ever wake the source, and no limit end it."""

    async def world():
        async with Core(limits=LIMITS) as engine:
            speaker = Speaker()
            run = await engine.start(speaker.pushed(), lifetime="attached")
            client = SlowClient(run, 5.0)
            reading = asyncio.create_task(client.read(speaker))
            await asyncio.sleep(1.0)
            assert LOG + 1 >= speaker.said
            engine.streams.begin()
            await reading

            assert "run.settled" not in [frame.event for frame in client.frames]
            assert isinstance(await asyncio.wait_for(run.settled(), LONG), Completed)

    in_virtual_time(world)
