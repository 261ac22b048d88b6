"""Anthropic's wire beyond its SDKs: what reaches which upstream, sessions, the background, a stop, and bad input."""

import json
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Chunk, Delta, Done, Finish, Hang, Headers, Raw, Role, Status, ToolDelta, Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = {"role": "user", "content": "Hi"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SEE = {"name": "see", "input_schema": {"type": "object"}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}


def _events(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


CACHED = {"cache_creation_input_tokens": 7, "cache_read_input_tokens": 90}
ANTHROPICS_ANSWER = _events(
    {"type": "message_start", "message": {"usage": CACHED | {"input_tokens": 4, "output_tokens": 0}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models |= {
            "hanging": [Headers(), Role(), Delta("so far"), Hang()],
            "hanging-call": [
                *(Headers(), Role(), Delta("so far"), ToolDelta(id="call_1", name="add", arguments='{"a":')),
                Hang(),
            ],
            "claude": [Headers(), Raw(ANTHROPICS_ANSWER)],
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(up, tmp_path_factory):
    base_url = up.base_url.removesuffix("/v1")
    claude = {
        "name": "ant",
        "dialect": "anthropic",
        "base_url": base_url,
        "api_key_env": "UP_KEY",
        "models": ["claude"],
    }
    providers = [provider(up.base_url, models=None), claude]
    async with Server(tmp_path_factory.mktemp("messages"), providers) as server:
        async with server.client() as client:
            yield client


async def ask(client, model: str, messages: list[dict[str, Any]] | None = None, **more: Any):
    headers = more.pop("headers", None)
    body = {"model": model, "max_tokens": 50, "messages": messages or [USER], **more}
    return await client.post("/v1/messages", body, headers=headers)


def shown(up: Upstream, model: str) -> dict[str, Any]:
    return [request for request in up.requests if request.model == model][-1].body


@requirement("wire.anthropic")
async def test_what_only_anthropic_understands_reaches_only_anthropic(client, up):
    """An OpenAI upstream refuses fields that it does not know; Anthropic's own would be missed."""
    cached = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    more = {"system": cached, "thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 3, "temperature": 1.0}
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}]}
    messages = [USER, thinking, {"role": "user", "content": [{"type": "text", "text": "Read this."}, PDF]}]
    whole = await (await ask(client, "ant/claude", messages, tools=[SEARCH], **more)).json()
    await (await ask(client, "up/echo:brief", **more)).json()

    theirs, others = shown(up, "claude"), shown(up, "echo:brief")
    assert [{"type": "text", "text": "Hello."}] == whole["content"]
    assert (cached, more["thinking"], 3, [SEARCH]) == tuple(
        theirs[name] for name in ("system", "thinking", "top_k", "tools")
    )
    assert PDF in theirs["messages"][-1]["content"]
    assert "hm" not in json.dumps(theirs)
    assert "thinking" not in others
    assert 3 == others["top_k"]
    assert {"role": "system", "content": "Be brief."} == others["messages"][0]


@requirement("wire.anthropic")
async def test_a_session_keeps_the_conversation(client, up):
    """By its header, as on chat completions: only what is new is taken from the request."""
    headers = {"X-Session-Id": "a chat with claude"}
    await (await ask(client, "up/echo:one", headers=headers)).json()
    messages = [USER, {"role": "assistant", "content": "something else"}, {"role": "user", "content": "And?"}]
    await (await ask(client, "up/echo:two", messages, headers=headers)).json()

    assert [("user", "Hi"), ("assistant", "one"), ("user", "And?")] == [
        (said["role"], said["content"]) for said in shown(up, "echo:two")["messages"]
    ]


@requirement("wire.anthropic", "gone.detached", "wire.deterministic")
async def test_in_the_background_a_message_is_polled_and_its_stream_resumed(client):
    """The client has an id at once, and all of the answer whenever it comes."""
    started = await ask(client, "up/echo:it went on", background=True)
    first = await started.json()
    path = f"/v1/messages/{first['id']}"
    frames = [(frame.event, frame.data) for frame in await (await client.get(f"{path}?stream=true")).all_events()]
    rest = [
        [
            (frame.event, frame.data)
            for frame in await (await client.get(f"{path}?stream=true&starting_after={n}")).all_events()
        ]
        for n in range(len(frames))
    ]
    whole = await (await client.get(path)).json()

    assert (202, f"msg_{started.headers['x-run-id']}", None) == (started.status, first["id"], first["stop_reason"])
    assert [frames[n:] for n in range(len(frames))] == rest
    assert ("end_turn", "it went on") == (whole["stop_reason"], whole["content"][0]["text"])


@requirement("wire.anthropic", "wire.truth")
async def test_a_whole_message_that_was_stopped_is_no_success_and_is_not_tried_again(client):
    """406, in words, with the partial beside it; the SDKs' own retries are told to keep still."""
    started = await (await ask(client, "up/hanging", background=True)).json()
    run_id = started["id"].removeprefix("msg_")
    await Native(client).shown(run_id, "so far")
    await Native(client).stop(run_id)
    response = await client.get(f"/v1/messages/{started['id']}")
    body = await response.json()

    assert (406, "false") == (response.status, response.headers["x-should-retry"])
    partial = body["holdfast"]["partial"]
    assert ("error", "stopped", "stopped_by_user") == (body["type"], body["error"]["type"], body["error"]["code"])
    assert ("so far", None) == (partial["content"][0]["text"], partial["stop_reason"])


@requirement("wire.anthropic", "wire.truth")
async def test_a_call_that_was_half_written_is_not_closed(client):
    """A program runs a tool when its block ends."""
    response = await ask(client, "up/hanging-call", stream=True)
    seen = []
    async for frame in response.events(comments=False):
        seen.append(frame.json())
        if seen[-1].get("delta", {}).get("type") == "input_json_delta":
            await Native(client).stop(response.headers["x-run-id"])

    assert ["content_block_stop"] == [event["type"] for event in seen if event["type"] == "content_block_stop"]  # text
    assert ("error", "stopped") == (seen[-1]["type"], seen[-1]["error"]["type"])


CALL = {"type": "tool_use", "id": "call_1", "name": "add", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "call_1", "content": "3"}


@requirement("wire.orphan-result")
@pytest.mark.parametrize("model", ["up/echo:never", "ant/claude"])
@pytest.mark.parametrize(
    "before", [[], [USER], [USER, {"role": "assistant", "content": [CALL | {"id": "call_2"}]}]], ids=len
)
async def test_a_result_of_a_call_that_was_not_sent_is_refused(client, up, model, before):
    """A model that sees a result without its call answers something, and nobody learns that half was missing."""
    asked = len(up.requests)
    response = await ask(client, model, [*before, {"role": "user", "content": [RESULT]}])
    body = await response.json()

    assert (400, "error", "invalid_request_error") == (response.status, body["type"], body["error"]["type"])
    assert "'call_1'" in body["error"]["message"]
    assert asked == len(up.requests)


@requirement("wire.orphan-result")
@pytest.mark.parametrize(
    ("before", "result"),
    [
        ([], {"tool_call_id": "call_1"}),
        ([], {}),
        ([{"role": "assistant", "tool_calls": [{"id": "call_2"}]}], {"tool_call_id": "call_1"}),
        ([{"role": "assistant", "tool_calls": [{"id": ["call_1"]}]}], {"tool_call_id": "call_1"}),
    ],
)
async def test_chat_completions_refuse_a_result_of_a_call_that_was_not_sent(client, up, before, result):
    """The same on OpenAI's wire, before a model is asked."""
    asked = len(up.requests)
    messages = [USER, *before, {"role": "tool", "content": "3", **result}]
    response = await client.post("/v1/chat/completions", {"model": "up/echo:never", "messages": messages})

    assert (400, "messages") == (response.status, (await response.json())["error"]["param"])
    assert asked == len(up.requests)


@requirement("wire.anthropic", "start.bad-input")
@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "file"}}]}]},
            "messages[0].content[0].source.type",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}, USER]}, "messages[0].content"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": [SEARCH]}, "tools[0].type"),
        ({"tools": [{"name": "a", "input_schema": {}}], "tool_choice": {"type": "all"}}, "tool_choice"),
        ({"tools": [{"name": "a", "input_schema": {}}], "tool_choice": {"type": ["auto"]}}, "tool_choice"),
        ({"model": 7}, "model"),
    ],
)
async def test_bad_input_is_refused_in_anthropics_shape_and_asks_nobody(client, up, change, param):
    """Before anything is started: the client learns what to mend."""
    before = len(up.requests)
    response = await client.post("/v1/messages", {"model": "up/echo:never", "messages": [USER]} | change)
    body = await response.json()

    assert (400, "error", "invalid_request_error", param) == (
        response.status,
        body["type"],
        body["error"]["type"],
        body["error"]["param"],
    )
    assert before == len(up.requests)


@requirement("wire.anthropic", "start.bad-input")
@pytest.mark.parametrize("answer_id", ["msg_", "msg_run_", "run_", "msg", "x"])
async def test_an_id_that_stands_for_no_run_is_404(client, answer_id):
    """Also one that is only a prefix."""
    response = await client.get(f"/v1/messages/{answer_id}")

    assert (404, "run_not_found") == (response.status, (await response.json())["error"]["code"])


@requirement("wire.anthropic-cache")
async def test_marks_of_the_prompt_cache_reach_anthropic_where_they_were_put(client, up):
    """A mark that is lost, or a block that is joined with its neighbour, has the whole conversation billed again."""
    mark = {"cache_control": {"type": "ephemeral"}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two", **mark}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "see", "input": {}, **mark}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x", **mark}]},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [PICTURE | mark, {"type": "text", "text": "Three"}]},
    ]
    response = await ask(client, "ant/claude", turns, tools=[SEE])

    assert 200 == response.status
    assert turns == shown(up, "claude")["messages"]


@requirement("wire.anthropic-cache")
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_tells_what_the_prompt_cache_saved(client, stream):
    """Clients compute cost from it: what was read from the cache costs a tenth."""
    response = await ask(client, "ant/claude", stream=stream)
    if stream:
        events = [frame.json() for frame in await response.all_events()]
        started, used = events[0]["message"]["usage"], events[-2]["usage"]
        assert CACHED | {"input_tokens": 4, "output_tokens": 0} == started
    else:
        used = (await response.json())["usage"]

    assert CACHED | {"input_tokens": 4, "output_tokens": 2} == used


@requirement("wire.anthropic")
async def test_a_picture_in_a_result_reaches_an_openai_upstream_behind_the_result(client, up):
    """Claude Code reads pictures by a tool, and OpenAI refuses them in the result itself."""
    turns = [
        USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "see", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [PICTURE]}]},
    ]
    response = await ask(client, "up/echo:seen", turns, tools=[SEE])

    assert 200 == response.status
    result, after = shown(up, "echo:seen")["messages"][2:]
    assert ("tool", str) == (result["role"], type(result["content"]))
    assert ("user", "image_url") == (after["role"], after["content"][0]["type"])


@requirement("wire.anthropic")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_overloaded_upstream_stays_overloaded(client, up, stream):
    """Claude Code waits and tries again on this type and status, and on no other."""
    up.models["busy"] = [Status(529, headers={"Retry-After": "30"})]
    response = await ask(client, "up/busy", stream=stream)
    error = (await response.json())["error"]

    assert (529, "overloaded_error", "upstream_overloaded") == (response.status, error["type"], error["code"])
    assert ("30", "true") == (response.headers["retry-after"], response.headers["x-should-retry"])


@requirement("wire.anthropic", "wire.no-useless-retry")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_is_overloaded_after_output_is_not_asked_again(client, up, stream):
    """Claude Code repeats `overloaded_error` at any status: after text it asked eight times."""
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    up.models["claude"] = [Headers(), Raw(ANTHROPICS_ANSWER.partition(b"event: content_block_stop")[0])]
    up.models["claude"].append(Raw(_events(overloaded)))
    try:
        response = await ask(client, "ant/claude", stream=stream)
        told = (await response.all_events())[-1].json() if stream else await response.json()
    finally:
        up.models["claude"] = [Headers(), Raw(ANTHROPICS_ANSWER)]

    assert ("api_error", "upstream_overloaded") == (told["error"]["type"], told["error"]["code"])


@requirement("wire.anthropic")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_of_an_openai_model_is_a_refusal(client, up, stream):
    """Programs look at the stop reason, and would take the reason for the answer."""
    said = {"choices": [{"index": 0, "delta": {"refusal": "I will not."}, "finish_reason": None}]}
    up.models["no"] = [Headers(), Role(), Chunk(said), Finish("stop"), Done()]
    response = await ask(client, "up/no", stream=stream)
    events = [frame.json() for frame in await response.all_events()] if stream else []
    told = [each["delta"] for each in events if each["type"] == "message_delta"] if stream else [await response.json()]

    assert ["refusal"] == [each["stop_reason"] for each in told]


@requirement("wire.no-useless-retry")
@pytest.mark.parametrize("status", [429, 529])
async def test_a_busy_upstream_is_asked_again_by_the_client_or_by_the_server_not_by_both(client, up, status):
    """An SDK asks three times by itself: with three tries of ours for each, an overloaded upstream had nine."""
    up.models[f"busy-{status}"] = [Status(status)]
    response = await ask(client, f"up/busy-{status}")
    by_a_client = len([request for request in up.requests if request.model == f"busy-{status}"])

    assert (status, "true", 1) == (response.status, response.headers["x-should-retry"], by_a_client)
