"""Usage in full on every wire: what an upstream counted of cached and reasoning tokens reaches every client."""

import json
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Chunk, Delta, Done, Finish, Role, Upstream

pytestmark = [pytest.mark.asyncio(loop_scope="module"), requirement("wire.usage")]

COUNTED = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 90},
    "completion_tokens_details": {"reasoning_tokens": 15},
}
COST = (10 * 10.0 + 90 * 1.0 + 20 * 100.0) / 1_000_000
"""What the counted tokens cost: ten that were not cached, ninety that were, and the output."""
USER = {"role": "user", "content": "Hi"}
AG_UI = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "u", **USER}],
    "tools": [],
    "context": [],
    "state": {},
    "forwardedProps": {"model": "up/counts"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory):
    async with Upstream() as up:
        up.models["free"] = [Role(), Delta("Hi."), Finish(), Chunk({"choices": [], "usage": COUNTED}), Done()]
        up.models["counts"] = [Role(), Delta("Hi."), Finish(), Chunk({"choices": [], "usage": COUNTED}), Done()]
        prices = '[prices]\n"up/counts" = {input = 10.0, cached_input = 1.0, output = 100.0}\n'
        providers = [provider(up.base_url, models=None)]
        async with Server(tmp_path_factory.mktemp("usage"), providers, config=prices) as server:
            async with server.client() as client:
                yield client


async def whole(client, path: str, **body: Any) -> dict[str, Any]:
    return await (await client.post(path, {"model": "up/counts"} | body)).json()


async def last(client, path: str, **body: Any) -> list[dict[str, Any]]:
    response = await client.post(path, {"model": "up/counts", "stream": True, **body})
    return [frame.json() for frame in await response.all_events() if frame.data != "[DONE]"]


async def test_chat_completions_and_responses_tell_all(client):
    """Programs compute the cost of an answer from it."""
    chat = await whole(client, "/v1/chat/completions", messages=[USER])
    streamed = await last(client, "/v1/chat/completions", messages=[USER], stream_options={"include_usage": True})
    response = (await whole(client, "/v1/responses", input="Hi"))["usage"]

    assert {**COUNTED, "cost": COST} == chat["usage"]
    assert {**COUNTED, "cost": COST} == streamed[-1]["usage"]
    assert (90, 15) == (
        response["input_tokens_details"]["cached_tokens"],
        response["output_tokens_details"]["reasoning_tokens"],
    )


async def test_messages_tell_the_cache_apart_and_the_input_at_the_start(client):
    """Anthropic's clients add what was cached to what was not."""
    message = (await whole(client, "/v1/messages", messages=[USER], max_tokens=9))["usage"]
    events = await last(client, "/v1/messages", messages=[USER], max_tokens=9)

    assert (10, 90, 20) == (message["input_tokens"], message["cache_read_input_tokens"], message["output_tokens"])
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    assert 90 == events[-2]["usage"]["cache_read_input_tokens"]


async def test_the_native_api_the_ai_sdk_and_ag_ui_tell_it_too(client):
    """Each in its own words."""
    session = await (await client.post("/api/sessions", {})).json()
    run = await whole(client, f"/api/sessions/{session['id']}/runs", input="Hi")
    frames = await (await client.get(f"/api/runs/{run['id']}/events")).all_events()
    native = [frame.json() for frame in frames][-1]["settlement"]["usage"]
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    parts = await (await client.post("/api/chat", {"model": "up/counts", "messages": [message]})).all_events()
    metadata = [frame.json() for frame in parts if frame.data != "[DONE]"][-1]["messageMetadata"]
    finished = (await (await client.post("/ag-ui", {**AG_UI, "threadId": "other", "runId": "other"})).all_events())[
        -1
    ].json()

    assert (90, 15) == (native["cached_tokens"], native["reasoning_tokens"])
    assert 90 == metadata["holdfast"]["usage"]["cached_tokens"]
    assert (90, 15) == (finished["usage"][0]["cachedInputTokens"], finished["usage"][0]["reasoningTokens"])


@requirement("wire.cost")
async def test_the_cost_is_told_on_every_wire_that_has_a_place_for_it(client):
    """By the price of input, of what of it was cached, and of output."""
    chat = (await whole(client, "/v1/chat/completions", messages=[USER]))["usage"]
    response = (await whole(client, "/v1/responses", input="Hi"))["usage"]
    events = await last(client, "/v1/responses", input="Hi")
    message = (await whole(client, "/v1/messages", messages=[USER], max_tokens=9))["usage"]
    streamed = await last(client, "/v1/messages", messages=[USER], max_tokens=9)
    text = (await whole(client, "/v1/completions", prompt="Hi"))["usage"]
    session = await (await client.post("/api/sessions", {})).json()
    run = await whole(client, f"/api/sessions/{session['id']}/runs", input="Hi")
    await (await client.get(f"/api/runs/{run['id']}/events")).all_events()
    native = await (await client.get(f"/api/runs/{run['id']}")).json()
    shown = (await (await client.get(f"/api/sessions/{session['id']}")).json())["messages"][-1]["figures"]

    ag_ui = (await (await client.post("/ag-ui", AG_UI)).all_events())[-1].json()["metadata"]
    ollama = await whole(client, "/api/chat", messages=[USER], stream=False)
    lines = (await (await client.post("/api/generate", {"model": "up/counts", "prompt": "Hi"})).text()).splitlines()

    others = [ag_ui, ollama, json.loads(lines[-1])]
    told = [
        chat,
        response,
        events[-1]["response"]["usage"],
        message,
        streamed[-2]["usage"],
        native,
        shown,
        text,
        *others,
    ]
    assert [COST] * len(told) == [each["cost"] for each in told]


@requirement("wire.cost")
async def test_a_model_without_a_price_has_no_cost(client):
    """None is told: zero would be a claim."""
    chat = await whole(client, "/v1/chat/completions", messages=[USER], model="up/free")
    message = await whole(client, "/v1/messages", messages=[USER], max_tokens=9, model="up/free")
    ollama = await whole(client, "/api/chat", messages=[USER], stream=False, model="up/free")
    free = AG_UI | {"threadId": "free", "runId": "free", "forwardedProps": {"model": "up/free"}}
    ag_ui = (await (await client.post("/ag-ui", free)).all_events())[-1].json()

    assert [False] * 4 == [
        "cost" in each for each in (chat["usage"], message["usage"], ollama, ag_ui.get("metadata", {}))
    ]
