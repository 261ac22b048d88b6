"""What an answer took stands with its message: for a reader who comes later as for one who watched."""

import asyncio

import pytest

from holdfast.pricing import Price
from holdfast.store.sqlite import SqliteStore
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.native import Native
from tests.support.upstream import (
    Delta,
    Done,
    Finish,
    Gate,
    Headers,
    Pause,
    ReasoningDelta,
    Role,
    Upstream,
    UsageChunk,
    answer,
    calling,
)


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def world(up, tmp_path):
    prices = {"up/m": Price(2.0, 4.0)}
    async with serving(up, tmp_path, settings={"prices": prices}) as served:
        yield served


SLOW = [
    Headers(),
    Role(),
    Pause(0.2),
    Delta("One "),
    Pause(0.2),
    Delta("two."),
    Finish("stop"),
    UsageChunk(10, 20),
    Done(),
]


async def said(world, session_id):
    return (await world.api.session(session_id))["messages"][-1]


@requirement("sub.thought")
async def test_an_answer_tells_for_how_long_it_was_thought_about(world):
    """From the first thought to the first word; an answer without reasoning has no such time."""
    world.up.enqueue([Headers(), Role(), ReasoningDelta("Hm"), Pause(0.2), Delta("So."), Finish("stop"), Done()])
    session = await world.api.new_session(model="up/m")
    await world.api.settled(await world.api.start(session, "Think", "up/m"))
    figures = (await said(world, session))["figures"]
    assert 0 < figures["thought_ms"] <= figures["duration_ms"] - figures["ttft_ms"]

    world.up.enqueue(answer("At once."))
    await world.api.settled(await world.api.start(session, "Hello", "up/m"))
    assert (await said(world, session))["figures"]["thought_ms"] is None


@requirement("sub.figures")
async def test_an_answer_tells_how_soon_it_came_how_fast_it_was_and_what_it_cost(world):
    """Whoever opens the session later was not there to measure."""
    world.up.enqueue([*SLOW[:4], Gate("seen"), *SLOW[4:]])  # the second pause begins after the first word has arrived
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Count", "up/m")
    await world.api.shown(run_id, "One ")
    world.up.open("seen")
    await world.api.settled(run_id)
    figures = (await said(world, session_id))["figures"]

    assert (10, 20, "provider") == tuple(figures[name] for name in ("input_tokens", "output_tokens", "usage_source"))
    assert 200 <= figures["ttft_ms"] <= figures["duration_ms"] - 190
    assert 0 < figures["tokens_per_second"] <= 20 / 0.19
    assert pytest.approx((10 * 2.0 + 20 * 4.0) / 1e6) == figures["cost"]


async def test_the_feed_tells_the_same_figures_as_the_session(world):
    """A tab that watches and one that is opened later show the same numbers."""
    world.up.enqueue(SLOW)
    session_id = await world.api.new_session()
    await world.api.start(session_id, "Count", "up/m")
    feed = await world.api.client.get(f"/api/sessions/{session_id}/events")
    try:
        while (frame := await feed.next_event()) is not None:
            if frame.event == "message.added" and frame.json()["message"]["role"] == "assistant":
                break
    finally:
        feed.close()

    assert frame is not None
    assert (await said(world, session_id))["figures"] == frame.json()["message"]["figures"]


async def test_what_nobody_knows_is_null_and_what_was_not_answered_has_no_figures(world):
    """No price is not a price of nothing, and a person's message took no tokens."""
    world.up.enqueue(answer("At once."))
    session_id = await world.api.new_session()
    await world.api.settled(await world.api.start(session_id, "Count", "up/next"))
    asked, answered = (await world.api.session(session_id))["messages"]

    assert "figures" not in asked
    assert (None, None) == (answered["figures"]["cost"], answered["figures"]["tokens_per_second"])


async def test_a_stopped_answer_has_figures_of_what_was_there(world):
    """Stopped early it still took its time and its tokens; these are estimated."""
    world.up.enqueue([Headers(), Role(), Delta("Some words "), Gate("never")])
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Count", "up/m")
    (await world.api.shown(run_id, "Some words ")).close()
    await world.api.stop(run_id)
    figures = (await said(world, session_id))["figures"]

    assert ("estimated", 3) == (figures["usage_source"], figures["output_tokens"])
    assert 0 < figures["ttft_ms"] <= figures["duration_ms"]


async def test_figures_survive_a_restart(up, tmp_path):
    """They are kept with the message."""
    up.enqueue(SLOW)
    async with serving(up, tmp_path, await asyncio.to_thread(SqliteStore, tmp_path / "figures.db")) as world:
        session_id = await world.api.new_session()
        await world.api.settled(await world.api.start(session_id, "Count", "up/m"))
        before = (await said(world, session_id))["figures"]
    async with serving(up, tmp_path, await asyncio.to_thread(SqliteStore, tmp_path / "figures.db")) as world:
        after = (await said(world, session_id))["figures"]

    assert before == after


async def test_the_steps_of_an_agent_tell_how_long_each_call_took_and_who_allowed_it(world):
    """A reader who comes later sees the cards that one who watched has seen."""
    calls = calling(("publish", {"text": "it"}), ("add", {"a": 1, "b": 2}), text="Wait. ")
    world.up.enqueue(calls, answer("Done."))
    session_id, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    await world.api.client.post(f"/api/runs/{run_id}/approvals/{asked['id']}", {"decision": "allow"})
    await world.api.settled(run_id)
    message = await said(world, session_id)
    publish, add = message["steps"][0]["tool_calls"]

    assert ("publish", "allow", "add", None) == (publish["name"], publish["decision"], add["name"], add["decision"])
    assert 0 <= add["seconds"] < 60
    assert message["figures"]["tokens_per_second"] is None
    assert message["figures"]["cost"] is not None


async def test_an_exported_session_comes_back_with_its_figures_left_out(world):
    """They were measured elsewhere, by someone who cannot be asked."""
    world.up.enqueue(answer("At once."))
    session_id = await world.api.new_session()
    await world.api.settled(await world.api.start(session_id, "Count", "up/m"))
    exported = await world.api.session(session_id)
    response = await world.api.client.post("/api/sessions/import", exported)
    imported = await Native(world.api.client).session((await response.json())["id"])

    assert ["Count", "At once."] == [message["content"] for message in imported["messages"]]
    assert all("figures" not in message for message in imported["messages"])
