"""`/v1/responses`: what is asked for, what is said, what is kept, and what a client who leaves finds again."""

import json
from typing import Any

import pytest
import pytest_asyncio

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.acceptance.surfaces import QUESTION, World, of_response
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.served import NO_HOME, Served
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
    ReasoningDelta,
    Recorded,
    Role,
    Script,
    Status,
    ToolDelta,
    Upstream,
    UsageChunk,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE, BOB = "hf-alice-0123456789", "hf-bob-0123456789ab"
CONFIG = """
retry_patience = 0.05
[[keys]]
name = "alice"
key_env = "ALICE"
[[keys]]
name = "bob"
key_env = "BOB"
"""
ADD = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True}
ADD_IN_A_CHAT = {"type": "function", "function": {name: value for name, value in ADD.items() if name != "type"}}
SCRIPTS = {
    "thinking": [Headers(), Role(), ReasoningDelta(REASONING), Delta(TEXT[:3]), Delta(TEXT[3:]), Finish(), Done()],
    "two-calls": [
        *(Headers(), Role(), Delta("I add. ")),
        ToolDelta(index=0, id="call_1", name="add", arguments=""),
        ToolDelta(index=0, arguments='{"a": 1}'),
        ToolDelta(index=1, id="call_2", name="add", arguments='{"a": 2}'),
        *(Finish("tool_calls"), UsageChunk(), Done()),
    ],
    "half-a-call": [
        *(Headers(), Role(), Delta("I add. ")),
        ToolDelta(index=0, id="call_1", name="add", arguments='{"a": '),
        *(Finish("length"), Done()),
    ],
    "half": [Headers(), Role(), Delta("Half "), Delta("an answer"), Hang()],
    "limited": [Status(429, headers={"Retry-After": "3"})],
    "counted": [
        *(Headers(), Role(), Delta("x"), Finish()),
        Chunk(
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 30,
                    "completion_tokens": 20,
                    "prompt_tokens_details": {"cached_tokens": 10},
                    "completion_tokens_details": {"reasoning_tokens": 15},
                },
            }
        ),
        Done(),
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with Upstream() as up:
        up.models |= SCRIPTS
        folder = tmp_path_factory.mktemp("responses")
        env = {"ALICE": ALICE, "BOB": BOB}
        async with Server(folder, [provider(up.base_url, models=None)], config=CONFIG, env=env) as server:
            yield up, server


@pytest_asyncio.fixture(loop_scope="module")
async def world(shared):
    up, server = shared
    up.requests.clear()
    async with Client(server.url, {"Authorization": f"Bearer {ALICE}"}) as client:
        yield World(up, server, client)


@pytest_asyncio.fixture(loop_scope="module")
async def bob(shared):
    up, server = shared
    async with Client(server.url, {"Authorization": f"Bearer {BOB}"}) as client:
        yield World(up, server, client)


async def done(response: Response) -> dict[str, Any]:
    body: dict[str, Any] = await response.json()
    assert 200 == response.status, body
    return body


async def refused(response: Response) -> tuple[int, str, str | None]:
    error = (await response.json())["error"]
    return response.status, error["code"], error["param"]


async def settled(world: World, response_id: str) -> dict[str, Any]:
    await (await world.call("GET", f"/v1/responses/{response_id}?stream=true")).body()
    body: dict[str, Any] = await world.get(f"/v1/responses/{response_id}")
    return body


async def read_until(stream: Response, text: str) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    while not seen or seen[-1].get("delta") != text:
        frame = await stream.next_event()
        assert frame is not None, "the stream ended"
        seen.append(frame.json())
    return seen


# What is said.

TEXT_ITEM = ["output_item.added", "content_part.added", "output_text.delta", "output_text.delta"]
TEXT_DONE = ["output_text.done", "content_part.done", "output_item.done"]
THOUGHT = [
    *("output_item.added", "reasoning_summary_part.added"),
    *("reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done"),
]
ORDERS = {
    "up/end:completed": ["created", "in_progress", *TEXT_ITEM, *TEXT_DONE, "completed"],
    "up/end:length": ["created", "in_progress", *TEXT_ITEM, *TEXT_DONE, "incomplete"],
    "up/thinking": [
        *("created", "in_progress", *THOUGHT, "output_item.done"),
        *(*TEXT_ITEM, *TEXT_DONE, "completed"),
    ],
    "up/two-calls": [
        *("created", "in_progress", *TEXT_ITEM[:3], *TEXT_DONE),
        *("output_item.added", "function_call_arguments.delta") * 2,
        *("function_call_arguments.done", "output_item.done") * 2,
        "completed",
    ],
    "up/half-a-call": [
        *("created", "in_progress", *TEXT_ITEM[:3], *TEXT_DONE),
        *("output_item.added", "function_call_arguments.delta", "incomplete"),
    ],
}


@requirement("resp.events")
@pytest.mark.parametrize("model", ORDERS)
async def test_events_come_in_openais_order(world, model):
    """Clients build the answer from them. Half a call is never said to be done: they would act on it."""
    stream = await world.respond(model, stream=True)
    raw = await stream.body()
    frames = [frame.split("\n") for frame in raw.decode().split("\n\n")[:-1]]
    events = [json.loads(data.removeprefix("data: ")) for _, data in frames]

    assert ORDERS[model] == [event["type"].removeprefix("response.") for event in events]
    assert list(range(len(events))) == [event["sequence_number"] for event in events]
    assert [f"event: {event['type']}" for event in events] == [kind for kind, _ in frames]
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["x-run-id"] == stream.headers["x-request-id"]
    assert {f"resp_{stream.headers['x-run-id'].removeprefix('run_')}"} == {
        event["response"]["id"] for event in events if "response" in event
    }


@requirement("resp.events")
async def test_a_background_stream_begins_with_queued(world):
    """As OpenAI's does; the rest is the same."""
    stream = await world.respond("up/end:completed", stream=True, background=True)
    events = [frame.json() for frame in await stream.all_events()]

    assert ["created", *ORDERS["up/end:completed"][:0], "queued", *ORDERS["up/end:completed"][1:]] == [
        event["type"].removeprefix("response.") for event in events
    ]
    assert ["queued", "queued", "in_progress"] == [event["response"]["status"] for event in events[:3]]


@requirement("resp.events")
@pytest.mark.parametrize("model", [*ORDERS, "up/end:in-band-error"])
async def test_what_is_fetched_later_is_what_the_last_event_had(world, model):
    """The object and the stream are two views of one log."""
    events = [frame.json() for frame in await (await world.respond(model, stream=True)).all_events()]
    fetched = await world.get(f"/v1/responses/{events[0]['response']['id']}")
    items = {event["output_index"]: event["item"] for event in events if event["type"].endswith("item.done")}

    assert events[-1]["response"] == fetched
    assert list(items.values()) == [item for item in fetched["output"] if item["type"] != "function_call"] + [
        item for item in fetched["output"] if item["type"] == "function_call" and item["status"] == "completed"
    ]


@requirement("resp.events")
async def test_what_was_asked_is_repeated_and_what_was_not_has_openais_form(world):
    """SDKs read these fields without asking whether they are there."""
    asked = {
        "instructions": "Be brief.",
        "metadata": {"topic": "sea"},
        "temperature": 0.5,
        "max_output_tokens": 50,
        "tools": [ADD],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
    }
    body = await done(await world.respond("up/end:completed", **asked))
    plain = await done(await world.respond("up/end:completed", store=False))

    said = {"reasoning": {"effort": "low", "summary": None}, "text": {"format": {"type": "text"}, "verbosity": "low"}}
    assert asked | said == {name: body[name] for name in asked}
    assert ("response", "completed", None, None, True) == tuple(
        body[name] for name in ("object", "status", "error", "incomplete_details", "store")
    )
    assert ([], "auto", True, None, {}, {"format": {"type": "text"}}, False) == tuple(
        plain[name]
        for name in ("tools", "tool_choice", "parallel_tool_calls", "instructions", "metadata", "text", "store")
    )


@requirement("resp.events")
async def test_usage_has_its_details(world):
    """What was read from a cache and what was thought are paid for in other ways."""
    body = await done(await world.respond("up/counted"))

    assert {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 15},
        "total_tokens": 50,
    } == body["usage"]


@requirement("start.early-failure-status")
async def test_a_stream_that_fails_at_once_is_a_real_status_although_it_would_be_kept(world):
    """Its client retries by itself, so nothing is waited for here that takes longer."""
    response = await world.respond("up/limited", stream=True)

    assert (429, "3", "true") == (response.status, response.headers["retry-after"], response.headers["x-should-retry"])
    assert "upstream_rate_limited" == (await response.json())["error"]["code"]


# What is asked.

IMAGE = "data:image/png;base64,AAAA"
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
SHOWN_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
INPUTS: list[tuple[Any, list[dict[str, Any]]]] = [
    ("Hi", [{"role": "user", "content": "Hi"}]),
    ([{"role": "user", "content": "Hi"}], [{"role": "user", "content": "Hi"}]),
    (
        [
            {"type": "message", "role": "developer", "content": "Be kind."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look:"},
                    {"type": "input_image", "image_url": IMAGE, "detail": "low"},
                ],
            },
        ],
        [
            {"role": "system", "content": "Be kind."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
                ],
            },
        ],
    ),
    (
        [
            {"role": "user", "content": "Hi"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I add."}]},
            CALL,
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "2"}]},
        ],
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "I add.", "tool_calls": [SHOWN_CALL]},
            {"role": "tool", "content": "2", "tool_call_id": "c1"},
        ],
    ),
    (
        [{"role": "user", "content": "Hi"}, CALL, {"role": "user", "content": "Never mind"}],
        [{"role": "user", "content": "Hi"}, {"role": "user", "content": "Never mind"}],
    ),
]


@requirement("resp.asked", "hist.no-orphan-tools")
@pytest.mark.parametrize(("input", "shown"), INPUTS, ids=["text", "message", "parts", "call", "unanswered"])
async def test_input_becomes_the_messages_that_a_model_is_shown(world, input, shown):
    """Upstreams speak chat: nothing may be lost on the way, and nothing of ours may be added."""
    await done(await world.respond("up/echo:asked", input))

    assert shown == world.request_for("echo:asked").body["messages"]


PARAMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (dict.fromkeys(("temperature", "top_p", "seed"), 1), dict.fromkeys(("temperature", "top_p", "seed"), 1)),
    ({"max_output_tokens": 20}, {"max_tokens": 20}),
    ({"reasoning": {"effort": "high"}}, {"reasoning_effort": "high"}),
    ({"tools": [ADD], "tool_choice": "required"}, {"tools": [ADD_IN_A_CHAT], "tool_choice": "required"}),
    (
        {"tools": [ADD], "tool_choice": {"type": "function", "name": "add"}, "parallel_tool_calls": False},
        {
            "tools": [ADD_IN_A_CHAT],
            "tool_choice": {"type": "function", "function": {"name": "add"}},
            "parallel_tool_calls": False,
        },
    ),
    (
        {
            "tools": [ADD, ADD | {"name": "other"}],
            "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"name": "add"}]},
        },
        {"tools": [ADD_IN_A_CHAT], "tool_choice": "required"},
    ),
    ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"}},
        {
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            "verbosity": "low",
        },
    ),
    ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
    ({"metadata": {"a": "b"}, "truncation": "disabled", "include": ["reasoning.encrypted_content"]}, {}),
]


@requirement("resp.asked", "hist.no-internal-fields")
@pytest.mark.parametrize(("asked", "passed"), PARAMS)
async def test_parameters_become_those_of_a_chat(world, asked, passed):
    """Each under the name that upstreams know it by; what is ours stays here."""
    await done(await world.respond("up/echo:params", **asked))
    body = world.request_for("echo:params").body

    assert passed == {name: body[name] for name in body.keys() - {"model", "messages", "stream", "stream_options"}}


@requirement("resp.asked")
async def test_instructions_come_first_as_the_system_prompt(world):
    """Whatever else is in the input."""
    await done(await world.respond("up/echo:told", instructions="Be brief."))

    assert [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}] == world.request_for(
        "echo:told"
    ).body["messages"]


# What coding agents declare.

NAMESPACE = {
    "type": "namespace",
    "name": "mcp__files",
    "description": "Files.",
    "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}],
}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"type": "text"}}
PATCH_IN_A_CHAT = {
    "name": "apply_patch",
    "description": "Patches.",
    "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
}


@requirement("resp.tools")
async def test_tools_of_a_coding_agent_reach_any_model_as_functions(world):
    """Codex declares namespaces, custom tools and OpenAI's own tools with every request."""
    tools = [ADD, NAMESPACE, PATCH, {"type": "web_search"}, {"type": "image_generation"}]
    body = await done(await world.respond("up/echo:tools", tools=tools))
    sent = [tool["function"] for tool in world.request_for("echo:tools").body["tools"]]

    assert ["add", "mcp__files__read", "apply_patch"] == [function["name"] for function in sent]
    assert PATCH_IN_A_CHAT == sent[2]
    assert [ADD, NAMESPACE, PATCH] == body["tools"], "a tool that the model was not offered is not repeated"


@requirement("resp.tools")
async def test_a_call_comes_back_in_the_form_that_its_tool_was_declared_in(world):
    """The client looks its tool up by namespace and name, and a custom tool gets text, not JSON."""
    world.up.models["calling"] = [
        *(Headers(), Role()),
        ToolDelta(index=0, id="c1", name="mcp__files__read", arguments='{"path": "a"}'),
        ToolDelta(index=1, id="c2", name="apply_patch", arguments='{"input": "*** Begin'),
        ToolDelta(index=1, arguments=' Patch\\n"}'),
        *(Finish("tool_calls"), Done()),
    ]
    stream = await world.respond("up/calling", tools=[NAMESPACE, PATCH], stream=True)
    events = [frame.json() for frame in await stream.all_events()]
    read, patch = events[-1]["response"]["output"]

    assert ("function_call", "mcp__files", "read") == (read["type"], read["namespace"], read["name"])
    assert ("custom_tool_call", "apply_patch", "*** Begin Patch\n") == (patch["type"], patch["name"], patch["input"])
    assert ["*** Begin Patch\n"] == [
        event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"
    ]


@requirement("resp.tools")
async def test_calls_and_outputs_of_such_tools_are_shown_to_the_model_again(world):
    """With the names that the model itself has used."""
    input = [
        {"role": "user", "content": "Patch it"},
        {"type": "function_call", "call_id": "c1", "namespace": "mcp__files", "name": "read", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "c1", "output": "text"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done"},
    ]
    await done(await world.respond("up/echo:again", input, tools=[NAMESPACE, PATCH]))
    shown = world.request_for("echo:again").body["messages"]

    assert [("mcp__files__read", "{}"), ("apply_patch", '{"input":"*** Begin"}')] == [
        (call["function"]["name"], call["function"]["arguments"]) for call in shown[1]["tool_calls"]
    ]
    assert ["text", "Done"] == [message["content"] for message in shown[2:]]


@requirement("resp.tools")
async def test_a_picture_that_a_tool_returns_is_shown_to_the_model(world):
    """OpenAI's chat takes only text in a result, so the picture follows it as the user's."""
    picture = {"type": "input_image", "image_url": IMAGE}
    input = [
        {"role": "user", "content": "Look"},
        CALL,
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a.png"}, picture]},
    ]
    await done(await world.respond("up/echo:look", input))
    result, after = world.request_for("echo:look").body["messages"][2:]

    assert ("tool", True) == (result["role"], result["content"].startswith("a.png"))
    assert {"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]} == after


@requirement("resp.events", "start.reasoning-apart")
async def test_reasoning_is_a_summary_for_a_client_that_asks_for_one(world):
    """Codex, the AI SDK and opencode ask for it, and read no other reasoning."""
    stream = await world.respond("up/thinking", stream=True, reasoning={"summary": "auto"})
    events = [frame.json() for frame in await stream.all_events()]
    kinds = [event["type"].removeprefix("response.") for event in events]

    assert [
        "output_item.added",
        *("reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
    ] == kinds[2:8]
    assert [{"type": "summary_text", "text": REASONING}] == events[-1]["response"]["output"][0]["summary"]
    assert "content" not in events[-1]["response"]["output"][0]


REFUSED: list[tuple[dict[str, Any], str, str | None]] = [
    ({"input": []}, "invalid_request", "input"),
    ({"input": "  "}, "invalid_request", "input"),
    ({"input": 7}, "invalid_request", "input"),
    ({"input": [7]}, "invalid_request", "input[0]"),
    ({"input": [{"role": "wizard", "content": "x"}]}, "invalid_request", "input[0].role"),
    ({"input": [{"role": "user", "content": 7}]}, "invalid_request", "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "x"}]}]}, "unsupported", "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "invalid_request", "input[0].content[0].text"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        *("unsupported", "input[0].content[0].image_url"),
    ),
    ({"input": [{"type": "web_search_call", "id": "x"}]}, "unsupported", "input[0].type"),
    ({"input": [{"type": "function_call", "name": "x"}]}, "invalid_request", "input[0].call_id"),
    (
        {"input": [{"type": "function_call", "name": "x", "call_id": "c", "arguments": {"a": 1}}]},
        *("invalid_request", "input[0].arguments"),
    ),
    ({"input": [{"type": "function_call_output", "call_id": "x", "output": 7}]}, "invalid_request", "input[0].output"),
    ({"input": [{"type": "function_call_output", "call_id": "x", "output": "7"}]}, "invalid_request", "input"),
    ({"input": [{"type": "reasoning", "summary": []}], "instructions": "x"}, "invalid_request", "input"),
    ({"input": [{"type": "reasoning", "role": "user", "content": "x"}]}, "invalid_request", "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_text", "text": " "}]}]}, "invalid_request", "input"),
    ({"input": [{"role": "user", "content": []}]}, "invalid_request", "input"),
    ({"input": [{"type": "reasoning", "id": 7}]}, "invalid_request", "input[0].id"),
    ({"model": 7}, "invalid_request", "model"),
    ({"model": "up/none", "tools": [{"type": "local_shell"}]}, "unsupported", "tools[0].type"),
    ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "unsupported", "tool_choice"),
    ({"tools": [{"type": "function"}]}, "invalid_request", "tools[0].name"),
    ({"tools": [{"type": ["x"]}]}, "invalid_request", "tools[0].type"),
    ({"tools": [{"type": "namespace", "name": "a", "tools": 7}]}, "invalid_request", "tools[0].tools"),
    (
        {"tools": [{"type": "namespace", "name": "a", "tools": ["function"]}]},
        *("invalid_request", "tools[0].tools[0].type"),
    ),
    (
        {"tools": [ADD], "tool_choice": {"type": "function", "name": "add", "namespace": 7}},
        *("invalid_request", "namespace"),
    ),
    ({"tools": [ADD], "tool_choice": {"type": "mcp"}}, "unsupported", "tool_choice"),
    ({"prompt": {"id": "p"}}, "unsupported", "prompt"),
    ({"session_id": "s"}, "unsupported", "session_id"),
    ({"truncation": "auto"}, "unsupported", "truncation"),
    ({"text": {"format": {"type": "grammar"}}}, "unsupported", "text.format.type"),
    ({"text": {"format": "json"}}, "invalid_request", "text.format"),
    ({"metadata": {str(n): "x" for n in range(17)}}, "invalid_request", "metadata"),
    ({"metadata": {"x": 7}}, "invalid_request", "metadata[...]"),
    ({"max_output_tokens": 0}, "invalid_request", "max_output_tokens"),
    ({"stream": "yes"}, "invalid_request", "stream"),
]


@requirement("resp.refused", "start.bad-input")
@pytest.mark.parametrize(("asked", "code", "param"), REFUSED, ids=lambda value: str(value)[:50])
async def test_what_cannot_be_done_is_refused_and_nothing_is_started(world, asked, code, param):
    """Leaving it out without a word would give another answer than the one that was asked for."""
    before = await newest(world)
    response = await world.call("POST", "/v1/responses", {"model": "up/echo:x", "input": "x", **asked})

    assert (400, code, param) == await refused(response)
    assert before == await newest(world)
    assert [] == world.up.requests


async def newest(world: World) -> list[str]:
    """The id of the newest response. Its client may have left, and it may be settling still."""
    return [response["id"] for response in (await world.get("/v1/responses?limit=1"))["data"]]


# What it follows.


async def shown_after(world: World, previous: str, input: Any = "Go on", **more: Any) -> list[dict[str, Any]]:
    """What the model is shown for a response that follows another."""
    mark = f"echo:after {previous}"
    await done(await world.respond(f"up/{mark}", input, previous_response_id=previous, **more))
    shown: list[dict[str, Any]] = world.request_for(mark).body["messages"]
    return shown


@requirement("resp.chain")
async def test_a_response_follows_those_before_it_and_their_instructions_stay_behind(world):
    """OpenAI's rule: what was said is inherited, how to behave is not."""
    first = await done(await world.respond("up/echo:one", "First", instructions="Be brief."))
    second = await done(await world.respond("up/thinking", "Second", previous_response_id=first["id"]))

    assert [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "First"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "Second"},
        {"role": "assistant", "content": TEXT},
        {"role": "user", "content": "Go on"},
    ] == await shown_after(world, second["id"], instructions="Be kind.")
    assert first["id"] == second["previous_response_id"]


@requirement("resp.chain", "hist.no-orphan-tools")
async def test_calls_are_followed_by_their_outputs(world):
    """The outputs alone are sent; the calls come from what is stored."""
    calling = await done(await world.respond("up/two-calls", tools=[ADD]))
    ids = [item["call_id"] for item in calling["output"] if item["type"] == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": id, "output": id} for id in ids]

    shown = await shown_after(world, calling["id"], outputs)

    assert ["user", "assistant", "tool", "tool"] == [message["role"] for message in shown]
    assert ("I add. ", ids) == (shown[1]["content"], [call["id"] for call in shown[1]["tool_calls"]])
    assert ids == [message["tool_call_id"] for message in shown[2:]]


@requirement("resp.chain", "hist.no-orphan-tools")
async def test_outputs_may_come_after_the_users_message(world):
    """Semantic Kernel sends the user's message again, and the outputs after it."""
    calling = await done(await world.respond("up/two-calls", tools=[ADD]))
    ids = [item["call_id"] for item in calling["output"] if item["type"] == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": id, "output": id} for id in reversed(ids)]

    shown = await shown_after(world, calling["id"], [{"role": "user", "content": QUESTION}, *outputs])

    assert ["user", "assistant", "tool", "tool", "user"] == [message["role"] for message in shown]
    assert [*reversed(ids)] == [message["tool_call_id"] for message in shown[2:4]]


BETWEEN = [{"role": role, "content": "Between."} for role in ("user", "developer", "assistant")]


@requirement("resp.asked", "hist.no-orphan-tools")
@pytest.mark.parametrize("between", [*BETWEEN, None], ids=lambda item: item["role"] if item else "nothing")
@pytest.mark.parametrize("status", ["completed", None, "in_progress", ...], ids=str)
async def test_an_output_belongs_to_the_call_with_its_id_wherever_it_stands(world, between, status):
    """OpenAI matches by `call_id`, and a call that a program dumps from its own objects has `"status": null`."""
    call = CALL | ({} if status is ... else {"status": status})
    output = {"type": "function_call_output", "call_id": CALL["call_id"], "output": "3"}
    asked = [{"role": "user", "content": "Hi"}, call, *([between] if between else []), output]

    await done(await world.respond("up/echo:matched", asked))

    shown = world.request_for("echo:matched").body["messages"]
    assert ["user", "assistant", "tool"] == [message["role"] for message in shown[:3]]
    assert (CALL["call_id"], "3") == (shown[1]["tool_calls"][0]["id"], shown[2]["content"])
    roles = {"developer": "system"}  # an upstream of which nothing is known is not sent that role
    assert ([between | {"role": roles.get(between["role"], between["role"])}] if between else []) == shown[3:]


@requirement("wire.orphan-result", "resp.chain")
async def test_an_output_that_no_call_waits_for_is_refused_and_the_same_one_again_is_not(world):
    """Who follows a failed response sends its outputs again. Another output for the same call is a mistake."""
    calling = await done(await world.respond("up/end:tool-call", tools=[ADD]))
    (id,) = [item["call_id"] for item in calling["output"] if item["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": id, "output": "3"}
    answered = await done(await world.respond("up/echo:answered", [output], previous_response_id=calling["id"]))
    again = await done(
        await world.respond("up/echo:again", [output, *BETWEEN[:1]], previous_response_id=answered["id"])
    )

    for previous, sent in ((answered, output | {"output": "4"}), (calling, output | {"call_id": "call_9"})):
        response = await world.respond("up/echo:x", [sent, *BETWEEN[:1]], previous_response_id=previous["id"])
        assert (400, "invalid_request", "input") == await refused(response)
    assert "completed" == again["status"]
    assert 1 == [message["role"] for message in world.request_for("echo:again").body["messages"]].count("tool")


@requirement("resp.chain", "stop.history")
@pytest.mark.parametrize(
    ("model", "said"), [("up/half", "Half an answer"), ("up/end:in-band-error", TEXT), ("up/half-a-call", "I add. ")]
)
async def test_one_that_did_not_complete_leaves_what_it_had_said(world, model, said):
    """A partial answer is the assistant's words. How it ended is never shown, and half a call is no call."""
    stream = await world.respond(model, stream=True)
    first = (await stream.next_event()).json()["response"]["id"]
    if model == "up/half":
        await read_until(stream, "an answer")
        await world.call("POST", f"/v1/responses/{first}/cancel")
    await stream.all_events()

    assert [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "Go on"},
    ] == await shown_after(world, first)


@requirement("resp.chain", "safe.owner-404")
async def test_what_is_not_there_cannot_be_followed(world, bob):
    """Unknown, another's, not stored (kept only for who repeats the request), deleted: all alike."""
    anothers = await done(await bob.respond("up/echo:x"))
    unstored = await done(await world.respond("up/echo:x", store=False))
    repeatable = await done(
        await world.call(
            "POST", "/v1/responses", {"model": "up/echo:x", "input": "x", "store": False}, idempotency_key="not stored"
        )
    )
    gone = await done(await world.respond("up/echo:x"))
    await done(await world.call("DELETE", f"/v1/responses/{gone['id']}"))
    completion = await (await world.chat("up/echo:x", background=True)).json()
    world.up.requests.clear()
    named = [anothers["id"], unstored["id"], repeatable["id"], gone["id"], "resp_x", "x"]

    for previous in [*named, completion["id"].replace("chatcmpl-", "resp_")]:
        response = await world.respond("up/echo:x", previous_response_id=previous)
        assert (404, "previous_response_not_found", "previous_response_id") == await refused(response)
    assert [] == world.up.requests


@requirement("resp.chain")
async def test_one_that_goes_on_cannot_be_followed_yet(world):
    """What it will say is not known."""
    running = await done(await world.respond("up/half", background=True))

    response = await world.respond("up/echo:x", previous_response_id=running["id"])

    assert (409, "response_not_settled", "previous_response_id") == await refused(response)
    await world.call("POST", f"/v1/responses/{running['id']}/cancel")


@requirement("resp.chain")
async def test_an_item_may_be_named_instead_of_sent(world, bob):
    """Some clients refer to what is stored by the ids of its items."""
    first = await done(await world.respond("up/two-calls", tools=[ADD]))
    asked = (await world.get(f"/v1/responses/{first['id']}/input_items"))["data"]
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    named = [{"type": "item_reference", "id": item["id"]} for item in (*asked, *first["output"])]
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "2"} for call in calls]

    await done(await world.respond("up/echo:named", [*named, *outputs]))

    shown = world.request_for("echo:named").body["messages"]
    assert [("user", QUESTION), ("assistant", "I add. "), ("tool", "2"), ("tool", "2")] == [
        (message["role"], message["content"]) for message in shown
    ]
    for one in (bob, world):
        unknown = named[:1] if one is bob else [{"id": "msg_x_1"}]
        assert (404, "response_not_found", "input[0].id") == await refused(await one.respond("up/echo:x", unknown))


# In the background, cancelled, left.


@requirement("resp.background", "start.id-at-once")
async def test_a_background_response_is_there_at_once_and_shows_how_far_it_is(world):
    """Also while its upstream says nothing; whoever asks again sees what has been said."""
    silent = await done(await world.respond("up/silent:", background=True))
    running = await done(await world.respond("up/half", background=True))
    stream = await world.call("GET", f"/v1/responses/{running['id']}?stream=true")
    await read_until(stream, "an answer")
    polled = await world.get(f"/v1/responses/{running['id']}")
    stream.leave()

    assert ("queued", []) == (silent["status"], silent["output"])
    assert ("in_progress", None, None) == (polled["status"], polled["usage"], polled["error"])
    assert "Half an answer" == of_response(stream, polled).text
    assert ["in_progress"] == [item["status"] for item in polled["output"]]
    for started in (silent, running):
        await world.call("POST", f"/v1/responses/{started['id']}/cancel")


@requirement("resp.cancel", "stop.closes-upstream", "stop.twice")
@pytest.mark.parametrize("asked", [{"background": True}, {"stream": True}, {"stream": True, "store": False}])
async def test_a_cancelled_response_keeps_what_it_had_said(world, asked):
    """In the background or not. The second cancel changes nothing, every reader is told, and the upstream is closed."""
    started = await world.respond("up/half", **asked)
    response_id = f"resp_{started.headers['x-run-id'].removeprefix('run_')}"
    watcher = await world.call("GET", f"/v1/responses/{response_id}?stream=true")
    await read_until(watcher, "an answer")

    cancelled = [await done(await world.call("POST", f"/v1/responses/{response_id}/cancel")) for _ in range(2)]
    rest = [frame.json() for frame in await watcher.all_events()]

    assert cancelled[0] == cancelled[1] == rest[-1]["response"] == await world.get(f"/v1/responses/{response_id}")
    assert ("response.cancelled", "cancelled") == (rest[-1]["type"], cancelled[0]["status"])
    assert "Half an answer" == of_response(started, cancelled[0]).text
    assert ["incomplete"] == [item["status"] for item in cancelled[0]["output"]]
    assert ("stopped", "stopped_by_user") == tuple(cancelled[0]["holdfast"][name] for name in ("outcome", "code"))
    await world.request_for("half").wait_closed()


@requirement("resp.cancel", "gone.after-end")
async def test_cancelling_what_has_ended_changes_nothing(world):
    """The first ending stands."""
    whole = await done(await world.respond("up/end:completed"))

    assert whole == await done(await world.call("POST", f"/v1/responses/{whole['id']}/cancel"))


@requirement("resp.resume", "gone.detached")
async def test_a_stored_stream_goes_on_without_its_client_and_can_be_resumed(world):
    """It was not created in the background: whoever was told its id may come back to it."""
    world.up.models["gated"] = [Headers(), Role(), Delta("One "), Gate("in it"), Delta("two"), Finish(), Done()]
    stream = await world.respond("up/gated", stream=True, store=True)
    seen = await read_until(stream, "One ")
    stream.leave("rst")
    world.up.open("in it")
    response_id = seen[0]["response"]["id"]
    path = f"/v1/responses/{response_id}?stream=true&starting_after={seen[-1]['sequence_number']}"
    rest = [frame.json() for frame in await (await world.call("GET", path)).all_events()]
    whole = [frame.json() for frame in await (await world.call("GET", path.partition("&")[0])).all_events()]

    assert [*seen, *rest] == whole
    assert ("response.completed", "One two") == (
        whole[-1]["type"],
        of_response(stream, whole[-1]["response"]).text,
    )


@requirement("gone.attached")
@pytest.mark.parametrize(
    "asked",
    [{"stream": True}, {"stream": True, "store": False}, {"store": False}, {}],
    ids=["stream", "unstored-stream", "unstored", "stored"],
)
async def test_a_response_that_nobody_can_come_back_to_stops_with_its_client(world, asked):
    """Clients that say nothing about `store` abort by closing the connection, and pay until that stops the model."""
    name = f"left {asked}"
    world.up.models[name] = [Headers(), Role(), Delta("Half"), Gate(name)]
    client = await world.client.send("POST", "/v1/responses", json={"model": f"up/{name}", "input": "x", **asked})
    await world.up.reached(name)
    client.leave()

    await world.request_for(name).wait_closed()
    assert world.request_for(name).left_early


@requirement("gone.attached")
async def test_a_stored_stream_whose_client_left_before_the_first_event_stops(world):
    """It would go on for nobody: its id was never told."""
    world.up.models["unheard"] = [Gate("unheard")]
    asked = {"model": "up/unheard", "input": "x", "stream": True, "store": True}
    client = await world.client.send("POST", "/v1/responses", json=asked)
    await world.up.reached("unheard")
    client.leave()

    await world.request_for("unheard").wait_closed()


# Coming back.

CUT = ["up/end:completed", "up/thinking", "up/two-calls", "up/half-a-call", "up/end:in-band-error", "up/end:429"]


@requirement("resp.resume", "sub.resume-exact")
@pytest.mark.parametrize("model", CUT)
async def test_a_stream_cut_at_any_event_is_resumed_to_the_same_bytes(world, model):
    """Whoever has seen event n gets exactly what follows it."""
    started = await done(await world.respond(model, background=True))
    path = f"/v1/responses/{started['id']}?stream=true"
    whole = (await (await world.call("GET", path)).body()).decode()
    frames = [f"{frame}\n\n" for frame in whole.split("\n\n")[:-1]]

    resumed = [
        (await (await world.call("GET", f"{path}&starting_after={n}")).body()).decode() for n in range(len(frames) + 1)
    ]

    assert ["".join(frames[n + 1 :]) for n in range(len(frames) + 1)] == resumed


@requirement("resp.resume", "sub.bad-cursor")
@pytest.mark.parametrize("cursor", ["x", "-2", "1.5", "", "9" * 20, "%C2%B2"])
async def test_a_cursor_that_is_none_is_refused(world, cursor):
    """Beginning anywhere would be a gap or a repeat."""
    body = await done(await world.respond("up/end:completed"))
    response = await world.call("GET", f"/v1/responses/{body['id']}?stream=true&starting_after={cursor}")

    assert (400, "invalid_request", "starting_after") == await refused(response)


@requirement("resp.stored", "safe.owner-404")
async def test_an_unknown_response_is_not_there(world):
    """On every call."""
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]:
        response = await world.call(method, f"/v1/responses/resp_x{path}")
        assert (404, "response_not_found", None) == await refused(response)


@requirement("resp.stored")
async def test_a_deleted_response_is_gone(world):
    """One that goes on is stopped first; a session's answer goes only with its session."""
    running = await done(await world.respond("up/half", background=True))
    unstored = await done(await world.respond("up/echo:x", store=False))
    started = await (await world.send(await world.new_session(), "up/echo:x")).json()
    in_session = started["id"].replace("run_", "resp_")

    for response_id in (running["id"], unstored["id"]):
        deleted = await done(await world.call("DELETE", f"/v1/responses/{response_id}"))
        assert {"id": response_id, "object": "response", "deleted": True} == deleted
        assert 404 == (await world.call("GET", f"/v1/responses/{response_id}")).status
        assert 404 == (await world.call("GET", f"/api/runs/{response_id.replace('resp_', 'run_')}")).status
    await world.request_for("half").wait_closed()
    assert 409 == (await world.call("DELETE", f"/v1/responses/{in_session}")).status


@requirement("resp.stored")
async def test_what_was_said_is_listed_by_pages(world):
    """Each item with an id, the last first unless asked otherwise."""
    items = [{"role": "user", "content": f"{n}"} for n in range(5)]
    body = await done(await world.respond("up/echo:x", items))
    path = f"/v1/responses/{body['id']}/input_items"

    first = await world.get(f"{path}?limit=2")
    second = await world.get(f"{path}?limit=10&after={first['last_id']}")
    upwards = await world.get(f"{path}?order=asc")

    def said(page: dict[str, Any]) -> list[str]:
        return [item["content"][0]["text"] for item in page["data"]]

    assert (["4", "3"], True) == (said(first), first["has_more"])
    assert (["2", "1", "0"], False) == (said(second), second["has_more"])
    assert ["0", "1", "2", "3", "4"] == said(upwards)
    assert 5 == len({item["id"] for item in upwards["data"]})
    for query, param in (("order=up", "order"), ("limit=0", "limit"), ("limit=101", "limit")):
        assert (400, "invalid_request", param) == await refused(await world.call("GET", f"{path}?{query}"))


@requirement("resp.stored", "safe.owner-404")
async def test_responses_are_listed_newest_first_and_nobody_elses(world, bob):
    """What is not stored is not listed, and neither are runs of other kinds."""
    theirs = {response["id"] for response in (await bob.get("/v1/responses?limit=100"))["data"]}
    made = [(await done(await world.respond("up/echo:x")))["id"] for _ in range(3)]
    unstored = {"model": "up/echo:x", "input": "x", "store": False}
    await done(await world.call("POST", "/v1/responses", unstored))
    await done(await world.call("POST", "/v1/responses", unstored, idempotency_key="not listed"))
    await (await world.chat("up/echo:x", background=True)).body()

    first = await world.get("/v1/responses?limit=2")
    second = await world.get(f"/v1/responses?limit=1&after={first['last_id']}")

    assert ([made[2], made[1]], True) == ([response["id"] for response in first["data"]], first["has_more"])
    assert [made[0]] == [response["id"] for response in second["data"]]
    assert "x" == of_response_text(first["data"][0])
    assert not theirs & {*made}


def of_response_text(body: dict[str, Any]) -> str:
    return "".join(part["text"] for item in body["output"] for part in item["content"])


@requirement("start.idempotent")
async def test_the_same_key_gives_the_same_response(world):
    """A client that retries does not run the model twice."""
    asked = {"model": "up/echo:once", "input": "x"}
    key = {"Idempotency_Key": "once"}
    one, two = [await done(await world.call("POST", "/v1/responses", asked, **key)) for _ in range(2)]
    other = await world.call("POST", "/v1/responses", asked | {"input": "y"}, **key)

    assert one == two
    assert 1 == len([request for request in world.up.requests if request.model == "echo:once"])
    assert (409, "idempotency_conflict", None) == await refused(other)


@requirement("resp.events")
async def test_a_run_that_was_started_elsewhere_can_be_watched_here_and_stopped(world):
    """The id is the run's: one run, every wire."""
    started = await (await world.send(await world.new_session(), "up/half")).json()
    response_id = started["id"].replace("run_", "resp_")
    stream = await world.call("GET", f"/v1/responses/{response_id}?stream=true")
    seen = await read_until(stream, "an answer")

    cancelled = await done(await world.call("POST", f"/v1/responses/{response_id}/cancel"))
    run = await world.get(f"/api/runs/{started['id']}")
    rest = [frame.json() for frame in await stream.all_events()]

    assert ("cancelled", "Half an answer") == (cancelled["status"], of_response_text(cancelled))
    assert ("stopped", "Half an answer") == (run["settlement"]["outcome"], run["text"])
    assert cancelled == rest[-1]["response"]
    assert list(range(len(seen) + len(rest))) == [event["sequence_number"] for event in (*seen, *rest)]


# What outlives the server.


@requirement("resp.stored", "crash.resume", "crash.kill9")
async def test_stored_responses_survive_a_kill(tmp_path):
    """Byte for byte. One that was going on is told as failed, with what it had said."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        up.models |= SCRIPTS
        async with server.client() as client:
            world = World(up, server, client)
            whole = await done(await world.respond("up/two-calls", metadata={"a": "b"}))
            path = f"/v1/responses/{whole['id']}"
            said = await (await world.call("GET", f"{path}?stream=true")).body()
            stream = await world.respond("up/half", stream=True)
            seen = await read_until(stream, "an answer")
            await server.kill9()
            await server.restart()
        async with server.client() as client:
            world = World(up, server, client)
            again = await (await world.call("GET", f"{path}?stream=true")).body()
            fetched = await world.get(path)
            half = f"/v1/responses/{seen[0]['response']['id']}"
            rest = await (await world.call("GET", f"{half}?stream=true&starting_after=4")).all_events()
            ended = await world.get(half)
            shown = await shown_after(world, ended["id"])

    assert (whole, said) == (fetched, again)
    assert [*seen[5:]] == [frame.json() for frame in rest][: len(seen) - 5]
    assert list(range(5, 5 + len(rest))) == [frame.json()["sequence_number"] for frame in rest]
    assert ("failed", "server_died", "Half an answer") == (
        ended["status"],
        ended["error"]["code"],
        of_response_text(ended),
    )
    assert ended == rest[-1].json()["response"]
    assert {"role": "assistant", "content": "Half an answer"} == shown[1]


@requirement("resp.stored", "sub.gap-410")
async def test_of_a_trimmed_log_the_text_is_left(tmp_path):
    """After `event_days` the events are gone: the object has the text, and a stream says that there is a gap."""
    store = MemoryStore()
    async with Upstream() as up:
        settings = Settings(providers=(ProviderSettings("up", base_url=up.base_url, models=("end:think", "echo:x")),))
        async with Served(create_app(settings, store, NO_HOME)) as served, served.client() as client:
            world = World(up, served, client)
            whole = await done(await world.respond("up/end:think"))
            await store.trim_logs(1e12)
            trimmed = await world.get(f"/v1/responses/{whole['id']}")
            stream = await world.call("GET", f"/v1/responses/{whole['id']}?stream=true")
            shown = await shown_after_trim(world, whole["id"])

            assert (TEXT, "completed") == (of_response_text(trimmed), trimmed["status"])
            assert (410, "resume_gap", None) == await refused(stream)
            assert [QUESTION, TEXT, "Go on"] == [message["content"] for message in shown]


async def shown_after_trim(world: World, previous: str) -> list[dict[str, Any]]:
    await done(await world.respond("up/echo:x", "Go on", previous_response_id=previous))
    shown: list[dict[str, Any]] = world.request_for("echo:x").body["messages"]
    return shown


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize("tools", [[], [ADD]])
async def test_what_only_responses_has_reaches_an_upstream_of_responses(tmp_path, tools):
    """Without the summary Codex and the AI SDK show no reasoning of OpenAI's models."""
    encrypted = "reasoning.encrypted_content"
    asked: list[Recorded] = []

    def refuse(request: Recorded) -> Script:
        asked.append(request)
        return [Status(400, {"error": {"message": f"Encrypted content is not supported ({encrypted})."}})]

    async with Upstream() as up:
        up.at["POST /v1/responses"] = refuse
        entry = {"name": "own", "dialect": "openai-responses", "base_url": up.base_url, "models": ["m"]}
        async with Server(tmp_path, [entry]) as server, server.client() as client:
            thinking = {"effort": "low", "summary": "auto"}
            more = {"reasoning": thinking, "include": [encrypted, "web_search_call.results"], "tools": tools}
            await client.post("/v1/responses", {"model": "own/m", "input": "Hi", "store": False, **more})
    first, *again = [json.loads(request.raw) for request in asked]

    assert thinking == first["reasoning"]
    assert {encrypted, "web_search_call.results"} == {*first["include"]}
    assert [["web_search_call.results"]] == [body["include"] for body in again], "a model that does not reason"


@requirement("resp.asked")
@pytest.mark.parametrize("alternate", [False, True])
async def test_two_messages_of_a_user_stay_two_unless_the_upstream_needs_alternation(tmp_path, alternate):
    """A model sees what the client has sent; only a strict template makes one message of them."""
    texts = ["First.", "Second."]
    items = [{"role": "user", "content": text} for text in texts]
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, alternate=alternate)]) as server:
        async with server.client() as client:
            await (await client.post("/v1/responses", {"model": "up/m", "input": items})).json()
            conversation = await (await client.post("/v1/conversations", {"items": items[:1]})).json()
            more = {"conversation": conversation["id"], "input": items[1:]}
            await (await client.post("/v1/responses", {"model": "up/m", **more})).json()
    sent = [[message["content"] for message in request.body["messages"]] for request in up.requests]

    assert [["First.\n\nSecond."] if alternate else texts] * 2 == sent
