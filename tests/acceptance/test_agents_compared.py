"""Agents in panes and in batches: they are models there too, with their steps, their questions and their effects."""

import asyncio
import json

import pytest

from tests.acceptance.test_mcp import TRANSPORTS, connected
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.batches import World as Batches
from tests.support.compare import Compare
from tests.support.effects import STAGE, effects
from tests.support.native import Native
from tests.support.server import ROOT, Server, provider
from tests.support.upstream import Hang, Headers, Role, Status, Upstream, answer, calling
from tests.support.waiting import LONG

ADD = calling(("add", {"a": 1, "b": 2}), text="Let me see. ")
PUBLISH = calling(("publish", {"text": "it"}))
PANES = ["up/next", "agent/helper"]


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        upstream.models["next"] = answer("Three.")
        yield upstream


@pytest.fixture
async def world(up, tmp_path):
    async with serving(up, tmp_path, settings={"prices": {}}) as served:
        yield served


def in_turn(*scripts):
    """Script by script, counted by the results that the model has been shown."""
    return lambda request: scripts[[said["role"] for said in request.body["messages"]].count("tool")]


@requirement("cmp.agents")
async def test_an_agent_answers_in_a_pane_beside_a_model_with_its_steps(world, up):
    """Its tools run, its usage is that of all steps, and the next turn goes on from what it did."""
    up.models["m"] = in_turn(ADD, answer("3."), answer("Still 3."))
    watched = await Compare(world.api.client).begin(PANES, "Add.")
    kept = await watched.end()
    second = await Compare(world.api.client).watch(f"{watched.path}/turns", {"prompt": "Sure?"})
    await second.end()
    model, agent = kept["panes"]
    again = await Compare(world.api.client).get(kept["id"])
    [first_step, last_step] = agent["steps"]

    assert ("Three.", "Let me see. 3.") == (model["text"], agent["text"])
    assert ["completed"] * 2 == [pane["settlement"]["outcome"] for pane in kept["panes"]]
    assert ["add"] == world.state.called
    assert ("Let me see. ", "3.") == (first_step["text"], last_step["text"])
    assert [("add", "3", False)] == [
        (call["name"], call["output"], call["is_error"]) for call in first_step["tool_calls"]
    ]
    assert [[], [{"text": "3.", "tool_calls": [], "inputs": []}]] == [pane["steps"] for pane in again["panes"]]
    steps = [frame.event for frame in watched.frames if frame.json().get("pane") == 1]
    assert ["tool.call", "tool.result"] == [each for each in steps if each in ("tool.call", "tool.result")]
    *_, first = [request for request in up.requests if request.model == "m"]
    last = agent["metrics"]
    assert ["user", "assistant", "tool", "assistant", "user"] == [said["role"] for said in first.body["messages"]][:5]
    assert last["output_tokens"] > model["metrics"]["output_tokens"]


@requirement("cmp.agents")
@pytest.mark.parametrize(("decision", "called"), [("allow", ["publish it"]), ("deny", [])])
async def test_an_approval_of_a_pane_is_answered_there_or_stopped(world, up, decision, called):
    """The pane waits for a person; the other one does not wait for it."""
    up.models["m"] = in_turn(PUBLISH, answer("Done."))
    watched = await Compare(world.api.client).begin(PANES, "Publish it.")
    asked = await watched.until("approval.requested")
    run = await world.api.run(watched.runs[1])
    path = f"/api/runs/{run['id']}/approvals/{asked['id']}"
    response = await world.api.client.post(path, {"decision": decision})
    kept = await watched.end()

    assert (True, 200) == (run["needs_approval"], response.status)
    assert (called, "completed") == (world.state.called, kept["panes"][1]["settlement"]["outcome"])
    other = await Compare(world.api.client).begin(["agent/helper"] * 2, "Publish it.")
    await other.until("approval.requested")
    stopped = await Compare(world.api.client).post(f"{other.path}/stop")
    assert ["stopped"] * 2 == [pane["settlement"]["outcome"] for pane in stopped["panes"]]


QUESTION = calling(("ask_user", {"question": "Which colour?", "choices": ["red", "blue"]}))


async def fill_in(world, run, asked, **content):
    path = f"/api/runs/{run}/inputs/{asked['id']}"
    return await world.api.client.post(path, {"decision": "accept", "content": content})


@requirement("cmp.agents", "agent.ask-user")
async def test_a_question_of_each_pane_is_answered_in_its_pane(up, tmp_path):
    """Both wait for their own answer, and settle with it."""
    async with serving(up, tmp_path, tools=("ask_user",)) as world:
        up.models["m"] = lambda request: (
            answer(f"I take {request.body['messages'][-1]['content']}.")
            if request.body["messages"][-1]["role"] == "tool"
            else QUESTION
        )
        watched = await Compare(world.api.client).begin(["agent/helper"] * 2, "Paint.")
        asked = [await watched.until("input.requested") for _ in range(2)]
        runs = {each["pane"]: await world.api.run(each["run"]) for each in asked}
        for each in asked:
            answered = await fill_in(world, each["run"], each, answer="red" if each["pane"] else "blue")
            assert 200 == answered.status
        kept = await watched.end()

    assert {0: True, 1: True} == {pane: run["needs_approval"] for pane, run in runs.items()}
    assert ["I take blue.", "I take red."] == [pane["text"] for pane in kept["panes"]]


@requirement("cmp.agents", "mcp.elicitation")
@TRANSPORTS
async def test_a_server_that_both_panes_have_asks_in_each_pane(tmp_path, transport):
    """They share its connection: each question belongs to the pane whose call asks it."""
    async with connected(tmp_path, transport) as (world, _):
        world.up.models["m"] = in_turn(calling(("slow__elicit", {})), answer("Done."))
        watched = await Compare(world.api.client).begin(["agent/helper"] * 2, "Ask.")
        asked = [await watched.until("input.requested") for _ in range(2)]
        for each in asked:
            assert 200 == (await fill_in(world, each["run"], each, sure=bool(each["pane"]))).status
        kept = await watched.end()

    outputs = [pane["steps"][0]["tool_calls"][0]["output"] for pane in kept["panes"]]
    assert {0, 1} == {each["pane"] for each in asked}
    assert ["sure=False" in outputs[0], "sure=True" in outputs[1]] == [True, True]


@requirement("cmp.agents", "cmp.blind")
async def test_a_blind_pane_does_not_tell_that_an_agent_is_in_it(world, up):
    """Its tools are named nowhere. What needs a person fails there, and says why once it is revealed."""
    up.models["m"] = in_turn(ADD, answer("3."))
    watched = await Compare(world.api.client).begin(PANES, "Add.", blind=True)
    kept = await watched.end()
    runs = [await world.api.get(f"/api/runs/{run}") for run in watched.runs.values()]
    replays = [[frame.json() for frame in await world.api.replay(run)] for run in watched.runs.values()]
    told = json.dumps([[frame.json() for frame in watched.frames], kept, runs, replays])
    assert ["add"] == world.state.called
    assert {"Three.", "Let me see. 3."} == {pane["text"] for pane in kept["panes"]}
    assert [] == [word for word in ("helper", "agent", "add", "tool.", "step.", "up/") if word in told]
    steered = [await world.api.client.post(f"/api/runs/{run['id']}/steer", {"text": "x"}) for run in runs]
    assert 1 == len({response.status for response in steered})

    up.models["m"] = in_turn(PUBLISH, answer("Done."))
    watched = await Compare(world.api.client).begin(PANES, "Publish it.", blind=True)
    blind = await watched.end()
    assert ["completed", "failed"] == sorted(pane["settlement"]["outcome"] for pane in blind["panes"])
    revealed = await Compare(world.api.client).post(f"{watched.path}/reveal")
    [failed] = [pane for pane in revealed["panes"] if pane["settlement"]["outcome"] == "failed"]
    assert ("agent/helper", "nobody_to_ask") == (failed["model"], failed["settlement"]["error"]["code"])
    assert ["add"] == world.state.called


@requirement("cmp.agents", "cmp.blind")
async def test_what_a_pane_waits_for_is_told_of_no_blind_one(world, up):
    """An agent waits for no model while its tools run. Were it told of blind panes, that would tell which one it is."""
    up.models.update(m=in_turn(calling(("wait", {})), answer("Done.")), next=[Headers(), Role(), Hang()])
    told = {}
    for blind in (False, True):
        world.state.begun.clear()
        asked = len(up.requests)
        watched = await Compare(world.api.client).begin(PANES, "Wait.", blind=blind)
        await up.until(lambda asked=asked: len(up.requests) == asked + 2, LONG)
        async with asyncio.timeout(LONG):
            await world.state.begun.wait()
            while not all(pane["run_id"] for pane in (await world.api.get(watched.path))["panes"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        runs = [await world.api.run(pane["run_id"]) for pane in (await world.api.get(watched.path))["panes"]]
        told[blind] = {run["waits_for"] is not None for run in runs}
        await Compare(world.api.client).post(f"{watched.path}/stop")
    assert {False: {True, False}, True: {False}} == told


@requirement("batch.agents")
async def test_an_agent_answers_the_cells_of_a_batch_and_fails_where_a_person_is_needed(world, up):
    """A batch that waited for a person would wait for ever: the cell fails with words, and the others go on."""
    up.models["m"] = lambda request: (
        PUBLISH if "Publish" in str(request.body["messages"]) else in_turn(ADD, answer("3."))(request)
    )
    batches = Batches(up, world.api.client)
    batch = await batches.create([{"prompt": "Add.", "expected": 3}, {"prompt": "Publish it."}], PANES, match="number")
    ended = await batches.settled(batch)
    cells = {(cell["prompt"], cell["model"]): cell for cell in await batches.cells(batch)}
    done, refused = cells["Add.", "agent/helper"], cells["Publish it.", "agent/helper"]

    assert {"total": 4, "done": 4, "failed": 1, "running": 0} == ended["progress"]
    assert ("completed", "Let me see. 3.", True) == (done["outcome"], done["text"], done["right"])
    assert ("failed", "nobody_to_ask") == (refused["outcome"], refused["error"]["code"])
    assert "a batch has nobody to ask" in refused["error"]["message"]
    assert ["add"] == world.state.called
    assert "tool.result" in [frame.event for frame in await world.api.replay(done["run_id"])]
    assert 204 == (await world.api.client.request("DELETE", f"/api/batches/{batch['id']}")).status
    async with asyncio.timeout(LONG):
        while (await world.api.client.get(f"/api/runs/{done['run_id']}")).status != 404:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@requirement("batch.agents", "batch.stop")
async def test_a_stopped_batch_asks_its_agents_anew_when_it_is_resumed(world, up):
    """What was stopped has no answer, and its run is not found again."""
    up.models["m"] = [Headers(), Role(), Hang()]
    batches = Batches(up, world.api.client)
    batch = await batches.create(1, ["agent/helper"])
    async with asyncio.timeout(LONG):
        while not up.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await batches.post(batch, "stop")
    up.models["m"] = [Status(400)]
    await batches.post(batch, "resume")
    await batches.settled(batch)
    up.models["m"] = answer("At last.")
    await batches.post(batch, "resume", {"failed": True})
    await batches.settled(batch)
    [cell] = await batches.cells(batch)

    assert ("completed", "At last.") == (cell["outcome"], cell["text"])


CONFIG = """
[[agents]]
name = "helper"
model = "up/m"
tools = ["tests.support.effects:TOOLS"]
modules = "{root}"
on_restart = "{restart}"
"""


@requirement("batch.agents", "batch.crash")
@pytest.mark.parametrize("restart", ["settle", "continue"])
async def test_a_killed_server_repeats_no_effect_of_a_cell(tmp_path, restart):
    """The tool has run when the server dies. The cell is found again: it is interrupted, or goes on."""
    async with Upstream() as up:
        (tmp_path / STAGE).write_text("none")
        send = calling(("send", {"folder": str(tmp_path)}))
        up.models["m"] = in_turn(send, [Headers(), Role(), Hang()])
        config = CONFIG.format(root=ROOT, restart=restart)
        async with Server(tmp_path, [provider(up.base_url, models=["m"])], config=config) as server:
            async with server.client() as client:
                batch = await Batches(up, client).create(1, ["agent/helper"])
                async with asyncio.timeout(LONG):
                    while len(up.requests) < 2:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
            await server.kill9()
            up.models["m"] = in_turn(send, answer("Done."))
            await server.restart()
            async with server.client() as client:
                batches = Batches(up, client)
                await batches.settled(batch)
                [cell] = await batches.cells(batch)
                await Native(client).run(cell["run_id"])

    outcome = {"settle": "interrupted", "continue": "completed"}[restart]
    assert (outcome, 1) == (cell["outcome"], len(effects(tmp_path)["send"]))
