"""A settlement repeats all of the text. A long one is made and sent in pieces: nobody else waits for it."""

import asyncio
import json

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from holdfast import Completed, Failed, Settled, Stopped
from holdfast.asgi import events
from holdfast.asgi.cursor import AT_ONCE
from holdfast.engine.core import Core
from holdfast.events import ErrorInfo
from holdfast.json_pieces import PIECE, in_pieces
from holdfast.log.segment import segment_of
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from holdfast.wires import native
from tests.requirements import requirement
from tests.support.served import NO_HOME, Served, protocol
from tests.support.upstream import Upstream, answer

ODD = 'A "quoted" \\ back-slashed\nline \x00\x1f\x7f, ü, 漢字, 🌊, \u2028 and "text":"" itself. '
LONG = ODD * 10_000
LARGEST = 8 * AT_ONCE
"""Bytes that the escaped text of one piece takes at most, and some more."""


@pytest.mark.parametrize("text", ["", "x", ODD, LONG, "🌊" * 70_000], ids=["empty", "short", "odd", "long", "wide"])
@pytest.mark.parametrize(
    "settlement",
    [
        lambda text: Completed(text=text, finish_reason='"text":""'),
        lambda text: Stopped(text=text, by="user"),
        lambda text: Failed(text=text, error=ErrorInfo(code="x", message='{"text":""}')),
    ],
    ids=["completed", "stopped", "failed"],
)
def test_the_pieces_are_the_frame(settlement, text):
    """Whoever reads cannot tell how it was made."""
    settled = Settled(settlement(text))

    pieces = list(native.settled_pieces("run_1", 7, settled))

    assert native.frames("run_1")(7, segment_of([settled])) == b"".join(pieces)
    assert max(map(len, pieces)) <= LARGEST


@requirement("sub.after-end")
def test_no_piece_is_empty_although_the_one_before_the_last_is_just_full():
    """An empty one is taken for the end: the frame would lack its last line, and the settlement be told to nobody."""
    short = native.frames("run_1")(7, segment_of([Settled(Completed(text="xyz"))]))
    after_text = len(short.partition(b"xyz")[2].rstrip())
    settled = Settled(Completed(text="x" * (2 * PIECE - after_text)))

    pieces = list(native.settled_pieces("run_1", 7, settled))

    assert [PIECE, 2] == [*map(len, pieces)][1:]
    assert native.frames("run_1")(7, segment_of([settled])) == b"".join(pieces)


async def said(text, size=1000):
    for start in range(0, len(text), size):
        yield text[start : start + size]


@requirement("sub.after-end")
@pytest.mark.parametrize("keep", [False, True], ids=["in memory", "stored"])
async def test_a_long_settlement_is_sent_in_pieces(keep):
    """The loop is free between two of them, and no copy of the whole is made for a reader."""
    sizes = []

    async def send(message):
        sizes.append(len(message.get("body", b"")))

    async def receive():
        await asyncio.Event().wait()

    async with Core(MemoryStore()) as engine:
        run = await engine.start(said(LONG), keep=keep)
        await run.settled()
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        request = Request(scope, receive)
        await events(await engine.open(run.id), request)(scope, receive, send)

    assert sum(sizes) > 2 * len(LONG)
    assert max(sizes) <= LARGEST


@pytest.mark.parametrize("keep", [False, True], ids=["in memory", "stored"])
async def test_a_reader_who_was_there_all_along_gets_a_long_settlement(keep):
    """It is not sent from within the call that settles the run, as a short one would be."""
    async with Core(MemoryStore()) as engine:

        async def read(request):
            return events(run, request)

        app = Starlette(routes=[Route("/events", read)])
        async with Served(app, lifespan="off", http=protocol()) as served, served.client() as client:
            run = await engine.start(said(LONG), keep=keep)
            frames = await (await client.get("/events")).all_events()

    told = [json.loads(frame.data) for frame in frames]
    assert LONG == "".join(event["text"] for event in told if event["type"] == "text.delta")
    assert LONG == told[-1]["settlement"]["text"]
    assert list(range(1, len(told) + 1)) == [event["seq"] for event in told]


@requirement("sub.after-end")
async def test_a_long_response_ends_frame_by_frame():
    """OpenAI's Responses repeat all of the text four times at the end, and `starting_after` leaves out some of that."""
    async with Upstream(answer(LONG)) as up:
        described = ProviderSettings("up", base_url=up.base_url, models=("m",))
        app = create_app(Settings(providers=(described,)), MemoryStore(), NO_HOME)
        async with Served(app, http=protocol()) as served, served.client() as client:
            asked = {"model": "up/m", "input": "x", "stream": True}
            frames = await (await client.post("/v1/responses", asked)).all_events()
            told = [json.loads(frame.data) for frame in frames]
            name = told[0]["response"]["id"]
            again = f"/v1/responses/{name}?stream=true&starting_after={told[-3]['sequence_number']}"
            rest = await (await client.get(again)).all_events()

    assert list(range(len(told))) == [event["sequence_number"] for event in told]
    assert LONG == told[-4]["text"] == told[-3]["part"]["text"] == told[-2]["item"]["content"][0]["text"]
    assert LONG == told[-1]["response"]["output"][0]["content"][0]["text"]
    assert [frame.data for frame in frames[-2:]] == [frame.data for frame in rest]


@requirement("sub.status")
async def test_a_long_answer_without_streaming_is_made_in_pieces_too():
    """A run's status repeats the text twice: made in one go, every other stream would wait for it."""
    sizes = []

    def counted(send):
        async def sending(message):
            sizes.append(len(message.get("body", b"")))
            await send(message)

        return sending

    async with Upstream(answer(LONG)) as up:
        described = ProviderSettings("up", base_url=up.base_url, models=("m",))
        app = create_app(Settings(providers=(described,)), MemoryStore(), NO_HOME)

        async def watched(scope, receive, send):
            await app(scope, receive, send if scope["type"] == "lifespan" else counted(send))

        async with Served(watched) as served, served.client() as client:
            body = {"model": "up/m", "messages": [{"role": "user", "content": "x"}]}
            answered = await client.post("/v1/chat/completions", body)
            completion = await answered.json()
            status = await client.get(f"/api/runs/{answered.headers['x-run-id']}")
            run = await status.json()
            stopped = await (await client.post(f"/api/runs/{run['id']}/stop", {})).json()

    assert (200, "application/json") == (status.status, status.headers["content-type"])
    assert LONG == completion["choices"][0]["message"]["content"]
    assert LONG == run["text"] == run["settlement"]["text"]
    assert run == stopped
    assert sum(sizes) > 5 * len(LONG)
    assert max(sizes) <= LARGEST


@pytest.mark.parametrize("value", [{}, [], {"a": []}, [{}, LONG, None], {"b": {LONG[:9]: [1, LONG, 2.5]}}, "x", None])
def test_json_in_pieces_is_the_same_json(value):
    """However deep a long text lies, and whatever lies beside it."""
    assert msgspec.json.encode(value) == b"".join(in_pieces(value))
