"""curl as an EventSource: what a person at a terminal, or a shell script, gets of a run."""

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Frame, FrameParser
from tests.support.native import Native
from tests.support.programs import CURL
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, Upstream, UsageChunk
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAIN = ("--no-progress-meter", "--noproxy", "*")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models |= {
            "gated": [Headers(), Role(), Delta("one "), Gate("curl"), Delta("two"), Finish(), UsageChunk(), Done()],
            "hanging": [Headers(), Role(), Delta("so far"), Hang()],
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    async with Server(tmp_path_factory.mktemp("curl"), [provider(up.base_url, models=None)]) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def api(server):
    async with server.client() as client:
        yield Native(client)


@asynccontextmanager
async def curl(server: Server, path: str, *options: str) -> AsyncGenerator[Process]:
    """curl, without a proxy and without a buffer, until the block is left."""
    process = await asyncio.create_subprocess_exec(
        *(CURL.find_or_skip(), "--no-progress-meter", "--noproxy", "*", "-N", *options, server.url + path),
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until(process: Process, frames: list[Frame], parser: FrameParser, text: str) -> None:
    """Read on until a text has been printed."""
    assert process.stdout is not None
    async with asyncio.timeout(LONG):
        while not any(text in frame.data for frame in frames):
            data = await process.stdout.read(65536)
            assert data, "curl ended"
            frames.extend(frame for frame in parser.feed(data) if frame.kind == "event")


async def to_the_end(process: Process, frames: list[Frame], parser: FrameParser) -> int:
    assert process.stdout is not None
    async with asyncio.timeout(LONG):
        while data := await process.stdout.read(65536):
            frames.extend(frame for frame in parser.feed(data) if frame.kind == "event")
        return await process.wait()


@requirement("sub.replay-then-live", "sub.own-seq")
async def test_a_run_is_printed_live_event_by_event_to_its_settlement(server, up, api):
    """Each event has its number and its type, comes when it happens, and after the last one curl ends by itself."""
    up.shut("curl")
    run_id = await api.start(await api.new_session(), "hello", "up/gated")
    frames: list[Frame] = []
    parser = FrameParser()

    async with curl(server, f"/api/runs/{run_id}/events", "-f") as process:
        await until(process, frames, parser, "one ")
        seen_before_the_gate = [frame.event for frame in frames]
        up.open("curl")
        code = await to_the_end(process, frames, parser)

    assert ["run.started", "text.delta"] == seen_before_the_gate
    assert [str(n) for n in range(1, len(frames) + 1)] == [frame.id for frame in frames]
    assert ["run.started", "text.delta", "text.delta", "usage", "run.settled"] == [frame.event for frame in frames]
    assert (0, "", "one two") == (code, parser.unfinished, frames[-1].json()["settlement"]["text"])


@requirement("sub.resume-exact")
@pytest.mark.parametrize("how", ["Last-Event-ID", "after"])
async def test_a_reader_that_comes_back_with_its_last_id_gets_the_rest(server, up, api, how):
    """As a browser's EventSource does by itself."""
    up.open("curl")
    run_id = await api.start(await api.new_session(), "hello", "up/gated")
    whole = [(frame.id, frame.data) for frame in await api.replay(run_id)]

    rests = []
    for last in range(1, len(whole) + 1):
        path = f"/api/runs/{run_id}/events"
        options = [path, "-H", f"Last-Event-ID: {last}"] if how == "Last-Event-ID" else [f"{path}?after={last}"]
        frames: list[Frame] = []
        async with curl(server, *options) as process:
            assert 0 == await to_the_end(process, frames, FrameParser())
        rests.append([(frame.id, frame.data) for frame in frames])

    assert [whole[last:] for last in range(1, len(whole) + 1)] == rests


@requirement("start.stream-shape")
async def test_a_completion_is_printed_live_as_openai_prints_it(server, up):
    """`data:` lines and nothing else, the first of them before the upstream has ended."""
    up.shut("curl")
    body = json.dumps({"model": "up/gated", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
    frames: list[Frame] = []
    parser = FrameParser()

    async with curl(server, "/v1/chat/completions", "-d", body, "-H", "Content-Type: application/json") as process:
        await until(process, frames, parser, '"one "')
        live = len(frames)
        up.open("curl")
        code = await to_the_end(process, frames, parser)

    assert (0, 2, "[DONE]") == (code, live, frames[-1].data)
    assert all(line.startswith("data: ") for frame in frames for line in frame.lines)


@requirement("gone.attached")
async def test_ctrl_c_stops_the_run_and_closes_the_upstream(server, up):
    """The client by which an attached run lives is gone."""
    body = json.dumps({"model": "up/hanging", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
    frames: list[Frame] = []

    async with curl(server, "/v1/chat/completions", "-d", body) as process:
        await until(process, frames, FrameParser(), "so far")
        process.terminate()
        await process.wait()
    request = [request for request in up.requests if request.model == "hanging"][-1]
    await request.wait_closed(SOON)

    assert request.left_early


@requirement("start.early-failure-status")
async def test_a_failure_is_a_failure_for_a_shell_script_too(server):
    """`curl -f` ends with 22 where the status says that it failed."""
    body = json.dumps({"model": "up/end:429", "messages": [{"role": "user", "content": "hi"}]})

    async with curl(server, "/v1/chat/completions", "-f", "-d", body) as refused:
        _, complaint = await refused.communicate()
    async with curl(server, "/api/runs/run_none/events", "-f") as unknown:
        await unknown.communicate()

    assert (22, 22) == (refused.returncode, unknown.returncode)
    assert b"429" in complaint


@requirement("safe.one-request")
@pytest.mark.parametrize(
    "options", [["--http2"], ["--http1.0"], ["-H", "Expect: 100-continue"], ["-H", "Upgrade: foo"]], ids=" ".join
)
async def test_two_requests_on_one_connection_are_answered_whatever_curl_offers(server, options):
    """`--http2` offers HTTP/2 with each request, and goes on in HTTP/1.1 where that is not taken."""
    body = json.dumps({"model": "up/echo:hello", "messages": [{"role": "user", "content": "x" * 200_000}]})
    path = "/v1/chat/completions"
    one = ["-d", "@-", "-H", "Content-Type: application/json", "-o", "-", "-w", "\\n%{http_code}\\n"]

    process = await asyncio.create_subprocess_exec(
        *(
            CURL.find_or_skip(),
            "--no-progress-meter",
            "--noproxy",
            "*",
            *options,
            *one,
            server.url + path,
            server.url + path,
        ),
        stdin=PIPE,
        stdout=PIPE,
    )
    printed, _ = await asyncio.wait_for(process.communicate(body.encode()), LONG)

    assert [b"200", b"200"] == printed.splitlines()[1::2]
    assert 2 == printed.count(b'"content":"hello"')
