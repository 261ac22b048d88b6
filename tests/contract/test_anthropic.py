"""What the provider of Anthropic's Messages API asks, and what it makes of an upstream that can do every wrong thing.

Real sockets, as in `test_provider.py`; what both providers have in common (connecting, keeping connections, TLS) is
tested there.
"""

import asyncio
import json
from collections import deque
from functools import partial

import pytest

from holdfast.engine.core import Core
from holdfast.errors import ProviderBroke, ProviderError, ProviderRefused, ProviderUnreachable
from holdfast.events import (
    Completed,
    Failed,
    Finish,
    Notice,
    Reasoning,
    Text,
    ToolCall,
    ToolDelta,
    Truncated,
    Usage,
)
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings, SettingsError, discovered
from holdfast.server.live.provider_factory import make_provider
from holdfast.store.memory import MemoryStore
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.anthropic.decoder import MessageDecoder
from holdfast.upstreams.anthropic.provider import Anthropic
from tests.contract.test_provider import consume, gone, listen
from tests.requirements import requirement
from tests.support import outlets
from tests.support.served import NO_HOME, Served
from tests.support.upstream import (
    Cut,
    Eof,
    Gate,
    Hang,
    Headers,
    Raw,
    Repeat,
    Slices,
    Status,
    Upstream,
    Wire,
)
from tests.support.waiting import SOON

KEY = "sk-ant-test-Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8"
TEXT = "Héllo wörld 🌊"


# What the upstream says.


def event(kind, **fields):
    """One event as Anthropic writes it."""
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode("utf-8", "surrogatepass")


def start(**usage):
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": None}
    return event("message_start", message=message | {"usage": {"input_tokens": 25, "output_tokens": 1} | usage})


def block(index, content, *deltas):
    return (
        event("content_block_start", index=index, content_block=content)
        + b"".join(event("content_block_delta", index=index, delta=delta) for delta in deltas)
        + event("content_block_stop", index=index)
    )


def text(*pieces, index=0):
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def thinking(*pieces, index=0):
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signature = {"type": "signature_delta", "signature": "EqQBCgIYAhIM"}
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, signature)


def tool(*pieces, index=0, id="toolu_1", name="add"):
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas)


def ending(reason="end_turn", **usage):
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage={"output_tokens": 15} | usage)


PING = event("ping")
STOP = event("message_stop")
BEGIN = start() + PING + text(TEXT[:3], TEXT[3:])
OVERLOADED = event("error", error={"type": "overloaded_error", "message": f"Overloaded. Key {KEY}"})
WHOLE = BEGIN + ending() + STOP


@pytest.fixture
async def up():
    async with Upstream([Raw(WHOLE)]) as up:
        yield up


def base_url(up):
    return f"http://{up.host}:{up.port}"


@pytest.fixture
async def provider(up):
    provider = Anthropic("claude", base_url(up), api_key=KEY, linger=0.2)
    yield provider
    await provider.close()


def request(*messages, patience=0.0, **params):
    messages = list(messages) or [{"role": "user", "content": "Hello"}]
    return ChatRequest(model="m", messages=messages, params=params, patience=patience)


def user(content):
    return {"role": "user", "content": content}


def assistant(content, *calls):
    return {"role": "assistant", "content": content} | ({"tool_calls": list(calls)} if calls else {})


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def play(up, provider, *steps, asked=None):
    up.enqueue([Raw(step) if isinstance(step, bytes) else step for step in steps])
    return await listen(provider, asked or request())


async def asked_for(up, provider, *messages, **params):
    """The body that a request becomes."""
    heard = await listen(provider, request(*messages, **params))
    assert heard.error is None
    return up.requests[-1].body


# answers


@requirement("start.text-exact", "truth.completed")
@pytest.mark.parametrize(
    "steps",
    [
        [WHOLE],
        [BEGIN + ending()],
        [BEGIN + ending(), Cut()],
        [BEGIN + ending(), Eof(clean=False)],
        [BEGIN + ending(), Hang()],
        [WHOLE.replace(b"\n", b"\r\n")],
        [WHOLE[:-2], Eof()],
        [WHOLE + text("late", index=9) + ending("max_tokens")],
        [BEGIN + ending("stop_sequence") + text("late", index=9) + STOP],
        [start() + event("some_new_thing", delta={"text": "no"}) + BEGIN[len(start()) :] + ending() + STOP],
        [Slices(WHOLE, 7)],
    ],
    ids=["whole", "no-stop", "cut", "eof", "stays", "crlf", "last-blank-line", "late", "later", "unknown", "slices"],
)
async def test_the_text_of_a_whole_answer_is_exact(up, provider, steps):
    """A stop reason makes it whole; nothing that follows adds to it, or takes it back."""
    heard = await play(up, provider, *steps)

    assert heard.error is None
    assert TEXT == heard.text
    assert [Finish("stop")] == heard.all(Finish)


def test_any_cutting_of_the_bytes_gives_the_same_answer():
    """Where the network cuts says nothing."""
    body = start() + thinking("I wonder.") + text(TEXT, index=1) + tool('{"a"', ": 1}", index=2) + ending() + STOP
    whole = [event for said in MessageDecoder("claude").feed(body) for event in said]
    for cut in range(len(body)):
        decoder = MessageDecoder("claude")

        reads = [*decoder.feed(body[:cut]), *decoder.feed(body[cut:])]
        assert whole == [event for said in reads for event in said]
        assert decoder.over
        assert decoder.error is None


@requirement("truth.length", "truth.content-filter")
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "length"),
        ("something_new", "something_new"),
    ],
)
async def test_stop_reasons_are_said_in_openais_words(up, provider, said, reason):
    """One that is not known is passed on: what it means is judged elsewhere."""
    heard = await play(up, provider, BEGIN + ending(said) + STOP)

    assert (TEXT, [Finish(reason)], None) == (heard.text, heard.all(Finish), heard.error)


@requirement("start.reasoning-apart")
async def test_thinking_is_apart_from_the_answer(up, provider):
    """Its signature, and thinking that Anthropic hides, are shown nowhere."""
    hidden = block(1, {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"})
    heard = await play(
        up, provider, start() + thinking("I ", "wonder.") + hidden + text(TEXT, index=2) + ending() + STOP
    )

    assert [Reasoning("I "), Reasoning("wonder.")] == heard.all(Reasoning)
    assert (TEXT, None) == (heard.text, heard.error)


async def test_text_and_thinking_that_come_with_the_start_of_a_block_are_kept(up, provider):
    """As a rule there is none, but what the upstream says is part of the answer."""
    body = block(0, {"type": "thinking", "thinking": "Hm."}) + block(1, {"type": "text", "text": TEXT})
    heard = await play(up, provider, start() + body + ending() + STOP)

    assert ([Reasoning("Hm.")], TEXT) == (heard.all(Reasoning), heard.text)


async def test_half_an_emoji_waits_for_its_other_half(up, provider):
    """JSON can escape it, and Anthropic does not promise where it cuts."""
    body = text("a\ud83c", "\udf0ab", "\ud83c").decode("utf-8", "surrogatepass")
    escaped = body.encode("ascii", "backslashreplace")
    heard = await play(up, provider, start() + escaped + ending() + STOP)

    assert "a🌊b\ufffd" == heard.text


async def test_tool_calls_are_assembled(up, provider):
    """Pieces as they come, each call whole when its block ends; a call without arguments has an empty object."""
    calls = tool('{"a": ', "1}", index=1) + tool("", index=2, id="toolu_2", name="now")
    heard = await play(up, provider, start() + text("Let me see.") + calls + ending("tool_use") + STOP)

    assert [ToolCall("toolu_1", "add", '{"a": 1}'), ToolCall("toolu_2", "now", "{}")] == heard.all(ToolCall)
    assert [
        ToolDelta(0, "toolu_1", "add"),
        ToolDelta(0, arguments='{"a": '),
        ToolDelta(0, arguments="1}"),
        ToolDelta(1, "toolu_2", "now"),
        ToolDelta(1, arguments="{}"),
    ] == heard.all(ToolDelta)
    assert [Finish("tool_calls")] == heard.all(Finish)


@pytest.mark.parametrize(
    ("reason", "calls"), [("max_tokens", []), ("tool_use", [ToolCall("toolu_1", "add", '{"a": ')])]
)
async def test_a_call_that_was_cut_off_is_no_call(up, provider, reason, calls):
    """Half its arguments could mean anything. Where nothing was cut the model wrote it so, and that is told."""
    heard = await play(up, provider, start() + tool('{"a": ') + ending(reason) + STOP)

    assert calls == heard.all(ToolCall)


async def test_what_anthropics_own_tools_do_is_no_call_of_ours(up, provider):
    """It has been made already, and nobody here could answer it."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    own = block(0, search, {"type": "input_json_delta", "partial_json": '{"query": "x"}'})
    found = block(1, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "x"}]})
    heard = await play(up, provider, start() + own + found + text(TEXT, index=2) + ending() + STOP)

    assert [] == heard.all(ToolCall, ToolDelta)
    assert (TEXT, None) == (heard.text, heard.error)


# usage


async def test_usage_is_estimated_then_known_for_the_input_then_counted(up, provider):
    """What was written to the cache or found there is input too."""
    first = start(input_tokens=5, cache_creation_input_tokens=100, cache_read_input_tokens=1000)
    heard = await play(up, provider, first + text(TEXT) + ending(output_tokens=7) + STOP, asked=request(user("x" * 41)))

    cache = {"cached_tokens": 1000, "cache_write_tokens": 100}
    assert [
        Usage(11, 0, "estimated"),
        Usage(1105, 0, **cache),
        Usage(1105, 7, **cache),
    ] == heard.all(Usage)


async def test_input_that_grew_meanwhile_is_counted_at_the_end(up, provider):
    """Anthropic's own tools add to it."""
    heard = await play(up, provider, BEGIN + ending(input_tokens=900, output_tokens=7) + STOP)

    assert Usage(900, 7) == heard.all(Usage)[-1]


@requirement("stop.closes-upstream", "stop.usage")
async def test_a_stopped_run_closes_its_upstream_and_knows_about_what_it_cost(up, provider):
    """The input as Anthropic counted it, the output estimated: its own count comes only at the end."""
    up.enqueue([Raw(start(input_tokens=2000) + text("12345678")), Hang()])
    async with Core() as engine:
        run = await engine.start(partial(provider.answer, request()))
        async for _, seen in run.read():
            if isinstance(seen, Text):
                break
        stopped = (await run.stop()).settlement
        await up.requests[0].wait_closed(SOON)

    assert ("12345678", Usage(2000, 2, "estimated")) == (stopped.text, stopped.usage)


# failures


FAILURES = {
    # name: the steps, the error, its code, and whether TEXT came before it
    "overloaded": ([BEGIN + OVERLOADED], ProviderError, "upstream_overloaded", True),
    "error-at-once": ([OVERLOADED], ProviderError, "upstream_overloaded", False),
    "error-by-name": ([BEGIN + b"event: error\ndata: oops\n\n"], ProviderError, "upstream_error", True),
    "eof": ([BEGIN, Eof()], ProviderBroke, "upstream_broke", True),
    "eof-unclean": ([BEGIN, Eof(clean=False)], ProviderBroke, "upstream_broke", True),
    "stop-without-reason": ([BEGIN + STOP], ProviderBroke, "upstream_broke", True),
    "delta-without-reason": ([BEGIN + ending(None), Eof()], ProviderBroke, "upstream_broke", True),
    "garbage-json": ([BEGIN + b'data: {"type": "conte\n\n' + ending()], ProviderBroke, "upstream_broke", True),
    "not-an-event": ([BEGIN + b"data: 7\n\n" + ending()], ProviderBroke, "upstream_broke", True),
    "bad-chunked": ([BEGIN, Wire(b"zz\r\nno chunk\r\n"), Hang()], ProviderBroke, "upstream_broke", True),
    "huge-event": ([BEGIN, Raw(b"data: "), Repeat(150, Raw(b"x" * 65_536))], ProviderBroke, "upstream_broke", True),
    "nothing-at-all": ([Headers(), Eof()], ProviderBroke, "upstream_broke", False),
    "html-200": ([Status(200, "<h1>Sign in</h1>$KEY")], ProviderBroke, "upstream_broke", False),
    "json-error-200": ([Status(200, {"error": {"message": "$KEY"}})], ProviderError, "upstream_error", False),
}


@requirement("truth.redacted", "truth.in-band-error", "truth.eof", "truth.no-error-text-in-content")
@pytest.mark.parametrize("name", FAILURES)
async def test_every_failure_is_told_apart_and_says_no_secret(up, provider, name):
    """Each keeps the text that came before it, is never a finish, and is tried once."""
    steps, kind, code, has_text = FAILURES[name]
    heard = await play(up, provider, *steps)

    assert isinstance(heard.error, kind)
    assert (code, 529 if code == "upstream_overloaded" else 502) == (heard.error.code, heard.error.status)
    assert (TEXT if has_text else "") == heard.text
    assert [] == heard.all(Finish, Notice)
    assert KEY not in str(heard.error.info())
    assert "Sign in" not in str(heard.error)
    assert 1 == len(up.requests)


async def test_an_error_in_the_stream_is_told_in_the_upstreams_words(up, provider):
    """Without the key that is in them."""
    heard = await play(up, provider, BEGIN + OVERLOADED)

    assert "claude failed: Overloaded. Key [redacted]" == str(heard.error)


@requirement("truth.cut")
async def test_a_cut_connection_is_a_failure(up, provider):
    """Whatever had arrived is kept."""
    heard = await play(up, provider, BEGIN, Cut())

    assert isinstance(heard.error, ProviderBroke)
    assert [] == heard.all(Finish)
    assert TEXT.startswith(heard.text)


@requirement("truth.redacted")
@pytest.mark.parametrize(
    ("status", "ours", "code"),
    [
        (400, 400, "upstream_rejected"),
        (413, 413, "upstream_rejected"),
        (404, 404, "upstream_not_found"),
        (401, 502, "upstream_auth"),
        (402, 502, "upstream_auth"),
        (403, 502, "upstream_auth"),
        (429, 429, "upstream_rate_limited"),
        (500, 502, "upstream_error"),
        (503, 502, "upstream_error"),
        (529, 529, "upstream_overloaded"),
    ],
)
async def test_statuses_become_what_they_mean_to_our_own_client(up, provider, status, ours, code):
    """A fault of the request is the caller's to mend, anything else is not."""
    body = {"type": "error", "error": {"type": "some_error", "message": "no: $KEY"}, "request_id": "req_1"}
    heard = await play(up, provider, Status(status, body))

    assert isinstance(heard.error, ProviderRefused)
    assert (ours, code) == (heard.error.status, heard.error.code)
    assert f"claude answered {status}: no: [redacted]" == str(heard.error)


async def test_nobody_there_is_unreachable(up, provider):
    """As with any upstream."""
    up.refuse()
    heard = await listen(provider, request())

    assert isinstance(heard.error, ProviderUnreachable)


@requirement("truth.completed", "truth.length", "truth.in-band-error", "truth.eof")
@pytest.mark.parametrize(
    ("body", "outcome", "code"),
    [
        (WHOLE, Completed, None),
        (BEGIN + ending("max_tokens") + STOP, Truncated, None),
        (BEGIN + ending("pause_turn") + STOP, Truncated, None),
        (BEGIN + ending("refusal") + STOP, Truncated, None),
        (BEGIN, Failed, "upstream_broke"),
        (BEGIN + OVERLOADED, Failed, "upstream_overloaded"),
    ],
)
async def test_a_run_settles_as_the_upstream_ended(up, provider, body, outcome, code):
    """The whole way from the socket to the settlement, with all of the text."""
    up.enqueue([Raw(body)])
    async with Core() as engine:
        run = await engine.start(partial(provider.answer, request()))
        settlement = await run.settled()

    assert isinstance(settlement, outcome)
    assert TEXT == settlement.text
    assert code == (settlement.error.code if isinstance(settlement, Failed) else None)


async def test_an_answer_that_is_too_long_is_a_failure(up):
    """Nobody's memory is without end; empty pieces count too."""
    provider = Anthropic("claude", base_url(up), api_key=KEY, max_text=1000)
    heard = await play(up, provider, start(), Repeat(10**6, Raw(PING)))
    await provider.close()

    assert "claude sent an answer of more than 1000 characters." == str(heard.error)
    await gone(up)


# trying again


@pytest.mark.parametrize("status", [429, 529])
async def test_an_upstream_that_is_busy_is_asked_again_with_a_notice(up, provider, status):
    """529 is Anthropic's own word for overloaded."""
    busy = f"HTTP/1.1 {status} Busy\r\nContent-Length: 0\r\nRetry-After: 0.01\r\nConnection: close\r\n\r\n"
    heard = await play(up, provider, Wire(busy.encode()), asked=request(patience=5))

    assert (TEXT, None) == (heard.text, heard.error)
    assert ["retry"] == [notice.code for notice in heard.all(Notice)]
    assert 2 == len(up.requests)


async def test_an_upstream_that_asks_for_more_time_than_there_is_fails_at_once(up, provider):
    """The caller is told when to come back."""
    heard = await play(up, provider, Status(429, headers={"Retry-After": "30"}), asked=request(patience=1))

    assert (429, 30.0, []) == (heard.error.status, heard.error.retry_after, heard.all(Notice))


# leaving


PHASES = {
    "waiting for headers": [Gate(), Hang()],
    "headers came": [Headers(), Gate(), Hang()],
    "in the middle of the answer": [Raw(BEGIN), Gate(), Hang()],
    "inside an event": [Raw(BEGIN + b'event: content_block_delta\ndata: {"ty'), Gate(), Hang()],
    "while it streams": [Raw(BEGIN), Gate(), Repeat(10**9, Raw(text("again ")))],
    "after the stop reason": [Raw(BEGIN + ending()), Gate(), Hang()],
    "in the body of an error": [Headers(500), Gate(), Hang()],
}


@requirement("stop.closes-upstream")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancel_closes_the_upstream_at_once(up, phase, times):
    """In each phase, in silence too, and a second cancel keeps nothing open."""
    provider = Anthropic("claude", base_url(up), api_key=KEY, linger=60)
    up.enqueue(PHASES[phase])
    task = asyncio.create_task(consume(outlets.answer(provider, request())))
    await up.reached()
    up.open()
    for _ in range(times):
        task.cancel()
    await asyncio.wait({task})
    await up.requests[0].wait_closed(SOON)
    await gone(up)

    assert task.cancelled()
    assert "client" == up.requests[0].closed_by
    await provider.close()


async def test_a_finished_answer_leaves_its_connection_to_the_next(up, provider):
    """A connection to Anthropic costs a handshake across the world."""
    await listen(provider, request())
    await listen(provider, request())

    assert 1 == len({asked.connection for asked in up.requests})


# what is asked


async def test_a_request_has_anthropics_headers_and_limits(up, provider):
    """A limit is demanded, so there is one where the caller named none."""
    body = await asked_for(up, provider)
    [asked] = up.requests

    assert {
        "model": "m",
        "messages": [user([{"type": "text", "text": "Hello"}])],
        "max_tokens": 8192,
        "stream": True,
    } == body
    assert "/v1/messages" == asked.path
    assert (KEY, "2023-06-01") == (asked.headers["x-api-key"], asked.headers["anthropic-version"])
    assert "authorization" not in asked.headers


async def test_headers_of_the_operator_stand_before_ours(up):
    """A beta, a gateway's own key."""
    headers = {"Anthropic-Version": "2099-01-01", "anthropic-beta": "x"}
    provider = Anthropic("claude", base_url(up), api_key=KEY, headers=headers, max_tokens=7)
    body = await asked_for(up, provider)
    await provider.close()

    assert ("2099-01-01", "x") == tuple(
        up.requests[0].headers[name] for name in ("anthropic-version", "anthropic-beta")
    )
    assert 7 == body["max_tokens"]


async def test_params_are_translated_passed_on_or_left_out(up, provider):
    """What asks for nothing is left out, and what nobody here knows may be Anthropic's."""
    body = await asked_for(
        up,
        provider,
        max_completion_tokens=5,
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        stop="END",
        thinking={"type": "enabled", "budget_tokens": 1024},
        metadata={"user_id": "u1"},
        service_tier="standard_only",
        made_up=[1],
        n=1,
        seed=4,
        logprobs=False,
        response_format={"type": "text"},
        frequency_penalty=0.0,
        presence_penalty=0,
        logit_bias={},
        stream=False,
        stream_options={"include_usage": True},
        user=None,
    )

    assert {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u1"},
        "service_tier": "standard_only",
        "made_up": [1],
        "stream": True,
    } == {name: value for name, value in body.items() if name not in ("model", "messages")}


SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "object"}}}
FORMAT = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"max_tokens": 9}, {"max_tokens": 9}),
        ({"max_tokens": None}, {"max_tokens": 8192}),
        ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"stop": []}, {}),
        ({"user": "u2"}, {"metadata": {"user_id": "u2"}}),
        ({"metadata": {"trace": "x"}}, {}),
        ({"service_tier": "flex"}, {}),
        ({"tool_choice": "auto"}, {}),
        ({"reasoning_effort": "minimal"}, {"output_config": {"effort": "low"}}),
        ({"reasoning_effort": "max"}, {"output_config": {"effort": "max"}}),
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        (
            {"output_config": {"task_budget": 1}, "response_format": SCHEMA, "reasoning_effort": "low"},
            {"output_config": {"task_budget": 1, "format": FORMAT, "effort": "low"}},
        ),
        ({"response_format": SCHEMA}, {"output_config": {"format": FORMAT}}),
    ],
)
async def test_single_params(up, provider, params, said):
    """Nothing is sent that Anthropic would refuse only because OpenAI says it otherwise."""
    body = await asked_for(up, provider, **params)

    assert {"max_tokens": 8192} | said == {
        name: value for name, value in body.items() if name not in ("model", "messages", "stream")
    }


ADD = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
NOW = {"type": "function", "function": {"name": "now"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


async def test_tools_are_described_in_anthropics_shape(up, provider):
    """Those that are in it already stay, and so does what stands beside a function."""
    strict = NOW | {"function": {"name": "now", "strict": True}, "cache_control": {"type": "ephemeral"}}
    body = await asked_for(up, provider, tools=[ADD, strict, SEARCH])

    assert [
        {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}},
        {
            "name": "now",
            "strict": True,
            "cache_control": {"type": "ephemeral"},
            "input_schema": {"type": "object", "properties": {}},
        },
        SEARCH,
    ] == body["tools"]
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("params", "choice"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, {"type": "tool", "name": "add"}),
        ({"tool_choice": {"type": "any"}}, {"type": "any"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"tool_choice": "required", "parallel_tool_calls": False},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
    ],
)
async def test_tool_choice_is_said_in_anthropics_words(up, provider, params, choice):
    """Required is any, and one call at a time is part of the choice."""
    body = await asked_for(up, provider, tools=[ADD], **params)

    assert choice == body["tool_choice"]


async def test_betas_of_a_request_join_those_of_the_operator(up):
    """They are one header, whatever the case of its name in the settings."""
    provider = Anthropic("claude", base_url(up), api_key=KEY, headers={"Anthropic-Beta": "x"})
    body = await asked_for(up, provider, anthropic_beta=["y-2026-01-01", "z"])
    await provider.close()

    assert "x,y-2026-01-01,z" == up.requests[0].headers["anthropic-beta"]
    assert "anthropic_beta" not in body


@pytest.mark.parametrize("betas", [["a\r\nx-api-key: stolen"], ["a b"], [1], {"a": 1}, [""], ["é"]])
async def test_a_beta_that_could_be_another_header_is_refused_without_asking(up, provider, betas):
    """It is a client's text in a header of ours."""
    heard = await listen(provider, request(anthropic_beta=betas))

    assert isinstance(heard.error, ProviderRefused)
    assert (400, "anthropic_beta") == (heard.error.status, heard.error.param)
    assert not up.requests


async def test_without_thinking_nothing_asks_to_clear_it(up, provider):
    """Where the thoughts before a call are gone no thinking is asked for, and Anthropic refuses to clear none."""
    clear, edit = {"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}
    called = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "now", "arguments": "{}"}}]}
    for edits, left in (([clear], None), ([clear, edit], {"edits": [edit]})):
        body = await asked_for(
            up,
            provider,
            {"role": "user", "content": "Hi"},
            called,
            {"role": "tool", "tool_call_id": "c", "content": "12"},
            tools=[NOW],
            thinking={"type": "enabled", "budget_tokens": 1024},
            context_management={"edits": edits},
        )

        assert "thinking" not in body
        assert left == body.get("context_management")


async def test_several_choices_are_refused_without_asking(up, provider):
    """To give one answer where four were asked for would be a lie."""
    heard = await listen(provider, request(n=4))

    assert isinstance(heard.error, ProviderRefused)
    assert (400, "unsupported", "n") == (heard.error.status, heard.error.code, heard.error.param)
    assert [] == up.requests


async def test_a_whole_conversation_with_tools(up, provider):
    """System apart, calls and results as blocks, all results of one turn in one message, and the user's words after."""
    body = await asked_for(
        up,
        provider,
        {"role": "system", "content": "Be brief."},
        user("What is 1+1 and 2+2?"),
        {"role": "developer", "content": [{"type": "text", "text": "Use tools."}]},
        assistant("Let me see.", call("call:1", "add", '{"a": 1}'), call("c2", "add", "")),
        {"role": "tool", "tool_call_id": "call:1", "content": "2"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        user("And?"),
        assistant(None, call("c3", "add", "not json")),
        user("Well?"),
        {"role": "tool", "tool_call_id": "c3", "content": [{"type": "text", "text": "4"}]},
        tools=[ADD],
    )

    assert "Be brief.\n\nUse tools." == body["system"]
    assert [
        user([{"type": "text", "text": "What is 1+1 and 2+2?"}]),
        assistant(
            [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "add", "input": {}},
            ]
        ),
        user(
            [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "2"},
                {"type": "tool_result", "tool_use_id": "c2"},
                {"type": "text", "text": "And?"},
            ]
        ),
        assistant([{"type": "tool_use", "id": "c3", "name": "add", "input": {"arguments": "not json"}}]),
        user([{"type": "tool_result", "tool_use_id": "c3", "content": "4"}, {"type": "text", "text": "Well?"}]),
    ] == body["messages"]


@requirement("hist.alternation")
async def test_user_and_assistant_take_turns_and_nothing_is_empty(up, provider):
    """Anthropic refuses blank blocks and messages without any."""
    body = await asked_for(
        up,
        provider,
        user("one"),
        user([{"type": "text", "text": ""}, {"type": "text", "text": "two"}]),
        assistant(""),
        user("three"),
        assistant(None),
        assistant("four"),
        assistant([{"type": "refusal", "refusal": "five"}]),
        user("six"),
        user(" \n"),
    )

    assert [
        user([{"type": "text", "text": said} for said in ("one", "two", "three")]),
        assistant([{"type": "text", "text": "four"}, {"type": "text", "text": "five"}]),
        user([{"type": "text", "text": "six"}]),
    ] == body["messages"]


async def test_images_become_blocks(up, provider):
    """Data in base64 as data, addresses as addresses."""
    urls = ["data:image/png;base64,AAAA", "data:image/JPG;charset=x;base64,BBBB", "https://example.com/a.png"]
    parts = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}} for url in urls]
    body = await asked_for(up, provider, user([{"type": "text", "text": "Look:"}, *parts]))

    assert [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "BBBB"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    ] == body["messages"][0]["content"]


async def test_what_is_in_anthropics_shape_already_is_passed_on(up, provider):
    """Documents, signed thinking, and where the cache is to be written."""
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "Eq"}
    cached = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}
    body = await asked_for(
        up, provider, {"role": "system", "content": [cached]}, user([document]), assistant([thought]), user("Go on.")
    )

    assert [cached] == body["system"]
    assert [[document], [thought]] == [message["content"] for message in body["messages"][:2]]


@pytest.mark.parametrize(
    "message",
    [
        user([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]),
        user([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]),
        user([{"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg/>"}}]),
        user([{"type": "image_url"}]),
        user(["text"]),
        user(7),
        assistant(None, "call"),
        assistant(None, {"id": "c1", "type": "custom"}),
    ],
)
async def test_what_anthropic_cannot_be_told_is_refused_and_not_lost(up, provider, message):
    """An answer to half a message would look like an answer."""
    heard = await listen(provider, request(message))

    assert isinstance(heard.error, ProviderRefused)
    assert (400, "unsupported") == (heard.error.status, heard.error.code)
    assert str(heard.error.param).startswith("messages")
    assert [] == up.requests


async def test_an_assistants_last_message_is_gone_on_with(up, provider):
    """It must not end in white space: Anthropic refuses that."""
    body = await asked_for(up, provider, user("Count."), assistant("One, two, \n"))

    assert provider.prefills
    assert assistant([{"type": "text", "text": "One, two,"}]) == body["messages"][-1]


@pytest.mark.parametrize(
    ("before", "said", "shown"),
    [
        ("Once upon ", [" a", " time"], "a time"),
        ("One\n\n", ["\n", "\n", "Two"], "Two"),
        ("One\n", ["\n\nTwo"], "\nTwo"),
        ("One ", ["\nTwo"], "\nTwo"),
        ("One", [" Two"], " Two"),
    ],
)
async def test_white_space_that_was_taken_from_the_prefill_is_not_said_twice(up, provider, before, said, shown):
    """The model has to say it again, but the reader has seen it."""
    asked = request(user("Go."), assistant(before))
    heard = await play(up, provider, start() + text(*said) + ending() + STOP, asked=asked)

    assert shown == heard.text


async def test_an_empty_message_after_an_answer_is_refused(up, provider):
    """Left out, it would have the model go on with its own answer, which nobody asked for."""
    heard = await listen(provider, request(user("Hi"), assistant("Hello."), user("")))

    assert (400, "unsupported") == (heard.error.status, heard.error.code)


async def test_models_that_refuse_a_prefill_can_be_configured(up):
    """Then a cut-off answer is continued in a new turn."""
    provider = Anthropic("claude", base_url(up), api_key=KEY, prefills=False)

    assert not provider.prefills


async def test_half_an_emoji_in_a_message_can_be_asked(up, provider):
    """It came from a client, and must not end the run with a codec's error."""
    body = await asked_for(up, provider, user("a\ud83c"))

    assert "a\ud83c" == body["messages"][0]["content"][0]["text"]


# models


async def test_an_upstream_tells_whether_it_is_there(up, provider):
    """With its list of models, which costs nothing."""
    assert await provider.answers()
    assert ["/v1/models?limit=1000"] == [asked.path for asked in up.others]


class Pages(Upstream):
    """Lists its models in pages."""

    def __init__(self, *pages):
        super().__init__()
        self.pages = deque(pages)
        self.at["GET /v1/models"] = self.next_page

    def next_page(self, request):
        return [Status(200, self.pages.popleft())] if self.pages else [Status(500)]


def page(*ids, more):
    return {"data": [{"type": "model", "id": id} for id in ids], "has_more": more, "last_id": ids[-1]}


async def test_models_are_listed_page_by_page_and_remembered():
    """Each page is asked for after the last one's end."""
    async with Pages(page("a", "b", more=True), page("c", more=False)) as up:
        provider = Anthropic("claude", base_url(up) + "/?x=1", api_key=KEY)

        assert ["a", "b", "c"] == await provider.list_models()
        assert ["a", "b", "c"] == await provider.list_models()
        assert ["/v1/models?x=1&limit=1000", "/v1/models?x=1&limit=1000&after_id=b"] == [
            asked.path for asked in up.others
        ]
        assert KEY == up.others[0].headers["x-api-key"]
        await provider.close()


async def test_half_a_list_is_no_list():
    """It would hide the other half until the next look-up."""
    async with Pages(page("a", more=True)) as up:
        provider = Anthropic("claude", base_url(up), api_key=KEY)

        assert [] == await provider.list_models()
        await provider.close()


async def test_configured_models_are_listed_without_asking(up):
    """The operator knows."""
    provider = Anthropic("claude", base_url(up), api_key=KEY, models=["a", "b"])

    assert ["a", "b"] == await provider.list_models()
    assert [] == up.others


# in the server


async def test_a_key_in_the_environment_sets_it_up(up):
    """Off by default: the newest models refuse a prefill, and then a continuation would fail."""
    environ = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": base_url(up)}
    described = next(found for found in discovered(environ) if found.name == "anthropic")
    provider = make_provider(described, Settings(), environ)
    heard = await listen(provider, request())
    await provider.close()

    assert isinstance(provider, Anthropic)
    assert (TEXT, KEY) == (heard.text, up.requests[0].headers["x-api-key"])
    assert not provider.prefills
    assert "anthropic" not in [found.name for found in discovered({})]


def test_without_an_address_it_is_anthropics_own():
    """And one that cannot work is refused at the start."""
    make_provider(ProviderSettings("a", dialect="anthropic"), Settings(), {})
    with pytest.raises(SettingsError, match="base_url must"):
        make_provider(ProviderSettings("a", dialect="anthropic", base_url="ftp://x"), Settings(), {})


async def test_a_client_of_openais_dialect_can_ask_it(up, tmp_path):
    """From one dialect to the other and back: tools, usage, and a refusal with its status."""
    described = ProviderSettings("claude", dialect="anthropic", base_url=base_url(up), api_key=KEY, models=("m",))
    settings = Settings(data=str(tmp_path), providers=(described,))
    up.enqueue([Raw(start() + tool('{"a": 1}') + ending("tool_use") + STOP)])
    asked = {"model": "claude/m", "messages": [user("1+1?")], "tools": [ADD]}
    async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
        answer = await (await client.post("/v1/chat/completions", asked)).json()
        refused = await client.post("/v1/chat/completions", asked | {"n": 2})
        error = (await refused.json())["error"]

    [choice] = answer["choices"]
    [called] = choice["message"]["tool_calls"]
    assert ("tool_calls", "toolu_1") == (choice["finish_reason"], called["id"])
    assert {"name": "add", "arguments": '{"a": 1}'} == called["function"]
    assert (25, 15) == (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])
    assert (400, "unsupported", "n") == (refused.status, error["code"], error["param"])
    assert KEY not in str(answer) + str(error)


@requirement("wire.no-silent-drop")
async def test_what_openai_has_beside_a_text_reaches_anthropic_in_its_words(up, provider):
    """The name of a speaker, a PDF, and why a model did not answer."""
    pdf = {"type": "file", "file": {"filename": "sea.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}
    declined = {"role": "assistant", "content": None, "refusal": "I cannot."}
    body = await asked_for(up, provider, {**user("Hi"), "name": "ada"}, declined, user([pdf]))

    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    assert [{"type": "text", "text": "ada:"}, {"type": "text", "text": "Hi"}] == body["messages"][0]["content"]
    assert [{"type": "text", "text": "I cannot."}] == body["messages"][1]["content"]
    assert [{"type": "document", "source": source, "title": "sea.pdf"}] == body["messages"][2]["content"]
