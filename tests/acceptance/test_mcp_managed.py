"""MCP servers that are set up in a running server: added, tried, changed and removed, and who may start programs."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import McpSettings, ProviderSettings, Settings
from holdfast.server.live.port_owner import stranger_behind
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin
from tests.support.ports import free_port
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Upstream, answer, calling
from tests.support.waiting import LONG

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
SECRET = "very-secret-2c9d41e07b5a"


def stdio(tmp_path: Path, name: str = "slow", **more: Any) -> dict[str, Any]:
    """The slow server as the page describes it."""
    args = ["-P", str(SERVER), str(tmp_path / "seen")]
    return {"name": name, "command": sys.executable, "args": args, "approval": "allow", **more}


@asynccontextmanager
async def serving(tmp_path: Path, up: Upstream, **settings: Any):
    """A server with a provider, whose settings last in its folder."""
    providers = (ProviderSettings("up", base_url=up.base_url, models=("m",)),)
    described = Settings(data=str(tmp_path), providers=providers, **settings)
    app = await asyncio.to_thread(create_app, described, MemoryStore(), NO_HOME)
    async with Served(app) as served, served.client() as client:
        yield client


async def told(response: Any) -> tuple[int, Any]:
    return response.status, await response.json()


async def put(client: Any, path: str, body: Any) -> tuple[int, Any]:
    return await told(await client.request("PUT", path, json=body))


async def shown(client: Any, name: str) -> dict[str, Any]:
    servers = (await (await client.get("/api/mcp")).json())["servers"]
    found: dict[str, Any] = next(each for each in servers if each["name"] == name)
    return found


@pytest.fixture
async def up():
    async with Upstream() as up:
        yield up


@requirement("mcp.managed")
async def test_a_server_that_is_added_lists_its_tools_and_calls_one(tmp_path, up):
    """Before an agent has it, a person sees what it offers, and that it works. It is there after a restart."""
    async with serving(tmp_path, up) as client:
        status, added = await told(await client.post("/api/mcp", stdio(tmp_path)))
        before = await shown(client, "slow")
        _, found = await told(await client.post("/api/mcp/slow/connect"))
        _, called = await told(await client.post("/api/mcp/slow/call", {"tool": "add", "arguments": {"a": 1, "b": 2}}))
        _, failed = await told(await client.post("/api/mcp/slow/call", {"tool": "add", "arguments": {"a": "x"}}))
        missing = await told(await client.post("/api/mcp/slow/call", {"tool": "no-such-tool"}))
        after = await shown(client, "slow")
    async with serving(tmp_path, up) as client:
        again = await shown(client, "slow")

    assert (201, "slow", True) == (status, added["name"], added["editable"])
    assert ("idle", "connected") == (before["state"], after["state"])
    assert found["ok"]
    add = next(tool for tool in found["tools"] if tool["name"] == "add")
    assert ("Add two numbers.", {"a", "b"}, True) == (
        add["description"],
        set(add["parameters"]["properties"]),
        add["allowed"],
    )
    assert ("3", False) == (called["output"], called["is_error"])
    assert failed["is_error"]
    assert (404, "not_found") == (missing[0], missing[1]["error"]["code"])
    assert before == again


@requirement("mcp.managed")
async def test_trying_a_server_says_why_it_fails_and_leaves_nothing(tmp_path, up):
    """A wrong command and a wrong address are found while the form is open. No process is left, nothing is saved."""
    broken = {"name": "broken", "command": sys.executable, "args": ["-c", "raise SystemExit('error: no licence')"]}
    async with serving(tmp_path, up) as client:
        good = await told(await client.post("/api/mcp/test", stdio(tmp_path)))
        ended = await told(await client.post("/api/mcp/test", broken))
        away = await told(await client.post("/api/mcp/test", {"name": "away", "url": "http://127.0.0.1:9/mcp"}))
        scheme = await told(await client.post("/api/mcp/test", {"name": "odd", "url": "file:///etc/passwd"}))
        both = await told(await client.post("/api/mcp/test", {**broken, "url": "http://127.0.0.1:9/mcp"}))
        listed = await (await client.get("/api/mcp")).json()

    assert (200, True) == (good[0], good[1]["ok"])
    assert "It printed: error: no licence" in ended[1]["why"]
    assert "MCP server away cannot be reached" in away[1]["why"]
    assert [400, 400] == [scheme[0], both[0]]
    assert {"servers": []} == listed


@requirement("mcp.managed")
async def test_the_servers_of_the_settings_file_are_shown_and_tried_but_not_changed(tmp_path, up):
    """The file beats the page: what the operator has written there stays, and the answer says where it is."""
    described = McpSettings("fixed", command=sys.executable, args=("-P", str(SERVER), str(tmp_path / "seen")))
    async with serving(tmp_path, up, mcp=(described,)) as client:
        listed = await shown(client, "fixed")
        found = await told(await client.post("/api/mcp/fixed/connect"))
        changed = await put(client, "/api/mcp/fixed", stdio(tmp_path, "fixed"))
        removed = await told(await client.request("DELETE", "/api/mcp/fixed"))
        second = await told(await client.post("/api/mcp", stdio(tmp_path, "fixed")))

    assert ("file", False) == (listed["source"], listed["editable"])
    assert found[1]["ok"]
    assert [(409, "setting_pinned")] * 2 == [(each[0], each[1]["error"]["code"]) for each in (changed, removed)]
    assert (409, "in_use") == (second[0], second[1]["error"]["code"])


@requirement("mcp.sealed")
async def test_secrets_are_kept_sealed_and_shown_to_nobody(tmp_path, up):
    """A header is often a key. It stays while its address stays, and is asked for again when that changes."""
    port = free_port()
    web = {"name": "web", "url": f"http://127.0.0.1:{port}/mcp?key={SECRET}", "headers": {"X-Key": SECRET}}
    async with serving(tmp_path, up) as client:
        added = await told(await client.post("/api/mcp", {**web, "approval": "ask"}))
        listed = await shown(client, "web")
        tried = await told(await client.post("/api/mcp/web/connect"))
        same = {"name": "web", "url": listed["url"], "headers": {"X-Key": None}, "approval": "deny"}
        kept = await put(client, "/api/mcp/web", same)
        moved = await put(client, "/api/mcp/web", {**same, "url": "http://127.0.0.1:9/other"})
        after = await shown(client, "web")

    assert SECRET not in json.dumps([added, listed, tried, kept, moved, after])
    assert (201, 200, 400) == (added[0], kept[0], moved[0])
    assert "again" in moved[1]["error"]["message"]
    assert (["X-Key"], "deny") == (after["headers"], after["approval"])
    assert SECRET not in (tmp_path / "settings.json").read_text()


@requirement("mcp.managed")
async def test_a_run_that_goes_on_keeps_the_server_that_was_removed(tmp_path, up):
    """A change in the page ends nobody's work: the old process ends with the last run that has it."""
    seen = tmp_path / "seen"
    async with serving(tmp_path, up) as client:
        await client.post("/api/mcp", stdio(tmp_path))
        agent = {"name": "helper", "model": "up/m", "tools": ["mcp:slow"]}
        assert 201 == (await client.post("/api/agents", agent)).status
        up.enqueue(calling(("slow__wait", {})), answer("Done."))
        api = Native(client)
        run_id = await api.start(await api.new_session(), "Go", "agent/helper")
        async with asyncio.timeout(LONG):
            while not (seen.exists() and "wait" in seen.read_text().split()):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)
        used = await told(await client.request("DELETE", "/api/mcp/slow"))
        gone = [(await client.request("DELETE", path)).status for path in ("/api/agents/helper", "/api/mcp/slow")]
        status = (await api.run(run_id))["status"]
        await api.stop(run_id)
        stopped = await api.settled(run_id)

    assert (409, "in_use") == (used[0], used[1]["error"]["code"])
    assert "helper" in used[1]["error"]["message"]
    assert [204, 204] == gone
    assert "running" == status
    assert "stopped" == stopped["outcome"]
    assert "cancelled" in seen.read_text().split()


SLOW_TO_BEGIN = """
import os, pathlib, runpy, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "pid").write_text(str(os.getpid()))
(folder / "pid").rename(folder / "began")
while not (folder / "go").exists():
    time.sleep(0.02)
sys.argv = [sys.argv[2], str(folder / "seen")]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@requirement("mcp.managed")
async def test_a_server_that_is_removed_while_it_is_connected_leaves_no_process(tmp_path, up):
    """It takes a while to begin. What connects meanwhile must not keep it for ever."""
    described = stdio(tmp_path, args=["-c", SLOW_TO_BEGIN, str(tmp_path), str(SERVER)])
    async with serving(tmp_path, up) as client:
        await client.post("/api/mcp", described)
        connecting = asyncio.create_task(client.post("/api/mcp/slow/connect"))
        async with asyncio.timeout(LONG):
            while not (tmp_path / "began").exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)
        removed = await client.request("DELETE", "/api/mcp/slow")
        (tmp_path / "go").touch()
        found = await (await connecting).json()
        process = Path("/proc") / (tmp_path / "began").read_text()
        async with asyncio.timeout(LONG):
            while process.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert 204 == removed.status
    assert (False, "MCP server slow is closed: it was removed, or Holdfast is ending.") == (found["ok"], found["why"])


@requirement("mcp.programs")
async def test_programs_are_set_up_by_people_and_not_by_keys(tmp_path):
    """A command runs with the rights of the server: an admin's key in a script is not enough for that."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=["m"])]) as server:
        admin = await first_admin(server)
        member = await add_person(server, admin, "bob")
        async with browser(server, admin) as client:
            made = await (await client.post("/api/keys", {"name": "ci", "scopes": ["admin"]})).json()
            by_admin = await client.post("/api/mcp", stdio(tmp_path))
        async with browser(server, member) as client:
            by_member = await client.post("/api/mcp", {"name": "web", "url": "http://127.0.0.1:9/mcp"})
            listed = await client.get("/api/mcp")
        async with server.client() as client:
            key = {"authorization": f"Bearer {made['key']}"}
            command = await told(await client.post("/api/mcp", stdio(tmp_path, "other"), headers=key))
            address = await client.post("/api/mcp", {"name": "web", "url": "http://127.0.0.1:9/mcp"}, headers=key)

    assert (201, 403, 403) == (by_admin.status, by_member.status, listed.status)
    assert (403, "programs_refused") == (command[0], command[1]["error"]["code"])
    assert 201 == address.status


@requirement("mcp.programs")
def test_the_user_behind_a_connection_of_this_machine_is_known(tmp_path):
    """Without accounts everyone on the machine is let in: another of its users must not get our rights by that."""
    lines = [
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid",
        "   0: 0100007F:A001 0100007F:2253 01 00000000:00000000 00:00000000 00000000  4242        0 1",
        "   1: 0100007F:2253 0100007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 2",
    ]
    table = tmp_path / "tcp"
    table.write_text("\n".join(lines))

    assert 4242 == stranger_behind(0xA001, 0x2253, tables=(table,))
    assert stranger_behind(0x2253, 0xA001, tables=(table,)) is None
    assert stranger_behind(0xA002, 0x2253, tables=(table,)) is None
