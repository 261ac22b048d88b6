"""What a model says besides text and calls of functions: it reaches the client in its own place, or it is a failure."""

import json
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from pydantic import BaseModel

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from holdfast.wires.anthropic import messages as anthropic_messages
from holdfast.wires.openai import responses as openai_responses
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Chunk, Done, Finish, Headers, Role, Status, Upstream, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = [{"role": "user", "content": "Do it."}]


def says(*deltas: dict[str, Any], end: str = "stop") -> list[Any]:
    chunks = [Chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    return [Headers(), Role(), *chunks, Finish(end), Done()]


def piece(**custom: str) -> dict[str, Any]:
    begin = {"id": "call_1", "type": "custom"} if "name" in custom else {}
    return {"tool_calls": [{"index": 0, "custom": custom, **begin}]}


SCRIPTS = {
    "refuses": says({"content": None, "refusal": "I can't "}, {"refusal": "do that."}),
    "old": says(
        {"content": None, "function_call": {"name": "add", "arguments": ""}},
        {"function_call": {"arguments": '{"a":'}},
        {"function_call": {"arguments": "1}"}},
        end="function_call",
    ),
    "custom": says(piece(name="run", input=""), piece(input="print(1"), piece(input=") ]}"), end="tool_calls"),
    "speaks": says({"content": None, "audio": {"id": "a"}}, {"audio": {"data": "QQ==", "transcript": "Hello"}}),
    "draws": says({"content": None, "images": [{"type": "image_url", "image_url": {"url": "data:"}}]}),
    "illustrates": says({"content": "See."}, {"images": [{"type": "image_url", "image_url": {"url": "data:"}}]}),
}
OLD = {"functions": [{"name": "add", "parameters": {"type": "object"}}]}
CUSTOM = {"tools": [{"type": "custom", "custom": {"name": "run", "description": "Runs code."}}]}


class Here:
    """A server, its upstream, and who may ask it."""

    def __init__(self, up: Upstream, served: Served, raw: Any, client: AsyncOpenAI) -> None:
        self.up, self.served, self.raw, self.client = up, served, raw, client
        self.native = Native(raw)

    async def ask(self, model: str, **more: Any) -> Any:
        return await self.client.chat.completions.create(model=f"up/{model}", messages=ASKED, **more)

    async def stream(self, model: str, **more: Any) -> list[Any]:
        chunks = await self.ask(model, stream=True, **more)
        return [chunk.choices[0] async for chunk in chunks if chunk.choices]

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        response = await self.raw.post(path, json=body)
        return response.status, await response.json()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with Upstream() as up:
        up.models.update(SCRIPTS)
        providers = (
            ProviderSettings("up", base_url=up.base_url, unlisted="pass"),
            ProviderSettings("claude", dialect="anthropic", base_url=up.base_url.removesuffix("/v1"), models=("m",)),
        )
        data = str(tmp_path_factory.mktemp("data"))
        settings = Settings(data=data, providers=providers, retry_patience=0.0, drain=0.0)
        async with (
            Served(create_app(settings, MemoryStore(), NO_HOME)) as served,
            served.client() as raw,
            AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=LONG) as client,
        ):
            yield Here(up, served, raw, client)


# refusals


class Sum(BaseModel):
    """What the model is asked to answer with."""

    total: int


@requirement("truth.whole-answer")
async def test_a_refusal_is_no_content(here):
    """A client that parses its content would fail on it; one that shows it must not take it for an answer."""
    (choice,) = (await here.ask("refuses")).choices
    parsed = await here.client.chat.completions.parse(model="up/refuses", messages=ASKED, response_format=Sum)

    assert (None, "I can't do that.", "stop") == (choice.message.content, choice.message.refusal, choice.finish_reason)
    assert ("I can't do that.", None) == (parsed.choices[0].message.refusal, parsed.choices[0].message.parsed)


@requirement("truth.whole-answer")
async def test_a_refusal_is_streamed_in_its_own_place(here):
    """As OpenAI streams it."""
    choices = await here.stream("refuses")

    assert ["I can't ", "do that."] == [choice.delta.refusal for choice in choices if choice.delta.refusal]
    assert "" == "".join(choice.delta.content or "" for choice in choices)


@requirement("truth.whole-answer")
async def test_a_refusal_of_a_response_is_a_refusal_part(here):
    """The SDK checks each event against its own types, and puts the response together from them."""
    async with here.client.responses.stream(model="up/refuses", input="Do it.") as stream:
        kinds = [event.type async for event in stream]
        response = await stream.get_final_response()

    (item,) = response.output
    (part,) = item.content
    assert ("message", "refusal", "I can't do that.") == (item.type, part.type, part.refusal)
    assert ["response.refusal.delta"] * 2 == [kind for kind in kinds if kind.endswith("refusal.delta")]
    assert "response.refusal.done" in kinds
    assert "" == response.output_text
    kept = await here.client.responses.retrieve(response.id)
    assert [each.model_dump() for each in response.output] == [each.model_dump() for each in kept.output]


@requirement("truth.whole-answer")
async def test_a_refusal_is_text_in_a_session_and_says_so_in_its_events(here):
    """People read it, and so does the model when it is asked again."""
    session_id = await here.native.new_session()
    run_id = await here.native.start(session_id, "Do it.", "up/refuses")
    events = [frame.json() for frame in await here.native.replay(run_id)]
    messages = (await here.native.session(session_id))["messages"]

    assert [True, True] == [event["refusal"] for event in events if event["type"] == "text.delta"]
    assert "I can't do that." == messages[-1]["content"]


# calls


@requirement("truth.whole-answer")
async def test_a_function_that_is_called_in_the_older_way_is_called(here):
    """The request was passed on with its `functions`, so the call must come back."""
    (choice,) = (await here.ask("old", **OLD)).choices
    choices = await here.stream("old", **OLD)

    assert ("function_call", None) == (choice.finish_reason, choice.message.content)
    assert ("add", '{"a":1}') == (choice.message.function_call.name, choice.message.function_call.arguments)
    assert choice.message.tool_calls is None
    pieces = [choice.delta.function_call for choice in choices if choice.delta.function_call]
    assert ("add", '{"a":1}') == (pieces[0].name, "".join(piece.arguments for piece in pieces))
    assert "function_call" == choices[-1].finish_reason


@requirement("truth.whole-answer")
async def test_a_custom_tool_is_called_with_its_text(here):
    """Without its name and its input a call says nothing."""
    (choice,) = (await here.ask("custom", **CUSTOM)).choices
    (call,) = choice.message.tool_calls
    choices = await here.stream("custom", **CUSTOM)

    assert ("custom", "call_1") == (call.type, call.id)
    assert ("run", "print(1) ]}") == (call.custom.name, call.custom.input)
    pieces = [choice.delta.tool_calls[0].model_dump() for choice in choices if choice.delta.tool_calls]
    assert ("custom", "call_1", "run") == (pieces[0]["type"], pieces[0]["id"], pieces[0]["custom"]["name"])
    assert "print(1) ]}" == "".join(piece["custom"]["input"] for piece in pieces)
    assert "tool_calls" == choices[-1].finish_reason


@requirement("truth.whole-answer")
async def test_a_session_shows_the_model_its_call_of_a_custom_tool_as_it_made_it(here):
    """With its result. A call of another kind would be refused by the provider."""
    session_id = {"session_id": "custom-calls"}
    await here.post("/v1/chat/completions", model="up/custom", messages=ASKED, **CUSTOM, **session_id)
    result = [{"role": "tool", "tool_call_id": "call_1", "content": "1"}]
    here.up.enqueue(answer("It is 1."))
    status, body = await here.post("/v1/chat/completions", model="up/custom", messages=result, **CUSTOM, **session_id)

    assert (200, "It is 1.") == (status, body["choices"][0]["message"]["content"])
    asked = here.up.requests[-1].body["messages"]
    custom = {"id": "call_1", "type": "custom", "custom": {"name": "run", "input": "print(1) ]}"}}
    assert [custom] == asked[1]["tool_calls"]
    assert result[0] == asked[2]


@requirement("truth.whole-answer")
@pytest.mark.parametrize(
    "told",
    [
        [
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "1"},
        ],
        [
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "1"},
        ],
        [{"role": "assistant", "content": None, "refusal": "No."}, {"role": "user", "content": "Please."}],
    ],
    ids=["a custom tool", "the older way", "a refusal"],
)
async def test_what_was_said_before_reaches_the_model_as_it_was(here, told):
    """The client keeps the conversation, so it sends back what it was sent."""
    here.up.enqueue(answer("It is 1."))
    status, _ = await here.post("/v1/chat/completions", model="up/old", messages=[*ASKED, *told])

    assert (200, told) == (status, here.up.requests[-1].body["messages"][1:])


@requirement("truth.whole-answer", "wire.watch-any")
async def test_wires_whose_calls_have_json_show_the_text_of_a_custom_tool_as_json(here):
    """A client there would fail on text that is no JSON, or act on half of it."""
    session_id = await here.native.new_session()
    run_id = await here.native.start(session_id, "Do it.", "up/custom", params=CUSTOM)
    await here.native.replay(run_id)
    response = await (await here.raw.get(f"/v1/responses/{openai_responses.response_id(run_id)}")).json()
    message = await (await here.raw.get(f"/v1/messages/{anthropic_messages.message_id(run_id)}")).json()

    assert {"input": "print(1) ]}"} == json.loads(response["output"][0]["arguments"])
    assert ("tool_use", {"input": "print(1) ]}"}) == (message["content"][0]["type"], message["content"][0]["input"])


# what cannot be passed on


@requirement("truth.whole-answer")
@pytest.mark.parametrize(("model", "what"), [("speaks", "audio"), ("draws", "pictures")])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_cannot_be_passed_on_has_failed(here, model, what, stream):
    """It was told as a completed answer without a word."""
    status, body = await here.post("/v1/chat/completions", model=f"up/{model}", messages=ASKED, stream=stream)

    assert (502, "unsupported_content") == (status, body["error"]["code"])
    assert f"up answered with {what} alone, which cannot be passed on. Ask for text." == body["error"]["message"]


@requirement("truth.whole-answer")
async def test_a_picture_beside_text_is_told_in_a_notice(here):
    """The text is an answer; that it is not all of it can be seen."""
    session_id = await here.native.new_session()
    run_id = await here.native.start(session_id, "Do it.", "up/illustrates")
    events = [frame.json() for frame in await here.native.replay(run_id)]

    assert ["content_left_out"] == [event["code"] for event in events if event["type"] == "notice"]
    assert ("completed", "See.") == (events[-1]["settlement"]["outcome"], events[-1]["settlement"]["text"])


@requirement("truth.whole-answer")
@pytest.mark.parametrize("model", ["up/old", "claude/m"])
async def test_an_answer_that_is_not_text_is_not_asked_for(here, model):
    """The upstream would work, and be paid, for what nobody gets."""
    before = len(here.up.requests)
    asked = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
    status, body = await here.post("/v1/chat/completions", model=model, messages=ASKED, **asked)

    assert (400, "unsupported", "modalities") == (status, body["error"]["code"], body["error"]["param"])
    assert before == len(here.up.requests)


@requirement("truth.whole-answer")
@pytest.mark.parametrize(
    ("more", "param"),
    [
        (OLD, "functions"),
        (CUSTOM, "tools"),
        ({"messages": [*ASKED, {"role": "function", "name": "add", "content": "1"}]}, "messages[1].role"),
        (
            {"messages": [*ASKED, {"role": "assistant", "function_call": {"name": "f", "arguments": ""}}, *ASKED]},
            "messages[1].function_call",
        ),
    ],
    ids=["functions", "a custom tool", "a result in the older way", "a call in the older way"],
)
async def test_what_cannot_be_said_to_anthropic_is_refused(here, more, param):
    """Left out, the model would answer another question."""
    before = len(here.up.requests)
    status, body = await here.post("/v1/chat/completions", **{"model": "claude/m", "messages": ASKED, **more})

    assert (400, "unsupported", param) == (status, body["error"]["code"], body["error"]["param"])
    assert before == len(here.up.requests)


@requirement("truth.whole-answer")
@pytest.mark.parametrize(
    "more", [OLD, {"messages": [*ASKED, {"role": "function", "name": "add", "content": "1"}]}], ids=["asked", "told"]
)
async def test_functions_in_the_older_way_have_no_place_in_a_session(here, more):
    """A session keeps calls and results by their id, which these do not have."""
    body = {"model": "up/old", "messages": ASKED, "session_id": "old-calls", **more}
    status, refused = await here.post("/v1/chat/completions", **body)

    assert (400, "unsupported", "functions") == (status, refused["error"]["code"], refused["error"]["param"])


# what an upstream says of an error


@requirement("start.early-failure-status")
@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "type": "invalid_request_error"},
        {"code": 400, "type": "exceed_context_size_error"},
    ],
    ids=["openai", "llama-server"],
)
async def test_a_prompt_that_is_too_long_keeps_its_code(here, error):
    """Clients that shorten a conversation and try again look for it."""
    here.up.enqueue([Status(400, {"error": {"message": "Too long.", **error}})])
    status, body = await here.post("/v1/chat/completions", model="up/old", messages=ASKED)

    assert (400, "context_length_exceeded") == (status, body["error"]["code"])
