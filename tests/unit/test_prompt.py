"""The prompt as types: it says no more and no less than the messages and parameters in OpenAI's shape."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.prompt import (
    AssistantTurn,
    AudioPart,
    Call,
    ChosenTool,
    FilePart,
    Format,
    ImagePart,
    Opaque,
    ResultTurn,
    SystemTurn,
    TextPart,
    ToolSpec,
    UserTurn,
)
from holdfast.prompt.openai_shape import openai_messages, openai_params, prompt_of
from tests.support.prompts import lost
from tests.support.upstream import Upstream

PICTURE = "data:image/png;base64,AAAA"
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}

READ: list[tuple[dict[str, Any], Any]] = [
    ({"role": "developer", "content": "Be brief."}, SystemTurn("Be brief.", "developer")),
    ({"role": "system", "content": "Now.", "placed": True}, SystemTurn("Now.", placed=True)),
    ({"role": "user", "content": "Hello", "name": "Ada"}, UserTurn("Hello", "Ada")),
    (
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        UserTurn((TextPart("a", extra={"cache_control": {"type": "ephemeral"}}),)),
    ),
    (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}]},
        UserTurn((ImagePart(PICTURE, {"detail": "low"}),)),
    ),
    (
        {"role": "user", "content": [{"type": "image_url", "image_url": PICTURE}]},
        UserTurn((ImagePart(PICTURE, None),)),
    ),
    (
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
        UserTurn((AudioPart("AA", "wav"),)),
    ),
    (
        {"role": "user", "content": [{"type": "file", "file": {"file_data": PICTURE, "filename": "a.png"}}]},
        UserTurn((FilePart(PICTURE, {"filename": "a.png"}),)),
    ),
    (
        {"role": "user", "content": [{"type": "document", "source": {}}]},
        UserTurn((Opaque({"type": "document", "source": {}}),)),
    ),
    (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "thoughts": [{"type": "thinking", "thinking": "…", "signature": "s"}],
        },
        AssistantTurn(
            None, (Call("c", "f", "{}"),), thoughts=({"type": "thinking", "thinking": "…", "signature": "s"},)
        ),
    ),
    (
        {
            "role": "assistant",
            "content": "",
            "refusal": "No.",
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}],
        },
        AssistantTurn("", (Call("c", "f", "x", "custom"),), "No."),
    ),
    ({"role": "tool", "tool_call_id": "c", "content": "42"}, ResultTurn("c", "42")),
    ({"role": "function", "name": "f", "content": "42"}, UserTurn("42", "f", {"role": "function"})),
]


@pytest.mark.parametrize(("message", "turn"), READ)
def test_a_message_is_read_as_a_turn_and_written_as_it_was(message: dict[str, Any], turn: Any):
    """The types of each field, so that no dialect has to look into objects."""
    (read,) = prompt_of([message], {}).turns

    assert (turn, [message]) == (read, openai_messages([read]))


def test_parameters_are_read_as_tools_choice_format_and_effort():
    """All others keep their names: each dialect has a rule for each of them."""
    schema = {"name": "o", "schema": {"type": "object"}}
    params = {
        "tools": [{"type": "function", "function": FUNCTION}, {"googleSearch": {}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": schema},
        "reasoning_effort": "low",
        "temperature": 0.5,
    }
    prompt = prompt_of([], params | {"seed": None})

    assert (ToolSpec("f", "d", {"type": "object"}, True), Opaque({"googleSearch": {}})) == prompt.tools
    assert (ChosenTool("f"), Format("json_schema", schema), "low") == (prompt.choice, prompt.format, prompt.effort)
    assert ({"temperature": 0.5}, params) == (prompt.extra, openai_params(prompt))


# Any JSON.

texts = st.text(max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


def objects(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of a shape, some with fields that it does not have, or with values that it does not have."""
    odd = {name: strategy | json_values for name, strategy in optional.items()}
    return st.fixed_dictionaries(required, optional=odd | {"cache_control": json_values, "odd": json_values})


kinds = st.sampled_from(["text", "refusal", "image_url", "input_audio", "file", "document", None])
inner = objects({}, url=texts, detail=texts, data=texts, format=texts, file_data=texts, filename=texts)
parts = objects({"type": kinds}, text=texts, refusal=texts, image_url=inner | texts, input_audio=inner, file=inner)
called = objects({}, name=texts, arguments=texts, input=texts)
calls = objects({"type": st.sampled_from(["function", "custom"])}, id=texts, function=called, custom=called)
messages = objects(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]),
        "content": texts | st.none() | st.lists(parts | json_values, max_size=3) | json_values,
    },
    name=texts,
    tool_calls=st.lists(calls | json_values, max_size=2),
    tool_call_id=texts,
    refusal=texts,
    thoughts=st.lists(st.dictionaries(texts, json_values, max_size=2), max_size=2),
    reasoned=texts,
    placed=st.booleans(),
)
functions = objects(
    {}, name=texts, description=texts, parameters=st.dictionaries(texts, json_values), strict=st.just(True)
)
params = objects(
    {},
    tools=st.lists(
        objects({"type": st.sampled_from(["function", "custom"])}, function=functions), min_size=1, max_size=2
    ),
    tool_choice=st.sampled_from(["auto", "none", "required"]) | objects({"type": st.just("function")}, function=called),
    response_format=objects({"type": st.sampled_from(["text", "json_object", "json_schema"])}, json_schema=called),
    reasoning_effort=texts,
    temperature=st.floats(0, 2),
)


@given(st.lists(messages, max_size=3), params)
def test_nothing_of_a_request_is_lost_whatever_it_has(said: list[dict[str, Any]], asked: dict[str, Any]):
    """A field that no type has, or a value that does not fit, is kept as it was sent."""
    assert [] == lost({"messages": said, **asked})


def test_a_chat_that_is_not_the_same_again_is_found():
    """Every chat that reaches an upstream of the tests is checked: a check that finds nothing proves nothing."""
    body = {"messages": [{"role": "user", "content": "Hello", "name": "Ada"}]}

    assert [] == lost(body)
    assert ["messages: "] == [each[:10] for each in lost(body, write=lambda turns: openai_messages(turns)[1:])]


class Forgetful(Upstream):
    write = staticmethod(lambda turns: [])


async def test_every_chat_that_reaches_an_upstream_of_the_tests_is_read_and_written_again():
    """What the tests send is what clients send: a field that is lost fails the test that has it."""
    up = Forgetful()
    async with httpx.AsyncClient() as client:
        await up.__aenter__()
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        await client.post(f"{up.base_url}/chat/completions", json=body)

    with pytest.raises(AssertionError, match="lost when read as a prompt"):
        await up.__aexit__(None, None, None)
