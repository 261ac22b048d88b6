"""Approvals: what a tool may do is asked in the stream and answered by a person, whenever that person comes."""

import asyncio

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store import Document
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from tests.requirements import requirement
from tests.support.agents import check_anthropic, check_openai, serving
from tests.support.native import Native
from tests.support.server import NODES, Server, provider
from tests.support.upstream import Hang, Headers, Role, Upstream, answer, calling

PUBLISH = calling(("publish", {"text": "it"}))


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def world(up, tmp_path):
    async with serving(up, tmp_path) as served:
        yield served


async def decide(api, run_id, approval_id, decision="allow", **more):
    return await api.client.post(f"/api/runs/{run_id}/approvals/{approval_id}", {"decision": decision, **more})


async def test_a_call_is_asked_for_and_runs_when_it_is_allowed(world):
    """Nothing happens before the answer; the stream tells what is asked, and what was answered."""
    world.up.enqueue(PUBLISH, answer("Done."))
    _, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    before = list(world.state.called)
    response = await decide(world.api, run_id, asked["id"], note="Go ahead.")
    frames = await world.api.replay(run_id)

    assert ("publish", '{"text": "it"}', "call_0") == (asked["tool"], asked["arguments"], asked["call"])
    assert asked["expires_at"] > 0
    assert [] == before
    assert 200 == response.status
    assert ["publish it"] == world.state.called
    decided = next(frame.json() for frame in frames if frame.event == "approval.decided")
    assert (asked["id"], "allow", "Go ahead.") == (decided["id"], decided["decision"], decided["note"])
    assert "completed" == frames[-1].json()["settlement"]["outcome"]


async def test_a_chat_and_a_run_that_wait_for_approval_are_listed_as_such(world):
    """Someone who looks at another chat sees that an agent needs them: it is not simply running."""
    world.up.enqueue(PUBLISH, answer("Done."))
    session_id, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    waiting = await _listed(world.api, session_id), await world.api.get(f"/api/runs/{run_id}")
    await decide(world.api, run_id, asked["id"])
    await world.api.settled(run_id)
    ended = await _listed(world.api, session_id), await world.api.get(f"/api/runs/{run_id}")

    assert [True, True] == [each["needs_approval"] for each in waiting]
    assert [False, False] == [each["needs_approval"] for each in ended]


async def _listed(api, session_id):
    sessions = (await api.get("/api/sessions"))["sessions"]
    return next(each for each in sessions if each["id"] == session_id)


async def test_a_call_that_is_denied_does_not_run_and_the_model_is_told_why(world):
    """A no with a reason lets the model look for another way."""
    world.up.enqueue(PUBLISH, answer("I see."))
    session_id, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    await decide(world.api, run_id, asked["id"], "deny", note="Not on a Friday.")
    settlement = await world.api.settled(run_id)
    told = world.up.requests[-1].body["messages"][-1]["content"]

    assert [] == world.state.called
    assert "denied" in told
    assert "Not on a Friday." in told
    assert "completed" == settlement["outcome"]
    check_openai(await world.next_turn(session_id))


async def test_a_tool_that_the_settings_deny_is_never_asked_for(up, tmp_path):
    """The settings have the last word, over the tool's own too."""
    async with serving(up, tmp_path, approvals={"publish": "deny"}) as world:
        up.enqueue(PUBLISH, answer("I see."))
        _, run_id = await world.start()
        frames = await world.api.replay(run_id)

    assert [] == world.state.called
    assert "approval.requested" not in [frame.event for frame in frames]
    assert "the settings deny it" in up.requests[-1].body["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("scope", "same_session", "other_session"), [("once", 1, 1), ("session", 0, 1), ("always", 0, 0)]
)
async def test_an_answer_holds_once_for_the_session_or_always(world, scope, same_session, other_session):
    """Nobody wants to be asked ten times, and nobody wants to have said yes to everything."""
    world.up.enqueue(PUBLISH, answer("Done."))
    session_id, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    assert 200 == (await decide(world.api, run_id, asked["id"], scope=scope)).status
    await world.api.settled(run_id)

    assert same_session == await _asked_again(world, session_id)
    assert other_session == await _asked_again(world, await world.api.new_session())


async def test_what_was_allowed_is_listed_and_can_be_taken_back(world):
    """A yes for good is not for ever; one for a session goes with the session."""
    world.up.enqueue(PUBLISH, answer("Done."))
    session_id, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    await decide(world.api, run_id, asked["id"], scope="always")
    await world.api.settled(run_id)
    (grant,) = (await world.api.get("/api/grants"))["grants"]
    gone = await world.api.client.request("DELETE", f"/api/grants/{grant['id']}")
    again = await world.api.client.request("DELETE", f"/api/grants/{grant['id']}")

    assert ("helper", "publish", None) == (grant["agent"], grant["tool"], grant["session_id"])
    assert (204, 404) == (gone.status, again.status)
    assert 1 == await _asked_again(world, session_id)


async def test_what_was_allowed_for_a_session_goes_with_it(world):
    """Nothing of a deleted session stays behind."""
    world.up.enqueue(PUBLISH, answer("Done."))
    session_id, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    await decide(world.api, run_id, asked["id"], scope="session")
    await world.api.settled(run_id)
    before = (await world.api.get("/api/grants"))["grants"]
    await world.api.client.request("DELETE", f"/api/sessions/{session_id}")

    assert [session_id] == [grant["session_id"] for grant in before]
    assert [] == (await world.api.get("/api/grants"))["grants"]


class GrantStore(MemoryStore):
    """Takes its time to save a grant, and fails as often as the test says."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.failures = failures

    async def put_document(self, document: Document, expected_version: int | None = None) -> Document:
        if document.kind == "grant":
            await asyncio.sleep(0.2)  # a slow disk
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("The disk is full.")
        return await super().put_document(document, expected_version)


@requirement("safe.grant-saved")
@pytest.mark.parametrize("scope", ["session", "always"])
async def test_an_answer_for_longer_than_once_is_confirmed_when_its_grant_is_saved(up, tmp_path, scope):
    """200 means that a crash right after it forgets nothing."""
    async with serving(up, tmp_path, GrantStore()) as world:
        up.enqueue(PUBLISH, answer("Done."))
        _, run_id = await world.start()
        asked = await world.until(run_id, "approval.requested")
        response = await decide(world.api, run_id, asked["id"], scope=scope)
        grants = (await world.api.get("/api/grants"))["grants"]

    assert 200 == response.status
    assert [("helper", "publish")] == [(grant["agent"], grant["tool"]) for grant in grants]


@requirement("safe.grant-saved")
async def test_an_answer_whose_grant_cannot_be_saved_is_refused_and_can_be_given_again(up, tmp_path):
    """The call has not run, and the person is told that nothing was kept."""
    async with serving(up, tmp_path, GrantStore(failures=1)) as world:
        up.enqueue(PUBLISH, answer("Done."))
        _, run_id = await world.start()
        asked = await world.until(run_id, "approval.requested")
        refused = await decide(world.api, run_id, asked["id"], scope="always")
        error = (await refused.json())["error"]
        called, grants = list(world.state.called), (await world.api.get("/api/grants"))["grants"]
        again = await decide(world.api, run_id, asked["id"], scope="always")
        settlement = await world.api.settled(run_id)

    assert (503, "store_unavailable") == (refused.status, error["code"])
    assert ([], []) == (called, grants)
    assert 200 == again.status
    assert ["publish it"] == world.state.called
    assert "completed" == settlement["outcome"]


async def _asked_again(world, session_id) -> int:
    """How often the next run asks; whatever it asks is denied."""
    world.up.enqueue(PUBLISH, answer("Done."))
    run_id = await world.api.start(session_id, "Again", "agent/helper")
    reader, times = await world.api.events(run_id), 0
    while (frame := await reader.next_event()) is not None:
        if frame.event == "approval.requested":
            times += 1
            await decide(world.api, run_id, frame.json()["id"], "deny")
    return times


async def test_calls_side_by_side_are_asked_for_one_by_one_and_others_run_meanwhile(world):
    """An answer is for one call; a call that needs none does not wait."""
    world.up.enqueue(calling(("publish", {"text": "a"}), ("add", {"a": 1, "b": 1}), ("publish", {"text": "b"})))
    world.up.enqueue(answer("Done."))
    _, run_id = await world.start()
    reader, asked, results = await world.api.events(run_id), {}, []
    while len(asked) < 2 or not results:
        frame = await reader.next_event()
        if frame.event == "approval.requested":
            asked[frame.json()["call"]] = frame.json()["id"]
        elif frame.event == "tool.result":
            results.append(frame.json()["id"])
    await decide(world.api, run_id, asked["call_2"])
    await decide(world.api, run_id, asked["call_0"], "deny")
    await world.api.settled(run_id)
    shown = world.up.requests[-1].body["messages"]
    told = {said["tool_call_id"]: said["content"] for said in shown if said["role"] == "tool"}

    assert ["call_1"] == results
    assert ["add", "publish b"] == world.state.called
    assert ("2", "published b") == (told["call_1"], told["call_2"])
    assert "denied" in told["call_0"]


async def test_a_stale_answer_is_a_conflict_and_an_unknown_one_is_not_there(world):
    """The first answer stands, and nothing is done twice."""
    world.up.enqueue(PUBLISH, answer("Done."))
    _, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    first, second = await asyncio.gather(
        decide(world.api, run_id, asked["id"]), decide(world.api, run_id, asked["id"], "deny")
    )
    await world.api.settled(run_id)
    late = await decide(world.api, run_id, asked["id"])
    unknown = await decide(world.api, run_id, "apr_unknown")
    bad = await decide(world.api, run_id, asked["id"], "perhaps")

    assert [200, 409] == sorted([first.status, second.status])
    assert 409 == late.status
    assert "stale_approval" == (await late.json())["error"]["code"]
    assert (404, 400) == (unknown.status, bad.status)
    assert len(world.state.called) <= 1


async def test_a_deny_for_good_and_a_session_that_is_none_are_refused(world):
    """What is not kept is not accepted as if it were."""
    world.up.enqueue(PUBLISH, answer("Done."))
    _, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")

    assert 400 == (await decide(world.api, run_id, asked["id"], "deny", scope="always")).status
    assert 200 == (await decide(world.api, run_id, asked["id"])).status


async def test_a_run_that_waits_can_be_stopped_at_once(world):
    """The call did not run, which is certain, and history says so."""
    world.up.enqueue(PUBLISH)
    session_id, run_id = await world.start()
    asked = await world.until(run_id, "approval.requested")
    stopped = await world.api.stop(run_id)
    late = await decide(world.api, run_id, asked["id"])
    shown = await world.next_turn(session_id)

    assert ("stopped", "user") == (stopped["settlement"]["outcome"], stopped["settlement"]["by"])
    assert 409 == late.status
    assert [] == world.state.called
    assert "waiting for an approval and did not run" in shown[2]["content"]
    check_openai(shown)
    check_anthropic(shown)


async def test_an_approval_expires_and_the_run_says_so(up, tmp_path):
    """A question that nobody answers ends the run truthfully: it has failed, and nothing ran."""
    async with serving(up, tmp_path, approval_timeout=0.3) as world:
        up.enqueue(PUBLISH)
        session_id, run_id = await world.start()
        settlement = await world.api.settled(run_id)
        check_openai(await world.next_turn(session_id))

    assert ("failed", "approval_expired") == (settlement["outcome"], settlement["error"]["code"])
    assert [] == world.state.called


async def test_waiting_is_no_silence_and_costs_no_time(up, tmp_path):
    """Neither the idle limit nor the deadline nor the agent's time ends a run that only waits for a person."""
    limits = {"idle_limit": 2.0, "deadline": 2.0}
    async with serving(up, tmp_path, settings=limits, max_seconds=2.0) as world:
        up.enqueue(PUBLISH, [Headers(), Role(), Hang()], answer("Done."))
        _, run_id = await world.start()
        asked = await world.until(run_id, "approval.requested")
        later = await world.api.start(await world.api.new_session(), "Hi", "up/next")
        silent = await world.api.settled(later)
        await decide(world.api, run_id, asked["id"])
        settlement = await world.api.settled(run_id)

    assert "failed" == silent["outcome"], "it began later, and has reached its limits"
    assert "completed" == settlement["outcome"]
    assert ["publish it"] == world.state.called


# Restarts. The shell is the tool that a real server has; it writes a line each time that it runs.


AGENT = """
[[agents]]
name = "helper"
model = "up/m"
tools = ["shell"]
folder = "{folder}"
"""
RUN = calling(("shell", {"command": "echo ran >> runs"}))


@requirement("crash.no-repeat")
@pytest.mark.parametrize("how", ["sigterm", "kill9"])
async def test_a_run_that_waits_goes_on_waiting_after_a_restart(up, tmp_path, how):
    """Approvals may take a day. Neither an update of the server nor its death takes the question back."""
    folder = tmp_path / "work"
    folder.mkdir()
    up.enqueue(RUN, answer("Done."))
    config = AGENT.format(folder=folder)
    async with Server(tmp_path, [provider(up.base_url, models=["m"])], config=config) as server:
        async with server.client() as client:
            api = Native(client)
            session_id = await api.new_session()
            run_id = await api.start(session_id, "Go", "agent/helper")
            reader = await api.events(run_id)
            while (frame := await reader.next_event()).event != "approval.requested":
                pass
            if how == "kill9":
                await server.kill9()
            else:
                await server.terminate()
            await server.restart()
        async with server.client() as client:
            api = Native(client)
            going_on = await api.run(run_id)
            assert not (folder / "runs").exists()
            response = await decide(api, run_id, frame.json()["id"])
            while response.status in (409, 504):  # it is being taken up, or still counted as the dead node's
                response = await decide(api, run_id, frame.json()["id"])
            frames = await api.replay(run_id)

    assert "running" == going_on["status"]
    assert 200 == response.status
    assert "ran\n" == (folder / "runs").read_text()
    assert ("completed", "Done.") == tuple(frames[-1].json()["settlement"][name] for name in ("outcome", "text"))
    assert [str(n) for n in range(1, len(frames) + 1)] == [frame.id for frame in frames]
    notices = [frame.json()["code"] for frame in frames if frame.event == "notice"]
    assert 1 <= len(notices) <= NODES  # a node that ends first hands the run to one that ends later
    assert {"resumed"} == set(notices)
    assert 1 == sum(frame.event == "approval.requested" for frame in frames)


async def test_an_attached_run_does_not_outlive_its_server(up, tmp_path):
    """It lives by its client, who is gone: it is settled, not left waiting."""
    path = str(tmp_path / "store.db")
    up.enqueue(PUBLISH)
    async with serving(up, tmp_path, await asyncio.to_thread(SqliteStore, path), settings={"drain": 0.1}) as world:
        session_id = await world.api.new_session()
        response = await world.api.client.post(
            f"/api/sessions/{session_id}/runs",
            {"input": "Go", "model": "agent/helper", "lifetime": "attached"},
            headers={"Accept": "text/event-stream"},
        )
        while (frame := await response.next_event()).event != "approval.requested":
            pass
        run_id = frame.json()["run"]
    store = await asyncio.to_thread(SqliteStore, path)
    record = await store.get_run(run_id)
    await store.close()

    assert "settled" == record.status
