"""The provider without an upstream: its models do what their names say, and say how they ended."""

import asyncio
import json
import time
from contextlib import aclosing
from functools import partial

import pytest

from holdfast.engine.core import Core
from holdfast.errors import ProviderRefused
from holdfast.events import Completed, Failed, Finish, Reasoning, Stopped, Text, ToolCall, ToolDelta, Truncated, Usage
from holdfast.upstreams import ChatRequest, Providers
from holdfast.upstreams.scripted import Scripted
from tests.support import outlets
from tests.support.waiting import SOON

SAID = "How  are you,\nmy friend? 🌊 "


def request(model, said=SAID, **params):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": said}]
    return ChatRequest(model=model, messages=messages, params=params)


async def play(asked):
    async with aclosing(outlets.answer(Scripted(), asked)) as batches:
        return [event async for batch in batches for event in batch]


def text(events, kind=Text):
    return "".join(event.text for event in events if isinstance(event, kind))


async def test_steps_says_and_calls_what_the_message_tells_it_to():
    """An agent can be tried without a model: line by line, a call at a time, as the results come in."""
    script = 'First.\nadd {"a": 1}\nSecond.\nadd {"a": 2}'
    asked = request("steps", script)
    first = await play(asked)
    asked.messages.append({"role": "tool", "content": "1", "tool_call_id": "call_1"})
    second = await play(asked)
    asked.messages.append({"role": "tool", "content": "2", "tool_call_id": "call_2"})
    third = await play(asked)

    assert ("First.\n", ToolCall("call_1", "add", '{"a": 1}')) == (text(first), first[-3])
    assert ("Second.\n", ToolCall("call_2", "add", '{"a": 2}')) == (text(second), second[-3])
    assert ("", Finish("stop")) == (text(third), third[-1])


async def test_echo_repeats_the_last_user_message_exactly():
    """Spaces, line ends and all, in several pieces, so that a client can be checked against what it sent."""
    events = await play(request("echo"))

    assert SAID == text(events)
    assert len([event for event in events if isinstance(event, Text)]) > 3
    assert Finish("stop") == events[-1]


async def test_echo_reads_content_in_parts():
    """That is how clients send a text beside an image."""
    parts = [{"type": "text", "text": "one"}, {"type": "image_url"}, {"type": "text", "text": "two"}]

    assert "one\n\ntwo" == text(await play(request("echo", parts)))


@pytest.mark.parametrize(
    "messages", [[], [{"role": "user", "content": None}], [{"role": "assistant", "content": "hi"}]]
)
async def test_echo_of_nothing_is_nothing(messages):
    """An answer may be empty, and still says how it ended."""
    assert Finish("stop") == (await play(ChatRequest(model="echo", messages=messages)))[-1]


async def test_think_reasons_before_it_answers():
    """Reasoning never stands in the text."""
    events = await play(request("think"))

    assert text(events, Reasoning)
    assert SAID == text(events)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("lorem:1000", 1000), ("lorem:1000:0", 1000), ("lorem:0", 0), ("lorem", 200), ("lorem:99999999999", 1_000_000)],
)
async def test_lorem_says_that_many_tokens(model, tokens):
    """For loads: as fast as they are taken, several at once; but no answer fills the memory, for any key may ask."""
    events = await play(request(model))

    assert tokens == len([event for event in events if isinstance(event, Text)])
    assert Usage(8, tokens) == [event for event in events if isinstance(event, Usage)][-1]


async def test_lorem_keeps_its_pace():
    """Twenty tokens at 200 a second take a tenth of a second, counted from the start."""
    begin = time.monotonic()
    await play(request("lorem:20:200"))

    assert 0.09 <= time.monotonic() - begin < SOON


@pytest.mark.parametrize("model", ["lorem:many", "lorem:1:fast", "nothing", ""])
async def test_a_model_without_a_script_is_not_found(model):
    """As with any upstream."""
    with pytest.raises(ProviderRefused) as caught:
        await play(request(model))

    assert (404, "model_not_found") == (caught.value.status, caught.value.code)


async def test_tool_calls_the_first_tool_and_answers_once_it_has_the_result():
    """An agent can be shown and tested without a model that is good at it."""
    tools = [{"type": "function", "function": {"name": "weather"}}]
    asked = request("tool", "Berlin", tools=tools)
    events = await play(asked)
    [call] = [event for event in events if isinstance(event, ToolCall)]
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    then = await play(ChatRequest(model="tool", messages=[*asked.messages, result]))

    assert ("weather", {"query": "Berlin"}) == (call.name, json.loads(call.arguments))
    assert call.arguments == "".join(event.arguments for event in events if isinstance(event, ToolDelta))
    assert Finish("tool_calls") == events[-1]
    assert ("The tool says: rain", Finish("stop")) == (text(then), then[-1])


async def test_tool_takes_its_arguments_from_the_message():
    """So a test can call any tool with anything."""
    events = await play(request("tool", '{"city": "Berlin"}'))

    assert '{"city": "Berlin"}' == next(event.arguments for event in events if isinstance(event, ToolCall))


async def test_fail_says_something_and_fails():
    """The failure that keeps a partial."""
    async with Core() as engine:
        settlement = await (await engine.start(partial(Scripted().answer, request("fail")))).settled()

    assert ("How  are ", "upstream_error") == (settlement.text, settlement.error.code)


@pytest.mark.parametrize(
    ("model", "outcome"), [("echo", Completed), ("length", Truncated), ("fail", Failed), ("tool", Completed)]
)
async def test_a_run_settles_as_the_script_says(model, outcome):
    """It is as truthful as a real provider."""
    async with Core() as engine:
        settlement = await (await engine.start(partial(Scripted().answer, request(model)))).settled()

    assert isinstance(settlement, outcome)


async def test_hang_hangs_until_it_is_stopped():
    """For those who want to press Stop."""
    async with Core() as engine:
        run = await engine.start(partial(Scripted().answer, request("hang")))
        async for _, event in run.read():
            if isinstance(event, Text):
                break
        stopped = (await run.stop()).settlement

    assert isinstance(stopped, Stopped)
    assert "…" == stopped.text


async def test_a_long_answer_leaves_the_loop_to_others():
    """A source that never waits would stop the whole server."""
    playing = asyncio.create_task(play(request("echo", "word " * 2000)))
    turns = 0
    while not playing.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 1000


async def test_its_models_are_found_by_name_with_any_numbers():
    """They are not all in the list: `lorem` has as many forms as there are numbers."""
    providers = Providers([Scripted()])

    assert "lorem:5:5" == (await providers.find("scripted/lorem:5:5"))[1]
    assert "scripted/echo" in await providers.names()
    await providers.close()
