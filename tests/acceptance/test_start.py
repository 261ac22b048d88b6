"""Starting a run: the shape of its answer, its text to the letter, its id at once, and a failure as a real status."""

import asyncio
import itertools
import json
import time

import pytest
import pytest_asyncio

from tests.acceptance.surfaces import QUESTION, SURFACES, World, of_chunks
from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import (
    REASONING,
    TEXT,
    Chunk,
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    Pause,
    ReasoningDelta,
    Role,
    Slices,
    Status,
    Upstream,
    UsageChunk,
    answer,
    frame,
    text_chunk,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 5,
    "total_tokens": 8,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
HEARTBEAT = 2.0
IDLE_LIMIT = 14.0
"""The headers of a silent stream go within five seconds, before that."""
AT_ONCE = 8.0
"""Shorter than any of the server's limits above: nothing but the answer itself can have come so soon."""

NASTY = (
    "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\r\nj\rk\nl\tm\0n\x7fo"
    '"quoted" \\back\\ \\u0041 </script> data: [DONE]\n\nid: 9\nevent: x\n: no comment\n\n'
    "e\u0301 👩‍👩‍👧‍👦 🏳️‍🌈 \U0001f30a مرحبا שלום 日本語 \ufeff\u200b\u202e\ufffd\uffff"
)
"""All that breaks parsers which split lines or decode carelessly."""
READ = ("chat-stream", "chat-object", "background-resumed", "run-stream", "session-messages", "session-feed")
"""Where text is looked at to the letter: live and whole, in both dialects, and as it is stored."""


def choice(index: int, delta: dict, finish: str | None = None) -> Chunk:
    return Chunk({"choices": [{"index": index, "delta": delta, "finish_reason": finish}]})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    nasty = [frame(text_chunk(NASTY[at : at + 10])) for at in range(0, len(NASTY), 10)]
    async with Upstream() as up:
        up.models |= {
            "nasty": answer(*NASTY),
            "nasty-in-slices": [Headers(), Slices(b"".join(nasty), 3), Finish(), Done()],
            "two-choices": [
                Headers(),
                choice(0, {"role": "assistant", "content": "one "}),
                choice(1, {"role": "assistant", "content": "two "}),
                choice(0, {"content": "first"}),
                choice(1, {"content": "second"}),
                choice(1, {}, "length"),
                choice(0, {}, "stop"),
                UsageChunk(),
                Done(),
            ],
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    """One for all, with limits that two of the tests are about."""
    up.listed.append("echo:waves")
    async with Upstream() as gone:
        gone.refuse()
        providers = [provider(up.base_url, models=None), provider(gone.base_url, name="gone", models=["m"])]
        config = f"heartbeat = {HEARTBEAT}\nidle_limit = {IDLE_LIMIT}"
        async with Server(tmp_path_factory.mktemp("start"), providers, config=config, forked=False) as server:
            yield server


@pytest_asyncio.fixture(loop_scope="module")
async def world(up, server):
    async with server.client() as client:
        yield World(up, server, client)


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def silent(up, server):
    """A stream whose upstream never says a word: asked for at the start, so that its test need not wait for long."""

    async def ask():
        async with server.client() as client:
            response = await World(up, server, client).chat("up/silent", stream=True)
            waited = time.monotonic() - response.sent_at
            return response, waited, await response.all_events()

    asking = asyncio.create_task(ask())
    yield asking
    asking.cancel()
    await asyncio.wait({asking})


# The shape.


@requirement("start.stream-shape")
@pytest.mark.parametrize("model", ["up/echo:waves", "echo:waves"])
async def test_a_stream_has_one_id_the_asked_model_a_role_first_and_a_reason_last(world, model):
    """Clients take the shape for granted: OpenAI's own never deviates from it."""
    response = await world.chat(model, stream=True)
    told = of_chunks(response, await response.all_events())
    first, *middle, last = told.body
    (fixed,) = {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in told.body}

    assert fixed[0].startswith("chatcmpl-")
    assert ("chat.completion.chunk", model) == (fixed[1], fixed[3])
    assert abs(time.time() - fixed[2]) < 60
    assert [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}] == first["choices"]
    assert [{"index": 0, "delta": {}, "finish_reason": "stop"}] == last["choices"]
    assert all(["content"] == list(chunk["choices"][0]["delta"]) for chunk in middle)
    assert ("waves", True) == (told.text, told.done)


@requirement("start.stream-shape")
async def test_a_stream_has_only_data_lines_and_the_headers_that_keep_proxies_from_holding_it_back(world):
    """openai-python crashes on an `id:` followed by a comment block, and on an event that is only `retry:`."""
    response = await world.chat("up/end:completed", stream=True)
    frames = await response.all_events()  # comments stand for themselves

    assert all(line.startswith("data: ") for frame in frames for line in frame.lines)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert ("no-store, no-transform", "no") == (
        response.headers["cache-control"],
        response.headers["x-accel-buffering"],
    )
    assert response.headers["x-run-id"].startswith("run_")
    assert response.headers["x-request-id"]


@requirement("start.stream-shape")
@pytest.mark.parametrize("asked", [True, False, None])
async def test_usage_comes_in_a_chunk_of_its_own_where_it_was_asked_for(world, asked):
    """A chunk without choices surprises clients that did not ask for it."""
    options = {} if asked is None else {"stream_options": {"include_usage": asked}}

    response = await world.chat("up/end:completed", stream=True, **options)
    told = of_chunks(response, await response.all_events())

    assert [USAGE] * bool(asked) == [chunk["usage"] for chunk in told.body if "usage" in chunk]
    assert [[]] * bool(asked) == [chunk["choices"] for chunk in told.body if not chunk["choices"]]
    assert ("usage" in told.body[-1]) is bool(asked)


@requirement("start.stream-shape")
async def test_several_choices_each_have_their_role_their_text_and_their_end(world):
    """`n` is passed on, and each of its answers may end in another way."""
    response = await world.chat("up/two-choices", stream=True, n=2)
    told = of_chunks(response, await response.all_events())
    whole = await (await world.chat("up/two-choices", n=2)).json()

    deltas = [(c["index"], c["delta"], c["finish_reason"]) for chunk in told.body for c in chunk["choices"]]
    texts = {index: "".join(delta.get("content") or "" for i, delta, _ in deltas if i == index) for index in (0, 1)}
    assert {0: "one first", 1: "two second"} == texts
    assert [0, 1] == [index for index, delta, _ in deltas if "role" in delta]
    assert {0: "stop", 1: "length"} == {index: finish for index, _, finish in deltas if finish}
    assert [("one first", "stop"), ("two second", "length")] == [
        (c["message"]["content"], c["finish_reason"]) for c in whole["choices"]
    ]
    assert 2 == world.up.requests[-1].body["n"]


@requirement("start.default-json")
@pytest.mark.parametrize("asked", [{}, {"stream": False}, {"stream": "false"}, {"stream": None}])
async def test_an_answer_is_one_object_unless_a_stream_was_asked_for(world, asked):
    """A client that does not say `stream` cannot read one."""
    response = await world.chat("up/end:completed", **asked)
    body = await response.json()

    message = {"role": "assistant", "content": TEXT, "refusal": None}
    assert (200, "application/json") == (response.status, response.headers["content-type"])
    assert ("chat.completion", "up/end:completed") == (body["object"], body["model"])
    assert body["id"].startswith("chatcmpl-")
    assert [(0, message, "stop")] == [(c["index"], c["message"], c["finish_reason"]) for c in body["choices"]]
    assert USAGE == body["usage"]
    assert {"x-run-id", "x-request-id"} <= set(response.headers)


@requirement("start.default-json")
async def test_a_stream_asked_for_by_the_word_true_is_a_stream(world):
    """Who writes "false" as a string also writes "true"."""
    response = await world.chat("up/end:completed", stream="true")

    assert response.headers["content-type"].startswith("text/event-stream")
    assert TEXT == of_chunks(response, await response.all_events()).text


@requirement("start.stream-shape", "start.default-json")
async def test_every_answer_of_the_openai_dialect_has_a_request_id_and_every_answer_of_a_run_its_id(world):
    """The one is what people quote when they ask for help, the other what they look up."""
    started = await world.chat("up/echo:ids", background=True)
    run_id, completion_id = started.headers["x-run-id"], (await started.json())["id"]
    await world.events(run_id)
    of_a_run = [
        started,
        await world.chat("up/echo:ids"),
        await world.chat("up/echo:ids", stream=True),
        await world.chat("up/end:400"),
        await world.chat("up/end:400", stream=True),
        await world.chat("up/end:in-band-error"),
        await world.call("GET", f"/v1/chat/completions/{completion_id}"),
        await world.call("GET", f"/v1/chat/completions/{completion_id}?stream=true"),
    ]
    native = [
        await world.call("GET", f"/api/runs/{run_id}"),
        await world.call("GET", f"/api/runs/{run_id}/events"),
        await world.call("POST", f"/api/runs/{run_id}/stop"),
        await world.send(await world.new_session(), "up/echo:ids"),
    ]
    others = [
        await world.call("GET", "/v1/models"),
        await world.call("GET", "/v1/models/nothing"),
        await world.call("GET", "/v1/chat/completions/nothing"),
        await world.call("PUT", "/v1/chat/completions"),
        await world.call("GET", "/v1/nothing"),
        await world.chat("up/echo:ids", question=""),
    ]
    for told in (*of_a_run, *native, *others):
        await told.body()

    assert [] == [told.status for told in (*of_a_run, *others) if not told.headers.get("x-request-id")]
    assert [] == [told.status for told in (*of_a_run, *native) if "run_" not in told.headers.get("x-run-id", "")]
    assert [] == [told.status for told in others if "x-run-id" in told.headers]


# The text.


@requirement("start.text-exact")
@pytest.mark.parametrize(
    ("model", "text"),
    [
        *((f"end:{name}", TEXT) for name in ("split-utf8", "crlf", "split-crlf", "cr", "comments", "no-space", "bom")),
        *((f"end:{name}", TEXT) for name in ("sse-fields", "null-fields", "changing-ids", "until-close")),
        ("end:line-separators", "a\u2028b\u2029c\u0085de\x0bf\x0cg\x1ch\x1di"),
        ("end:two-data-lines", TEXT + "!"),
        ("end:lone-surrogate", "a🌊b\ufffd"),
        ("end:drip", "slow"),
        ("nasty", NASTY),
        ("nasty-in-slices", NASTY),
        ("tokens:1000", "".join(f"t{n} " for n in range(1000))),
    ],
)
async def test_the_text_is_exactly_what_the_upstream_sent(world, model, text):
    """However the bytes were cut and framed on their way."""
    told = await asyncio.gather(*(SURFACES[surface](world, f"up/{model}") for surface in READ))

    assert dict.fromkeys(READ, text) == {surface: said.text for surface, said in zip(READ, told, strict=True)}


@requirement("start.text-exact")
async def test_what_the_user_said_reaches_the_model_to_the_letter(world):
    """The same holds the other way, through the store too."""
    session_id = await world.new_session()
    question = NASTY + " question"

    await (await world.chat("up/echo:direct", question=question)).body()
    started = await (await world.send(session_id, "up/echo:stored", question)).json()
    await world.settled(started["id"])

    assert question == world.request_for("echo:direct").body["messages"][0]["content"]
    assert question == world.request_for("echo:stored").body["messages"][0]["content"]
    assert question == (await world.messages(session_id))[0]["content"]


# At once.


@requirement("start.id-at-once")
async def test_a_detached_run_has_its_id_at_once_though_the_upstream_is_silent(world):
    """A tab that closes now must be able to find the run again."""
    session_id = await world.new_session()
    world.up.models["mute"] = [Gate("mute"), Hang()]

    response = await world.send(session_id, "up/mute")
    waited = time.monotonic() - response.sent_at
    run = await response.json()
    await world.up.reached("mute")

    assert (202, f"/api/runs/{run['id']}") == (response.status, response.headers["location"])
    assert waited < AT_ONCE
    assert (run["id"], "running", "detached") == (response.headers["x-run-id"], run["status"], run["lifetime"])
    assert run["message_id"].startswith("msg_")
    assert None is world.request_for("mute").first_byte_at
    stopped = await (await world.call("POST", f"/api/runs/{run['id']}/stop")).json()
    assert ("stopped", "") == (stopped["settlement"]["outcome"], stopped["text"])


@requirement("start.id-at-once")
async def test_a_background_completion_has_its_id_at_once_too(world):
    """202, the id to come back with, and no word that could be taken for an answer."""
    response = await world.chat("up/silent", background=True)
    waited = time.monotonic() - response.sent_at
    body = await response.json()

    assert 202 == response.status
    assert waited < AT_ONCE
    assert body["id"].startswith("chatcmpl-")
    assert (None, "running") == (body["choices"][0]["finish_reason"], body["status"])
    await world.call("POST", f"/api/runs/{response.headers['x-run-id']}/stop")


@requirement("start.id-at-once")
async def test_headers_come_with_the_first_word_and_not_before(world):
    """Until then a failure can still be a real status; after it nobody should wait for more."""
    world.up.models["held"] = [Headers(), Role(), Gate("before"), Delta("word"), Gate("after"), Finish(), Done()]
    sent = await world.client.send(
        "POST",
        "/v1/chat/completions",
        json={"model": "up/held", "stream": True, "messages": [{"role": "user", "content": "?"}]},
    )
    await world.up.reached("before")
    head = asyncio.create_task(sent.head())
    probe = await world.get("/health")  # a whole round trip: the headers would have come before its answer
    held = not head.done()

    world.up.open("before")
    await head
    words = [(await sent.next_event()).json()["choices"][0]["delta"]["content"] for _ in range(2)]

    assert (True, {"status": "ok"}, 200, ["", "word"]) == (held, probe, sent.status, words)
    world.up.open("after")
    assert "[DONE]" == (await sent.all_events())[-1].data


# A failure before any text.


EARLY = {
    "400": (400, "upstream_rejected", None, "false"),
    "401": (502, "upstream_auth", None, "false"),
    "403": (502, "upstream_auth", None, "false"),
    "404": (404, "model_not_found", None, "false"),
    "429": (429, "upstream_rate_limited", "7", "true"),
    "429-date": (429, "upstream_rate_limited", "3600", "true"),
    "500": (502, "upstream_error", None, "false"),
    "503": (502, "upstream_error", "1", "false"),
    "json-error-200": (502, "upstream_error", None, "false"),
    "html-200": (502, "upstream_broke", None, "false"),
}

TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 429: "rate_limit_error"}


@requirement("start.early-failure-status")
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("name", EARLY)
async def test_a_failure_before_any_text_is_a_real_status(world, name, stream):
    """Clients know what to do with a 429; with a 200 that holds an error they do not."""
    status, code, retry_after, should_retry = EARLY[name]

    response = await world.chat(f"up/end:{name}", stream=stream)
    waited = time.monotonic() - response.sent_at
    body = await response.json()

    assert (status, code, retry_after) == (response.status, body["error"]["code"], response.headers.get("retry-after"))
    assert {"message", "type", "code", "param", "help"} == set(body["error"])
    assert TYPES.get(status, "upstream_error") == body["error"]["type"]
    assert "application/json" == response.headers["content-type"]
    assert should_retry == response.headers["x-should-retry"]
    assert waited < AT_ONCE  # at most a second of retries; the rest is a busy machine


@requirement("start.early-failure-status")
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_refused_connection_is_a_502(world, stream):
    """Nothing is there: no text, no run that hangs, and no address of ours in the message."""
    response = await world.chat("gone/m", stream=stream)
    error = (await response.json())["error"]

    assert (502, "upstream_unreachable") == (response.status, error["code"])
    assert "127.0.0.1" not in error["message"]


@requirement("start.early-failure-status")
async def test_what_heals_within_a_second_is_tried_again_and_a_rate_limit_is_not(world):
    """These clients retry by themselves: here only what is quick, and never against the upstream's own word."""
    world.up.enqueue([Status(500)], answer("healed"))
    healed = await (await world.chat("up/flaky")).json()
    limited = await world.chat("up/end:429")

    assert "healed" == healed["choices"][0]["message"]["content"]
    assert 2 == sum(request.model == "flaky" for request in world.up.requests)
    assert (429, "7") == (limited.status, limited.headers["retry-after"])


@requirement("start.early-failure-status")
async def test_a_few_silent_seconds_let_the_headers_go_and_a_later_failure_is_an_event_alone(silent):
    """Proxies give up on a request without headers. From then on a failure is one error event, and no [DONE]."""
    response, waited, frames = await silent

    data = [frame.json() for frame in frames]
    assert (200, True) == (response.status, 4.0 < waited < IDLE_LIMIT)
    assert {"role": "assistant", "content": ""} == data[0]["choices"][0]["delta"]
    assert [("upstream_stalled", "failed")] == [(d["error"]["code"], d["holdfast"]["outcome"]) for d in data[1:]]


@requirement("start.stream-shape")
@pytest.mark.parametrize("surface", ["chat", "native"])
async def test_silence_is_broken_by_a_comment_in_time_and_only_then(world, surface):
    """A proxy cuts what is silent too long: the limit holds after each word, not only after the first."""
    world.up.models["slow"] = [Headers(), Role(), Delta("a"), Pause(0.65 * HEARTBEAT), Delta("b"), Hang()]
    if surface == "chat":
        stream = await world.chat("up/slow", stream=True)
    else:
        stream = await world.send(await world.new_session(), "up/slow", Accept="text/event-stream")
    frames = []
    async for found in stream.events():
        frames.append(found)
        if ["comment"] * 2 == [frame.kind for frame in frames[-2:]] and '"b"' in frames[-3].data:
            break
    stream.leave()
    await world.call("POST", f"/api/runs/{stream.headers['x-run-id']}/stop")

    silences = [(after.kind, after.at - before.at) for before, after in itertools.pairwise(frames)]
    assert all(seconds > HEARTBEAT / 2 for kind, seconds in silences if kind == "comment")
    assert all(seconds < 2 * HEARTBEAT for _, seconds in silences)


# Once.


async def start(world: World, surface: str, session_id: str, model: str, key: str):
    headers = {"Idempotency_Key": key}
    if surface == "native":
        return await world.send(session_id, model, **headers)
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
    body |= {"stream": True} if surface == "chat-stream" else {"background": True} if surface == "background" else {}
    return await world.call("POST", "/v1/chat/completions", body, **headers)


@requirement("start.idempotent")
@pytest.mark.parametrize("surface", ["native", "chat-stream", "chat-object", "background"])
async def test_the_same_key_and_body_give_the_same_run_and_the_model_is_asked_once(world, surface):
    """A client that lost the answer sends again; it must not pay, or speak, twice."""
    session_id, model = await world.new_session(), f"echo:once {surface}"

    at_once = await asyncio.gather(*(start(world, surface, session_id, f"up/{model}", surface) for _ in range(8)))
    bodies = [await response.body() for response in at_once]
    later = await start(world, surface, session_id, f"up/{model}", surface)
    await world.events(later.headers["x-run-id"])

    assert 1 == len({response.headers["x-run-id"] for response in [*at_once, later]})
    assert {later.status} == {response.status for response in at_once} <= {200, 202}
    assert 1 == sum(request.model == model for request in world.up.requests)
    assert surface != "chat-stream" or 1 == len(set(bodies))


@requirement("start.idempotent")
@pytest.mark.parametrize("surface", ["native", "chat-stream", "chat-object", "background"])
async def test_the_same_key_with_another_body_is_a_conflict_and_starts_nothing(world, surface):
    """It is a mistake of the client's, and guessing which request was meant would be a second one."""
    session_id, key = await world.new_session(), f"other {surface}"
    first = await start(world, surface, session_id, f"up/echo:{key}", key)
    await world.events(first.headers["x-run-id"])
    calls = len(world.up.requests)

    refused = await start(world, surface, session_id, "up/echo:something else", key)
    body = await refused.json()

    assert (409, "idempotency_conflict") == (refused.status, body["error"]["code"])
    assert ("false", calls) == (refused.headers["x-should-retry"], len(world.up.requests))


@requirement("start.idempotent")
async def test_a_key_holds_for_new_answers_and_edits_too(world):
    """Any POST that starts a run takes a key."""
    session_id = await world.new_session()
    await world.settled((await (await world.send(session_id, "up/echo:first")).json())["id"])
    said, answered = [message["id"] for message in await world.messages(session_id)]
    edit = {"message_id": said, "input": "Better?", "model": "up/echo:edited"}
    again = {"message_id": answered, "model": "up/echo:again"}

    runs = {}
    for path, body in (("regenerate", again), ("edit", edit)):
        where = f"/api/sessions/{session_id}/{path}"
        first = await (await world.call("POST", where, body, Idempotency_Key=path)).json()
        await world.settled(first["id"])
        again = await world.call("POST", where, body, Idempotency_Key=path)
        other = await world.call("POST", where, {**body, "params": {"seed": 1}}, Idempotency_Key=path)
        runs[path] = (again.status, (await again.json()).get("id") == first["id"], other.status)

    assert dict.fromkeys(runs, (202, True, 409)) == runs
    assert 1 == sum(request.model == "echo:again" for request in world.up.requests)
    assert 1 == sum(request.model == "echo:edited" for request in world.up.requests)


@requirement("start.idempotent")
async def test_a_key_holds_across_a_restart(up, tmp_path):
    """The client that sends again does so because something broke: perhaps this server."""
    surfaces = ("native", "chat-stream", "chat-object", "background")
    async with Server(tmp_path, [provider(up.base_url, models=None)]) as server, server.client() as client:
        world = World(up, server, client)
        session_id = await world.new_session()
        before = [await start(world, s, session_id, f"up/echo:durable {s}", f"key {s}") for s in surfaces]
        texts = [await response.body() for response in before]
        for response in before:
            await world.events(response.headers["x-run-id"])

        await server.restart()
        after = [await start(world, s, session_id, f"up/echo:durable {s}", f"key {s}") for s in surfaces]
        repeated = [await response.body() for response in after]
        refused = await start(world, "chat-object", session_id, "up/echo:else", "key chat-object")

    assert [r.headers["x-run-id"] for r in before] == [r.headers["x-run-id"] for r in after]
    assert texts[1:3] == repeated[1:3]
    assert 409 == refused.status
    assert 4 == sum(request.model.startswith("echo:durable") for request in world.up.requests)


@requirement("start.idempotent")
@pytest.mark.parametrize("key", ["", "x" * 257, "tab\there", "caf\xe9\x80"])
async def test_a_key_that_makes_no_sense_is_refused(world, key):
    """An empty or cut key would make strangers' requests the same."""
    response = await start(world, "chat-object", "", "up/echo:never", key)

    assert (400, "Idempotency-Key") == (response.status, (await response.json())["error"]["param"])


# Reasoning.


NO_THOUGHTS = {True: {"session-feed"}, False: {"session-feed", "session-messages"}}  # nothing visible, no message
CODE = "Use `<think>` like this:\n```html\n<think>a</think>\n```\nDone."
REASONED = {
    "a field": ([ReasoningDelta(REASONING), Delta(TEXT)], REASONING, TEXT),
    "the other field": ([ReasoningDelta(REASONING, "reasoning"), Delta(TEXT)], REASONING, TEXT),
    "tags": ([Delta(f"<think>{REASONING}</think>{TEXT}")], REASONING, TEXT),
    "tags in pieces": ([Delta(c) for c in f"<think>{REASONING}</think>\n\n{TEXT}"], REASONING, TEXT),
    "tags after a blank line": ([Delta("\n"), Delta(f"<think>\n{REASONING}\n</think>\n"), Delta(TEXT)], None, TEXT),
    "an empty block": ([Delta("<think></think>\n\n"), Delta(TEXT)], "", TEXT),
    "an open block": ([Delta("<think>"), Delta(REASONING)], REASONING, ""),
    "code": ([Delta(c) for c in CODE], "", CODE),
    "the middle of an answer": ([Delta("One <thi"), Delta("nk>two</think> three")], "", "One <think>two</think> three"),
    "a tag that is none": ([Delta("<thinker> said"), Delta(" so")], "", "<thinker> said so"),
    "half a tag at the end": ([Delta("<thi")], "", "<thi"),
}


@requirement("start.reasoning-apart")
@pytest.mark.parametrize("name", REASONED)
async def test_reasoning_is_never_content_and_content_never_reasoning(world, name):
    """Whoever stores, shows or feeds back the content must not have to strip it."""
    steps, reasoning, text = REASONED[name]
    world.up.models[name] = [Headers(), Role(), *steps, Finish(), UsageChunk(), Done()]

    told = await asyncio.gather(*(SURFACES[surface](world, f"up/{name}") for surface in READ))
    seen = dict(zip(READ, told, strict=True))

    ended = ("completed", None, text) if text else ("failed", "no_answer", "")  # reasoning alone is no answer
    assert dict.fromkeys(READ, ended) == {s: (said.outcome, said.code, said.text) for s, said in seen.items()}
    thought = {s: said.reasoning.strip() for s, said in seen.items() if s not in NO_THOUGHTS[bool(text)]}
    assert dict.fromkeys(thought, REASONING if reasoning is None else reasoning) == thought


@requirement("start.reasoning-apart")
async def test_reasoning_goes_out_under_both_names_and_is_kept_beside_the_answer(world):
    """Clients read one name or the other; the next turn's model reads neither."""
    stream = await world.chat("up/end:think", stream=True)
    deltas = [c["delta"] for chunk in of_chunks(stream, await stream.all_events()).body for c in chunk["choices"]]
    message = (await (await world.chat("up/end:think")).json())["choices"][0]["message"]
    session_id = await world.new_session()
    await world.settled((await (await world.send(session_id, "up/end:think")).json())["id"])
    _, kept = await world.messages(session_id)
    shown = await world.shown_next(session_id, "after thinking")

    for name in ("reasoning", "reasoning_content"):
        assert REASONING == "".join(delta.get(name, "") for delta in deltas)
    assert (REASONING, REASONING, TEXT) == (message["reasoning"], message["reasoning_content"], message["content"])
    assert (REASONING, TEXT) == (kept["reasoning"], kept["content"])
    assert REASONING not in json.dumps(shown)
