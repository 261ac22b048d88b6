"""`holdfast.asgi.events` with frames of the program's own: resumable, and an error or an end is told."""

import asyncio
import json

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from holdfast import HoldfastError, Limits, Settled, SourceFailed, Text
from holdfast.asgi import events, on_error
from holdfast.engine.core import Core
from holdfast.events import Notice, RunStarted, Snapshot
from holdfast.server.kit.http.http_protocol import Protocol
from tests.requirements import requirement
from tests.support.served import Served, protocol


def as_json(seq, event):
    """Text and outcomes as a program of its own would send them; nothing of all other events."""
    match event:
        case Text(text):
            return {"text": text}
        case Settled(settlement):
            return {"outcome": settlement.outcome}
        case Notice(code) | RunStarted(code):
            return {"code": code}
    return None


class World:
    """An app with one run, whose frames are written by `frame`."""

    def __init__(self, frame, **limits):
        self.engine = Core(limits=Limits(**limits))
        self.frame = frame

        async def read(request):
            return events(await self.engine.open(request.path_params["run"]), request, frame=self.frame)

        self.app = Starlette(routes=[Route("/{run}", read)], exception_handlers={HoldfastError: on_error})


@pytest.fixture(params=["uvicorn", "our own"])
def http(request):
    """Our own server sends a token from within the call that brought it: frames are written there too."""
    return {} if request.param == "uvicorn" else {"http": protocol()}


async def words(*texts):
    for text in texts:
        yield text


async def first_frames(response, count):
    return [await response.next_event() for _ in range(count)]


@requirement("embed.frames")
async def test_frames_of_the_programs_own_are_sent_with_their_numbers(http):
    """Hidden events leave gaps in the numbers, and nothing else."""
    world = World(lambda seq, event: None if isinstance(event, RunStarted) else as_json(seq, event))
    async with Served(world.app, **http) as served, served.client() as client:
        run = await world.engine.start(words("a", "b\nc"))
        frames = await (await client.get(f"/{run.id}")).all_events()

    assert [("2", {"text": "a"}), ("3", {"text": "b\nc"}), ("4", {"outcome": "completed"})] == [
        (frame.id, frame.json()) for frame in frames
    ]


@requirement("embed.frames")
@pytest.mark.parametrize(
    ("rendered", "sent"),
    [
        ("two\nlines", "two\nlines"),
        ("cr\rlf\r\nend", "cr\nlf\nend"),
        ("data: x\n\nevent: forged\ndata: y", "data: x\n\nevent: forged\ndata: y"),
        ("", ""),
        ([1, "ä"], '[1,"ä"]'),
        (b"id: 1\ndata: raw\n\n", "raw"),
    ],
    ids=["lines", "line ends", "text that looks like a frame", "empty", "json", "bytes"],
)
async def test_what_a_frame_may_be(rendered, sent):
    """Text can forge no frame. Bytes are the program's own business."""
    world = World(lambda seq, event: rendered if seq == 1 else None)
    async with Served(world.app) as served, served.client() as client:
        run = await world.engine.start(words("a"))
        frame = await (await client.get(f"/{run.id}")).next_event()

    assert (sent, "message", "1") == (frame.data, frame.event or "message", frame.id)


@requirement("embed.frames", "sub.resume-exact")
async def test_a_reader_of_own_frames_resumes_by_last_event_id(http):
    """What an EventSource does by itself: nothing is missing, and nothing comes twice."""
    world = World(as_json)
    seen = []
    async with Served(world.app, **http) as served, served.client() as client:
        run = await world.engine.start(words(*"abcdefgh"))
        while not seen or "outcome" not in seen[-1].json():
            headers = {"Last-Event-ID": seen[-1].id} if seen else {}
            reader = await client.get(f"/{run.id}", headers=headers)
            seen += [frame for frame in await first_frames(reader, 3) if frame is not None]
            reader.leave("rst")

    assert "abcdefgh" == "".join(frame.json().get("text", "") for frame in seen)
    assert [str(seq) for seq in range(1, 11)] == [frame.id for frame in seen]


@requirement("embed.frames", "sub.event-source-ends")
@pytest.mark.parametrize("frame", [None, as_json, lambda seq, event: None], ids=["protocol", "own", "hidden"])
async def test_a_client_that_has_seen_the_end_gets_204(frame):
    """An EventSource comes back after every end of a stream, and stops for good at a 204."""
    world = World(frame)
    async with Served(world.app) as served, served.client() as client:
        run = await world.engine.start(words("a"))
        await run.settled()
        first = await client.get(f"/{run.id}")
        raw = (await first.body()).decode()
        cursor = raw.rpartition("id: ")[2].partition("\n")[0]
        again = await client.get(f"/{run.id}", headers={"Last-Event-ID": cursor})
        body = await again.body()
        before = await client.get(f"/{run.id}", headers={"Last-Event-ID": str(int(cursor) - 1)})

    assert (200, 204, b"", 200) == (first.status, again.status, body, before.status)
    assert "no-store, no-transform" == again.headers["cache-control"]


@requirement("embed.frames")
async def test_a_run_that_ends_while_a_reader_waits_moves_the_cursor_to_its_end(http):
    """Also if the program hides the settlement: otherwise its EventSource would come back for ever."""
    world, told = World(lambda seq, event: None), asyncio.Event()

    async def source():
        yield "a"
        await told.wait()

    async with Served(world.app, **http) as served, served.client() as client:
        run = await world.engine.start(source())
        response = await client.get(f"/{run.id}")
        told.set()
        raw = await response.body()

    assert b"id: 3\n\n" == raw


@requirement("embed.frames")
async def test_a_frame_that_cannot_be_written_is_told_and_ends_the_stream(http, caplog):
    """A bug of the program must not look like the end of an answer; the run has nothing to do with it."""

    def frame(seq, event):
        if isinstance(event, Text) and event.text == "bad":
            raise KeyError("a secret of the program")
        return as_json(seq, event)

    world, told = World(frame), asyncio.Event()

    async def source():
        yield "good"
        await told.wait()
        yield "bad"

    async with Served(world.app, **http) as served, served.client() as client:
        run = await world.engine.start(source())
        response = await client.get(f"/{run.id}")
        before = await first_frames(response, 2)
        told.set()
        (error,) = await response.all_events()
        settlement = await run.settled()

    assert {"text": "good"} == before[-1].json()
    assert ("stream.error", None, "internal_error") == (error.event, error.id, error.json()["error"]["code"])
    assert "secret" not in error.data
    assert "a secret of the program" in caplog.text
    assert "completed" == settlement.outcome


@requirement("embed.frames")
async def test_a_failed_run_is_told_by_its_own_frame():
    """The settlement is an event like others."""

    async def source():
        yield "a"
        raise SourceFailed("The oracle is closed.", code="closed")

    def frame(seq, event):
        return event.settlement.error.message if isinstance(event, Settled) else None

    world = World(frame)
    async with Served(world.app) as served, served.client() as client:
        run = await world.engine.start(source())
        frames = await (await client.get(f"/{run.id}")).all_events()

    assert ["The oracle is closed."] == [frame.data for frame in frames]


@requirement("embed.frames")
async def test_a_snapshot_and_a_bad_cursor_are_written_by_the_program_too():
    """A stream has one form: no frame of ours comes in between."""

    def frame(seq, event):
        return {"seq": seq, "snapshot": event.text} if isinstance(event, Snapshot) else as_json(seq, event)

    world = World(frame)
    async with Served(world.app) as served, served.client() as client:
        run = await world.engine.start(words("a", "b"))
        await run.settled()
        snapshot = await (await client.get(f"/{run.id}?after=snapshot")).all_events()
        reset = await (await client.get(f"/{run.id}", headers={"Last-Event-ID": "garbage"})).all_events()

    assert [{"seq": 3, "snapshot": "ab"}, {"outcome": "completed"}] == [json.loads(frame.data) for frame in snapshot]
    assert ("0", {"code": "cursor_reset"}) == (reset[0].id, reset[0].json())
    assert "ab" == "".join(frame.json().get("text", "") for frame in reset)


def test_our_own_protocol_is_what_the_fixture_says():
    """Otherwise every test above would run twice on the same server."""
    assert Protocol is protocol().func
