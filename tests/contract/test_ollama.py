"""What Ollama's own API is asked, and what is made of the shapes that only Ollama sends."""

import json

import pytest

from holdfast.errors import ProviderBroke, Unsupported
from holdfast.events import Finish, Reasoning, ToolCall, Usage
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.lines import LineDecoder
from holdfast.upstreams.ollama.provider import OllamaOptions
from holdfast.upstreams.ollama.request import body_for
from holdfast.upstreams.sse import EventTooLarge
from holdfast_lab.contracts import PLAYED
from tests.contract.test_provider import listen
from tests.requirements import requirement
from tests.support.dialects.ollama import BEGIN, OLLAMA, called, end, line, piece, said
from tests.support.upstream import Raw, Slices, Status, Upstream

PNG = "iVBORw0KGgo="


@pytest.fixture
async def up():
    async with Upstream([Raw(BEGIN + end())]) as up:
        yield up


@pytest.fixture
async def provider(up):
    provider = OLLAMA.provider(up)
    yield provider
    await provider.close()


def request(*messages, **params):
    messages = list(messages) or [{"role": "user", "content": "Hello"}]
    return ChatRequest(model="m", messages=messages, params=params, patience=0.0)


def body(*messages, keep_alive=None, think=None, **params):
    return body_for(request(*messages, **params), keep_alive, think)


def test_a_conversation_is_said_in_ollamas_words():
    """Arguments are objects, a result has the name of its tool, and pictures are base64."""
    arguments = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    asked = body(
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"}, picture()],
        },
        {"role": "assistant", "content": None, "tool_calls": [arguments]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    )

    assert [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is\n\nthis?", "images": [PNG]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "3", "tool_name": "add"},
    ] == asked["messages"]
    assert ("m", True) == (asked["model"], asked["stream"])


def picture(url=f"data:image/png;base64,{PNG}"):
    return {"type": "image_url", "image_url": {"url": url}}


def test_parameters_are_options():
    """OpenAI's, and Ollama's own by their names."""
    asked = body(temperature=0.5, max_tokens=7, stop="END", seed=3, num_ctx=8192, options={"mirostat": 1})

    assert {"mirostat": 1, "temperature": 0.5, "num_predict": 7, "stop": ["END"], "seed": 3, "num_ctx": 8192} == (
        asked["options"]
    )


@pytest.mark.parametrize(
    ("params", "think"),
    [
        ({}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, "low"),
        ({"reasoning_effort": "high"}, "high"),
        ({"think": False}, False),
    ],
)
def test_thinking_is_asked_for_by_the_request_and_else_by_the_settings(params, think):
    """A request knows better than the settings."""
    assert think == body_for(request(**params), None, True)["think"]


def test_a_model_stays_in_memory_as_long_as_the_request_or_the_settings_say():
    """Left out, Ollama decides."""
    assert "keep_alive" not in body()
    assert "30m" == body(keep_alive="30m")["keep_alive"]
    assert 0 == body_for(request(keep_alive=0), "30m", None)["keep_alive"]
    assert OllamaOptions() == OllamaOptions(keep_alive=None, think=None)


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, "json"),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}, {"type": "object"}),
    ],
)
def test_the_format_of_an_answer(form, sent):
    """Ollama takes `json`, or a schema."""
    assert sent == body(response_format=form).get("format")


def test_no_tool_is_offered_if_none_is_to_be_called():
    """Ollama has no choice but this."""
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]

    assert tools == body(tools=tools)["tools"]
    assert "tools" not in body(tools=tools, tool_choice="none")


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"n": 2}, "n"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"some_new_thing": 1}, "some_new_thing"),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0].type"),
    ],
)
def test_what_ollama_cannot_do_is_refused_by_name(params, field):
    """Ollama itself ignores what it does not know."""
    with pytest.raises(Unsupported) as refused:
        body(**params)

    assert field == refused.value.param


def test_the_text_of_a_refusal_is_text_and_no_picture():
    """It was sent among the images, which are base64."""
    said = body({"role": "user", "content": [{"type": "refusal", "refusal": "No."}]})["messages"]

    assert [{"role": "user", "content": "No."}] == said


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize(
    "part",
    [picture("https://pictures.example/a.png"), {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}],
)
def test_a_part_that_ollama_does_not_take_is_refused(part):
    """The model would answer a question without it."""
    with pytest.raises(Unsupported):
        body({"role": "user", "content": [part]})


async def test_calls_get_ids_and_their_reason(up, provider):
    """Ollama ends them with `stop`, and some versions give no id."""
    up.enqueue([Raw(piece(tool_calls=[called("add", {"a": 1}, id="call_7"), called("now", {})]) + end())])
    heard = await listen(provider, request())

    assert ["call_7", True] == [heard.all(ToolCall)[0].id, heard.all(ToolCall)[1].id.startswith("call_")]
    assert [Finish("tool_calls")] == heard.all(Finish)


async def test_thinking_is_reasoning(up, provider):
    """It comes in a field of its own."""
    up.enqueue([Raw(piece(thinking="I ") + piece(thinking="wonder.") + BEGIN + end())])
    heard = await listen(provider, request())

    assert ([Reasoning("I "), Reasoning("wonder.")], PLAYED.text) == (heard.all(Reasoning), heard.text)


async def test_an_answer_that_comes_in_one_line_is_whole(up, provider):
    """A proxy may have collected it; the last line may have no newline."""
    whole = line(message={"role": "assistant", "content": PLAYED.text}, done=True, done_reason="stop", eval_count=5)
    up.enqueue([Raw(whole.rstrip())])
    heard = await listen(provider, request())

    assert (PLAYED.text, [Finish("stop")]) == (heard.text, heard.all(Finish))
    assert Usage(0, 5, "provider") in heard.all(Usage)


async def test_any_cutting_of_the_bytes_gives_the_same_answer(up, provider):
    """Where the network cuts says nothing, not even inside a character."""
    up.enqueue([Slices(said("Héllo ", "🌊") + end(), 3)])
    heard = await listen(provider, request())

    assert ("Héllo 🌊", None) == (heard.text, heard.error)


async def test_a_model_that_is_not_there_is_told(up, provider):
    """In Ollama's words, as it stands in `error`."""
    up.enqueue([Status(404, {"error": "model 'm' not found"})])
    heard = await listen(provider, request())

    assert (404, "up answered 404: model 'm' not found") == (heard.error.status, str(heard.error))


async def test_json_that_is_no_answer_is_a_failure(up, provider):
    """A gateway's own page may be JSON."""
    up.enqueue([Raw(json.dumps({"hello": "world"}).encode() + b"\n")])
    heard = await listen(provider, request())

    assert isinstance(heard.error, ProviderBroke)


async def test_the_models_of_ollama_are_listed(up, provider):
    """By `/api/tags`."""
    tags = {"models": [{"name": "llama3.2:latest", "model": "llama3.2:latest", "size": 1}, {"name": "qwen3:8b"}]}
    up.at["GET /api/tags"] = [Status(200, tags)]

    assert ["llama3.2:latest", "qwen3:8b"] == await provider.list_models()


def test_a_line_that_is_too_long_breaks_the_answer_after_what_came_before():
    """What is whole is told first."""
    decoder = LineDecoder(10)

    assert [(b"", b"short")] == decoder.feed(b"short\n" + b"x" * 20 + b"\n")
    with pytest.raises(EventTooLarge):
        decoder.finish()
    with pytest.raises(EventTooLarge):
        LineDecoder(10).feed(b"x" * 11)


def test_what_clients_echo_of_a_stream_is_taken():
    """Some send a call back with the index that its pieces had, and a result with its tool's name."""
    echoed = {"id": "c1", "type": "function", "index": 0, "function": {"name": "add", "arguments": "{}"}}
    asked = body(
        {"role": "assistant", "content": "", "tool_calls": [echoed], "annotations": [], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "3"},
    )

    assert ["assistant", "tool"] == [message["role"] for message in asked["messages"]]
