"""Steering: a message put into a running agent reaches the model at its next boundary and stands in history."""

import pytest

from tests.requirements import requirement
from tests.support.agents import check_anthropic, check_openai, serving
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, Upstream, answer, calling


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def world(up, tmp_path):
    async with serving(up, tmp_path) as served:
        yield served


async def steer(api, run_id, text="Use metres."):
    return await api.client.post(f"/api/runs/{run_id}/steer", {"input": text})


WAIT = calling(("wait", {}))


@requirement("busy.steer")
async def test_a_message_reaches_the_model_after_the_tools_that_are_running(world):
    """Results first, then the message: valid for every provider, and in time for the next thought."""
    world.up.enqueue(WAIT, answer("Five metres."))
    session_id, run_id = await world.start("How long?")
    await world.state.begun.wait()
    response = await steer(world.api, run_id)
    told = await world.until(run_id, "run.steered")
    world.state.go_on.set()
    await world.api.settled(run_id)
    seen = world.up.requests[-1].body["messages"]
    shown = await world.next_turn(session_id)

    assert (202, run_id) == (response.status, (await response.json())["id"])
    assert "Use metres." == told["text"]
    assert ["user", "assistant", "tool", "user"] == [said["role"] for said in seen]
    assert {"role": "user", "content": "Use metres."} == seen[-1]
    assert seen == shown[:4]
    check_openai(shown)
    check_anthropic(shown)


@requirement("busy.steer")
async def test_a_message_during_the_last_words_gets_an_answer_too(world):
    """The model had ended, but not the work: what was accepted is answered in the same run."""
    world.up.enqueue([Headers(), Role(), Delta("Five feet."), Gate(), Finish(), Done()], answer(" Or 1.5 metres."))
    session_id, run_id = await world.start("How long?")
    await world.up.reached()
    response = await steer(world.api, run_id)
    world.up.open()
    settlement = await world.api.settled(run_id)
    seen = world.up.requests[-1].body["messages"]

    assert 202 == response.status
    assert "Five feet. Or 1.5 metres." == settlement["text"]
    assert ["user", "assistant", "user"] == [said["role"] for said in seen]
    assert [("user", "How long?"), ("assistant", "Five feet. Or 1.5 metres.")] == await world.api.transcript(session_id)
    assert ["Use metres."] == (await world.api.session(session_id))["messages"][-1]["steps"][0]["inputs"]


@requirement("busy.steer")
async def test_a_new_message_steers_where_its_sender_says_so(world):
    """`if_busy: steer` is the same by another door; where nothing runs, it just starts."""
    world.up.enqueue(WAIT, answer("Done."), answer("Hello."))
    session_id, run_id = await world.start()
    await world.state.begun.wait()
    response = await world.api.send(session_id, "Faster!", "agent/helper", if_busy="steer")
    steered = await response.json()
    world.state.go_on.set()
    await world.api.settled(run_id)
    fresh = await world.api.start(session_id, "Hello", "agent/helper", if_busy="steer")
    await world.api.settled(fresh)

    assert (202, run_id) == (response.status, steered["id"])
    assert fresh != run_id
    assert "Faster!" in [said["content"] for said in world.up.requests[1].body["messages"]]


@requirement("busy.steer", "stop.history")
async def test_what_was_put_in_is_kept_although_the_run_is_stopped_before_the_model_sees_it(world):
    """Accepted is kept: the next turn shows it, in its place."""
    world.up.enqueue(WAIT)
    session_id, run_id = await world.start()
    await world.state.begun.wait()
    await steer(world.api, run_id)
    await world.api.stop(run_id)
    shown = await world.next_turn(session_id)

    assert ["user", "assistant", "tool", "user"] == [said["role"] for said in shown]
    assert shown[-1]["content"].startswith("Use metres.\n\nAnd now")
    check_openai(shown)
    check_anthropic(shown)


@requirement("busy.steer")
async def test_where_it_cannot_be_the_answer_says_why(world):
    """A chat run, a run that has ended, one that waits in a queue, and a message that says nothing."""
    world.up.enqueue([Headers(), Role(), Delta("Hm"), Hang()])
    session_id = await world.api.new_session()
    chat = await world.api.start(session_id, "Hello", "up/m")
    await world.up.next_request()
    queued = await world.api.start(session_id, "Later", "agent/helper", if_busy="queue")
    answers = [await steer(world.api, chat), await steer(world.api, queued)]
    answers.append(await world.api.send(session_id, "Now", "agent/helper", if_busy="steer"))
    await world.api.client.post(f"/api/sessions/{session_id}/stop")
    answers.append(await steer(world.api, chat))
    empty = await steer(world.api, chat, " ")
    unknown = await steer(world.api, "run_unknown")
    told = [(await refused.json())["error"] for refused in answers]

    assert [409] * 4 == [refused.status for refused in answers]
    assert {"cannot_steer"} == {error["code"] for error in told}
    assert "is a chat run" in told[0]["message"]
    assert "not running in this process" in told[1]["message"]
    assert "is a chat run" in told[2]["message"]
    assert "has ended" in told[3]["message"]
    assert (400, 404) == (empty.status, unknown.status)
