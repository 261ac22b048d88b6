"""Streams that cannot go on once their answer has begun: no status can tell of it any more, and nobody is deceived."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from holdfast.asgi.cursor import RunFrames
from holdfast.asgi.event_stream import EventStream
from holdfast.engine.core import Core
from holdfast.errors import StoreUnavailable
from holdfast.events import Event, Text
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Frame
from tests.support.served import NO_HOME, Served, protocol
from tests.support.waiting import LONG
from tests.wires import WIRES, Wire

HELP = {"help": "/docs/errors/store_unavailable"}
WENT_WRONG = {
    "chat completions": {
        "error": {"message": "gone", "type": "upstream_error", "code": "store_unavailable", "param": None, **HELP}
    },
    "responses": {"type": "error", "code": "store_unavailable", "message": "gone", "param": None},
    "Anthropic's messages": {
        "type": "error",
        "error": {"type": "api_error", "message": "gone", "code": "store_unavailable", "param": None, **HELP},
    },
    "AG-UI": {
        "type": "RUN_ERROR",
        "message": "gone",
        "code": "store_unavailable",
        "metadata": {"holdfast": HELP},
    },
    "the AI SDK": {"type": "error", "errorText": "gone"},
}
"""What each wire says of it; our own is cut off, so that its clients come back with their cursor."""


class Unreadable(MemoryStore):
    """A store whose logs cannot be read any more, from when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False

    async def read_log(self, run_id: str, after: int = 0, limit: int = 512) -> list[Event]:
        if self.is_broken:
            raise StoreUnavailable("gone")
        return await super().read_log(run_id, after, limit)


def said_by_the_server(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What uvicorn says of an app that begins a second answer, or raises."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")]


async def read_to_its_end(served: Served, wire: Wire, run_id: str, begun: asyncio.Semaphore) -> list[Frame] | None:
    """The frames of a stream; None where it was cut off."""
    frames: list[Frame] = []
    async with served.client() as client:
        response = await client.get(wire.watch(run_id))
        assert 200 == response.status, await response.text()
        try:
            async for frame in response.events(comments=False):
                frames.append(frame)
                if "one" in frame.data:
                    begun.release()
        except ConnectionError:
            return None
    return frames


@requirement("sub.broken-off")
async def test_a_stream_whose_log_cannot_be_read_on_says_so_in_the_words_of_its_wire(caplog):
    """The answer goes on elsewhere: neither its end nor its failure may be made up, and a half is no whole."""
    store, ends = Unreadable(), asyncio.Event()

    async def source():
        yield "one"
        await ends.wait()

    begun = asyncio.Semaphore(0)
    async with Core(store) as elsewhere, Served(create_app(Settings(), store, NO_HOME), http=protocol()) as served:
        run = await elsewhere.start(source(), keep=True, owner="local", model="up/m")
        reading = [asyncio.create_task(read_to_its_end(served, wire, run.id, begun)) for wire in WIRES]
        async with asyncio.timeout(LONG):
            for _ in WIRES:
                await begun.acquire()
            store.is_broken = True
            told = dict(zip((wire.name for wire in WIRES), await asyncio.gather(*reading), strict=True))
        ends.set()
        await run.settled()

    assert told.pop("native") is None
    last = {name: frames[-1].json() for name, frames in told.items() if frames}
    assert "store_unavailable" == last["responses"].pop("error")["code"]
    assert last["responses"].pop("sequence_number") == len(told["responses"] or ()) - 1
    assert WENT_WRONG == last
    assert [] == said_by_the_server(caplog)


@requirement("sub.broken-off")
@pytest.mark.parametrize("server", [protocol(), "auto"], ids=["our own server", "another"])
async def test_a_stream_that_cannot_be_rendered_on_is_cut_off(server, caplog):
    """A bug of ours, on a wire without a word for it: a proper end would be taken for the end of the answer."""
    goes_on = asyncio.Event()

    async def source():
        yield "one"
        await goes_on.wait()
        yield "two"

    def render(first: int, events: Sequence[Event]) -> bytes:
        if Text("two") in events:
            raise RuntimeError("this rendering is broken")
        return b"data: %d\n\n" % (first + len(events))

    async def read(request: Request) -> EventStream:
        return EventStream(RunFrames(run, render))

    app = Starlette(routes=[Route("/events", read)])
    async with Core() as engine, Served(app, lifespan="off", http=server) as served, served.client() as client:
        run = await engine.start(source())
        stream = await client.get("/events")
        first = await stream.next_event()
        goes_on.set()
        with pytest.raises(ConnectionError):
            await stream.all_events()
        settled = await run.settled()

    assert first is not None
    assert "onetwo" == settled.text
    assert "this rendering is broken" in caplog.text
    assert not [line for line in said_by_the_server(caplog) if "Exception" in line]
