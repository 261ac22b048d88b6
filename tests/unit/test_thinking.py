"""Thinking is told from the answer for every source, on the road that all of them take."""

import asyncio
from contextlib import aclosing

import pytest

from holdfast import Completed, Failed, Finish, Limits, Reasoning, Stopped, Text, ToolCall
from holdfast.agents.loop import Agent, Work
from holdfast.agents.tools import tool
from holdfast.engine.core import Core
from holdfast.events import AnswerBegins, StepStarted, ToolResult
from holdfast.log.reasoning import AnswerSplitter
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.waiting import LONG

THOUGHT = ["<thi", "nk>I won", "der.</th", "ink>\n", "The answer", " is 42."]


@pytest.fixture
async def engine():
    async with Core(MemoryStore(), limits=Limits(grace=0.05)) as engine:
        yield engine


@pytest.fixture(params=[False, True], ids=["in memory", "kept"])
def keep(request):
    return request.param


def one_by_one(*texts):
    return texts


def as_events(*texts):
    return [Text(text) for text in texts]


def together(*texts):
    return [[Text(text) for text in texts]]


def in_a_list(*texts):
    return [[*texts]]


def pushing(*items):
    """A push source of what it is given."""

    async def push(out):
        for item in items:
            out.emit(item if isinstance(item, list) else [item])

    return push


ROADS = [one_by_one, as_events, together, in_a_list]


@pytest.fixture(params=ROADS, ids=lambda road: road.__name__)
def road(request):
    """Every way in which a source may hand over its texts."""
    return request.param


@pytest.fixture(params=[False, True], ids=["iterated", "pushed"])
def source(request):
    """Both kinds of sources."""
    return pushing if request.param else iterated


async def iterated(*items):
    for item in items:
        yield item


async def forever(*items):
    for item in items:
        yield item
    await asyncio.Event().wait()


async def told(run):
    """The reasoning and the text of a run that has ended, and how it ended."""
    async with asyncio.timeout(LONG):
        events = [event async for _, event in run.read()]
        settlement = await run.settled()
    reasoning, text = ("".join(e.text for e in events if isinstance(e, kind)) for kind in (Reasoning, Text))
    assert settlement.text == text
    return reasoning, text, type(settlement)


@requirement("start.reasoning-apart", "think.every-source")
async def test_a_leading_block_of_any_source_is_reasoning(engine, keep, road, source):
    """A published agent and a generator of strings know nothing of our events, and their models think as others do."""
    run = await engine.start(source(*road(*THOUGHT)), keep=keep)

    assert ("I wonder.", "The answer is 42.", Completed) == await told(run)


@requirement("think.switch")
async def test_a_source_that_means_the_tags_keeps_them(engine, keep, road, source):
    """One that writes about models, or streams a template, says so."""
    run = await engine.start(source(*road(*THOUGHT)), keep=keep, think=False)
    itself = await engine.start(source(AnswerBegins(think=False), *road(*THOUGHT)), keep=keep)

    assert ("", "".join(THOUGHT), Completed) == await told(run) == await told(itself)


@requirement("start.reasoning-apart")
@pytest.mark.parametrize("text", ["`<think>` is a tag", "It is:\n<think>x</think>", "a <think>b</think>"])
async def test_tags_after_the_first_visible_character_are_text(engine, keep, road, text, source):
    """An answer about tags stays whole."""
    run = await engine.start(source(*road(*text)), keep=keep)

    assert ("", text, Completed) == await told(run)


@requirement("stop.think", "think.every-source")
@pytest.mark.parametrize(
    ("texts", "partial"),
    [(["<think>", "half a thought"], ""), (["<think>x</think>\n", "The answer is 42"], "The answer is 42")],
)
async def test_a_stopped_source_leaves_none_of_its_thinking_in_the_partial(engine, keep, road, texts, partial):
    """What was thought is no part of what was said, whoever thought it."""
    run = await engine.start(forever(*road(*texts)), keep=keep)
    async with asyncio.timeout(LONG), aclosing(run.read()) as events:
        async for _, event in events:
            if getattr(event, "text", "") in ("half a thought", "The answer is 42"):
                break
    settlement = (await run.stop()).settlement

    assert (Stopped, partial) == (type(settlement), settlement.text)


@pytest.mark.parametrize(
    "ending", [(), (Finish("stop"),), (ValueError("broken"),)], ids=["returns", "finishes", "raises"]
)
async def test_what_was_held_back_is_not_lost(engine, keep, ending):
    """The first letters of a tag that never came are the model's words."""

    async def source():
        yield "<thin"
        for item in ending:
            if isinstance(item, Exception):
                raise item
            yield item

    expected = Failed if ending and isinstance(ending[0], Exception) else Completed

    assert ("", "<thin", expected) == await told(await engine.start(source(), keep=keep))


@requirement("think.every-source")
@pytest.mark.parametrize("between", [ToolResult("call_1", "sunny"), StepStarted(2)], ids=["result", "step"])
async def test_each_answer_of_an_agents_model_may_begin_with_thinking(engine, keep, between, source):
    """The model is asked again after its tools, and thinks again."""
    first = ["<think>a</think>", "Let me look.", ToolCall("call_1", "look", "{}")]
    run = await engine.start(source(*first, between, "<think>", "b</think>", "Sunny."), keep=keep)

    assert ("ab", "Let me look.Sunny.", Completed) == await told(run)


async def test_choices_are_told_apart_each_for_itself(engine, keep):
    """The second choice thinks while the first answers."""
    texts = [Text("a"), Text("<think>x", 1), Text("b"), Text("</think>y", 1)]
    run = await engine.start(pushing(*([text] for text in texts)), keep=keep)
    events = [event async for _, event in run.read()][1:-1]

    assert [Text("a"), Reasoning("x", 1), Text("b"), Text("y", 1)] == events


def test_logprobs_stay_with_the_first_text_that_is_shown():
    """They belong to what was said, and are not shown twice."""
    told = AnswerSplitter().feed([Text("<think>x</think>y", 0, {"content": []}), Text("z")])

    assert [Reasoning("x"), Text("y", 0, {"content": []}), Text("z")] == told


@requirement("think.every-source")
async def test_an_agents_model_is_not_shown_its_thinking_again():
    """Whichever dialect the model speaks: the next question has what it said, and not what it thought."""
    asked = []

    @tool(approval="allow")
    async def look() -> str:
        """Look."""
        return "sunny"

    async def ask(messages, params, out):
        asked.append(list(messages))
        answers = [["<think>hm</think>", "Let me look.", ToolCall("c", "look", "{}")], ["<think>so</think>Sunny."]]
        for said in (*answers[len(asked) - 1], Finish("tool_calls" if len(asked) == 1 else "stop")):
            out.emit([said])

    agent = Agent(name="a", tools=(look,))
    async with Core() as engine:
        question = [{"role": "user", "content": "Weather?"}]
        run = await engine.start(lambda out: Work(agent, question, ask, out=out).do(), kind="agent")

        assert ("hmso", "Let me look.Sunny.", Completed) == await told(run)
    assert "Let me look." == asked[1][1]["content"]
    assert "<think>" not in str(asked)


@requirement("truth.whole-answer")
def test_a_refusal_is_no_thought():
    """It comes in a place of its own, so its tags are its words; what was held back before it comes first."""
    splitter = AnswerSplitter()
    refusal = Text("<think>No.</think>", refusal=True)

    assert [Text("<th"), refusal] == splitter.feed([Text("<th"), refusal])
