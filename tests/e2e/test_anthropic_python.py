"""Anthropic's own Python client against the server: what it reads, what it raises, and how often it asks."""

import anthropic
import httpx2
import pydantic
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic

from tests.e2e.clients import KEY, setting
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.upstream import REASONING, TEXT, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = [{"role": "user", "content": "What is the wave?"}]
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("anthropic-python")) as here:
        yield here


@pytest_asyncio.fixture(loop_scope="module")
async def client(here):
    """As people make it: with a key of its own header, and its own two retries."""
    async with AsyncAnthropic(base_url=here.server.url, api_key=KEY, timeout=LONG) as client:
        yield client


def ask(model: str, **more):
    return {"model": model, "max_tokens": 100, "messages": ASKED, **more}


async def read(stream, seen: list[str], on_text=None) -> None:
    """Read a stream to its end; what was seen is there although it raises."""
    async with stream as events:
        async for piece in events.text_stream:
            seen.append(piece)
            if on_text is not None:
                await on_text(events, "".join(seen))


@requirement("wire.anthropic")
async def test_a_message_is_read_whole(client):
    """The plainest call there is; the key comes as x-api-key."""
    message = await client.messages.create(**ask("up/end:completed"))

    assert [("text", TEXT)] == [(block.type, block.text) for block in message.content]
    assert ("assistant", "end_turn", "up/end:completed") == (message.role, message.stop_reason, message.model)
    assert (3, 5) == (message.usage.input_tokens, message.usage.output_tokens)
    assert message.id.startswith("msg_run_")


@requirement("wire.anthropic")
async def test_a_stream_is_put_together_by_the_sdk(client):
    """Its helper checks the order of events and joins blocks by their index."""
    async with client.messages.stream(**ask("up/end:think")) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        message = await stream.get_final_message()

    assert TEXT == text
    assert [("thinking", REASONING), ("text", TEXT)] == [
        (block.type, getattr(block, block.type)) for block in message.content
    ]
    assert ("end_turn", 5) == (message.stop_reason, message.usage.output_tokens)


@requirement("wire.anthropic")
async def test_tools_go_there_and_back(client, here):
    """Two calls in one answer; then their results, which the upstream must see as OpenAI would have them."""
    async with client.messages.stream(**ask("up/two-tools", tools=[ADD], tool_choice={"type": "any"})) as stream:
        streamed = await stream.get_final_message()
    whole = await client.messages.create(**ask("up/two-tools", tools=[ADD]))
    results = [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "3"},
        {"type": "tool_result", "tool_use_id": "call_2", "content": [{"type": "text", "text": "7"}], "is_error": True},
        {"type": "text", "text": "Go on."},
    ]
    turns = [*ASKED, {"role": "assistant", "content": whole.content}, {"role": "user", "content": results}]
    await client.messages.create(
        model="up/echo:tools", max_tokens=7, messages=turns, system="Be brief.", stop_sequences=["END"], tools=[ADD]
    )

    for message in (streamed, whole):
        assert "tool_use" == message.stop_reason
        assert [("call_1", "add", {"a": 1, "b": 2}), ("call_2", "add", {"a": 3, "b": 4})] == [
            (block.id, block.name, block.input) for block in message.content
        ]
    first = next(request for request in here.up.requests if request.model == "two-tools").body
    function = {"name": "add", "description": ADD["description"], "parameters": ADD["input_schema"]}
    assert ([{"type": "function", "function": function}], "required") == (first["tools"], first["tool_choice"])
    asked = next(request for request in here.up.requests if request.model == "echo:tools").body
    assert (7, ["END"]) == (asked["max_tokens"], asked["stop"])
    assert [
        ("system", "Be brief."),
        ("user", "What is the wave?"),
        ("assistant", None),
        ("tool", "3"),
        ("tool", "Error: 7"),
        ("user", "Go on."),
    ] == [(said["role"], said["content"]) for said in asked["messages"]]
    assert ['{"a":1,"b":2}', '{"a":3,"b":4}'] == [
        call["function"]["arguments"] for call in asked["messages"][2]["tool_calls"]
    ]


@requirement("wire.thread", "wire.orphan-result")
@pytest.mark.parametrize("streams", [True, False])
async def test_the_tool_runner_leaves_the_conversation_to_the_server(client, here, streams):
    """It has the server keep the conversation and sends only what is new. The model is shown all of it."""

    @anthropic.beta_async_tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    here.up.enqueue(here.up.models["two-tools"], answer("Ten in all."))
    asked = {**ask("up/runner"), "tools": [add]}
    runner = client.beta.messages.tool_runner(**asked, stream=streams)
    message = await runner.until_done()

    first, second = [request.body for request in here.up.requests if request.model == "runner"][-2:]
    assert "Ten in all." == message.content[0].text
    assert first["tools"] == second["tools"]
    assert [("user", ASKED[0]["content"]), ("assistant", None), ("tool", "3"), ("tool", "7")] == [
        (said["role"], said["content"]) for said in second["messages"]
    ]


@requirement("wire.no-silent-drop")
async def test_a_schema_reaches_the_model_and_the_answer_is_parsed(client, here):
    """`parse` sends `output_config`. Without it the model does not know of the schema."""

    class Sum(pydantic.BaseModel):
        total: int

    here.up.enqueue(answer('{"total": 7}'))
    message = await client.messages.parse(**ask("up/parsed"), output_format=Sum)

    schema = next(request for request in here.up.requests if request.model == "parsed").body["response_format"]
    assert Sum(total=7) == message.parsed_output
    assert ("json_schema", ["total"]) == (schema["type"], schema["json_schema"]["schema"]["required"])


@requirement("wire.anthropic")
async def test_an_image_reaches_the_upstream(client, here):
    """Inline data becomes a data URL, which is how OpenAI's upstreams take one."""
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
    await client.messages.create(model="up/echo:image", max_tokens=9, messages=[{"role": "user", "content": content}])

    (said,) = next(request for request in here.up.requests if request.model == "echo:image").body["messages"]
    assert [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "text", "text": "What is this?"},
    ] == said["content"]


@requirement("wire.anthropic")
@pytest.mark.parametrize(("name", "reason"), [("length", "max_tokens"), ("content-filter", "refusal")])
async def test_a_truncated_answer_has_its_own_stop_reason(client, name, reason):
    """Programs look at it to ask for more."""
    message = await client.messages.create(**ask(f"up/end:{name}"))

    assert (reason, TEXT) == (message.stop_reason, message.content[0].text)
    assert "truncated" == message.model_extra["holdfast"]["outcome"]


@requirement("wire.anthropic")
@pytest.mark.parametrize(
    ("model", "kind", "error_type", "calls"),
    [
        ("fixed/m", anthropic.NotFoundError, "not_found_error", 0),
        ("claude-opus-9", anthropic.NotFoundError, "not_found_error", 0),
        ("up/end:400", anthropic.BadRequestError, "invalid_request_error", 1),
        ("up/end:401", anthropic.InternalServerError, "api_error", 1),
        ("up/end:html-200", anthropic.InternalServerError, "api_error", 1),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
async def test_an_early_failure_raises_its_own_type_and_the_model_is_asked_once(
    client, here, model, kind, error_type, calls, streams
):
    """A model that is not there is never replaced by another in silence, whatever a program asks for by habit."""
    before = here.calls(model.removeprefix("up/"))
    with pytest.raises(kind) as raised:
        await client.messages.create(**ask(model, stream=streams, stop_sequences=[f"{streams}"]))  # not one request

    assert ("error", error_type) == (raised.value.body["type"], raised.value.body["error"]["type"])
    assert calls == here.calls(model.removeprefix("up/")) - before


@requirement("wire.no-useless-retry")
@pytest.mark.parametrize(("key", "model", "status"), [("hf-wrong", "up/m", 401), (KEY, "up/end:403", 502)])
async def test_a_key_that_is_refused_is_sent_once(here, key, model, status):
    """Ours or the upstream's: programs on this SDK waited for minutes, because they repeat what may heal."""
    sent: list[int] = []

    async def count(response: httpx2.Response) -> None:
        sent.append(response.status_code)

    http = anthropic.DefaultAsyncHttpxClient(event_hooks={"response": [count]})
    async with AsyncAnthropic(base_url=here.server.url, api_key=key, max_retries=6, http_client=http) as client:
        with pytest.raises(anthropic.APIStatusError) as raised:
            await client.messages.create(**ask(model))

    assert [status] == sent
    assert "false" == raised.value.response.headers["x-should-retry"]


@requirement("wire.anthropic")
@pytest.mark.parametrize(("model", "code"), [("end:in-band-error", "upstream_error"), ("end:eof", "upstream_broke")])
async def test_a_run_that_fails_in_mid_stream_raises_after_its_text_and_is_not_run_again(client, here, model, code):
    """A bare end of the stream would be taken for success."""
    seen: list[str] = []
    with pytest.raises(anthropic.APIStatusError) as streamed:
        await read(client.messages.stream(**ask(f"up/{model}")), seen)
    with pytest.raises(anthropic.APIStatusError) as whole:
        await client.messages.create(**ask(f"up/{model}"))

    assert 406 == whole.value.status_code
    assert (TEXT, code, code) == (
        "".join(seen),
        streamed.value.body["error"]["code"],
        whole.value.body["error"]["code"],
    )
    assert TEXT == whole.value.body["holdfast"]["partial"]["content"][0]["text"]
    assert 2 == here.calls(model)


@requirement("wire.anthropic")
async def test_a_run_that_someone_stopped_raises_and_says_so(client, here):
    """Who reads it must not take the half for the whole; who stopped it knows."""
    seen: list[str] = []

    async def stop_at_the_end(stream, text: str) -> None:
        if text == TEXT:
            run_id = stream.response.headers["x-run-id"]
            async with Client(here.server.url, {"Authorization": f"Bearer {KEY}"}) as other:
                await (await other.post(f"/api/runs/{run_id}/stop")).json()

    with pytest.raises(anthropic.APIStatusError) as raised:
        await read(client.messages.stream(**ask("up/hanging")), seen, stop_at_the_end)

    told = raised.value.body
    assert ("stopped", "stopped_by_user", TEXT) == (told["error"]["type"], told["error"]["code"], "".join(seen))
    assert "stopped" == told["holdfast"]["outcome"]


@requirement("wire.anthropic", "gone.attached")
async def test_leaving_a_stream_stops_the_run(client, here):
    """Its only way to stop."""
    async with client.messages.stream(**ask("up/hanging")) as stream:
        async for _ in stream.text_stream:
            break
    request = [request for request in here.up.requests if request.model == "hanging"][-1]

    await request.wait_closed()
    assert "client" == request.closed_by


@requirement("wire.anthropic", "safe.key")
async def test_a_wrong_key_raises_and_either_header_opens(here):
    """Some set `auth_token` and send Authorization; most set `api_key`."""
    async with AsyncAnthropic(base_url=here.server.url, api_key="wrong") as stranger:
        with pytest.raises(anthropic.AuthenticationError) as raised:
            await stranger.messages.create(**ask("up/echo:never"))
    async with AsyncAnthropic(base_url=here.server.url, auth_token=KEY, api_key=None) as bearer:
        message = await bearer.messages.create(**ask("up/echo:hello"))

    assert ("authentication_error", "hello") == (raised.value.body["error"]["type"], message.content[0].text)
    assert 0 == here.calls("echo:never")


@requirement("wire.anthropic")
async def test_models_are_listed_and_tokens_estimated(client):
    """What its tools ask before they begin. Nobody is asked for the count, and it says so."""
    listed = [model.id async for model in await client.models.list()]
    counted = await client.messages.count_tokens(model="up/m", messages=ASKED, tools=[ADD])

    assert "up/m" in listed
    assert counted.input_tokens > 10
    assert {"source": "estimated"} == counted.model_extra["holdfast"]
