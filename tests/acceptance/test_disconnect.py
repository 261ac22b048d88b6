"""Leaving: an attached run ends with its client, a detached one does not care, and an ended one stays as it ended."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response as Answer
from starlette.routing import Route

from holdfast import Completed, Stopped
from holdfast.asgi import events
from holdfast.engine.core import Core
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import (
    Delta,
    Done,
    Finish,
    Gate,
    Headers,
    Recorded,
    Repeat,
    Role,
    Step,
    Tokens,
    Upstream,
    answer,
)
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

How = Literal["fin", "rst", "half"]
EVENTS = {"Accept": "text/event-stream"}


class World(NamedTuple):
    api: Native
    up: Upstream
    client: Client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests: each has sessions, models and gates of its own."""
    async with Upstream() as up:
        async with Server(tmp_path_factory.mktemp("disconnect"), [provider(up.base_url, models=None)]) as server:
            async with server.client() as client:
                yield World(Native(client), up, client)


def asked(up: Upstream, model: str) -> list[Recorded]:
    return [request for request in up.requests if request.model == model]


def saying(*texts: str) -> list[Step]:
    return [Headers(), Role(), *map(Delta, texts)]


def gated(*texts: str, gate: str, then: str) -> list[Step]:
    """An answer that waits for its gate before the last text."""
    return [*saying(*texts), Gate(gate), Delta(then), Finish(), Done()]


# The ways to be the client of an attached run. Each returns the connection by which the run lives.


async def completion(world: World, session_id: str, model: str, *, stream: bool) -> Response:
    body = {"model": model, "stream": stream, "session_id": session_id, "messages": [{"role": "user", "content": "Hi"}]}
    return await world.client.send("POST", "/v1/chat/completions", json=body)


async def streaming(world: World, session_id: str, model: str) -> Response:
    return await completion(world, session_id, model, stream=True)


async def waiting(world: World, session_id: str, model: str) -> Response:
    return await completion(world, session_id, model, stream=False)


async def message(world: World, session_id: str, model: str, *, stream: bool) -> Response:
    body = {"model": model, "stream": stream, "session_id": session_id, "messages": [{"role": "user", "content": "Hi"}]}
    return await world.client.send("POST", "/v1/messages", json=body)


async def message_streaming(world: World, session_id: str, model: str) -> Response:
    return await message(world, session_id, model, stream=True)


async def message_waiting(world: World, session_id: str, model: str) -> Response:
    return await message(world, session_id, model, stream=False)


async def ag_ui(world: World, session_id: str, model: str) -> Response:
    messages = [{"id": "1", "role": "user", "content": "Hi"}]
    body = {"threadId": session_id, "runId": "r", "messages": messages, "forwardedProps": {"model": model}}
    return await world.client.send("POST", "/ag-ui", json=body)


async def native(world: World, session_id: str, model: str) -> Response:
    body = {"input": "Hi", "model": model, "lifetime": "attached"}
    return await world.client.send("POST", f"/api/sessions/{session_id}/runs", json=body, headers=EVENTS)


async def native_in_two_steps(world: World, session_id: str, model: str) -> Response:
    run_id = await world.api.start(session_id, "Hi", model, lifetime="attached")
    return await world.api.events(run_id)


CLIENTS = [streaming, waiting, native, native_in_two_steps, message_streaming, message_waiting, ag_ui]
BEGINNINGS: dict[str, list[Step]] = {
    "before the headers": [],
    "before the first token": [Headers(), Role()],
    "in silence": saying("so ", "far"),
}


@requirement("gone.attached")
@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("connect", CLIENTS, ids=lambda connect: connect.__name__)
async def test_the_upstream_of_an_attached_run_closes_when_its_client_leaves(world, connect, beginning, how):
    """Nobody reads the answer any more, and every further token is paid for: in silence too, where no write fails."""
    model = f"leaves {connect.__name__} {beginning} {how}"
    world.up.models[model] = [*BEGINNINGS[beginning], Gate(model)]
    text = "so far" if beginning == "in silence" else ""
    session_id = await world.api.new_session()
    client = await connect(world, session_id, model)
    await world.up.reached(model)
    run_id = (await world.api.session(session_id))["active_run"]["id"]
    if text:
        await world.api.shown(run_id, text)
    began = time.monotonic()
    client.leave(how)
    closed_at = await asked(world.up, model)[0].wait_closed()
    settlement = await world.api.settled(run_id)

    assert closed_at - began < SOON
    assert time.monotonic() - began < SOON
    assert ("stopped", "disconnect", text) == (settlement["outcome"], settlement["by"], settlement["text"])
    assert [("user", "Hi"), *[("partial", text)] * bool(text)] == await world.api.transcript(session_id)
    client.close()


@requirement("gone.attached")
@pytest.mark.parametrize("connect", CLIENTS, ids=lambda connect: connect.__name__)
async def test_a_client_that_leaves_in_full_flow_keeps_exactly_what_was_shown(world, connect):
    """The partial is the text of the log at the moment of the end: the session, the run and its events agree on it."""
    model = f"flow {connect.__name__}"
    world.up.models[model] = [Headers(), Role(), Tokens(100_000, 0.001)]
    session_id = await world.api.new_session()
    client = await connect(world, session_id, model)
    run_id = await only_run(world, session_id)
    await world.api.shown(run_id, "t0 t1 t2 ")
    client.leave("rst")
    frames = await world.api.replay(run_id)

    shown = "".join(frame.json()["text"] for frame in frames if frame.event == "text.delta")
    assert shown.startswith("t0 t1 t2 ")
    assert ("stopped", shown) == (
        frames[-1].json()["settlement"]["outcome"],
        frames[-1].json()["settlement"]["text"],
    )
    assert [("user", "Hi"), ("partial", shown)] == await world.api.transcript(session_id)


async def only_run(world: World, session_id: str) -> str:
    """Wait for the run of a session whose starter has not been answered yet. It may have ended by now."""
    async with asyncio.timeout(LONG):
        while not (runs := (await world.api.get(f"/api/runs?session_id={session_id}"))["runs"]):  # asks each time
            pass
        return str(runs[0]["id"])


async def ended(world: World, run_id: str) -> dict[str, Any]:
    """Wait for the end of a run by asking for it, and without becoming one of its readers."""
    async with asyncio.timeout(LONG):
        while (run := await world.api.run(run_id))["status"] != "settled":  # asks the server each time
            pass
        return run


@requirement("gone.attached")
async def test_a_client_that_leaves_before_all_of_its_request_was_sent_starts_nothing(world):
    """Half a request asks for nothing."""
    session_id = await world.api.new_session()
    head = (
        f"POST /api/sessions/{session_id}/runs HTTP/1.1\r\nHost: {world.client.host}:{world.client.port}\r\n"
        'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"input": "Hi", '
    )
    response = await world.client.send_raw(head.encode(), method="POST")
    before = len(world.up.requests)
    response.leave("rst")
    session = await world.api.session(session_id)

    assert ([], None, before) == (session["messages"], session["active_run"], len(world.up.requests))


@requirement("gone.attached")
async def test_only_the_client_that_an_attached_run_lives_by_ends_it(world):
    """Who looks over its shoulder may come and go."""
    world.up.models["shoulder"] = gated("one ", gate="shoulder", then="two")
    session_id = await world.api.new_session()
    owner = await native(world, session_id, "shoulder")
    await world.up.reached("shoulder")
    run_id = (await owner.head()).headers["x-run-id"]
    for how in ("fin", "rst", "half"):
        (await world.api.shown(run_id, "one ")).leave(how)
    feed = await world.client.get(f"/api/sessions/{session_id}/events")
    await feed.next_event()
    feed.leave("rst")
    during = await world.api.run(run_id)
    world.up.open("shoulder")
    last = (await owner.all_events())[-1]

    assert "running" == during["status"]
    assert ("run.settled", "completed") == (last.event, last.json()["settlement"]["outcome"])


@requirement("gone.attached")
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_completion_without_a_session_is_stopped_too(world, stream):
    """Most clients of the OpenAI API have no session: their runs end the same way."""
    model = f"alone {stream}"
    world.up.models[model] = [*saying("so far"), Gate(model)]
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
    client = await world.client.send("POST", "/v1/chat/completions", json=body)
    await world.up.reached(model)
    began = time.monotonic()
    client.leave()

    assert await asked(world.up, model)[0].wait_closed() - began < SOON
    assert asked(world.up, model)[0].left_early


@requirement("gone.attached", "sub.slow-reader-bounded")
async def test_a_client_that_never_reads_is_cut_off_and_its_attached_run_is_stopped(tmp_path):
    """It is there, but it might as well not be: no server drops it by itself, and its upstream would run to the end."""
    async with Upstream([Headers(), Role(), Repeat(10**6, Delta("x" * 20_000), every=0.005)]) as up:
        config = "send_timeout = 0.5\nheartbeat = 0.5"
        async with Server(tmp_path, [provider(up.base_url)], config=config) as server, server.client() as client:
            world = World(Native(client), up, client)
            session_id = await world.api.new_session()
            body = {"input": "Hi", "model": "m", "lifetime": "attached"}
            path = f"/api/sessions/{session_id}/runs"
            reader = await client.send("POST", path, json=body, headers=EVENTS, receive_buffer=4096)
            reader.stop_reading()
            run_id = await only_run(world, session_id)
            await (await up.next_request()).wait_closed()
            run = await ended(world, run_id)

            assert ("stopped", "disconnect") == (run["settlement"]["outcome"], run["settlement"]["by"])


# With the source in the test's hands, and on servers that announce another ASGI version.


class Watched:
    """A source that notes what becomes of it."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.silent = asyncio.Event()
        self.closed = asyncio.Event()
        self.reasons: list[str] = []

    async def source(self) -> AsyncIterator[str]:
        try:
            for word in self.words:
                yield word
            self.silent.set()
            await asyncio.Event().wait()
        finally:
            self.closed.set()


@asynccontextmanager
async def embedded(watched: Watched, spec_version: str | None, store: MemoryStore | None = None):
    """An app of somebody's own that embeds the engine, and a client of it."""
    engine = Core(store)

    async def start(request: Request) -> Answer:
        run = await engine.start(
            watched.source(), lifetime="attached", keep=store is not None, interrupt=watched.reasons.append
        )
        runs.append(run)
        return events(run, request)

    runs: list[Any] = []
    app = Starlette(routes=[Route("/", start)])
    async with engine, Served(app, spec_version=spec_version) as served, served.client() as client:
        yield client, runs


VERSIONS = pytest.mark.parametrize("spec_version", [None, "2.3", "2.4", "2.5"], ids=lambda version: version or "own")


@requirement("gone.attached", "gone.spec-2.4")
@VERSIONS
@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("words", [(), ("so ", "far")], ids=["before the first token", "in silence"])
async def test_leaving_closes_the_generator_and_calls_its_interrupt_hook_once(words, how, spec_version):
    """With ASGI 2.4 frameworks stop listening for a disconnect and wait for a write to fail: in silence none comes."""
    watched = Watched(*words)
    async with embedded(watched, spec_version) as (client, runs), asyncio.timeout(LONG):
        response = await client.get("/")
        for _ in ("run.started", *words):
            await response.next_event()
        await watched.silent.wait()
        began = time.monotonic()
        response.leave(how)
        await watched.closed.wait()
        seconds = time.monotonic() - began
        settlement = await runs[0].settled()
        response.close()

    assert seconds < SOON
    assert (Stopped, "disconnect", "".join(words)) == (type(settlement), settlement.by, settlement.text)
    assert ["disconnect"] == watched.reasons


@requirement("gone.attached")
async def test_the_partial_of_a_client_that_left_is_stored_once():
    """The settlement is written by a task of the engine's own, which the client's leaving cannot cancel."""
    watched, store = Watched("so ", "far"), MemoryStore()
    async with embedded(watched, None, store) as (client, runs), asyncio.timeout(LONG):
        response = await client.get("/")
        await watched.silent.wait()
        response.leave("rst")
        settlement = await runs[0].settled()
        record = await store.get_run(runs[0].id)
        log = await store.read_log(runs[0].id, 0)

    assert settlement == record.settlement == log[-1].settlement
    assert ("so far", 4) == (settlement.text, len(log))


@requirement("gone.attached")
async def test_an_attached_run_whose_client_never_came_is_stopped():
    """A 202 was sent, and nobody came for the events: the run has no client to live by."""
    watched = Watched("so far")
    async with Core() as engine, asyncio.timeout(LONG):
        run = await engine.start(watched.source(), lifetime="attached", interrupt=watched.reasons.append)
        await watched.silent.wait()
        engine.stop_unheld(run)
        settlement = await run.settled()
        held = await engine.start(Watched("held").source(), lifetime="attached")
        detached = await engine.start(Watched("detached").source())
        held.take_hold()
        engine.stop_unheld(held)
        engine.stop_unheld(detached)
        await detached.leave()
        statuses = [held.status, detached.status]

    assert (Stopped, "disconnect", ["disconnect"]) == (type(settlement), settlement.by, watched.reasons)
    assert ["running", "running"] == statuses


@requirement("gone.spec-2.4", "gone.attached")
@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
@pytest.mark.parametrize("connect", CLIENTS, ids=lambda connect: connect.__name__)
@pytest.mark.parametrize("beginning", ["before the headers", "in silence"])
async def test_the_whole_server_notices_a_client_that_leaves_on_either_asgi_version(connect, beginning, spec_version):
    """Our own server announces what its uvicorn does; someone may run the app on another."""
    async with Upstream([*BEGINNINGS[beginning], Gate()]) as up:
        settings = Settings(providers=(ProviderSettings("up", base_url=up.base_url, models=("m",)),))
        app = create_app(settings, MemoryStore(), NO_HOME)
        async with Served(app, spec_version=spec_version) as served, served.client() as client:
            world = World(Native(client), up, client)
            session_id = await world.api.new_session()
            connection = await connect(world, session_id, "m")
            await up.reached()
            run_id = (await world.api.session(session_id))["active_run"]["id"]
            began = time.monotonic()
            connection.leave()
            closed_at = await up.requests[0].wait_closed()
            settlement = await world.api.settled(run_id)

            assert closed_at - began < SOON
            assert ("stopped", "disconnect") == (settlement["outcome"], settlement["by"])


# Runs that do not care.


@requirement("gone.detached")
async def test_with_nobody_watching_a_detached_run_completes_and_is_stored_once(world):
    """The tab was closed right after the question: the answer is there when somebody comes back."""
    world.up.models["nobody"] = gated("one ", gate="nobody", then="two")
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Hi", "nobody")
    await world.up.reached("nobody")
    world.up.open("nobody")
    run = await ended(world, run_id)

    assert ("completed", "one two") == (run["settlement"]["outcome"], run["settlement"]["text"])
    assert [("user", "Hi"), ("assistant", "one two")] == await world.api.transcript(session_id)
    assert 1 == len(asked(world.up, "nobody"))


@requirement("gone.detached")
@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("place", ["before the first token", "in the middle"])
async def test_a_detached_run_goes_on_when_its_readers_leave(world, place, how):
    """All of them, the one that started it included: a subscriber is only a cursor."""
    model = f"goes on {place} {how}"
    steps = gated("one ", gate=model, then="two") if place == "in the middle" else [Gate(model), *answer("one ", "two")]
    world.up.models[model] = steps
    session_id = await world.api.new_session()
    body = {"input": "Hi", "model": model}
    starter = await world.client.post(f"/api/sessions/{session_id}/runs", body, headers=EVENTS)
    run_id = starter.headers["x-run-id"]
    await world.up.reached(model)
    readers = [starter, await world.api.events(run_id)]
    for reader in readers:
        await reader.next_event()
        reader.leave(how)
    during = await world.api.run(run_id)
    world.up.open(model)
    settlement = await world.api.settled(run_id)

    assert "running" == during["status"]
    assert ("completed", "one two") == (settlement["outcome"], settlement["text"])
    assert [("user", "Hi"), ("assistant", "one two")] == await world.api.transcript(session_id)
    for reader in readers:
        reader.close()


@requirement("gone.detached")
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_completion_in_the_background_goes_on_when_its_client_leaves(world, stream):
    """`"background": true` makes it detached: the finished object is there under its id."""
    model = f"background {stream}"
    world.up.models[model] = gated("one ", gate=model, then="two")
    body = {"model": model, "stream": stream, "background": True, "messages": [{"role": "user", "content": "Hi"}]}
    client = await world.client.post("/v1/chat/completions", body)
    run_id = client.headers["x-run-id"]
    await world.up.reached(model)
    client.leave("rst")
    world.up.open(model)
    settlement = await world.api.settled(run_id)
    finished = await world.api.get(f"/v1/chat/completions/{run_id.replace('run_', 'chatcmpl-')}")

    assert ("completed", "one two") == (settlement["outcome"], settlement["text"])
    assert ("stop", "one two") == (
        finished["choices"][0]["finish_reason"],
        finished["choices"][0]["message"]["content"],
    )


@requirement("gone.after-end")
@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("connect", CLIENTS, ids=lambda connect: connect.__name__)
async def test_a_run_that_has_ended_stays_completed_when_its_client_leaves(world, connect, how):
    """The last frame was read and the connection cut in the same moment: the end came first."""
    model = f"after end {connect.__name__} {how}"
    world.up.models[model] = answer("all of it")
    session_id = await world.api.new_session()
    client = await (await connect(world, session_id, model)).head()
    if connect is not waiting:
        while (frame := await client.next_event()) and frame.event != "run.settled" and frame.data != "[DONE]":
            pass
    client.leave(how)
    session = await world.api.session(session_id)
    run = await world.api.run(session["messages"][1]["run_id"])

    assert ("completed", None) == (run["settlement"]["outcome"], run["settlement"]["by"])
    assert [("user", "Hi"), ("assistant", "all of it")] == await world.api.transcript(session_id)
    client.close()


@requirement("gone.after-end")
async def test_leaving_a_run_that_has_ended_changes_nothing_and_calls_no_hook():
    """`leave` is called for every client that goes, late ones too."""
    reasons: list[str] = []

    async def source():
        yield "whole"

    async with Core() as engine:
        run = await engine.start(source(), lifetime="attached", interrupt=reasons.append)
        settlement = await run.settled()
        await asyncio.gather(*(run.leave() for _ in range(5)))

    assert isinstance(settlement, Completed)
    assert (settlement, []) == (run.settlement, reasons)
