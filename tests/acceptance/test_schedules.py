"""Schedules: what is due starts once, with the rights of that moment, and the history says what became of it."""

import asyncio
import datetime
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin, sign_in
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERY_YEAR = {"kind": "cron", "expression": "0 9 24 12 *", "time_zone": "Europe/Berlin"}
REPORT = {"name": "Report", "prompt": "Write the report.", "model": "up/echo:hi", "when": EVERY_YEAR}


@dataclass
class World:
    """A server with an admin and two people."""

    up: Upstream
    server: Server
    root: str
    ada: str
    bob: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        up.models["slow"] = [Headers(), Role(), Delta("Half"), Hang()]
        async with Server(tmp_path_factory.mktemp("schedules"), [provider(up.base_url, models=None)]) as server:
            root = await first_admin(server, "root")
            ada, bob = [await add_person(server, root, name) for name in ("ada", "bob")]
            yield World(up, server, root, ada, bob)


async def add(client: Client, **fields: Any) -> dict[str, Any]:
    response = await client.post("/api/schedules", {**REPORT, **fields})
    assert 201 == response.status, await response.text()
    made: dict[str, Any] = await response.json()
    return made


async def kept_by(client: Client) -> list[str]:
    return [each["id"] for each in (await Native(client).get("/api/schedules"))["schedules"]]


async def history(client: Client, id: str) -> list[dict[str, Any]]:
    occurrences: list[dict[str, Any]] = (await Native(client).get(f"/api/schedules/{id}/history"))["occurrences"]
    return occurrences


async def occurred(client: Client, id: str, count: int = 1) -> list[dict[str, Any]]:
    """Wait until so many occurrences have a result; them, the oldest first."""
    async with asyncio.timeout(LONG):
        while True:
            found = [each for each in await history(client, id) if each["state"] != "begun"]
            if len(found) >= count:
                return found[::-1]
            await asyncio.sleep(0.05)


def soon(seconds: float = 2.0) -> dict[str, str]:
    """A moment that comes after what a test does until then, also on a busy machine."""
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return {"kind": "once", "at": at.isoformat()}


@requirement("schedules.kept")
async def test_a_schedule_is_kept_changed_paused_and_deleted_by_its_owner_alone(world: World):
    """It is shown with its next time, by the clock of its zone too."""
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        made = await add(ada)
        path = f"/api/schedules/{made['id']}"
        assert made["next"]["local"].endswith("-12-24T09:00:00+01:00")
        assert made["next"]["at"].endswith("-12-24T08:00:00.000Z")
        assert made in (await Native(ada).get("/api/schedules"))["schedules"]
        changed = await ada.request("PUT", path, json={**REPORT, "name": "Other", "missed": "skip"})
        assert (200, "Other", "skip") == (changed.status, *[(await changed.json())[n] for n in ("name", "missed")])
        paused = await (await ada.post(f"{path}/pause")).json()
        assert (True, None) == (paused["paused"], paused["next"])
        resumed = await (await ada.post(f"{path}/resume")).json()
        assert (False, made["next"]) == (resumed["paused"], resumed["next"])
        for method, at in (("GET", path), ("GET", f"{path}/history"), ("DELETE", path), ("POST", f"{path}/run")):
            assert 404 == (await bob.request(method, at)).status
        for at in (f"{path}/pause", f"{path}/resume"):
            assert 404 == (await bob.post(at)).status
        assert 404 == (await bob.request("PUT", path, json=REPORT)).status
        assert 204 == (await ada.request("DELETE", path)).status
        gone = await ada.get(path)
        assert (404, "schedule_not_found") == (gone.status, (await gone.json())["error"]["code"])


@requirement("schedules.kept")
async def test_a_bad_schedule_is_refused_with_words_and_leaves_nothing(world: World):
    """The refusal names what is wrong with an expression, and what is right."""
    async with browser(world.server, world.ada) as ada:
        other, before = await Native(ada).new_session(), await kept_by(ada)
        cron = {"kind": "cron", "expression": "0 9 * * *"}
        bad: list[tuple[dict[str, Any], int, str]] = [
            ({"when": {**cron, "expression": "0 25 * * *"}}, 400, "'25' is wrong for the hour, field 2"),
            ({"when": {**cron, "expression": "0 9 * *"}}, 400, "five fields"),
            ({"when": {**cron, "expression": "0 0 30 2 *"}}, 400, "day of month"),
            ({"when": {**cron, "time_zone": "Mars/Olympus"}}, 400, "time zone 'Mars/Olympus'"),
            ({"when": {**cron, "time_zone": "../../etc/passwd"}}, 400, "time zone"),
            ({"when": {"kind": "every", "seconds": 59}}, 400, "60 seconds"),
            ({"when": {"kind": "once", "at": "soon"}}, 400, "2026-12-24T18:00"),
            ({"when": {"kind": "once", "at": "2020-01-01T00:00"}}, 400, "passed"),
            ({"when": {"kind": "once", "at": "9999-12-31T23:59-12:00"}}, 400, "2026-12-24T18:00"),
            ({"when": {"kind": "often"}}, 400, "when"),
            ({"name": " a"}, 400, "space"),
            ({"prompt": " "}, 400, "empty"),
            ({"model": "nowhere/m"}, 404, "nowhere/m"),
            ({"preset": "none"}, 404, "preset"),
            ({"session": "ses_none"}, 404, "ses_none"),
            ({"session": other, "preset": "x"}, 400, "preset"),
            ({"missed": "some"}, 400, "missed"),
        ]
        for fields, status, words in bad:
            response = await ada.post("/api/schedules", {**REPORT, **fields})
            said = await response.text()
            assert (status, True) == (response.status, words in said), (fields, said)
        assert before == await kept_by(ada)


@requirement("schedules.kept")
async def test_a_preview_tells_the_next_five_times_and_what_is_wrong(world: World):
    """Whoever writes an expression sees what it means before it is saved."""
    async with browser(world.server, world.ada) as ada:
        when = {"kind": "cron", "expression": "0 9 * * 1-5", "time_zone": "Europe/Berlin"}
        response = await ada.post("/api/schedule-preview", {"when": when})
        times = (await response.json())["times"]
        assert (200, 5) == (response.status, len(times))
        assert all("T09:00:00+0" in each["local"] for each in times)
        assert sorted(each["at"] for each in times) == [each["at"] for each in times]
        bad = await ada.post("/api/schedule-preview", {"when": {**when, "expression": "x 9 * * *"}})
        assert (400, "bad_schedule") == (bad.status, (await bad.json())["error"]["code"])


@requirement("schedules.once")
async def test_a_schedule_starts_its_run_in_a_new_chat_when_it_is_due(world: World):
    """The chat has the name of the schedule, and the history leads to it."""
    async with browser(world.server, world.ada) as ada:
        made = await add(ada, when=soon())
        [one] = await occurred(ada, made["id"])
        await Native(ada).settled(one["run"]["id"])
        [one] = await history(ada, made["id"])
        assert ("planned", "started", "completed") == (one["how"], one["state"], one["run"]["outcome"])
        assert [("user", "Write the report."), ("assistant", "hi")] == await Native(ada).transcript(one["session_id"])
        assert "Report" == (await Native(ada).session(one["session_id"]))["title"]
        shown = await Native(ada).get(f"/api/schedules/{made['id']}")
        assert (None, one) == (shown["next"], shown["last"])
        assert 204 == (await ada.request("DELETE", f"/api/sessions/{one['session_id']}")).status
        [one] = await history(ada, made["id"])
        assert ("deleted", None) == (one["run"]["status"], one["session_id"])


@requirement("schedules.once")
async def test_each_time_of_an_interval_has_one_run_also_after_a_crash(world: World):
    """The server is killed while the schedule runs each second. No time has two runs, and none is left out."""
    async with browser(world.server, world.root) as root:
        made = await add(root, when={"kind": "every", "seconds": 1})
        await occurred(root, made["id"], 2)
    await world.server.kill9()
    await world.server.restart()
    async with browser(world.server, world.root) as root:
        before = len(await history(root, made["id"]))
        found = await occurred(root, made["id"], before + 2)
        assert 204 == (await root.request("DELETE", f"/api/schedules/{made['id']}")).status
        started = [each for each in found if each["state"] == "started"]
        assert len(started) == len({each["at"] for each in found}) == len({each["run"]["id"] for each in started})
        runs = (await Native(root).get("/api/runs"))["runs"]
        assert {each["run"]["id"] for each in started} <= {run["id"] for run in runs}
        at = [datetime.datetime.fromisoformat(each["at"]).timestamp() for each in found]
        counted = sum(1 + each["others"] for each in found)
        assert counted == round(at[-1] - at[0]) + 1


@requirement("schedules.once")
async def test_run_now_starts_one_run_for_one_key_and_a_busy_chat_lets_it_wait(world: World):
    """A button that is pressed twice sends its key twice. In a chat that is busy the run waits its turn."""
    async with browser(world.server, world.ada) as ada:
        session = await Native(ada).new_session()
        active = await Native(ada).start(session, "Think.", "up/slow")
        made = await add(ada, session=session)
        path = f"/api/schedules/{made['id']}/run"
        pressed = [ada.post(path, headers={"idempotency-key": "once"}) for _ in range(3)]
        answers = await asyncio.gather(*pressed)
        assert [202, 202, 202] == [answer.status for answer in answers]
        [run] = {(await answer.json())["run"]["id"] for answer in answers}
        assert "queued" == (await Native(ada).run(run))["status"]
        await Native(ada).stop(active)
        assert "completed" == (await Native(ada).settled(run))["outcome"]
        assert ["asked"] == [each["how"] for each in await history(ada, made["id"])]
        again = await (await ada.post(path)).json()
        assert run != again["run"]["id"]
        await Native(ada).settled(again["run"]["id"])


@requirement("schedules.rights")
async def test_rights_count_when_the_run_starts_and_a_refusal_is_in_the_history(world: World):
    """The chat that it writes to was deleted, or the owner was disabled: nothing starts, and it says why."""
    async with browser(world.server, world.root) as root, browser(world.server, world.ada) as ada:
        session = await Native(ada).new_session()
        made = await add(ada, session=session, when=soon(4.0))
        assert 204 == (await ada.request("DELETE", f"/api/sessions/{session}")).status
        refused = await ada.post(f"/api/schedules/{made['id']}/run")
        assert (404, "session_not_found") == (refused.status, (await refused.json())["error"]["code"])
        found = await occurred(ada, made["id"], 2)
        assert {"session_not_found"} == {each["error"]["code"] for each in found}
        assert {("refused", None)} == {(each["state"], each["run"]) for each in found}
        carl = await add_person(world.server, world.root, "carl")
        async with browser(world.server, carl) as client:
            me = (await Native(client).get("/api/me"))["account"]
            ended = await add(client, when=soon(4.0), prompt="Carl asks.")
        assert 200 == (await root.request("PATCH", f"/api/admin/people/{me}", json={"disabled": True})).status
        await occurred(root, (await add(root, when=soon(4.5)))["id"])  # later than the other
        assert 200 == (await root.request("PATCH", f"/api/admin/people/{me}", json={"disabled": False})).status
        async with browser(world.server, await sign_in(world.server, "carl")) as client:
            [one] = await occurred(client, ended["id"])
            assert ("refused", "access_ended") == (one["state"], one["error"]["code"])
            kept = await Native(client).get(f"/api/schedules/{ended['id']}")
            assert (True, None, "access_ended") == (kept["paused"], kept["next"], kept["last"]["error"]["code"])
            assert [] == (await Native(client).get("/api/runs"))["runs"]


GROUP = {"name": "few", "models": ["up/echo:hi"]}
TAKEN = {
    "its key was revoked": "access_ended",
    "its owner was disabled": "access_ended",
    "the budget is spent": "budget_exceeded",
    "the model is not allowed": "model_not_found",
}


@requirement("schedules.rights")
async def test_what_was_refused_says_why_and_is_not_made_up_when_its_right_comes_back(world: World):
    """Each time is decided once: neither a restart nor a right that is given back starts what was refused."""
    async with browser(world.server, world.root) as root:
        admin = Native(root)
        group = (await (await root.post("/api/admin/groups", GROUP)).json())["id"]
        people = {why: f"p{number}" for number, why in enumerate(TAKEN)}
        cookies = {why: await add_person(world.server, world.root, name) for why, name in people.items()}
        accounts = {each["name"]: each["id"] for each in (await admin.get("/api/admin/people"))["people"]}

        async def change(why: str, **fields: Any) -> None:
            answer = await root.request("PATCH", f"/api/admin/people/{accounts[people[why]]}", json=fields)
            assert 200 == answer.status, await answer.text()

        await change("the model is not allowed", groups=[group])
        made = {}
        for why, cookie in cookies.items():
            async with browser(world.server, cookie) as client:
                if why == "its key was revoked":
                    key = await (await client.post("/api/keys", {"name": "own"})).json()
                    async with world.server.client(authorization=f"Bearer {key['key']}") as with_key:
                        made[why] = (await add(with_key, when=soon(6.0)))["id"]
                    assert 204 == (await client.request("DELETE", f"/api/keys/{key['id']}")).status
                else:
                    made[why] = (await add(client, when=soon(6.0)))["id"]
        await change("its owner was disabled", disabled=True)
        await change("the budget is spent", budget={"tokens_per_day": 0})
        assert 200 == (await root.request("PATCH", f"/api/admin/groups/{group}", json={"models": ["up/m"]})).status
        await occurred(root, (await add(root, when=soon(6.5)))["id"])  # later than the others
        await change("its owner was disabled", disabled=False)
        await change("the budget is spent", budget={})
        assert 200 == (await root.request("PATCH", f"/api/admin/groups/{group}", json={"models": ["*"]})).status
    await world.server.kill9()
    await world.server.restart()
    async with browser(world.server, world.root) as root:
        await occurred(root, (await add(root, when=soon()))["id"])  # the others were taken up before it
    found = {}
    for why, name in people.items():
        async with browser(world.server, await sign_in(world.server, name)) as client:
            [one] = await history(client, made[why])
            assert "refused" == one["state"], (why, one)
            found[why] = one["error"]["code"]
            assert [] == (await Native(client).get("/api/runs"))["runs"]
    assert TAKEN == found
