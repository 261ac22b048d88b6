"""Presets and prompts: kept under a name, used in chats, shared with a group, moved as a file."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin
from tests.support.server import Server, provider
from tests.support.upstream import Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITER = {"name": "Writer", "model": "up/echo:hi", "system": "Write plainly.", "params": {"temperature": 0.2}}


@dataclass
class World:
    """A server with two people in one group, and the admin."""

    up: Upstream
    server: Server
    group: str
    root: str
    ada: str
    bob: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        data = tmp_path_factory.mktemp("presets")
        async with Server(data, [provider(up.base_url, models=None)]) as server:
            root = await first_admin(server, "root")
            async with browser(server, root) as admin:
                group = (await (await admin.post("/api/admin/groups", {"name": "team"})).json())["id"]
            ada, bob = [await add_person(server, root, name, groups=[group]) for name in ("ada", "bob")]
            yield World(up, server, group, root, ada, bob)


async def add(client: Client, body: dict[str, Any], kind: str = "presets") -> dict[str, Any]:
    response = await client.post(f"/api/{kind}", body)
    assert 201 == response.status, await response.text()
    made: dict[str, Any] = await response.json()
    return made


async def emptied(client: Client) -> None:
    for kind in ("presets", "prompts"):
        for each in (await Native(client).get(f"/api/{kind}"))[kind]:
            if each["own"]:
                assert 204 == (await client.request("DELETE", f"/api/{kind}/{each['id']}")).status


@requirement("presets.kept")
async def test_a_name_is_taken_once_even_by_two_requests_at_the_same_time(world: World):
    """A prompt is typed as `/name`, and a preset chosen with `-p NAME`: two with one name could not be told apart."""
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        many = [ada.post("/api/presets", {**WRITER, "name": name}) for name in ("Writer", "WRITER", "writer")]
        responses = await asyncio.gather(*many)
        assert [201, 409, 409] == sorted(response.status for response in responses)
        refused = [await response.json() for response in responses if response.status == 409]
        assert {"name_in_use"} == {each["error"]["code"] for each in refused}
        await add(bob, WRITER)  # another person's names are no matter
        [kept] = (await Native(ada).get("/api/presets"))["presets"]
        other = await add(ada, {"name": "Other"})
        renamed = await ada.request("PUT", f"/api/presets/{other['id']}", json={"name": kept["name"].swapcase()})
        assert 409 == renamed.status
        same = await ada.request("PUT", f"/api/presets/{kept['id']}", json={**WRITER, "system": "New."})
        assert (200, "New.") == (same.status, (await same.json())["system"])
        strange = await bob.request("PUT", f"/api/presets/{kept['id']}", json=WRITER)
        assert 404 == strange.status
        assert 404 == (await bob.request("DELETE", f"/api/presets/{kept['id']}")).status
        await emptied(ada)
        await emptied(bob)


@requirement("presets.kept")
async def test_bad_presets_and_prompts_are_refused_and_leave_nothing(world: World):
    """Each refusal names the field, and what is right."""
    async with browser(world.server, world.ada) as ada:
        bad: list[tuple[str, dict[str, Any], int, str]] = [
            ("presets", {"name": ""}, 400, "name"),
            ("presets", {"name": "a\nb"}, 400, "name"),
            ("presets", {"name": " a"}, 400, "name"),
            ("presets", {"name": "x" * 65}, 400, "name"),
            ("presets", {"name": "a", "params": {"messages": []}}, 400, "params"),
            ("presets", {"name": "a", "model": "nowhere/m"}, 404, "nowhere/m"),
            ("presets", {"name": "a", "group": "grp_0"}, 404, "group"),
            ("prompts", {"name": "two words", "text": "x"}, 400, "/name"),
            ("prompts", {"name": "a", "text": " "}, 400, "empty"),
            ("prompts", {"name": "a"}, 400, "text"),
        ]
        for kind, body, status, word in bad:
            response = await ada.post(f"/api/{kind}", body)
            said = await response.text()
            assert (status, True) == (response.status, word in said), (body, said)
        assert [] == (await Native(ada).get("/api/presets"))["presets"]
        assert [] == (await Native(ada).get("/api/prompts"))["prompts"]


@requirement("presets.used")
async def test_a_chat_is_set_up_by_a_preset_and_says_so(world: World):
    """The upstream is sent the preset's system prompt and parameters; a change by hand takes the name away."""
    async with browser(world.server, world.ada) as ada:
        api, preset = Native(ada), await add(ada, WRITER)
        session = await api.new_session(preset="writer", params={"top_p": 0.5})
        opened = await api.get(f"/api/sessions/{session}")
        assert ("Writer", "up/echo:hi") == (opened["preset"], opened["model"])
        assert {"temperature": 0.2, "top_p": 0.5} == opened["params"]
        run = await ada.post(f"/api/sessions/{session}/runs", {"input": "Hello"})
        await api.settled((await run.json())["id"])
        sent = world.up.requests[-1].body
        assert ("Write plainly.", 0.2) == (sent["messages"][0]["content"], sent["temperature"])

        assert 204 == (await ada.request("DELETE", f"/api/presets/{preset['id']}")).status
        assert "Write plainly." == (await api.get(f"/api/sessions/{session}"))["system"]
        missing = await ada.post("/api/sessions", {"preset": "Writer"})
        assert (404, True) == (missing.status, "no preset 'Writer'" in await missing.text())

        other = await add(ada, {"name": "Short", "system": "Be short.", "params": {"max_tokens": 5}})
        changed = await (await ada.request("PATCH", f"/api/sessions/{session}", json={"preset": other["id"]})).json()
        assert ("Short", "Be short.", {"max_tokens": 5}) == (changed["preset"], changed["system"], changed["params"])
        assert "up/echo:hi" == changed["model"]  # the preset names none
        kept = await (await ada.request("PATCH", f"/api/sessions/{session}", json={"model": "up/echo:yo"})).json()
        assert "Short" == kept["preset"]
        own = await (await ada.request("PATCH", f"/api/sessions/{session}", json={"system": "Mine."})).json()
        assert (None, "Mine.") == (own["preset"], own["system"])
        await emptied(ada)


@requirement("presets.used")
async def test_the_default_preset_is_one_that_exists(world: World):
    """A deleted one is no default any more, and a strange one never becomes it."""
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        preset = await add(ada, WRITER)
        chosen = await ada.request("PUT", "/api/presets/default", json={"preset": preset["id"]})
        assert 200 == chosen.status
        assert 404 == (await bob.request("PUT", "/api/presets/default", json={"preset": preset["id"]})).status
        assert preset["id"] == (await Native(ada).get("/api/presets"))["default"]
        await emptied(ada)
        assert (await Native(ada).get("/api/presets"))["default"] is None


@requirement("presets.group")
async def test_a_group_uses_a_preset_until_its_owner_takes_it_back_or_leaves(world: World):
    """Nobody outside of the group may set up what its people send to models."""
    async with (
        browser(world.server, world.ada) as ada,
        browser(world.server, world.bob) as bob,
        browser(world.server, world.root) as root,
    ):
        preset = await add(ada, {**WRITER, "group": world.group})
        prompt = await add(
            ada, {"name": "sum", "text": "Sum up {{what}} in {{ n }} lines, {{what}}.", "group": world.group}, "prompts"
        )
        assert (["what", "n"], "team") == (prompt["variables"], prompt["group_name"])
        [seen] = (await Native(bob).get("/api/presets"))["presets"]
        assert (False, "ada", "Write plainly.") == (seen["own"], seen["by"], seen["system"])
        assert ["sum"] == [each["name"] for each in (await Native(bob).get("/api/prompts"))["prompts"]]
        assert [] == (await Native(root).get("/api/presets"))["presets"]
        session = await Native(bob).new_session(preset="Writer")
        assert "Write plainly." == (await Native(bob).get(f"/api/sessions/{session}"))["system"]

        await ada.request("PUT", f"/api/presets/{preset['id']}", json=WRITER)
        assert [] == (await Native(bob).get("/api/presets"))["presets"]
        await ada.request("PUT", f"/api/presets/{preset['id']}", json={**WRITER, "group": world.group})
        assert 1 == len((await Native(bob).get("/api/presets"))["presets"])

        people = (await Native(root).get("/api/admin/people"))["people"]
        account = next(each["id"] for each in people if each["name"] == "ada")
        left = await root.request("PATCH", f"/api/admin/people/{account}", json={"groups": []})
        assert 200 == left.status, await left.text()
        assert [] == (await Native(bob).get("/api/presets"))["presets"]
        await root.request("PATCH", f"/api/admin/people/{account}", json={"groups": [world.group]})
        await emptied(ada)


@requirement("presets.file")
async def test_a_file_is_imported_with_a_report_of_every_entry(world: World):
    """A report that says only "imported" hides what was not: each entry has its own line, and nothing is replaced."""
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        await add(ada, WRITER)
        await add(ada, {"name": "sum", "text": "Sum up {{what}}"}, "prompts")
        file = await Native(ada).get("/api/presets/export")
        assert "Write plainly." == file["presets"][0]["system"]
        assert "group" not in file["presets"][0]
        again = await (await ada.post("/api/presets/import", file)).json()
        assert (0, ["known", "known"]) == (again["added"], [each["result"] for each in again["entries"]])

        file["presets"] += [{"name": "Away", "model": "nowhere/m"}, {"name": 7}, {"name": "Odd", "colour": "red"}]
        file["prompts"] += [{"name": "two words", "text": "x"}]
        await add(bob, {**WRITER, "system": "His own."})
        report = await (await bob.post("/api/presets/import", file)).json()
        results = [(each["name"], each["result"]) for each in report["entries"]]
        assert [
            ("Writer", "refused"),
            ("Away", "added"),
            ("", "refused"),
            ("Odd", "refused"),
            ("sum", "added"),
            ("two words", "refused"),
        ] == results
        assert "nowhere/m" in report["entries"][1]["why"]
        assert all(each["why"] for each in report["entries"] if each["result"] == "refused")
        system = {each["name"]: each["system"] for each in (await Native(bob).get("/api/presets"))["presets"]}
        assert {"Writer": "His own.", "Away": None} == system
        for strange in ({"format": "other", "version": 1}, {}, {"format": "holdfast-presets", "version": 2}):
            assert 400 == (await bob.post("/api/presets/import", strange)).status
        await emptied(ada)
        await emptied(bob)
