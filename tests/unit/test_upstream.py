"""The instruments are tested too: U must do the wrong things exactly, and the raw client must see them exactly."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http import ChunkDecoder, Client, Frame, FrameParser, Incomplete, Response
from tests.support.server import UP_KEY, Server, StartFailed, UpstreamProcess, config_text, provider
from tests.support.upstream import (
    ENDINGS,
    ENDINGS_WITHOUT_TEXT,
    FALLBACK_KEY,
    ODDITIES,
    REASONING,
    TEXT,
    Chunk,
    Cut,
    Delta,
    Done,
    Eof,
    Finish,
    Gate,
    Hang,
    Headers,
    Pause,
    Raw,
    ReasoningDelta,
    Repeat,
    Role,
    Script,
    Slices,
    Split,
    Step,
    ToolDelta,
    Upstream,
    UsageChunk,
    Wire,
    answer,
    frame,
    text_chunk,
    tokens,
)
from tests.support.waiting import LONG, SOON


@pytest.fixture
async def up() -> AsyncGenerator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def client(up: Upstream) -> AsyncGenerator[Client]:
    async with Client(up.base_url, timeout=LONG) as c:
        yield c


async def ask(client: Client, model: str = "m", *, stream: bool = True, **options: Any) -> Response:
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
    return await client.request("POST", "/chat/completions", json=body, **options)


async def send(client: Client, model: str = "m") -> Response:
    """Ask and do not wait for an answer."""
    return await client.send("POST", "/chat/completions", json={"model": model, "stream": True})


def visible(frames: list[Frame]) -> str:
    """The text of a stream, read naively."""
    chunks = [json.loads(f.data) for f in frames if f.data.startswith("{")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices") or []]
    return "".join(delta.get("content") or "" for delta in deltas if delta)


# -- what a request gets


async def test_an_answer_has_role_text_finish_usage_and_done_in_this_order(up: Upstream, client: Client) -> None:
    """All other suites compare with this answer: it must be what OpenAI sends."""
    up.enqueue(answer("Hel", "lo"))

    *frames, done = await (await ask(client)).all_events()
    chunks = [f.json() for f in frames]

    assert {"role": "assistant", "content": ""} == chunks[0]["choices"][0]["delta"]
    assert ["Hel", "lo"] == [chunk["choices"][0]["delta"]["content"] for chunk in chunks[1:3]]
    assert {"index": 0, "delta": {}, "finish_reason": "stop"} == chunks[3]["choices"][0]
    assert {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5} == chunks[4]["usage"]
    assert [] == chunks[4]["choices"]
    assert "[DONE]" == done.data
    assert 1 == len({chunk["id"] for chunk in chunks})
    assert {"m"} == {chunk["model"] for chunk in chunks}


async def test_a_script_is_chosen_by_the_queue_then_the_model_then_its_name_then_the_default(up: Upstream) -> None:
    """Tests mix these ways; the order must hold."""
    up.script = answer("default")
    up.models["known"] = answer("registered")
    up.enqueue(answer("queued"))

    async with Client(up.base_url) as client:
        said = [
            visible(await (await ask(client, model)).all_events())
            for model in ("known", "known", "echo:named", "tokens:3:0", "other")
        ]

    assert ["queued", "registered", "named", "t0 t1 t2 ", "default"] == said


async def test_an_ending_that_does_not_exist_is_not_taken_for_an_answer(up: Upstream, client: Client) -> None:
    """A typing error in a model's name must fail the test that made it."""
    assert 404 == (await ask(client, "end:no-such-ending")).status


async def test_requests_are_recorded_with_headers_body_and_times(up: Upstream, client: Client) -> None:
    """What reached the provider is the proof in half of our tests."""
    response = await ask(client, "echo:x", headers={"X-Some": "thing"})
    await response.body()
    request = await up.next_request()

    assert [request] == up.requests
    assert ("POST", "/v1/chat/completions") == (request.method, request.path)
    assert "thing" == request.headers["x-some"]
    assert [{"role": "user", "content": "Hi"}] == request.body["messages"]
    assert request.first_byte_at is not None
    assert request.received_at <= request.first_byte_at
    assert request.finished
    assert request.bytes_sent > len(response.raw_bytes)


async def test_models_are_listed_and_do_not_count_as_requests(up: Upstream, client: Client) -> None:
    """`len(up.requests)` counts calls that cost money; a server may look at the models when it likes."""
    up.models["stall"] = [Hang()]

    listed = await (await client.get("/models")).json()

    assert ["m", "stall"] == [model["id"] for model in listed["data"]]
    assert [] == up.requests
    assert ["/v1/models"] == [request.path for request in up.others]


async def test_a_caller_without_stream_gets_the_script_as_one_object(up: Upstream, client: Client) -> None:
    """A provider adapter may ask without `stream`; the same scripts serve it."""
    call: list[Step] = [ToolDelta(id="call_1", name="add", arguments='{"a":'), ToolDelta(arguments=" 1}")]
    up.enqueue([Role(), ReasoningDelta("hm"), Delta("Hel"), Delta("lo"), *call, Finish("tool_calls"), UsageChunk(1, 2)])

    response = await ask(client, stream=False)
    answered = await response.json()

    assert "application/json" == response.headers["content-type"]
    assert "chat.completion" == answered["object"]
    assert "tool_calls" == answered["choices"][0]["finish_reason"]
    message = answered["choices"][0]["message"]
    assert ("Hello", "hm") == (message["content"], message["reasoning_content"])
    assert {"name": "add", "arguments": '{"a": 1}'} == message["tool_calls"][0]["function"]
    assert 3 == answered["usage"]["total_tokens"]


async def test_a_request_may_be_chunked_and_a_connection_used_twice(up: Upstream) -> None:
    """Clients pool connections: the second request must be told from the first, and both know when it closed."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: u\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'5\r\n{"mod\r\n14\r\nel": "echo:pipelined\r\n2\r\n"}\r\n0\r\n\r\n'

    async with Client(up.base_url) as client:
        response = await client.send_raw((head + body) * 2, method="POST")
        assert "pipelined" == (await response.json())["choices"][0]["message"]["content"]
        second = [await up.next_request(), await up.next_request()][1]
        await second.wait_closed()

    assert [1, 1] == [request.connection for request in up.requests]
    assert ["echo:pipelined"] * 2 == [request.model for request in up.requests]
    assert all(request.closed_at for request in up.requests)


# -- steps


async def test_a_gate_holds_the_script_until_the_test_opens_it(up: Upstream, client: Client) -> None:
    """This is how tests synchronise without sleeping."""
    up.enqueue([Delta("before"), Gate("g"), Delta("after"), Finish(), Done()])
    response = await ask(client)
    first = await response.next_event()
    await up.reached("g")
    held = asyncio.create_task(response.next_event())
    assert not up.requests[0].finished

    up.open("g")
    second = await held

    assert first is not None
    assert second is not None
    assert ("before", "after") == (visible([first]), visible([second]))


async def test_slices_and_splits_arrive_as_separate_reads(up: Upstream, client: Client) -> None:
    """A parser that is only ever given whole frames is not tested."""
    up.enqueue([Headers(framing="close"), Slices(b"abcdef", 2), Split(b"ghij", 1), Split(b"klm", (1, 2))])
    response = await ask(client)
    reads = [len(response.raw_bytes)]
    while await response._more():
        reads.append(len(response.raw_bytes) - sum(reads))

    assert b"abcdefghijklm" == response.raw_bytes
    assert [2, 2, 2, 1, 3, 1, 1, 1] == [size for size in reads if size]


async def test_every_kind_of_delta_has_its_field(up: Upstream, client: Client) -> None:
    """Reasoning comes in two spellings, tool calls in pieces."""
    up.enqueue(
        [
            ReasoningDelta("a"),
            ReasoningDelta("b", "reasoning"),
            ToolDelta(1, "call_1", "add", "{}"),
            Chunk({"choices": [], "id": None, "x": 1}),
            Repeat(2, Delta("r")),
            Finish("length"),
        ]
    )

    chunks = [f.json() for f in await (await ask(client)).all_events()]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]

    call = {"index": 1, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert [{"reasoning_content": "a"}, {"reasoning": "b"}, {"tool_calls": [call]}] == deltas[:3]
    assert [{"content": "r"}, {"content": "r"}, {}] == deltas[3:]
    assert (None, 1) == (chunks[3]["id"], chunks[3]["x"])
    assert "length" == chunks[-1]["choices"][0]["finish_reason"]


async def test_paced_steps_take_their_time(up: Upstream, client: Client) -> None:
    """Pause, Repeat and tokens are the only steps that know a clock; they must not be faster than they say."""
    began = time.monotonic()
    up.enqueue([Pause(0.02), Repeat(3, Delta("x"), every=0.02), *tokens(2, every=0.02)[2:]])
    await (await ask(client)).body()

    assert time.monotonic() - began >= 0.12


async def test_cut_is_a_reset_and_what_was_sent_before_still_arrives(up: Upstream, client: Client) -> None:
    """The partial text of a broken answer is ours to keep, so it must have been readable."""
    up.enqueue([*answer("kept")[:3], Gate(), Cut()])
    response = await ask(client)
    await up.reached()
    up.open()
    request = await up.next_request()
    await request.wait_closed()

    frames = [await response.next_event(), await response.next_event()]
    with pytest.raises(ConnectionResetError):
        await response.next_event()

    assert "kept" == visible([f for f in frames if f is not None])
    assert ("upstream", True) == (request.closed_by, request.finished)


@pytest.mark.parametrize("clean", [True, False])
async def test_eof_closes_the_connection_with_and_without_the_last_chunk(
    up: Upstream, client: Client, clean: bool
) -> None:
    """HTTP libraries see the missing last chunk as an error, and the proper one as a fine end: both happen."""
    up.enqueue([Delta("x"), Eof(clean=clean)])
    response = await ask(client)

    if clean:
        assert "x" == visible(await response.all_events())
    else:
        with pytest.raises(Incomplete):
            await response.all_events()

    assert clean == response.complete
    assert "upstream" == (await closed(up)).closed_by


async def closed(up: Upstream) -> Any:
    request = await up.next_request()
    await request.wait_closed()
    return request


async def test_wire_bytes_stand_outside_the_framing(up: Upstream, client: Client) -> None:
    """Broken HTTP is made by hand."""
    up.enqueue([Delta("x"), Wire(b"zz\r\n")])
    response = await ask(client)

    with pytest.raises(ValueError, match="not a chunk size"):
        await response.all_events()


async def test_what_is_not_http_is_not_answered_by_http(client: Client) -> None:
    """The first bytes are the script's too."""
    with pytest.raises(ValueError, match="SSH"):
        await ask(client, "end:not-http")


async def test_a_wrong_content_length_is_sent_as_it_was_given(up: Upstream, client: Client) -> None:
    """U must not repair what the script breaks."""
    up.enqueue([Headers(framing=100), Raw(b"short"), Eof()])
    response = await ask(client)

    assert "100" == response.headers["content-length"]
    with pytest.raises(Incomplete):
        await response.body()
    assert b"short" == response.raw_bytes


async def test_status_answers_carry_the_callers_key_as_real_providers_do(up: Upstream, client: Client) -> None:
    """Without a secret in the body, redaction would be tested against nothing."""
    mine = await ask(client, "end:401", headers={"Authorization": "Bearer sk-mine"})
    nobodys = await ask(client, "end:429")

    assert 401 == mine.status
    assert "Incorrect API key provided: sk-mine." in (await mine.json())["error"]["message"]
    assert (429, "7") == (nobodys.status, nobodys.headers["retry-after"])
    assert FALLBACK_KEY in await nobodys.text()


async def test_a_script_that_is_wrong_itself_fails_the_test() -> None:
    """An exception in U must not look like a misbehaving upstream."""
    up = await Upstream([Headers(), Headers()]).__aenter__()
    async with Client(up.base_url) as client:
        with pytest.raises(ConnectionError):
            await (await ask(client)).body()

    with pytest.raises(ValueError, match="headers once"):
        await up.__aexit__(None, None, None)


# -- the client leaves


SILENT: dict[str, Script] = {
    "before headers": [Hang()],
    "after headers": [Headers(), Hang()],
    "after text": [*answer("x")[:3], Hang()],
    "in a pause": [Headers(), Pause(60)],
    "at a gate": [Headers(), Gate("never")],
    "while it sends": [Headers(), Repeat(10**9, Delta("again "))],
}


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("where", SILENT)
async def test_a_client_that_leaves_is_noticed_at_once(up: Upstream, client: Client, where: str, how: Any) -> None:
    """`stop.closes-upstream` is measured by this: a late observer would make a prompt stop look slow."""
    up.enqueue(SILENT[where])
    response = await send(client)
    request = await up.next_request()
    if where != "before headers":
        await response.head()

    left_at = time.monotonic()
    response.leave(how)
    closed_at = await request.wait_closed(SOON)

    assert closed_at - left_at < SOON
    assert "client" == request.closed_by
    assert request.left_early


async def test_a_client_that_stops_reading_is_still_connected(up: Upstream) -> None:
    """A stalled reader holds U back by TCP alone; nothing is buffered without end and nothing counts as gone."""
    up.enqueue([Headers(), Repeat(10**9, Raw(b"x" * 10_000))])
    async with Client(up.base_url, receive_buffer=4096) as client:
        response = await ask(client)
        response.stop_reading()
        request = await up.next_request()
        while request.bytes_sent < 100_000 or not up.connections.copy().pop().is_held_back:  # noqa: ASYNC110
            await asyncio.sleep(0)
        sent = request.bytes_sent

        with pytest.raises(RuntimeError):
            await response.body()
        assert request.closed_at is None
        assert sent == request.bytes_sent < 20_000_000
    await request.wait_closed()


async def test_an_upstream_can_ignore_that_its_client_has_left(up: Upstream, client: Client) -> None:
    """Some do (fault U31). The FIN is recorded, and the sending goes on."""
    up.ignores_close = True
    up.enqueue([Headers(), Gate(), Delta("still here"), Finish(), Done()])
    response = await ask(client)
    response.leave("half")
    request = await up.next_request()
    await request.wait_closed()
    up.open()

    assert "still here" == visible(await response.all_events())
    assert ("client", True) == (request.closed_by, request.finished)


async def test_leaving_wakes_whoever_reads(up: Upstream, client: Client) -> None:
    """A test may read in one task and leave in another."""
    up.enqueue([Headers(), Hang()])
    response = await ask(client)
    reading = asyncio.create_task(response.next_event())
    await asyncio.sleep(0)

    response.leave("rst")

    with pytest.raises(Incomplete):
        await reading


async def test_refused_connections_are_refused_until_it_listens_again(up: Upstream, client: Client) -> None:
    """A provider that is down, and comes back at the same address."""
    up.refuse()
    with pytest.raises(ConnectionRefusedError):
        await ask(client)

    await up.listen()
    response = await ask(client, "echo:back")

    assert "back" == visible(await response.all_events())


async def test_refusing_closes_idle_connections_too() -> None:
    """A pooled connection would otherwise reach a provider that is down."""
    async with Upstream(answer("x")) as up:
        reader, writer = await asyncio.open_connection(up.host, up.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: u\r\n\r\n")
        await reader.readuntil(b"]}")
        up.refuse()

        assert b"" == await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_a_thousand_silent_connections_are_held_and_counted(up: Upstream) -> None:
    """Load and leak tests count on it; each costs one socket, one object and one task."""
    up.script = [Headers(), Hang()]
    async with Client(up.base_url, timeout=LONG) as client:
        responses = [await ask(client) for _ in range(1000)]
        assert 1000 == up.open_connections
        assert 1000 == len(up.requests)
        for response in responses:
            response.leave()
        for request in up.requests:
            await request.wait_closed()
        while up.open_connections:  # noqa: ASYNC110
            await asyncio.sleep(0)

    assert all(request.left_early for request in up.requests)


# -- the named endings


WHOLE = {"completed", "length", "content-filter", "crlf", "comments", "no-space", "split-utf8", "garbage-json", "think"}


@pytest.mark.parametrize("name", sorted(WHOLE | {"completed-no-done", "in-band-error", "event-error", "eof"}))
async def test_an_ending_with_a_proper_end_shows_the_text_that_all_endings_show(client: Client, name: str) -> None:
    """One constant for all: a test can compare what any surface says with TEXT."""
    response = await ask(client, f"end:{name}")
    frames = await response.all_events(comments=True)
    events = [f for f in frames if f.kind == "event" and not f.data.startswith('{"choices": [{"del')]

    expected = f"<think>{REASONING}</think>\n{TEXT}" if name == "think" else TEXT
    assert expected == visible(events)
    assert (name in WHOLE) == (events[-1].data == "[DONE]")
    assert (name == "comments") == any(f.kind == "comment" for f in frames)
    assert (name == "crlf") == (b"\r\n" in response.raw_bytes)
    assert (name != "no-space") == (b"data: " in response.raw_bytes)
    assert ("error" in name) == any('"error"' in f.data and FALLBACK_KEY in f.data for f in events)
    assert (name == "event-error") == (events[-1].event == "error")


@pytest.mark.parametrize("name", ["cut", "eof-unclean"])
async def test_an_ending_that_breaks_off_shows_its_text_first(client: Client, name: str) -> None:
    """`partial` is compared with this text."""
    response = await ask(client, f"end:{name}")
    with pytest.raises(ConnectionError):
        await response.all_events()

    assert TEXT == visible(FrameParser().feed(bytes(response.raw_bytes)))


@pytest.mark.parametrize("name", ["stall", "silence", "silence-after-headers"])
async def test_an_ending_in_silence_stays_open(up: Upstream, client: Client, name: str) -> None:
    """Silence must last until the client gives up, not until U does."""
    response = await send(client, f"end:{name}")
    request = await up.next_request()
    shown = 0 if name != "stall" else 3
    if name != "silence":
        await response.head()
    for _ in range(shown):
        await response.next_event()

    assert request.closed_at is None
    assert (name == "silence") == (request.first_byte_at is None)


@pytest.mark.parametrize("name", sorted({"400", "401", "404", "429", "500", "html-200", "json-error-200"}))
async def test_an_ending_with_a_status_is_a_whole_answer_with_a_secret_in_it(client: Client, name: str) -> None:
    """Early failures are an HTTP answer, streaming or not."""
    response = await ask(client, f"end:{name}")

    assert (int(name) if name.isdigit() else 200) == response.status
    assert FALLBACK_KEY in await response.text()
    assert (name == "html-200") == response.headers["content-type"].startswith("text/html")
    assert name in ENDINGS_WITHOUT_TEXT


async def test_split_utf8_sends_each_byte_alone(client: Client) -> None:
    """Bytes that arrive together test nothing: each must be an HTTP chunk, so that no library sees them joined."""
    response = await ask(client, "end:split-utf8")
    longest, before = 0, len(response.raw_bytes)
    while await response._more():
        longest, before = max(longest, len(response.raw_bytes) - before), len(response.raw_bytes)

    assert 1 == longest


UNREADABLE = {"length-too-long", "bad-chunked", "endless", "huge-line"}


@pytest.mark.parametrize("name", sorted(set(ODDITIES) - {"not-http"}))
async def test_every_oddity_can_be_played(up: Upstream, client: Client, name: str) -> None:
    """A script that raises would be found by the fixture's end; one that never ends, by the timeout."""
    response = await ask(client, f"end:{name}")
    if name in UNREADABLE:
        response.leave()
    else:
        await response.body()

    assert "end:" + name == up.requests[0].model
    assert not set(ENDINGS) & set(ODDITIES)


# -- the client


def test_chunks_are_decoded_wherever_they_are_split() -> None:
    """Chunk sizes, extensions, data and trailers can each be cut by a read."""
    wire = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nrest"
    for cut in range(len(wire)):
        decoder = ChunkDecoder()
        content = decoder.feed(wire[:cut]) + decoder.feed(wire[cut:])

        assert b"abc0123456789" == content
        assert decoder.done
        assert b"rest" == decoder.rest


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_frames_are_the_same_wherever_the_bytes_are_split(newline: str) -> None:
    """The judge of our streams may not depend on how TCP cuts them."""
    text = newline.join(
        [": hi", "id: 7", "event: x", "data: ä\u2028", "data:b", "", ":", "", "retry: 1", "", "data", ""]
    )
    wire = (text + newline).encode()
    expected = [
        Frame("comment", comment="hi", lines=(": hi",)),
        Frame("event", "ä\u2028\nb", id="7", event="x", lines=("id: 7", "event: x", "data: ä\u2028", "data:b")),
        Frame("comment", comment="", lines=(":",)),
        Frame("event", retry="1", lines=("retry: 1",)),
        Frame("event", "", lines=("data",)),
    ]
    for cut in range(len(wire)):
        parser = FrameParser()

        assert expected == parser.feed(wire[:cut]) + parser.feed(wire[cut:])
        assert "" == parser.unfinished


def test_a_frame_cut_off_by_the_end_is_not_a_frame() -> None:
    """And it is not forgotten either: `unfinished` shows it."""
    parser = FrameParser()

    assert [] == parser.feed(frame(text_chunk("x"))[:-1])
    assert parser.unfinished.startswith("data: {")


async def test_frames_are_not_lost_between_two_loops_over_them(up: Upstream, client: Client) -> None:
    """A test reads some frames, acts, and reads on."""
    response = await ask(client, "tokens:5:0")
    first = []
    async for f in response.events():
        first.append(f)
        if len(first) == 3:
            break

    assert "t0 t1 " == visible(first)
    assert "t2 t3 t4 " == visible(await response.all_events())


async def test_headers_of_a_request_can_be_replaced_and_left_out(up: Upstream, client: Client) -> None:
    """Host and Origin checks need requests that no SDK would send."""
    await (await ask(client, headers={"host": "evil.example", "Content-Type": None})).body()

    assert "evil.example" == up.requests[0].headers["host"]
    assert "content-type" not in up.requests[0].headers


# -- processes


async def test_the_upstream_runs_as_a_process_and_tells_what_it_saw(tmp_path: Path) -> None:
    """Kill and load tests must not share a loop with what they measure."""
    async with UpstreamProcess(tmp_path) as up, Client(up.base_url) as client:
        assert "t0 t1 " == visible(await (await ask(client, "tokens:2:1")).all_events())
        response = await ask(client, "hang-after:2")
        await response.next_event()
        assert 1 == await up.open_connections()

        left_at = time.monotonic()
        response.leave("rst")
        closed_at = await up.wait_until_closed(number=2)
        seen = await up.requests()

    assert 0 <= closed_at - left_at < SOON
    assert ["tokens:2:1", "hang-after:2"] == [record["model"] for record in seen]
    assert [True, False] == [record["finished"] for record in seen]
    assert not up.alive


STAND_IN = """
import http.server, os, subprocess, sys
at = sys.argv.index("--port")
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[at + 1])), http.server.SimpleHTTPRequestHandler)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("provider at http://127.0.0.1:1/v1, child", child.pid, flush=True)
print(f"Holdfast is ready on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


def stand_in(data: Path, **options: Any) -> Server:
    """Something with the command line of `holdfast serve`, so that the instrument is tested without the product."""
    return Server(data, [provider("http://127.0.0.1:1/v1")], program=[sys.executable, "-c", STAND_IN], **options)


def children(server: Server) -> list[int]:
    return [int(line.split()[-1]) for line in server.log_text().splitlines() if "child" in line]


def running(pid: int) -> bool:
    """Not ended, and not a zombie that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("port", [None, 0])
async def test_the_server_is_ready_killed_and_restarted_at_the_same_address(tmp_path: Path, port: int | None) -> None:
    """`crash.kill9` stands on this: same data, same port, and nothing of the old process left."""
    async with stand_in(tmp_path, port=port) as server:
        url, pid = server.url, server.pid
        assert f"http://127.0.0.1:{server.port}" == url
        async with server.client(x_some="thing") as client:
            assert 200 == (await client.get("/")).status
        assert server.rss_kb() > 1000
        assert server.open_files() > 3

        assert -9 == (await server.kill9()).code
        with pytest.raises(ConnectionRefusedError):
            await server.client().get("/")
        await server.restart()

        assert url == server.url
        assert pid != server.pid
        async with server.client() as client:
            assert 200 == (await client.get("/")).status
        ended = await server.terminate()
        assert (-15, True) == (ended.code, ended.seconds < SOON)

    assert 2 == len(children(server))
    await until_gone(*children(server))


async def until_gone(*pids: int) -> None:
    async with asyncio.timeout(LONG):
        while any(running(pid) for pid in pids):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_server_and_its_children_do_not_survive_the_block(tmp_path: Path) -> None:
    """A failing test must not leave processes on a developer's machine, and shows the server's log."""
    with pytest.raises(ZeroDivisionError) as caught:
        async with stand_in(tmp_path) as server:
            raise ZeroDivisionError

    await until_gone(server.pid, *children(server))
    assert "Holdfast is ready" in caught.value.__notes__[0]


async def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    """The reason stands in the log, so it belongs in the failure."""
    broken = Server(tmp_path, program=[sys.executable, "-c", "raise SystemExit('no such setting')"])
    with pytest.raises(StartFailed, match="no such setting"):
        await broken.__aenter__()
    slow = Server(tmp_path, program=[sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.2)
    with pytest.raises(StartFailed, match="not ready after"):
        await slow.__aenter__()

    assert not slow.alive


def test_the_configuration_is_what_the_protocol_shows() -> None:
    """Settings stand first, because TOML would otherwise read them into the last provider."""
    text = config_text('log = "debug"', [provider("http://u/v1", models=["m", "n"], idle_seconds=2)])

    assert (
        'log = "debug"\n\n[[providers]]\nname = "up"\ndialect = "openai"\nbase_url = "http://u/v1"\n'
        'api_key_env = "UP_KEY"\nmodels = ["m", "n"]\nidle_seconds = 2\n'
    ) == text
    assert UP_KEY not in text
