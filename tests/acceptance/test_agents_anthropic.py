"""Agents on Anthropic's models: what one thought before its calls goes back to it, and endings are told the same."""

import asyncio

import pytest

from tests.acceptance.surfaces import SURFACES
from tests.acceptance.surfaces import World as Surfaces
from tests.contract.test_anthropic import BEGIN, OVERLOADED, STOP, block, ending, start, text, thinking, tool
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.upstream import Cut, Raw, Recorded, Upstream

THINK = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
THOUGHT = {"type": "thinking", "thinking": "One and two.", "signature": "EqQBCgIYAhIM"}
SEALED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
FIRST = start() + text("One. ") + tool('{"a": 1, "b": 2}', index=1) + ending("tool_use") + STOP
LAST = start() + text("Two.") + ending() + STOP


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


async def test_what_the_model_thought_goes_back_with_the_results_of_its_calls(up, tmp_path):
    """Anthropic refuses the results of calls whose thoughts are missing, and checks the signature of each."""
    thought = thinking("One ", "and two.") + block(1, SEALED) + text("I add. ", index=2)
    up.enqueue(
        [Raw(start() + thought + tool('{"a": 1, "b": 2}', index=3) + ending("tool_use") + STOP)],
        [Raw(LAST)],
        [Raw(LAST)],
    )
    async with serving(up, tmp_path, dialect="anthropic", params=THINK) as world:
        session_id, run_id = await world.start()
        settled = await world.api.settled(run_id)
        frames = await world.api.replay(run_id)
        again = await world.api.settled(await world.api.start(session_id, "And now?", "agent/helper"))

    assert ("completed", "I add. Two.") == (settled["outcome"], settled["text"])
    assert "completed" == again["outcome"]
    second, third = up.requests[1].body, up.requests[2].body
    call = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}
    assert [THOUGHT, SEALED, {"type": "text", "text": "I add. "}, call] == second["messages"][1]["content"]
    assert "tool_result" == second["messages"][2]["content"][0]["type"]
    assert THINK["thinking"] == second["thinking"] == third["thinking"]
    shown = [frame for frame in frames if "c2VhbGVk" in frame.data or "EqQBCgIYAhIM" in frame.data]
    assert {"provider.data"} == {frame.event for frame in shown}


async def test_where_the_thoughts_are_gone_the_results_are_sent_without_asking_for_any(up, tmp_path):
    """A client that keeps no thoughts gets its answer, and not a refusal that it can do nothing about."""
    called = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "1+2?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    up.enqueue([Raw(LAST)], [Raw(LAST)])
    async with serving(up, tmp_path, dialect="anthropic") as world:
        for asked in (messages, messages[:1]):
            response = await world.api.client.post(
                "/v1/chat/completions", {"model": "up/m", "messages": asked, **THINK}
            )
            assert 200 == response.status

    assert ["thinking" in request.body for request in up.requests] == [False, True]


def in_steps(*scripts: list):
    """Script by script, counted by the results that the model has been shown."""

    def script(request: Recorded):
        blocks = [block for said in request.body["messages"] for block in said["content"]]
        return scripts[sum(block["type"] == "tool_result" for block in blocks)]

    return script


ROWS = {
    "completed": ([Raw(LAST)], "completed", "One. Two.", None),
    "length": ([Raw(start() + text("Two.") + ending("max_tokens") + STOP)], "truncated", "One. Two.", None),
    "cut": ([Raw(BEGIN), Cut()], "failed", "One. Héllo wörld 🌊", "upstream_broke"),
    "in-band error": ([Raw(start() + text("Two.") + OVERLOADED)], "failed", "One. Two.", "upstream_overloaded"),
}


@requirement("truth.completed", "truth.cut", "truth.in-band-error", "truth.length")
@pytest.mark.parametrize("row", ROWS)
async def test_an_agent_on_anthropics_dialect_tells_the_same_on_every_surface(up, tmp_path, row):
    """The truth table's rows, in the step after a tool has run."""
    last, outcome, said, code = ROWS[row]
    up.models["m"] = in_steps([Raw(FIRST)], last)
    async with serving(up, tmp_path, dialect="anthropic") as served:
        world = Surfaces(up, None, served.api.client)  # type: ignore[arg-type]
        told = await asyncio.gather(*(surface(world, "agent/helper") for surface in SURFACES.values()))

    assert dict.fromkeys(SURFACES, (outcome, said, code)) == {
        name: (each.outcome, each.text, each.code) for name, each in zip(SURFACES, told, strict=True)
    }
