"""Comparisons whose client leaves: attached panes stop, detached ones go on, and both can be had again."""

import asyncio

import pytest

from tests.acceptance.test_compare import World, gated, outcomes, silent, world  # noqa: F401 - a fixture
from tests.requirements import requirement
from tests.support.compare import EVENTS, Watched
from tests.support.upstream import answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def looked_at(world: World, path: str) -> Watched:  # noqa: F811 - the same fixture
    """Come back to a comparison that goes on."""
    response = await world.client.get(f"{path}/events", headers=EVENTS)
    assert 200 == response.status, await response.text()
    watched = Watched(response)
    first = await watched.next()
    assert first is not None
    watched.comparison = first.json()["comparison"]
    return watched


async def settled(world: World, path: str) -> dict[str, object]:  # noqa: F811 - the same fixture
    """Wait until no pane answers any more."""
    return await (await looked_at(world, path)).end()


@requirement("cmp.detached")
async def test_panes_that_were_told_to_keep_going_outlive_their_client(world):  # noqa: F811
    """And whoever comes back sees every word of them, the first ones too, and then live ones."""
    world.up.models["kept"] = gated("early ", gate="late", then="late")
    watched = await world.compare.begin(["up/kept", "up/echo:short"])
    await watched.said(0, "early ")
    assert "attached" == watched.comparison["lifetime"]
    kept = await world.compare.post(f"{watched.path}/detach")
    watched.response.leave()
    back = await looked_at(world, watched.path)
    await back.said(0, "early ")
    world.up.open("late")
    ended = await back.end()

    assert ("detached", "running") == (kept["lifetime"], back.frames[0].json()["comparison"]["status"])
    assert (["completed", "completed"], "early late") == (outcomes(ended), back.texts[0])


@requirement("cmp.detached", "cmp.stop-all")
async def test_who_only_looks_on_holds_no_pane(world):  # noqa: F811
    """Attached panes live by the client that began them: they stop when it leaves, whoever else looks."""
    world.up.models["left"] = silent()
    watched = await world.compare.begin(["up/left"])
    await watched.until("run.started")
    onlooker = await looked_at(world, watched.path)
    (await looked_at(world, watched.path)).response.leave()
    watched.response.leave()
    ended = await onlooker.end()

    assert [("stopped", "disconnect")] == [
        (pane["settlement"]["outcome"], pane["settlement"]["by"]) for pane in ended["panes"]
    ]


@requirement("cmp.detached")
async def test_a_comparison_can_be_detached_from_its_start(world):  # noqa: F811
    """A program that does not stream is answered at once, and asks for the rest later."""
    world.up.models["program"] = gated(gate="program", then="done")
    body = {"prompt": "Which wave?", "models": ["up/program"], "lifetime": "detached"}
    response = await world.client.post("/api/comparisons", body)
    begun = await response.json()
    world.up.open("program")
    path = f"/api/comparisons/{begun['id']}"
    ended = await settled(world, path)

    assert (202, path, "running") == (response.status, response.headers["location"], begun["status"])
    assert ["completed"] == outcomes(ended)


@requirement("cmp.detached")
async def test_an_event_source_that_comes_back_after_the_end_is_told_to_stop(world):  # noqa: F811
    """204 is the one answer at which a browser's EventSource asks no more."""
    kept = await world.compare.whole(["up/echo:hi"])
    path = f"/api/comparisons/{kept['id']}/events"
    first = await (await world.client.get(path, headers=EVENTS)).all_events()
    again = await world.client.get(path, headers={**EVENTS, "last-event-id": first[-1].id or ""})

    assert ["comparison.started", "comparison.settled"] == [frame.event for frame in first]
    assert 204 == again.status


@requirement("cmp.rerun")
async def test_panes_that_were_stopped_are_run_again_and_those_that_completed_are_not(world):  # noqa: F811
    """What was paid for and came is kept; a reload in the middle costs one click."""
    world.up.models["again"] = gated(gate="never", then="")
    watched = await world.compare.begin(["up/again", "up/echo:done"])
    await watched.until("run.settled", pane=1)
    await world.up.reached("never")
    watched.response.leave()
    async with asyncio.timeout(LONG):
        stopped = await settled(world, watched.path)
    world.up.models["again"] = answer("at last")
    asked_before = len(world.up.requests)
    rerun = await world.compare.watch(f"{watched.path}/rerun", {})
    ended = await rerun.end()

    assert ["stopped", "completed"] == outcomes(stopped)
    assert (["completed", "completed"], ["at last", "done"]) == (outcomes(ended), [p["text"] for p in ended["panes"]])
    assert (1, {0}) == (len(world.up.requests) - asked_before, set(rerun.runs))


@requirement("cmp.rerun", "cmp.vote-once")
async def test_nothing_is_run_again_where_all_is_done_decided_or_under_way(world):  # noqa: F811
    """Each is refused, says why, and asks no model."""
    world.up.models["busy"] = gated(gate="busy", then="")
    busy = await world.compare.begin(["up/busy"])
    await world.up.reached("busy")
    done = await world.compare.whole(["up/echo:a", "up/echo:b"])
    failed = await world.compare.whole(["up/end:in-band-error", "up/echo:b"])
    await world.compare.vote(failed, 1)
    before = len(world.up.requests)
    refused = [
        await world.compare.refused(f"{path}/rerun")
        for path in (busy.path, f"/api/comparisons/{done['id']}", f"/api/comparisons/{failed['id']}")
    ]
    busy.response.leave()

    assert [(409, "comparison_running"), (409, "conflict"), (409, "already_decided")] == refused
    assert before == len(world.up.requests)
