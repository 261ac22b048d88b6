"""A model call of an agent that breaks off is gone on with, and a tool whose call was cut off is called once."""

import pytest

from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.upstream import (
    Cut,
    Delta,
    Done,
    Finish,
    Headers,
    Role,
    ToolDelta,
    Upstream,
    UsageChunk,
    answer,
    calling,
)

CALL = [ToolDelta(0, "call_1", "add", '{"a": 2,'), ToolDelta(0, None, None, ' "b": 2}')]
TEXT = "I look at the numbers first, and then I add them. "


@pytest.fixture
async def up():
    async with Upstream() as up:
        yield up


GOES_ON = [Headers(), Role(), Delta(TEXT), *CALL, Finish("tool_calls"), Done()]
"""It repeats the last words, which are all of them here, as it is told to."""
SETTINGS = {"on_break": {"*": "continue"}, "retry_patience": 0.0}
BROKEN = {
    "in its words": [Headers(), Role(), Delta(TEXT[:30]), UsageChunk(10, 6), Cut()],
    "in its call": [Headers(), Role(), Delta(TEXT[:30]), CALL[0], Cut()],
    "behind its call": [Headers(), Role(), Delta(TEXT[:30]), *CALL, Cut()],
}


@requirement("legs.agents")
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_model_call_that_breaks_off_is_gone_on_with_and_its_tool_is_called_once(up, tmp_path, broken):
    """Work of an hour is not lost with a connection, and nothing is done twice."""
    async with serving(up, tmp_path, settings=SETTINGS) as world:
        up.enqueue(calling(("add", {"a": 1, "b": 1})), broken, GOES_ON, answer("4."))
        _, run_id = await world.start()
        frames = await world.api.replay(run_id)
        settlement = frames[-1].json()["settlement"]
        told = [frame.json() for frame in frames if frame.event == "leg.started"]
        calls = [frame.json() for frame in frames if frame.event == "tool.call"]

    assert ("completed", TEXT + "4.") == (settlement["outcome"], settlement["text"])
    assert [(2, "turn", 30)] == [(leg["leg"], leg["how"], leg["at"]) for leg in told]
    assert 2 == len(calls)
    assert '{"a": 2, "b": 2}' == calls[1]["arguments"]


@requirement("legs.agents")
async def test_a_call_that_was_cut_off_before_any_word_is_asked_for_again(up, tmp_path):
    """There is nothing to go on from."""
    async with serving(up, tmp_path, settings=SETTINGS) as world:
        up.enqueue([Headers(), Role(), CALL[0], Cut()], calling(("add", {"a": 2, "b": 2})), answer("4."))
        _, run_id = await world.start()
        frames = await world.api.replay(run_id)
        settlement = frames[-1].json()["settlement"]

    assert ("completed", "4.") == (settlement["outcome"], settlement["text"])
    assert 1 == [frame.event for frame in frames].count("tool.call")


@requirement("legs.agents")
async def test_without_the_choice_an_agent_ends_as_before(up, tmp_path):
    """A second call costs as much as the first."""
    async with serving(up, tmp_path, settings={"retry_patience": 0.0}) as world:
        up.enqueue([Headers(), Role(), Delta(TEXT[:30]), Cut()])
        _, run_id = await world.start()
        settlement = await world.api.settled(run_id)

    assert ("failed", TEXT[:30], 1) == (settlement["outcome"], settlement["text"], len(up.requests))
