"""A synthesis: one answer that a model makes of those of the panes. It is a run like any other."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, here
from tests.requirements import requirement
from tests.support.compare import Compare
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Gate, Hang, Headers, Role, Status, Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="module")


class World(NamedTuple):
    compare: Compare
    up: Upstream
    api: Native
    server: Server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        up.models["one"] = answer("Four billion years.")
        up.models["two"] = answer("4.5 billion years.")
        up.models["broken"] = [Status(400)]
        config = 'default_model = "up/judge"\n[prices]\n"up/judge" = {input = 2.0, output = 10.0}'
        async with Server(
            tmp_path_factory.mktemp("synthesis"), [provider(up.base_url, models=None)], config=config
        ) as it:
            async with it.client() as client:
                yield World(Compare(client), up, Native(client), it)


async def compared(world: World, *models: str, **more):
    names = [f"up/{model}" for model in models or ("one", "two")]
    return await world.compare.whole(names, "How old is the moon?", **more)


async def settled(world: World, kept, status=202, **body):
    begun = await world.compare.post(f"/api/comparisons/{kept['id']}/synthesis", body, status)
    await world.api.settled(begun["synthesis"]["run_id"])
    return await world.compare.get(kept["id"])


@requirement("cmp.synthesis")
async def test_a_model_makes_one_answer_of_those_that_have_completed(world):
    """It says what it is made of; a pane that failed is no part of it, and nobody is told which model wrote what."""
    world.up.models["judge"] = answer("About 4.5 billion years.")
    kept = await compared(world, "one", "broken", "two")
    made = (await settled(world, kept, model="up/judge"))["synthesis"]
    [asked] = world.up.requests[-1].body["messages"]

    assert ("up/judge", [0, 2], 1, False) == (made["model"], made["panes"], made["turn"], made["old"])
    assert ("completed", "About 4.5 billion years.") == (made["settlement"]["outcome"], made["text"])
    assert made["cost"] > 0
    for words in ("How old is the moon?", "# Answer A\n\nFour billion", "# Answer C\n\n4.5 billion"):
        assert words in asked["content"]
    assert [] == [word for word in ("up/", "Answer B", "broken") if word in asked["content"]]
    run, pane = [await world.api.run(id) for id in (made["run_id"], kept["panes"][0]["run_id"])]
    assert [kept["id"]] * 2 == [run["comparison_id"], pane["comparison_id"]]
    assert ("chat", "detached", made["text"]) == (run["kind"], run["lifetime"], run["text"])
    sessions = await world.api.get("/api/sessions?limit=200")
    assert run["session_id"] not in [each["id"] for each in sessions["sessions"]]


@requirement("cmp.synthesis", "cmp.blind")
async def test_a_blind_comparison_stays_blind(world):
    """The model of a synthesis reads texts under letters, and so do those who read it."""
    world.up.models["judge"] = answer("About 4.5 billion years.")
    kept = await compared(world, blind=True)
    after = await settled(world, kept)
    told = json.dumps([after, await world.api.run(after["synthesis"]["run_id"]), world.up.requests[-1].body])

    assert ("up/judge", False) == (after["synthesis"]["model"], after["revealed"])
    assert [] == [word for word in ("up/one", "up/two") if word in told]
    voted = await world.compare.vote(after, 0)
    assert after["synthesis"] == voted["synthesis"]


@requirement("cmp.synthesis")
async def test_it_is_stopped_with_the_comparison_and_replaced_and_deleted(world):
    """One at a time. Its text stays when it is stopped; a new one takes its place, and nothing is left of either."""
    world.up.models["slow"] = [Headers(), Role(), Delta("Well, "), Hang()]
    world.up.models["judge"] = answer("4.5.")
    kept = await compared(world)
    path = f"/api/comparisons/{kept['id']}"
    begun = (await world.compare.post(f"{path}/synthesis", {"model": "up/slow"}, 202))["synthesis"]
    await world.api.shown(begun["run_id"], "Well, ")
    assert (409, "conflict") == await world.compare.refused(f"{path}/synthesis", {"model": "up/judge"})
    stopped = (await world.compare.post(f"{path}/stop"))["synthesis"]
    assert ("stopped", "Well, ") == (stopped["settlement"]["outcome"], stopped["text"])
    again = (await settled(world, kept, model="up/judge"))["synthesis"]
    assert ("4.5.", 404) == (again["text"], (await world.api.client.get(f"/api/runs/{begun['run_id']}")).status)
    after = await world.compare.post(f"{path}/panes/0/reroll")
    assert (True, again["run_id"]) == (after["synthesis"]["old"], after["synthesis"]["run_id"])
    assert 204 == (await world.api.client.request("DELETE", path)).status
    assert 404 == (await world.api.client.get(f"/api/runs/{again['run_id']}")).status


@requirement("cmp.synthesis")
async def test_what_cannot_be_is_refused_and_leaves_what_there_was(world):
    """Too few answers, panes that still answer, a model that is not there, a comparison of somebody else's."""
    world.up.models["judge"] = answer("4.5.")
    world.up.models["gated"] = [Headers(), Role(), Gate("go"), *answer("5.")[2:]]
    few = await compared(world, "one", "broken")
    assert (409, "too_few_answers") == await world.compare.refused(f"/api/comparisons/{few['id']}/synthesis")
    assert None is (await world.compare.get(few["id"]))["synthesis"]
    watched = await world.compare.begin(["up/gated", "up/one"])
    assert (409, "comparison_running") == await world.compare.refused(f"{watched.path}/synthesis")
    world.up.open("go")
    await watched.end()
    before = await settled(world, watched.comparison)
    missing = {"model": "nowhere/m"}
    assert (404, "model_not_found") == await world.compare.refused(f"{watched.path}/synthesis", missing)
    assert (404, "comparison_not_found") == await world.compare.refused("/api/comparisons/cmp_none/synthesis")
    assert before == await world.compare.get(watched.comparison["id"])


@requirement("cmp.synthesis")
async def test_a_repeated_press_is_one_run_and_a_killed_server_leaves_its_text(world):
    """The run is found by the key, and by its comparison after the crash: interrupted, with what was shown."""
    world.up.models["slow"] = [Headers(), Role(), Delta("Well, "), Hang()]
    kept = await compared(world)
    path, headers = f"/api/comparisons/{kept['id']}/synthesis", {"idempotency-key": f"press {kept['id']}"}
    pressed = [world.api.client.post(path, {"model": "up/slow"}, headers=headers) for _ in range(3)]
    answers = await asyncio.gather(*pressed)
    again = await world.api.client.post(path, {"model": "up/slow"}, headers=headers)
    assert (202, {202, 409}) == (again.status, {202, 409} | {answer.status for answer in answers})
    run = (await world.compare.get(kept["id"]))["synthesis"]["run_id"]
    await world.api.shown(run, "Well, ")
    await world.server.kill9()
    await world.server.restart()
    await world.api.settled(run)
    after = (await world.compare.get(kept["id"]))["synthesis"]
    assert ("interrupted", "Well, ") == (after["settlement"]["outcome"], after["text"])


@requirement("cmp.synthesis")
async def test_the_command_line_prints_it_after_the_panes(world, tmp_path):
    """One command for an answer of several models; a vote comes after it."""
    world.up.models["judge"] = answer("About 4.5 billion years.")
    shell = Shell(tmp_path, here(world.server))
    args = ["compare", "How old?", "-m", "up/one", "-m", "up/two", "--synthesis", "up/judge"]
    ended = await shell(*args)
    assert (0, True) == (
        ended.code,
        ended.out.endswith("== Synthesis of A, B by up/judge\n\nAbout 4.5 billion years.\n\n"),
    )
    told = json.loads((await shell(*args, "--json")).out)
    assert ([0, 1], "About 4.5 billion years.") == (told["synthesis"]["panes"], told["synthesis"]["text"])
    world.up.models["judge"] = [Headers(), Role(), Delta("Well, "), Status(400)][:3]
    assert 1 == (await shell(*args)).code
