"""The 17 checks of Open Responses' compliance suite, each as a test of our own with the same request.

The suite itself is written for another JavaScript runtime. Its schema of the response asks for every field: here they
are `REQUIRED`, and the types of OpenAI's SDK judge the rest.
"""

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio
from openai.types.responses import CompactedResponse, Response, ResponsesServerEvent, ResponseStreamEvent
from websockets.asyncio.client import connect

from tests.e2e.clients import KEY, setting
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.sdk_types import validator
from tests.support.upstream import Delta, Done, Finish, Headers, ReasoningDelta, Role, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUIRED = {
    *("id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id"),
    *("instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p"),
    *("presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "background"),
    *("max_output_tokens", "max_tool_calls", "store", "service_tier", "metadata", "safety_identifier"),
    "prompt_cache_key",
}
NUMBERS = ("top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "temperature")
"""Fields that may not be null."""
LAST = ("response.completed", "response.incomplete", "response.failed", "error")
PICTURE = "data:image/png;base64,iVBORw0KGgo="
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("open-responses")) as here:
        here.up.models["thinks"] = [Headers(), Role(), ReasoningDelta("Hm."), Delta("1, 2."), Finish(), Done()]
        here.up.models["summary"] = answer("The launch is on Tuesday.")
        yield here


@pytest_asyncio.fixture(loop_scope="module")
async def client(here):
    async with Client(here.server.url, headers={"authorization": f"Bearer {KEY}"}) as client:
        yield client


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


def valid(response: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    Response.model_validate(response)
    assert REQUIRED <= response.keys()
    assert all(isinstance(response[name], int | float) for name in NUMBERS)
    assert status == response["status"]
    assert response["output"]
    return response


async def whole(client: Client, input: Any, model: str = "up/echo:Hello there, you.", **more: Any) -> dict[str, Any]:
    answered = await client.post("/v1/responses", {"model": model, "input": input, **more})
    assert 200 == answered.status
    return valid(await answered.json())


async def turns(here: Any, *requests: Any) -> list[list[dict[str, Any]]]:
    """Send requests on one connection, each when the one before has its last message; return all messages of each.

    A request may be a function of the last messages so far.
    """
    url = here.base_url.replace("http:", "ws:") + "/responses"
    found: list[list[dict[str, Any]]] = []
    async with asyncio.timeout(LONG), connect(url, additional_headers={"authorization": f"Bearer {KEY}"}) as socket:
        for request in requests:
            body = request([each[-1] for each in found]) if callable(request) else request
            await socket.send(json.dumps({"type": "response.create", "model": "up/echo:OK", "store": False, **body}))
            messages: list[dict[str, Any]] = []
            while not messages or messages[-1]["type"] not in LAST:
                messages.append(json.loads(await socket.recv()))
                validator(ResponsesServerEvent).validate_python(messages[-1])
            found.append(messages)
    return found


@requirement("resp.open-responses")
async def test_basic_response(client):
    await whole(client, [said("user", "Say hello in exactly 3 words.")])


@requirement("resp.open-responses")
async def test_assistant_phase(client):
    earlier = [
        said("assistant", "I should answer with the saved number.", phase="commentary"),
        said("assistant", "The number is four.", phase="final_answer"),
    ]
    await whole(client, [*earlier, said("user", "Repeat only the number.")])


@requirement("resp.open-responses")
async def test_response_output_phase_schema(client):
    """That check asks the schema alone. Here a response of ours gets phases, and stays valid."""
    response = await whole(client, "Hi")
    for phase in ("commentary", "final_answer"):
        Response.model_validate({**response, "output": [{**response["output"][0], "phase": phase}]})


@requirement("resp.open-responses")
async def test_streaming_response(client):
    body = {"model": "up/end:completed", "input": [said("user", "Count from 1 to 5.")], "stream": True}
    events = [frame.json() for frame in await (await client.post("/v1/responses", body)).all_events()]
    for event in events:
        validator(ResponseStreamEvent).validate_python(event)

    assert "response.completed" == events[-1]["type"]
    valid(events[-1]["response"])


KNOWN = ("reasoning_summary_part", "reasoning_summary_text", "output_item", "content_part", "output_text")
"""What the suite's schema of events has for an answer in text with reasoning, besides those of the response itself."""


@requirement("resp.open-responses")
async def test_streaming_response_of_a_model_that_reasons(client):
    """The suite refuses events that its specification does not have, as `reasoning_text`, which only OpenAI has."""
    body = {"model": "up/thinks", "input": [said("user", "Count from 1 to 2.")], "stream": True}
    events = [frame.json() for frame in await (await client.post("/v1/responses", body)).all_events()]
    for event in events:
        validator(ResponseStreamEvent).validate_python(event)
    inside = [event["type"].split(".")[1] for event in events if event["type"].count(".") == 2]

    assert {*KNOWN} == {*inside}
    assert "Hm." == valid(events[-1]["response"])["output"][0]["summary"][0]["text"]


@requirement("resp.open-responses")
async def test_websocket_response(here):
    [messages] = await turns(here, {"input": [said("user", "Count from 1 to 3.")]})

    valid(messages[-1]["response"])


@requirement("resp.open-responses")
async def test_websocket_sequential_responses(here):
    for messages in await turns(here, {"input": "first", "model": "up/echo:1"}, {"input": "second"}):
        valid(messages[-1]["response"])


@requirement("resp.open-responses")
async def test_websocket_continuation(here):
    _, messages = await turns(
        here,
        {"input": "Remember the code word: cobalt."},
        lambda last: {"input": "What is the code word?", "previous_response_id": last[0]["response"]["id"]},
    )

    valid(messages[-1]["response"])
    assert "cobalt" in here.up.requests[-1].body["messages"][0]["content"]


@requirement("resp.open-responses")
async def test_websocket_reconnect_store_false_recovery(here):
    [first] = await turns(here, {"input": "Remember the code word: copper."})
    missing, recovered = await turns(
        here,
        {"input": "Go on.", "previous_response_id": first[-1]["response"]["id"]},
        {"input": [said("user", "New.")]},
    )

    assert "previous_response_not_found" == missing[-1]["error"]["code"]
    valid(recovered[-1]["response"])


@requirement("resp.open-responses")
async def test_websocket_previous_response_not_found(here):
    [messages] = await turns(here, {"input": "This should fail.", "previous_response_id": "resp_missing"})

    assert "previous_response_not_found" == messages[-1]["error"]["code"]


@requirement("resp.open-responses")
async def test_websocket_failed_continuation_evicts_cache(here):
    orphan = {"type": "function_call_output", "call_id": "call_missing", "output": "No call has that."}
    first, failed, again = await turns(
        here,
        {"input": "Remember the code word: ember."},
        lambda last: {"input": [orphan], "previous_response_id": last[0]["response"]["id"]},
        lambda last: {"input": "Go on.", "previous_response_id": last[0]["response"]["id"]},
    )

    valid(first[-1]["response"])
    assert "error" == failed[-1]["type"]
    assert "previous_response_not_found" == again[-1]["error"]["code"]


@requirement("resp.open-responses")
async def test_websocket_compact_new_chain(here, client):
    items = [said("user", [{"type": "input_text", "text": "Remember: slate."}])]
    compacted = await (await client.post("/v1/responses/compact", {"model": "up/summary", "input": items})).json()
    [messages] = await turns(here, {"input": [*compacted["output"], said("user", "Continue.")], "tools": []})

    valid(messages[-1]["response"])


@requirement("resp.open-responses")
async def test_system_prompt(client):
    await whole(client, [said("system", "You are a pirate."), said("user", "Say hello.")])


@requirement("resp.open-responses")
async def test_tool_calling(client):
    response = await whole(client, [said("user", "The weather?")], model="up/two-tools", tools=[WEATHER])

    assert "function_call" in {item["type"] for item in response["output"]}


@requirement("resp.open-responses")
async def test_image_input(here, client):
    parts = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PICTURE}]
    await whole(client, [said("user", parts)])

    assert PICTURE == here.up.requests[-1].body["messages"][0]["content"][1]["image_url"]["url"]


@requirement("resp.open-responses")
async def test_multi_turn(here, client):
    await whole(client, [said("user", "My name is Alice."), said("assistant", "Hello Alice!"), said("user", "Name?")])

    assert ["user", "assistant", "user"] == [message["role"] for message in here.up.requests[-1].body["messages"]]


@requirement("resp.open-responses")
async def test_compact_response(client):
    items = [said("user", "We launch on Tuesday."), said("assistant", "Understood.")]
    body = {"model": "up/summary", "input": items, "prompt_cache_key": "compact-test"}
    compacted = await (await client.post("/v1/responses/compact", body)).json()

    CompactedResponse.model_validate(compacted)
    assert ["compaction"] == [item["type"] for item in compacted["output"]]


@requirement("resp.open-responses")
async def test_compact_missing_model(client):
    answered = await client.post("/v1/responses/compact", {"input": [said("user", "Compact this.")]})

    assert 400 == answered.status
