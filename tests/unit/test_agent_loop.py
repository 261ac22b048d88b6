"""An agent's work on its own: what it takes up after a restart, what it counts, and how its calls end."""

import asyncio
import threading
import time

import pytest

from holdfast.agents import ToolContext, ToolError, ToolOutput, tool
from holdfast.agents.approvals import Decision
from holdfast.agents.loop import Agent, AgentLimits, Work
from holdfast.errors import BudgetSpent
from holdfast.events import (
    AnswerBegins,
    ApprovalDecided,
    ApprovalRequested,
    Finish,
    Notice,
    StepFinished,
    StepStarted,
    Text,
    ToolCall,
    ToolProgress,
    ToolResult,
    Usage,
)
from holdfast.log.steps import Steps
from tests.support.waiting import LONG

GO = [{"role": "user", "content": "Go"}]


class Model:
    """Says what it is told to, question by question, and remembers what it was shown."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, messages, params, out):
        self.asked.append(list(messages))
        for said in self.answers.pop(0):
            out.emit(said if isinstance(said, list) else [said])


def call(name, arguments="{}", id="call_1"):
    return ToolCall(id, name, arguments)


class Told:
    """An outlet that keeps what is emitted, and acts when an event of a type has come."""

    def __init__(self):
        self.told, self.actions = [], {}

    def emit(self, events):
        for event in (event for event in events if not isinstance(event, AnswerBegins)):
            self.told.append(event)
            if (action := self.actions.pop(type(event), None)) is not None:
                asyncio.get_running_loop().call_soon(action, event)
        return True

    async def room(self):
        pass


def at_work(*args, **kwargs):
    return Work(*args, out=Told(), **kwargs)


async def events_of(work, *, until=(), told=None):
    """All that the work emits; `until` has what to do when an event of a type has come."""
    out = work.out
    out.told, out.actions = out.told if told is None else told, dict(until)
    await work.do()
    return out.told


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def steps_of(*events):
    done = Steps()
    for event in events:
        done.take_in(event)
    return done


# What is called.


@tool
async def leave() -> str:
    """End the program."""
    raise SystemExit(3)


@tool
def leave_in_a_thread() -> str:
    """End the program, as a parser of arguments does."""
    raise SystemExit(3)


@pytest.mark.parametrize("ending", [leave, leave_in_a_thread])
async def test_a_tool_that_wants_to_end_the_program_ends_its_call(ending):
    """Nobody else's run, and no server, ends with it."""
    model = Model([call(ending.name)], ["Sorry."])
    told = await events_of(at_work(Agent(name="a", tools=(ending,)), GO, model))

    (result,) = of(ToolResult, told)
    assert (True, f"{ending.name} ended with SystemExit(3).") == (result.is_error, result.output)
    assert "Sorry." == "".join(text.text for text in of(Text, told))


class Careless:
    """A tool that does not give back what a tool should."""

    name, description, parameters, approval, timeout = "careless", "", {"type": "object"}, "allow", None

    async def call(self, arguments, context):
        return {"ok": True}


async def test_a_tool_that_gives_back_something_else_has_failed_and_not_the_run():
    """The model is told; it is not the run that broke."""
    told = await events_of(at_work(Agent(name="a", tools=(Careless(),)), GO, Model([call("careless")], ["Sorry."])))

    assert [True] == [result.is_error for result in of(ToolResult, told)]
    assert [Finish("stop")] == of(Finish, told)


async def test_half_an_emoji_in_a_result_reaches_nobody():
    """It can be neither sent to a model nor stored: the rest can."""

    @tool
    async def broken() -> str:
        return "half \ud83d done"

    model = Model([Text("\ud83d so "), call("broken")], ["Fine."])
    await events_of(at_work(Agent(name="a", tools=(broken,)), GO, model))

    assert ["? so ", "half ? done"] == [message["content"] for message in model.asked[1][1:]]


async def test_what_goes_on_in_a_thread_is_not_said_to_be_stopped():
    """Its time is over and the model goes on; what the thread does later is not told as progress of the call."""
    loop, reported, held = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @tool(timeout=0.05)
    def slow(context: ToolContext) -> None:
        held.wait(30)
        context.progress("still here")
        loop.call_soon_threadsafe(reported.set)

    async def model(messages, params, out):
        if len(messages) == 1:
            out.emit([call("slow")])
            return
        held.set()
        await reported.wait()
        out.emit(["Well."])

    told = await events_of(at_work(Agent(name="a", tools=(slow,)), GO, model))

    assert ["slow took longer than its 0.05 s and cannot be stopped: it may still be running."] == [
        result.output for result in of(ToolResult, told)
    ]
    assert [] == of(ToolProgress, told)


async def test_a_second_cancel_does_not_leave_calls_behind():
    """Time runs out, and a stop comes while the calls are being ended: all that refuses is reported all the same."""
    is_cancelled, finish = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            await asyncio.wait({asyncio.create_task(finish.wait())})
        return "at last"

    work = at_work(Agent(name="a", tools=(stubborn,), limits=AgentLimits(seconds=2.0)), GO, Model([call("stubborn")]))
    running = asyncio.create_task(events_of(work))
    async with asyncio.timeout(LONG):
        await is_cancelled.wait()
    running.cancel()
    await asyncio.wait({running})
    refused = list(work.place.survivors)
    finish.set()

    assert ["stubborn ignored the stop and is still running"] == refused


# Approvals.


@tool(approval="ask")
async def publish(text: str) -> str:
    """Publish something."""
    return f"published {text}"


async def test_arguments_that_do_not_fit_are_refused_before_anyone_is_asked():
    """A person is not asked for what cannot be done."""
    model = Model([call("publish", '{"words": 1}')], ["Sorry."])
    told = await events_of(at_work(Agent(name="a", tools=(publish,)), GO, model))

    assert [] == of(ApprovalRequested, told)
    assert ["The arguments do not fit"] == [result.output.partition(":")[0] for result in of(ToolResult, told)]


class Remote:
    """A tool that has only a schema."""

    name, description, approval, timeout = "remote", "", "ask", None
    parameters = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {"to": {"type": "string"}, "count": {"type": ["integer", "null"]}, "deep": {"$ref": "#/x"}},
        "required": ["to"],
        "additionalProperties": False,
    }

    async def call(self, arguments, context):
        return ToolOutput("done")


@pytest.mark.parametrize(
    ("arguments", "is_asked"),
    [
        ('{"to": "x"}', True),
        ('{"to": "x", "count": 2}', True),
        ('{"to": "x", "count": null}', True),
        ('{"to": "x", "count": "2"}', True),
        ('{"to": "x", "deep": {"a": 1}}', True),
        ("{}", False),
        ('{"to": 5}', False),
        ('{"to": true}', False),
        ('{"to": "x", "count": [1]}', False),
        ('{"to": "x", "count": true}', False),
        ('{"to": "x", "cc": "y"}', False),
    ],
)
async def test_of_a_tool_with_only_a_schema_what_is_certain_is_refused(arguments, is_asked):
    """A server of others may read a number from a string; it cannot read one from nothing."""
    work = at_work(Agent(name="a", tools=(Remote(),)), GO, Model([call("remote", arguments)], ["Fine."]))
    decided = []

    def deny(asked):
        decided.append(asyncio.ensure_future(work.desk.decide(asked.id, Decision("deny"))))

    told = await events_of(work, until=[(ApprovalRequested, deny)])

    assert is_asked == bool(of(ApprovalRequested, told))
    assert (not is_asked) == ("do not fit" in of(ToolResult, told)[0].output)


async def test_the_time_that_a_person_took_is_not_the_tools():
    """Both are told, each as what it is."""
    work = at_work(Agent(name="a", tools=(publish,)), GO, Model([call("publish", '{"text": "it"}')], ["Done."]))
    decided = []

    def allow_later(asked):
        answer = asyncio.ensure_future(work.desk.decide(asked.id, Decision("allow")))
        decided.append(answer)

    def wait_first(asked):
        asyncio.get_running_loop().call_later(0.5, allow_later, asked)

    began = time.monotonic()
    told = await events_of(work, until=[(ApprovalRequested, wait_first)])
    took = time.monotonic() - began
    (result,) = of(ToolResult, told)

    assert result.waited >= 0.5
    assert result.seconds + result.waited <= took + 0.01


# After a restart.


def asked_for(name, arguments='{"text": "it"}'):
    return ApprovalRequested("apr_1", name, arguments, "call_1")


async def test_an_internal_tool_that_waited_for_a_person_is_called_after_a_restart():
    """Its call has left no event, but what was asked for has."""
    called = []

    @tool(approval="ask", name="_publish")
    async def internal(text: str) -> str:
        """Publish something that nobody needs to see."""
        called.append(text)
        return "published"

    model = Model(["Done."])
    done = steps_of(StepStarted(1), Text("So. "), asked_for("_publish"))
    work = at_work(Agent(name="a", tools=(internal,)), GO, model, done=done)
    running = asyncio.create_task(events_of(work))
    async with asyncio.timeout(LONG):
        while not work.desk.is_waiting:  # noqa: ASYNC110 - nobody is told that a question stands
            await asyncio.sleep(0.01)
    await work.desk.decide("apr_1", Decision("allow"))
    told = await running

    assert ["it"] == called
    assert [] == of(ToolResult, told)
    assert [StepFinished(1, 0.0), StepStarted(2)] == of((StepFinished, StepStarted), told)[:2]
    assert ["user", "assistant", "tool"] == [message["role"] for message in model.asked[0]]
    assert "published" == model.asked[0][-1]["content"]


async def test_what_was_asked_for_is_waited_for_though_the_settings_allow_it_now():
    """The question stands in the stream; a call that ran behind it would be told as one that did not."""
    done = steps_of(StepStarted(1), call("publish", '{"text": "it"}'), asked_for("publish"))
    agent = Agent(name="a", tools=(publish,), approvals={"publish": "allow"})
    work = at_work(agent, GO, Model(["Done."]), done=done)
    running = asyncio.create_task(events_of(work))
    async with asyncio.timeout(LONG):
        while not work.desk.is_waiting:  # noqa: ASYNC110 - nobody is told that a question stands
            await asyncio.sleep(0.01)
    await work.desk.decide("apr_1", Decision("allow"))
    told = await running

    assert [ApprovalDecided("apr_1", "allow")] == of(ApprovalDecided, told)
    assert ["published it"] == [result.output for result in of(ToolResult, told)]


def test_a_question_whose_call_has_a_result_waits_no_more():
    """The settings may deny it after a restart: then nobody is waited for, though nobody has answered."""
    done = steps_of(
        StepStarted(1), call("publish"), asked_for("publish"), ToolResult("call_1", "denied", True), StepStarted(2)
    )

    assert frozenset() == done.undecided


async def test_an_answer_that_only_lacked_its_settlement_is_complete():
    """Everything was said: to ask the model once more would add to a complete answer."""
    done = steps_of(StepStarted(1), Text("All of it."), Usage(5, 3), StepFinished(1, 0.1))
    model = Model()
    told = await events_of(at_work(Agent(name="a", tools=(publish,)), GO, model, done=done))

    assert [Finish("stop")] == told
    assert [] == model.asked


async def test_what_was_used_before_a_restart_is_counted():
    """A budget is for the run, and so is its usage."""
    done = steps_of(StepStarted(1), call("nothing"), ToolResult("call_1", "?", True), StepFinished(1, 0.1))
    agent = Agent(name="a", tools=(publish,))
    told = await events_of(at_work(agent, GO, Model([Usage(20, 5), "Done."]), done=done, used=Usage(100, 50)))
    limited = Agent(name="a", tools=(publish,), limits=AgentLimits(tokens=150))
    with pytest.raises(BudgetSpent, match="it may use 150"):
        await events_of(at_work(limited, GO, Model(["Done."]), done=done, used=Usage(100, 50)))

    assert [Usage(120, 55)] == of(Usage, told)


# What is counted.


async def test_steps_that_nobody_counted_are_estimated_together():
    """A budget that forgot each step as the next began would never be spent."""

    @tool
    async def nothing() -> str:
        """Do nothing."""
        return "x"

    answers = [["word " * 20, call("nothing", id=f"call_{n}")] for n in range(20)]
    agent = Agent(name="a", tools=(nothing,), limits=AgentLimits(tokens=120))
    told = []
    with pytest.raises(BudgetSpent, match="it may use 120"):
        await events_of(at_work(agent, GO, Model(*answers)), told=told)

    totals = of(Usage, told)
    assert {"estimated"} == {usage.source for usage in totals}
    assert len(of(StepStarted, told)) < 5
    assert sorted(usage.total_tokens for usage in totals) == [usage.total_tokens for usage in totals]


async def test_a_picture_is_not_counted_by_its_letters():
    """A megabyte of base64 is no quarter of a million tokens: the provider counts it as what it is."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}]
    agent = Agent(name="a", limits=AgentLimits(tokens=1000))
    told = await events_of(at_work(agent, asked, Model(["A cat.", Finish("stop"), Usage(800, 3)])))

    assert [Finish("stop")] == of(Finish, told)
    assert [Usage(800, 3)] == of(Usage, told)


@pytest.mark.parametrize("count", [(Usage(500, 3),), ()], ids=["counted", "estimated"])
async def test_an_answer_that_is_complete_is_complete_though_the_budget_is_used_up(count):
    """Nothing was cut off. What was used is told; the next question would not be asked."""
    agent = Agent(name="a", limits=AgentLimits(tokens=100))
    told = await events_of(at_work(agent, GO, Model([["word " * 100, Finish("stop")], *count])))

    assert [Finish("stop")] == of(Finish, told)
    assert [("budget", True)] == [(said.code, said.message.endswith("is complete.")) for said in of(Notice, told)]


async def test_calls_that_the_budget_does_not_cover_are_not_made():
    """The answer has ended, but the work has not: nothing is called that nobody could be told of."""
    called = []

    @tool
    async def act() -> str:
        """Act."""
        called.append("act")
        return "done"

    agent = Agent(name="a", tools=(act,), limits=AgentLimits(tokens=100))
    told = []
    work = at_work(agent, GO, Model([[call("act"), Finish("tool_calls")], Usage(500, 3)]))
    with pytest.raises(BudgetSpent, match="it may use 100"):
        await events_of(work, told=told)

    assert [] == called
    assert [] == of(ToolCall, told)
    assert ["budget"] == [said.code for said in of(Notice, told)]


async def test_what_a_tool_says_of_its_failure_is_what_the_model_reads():
    """`ToolError` chooses the words, in a thread too."""

    @tool
    def refuse() -> str:
        raise ToolError("Not today.")

    told = await events_of(at_work(Agent(name="a", tools=(refuse,)), GO, Model([call("refuse")], ["Well."])))

    assert [("Not today.", True)] == [(result.output, result.is_error) for result in of(ToolResult, told)]
