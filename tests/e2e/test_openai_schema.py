"""Every object of OpenAI's other calls by the types of its SDK, taken strictly: chats, completions, models."""

from typing import Any

import pytest
import pytest_asyncio
from openai.types import Completion as TextCompletion
from openai.types import CreateEmbeddingResponse, ImagesResponse, Model, ModerationCreateResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.requirements import requirement
from tests.support.sdk_types import unknown_fields, validator
from tests.support.server import Server, provider
from tests.support.upstream import Chunk, Delta, Done, Finish, Role, Status, Upstream, UsageChunk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), requirement("wire.openai-schema")]

ENDINGS = ["completed", "length", "content-filter", "think", "tool-call", "reasoning-content", "eof"]
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
REFUSAL = {"choices": [{"index": 0, "delta": {"refusal": "No."}, "finish_reason": None}]}
ON_PURPOSE = {
    "holdfast": "how a run ended that did not complete, and what a model of the list can do",
    "error": "why it failed; the SDK raises on it",
    "usage.cost": "the cost, if the model has a price",
    "choices.message.reasoning_content": "reasoning, under the name that local servers and their clients use",
    "choices.message.reasoning": "the same under the name of OpenRouter and vLLM",
    "choices.delta.reasoning_content": "the same in a stream",
    "choices.delta.reasoning": "the same in a stream",
}
"""What is there beyond the types, and why."""
EMBEDDING = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.1]}], "model": "embeds"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory):
    piece = {"choices": [{"index": 0, "text": " is", "logprobs": None, "finish_reason": "stop"}]}
    async with Upstream() as up:
        up.models |= {
            "refuses": [Role(), Chunk(REFUSAL), Finish(), Done()],
            "priced": [Role(), Delta("Hi."), Finish(), UsageChunk(), Done()],
            "completes": [Chunk(piece), UsageChunk(), Done()],
            "embeds": [Status(200, {**EMBEDDING, "usage": {"prompt_tokens": 2, "total_tokens": 2}})],
            "paints": [Status(200, {"created": 1, "data": [{"b64_json": "AAAA"}]})],
            "moderates": [Status(200, {"id": "modr_1", "model": "moderates", "results": []})],
        }
        prices = '[prices]\n"up/priced" = {input = 1.0, output = 1.0}\n'
        providers = [provider(up.base_url, models=None), {"name": "scripted", "dialect": "scripted"}]
        async with Server(tmp_path_factory.mktemp("openai-schema"), providers, config=prices) as server:
            async with server.client() as client:
                yield client


def check(value: dict[str, Any], kind: Any, finish_reasons: tuple[str | None, ...] = ("error",)) -> None:
    """Refuse an object that is not valid by its type, but for what is there on purpose.

    `finish_reasons` are those that the type does not know.
    """
    told = {name: inner for name, inner in value.items() if name != "choices"}
    choices = [
        choice | ({"finish_reason": "stop"} if choice["finish_reason"] in finish_reasons else {})
        for choice in value.get("choices", [])
    ]
    validator(kind).validate_python(told | ({"choices": choices} if "choices" in value else {}))
    assert set(unknown_fields(value, kind)) <= set(ON_PURPOSE)


@pytest.mark.parametrize("model", [*(f"end:{name}" for name in ENDINGS), "refuses", "priced"])
async def test_a_chat_is_what_the_types_of_the_sdk_say(client, model):
    """Whole and streamed. A failure has `finish_reason: "error"`, which is ours: the SDK raises on its `error`."""
    asked = {"model": f"up/{model}", "messages": [USER], "tools": [TOOL]}
    told = await (await client.post("/v1/chat/completions", asked)).json()
    whole = told.get("holdfast", {}).get("partial", told)
    frames = await (
        await client.post("/v1/chat/completions", {**asked, "stream": True, "stream_options": {"include_usage": True}})
    ).all_events()

    check(whole, ChatCompletion)
    chunks = [frame.json() for frame in frames if frame.data != "[DONE]"]
    for chunk in chunks:
        if "choices" in chunk:
            check(chunk, ChatCompletionChunk)
    assert [] == [chunk for chunk in chunks[:-1] if "choices" not in chunk]  # an error of its own is the last


async def test_completions_and_models_are_what_the_types_of_the_sdk_say(client):
    """The list, and one of it."""
    body = {"model": "up/completes", "prompt": "The sea"}
    whole = await (await client.post("/v1/completions", body)).json()
    frames = await (await client.post("/v1/completions", {**body, "stream": True})).all_events()
    listed = await (await client.get("/v1/models")).json()
    one = await (await client.get(f"/v1/models/{listed['data'][0]['id']}")).json()

    check(whole, TextCompletion)
    for frame in frames:
        if frame.data != "[DONE]":
            check(frame.json(), TextCompletion, finish_reasons=(None,))  # OpenAI has no type for its own chunks
    assert "list" == listed["object"]
    for model in (*listed["data"], one):
        check(model, Model)


async def test_what_is_passed_through_is_what_the_types_of_the_sdk_say(client):
    """It stays as the provider has sent it."""
    for path, body, kind in (
        ("/v1/embeddings", {"model": "up/embeds", "input": "Hi"}, CreateEmbeddingResponse),
        ("/v1/images/generations", {"model": "up/paints", "prompt": "Sea"}, ImagesResponse),
        ("/v1/moderations", {"model": "up/moderates", "input": "Hi"}, ModerationCreateResponse),
    ):
        check(await (await client.post(path, body)).json(), kind)
