"""Agents that are set up in a running server: who may use them, what changes reach, and what a removal leaves."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Upstream, answer, calling

HELPER = {"name": "helper", "model": "up/m", "system": "Be brief.", "tools": ["files"]}


@asynccontextmanager
async def serving(tmp_path: Path, up: Upstream, store: MemoryStore | None = None, **settings: Any):
    providers = (ProviderSettings("up", base_url=up.base_url, models=("m",)),)
    described = Settings(data=str(tmp_path), providers=providers, **settings)
    app = await asyncio.to_thread(create_app, described, store or MemoryStore(), NO_HOME)
    async with Served(app) as served, served.client() as client:
        yield client


async def told(response: Any) -> tuple[int, Any]:
    return response.status, await response.json()


async def put(client: Any, path: str, body: Any) -> tuple[int, Any]:
    return await told(await client.request("PUT", path, json=body))


async def models(client: Any) -> list[str]:
    return [model["id"] for model in (await (await client.get("/api/models?all=true")).json())["models"]]


@pytest.fixture
async def up():
    async with Upstream() as up:
        yield up


@requirement("managed.agents")
async def test_an_agent_that_is_added_works_at_once_and_after_a_restart(tmp_path, up):
    """Nobody edits a file or restarts a server. A change reaches the next run."""
    async with serving(tmp_path, up) as client:
        added = await told(await client.post("/api/agents", HELPER))
        offered = await models(client)
        up.enqueue(answer("One."), answer("Two."))
        api = Native(client)
        session_id = await api.new_session()
        first = await api.settled(await api.start(session_id, "Go", "agent/helper"))
        changed = await put(client, "/api/agents/helper", {**HELPER, "system": "Be long.", "tools": []})
        await api.settled(await api.start(await api.new_session(), "Go", "agent/helper"))
    async with serving(tmp_path, up) as client:
        again = (await (await client.get("/api/agents")).json())["agents"]

    assert (201, "ui", True, None) == (added[0], *(added[1][name] for name in ("source", "editable", "problem")))
    assert "agent/helper" in offered
    assert "One." == first["text"]
    one, two = (request.body for request in up.requests)
    assert ["Be brief.", "Be long."] == [asked["messages"][0]["content"] for asked in (one, two)]
    assert "files_read" in [tool["function"]["name"] for tool in one["tools"]]
    assert "tools" not in two
    assert (200, [changed[1]]) == (changed[0], again)


@requirement("managed.agents")
async def test_bad_agents_are_refused_and_trying_one_saves_nothing(tmp_path, up):
    """What is wrong is said while the form is open, before anybody uses the agent."""
    bad = [
        {"name": "no/name"},
        {"model": "up/none/at/all", "name": "x", "tools": ["no-such-tool"]},
        {"tools": ["os:system"]},
        {"tools": ["mcp:none"]},
        {"approvals": {"no_such_tool": "allow"}},
        {"max_steps": 0},
        {"params": {"messages": []}},
        {"folder": "/etc"},
    ]
    async with serving(tmp_path, up) as client:
        refused = [await told(await client.post("/api/agents", {**HELPER, **each})) for each in bad]
        unknown = await told(await client.post("/api/agents", {**HELPER, "model": "nobody/m"}))
        tried = await told(await client.post("/api/agents/test", {**HELPER, "approvals": {"files_write": "deny"}}))
        listed = await (await client.get("/api/agents")).json()

    assert [400] * len(bad) == [status for status, _ in refused], refused
    assert (404, "model_not_found") == (unknown[0], unknown[1]["error"]["code"])
    assert (200, True) == (tried[0], tried[1]["ok"])
    assert {"files_read": "allow", "files_write": "deny"}.items() <= {
        tool["name"]: tool["approval"] for tool in tried[1]["tools"]
    }.items()
    assert ([], ["files", "ask_user", "shell"]) == (listed["agents"], listed["tools"])


@requirement("managed.agents")
async def test_the_agents_of_the_settings_file_are_shown_and_not_changed(tmp_path, up):
    """The operator's file beats the page, and its Python tools can be given to other agents."""
    described = AgentSettings("fixed", model="up/m", tools=("tests.support.agents:add",), folder=str(tmp_path))
    async with serving(tmp_path, up, agents=(described,)) as client:
        listed = await (await client.get("/api/agents")).json()
        changed = await put(client, "/api/agents/fixed", {**HELPER, "name": "fixed"})
        removed = await told(await client.request("DELETE", "/api/agents/fixed"))
        second = await told(await client.post("/api/agents", {**HELPER, "name": "fixed"}))
        sharing = await told(await client.post("/api/agents", {**HELPER, "tools": ["tests.support.agents:add"]}))

    (fixed,) = listed["agents"]
    assert ("fixed", "file", False) == (fixed["name"], fixed["source"], fixed["editable"])
    assert "folder" not in fixed
    assert [(409, "setting_pinned")] * 2 == [(each[0], each[1]["error"]["code"]) for each in (changed, removed)]
    assert (409, "in_use") == (second[0], second[1]["error"]["code"])
    assert 201 == sharing[0]


@requirement("managed.removed")
async def test_a_run_comes_to_its_end_after_its_agent_was_removed(tmp_path, up):
    """A person who waits for an answer gets it: a removal stops what is new, and says so."""
    async with serving(tmp_path, up) as client:
        await client.post("/api/agents", HELPER)
        up.enqueue(calling(("files_write", {"path": "a.txt", "content": "hello"})), answer("Written."))
        api = Native(client)
        session_id = await api.new_session()
        run_id = await api.start(session_id, "Go", "agent/helper")
        reader = await api.events(run_id)
        while (frame := await reader.next_event()) and frame.event != "approval.requested":
            pass
        reader.close()
        removed = await client.request("DELETE", "/api/agents/helper")
        decided = await client.post(f"/api/runs/{run_id}/approvals/{frame.json()['id']}", {"decision": "allow"})
        settled = await api.settled(run_id)
        late = await told(await client.post(f"/api/runs/{run_id}/steer", {"input": "More."}))
        new = await told(await api.send(session_id, "Again", "agent/helper"))
        offered = await models(client)

    assert (204, 200) == (removed.status, decided.status)
    assert ("completed", "Written.") == (settled["outcome"], settled["text"])
    assert (409, "cannot_steer") == (late[0], late[1]["error"]["code"])
    assert (404, "model_not_found") == (new[0], new[1]["error"]["code"])
    assert "agent/helper" not in offered


@requirement("managed.removed")
async def test_a_run_of_a_removed_agent_is_interrupted_by_a_restart(tmp_path, up):
    """It waited for a person, and nobody can say any more what it would have done: that is no success."""
    store = MemoryStore()
    async with serving(tmp_path, up, store) as client:
        await client.post("/api/agents", HELPER)
        up.enqueue(calling(("files_write", {"path": "a.txt", "content": "hello"})))
        api = Native(client)
        run_id = await api.start(await api.new_session(), "Go", "agent/helper")
        reader = await api.events(run_id)
        while (frame := await reader.next_event()) and frame.event != "approval.requested":
            pass
        reader.close()
        await client.request("DELETE", "/api/agents/helper")
    async with serving(tmp_path, up, store) as client:
        settled = await Native(client).settled(run_id)
        path = f"/api/runs/{run_id}/approvals/{frame.json()['id']}"
        late = await told(await client.post(path, {"decision": "allow"}))

    assert settled["outcome"] == "interrupted"
    assert (409, "stale_approval") == (late[0], late[1]["error"]["code"])


@requirement("managed.users")
async def test_an_agent_is_there_for_the_people_and_groups_that_it_names(tmp_path):
    """For all others it does not exist. A shell is set up by a person who has just signed in, not by a key."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=["m"])]) as server:
        admin = await first_admin(server)
        async with browser(server, admin) as client:
            group = await (await client.post("/api/admin/groups", {"name": "editors"})).json()
        cookies = {name: await add_person(server, admin, name) for name in ("bob", "carol")}
        editor = await add_person(server, admin, "dora", groups=[group["id"]])
        async with browser(server, admin) as client:
            people = (await (await client.get("/api/admin/people")).json())["people"]
            bob = next(each["id"] for each in people if each["name"] == "bob")
            made = await client.post("/api/agents", {**HELPER, "users": [bob, group["id"]]})
            shell = await client.post("/api/agents", {**HELPER, "name": "operator", "tools": ["shell"]})
            key = (await (await client.post("/api/keys", {"name": "ci", "scopes": ["admin"]})).json())["key"]
        seen = {}
        for name, cookie in {**cookies, "dora": editor}.items():
            async with browser(server, cookie) as client:
                seen[name] = [each for each in await models(client) if each.startswith("agent/")]
                refused = await client.get("/api/agents")
        async with server.client() as client:
            by_key = await told(
                await client.post(
                    "/api/agents",
                    {**HELPER, "name": "other", "tools": ["shell"]},
                    headers={"authorization": f"Bearer {key}"},
                )
            )

    assert (201, 201, 403) == (made.status, shell.status, refused.status)
    assert {"bob": ["agent/helper"], "carol": [], "dora": ["agent/helper"]} == seen
    assert (403, "programs_refused") == (by_key[0], by_key[1]["error"]["code"])
