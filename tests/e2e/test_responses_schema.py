"""Every object and event of `/v1/responses` by the types of OpenAI's own SDK, taken strictly; compaction; estimates.

The SDK itself reads loosely: it takes whatever comes. Here each object has to be valid, and to have no field that the
types do not know, but for what is listed.
"""

from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, NotFoundError
from openai.types.responses import CompactedResponse, Response, ResponseStreamEvent

from tests.e2e.clients import KEY, setting
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.sdk_types import unknown_fields, validator
from tests.support.upstream import Chunk, Delta, Done, Finish, Hang, Role, answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}}
CUSTOM = {"type": "custom", "name": "note"}
ENDINGS = ["completed", "length", "content-filter", "eof", "think", "tool-call", "reasoning-content"]
ON_PURPOSE = {
    "holdfast": "how a run ended that did not complete",
    "presence_penalty": "Open Responses wants it, and OpenAI sends it; the SDK's type does not have it",
    "frequency_penalty": "the same",
    "store": "OpenAI sends it; the SDK's type does not have it",
    "name": "OpenAI's documents have it in function_call_arguments.done; the SDK's type does not",
}
"""What is there beyond the types, and why."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("responses-schema")) as here:
        annotation = {
            "type": "url_citation",
            "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 2},
        }
        delta = {"choices": [{"index": 0, "delta": {"annotations": [annotation]}, "finish_reason": None}]}
        refusal = {"choices": [{"index": 0, "delta": {"refusal": "No."}, "finish_reason": None}]}
        here.up.models |= {
            "cites": [Role(), Delta("Sea."), Chunk(delta), Finish(), Done()],
            "refuses": [Role(), Chunk(refusal), Finish(), Done()],
            "halts": [Role(), Delta("Sea."), Hang()],
            "summary": answer("They met at sea."),
            "half": [Role(), Delta("They"), Finish("length"), Done()],
        }
        yield here


@pytest_asyncio.fixture(loop_scope="module")
async def client(here):
    async with Client(here.server.url, headers={"authorization": f"Bearer {KEY}"}) as client:
        yield client


def check(value: dict[str, Any], kind: Any) -> None:
    """Refuse an object that is not valid by its type, but for what is there on purpose."""
    told = dict(value)
    told.pop("error", None)  # it has our own codes
    validator(kind).validate_python(told, strict=False)

    assert {name.removeprefix("response.") for name in unknown_fields(told, kind)} <= set(ON_PURPOSE)


@requirement("resp.schema")
@pytest.mark.parametrize("model", [*(f"end:{name}" for name in ENDINGS), "cites", "refuses", "two-tools"])
async def test_an_object_is_what_the_types_of_the_sdk_say(client, model):
    """A program in a language with strict types cannot read one that is not."""
    tools = [TOOL, CUSTOM] if "tool" in model else []
    body = {"model": f"up/{model}", "input": "Hi", "tools": tools, "user": "u", "metadata": {"a": "b"}}
    told = await (await client.post("/v1/responses", body)).json()
    partial = told.get("holdfast", {}).get("partial")
    response = told if partial is None else {**partial, "error": told["error"]}
    stored = await (await client.get(f"/v1/responses/{response['id']}")).json()

    check(response, Response)
    assert set(Response.model_fields) - NOT_OURS <= set(response)
    assert response == {name: stored[name] for name in response}
    assert (response["status"] == "completed") == (response["completed_at"] is not None)


NOT_OURS = {
    "access_programs",
    "conversation",
    "image",
    "moderation",
    "prompt",
    "prompt_cache_diagnostics",
    "tool_usage",
} | {*("prompt_cache_options", "prompt_cache_retention")}
"""Fields of OpenAI's own machines: a response has them only if it was asked for them."""


@requirement("resp.schema")
@pytest.mark.parametrize("model", [*(f"end:{name}" for name in ENDINGS), "cites", "refuses", "two-tools"])
@pytest.mark.parametrize("more", [{}, {"reasoning": {"summary": "auto"}}, {"background": True}], ids=str)
async def test_an_event_is_what_the_types_of_the_sdk_say(client, model, more):
    """The last event has the response that is stored."""
    tools = [TOOL, CUSTOM] if "tool" in model else []
    body = {"model": f"up/{model}", "input": "Hi", "tools": tools, "stream": True, **more}
    events = [frame.json() for frame in await (await client.post("/v1/responses", body)).all_events()]
    for event in events:
        if event["type"] != "error":
            inner = {"response": {**event["response"], "error": None}} if "response" in event else {}
            check({**event, **inner}, ResponseStreamEvent)

    last = events[-1]["response"]
    assert last == await (await client.get(f"/v1/responses/{last['id']}")).json()


@requirement("resp.compact")
async def test_a_conversation_goes_on_from_its_summary(here):
    """With the SDK's own call, and its types."""
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY) as client:
        items: list[Any] = [{"role": "user", "content": "Tell of the sea."}, {"role": "assistant", "content": "Wide."}]
        compacted = await client.responses.compact(model="up/summary", input=items, instructions="Be brief.")
        shown = here.up.requests[-1].body["messages"]
        output = [item.model_dump() for item in compacted.output]
        await client.responses.create(model="up/echo:on", input=[*output, {"role": "user", "content": "And?"}])

    CompactedResponse.model_validate(compacted.model_dump())
    assert ["system", "user", "assistant", "user"] == [message["role"] for message in shown]
    assert ["compaction"] == [item["type"] for item in output]
    messages = here.up.requests[-1].body["messages"]
    assert (True, "And?") == (messages[0]["content"].endswith("They met at sea."), messages[1]["content"])


@requirement("resp.compact")
async def test_half_a_summary_and_one_of_somebody_else_are_refused(here, client):
    """What is not in the summary is lost to the model."""
    half = await client.post("/v1/responses/compact", {"model": "up/half", "input": "Hi"})
    foreign = [{"type": "compaction", "encrypted_content": "gAAAA"}, {"role": "user", "content": "And?"}]
    other = await client.post("/v1/responses", {"model": "up/echo:no", "input": foreign})

    assert (406, "compaction_failed") == (half.status, (await half.json())["error"]["code"])
    assert (400, "input[0].encrypted_content") == (other.status, (await other.json())["error"]["param"])


@requirement("resp.compact")
async def test_tokens_of_a_request_are_estimated(here):
    """With the SDK's own call; a longer conversation has more."""
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY) as client:
        short = await client.responses.input_tokens.count(model="up/echo:x", input="Hi")
        long = await client.responses.input_tokens.count(model="up/echo:x", input="Hi " * 1000)
        with pytest.raises(NotFoundError):
            await client.responses.input_tokens.count(model="up/echo:x", previous_response_id="resp_gone")

    assert 0 < short.input_tokens < long.input_tokens
    assert "response.input_tokens" == short.object


@requirement("resp.chain")
async def test_a_response_may_follow_another_without_input(client):
    """OpenAI takes that too: the model answers to what is there."""
    first = await (await client.post("/v1/responses", {"model": "up/echo:one", "input": "Hi"})).json()
    body = {"model": "up/echo:two", "previous_response_id": first["id"]}
    second = await (await client.post("/v1/responses", body)).json()

    assert ("completed", "two") == (second["status"], second["output"][0]["content"][0]["text"])
