"""Agents on the same runs: steps, tools, limits, the truth about how they end, and what of them stands in history."""

import pytest

from holdfast.pricing import Price
from holdfast.server.config.model_limits import ModelLimits
from holdfast.server.config.settings import ProviderSettings
from tests.requirements import requirement
from tests.support.agents import check_anthropic, check_openai, serving
from tests.support.http import Frame
from tests.support.upstream import (
    Cut,
    Delta,
    Done,
    Eof,
    Finish,
    Gate,
    Hang,
    Headers,
    InBandError,
    ReasoningDelta,
    Role,
    Status,
    ToolDelta,
    Upstream,
    UsageChunk,
    answer,
    calling,
)
from tests.support.waiting import LONG


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def world(up, tmp_path):
    async with serving(up, tmp_path) as served:
        yield served


def kinds(frames: list[Frame]) -> list[str]:
    return [frame.event for frame in frames]


def results(frames: list[Frame]) -> list[tuple[str, bool]]:
    return [(frame.json()["output"], frame.json()["is_error"]) for frame in frames if frame.event == "tool.result"]


ONE_SUM = calling(("add", {"a": 1, "b": 2}))


# Steps.


async def test_an_agent_calls_its_tools_and_answers(world):
    """Model, calls, results, model: one run, one answer, and every step of it as events."""
    sums = calling(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}), text="Let me see. ")
    world.up.enqueue(sums, answer("3 and 7."))
    _, run_id = await world.start()
    frames = await world.api.replay(run_id)

    assert kinds(frames) == [
        "run.started",
        "step.started",
        "text.delta",
        "usage",
        "tool.call",
        "tool.call",
        "tool.started",
        "tool.started",
        "tool.result",
        "tool.result",
        "step.finished",
        "step.started",
        "text.delta",
        "usage",
        "step.finished",
        "run.settled",
    ]
    assert [("3", False), ("7", False)] == results(frames)
    assert all(frame.json()["seconds"] >= 0 for frame in frames if frame.event in ("tool.result", "step.finished"))
    settlement = frames[-1].json()["settlement"]
    assert ("completed", "stop", "Let me see. 3 and 7.") == tuple(
        settlement[name] for name in ("outcome", "finish_reason", "text")
    )
    assert "agent" == (await world.api.run(run_id))["kind"]


async def test_the_model_is_told_of_the_tools_and_shown_what_came_of_them(world):
    """Valid messages in the agent's own run: the calls as the model made them, each with its result."""
    world.up.enqueue(ONE_SUM, answer("3."))
    _, run_id = await world.start("Add")
    await world.api.settled(run_id)
    first, second = (request.body for request in world.up.requests)

    assert "add" in [offered["function"]["name"] for offered in first["tools"]]
    assert [{"role": "user", "content": "Add"}] == first["messages"]
    assert {"role": "tool", "content": "3", "tool_call_id": "call_0"} == second["messages"][-1]
    check_openai([*second["messages"]])


@requirement("hist.no-orphan-tools")
async def test_the_next_turn_shows_the_model_what_the_agent_did(world):
    """The session has one answer; the model is told it as it came about, with nothing of ours in it."""
    world.up.enqueue(calling(("add", {"a": 1, "b": 2}), text="Let me see. "), ONE_SUM, answer("Both are 3."))
    session_id, run_id = await world.start("Add")
    await world.api.settled(run_id)
    transcript = await world.api.transcript(session_id)
    shown = await world.next_turn(session_id)

    assert [("user", "Add"), ("assistant", "Let me see. Both are 3.")] == transcript
    assert ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"] == [said["role"] for said in shown]
    assert ["call_0", "call_0_2"] == [said["tool_call_id"] for said in shown if said["role"] == "tool"]
    assert all(said.keys() <= {"role", "content", "tool_calls", "tool_call_id"} for said in shown)
    check_openai(shown)
    check_anthropic(shown)


async def test_a_session_shows_the_steps_of_an_answer(world):
    """For people who come later: what it said, what it called, what came of it."""
    world.up.enqueue(calling(("add", {"a": 1, "b": 2}), text="Let me see. "), answer("3."))
    session_id, run_id = await world.start()
    await world.api.settled(run_id)
    steps = (await world.api.session(session_id))["messages"][-1]["steps"]

    assert ["Let me see. ", "3."] == [step["text"] for step in steps]
    assert [("add", "3", False)] == [
        (call["name"], call["output"], call["is_error"]) for call in steps[0]["tool_calls"]
    ]


async def test_an_exported_session_comes_back_with_what_the_agent_did(world):
    """A copy that lost the calls would tell the model another story."""
    world.up.enqueue(calling(("add", {"a": 1, "b": 2}), text="Let me see. "), answer("3."))
    session_id, run_id = await world.start("Add")
    await world.api.settled(run_id)
    exported = await world.api.session(session_id)
    imported = await (await world.api.client.post("/api/sessions/import", exported)).json()
    before, after = await world.next_turn(session_id), await world.next_turn(imported["id"])

    assert before[:-1] == after[:-1]
    check_openai(after)


async def test_usage_is_that_of_all_steps_together(world):
    """Three questions cost what three questions cost."""
    counted = [Headers(), Role(), ToolDelta(id="c", name="add", arguments='{"a": 1, "b": 1}'), Finish("tool_calls")]
    world.up.enqueue([*counted, UsageChunk(10, 5), Done()], answer("2."))
    _, run_id = await world.start()
    settlement = await world.api.settled(run_id)

    last = world.up.requests[-1]
    assert 2 == len(world.up.requests), last
    assert "provider" == settlement["usage"]["source"]
    assert 10 < settlement["usage"]["input_tokens"]
    assert 5 < settlement["usage"]["output_tokens"]


async def test_a_count_that_the_upstream_corrects_is_counted_once(world):
    """Some tell it more than once in an answer: what counts for a step is what was said last."""
    counted = [Headers(), Role(), ToolDelta(id="c", name="add", arguments='{"a": 1, "b": 1}'), Finish("tool_calls")]
    last = [Headers(), Role(), Delta("2."), Finish(), UsageChunk(20, 2), Done()]
    world.up.enqueue([*counted, UsageChunk(10, 3), UsageChunk(10, 5), Done()], last)
    _, run_id = await world.start()
    usage = (await world.api.settled(run_id))["usage"]

    assert (30, 7) == (usage["input_tokens"], usage["output_tokens"])


@requirement("stop.usage")
@pytest.mark.parametrize("ending", ["stop", "cut"])
async def test_a_step_that_did_not_end_is_counted_as_far_as_it_came(world, ending):
    """What the provider counted before stays; what it had no time to count is estimated, and all of it says so."""
    counted = [Headers(), Role(), ToolDelta(id="c", name="add", arguments='{"a": 1, "b": 1}'), Finish("tool_calls")]
    second = [Headers(), Role(), Delta("word " * 8), Gate(), Cut()]
    world.up.enqueue([*counted, UsageChunk(1000, 500), Done()], second)
    _, run_id = await world.start()
    (await world.api.shown(run_id, "word " * 8)).close()
    if ending == "stop":
        await world.api.stop(run_id)
    else:
        world.up.open()
    usage = (await world.api.settled(run_id))["usage"]

    assert "estimated" == usage["source"]
    assert 510 == usage["output_tokens"]
    assert 1000 < usage["input_tokens"] < 1100


async def test_a_stop_while_tools_run_has_the_count_of_the_provider(world):
    """Nothing was left uncounted, so that nothing is estimated."""
    counted = [Headers(), Role(), ToolDelta(id="c", name="wait", arguments="{}"), Finish("tool_calls")]
    world.up.enqueue([*counted, UsageChunk(10, 5), Done()])
    _, run_id = await world.start()
    await world.state.begun.wait()
    usage = (await world.api.stop(run_id))["settlement"]["usage"]

    assert ("provider", 10, 5) == (usage["source"], usage["input_tokens"], usage["output_tokens"])


async def test_a_complete_answer_beyond_the_budget_is_complete_and_says_so(up, tmp_path):
    """Nothing was cut off, so that nothing was stopped; the notice tells that the budget is used up."""
    async with serving(up, tmp_path, max_tokens=60) as world:
        up.enqueue([Headers(), Role(), Delta("All said."), Finish(), UsageChunk(100, 20), Done()])
        _, run_id = await world.start()
        frames = await world.api.replay(run_id)
    settlement = frames[-1].json()["settlement"]
    notices = [frame.json() for frame in frames if frame.event == "notice"]

    assert ("completed", "All said.") == (settlement["outcome"], settlement["text"])
    assert ["budget"] == [notice["code"] for notice in notices]
    assert notices[0]["message"].endswith("The answer is complete.")


async def test_internal_tools_leave_no_events(world):
    """What only the agent needs to know is not for the reader; the model is shown it all the same."""
    world.up.enqueue(calling(("_remember", {"fact": "blue"})), answer("Noted."))
    _, run_id = await world.start()
    frames = await world.api.replay(run_id)

    assert ["remember blue"] == world.state.called
    assert not {"tool.call", "tool.result"} & set(kinds(frames))
    assert "noted" == world.up.requests[-1].body["messages"][-1]["content"]


async def test_a_large_output_is_cut_for_the_model_and_whole_for_the_person(world):
    """A model's memory is small and costs money; a person's scroll bar does not."""
    world.up.enqueue(calling(("large", {"size": 50_000})), answer("Long."))
    _, run_id = await world.start()
    frames = await world.api.replay(run_id)
    shown = world.up.requests[-1].body["messages"][-1]["content"]

    assert [50_000] == [len(output) for output, _ in results(frames)]
    assert len(shown) < 17_000
    assert ("a", "z") == (shown[0], shown[-1])
    assert "34000 characters are left out" in shown


async def test_a_tool_tells_how_far_it_is(world):
    """A long wait with a reason is no silence."""
    world.up.enqueue(calling(("report", {})), answer("Done."))
    _, run_id = await world.start()
    told = await world.until(run_id, "tool.progress")

    assert ("call_0", "halfway", 0.5) == (told["id"], told["message"], told["fraction"])


@requirement("hist.no-internal-fields")
@pytest.mark.parametrize("profile", ["deepseek", "vllm"])
async def test_what_led_to_a_call_goes_back_where_the_model_insists_on_it(up, tmp_path, profile):
    """DeepSeek refuses a call without the reasoning before it, in later turns too; others have no place for it."""
    settings = {"providers": (ProviderSettings("up", profile=profile, base_url=up.base_url, models=("m", "next")),)}
    async with serving(up, tmp_path, settings=settings) as world:
        up.enqueue([Headers(), Role(), ReasoningDelta("One and two. "), *ONE_SUM[2:]], ONE_SUM, answer("3."))
        session_id, run_id = await world.start()
        await world.api.settled(run_id)
        within = [said for said in up.requests[-1].body["messages"] if said.get("tool_calls")]
        later = [said for said in await world.next_turn(session_id) if said.get("tool_calls")]

    expected = [("One and two. ", ""), ("", "")] if profile == "deepseek" else [(None, None), (None, None)]
    assert expected == [tuple(said.get("reasoning_content") for said in shown) for shown in (within, later)]
    assert all(said.keys() <= {"role", "content", "tool_calls", "reasoning_content"} for said in [*within, *later])


async def test_the_agents_own_words_come_first_unless_the_session_has_some(up, tmp_path):
    """A session's system prompt counts instead of the agent's."""
    async with serving(up, tmp_path, system="You add.") as world:
        for system in (None, "You subtract."):
            session_id = await world.api.new_session(system=system)
            await world.api.settled(await world.api.start(session_id, "Go", "agent/helper"))

    assert ["You add.", "You subtract."] == [request.body["messages"][0]["content"] for request in up.requests]


async def test_kind_agent_makes_an_agent_of_any_model(world):
    """Without an agent of the settings: the loop, no tools, and the same truth."""
    world.up.enqueue(ONE_SUM, answer("I cannot add."))
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Go", "up/m", kind="agent")
    frames = await world.api.replay(run_id)

    run = await world.api.run(run_id)
    assert ("agent", "up/m") == (run["kind"], run["model"])
    assert [("There is no tool 'add'. The tools are: none.", True)] == results(frames)
    assert "completed" == frames[-1].json()["settlement"]["outcome"]


# On OpenAI's wire.


@requirement("start.agent-late-text")
async def test_text_that_comes_only_at_the_end_is_a_delta_before_the_finish(world):
    """The stream stays open between segments, and a client that only knows OpenAI reads an answer like any other."""
    world.up.enqueue(calling(("wait", {})), ONE_SUM, answer("Late ", "text."))
    asked = {"model": "agent/helper", "stream": True, "messages": [{"role": "user", "content": "Go"}]}
    response = await world.api.client.post("/v1/chat/completions", asked)
    await world.state.begun.wait()
    world.state.go_on.set()
    frames = await response.all_events()
    chunks = [frame.json() for frame in frames if frame.data != "[DONE]"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]

    assert "Late text." == "".join(delta.get("content") or "" for delta in deltas)
    assert ["stop"] == [
        chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"][0]["finish_reason"]
    ]
    assert {} == deltas[-1]
    assert not any("tool_calls" in delta for delta in deltas)
    assert "[DONE]" == frames[-1].data


async def test_a_finished_object_has_the_text_and_no_calls(world):
    """The agent's calls are its own: a client that was shown them would try to answer them."""
    world.up.enqueue(ONE_SUM, answer("3."))
    asked = {"model": "agent/helper", "messages": [{"role": "user", "content": "Go"}]}
    body = await (await world.api.client.post("/v1/chat/completions", asked)).json()

    assert {"role": "assistant", "content": "3.", "refusal": None} == body["choices"][0]["message"]
    assert "stop" == body["choices"][0]["finish_reason"]


async def test_agents_are_listed_as_models(world):
    """So that every client can choose one."""
    listed = [model["id"] for model in (await world.api.get("/v1/models"))["data"]]

    assert ["up/m", "up/next", "agent/helper"] == listed


# The truth.


@requirement("start.early-failure-status")
@pytest.mark.parametrize(("status", "answered"), [(500, 502), (401, 502), (429, 429), (400, 400)])
async def test_an_upstream_that_fails_in_the_first_step_is_a_real_status(world, status, answered):
    """An agent's client learns of a failure as a chat's does."""
    world.up.enqueue([Status(status)], [Status(status)], [Status(status)])
    asked = {"model": "agent/helper", "messages": [{"role": "user", "content": "Go"}]}
    response = await world.api.client.post("/v1/chat/completions", asked)

    assert answered == response.status
    assert "failed" == (await response.json())["holdfast"]["outcome"]


@requirement("truth.cut", "truth.in-band-error", "truth.eof", "hist.no-orphan-tools")
@pytest.mark.parametrize("ending", [Cut(), InBandError(), Eof()], ids=["cut", "in-band-error", "eof"])
async def test_an_upstream_that_fails_after_tools_ran_is_a_failed_run_that_keeps_all(world, ending):
    """What was done was done: the partial, the calls and their results stand, and the next turn is valid."""
    world.up.enqueue(
        calling(("add", {"a": 1, "b": 2}), text="One. "),
        calling(("add", {"a": 2, "b": 2})),
        [Headers(), Role(), Delta("So "), Gate(), ending],
    )
    session_id, run_id = await world.start()
    (await world.api.shown(run_id, "One. So ")).close()
    world.up.open()
    settlement = await world.api.settled(run_id)
    shown = await world.next_turn(session_id)

    assert ("failed", "One. So ") == (settlement["outcome"], settlement["text"])
    assert ["add", "add"] == world.state.called
    assert ["3", "4"] == [said["content"] for said in shown if said["role"] == "tool"]
    check_openai(shown)
    check_anthropic(shown)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("fail", {}), "fail failed with RuntimeError: broken"),
        (("fail", {"how": "say"}), "The printer is on fire."),
        (("slow", {}), "slow took longer than its 0.2 s and was stopped."),
        (("nothing", {}), "There is no tool 'nothing'."),
        (("add", "{not json"), "The arguments are not a JSON object."),
        (("add", "[1]"), "The arguments are not a JSON object."),
        (("add", {"a": 1}), "The arguments do not fit"),
    ],
)
async def test_a_tool_that_fails_is_told_to_the_model_and_the_run_goes_on(world, call, told):
    """A failed call is the model's to deal with; it is marked as failed wherever it is shown."""
    world.up.enqueue(calling(call), answer("Sorry."))
    session_id, run_id = await world.start()
    frames = await world.api.replay(run_id)
    ((output, is_error),) = results(frames)

    assert is_error
    assert told in output
    assert ("completed", "Sorry.") == tuple(frames[-1].json()["settlement"][name] for name in ("outcome", "text"))
    check_openai(await world.next_turn(session_id))
    check_anthropic(world.up.requests[-1].body["messages"])


@requirement("truth.length", "truth.content-filter")
@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_model_cut_off_in_mid_call_calls_nothing(world, reason):
    """Half of a call is no call, and a truncated answer is not a completed one."""
    cut_off = [Headers(), Role(), Delta("I will"), ToolDelta(id="c", name="add", arguments='{"a": 1')]
    world.up.enqueue([*cut_off, Finish(reason), Done()])
    _, run_id = await world.start()
    frames = await world.api.replay(run_id)
    settlement = frames[-1].json()["settlement"]

    assert ("truncated", reason, "I will") == tuple(settlement[name] for name in ("outcome", "finish_reason", "text"))
    assert [] == world.state.called
    assert "tool.call" not in kinds(frames)


@requirement("truth.stall")
async def test_a_silent_model_is_a_failure_and_a_long_tool_is_not(up, tmp_path):
    """The idle limit is for upstreams: a tool has a time-out of its own."""
    limits = {"idle_limit": 0.6, "limits": {"*": ModelLimits(first_token=LONG)}}
    async with serving(up, tmp_path, settings=limits) as world:
        silent = [Headers(), Role(), Delta("So "), Hang()]
        up.enqueue(calling(("wait", {})), silent, silent)
        _, run_id = await world.start()
        await world.state.begun.wait()
        later = await world.api.settled(await world.api.start(await world.api.new_session(), "Go", "up/next"))
        going_on = await world.api.run(run_id)
        world.state.go_on.set()
        settlement = await world.api.settled(run_id)

    assert "running" == going_on["status"], "it has waited for longer than the other run"
    assert [("failed", "upstream_stalled")] * 2 == [(it["outcome"], it["error"]["code"]) for it in (later, settlement)]


# Limits.


async def test_running_out_of_steps_is_its_own_ending_and_can_be_continued(up, tmp_path):
    """It is not done, and does not say that it is; the next run goes on with what was done."""
    async with serving(up, tmp_path, max_steps=2) as world:
        up.enqueue(ONE_SUM, calling(("add", {"a": 2, "b": 2})), answer("4."))
        session_id, run_id = await world.start()
        frames = await world.api.replay(run_id)
        settlement = frames[-1].json()["settlement"]
        message_id = (await world.api.session(session_id))["head_id"]
        body = {"message_id": message_id, "model": "agent/helper"}
        continued = await (await world.api.client.post(f"/api/sessions/{session_id}/continue", body)).json()
        second = await world.api.settled(continued["id"])

    assert ("truncated", "max_steps") == (settlement["outcome"], settlement["finish_reason"])
    assert "max_steps" in [frame.json()["code"] for frame in frames if frame.event == "notice"]
    assert ("completed", "4.") == (second["outcome"], second["text"])
    assert ["3", "4"] == [said["content"] for said in up.requests[-1].body["messages"] if said["role"] == "tool"]
    check_openai(up.requests[-1].body["messages"])


async def test_running_out_of_steps_is_called_length_on_openais_wire(up, tmp_path):
    """A word that its clients know, with the exact one beside it."""
    async with serving(up, tmp_path, max_steps=1) as world:
        up.enqueue(ONE_SUM)
        asked = {"model": "agent/helper", "messages": [{"role": "user", "content": "Go"}]}
        body = await (await world.api.client.post("/v1/chat/completions", asked)).json()

    assert ("length", "max_steps") == (body["choices"][0]["finish_reason"], body["holdfast"]["code"])


@pytest.mark.parametrize(
    "limits",
    [{"max_tokens": 60}, {"max_cost": 0.00006, "settings": {"prices": {"up/m": Price(1.0, 1.0)}}}],
    ids=["tokens", "cost"],
)
async def test_a_budget_stops_in_mid_stream_and_the_partial_is_kept(up, tmp_path, limits):
    """It is stopped, by its budget, before it has cost more; it has not failed, and it is not done."""
    async with serving(up, tmp_path, **limits) as world:
        up.enqueue([Headers(), Role(), Delta("word " * 20), Gate(), Delta("word " * 60), Hang()])
        session_id, run_id = await world.start()
        await up.reached()
        up.open()
        frames = await world.api.replay(run_id)
        await up.requests[0].wait_closed()
        transcript = await world.api.transcript(session_id)
    settlement = frames[-1].json()["settlement"]

    assert ("stopped", "budget", True) == tuple(settlement[name] for name in ("outcome", "by", "partial"))
    assert "word " * 80 == settlement["text"]
    assert [("user", "Go"), ("partial", "word " * 80)] == transcript
    assert ["budget"] == [frame.json()["code"] for frame in frames if frame.event == "notice"]


async def test_time_is_a_budget_too(up, tmp_path):
    """A tool that never ends does not hold an agent for ever."""
    async with serving(up, tmp_path, max_seconds=3.0) as world:
        up.enqueue(calling(("wait", {})))
        session_id, run_id = await world.start()
        settlement = await world.api.settled(run_id)
        ended = world.state.ended.is_set()
        shown = await world.next_turn(session_id)

    assert ("stopped", "budget") == (settlement["outcome"], settlement["by"])
    assert ended
    assert "The run was stopped before this call finished. It may have run." in [said["content"] for said in shown]
    check_openai(shown)


# What cannot be.


async def test_a_model_that_cannot_call_tools_is_refused_in_clear_words(up, tmp_path):
    """Before anything is stored, and with what to do about it."""
    async with serving(up, tmp_path) as world:
        provider, *_ = await world.app.state.server.configured.providers.find("up/m")
        provider.tools = False
        session_id = await world.api.new_session()
        response = await world.api.send(session_id, "Go", "agent/helper")
        body = await response.json()
        session = await world.api.session(session_id)

    assert (400, "tools_unsupported") == (response.status, body["error"]["code"])
    assert "up/m cannot call tools" in body["error"]["message"]
    assert [] == session["messages"]
