"""Comparisons: several panes on one connection, each at its own pace, and one vote on what they said."""

import asyncio
import time
import urllib.parse
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.compare import EVENTS, Compare
from tests.support.http import Client
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import (
    Cut,
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    ReasoningDelta,
    Recorded,
    Role,
    Status,
    Step,
    Upstream,
    UsageChunk,
    answer,
)
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRICES = """
[prices]
"up/priced" = {input = 2.0, output = 10.0}

[fallbacks]
"up/broken" = "up/other"
"""


class World(NamedTuple):
    compare: Compare
    up: Upstream
    client: Client
    api: Native


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests: each has models and gates of its own."""
    async with Upstream() as up:
        providers = [provider(up.base_url, models=None), provider(up.base_url, name="closed")]
        async with Server(tmp_path_factory.mktemp("compare"), providers, config=PRICES) as server:
            async with server.client() as client:
                yield World(Compare(client), up, client, Native(client))


def asked(up: Upstream, model: str) -> list[Recorded]:
    return [request for request in up.requests if request.model == model]


def history(request: Recorded) -> list[tuple[str, str]]:
    return [(said["role"], said["content"]) for said in request.body["messages"]]


def gated(*texts: str, gate: str, then: str) -> list[Step]:
    """An answer that waits for its gate before the last text."""
    return [Headers(), Role(), *map(Delta, texts), Gate(gate), Delta(then), Finish(), UsageChunk(3, 2), Done()]


def silent() -> list[Step]:
    return [Headers(), Hang()]


def outcomes(kept: dict[str, Any]) -> list[str | None]:
    return [pane["settlement"]["outcome"] if pane["settlement"] else None for pane in kept["panes"]]


# Panes.


@requirement("cmp.panes")
@pytest.mark.parametrize("count", [1, 2, 8, 16])
async def test_every_pane_answers_on_the_one_connection(world, count):
    """Each frame says whose it is, each pane's events have their own numbers, and the connection counts its frames."""
    names = [f"up/echo:pane {number} of {count}" for number in range(count)]
    watched = await world.compare.begin(names)
    kept = await watched.end()

    assert [f"pane {number} of {count}" for number in range(count)] == [pane["text"] for pane in kept["panes"]]
    assert names == [pane["model"] for pane in kept["panes"]]
    assert "ABCDEFGHIJKLMNOP"[:count] == "".join(pane["label"] for pane in kept["panes"])
    assert [str(n) for n in range(1, len(watched.frames) + 1)] == [frame.id for frame in watched.frames]
    for number in range(count):
        own = [said for frame in watched.frames if (said := frame.json()).get("pane") == number]
        assert list(range(1, len(own) + 1)) == [said["seq"] for said in own]
        assert ["run.started", "run.settled"] == [own[0]["type"], own[-1]["type"]]
        assert {kept["panes"][number]["run_id"]} == {said["run"] for said in own}
    assert kept == await world.compare.get(kept["id"])
    assert ("settled", True, 1, None) == (kept["status"], kept["revealed"], kept["turns"], kept["vote"])


@requirement("cmp.panes")
async def test_one_pane_stops_by_its_run_without_the_others(world):
    """The stopped one settles at once; the other is told nothing of it and goes on to its end."""
    world.up.models["pace-a"] = gated("a1", gate="pace-a", then="a2")
    world.up.models["pace-b"] = gated("b1", gate="pace-b", then="b2")
    watched = await world.compare.begin(["up/pace-a", "up/pace-b"])
    await watched.said(0, "a1")
    await watched.said(1, "b1")

    stopped = await world.api.stop(watched.runs[0])
    assert "stopped" == stopped["settlement"]["outcome"]
    assert "stopped" == (await watched.until("run.settled", pane=0))["settlement"]["outcome"]
    world.up.open("pace-b")
    kept = await watched.end()

    assert ["stopped", "completed"] == outcomes(kept)
    assert ["a1", "b1b2"] == [pane["text"] for pane in kept["panes"]]
    assert kept["panes"][0]["settlement"]["partial"]


@requirement("cmp.panes")
async def test_a_second_reader_of_a_pane_may_leave(world):
    """A pane lives by the connection of its comparison, not by whoever looks at its run."""
    world.up.models["looked-at"] = gated("first", gate="looked-at", then=" last")
    watched = await world.compare.begin(["up/looked-at"])
    await watched.said(0, "first")

    reader = await world.api.shown(watched.runs[0], "first")
    reader.leave()
    world.up.open("looked-at")
    kept = await watched.end()

    assert ["completed"] == outcomes(kept)
    assert "first last" == kept["panes"][0]["text"]


@requirement("cmp.panes")
async def test_without_a_stream_the_answer_is_the_settled_comparison(world):
    """The same object that the last event of a stream carries."""
    world.up.models["thinks"] = [Headers(), Role(), ReasoningDelta("Hm."), Delta("So."), Finish(), Done()]
    kept = await world.compare.whole(["up/thinks", "up/echo:two"], system="Be brief.", params={"temperature": 0.5})

    assert ["So.", "two"] == [pane["text"] for pane in kept["panes"]]
    assert "Hm." == kept["panes"][0]["reasoning"]
    assert kept == await world.compare.get(kept["id"])
    request = asked(world.up, "thinks")[-1]
    assert [("system", "Be brief."), ("user", "Which wave?")] == history(request)
    assert 0.5 == request.body["temperature"]


@requirement("cmp.panes")
async def test_a_pane_has_seconds_of_its_own(world):
    """One that takes longer has failed, and the others are not touched by it."""
    world.up.models["too-slow"] = [Headers(), Role(), Delta("begun"), Hang()]
    kept = await world.compare.whole(["up/too-slow", "up/echo:quick"], timeout=6.0)

    assert ["failed", "completed"] == outcomes(kept)
    assert "deadline_exceeded" == kept["panes"][0]["settlement"]["error"]["code"]
    assert "begun" == kept["panes"][0]["text"]


# Leaving and stopping.


@requirement("cmp.stop-all")
@pytest.mark.parametrize("streams", [True, False])
async def test_leaving_closes_every_upstream_of_sixteen_silent_panes(world, streams):
    """At once, although nothing was ever said that could have failed to be sent."""
    names = [f"hush-{streams}-{number}" for number in range(16)]
    world.up.models.update({name: silent() for name in names})
    headers = {"Accept": "text/event-stream"} if streams else {}
    body = {"prompt": "Hush", "models": [f"up/{name}" for name in names]}
    response = await world.client.send("POST", "/api/comparisons", json=body, headers=headers)
    while len(open_now := [request for name in names for request in asked(world.up, name)]) < 16:
        await world.up.next_request()

    left_at = time.monotonic()
    response.leave()
    closed = [await request.wait_closed() for request in open_now]

    assert max(closed) - left_at < SOON
    (kept,) = [it for it in await listed(world) if it["panes"][0]["model"] == f"up/{names[0]}"]
    kept = await settled(world, kept["id"])
    assert {("stopped", "disconnect")} == {
        (it["settlement"]["outcome"], it["settlement"]["by"]) for it in kept["panes"]
    }


async def listed(world: World) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = (await world.api.get("/api/comparisons?limit=200"))["data"]
    return data


async def ids(world: World) -> list[str]:
    return [kept["id"] for kept in await listed(world)]


async def settled(world: World, comparison_id: str) -> dict[str, Any]:
    """Wait until what was stopped is written down."""
    async with asyncio.timeout(LONG):
        while (kept := await world.compare.get(comparison_id))["status"] == "running":  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.02)
    return kept


@requirement("cmp.stop-all")
async def test_stop_ends_every_pane_and_answers_with_what_they_had_said(world):
    """The stream ends properly: its client did not leave. A second stop changes nothing."""
    world.up.models["half-a"] = [Headers(), Role(), Delta("half"), Hang()]
    world.up.models["half-b"] = silent()
    watched = await world.compare.begin(["up/half-a", "up/half-b"])
    await watched.said(0, "half")

    stopped = await world.compare.post(f"{watched.path}/stop")
    assert {("stopped", "user")} == {(p["settlement"]["outcome"], p["settlement"]["by"]) for p in stopped["panes"]}
    assert ["half", ""] == [pane["text"] for pane in stopped["panes"]]
    assert stopped == await watched.end()
    assert stopped == await world.compare.post(f"{watched.path}/stop")


@requirement("cmp.stop-all")
async def test_deleting_stops_the_panes_and_leaves_nothing(world):
    """Neither the comparison nor a run of it can be found afterwards."""
    world.up.models["doomed"] = [Headers(), Role(), Delta("half"), Hang()]
    watched = await world.compare.begin(["up/doomed", "up/doomed"])
    await watched.said(0, "half")
    await watched.said(1, "half")

    assert 204 == (await world.client.request("DELETE", watched.path)).status
    for request in asked(world.up, "doomed"):
        await request.wait_closed()
    assert (404, "comparison_not_found") == await world.compare.refused(watched.path, method="GET")
    assert (404, "comparison_not_found") == await world.compare.refused(watched.path, method="DELETE")
    for run in watched.runs.values():
        assert (404, "run_not_found") == await world.compare.refused(f"/api/runs/{run}", method="GET")
    assert watched.comparison["id"] not in {kept["id"] for kept in await listed(world)}


# In sequence.


@requirement("cmp.sequential")
async def test_in_sequence_one_upstream_call_is_open_at_a_time(world):
    """The next pane is asked when the one before has settled, however that ended."""
    names = ["seq-a", "seq-b", "seq-c"]
    for name in names:
        world.up.models[name] = gated("begun", gate=name, then=" ended")
    world.up.models["seq-b"] = [Headers(), Role(), Gate("seq-b"), Cut()]
    watched = await world.compare.begin([f"up/{name}" for name in names], order="sequential")

    for number, name in enumerate(names):
        await world.up.reached(name)
        assert [1] * (number + 1) + [0] * (2 - number) == [len(asked(world.up, name)) for name in names]
        statuses = [pane["status"] for pane in (await world.compare.get(watched.comparison["id"]))["panes"]]
        assert ["settled"] * number + ["running"] + ["waiting"] * (2 - number) == statuses
        world.up.open(name)
    kept = await watched.end()

    assert ["completed", "failed", "completed"] == outcomes(kept)
    order = [(said["pane"], frame.event) for frame in watched.frames if "pane" in (said := frame.json())]
    assert order == sorted(order, key=lambda each: each[0])


@requirement("cmp.sequential")
async def test_a_sequence_can_be_stopped_before_its_panes_have_begun(world):
    """Those that waited are settled as stopped, and were never asked."""
    world.up.models["seq-first"] = [Headers(), Role(), Delta("half"), Hang()]
    watched = await world.compare.begin(["up/seq-first", "up/seq-never"], order="sequential")
    await watched.said(0, "half")
    await world.compare.post(f"{watched.path}/stop")
    kept = await watched.end()

    assert ["stopped", "stopped"] == outcomes(kept)
    assert kept["panes"][1]["run_id"] is None
    assert [] == asked(world.up, "seq-never")
    again = await world.compare.post(f"{watched.path}/panes/1/reroll")
    assert ["stopped", "completed"] == outcomes(again)
    assert [("user", "Which wave?")] == history(asked(world.up, "seq-never")[0])


# Votes.


@requirement("cmp.vote-once")
async def test_a_comparison_takes_one_vote(world):
    """The first vote is final, in a blind comparison and in an open one; it reveals the models."""
    for blind in (False, True):
        kept = await world.compare.whole(["up/echo:one", "up/echo:two"], blind=blind)
        assert [blind] * 2 == [pane["model"] is None for pane in kept["panes"]]
        voted = await world.compare.vote(kept, 1)

        assert 1 == voted["vote"]["winner"]
        assert voted["revealed"]
        assert {"up/echo:one", "up/echo:two"} == {pane["model"] for pane in voted["panes"]}
        for winner in (0, 1, "tie", "none"):
            path = f"/api/comparisons/{kept['id']}/vote"
            assert (409, "already_voted") == await world.compare.refused(path, {"winner": winner})
        assert voted == await world.compare.get(kept["id"])


@requirement("cmp.vote-once")
async def test_of_many_votes_at_once_one_counts(world):
    """Two tabs, one comparison."""
    kept = await world.compare.whole(["up/echo:one", "up/echo:two"])
    path = f"/api/comparisons/{kept['id']}/vote"
    answers = await asyncio.gather(*(world.client.post(path, {"winner": n % 2}) for n in range(8)))

    assert [200] + [409] * 7 == sorted(answer.status for answer in answers)
    (counted,) = [await answer.json() for answer in answers if answer.status == 200]
    assert counted["vote"] == (await world.compare.get(kept["id"]))["vote"]


@requirement("cmp.vote-once")
@pytest.mark.parametrize("winner", ["tie", "none"])
async def test_nobody_needs_to_win(world, winner):
    """All the same, or all bad."""
    kept = await world.compare.whole(["up/echo:one", "up/echo:two"], blind=True)

    assert winner == (await world.compare.vote(kept, winner))["vote"]["winner"]


@requirement("cmp.vote-once")
async def test_a_vote_that_makes_no_sense_is_refused(world):
    """And changes nothing: the comparison can still be voted on."""
    kept = await world.compare.whole(["up/echo:one", "up/echo:two"], blind=True)
    path = f"/api/comparisons/{kept['id']}/vote"
    for winner in (2, -1, 99, "A", "both", None, True, 0.5, [0]):
        status, _ = await world.compare.refused(path, {"winner": winner})
        assert 400 == status, winner
    assert (400, "invalid_request") == await world.compare.refused(path, {})

    assert kept == await world.compare.get(kept["id"])
    await world.compare.vote(kept, 0)


@requirement("cmp.vote-once")
async def test_no_vote_counts_while_a_pane_answers(world):
    """Nor can a turn or a new answer begin then."""
    world.up.models["slow"] = gated("s1", gate="slow-vote", then="s2")
    watched = await world.compare.begin(["up/slow", "up/echo:quick"])
    await watched.said(0, "s1")

    running = (409, "comparison_running")
    assert running == await world.compare.refused(f"{watched.path}/vote", {"winner": 1})
    assert running == await world.compare.refused(f"{watched.path}/turns", {"prompt": "And?"})
    assert running == await world.compare.refused(f"{watched.path}/panes/1/reroll")
    assert running == await world.compare.refused(f"{watched.path}/panes/1/swap", {"model": "up/echo:x"})
    world.up.open("slow-vote")
    await world.compare.vote(await watched.end(), 0)


@requirement("cmp.vote-once")
async def test_after_a_reveal_no_blind_vote_is_taken(world):
    """The names are known by then. Revealing twice is harmless."""
    kept = await world.compare.whole(["up/echo:one", "up/echo:two"], blind=True)
    path = f"/api/comparisons/{kept['id']}"
    first = await world.compare.post(f"{path}/reveal")

    assert {"up/echo:one", "up/echo:two"} == {pane["model"] for pane in first["panes"]}
    assert first == await world.compare.post(f"{path}/reveal")
    assert (409, "already_revealed") == await world.compare.refused(f"{path}/vote", {"winner": 0})
    assert first["vote"] is None


# Panes that did not complete.


@requirement("cmp.failed-pane")
async def test_a_pane_that_did_not_complete_can_neither_win_nor_be_fastest(world):
    """Failed, stopped, cut off or out of time: it is shown as such, however soon its first word came."""
    world.up.models["fails-fast"] = [Headers(), Role(), Delta("x"), Cut()]
    world.up.models["broken"] = [Status(500)]
    world.up.models["cut-off"] = answer("y", finish="length")
    world.up.models["hangs"] = [Headers(), Role(), Delta("z"), Hang()]
    world.up.models["slow-1"] = gated(gate="slow-1", then="one")
    world.up.models["slow-2"] = gated(gate="slow-2", then="two")
    names = ["fails-fast", "broken", "cut-off", "hangs", "slow-1", "slow-2"]
    watched = await world.compare.begin([f"up/{name}" for name in names])
    for _ in range(3):
        await watched.until("run.settled")
    await watched.said(3, "z")
    await world.api.stop(watched.runs[3])
    world.up.open("slow-2")
    await watched.until("run.settled", pane=5)
    world.up.open("slow-1")
    kept = await watched.end()

    assert ["failed", "failed", "truncated", "stopped", "completed", "completed"] == outcomes(kept)
    assert [False] * 5 + [True] == [pane["metrics"]["fastest"] for pane in kept["panes"]]
    for pane in range(4):
        path = f"{watched.path}/vote"
        assert (409, "pane_cannot_win") == await world.compare.refused(path, {"winner": pane})
    assert (await world.compare.get(kept["id"]))["vote"] is None
    assert 4 == (await world.compare.vote(kept, 4))["vote"]["winner"]


@requirement("cmp.failed-pane")
async def test_who_is_alone_in_completing_is_not_the_fastest(world):
    """A race needs two."""
    world.up.models["fails-alone"] = [Status(500)]
    kept = await world.compare.whole(["up/fails-alone", "up/echo:one"])

    assert ["failed", "completed"] == outcomes(kept)
    assert [False, False] == [pane["metrics"]["fastest"] for pane in kept["panes"]]
    assert kept["panes"][0]["metrics"]["ttft_ms"] is None
    assert kept["panes"][1]["metrics"]["ttft_ms"] > 0


@requirement("cmp.failed-pane")
async def test_nobody_answers_in_place_of_a_model_that_is_compared(world):
    """A fallback would be counted as the model that it stands in for."""
    world.up.models["broken"] = [Status(500)]
    kept = await world.compare.whole(["up/broken", "up/echo:one"])

    assert ["failed", "completed"] == outcomes(kept)
    assert [] == asked(world.up, "other")


async def test_an_answer_costs_what_the_settings_say(world):
    """Two for a million tokens in, ten for a million out; null where nobody has said a price."""
    world.up.models["priced"] = [Headers(), Role(), Delta("x"), Finish(), UsageChunk(1_000, 500), Done()]
    kept = await world.compare.whole(["up/priced", "up/echo:one"])

    priced, other = [pane["metrics"] for pane in kept["panes"]]
    assert (1_000, 500, "provider") == (priced["input_tokens"], priced["output_tokens"], priced["usage_source"])
    assert 0.007 == pytest.approx(priced["cost"])
    assert other["cost"] is None


# Turns, new answers, other models.


@requirement("cmp.reroll-fresh")
async def test_every_pane_keeps_its_own_history_over_turns(world):
    """Each model sees its own answers and no other's."""
    world.up.models["turn-a"] = answer("from a")
    world.up.models["turn-b"] = answer("from b")
    kept = await world.compare.whole(["up/turn-a", "up/turn-b"], prompt="One?")
    watched = await world.compare.watch(f"/api/comparisons/{kept['id']}/turns", {"prompt": "Two?"})
    after = await watched.end()

    for name in ("a", "b"):
        expected = [("user", "One?"), ("assistant", f"from {name}"), ("user", "Two?")]
        assert expected == history(asked(world.up, f"turn-{name}")[-1])
    assert (2, ["One?", "Two?"], "One?") == (after["turns"], after["prompts"], after["prompt"])
    assert ["completed", "completed"] == outcomes(after)
    earlier = [[{"text": f"from {name}", "outcome": "completed"}] for name in ("a", "b")]
    assert [[], []] == [pane["earlier"] for pane in kept["panes"]]
    assert earlier == [pane["earlier"] for pane in watched.comparison["panes"]]
    assert earlier == [pane["earlier"] for pane in after["panes"]]


@requirement("cmp.reroll-fresh")
async def test_a_new_answer_is_given_without_sight_of_the_old_one(world):
    """In the first turn and in a later one; the other pane keeps its answer."""
    world.up.models["again"] = answer("first try")
    kept = await world.compare.whole(["up/again", "up/echo:other"], prompt="One?", blind=True)
    path = f"/api/comparisons/{kept['id']}"
    number = next(pane["pane"] for pane in kept["panes"] if pane["text"] == "first try")
    world.up.models["again"] = answer("second try")
    watched = await world.compare.watch(f"{path}/panes/{number}/reroll", {})
    after = await watched.end()

    assert [("user", "One?")] == history(asked(world.up, "again")[-1])
    assert {number} == {said["pane"] for frame in watched.frames if "pane" in (said := frame.json())}
    assert {"second try", "other"} == {pane["text"] for pane in after["panes"]}
    await world.compare.post(f"{path}/turns", {"prompt": "Two?"})
    world.up.models["again"] = answer("fourth try")
    await world.compare.post(f"{path}/panes/{number}/reroll")
    expected = [("user", "One?"), ("assistant", "second try"), ("user", "Two?")]
    assert expected == history(asked(world.up, "again")[-1])


@requirement("cmp.reroll-fresh")
async def test_another_model_starts_from_the_prompts_alone(world):
    """It is not shown what the model before it has said, and so answers for itself."""
    world.up.models["before"] = answer("old words")
    world.up.models["after"] = answer("new words")
    kept = await world.compare.whole(["up/before", "up/echo:other"], prompt="One?")
    path = f"/api/comparisons/{kept['id']}"
    await world.compare.post(f"{path}/turns", {"prompt": "Two?"})
    swapped = await world.compare.post(f"{path}/panes/0/swap", {"model": "up/after"})

    assert [("user", "One?\n\nTwo?")] == history(asked(world.up, "after")[0])
    assert ["up/after", "up/echo:other"] == [pane["model"] for pane in swapped["panes"]]
    assert "new words" == swapped["panes"][0]["text"]
    await world.compare.post(f"{path}/turns", {"prompt": "Three?"})
    expected = [("user", "One?\n\nTwo?"), ("assistant", "new words"), ("user", "Three?")]
    assert expected == history(asked(world.up, "after")[-1])


@requirement("cmp.reroll-fresh", "cmp.vote-once")
async def test_what_was_voted_on_stays(world):
    """No new answer and no other model after the vote; a further turn is one, and does not change what was decided."""
    world.up.models["decided"] = answer("good")
    kept = await world.compare.whole(["up/decided", "up/echo:other"])
    path = f"/api/comparisons/{kept['id']}"
    voted = await world.compare.vote(kept, 0)

    decided = (409, "already_decided")
    assert decided == await world.compare.refused(f"{path}/panes/0/reroll")
    assert decided == await world.compare.refused(f"{path}/panes/0/swap", {"model": "up/echo:x"})
    world.up.models["decided"] = [Status(500)]
    after = await world.compare.post(f"{path}/turns", {"prompt": "Two?"})
    assert ["failed", "completed"] == outcomes(after)
    assert voted["vote"] == after["vote"]


async def test_from_a_pane_a_session_goes_on(world):
    """With its history and its model, and apart from the comparison; not before the reveal."""
    world.up.models["goes-on"] = answer("its words")
    kept = await world.compare.whole(["up/goes-on", "up/goes-on"], prompt="One?", system="Be brief.", blind=True)
    path = f"/api/comparisons/{kept['id']}"
    assert (409, "still_blind") == await world.compare.refused(f"{path}/panes/0/continue")
    assert (409, "still_blind") == await world.compare.refused(f"{path}/panes/0/swap", {"model": "up/echo:x"})
    await world.compare.vote(kept, 0)
    session = await world.compare.post(f"{path}/panes/0/continue", {"title": "Further"}, status=201)

    assert ("Further", "up/goes-on", "Be brief.") == (session["title"], session["model"], session["system"])
    opened = await world.api.session(session["id"])
    assert [("One?", None), ("its words", "up/goes-on")] == [(it["content"], it["model"]) for it in opened["messages"]]
    run = await world.api.start(session["id"], "Two?", "up/goes-on")
    await world.api.settled(run)
    assert 204 == (await world.client.request("DELETE", path)).status
    assert 4 == len((await world.api.session(session["id"]))["messages"])


# What belongs to a comparison is found through it.


async def test_the_session_of_a_pane_is_in_no_list_and_behind_no_door(world):
    """It could be changed there behind the comparison's back."""
    kept = await world.compare.whole(["up/echo:hidden words"], prompt="A hidden prompt")
    run = await world.api.run(kept["panes"][0]["run_id"])
    session = f"/api/sessions/{run['session_id']}"

    for query in ("", "hidden"):
        found = (await world.api.get(f"/api/sessions?limit=200&query={query}"))["sessions"]
        assert run["session_id"] not in {it["id"] for it in found}
    missing = (404, "session_not_found")
    assert missing == await world.compare.refused(session, method="GET")
    assert missing == await world.compare.refused(session, {"title": "x"}, method="PATCH")
    assert missing == await world.compare.refused(session, method="DELETE")
    assert missing == await world.compare.refused(f"{session}/runs", {"input": "x"})
    assert missing == await world.compare.refused(f"{session}/fork", {"message_id": run["message_id"]})
    assert missing == await world.compare.refused(f"{session}/events", method="GET")
    feeds = [await world.client.get(f"/api/events?session={id}") for id in (run["session_id"], "ses_none")]
    pane, nobody = [await feed.next_event() for feed in feeds]
    assert pane is not None
    assert pane.json() | {"session_id": "ses_none"} == nobody.json()
    named = {"messages": [{"role": "user", "content": "x"}], "model": "up/echo:y", "session_id": run["session_id"]}
    assert 200 == (await world.client.post("/v1/chat/completions", named)).status
    assert kept == await world.compare.get(kept["id"])


async def test_comparisons_are_listed_newest_first_without_texts(world):
    """Page after page, and only those of a kind where one is named."""
    made = [
        await world.compare.whole([f"up/echo:unlisted {n}"], kind="odd" if n % 2 else "even-list") for n in range(5)
    ]
    first = await world.api.get("/api/comparisons?limit=2&kind=even-list")
    assert [made[4]["id"], made[2]["id"]] == [it["id"] for it in first["data"]]
    assert first["has_more"]
    rest = await world.api.get(f"/api/comparisons?limit=2&kind=even-list&before={made[2]['id']}")
    assert ([made[0]["id"]], False) == ([it["id"] for it in rest["data"]], rest["has_more"])
    assert "text" not in first["data"][0]["panes"][0]
    assert {"outcome": "completed", "by": None, "finish_reason": "stop", "error": None} == first["data"][0]["panes"][0][
        "settlement"
    ]


async def test_comparisons_are_found_by_the_words_of_their_prompts(world):
    """Of every turn, in any order, by their beginnings and without accents, as in the search for chats."""
    first = await world.compare.whole(["up/echo:found"], prompt="Why is the Größte Zandervogel blue?")
    other = await world.compare.whole(["up/echo:found"], prompt="Why is the sky blue?")

    async def found(query: str) -> list[str]:
        query = urllib.parse.quote(query)
        return [it["id"] for it in (await world.api.get(f"/api/comparisons?query={query}"))["data"]]

    assert [first["id"]] == await found("blue zander")
    assert [first["id"]] == await found("grosste")
    assert [other["id"], first["id"]] == (await found("why blue"))[:2]
    assert [] == await found("zandervogel sky")
    assert [] == await found("?!")


@pytest.mark.parametrize(
    ("wanted", "status", "code"),
    [
        ({"models": []}, 400, "invalid_request"),
        ({"models": ["up/echo:x"] * 17}, 400, "invalid_request"),
        ({"models": ["up/echo:x", "nobody/echo"]}, 404, "model_not_found"),
        ({"prompt": " "}, 400, "invalid_request"),
        ({"prompt": []}, 400, "invalid_request"),
        ({"prompt": [{"text": "no type"}]}, 400, "invalid_request"),
        ({"kind": "x" * 65}, 400, "invalid_request"),
        ({"kind": ""}, 400, "invalid_request"),
        ({"order": "random"}, 400, "invalid_request"),
        ({"timeout": 0}, 400, "invalid_request"),
        ({"params": {"model": "up/echo:y"}}, 400, "invalid_request"),
        ({"params": {"n": 2}}, 400, "invalid_request"),
        ({"colour": "red"}, 400, "invalid_request"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_leaves_nothing(world, wanted, status, code):
    """Neither a comparison nor a run, and no upstream is asked."""
    before = await ids(world), len(world.up.requests)
    body = {"prompt": "Hi", "models": ["up/echo:x"]} | wanted

    assert (status, code) == await world.compare.refused("/api/comparisons", body)
    assert before == (await ids(world), len(world.up.requests))


async def test_what_is_not_there_is_not_found(world):
    """Neither an unknown comparison nor a pane beyond the last."""
    kept = await world.compare.whole(["up/echo:x"])
    for pane in ("1", "-1", "x", "99999", "٣"):
        path = f"/api/comparisons/{kept['id']}/panes/{pane.encode().hex() if not pane.isascii() else pane}"
        assert (404, "pane_not_found") == await world.compare.refused(f"{path}/reroll")
        assert (404, "pane_not_found") == await world.compare.refused(f"{path}/swap", {"model": "up/echo:y"})
        assert (404, "pane_not_found") == await world.compare.refused(f"{path}/continue")
    for call in ("turns", "stop", "vote", "reveal", "panes/0/reroll"):
        assert (404, "comparison_not_found") == await world.compare.refused(f"/api/comparisons/cmp_none/{call}")


# At the same time.


@requirement("cmp.stop-all")
async def test_who_leaves_at_once_leaves_nothing_running(world):
    """Before the first byte of an answer, and at any step of the start: no pane is left to nobody."""
    names = [f"at-once-{number}" for number in range(8)]
    world.up.models.update({name: silent() for name in names})
    body = {"prompt": "Hush", "models": [f"up/{name}" for name in names]}
    for streams in (True, False):
        for how in ("fin", "rst"):
            headers = {"Accept": "text/event-stream"} if streams else {}
            response = await world.client.send("POST", "/api/comparisons", json=body, headers=headers)
            response.leave(how)

    await world.compare.whole(["up/echo:somebody who stays"])  # by the time of which the others have been heard
    mine = [kept["id"] for kept in await listed(world) if kept["panes"][0]["model"] == "up/at-once-0"]
    assert mine
    for comparison_id in mine:
        kept = await settled(world, comparison_id)
        assert {("stopped", "disconnect")} == {
            (pane["settlement"]["outcome"], pane["settlement"]["by"]) for pane in kept["panes"]
        }
    for request in (request for name in names for request in asked(world.up, name)):
        await request.wait_closed()


@requirement("cmp.reroll-fresh")
async def test_of_two_turns_at_once_one_is_asked(world):
    """The other is told that panes are still answering."""
    world.up.models["twice"] = answer("once")
    kept = await world.compare.whole(["up/twice"])
    world.up.models["twice"] = gated("x", gate="twice", then="y")
    path = f"/api/comparisons/{kept['id']}/turns"
    both = [asyncio.create_task(world.client.post(path, {"prompt": f"turn {n}"})) for n in range(2)]
    await world.up.reached("twice")
    (first,), _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    world.up.open("twice")
    answers = [await task for task in both]

    assert 409 == first.result().status
    assert "comparison_running" == (await first.result().json())["error"]["code"]
    assert [200, 409] == sorted(answer.status for answer in answers)
    assert 2 == (await world.compare.get(kept["id"]))["turns"]
    assert 2 == len(asked(world.up, "twice"))


async def test_a_prompt_may_have_parts(world):
    """They are asked as they are, shown as they are, and taken along into a session."""
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png,x"}}]
    kept = await world.compare.whole(["up/parted"], prompt=parts)

    assert parts == asked(world.up, "parted")[0].body["messages"][0]["content"]
    assert (parts, [parts]) == (kept["prompt"], kept["prompts"])
    session = await world.compare.post(f"/api/comparisons/{kept['id']}/panes/0/continue", status=201)
    assert "What is this?" == session["title"]
    assert parts == (await world.api.session(session["id"]))["messages"][0]["content"]


async def test_a_silent_comparison_says_that_it_is_alive(tmp_path):
    """With a comment, so that no proxy takes it for dead."""
    async with (
        Upstream() as up,
        Server(tmp_path, [provider(up.base_url, models=None)], config="heartbeat = 0.3") as server,
    ):
        up.models["silent"] = silent()
        async with server.client() as client:
            watched = await Compare(client).begin(["up/silent"])
            await watched.until("run.started")
            frame = await watched.response.next_event(comments=True)

            assert frame is not None
            assert "comment" == frame.kind


@requirement("safe.run-limit")
async def test_every_pane_counts_as_a_start(tmp_path):
    """A comparison is no way around the limit of starts in a minute."""
    config = "starts_per_minute = 4"
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], config=config) as server:
        async with server.client() as client:
            compare = Compare(client)
            await compare.whole(["up/echo:x"] * 3)
            body = {"prompt": "Hi", "models": ["up/echo:x"] * 3}

            assert (429, "rate_limited") == await compare.refused("/api/comparisons", body)
            assert 1 == len((await Native(client).get("/api/comparisons"))["data"])
            assert 3 == len(up.requests)


# after the reveal, and a key


async def models_of_runs(world: World, kept: dict[str, Any]) -> list[str]:
    """What the list and the run itself call the models of a comparison's panes, in the order of the panes."""
    listed = {run["id"]: run["model"] for run in (await world.api.get("/api/runs?limit=200"))["runs"]}
    runs = [await world.api.run(pane["run_id"]) for pane in kept["panes"]]
    assert [run["model"] for run in runs] == [listed[run["id"]] for run in runs]
    return [run["model"] for run in runs]


@requirement("cmp.blind")
async def test_runs_bear_their_models_names_once_these_are_revealed_and_never_before(world):
    """Also a run that was answered again, and one whose pane has another model by now; what it cost comes then too."""
    world.up.models["priced"] = [Headers(), Role(), Delta("Priced."), Finish(), UsageChunk(1000, 500), Done()]
    kept = await world.compare.whole(["up/priced", "up/echo:b"], blind=True)
    first = [pane["run_id"] for pane in kept["panes"]]
    kept = await world.compare.post(f"/api/comparisons/{kept['id']}/panes/0/reroll")
    assert ["blind/A", "blind/B"] == await models_of_runs(world, kept)
    assert [None, None] == [(await world.api.run(run))["cost"] for run in first]

    told = await world.compare.post(f"/api/comparisons/{kept['id']}/reveal")
    models = [pane["model"] for pane in told["panes"]]
    assert {"up/priced", "up/echo:b"} == set(models)
    assert models == await models_of_runs(world, kept)
    assert models == [(await world.api.run(run))["model"] for run in first]
    priced = models.index("up/priced")
    assert 0.007 == pytest.approx((await world.api.run(told["panes"][priced]["run_id"]))["cost"])
    swapped = await world.compare.post(f"/api/comparisons/{kept['id']}/panes/0/swap", {"model": "up/echo:c"})
    assert [models[0], "up/echo:c"] == [
        (await world.api.run(run))["model"] for run in (first[0], swapped["panes"][0]["run_id"])
    ]


@requirement("sub.figures")
async def test_a_run_tells_what_it_cost_where_its_models_price_is_known(world):
    """Where its usage is told: alone, in lists, and as soon as it has settled; before that there is nothing to tell."""
    world.up.models["priced"] = [Headers(), Role(), Delta("x"), Gate("cost"), Finish(), UsageChunk(1000, 500), Done()]
    session = await world.api.new_session()
    run = await world.api.start(session, "Go", "up/priced")
    assert None is (await world.api.run(run))["cost"]
    world.up.open("cost")
    await world.api.settled(run)
    free = await world.api.start(session, "Go", "up/echo:free")
    await world.api.settled(free)
    listed = await world.api.get(f"/api/runs?session_id={session}")

    assert 0.007 == pytest.approx((await world.api.run(run))["cost"])
    assert {run: pytest.approx(0.007), free: None} == {each["id"]: each["cost"] for each in listed["runs"]}


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


@requirement("start.idempotent", "cmp.panes")
async def test_a_comparison_that_is_asked_for_twice_with_one_key_is_made_once(world):
    """Models are asked once, whoever asks again is shown the same, and another request with that key is refused."""
    body = {"prompt": "Twice?", "models": ["up/echo:twice", "up/echo:too"]}
    answers = await asyncio.gather(
        *(world.client.post("/api/comparisons", body, headers=keyed("cmp-once")) for _ in range(5))
    )
    told = [await response.json() for response in answers]
    later = await (await world.client.post("/api/comparisons", body, headers=keyed("cmp-once"))).json()
    streamed = await world.client.post("/api/comparisons", body, headers=keyed("cmp-once") | EVENTS)
    frames = await streamed.all_events()
    other = await world.client.post("/api/comparisons", body | {"prompt": "Else"}, headers=keyed("cmp-once"))

    assert [200] * 5 == [response.status for response in answers]
    assert {told[0]["id"]} == {each["id"] for each in [*told, later]}
    assert ["twice", "too"] == [pane["text"] for pane in later["panes"]]
    assert ["comparison.started", "comparison.settled"] == [frame.event for frame in frames]
    assert later == frames[-1].json()["comparison"]
    assert (1, 1) == (len(asked(world.up, "echo:twice")), len(asked(world.up, "echo:too")))
    assert (409, "idempotency_conflict") == (other.status, (await other.json())["error"]["code"])


@requirement("start.idempotent", "cmp.panes")
async def test_who_asks_again_meanwhile_sees_the_panes_and_may_leave(world):
    """The panes live by the connection that began them; a deleted comparison takes its key with it."""
    world.up.models["held"] = gated("Half", gate="again", then=" whole")
    body = {"prompt": "Again?", "models": ["up/held"]}
    first = await world.client.post("/api/comparisons", body, headers=keyed("cmp-again") | EVENTS)
    began = (await first.next_event()).json()["comparison"]
    for _ in range(2):
        second = await world.client.post("/api/comparisons", body, headers=keyed("cmp-again") | EVENTS)
        assert began["id"] == (await second.next_event()).json()["comparison"]["id"]
        while (await second.next_event()).event != "text.delta":
            pass
        second.close()
    world.up.open("again")
    settled = (await first.all_events())[-1].json()["comparison"]

    assert [("completed", "Half whole")] == [(each["settlement"]["outcome"], each["text"]) for each in settled["panes"]]
    assert 1 == len(asked(world.up, "held"))
    assert 204 == (await world.client.request("DELETE", f"/api/comparisons/{began['id']}")).status
    anew = await (await world.client.post("/api/comparisons", body, headers=keyed("cmp-again"))).json()
    assert began["id"] != anew["id"]
    assert 2 == len(asked(world.up, "held"))


@requirement("start.idempotent", "safe.run-limit")
async def test_a_key_of_a_comparison_that_was_refused_can_be_used_again(world):
    """What was refused has made nothing, so that its key stands for nothing."""
    bad = {"prompt": "Go", "models": ["nowhere/m"]}
    refused = await world.client.post("/api/comparisons", bad, headers=keyed("cmp-refused"))
    good = {"prompt": "Go", "models": ["up/echo:good"]}
    made = await world.client.post("/api/comparisons", good, headers=keyed("cmp-refused"))

    assert 404 == refused.status
    assert 200 == made.status, await made.text()
