"""What a tool asks the person while it runs, and what a person changes about a call before it runs."""

import asyncio
from pathlib import Path

import pytest

from holdfast.server.config.settings import McpSettings
from tests.acceptance.test_approvals import decide
from tests.acceptance.test_mcp import TRANSPORTS, connected, results
from tests.requirements import requirement
from tests.support.agents import check_openai, serving
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Upstream, answer, calling
from tests.support.waiting import LONG

OLD = Path(__file__).parents[1] / "support" / "mcp_old_server.py"
PUBLISH = calling(("publish", {"text": "it"}))
CHOICES = calling(("ask_user", {"question": "Which colour?", "choices": ["red", "blue"]}))


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def world(up, tmp_path):
    async with serving(up, tmp_path, tools=("ask_user", "tests.support.agents:TOOLS")) as served:
        yield served


async def fill_in(api, run_id, asked, decision="accept", **more):
    return await api.client.post(f"/api/runs/{run_id}/inputs/{asked['id']}", {"decision": decision, **more})


def told(up):
    """What the model was told by the last result."""
    return up.requests[-1].body["messages"][-1]["content"]


# arguments


@requirement("agent.edited-calls")
async def test_a_call_runs_with_the_arguments_that_a_person_has_given_it(world):
    """The model is told so, the log and the history have both, and the next turn is one that providers accept."""
    world.up.enqueue(PUBLISH, answer("Done."))
    session_id, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    response = await decide(world.api, run_id, asked["id"], arguments={"text": "that"})
    frames = await world.api.replay(run_id)
    decided = next(frame.json() for frame in frames if frame.event == "approval.decided")
    (message,) = [each for each in (await world.api.session(session_id))["messages"] if each["role"] == "assistant"]
    (call,) = message["steps"][0]["tool_calls"]

    assert 200 == response.status
    assert ["publish that"] == world.state.called
    assert '{"text":"that"}' == decided["arguments"]
    assert ('{"text": "it"}', '{"text":"that"}') == (call["arguments"], call["edited"])
    assert told(world.up).startswith('[The person changed the arguments of this call to {"text":"that"}]')
    check_openai(await world.next_turn(session_id))


@requirement("agent.edited-calls")
async def test_arguments_that_do_not_fit_are_refused_and_the_call_can_still_be_decided(world):
    """Nothing runs that the tool would not take, and a mistake costs nothing."""
    world.up.enqueue(PUBLISH, answer("Done."))
    _, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    missing = await decide(world.api, run_id, asked["id"], arguments={})
    denied = await decide(world.api, run_id, asked["id"], "deny", arguments={"text": "that"})
    unread = await decide(world.api, run_id, asked["id"], arguments="text")
    before = list(world.state.called)
    await decide(world.api, run_id, asked["id"])
    await world.api.settled(run_id)

    assert [400, 400, 400] == [missing.status, denied.status, unread.status]
    assert "do not fit" in (await missing.json())["error"]["message"]
    assert [] == before
    assert ["publish it"] == world.state.called


# allowed by its beginning


@requirement("agent.grants")
async def test_a_beginning_allows_the_commands_that_begin_so_and_no_others(up, tmp_path):
    """Neither another command of the tool, nor one that does more. It is listed, and revoked."""
    async with serving(up, tmp_path, tools=("shell",)) as world:
        up.enqueue(calling(("shell", {"command": "echo one two"})), answer("Done."))
        session_id, run_id = await world.start()
        asked = await world.until(run_id, "approval.requested")
        others = [
            await decide(world.api, run_id, asked["id"], scope=scope, beginning=beginning)
            for scope, beginning in (("always", "echo two"), ("always", "echo; rm"), ("once", "echo"))
        ]
        await decide(world.api, run_id, asked["id"], scope="always", beginning="echo one")
        await world.api.settled(run_id)
        (grant,) = (await world.api.get("/api/grants"))["grants"]
        asks = {
            command: await is_asked(world, session_id, command)
            for command in ("echo one", "echo 'one'", "echo ones", "echo one; id", "echo one $(id)", "id")
        }
        await world.api.client.request("DELETE", f"/api/grants/{grant['id']}")
        after = await is_asked(world, session_id, "echo one")

    assert "echo one" == asked["beginning"]
    assert [400, 400, 400] == [response.status for response in others]
    assert ("shell", "echo one", None) == (grant["tool"], grant["beginning"], grant["session_id"])
    assert ["echo one", "echo 'one'"] == [command for command, is_so in asks.items() if not is_so]
    assert after


async def is_asked(world, session_id, command):
    world.up.enqueue(calling(("shell", {"command": command})), answer("Done."))
    run_id = await world.api.start(session_id, "Go on", "agent/helper")
    reader = await world.api.events(run_id)
    while (frame := await reader.next_event()).event not in ("approval.requested", "tool.started"):
        pass
    reader.close()
    if frame.event == "approval.requested":
        await decide(world.api, run_id, frame.json()["id"], "deny")
    await world.api.settled(run_id)
    return frame.event == "approval.requested"


# questions of the model


@requirement("agent.ask-user")
@pytest.mark.parametrize(
    ("answered", "said"),
    [
        ({"content": {"answer": "red"}}, "red"),
        ({"content": {"answer": "blue", "words": "but dark"}}, "blue\nbut dark"),
        ({"content": {"words": "green"}}, "green"),
        ({"decision": "decline", "note": "You choose."}, "The user declined to answer. You choose."),
        ({"decision": "cancel"}, "The user has not answered."),
    ],
)
async def test_the_model_asks_a_question_with_choices_and_gets_the_answer(world, answered, said):
    """One of them, other words, or none; meanwhile the chat is listed as one that waits."""
    world.up.enqueue(CHOICES, answer("Done."))
    _, run_id = await world.start()
    asked = await world.until(run_id, "input.requested")
    waits = (await world.api.run(run_id))["needs_approval"]
    response = await fill_in(world.api, run_id, asked, **answered)
    settlement = await world.api.settled(run_id)

    assert ("ask_user", "Which colour?", True) == (asked["tool"], asked["message"], waits)
    assert ["red", "blue"] == [option["value"] for option in asked["fields"][0]["options"]]
    assert 200 == response.status
    assert said == told(world.up)
    assert "completed" == settlement["outcome"]


@requirement("agent.ask-user")
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(world):
    """A tool never gets what it did not ask for. A second answer comes too late."""
    world.up.enqueue(CHOICES, answer("Done."))
    _, run_id = await world.start()
    asked = await world.until(run_id, "input.requested")
    wrong = [
        await fill_in(world.api, run_id, asked, content=content)
        for content in ({"answer": "green"}, {"colour": "red"}, {"words": 3}, {"words": "a" * 20_001})
    ]
    unknown = await fill_in(world.api, run_id, {"id": "inp_none"}, content={})
    as_approval = await decide(world.api, run_id, asked["id"])
    right = await fill_in(world.api, run_id, asked, content={"answer": "red"})
    late = await fill_in(world.api, run_id, asked, content={"answer": "blue"})
    await world.api.settled(run_id)

    assert [400] * 4 == [response.status for response in wrong]
    assert (404, 404) == (unknown.status, as_approval.status)
    assert (200, 409) == (right.status, late.status)
    assert "red" == told(world.up)


@requirement("agent.ask-user")
async def test_a_question_that_nobody_answers_in_time_is_told_as_it_is(up, tmp_path):
    """The model goes on with the truth: nobody has answered."""
    async with serving(up, tmp_path, tools=("ask_user",), approval_timeout=0.2) as world:
        up.enqueue(CHOICES, answer("Then red."))
        _, run_id = await world.start()
        frames = await world.api.replay(run_id)

    decided = next(frame.json() for frame in frames if frame.event == "input.decided")
    assert ("cancel", "Nobody answered within 0.2 s.") == (decided["decision"], decided["note"])
    assert "The user has not answered. Nobody answered within 0.2 s." == told(up)
    assert "completed" == frames[-1].json()["settlement"]["outcome"]


@requirement("agent.ask-user")
async def test_where_nobody_is_there_the_question_is_declined(world, monkeypatch):
    """A client of another API has no place for it, and the run is in no chat that somebody could open."""
    monkeypatch.setattr("holdfast.agents.approvals.GRACE", 0.05)
    world.up.enqueue(CHOICES, answer("Then red."))
    asked = {"model": "agent/helper", "messages": [{"role": "user", "content": "Go"}]}
    response = await world.api.client.post("/v1/chat/completions", asked)

    assert "Then red." == (await response.json())["choices"][0]["message"]["content"]
    assert "The user declined to answer. Nobody is there to ask." == told(world.up)


@requirement("agent.ask-user", "crash.effects")
@pytest.mark.parametrize("on_restart", ["settle", "continue"])
async def test_a_question_of_the_model_survives_a_kill(up, tmp_path, on_restart):
    """It is the same question, under the same id, and is asked once."""
    config = f'[[agents]]\nname = "helper"\nmodel = "up/m"\ntools = ["ask_user"]\non_restart = "{on_restart}"\n'
    async with Server(tmp_path, [provider(up.base_url, models=["m"])], config=config) as server:
        up.enqueue(CHOICES)
        async with server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Go", "agent/helper")
            reader = await api.events(run_id)
            while (frame := await reader.next_event()).event != "input.requested":
                pass
        await server.kill9()
        up.enqueue(answer("Done."))
        await server.restart()
        async with server.client() as client:
            api = Native(client)
            async with asyncio.timeout(LONG):
                while (await fill_in(api, run_id, frame.json(), content={"answer": "red"})).status == 409:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            frames = await api.replay(run_id)

    assert 1 == len([each for each in frames if each.event == "input.requested"])
    assert "completed" == frames[-1].json()["settlement"]["outcome"]
    assert "red" == told(up)


# questions of MCP servers


@requirement("mcp.elicitation")
@TRANSPORTS
@pytest.mark.parametrize(
    ("answered", "seen"),
    [
        ({"content": {"sure": True}}, "action='accept', data=Sure(sure=True)"),
        ({"decision": "decline"}, "action='decline'"),
        ({"decision": "cancel"}, "action='cancel'"),
    ],
)
async def test_a_server_asks_the_person_and_gets_the_answer(tmp_path, transport, answered, seen):
    """The timeout of the tool does not count meanwhile, and the connection goes on."""
    async with connected(tmp_path, transport, timeout=5.0) as (world, _):
        world.up.enqueue(calling(("slow__elicit", {})), calling(("slow__add", {"a": 1, "b": 2})), answer("3."))
        _, run_id = await world.start()
        asked = await world.until(run_id, "input.requested")
        assert 200 == (await fill_in(world.api, run_id, asked, **answered)).status
        frames = await world.api.replay(run_id)

    (first, is_error), added = results(frames)
    (field,) = asked["fields"]
    assert ("slow__elicit", "Are you sure?") == (asked["tool"], asked["message"])
    assert ("sure", "boolean", True) == (field["name"], field["kind"], field["required"])
    assert not is_error
    assert seen in first
    assert ("3", False) == added


@requirement("mcp.elicitation")
async def test_a_server_of_an_older_protocol_asks_in_the_middle_of_a_call(up, tmp_path):
    """It sends a request of its own, which belongs to the only run that calls it."""
    old = McpSettings("old", command="python", args=(str(OLD),), approval="allow")
    async with serving(up, tmp_path, settings={"mcp": (old,)}, tools=("mcp:old",)) as world:
        up.enqueue(calling(("old__elicit", {})), answer("Done."))
        _, run_id = await world.start()
        asked = await world.until(run_id, "input.requested")
        assert 200 == (await fill_in(world.api, run_id, asked, content={"sure": True})).status
        frames = await world.api.replay(run_id)

    assert [("action='accept' data={'sure': True}", False)] == results(frames)


@requirement("mcp.elicitation")
async def test_a_stop_ends_the_question_of_a_server_and_its_connection_goes_on(tmp_path):
    """The next run has the same connection: the SDK's own task was not cancelled."""
    async with connected(tmp_path) as (world, slow):
        world.up.enqueue(calling(("slow__elicit", {})), calling(("slow__add", {"a": 1, "b": 2})), answer("3."))
        _, run_id = await world.start()
        asked = await world.until(run_id, "input.requested")
        await world.api.stop(run_id)
        late = await fill_in(world.api, run_id, asked, content={"sure": True})
        frames = await world.api.replay((await world.start())[1])

    assert 409 == late.status
    assert [("3", False)] == results(frames)
    assert 1 == len(slow.pids())


@requirement("mcp.elicitation")
async def test_a_server_whose_question_nobody_answers_is_told_so(tmp_path):
    """In time, with the protocol's own word for it."""
    async with connected(tmp_path, agent={"approval_timeout": 0.2}) as (world, _):
        world.up.enqueue(calling(("slow__elicit", {})), answer("I see."))
        frames = await world.api.replay((await world.start())[1])

    ((said, _),) = results(frames)
    assert "cancel" in said
