"""An agent whose server is killed before, during and after its calls goes on; an outside witness counts the effects."""

import asyncio
import re
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.effects import FOLDER, STAGE, command, effects
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.postgres import shared_postgres
from tests.support.server import ROOT, Process, Server, clean_environment, provider
from tests.support.upstream import Hang, Headers, Role, Upstream, answer, calling
from tests.support.waiting import LONG

CONFIG = """
heartbeat = 1
[[mcp]]
name = "stdio"
command = "python"
args = ["-m", "tests.support.mcp_effects"]
approval = "allow"
timeout = 600
env = {{ PYTHONPATH = "{root}", {variable} = "{folder}" }}

[[mcp]]
name = "http"
url = "http://127.0.0.1:{port}/mcp"
approval = "allow"
timeout = 600

[[agents]]
name = "helper"
model = "up/m"
tools = ["tests.support.effects:TOOLS", "shell", "files", "mcp:stdio", "mcp:http"]
modules = "{root}"
folder = "{folder}"
approvals = {{ shell = "allow", files_write = "allow" }}
on_restart = "continue"
"""
SAFE = ["look", "stdio-look", "http-look"]
KEYED = ["charge", "stdio-charge", "http-charge"]
NEVER = ["send", "shell", "stdio-send", "http-send"]
"""The tools that a person is asked about. The name of `shell` is also the witness's name of its command."""
CALLS = ["book", *SAFE, *KEYED, *NEVER]


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@asynccontextmanager
async def remote(folder: Path):
    """The MCP server by HTTP: it outlives the server that is killed."""
    port = free_port()
    environment = clean_environment() | {"PYTHONPATH": str(ROOT), FOLDER: str(folder)}
    line = [sys.executable, "-m", "tests.support.mcp_effects", str(port)]
    process = Process(line, log=folder / "mcp.log", env=environment, cwd=folder)
    await process.start(re.compile("Uvicorn running"), LONG)
    try:
        yield port
    finally:
        await process.kill9()


class World:
    """A folder with the witness, and the servers that share an agent for it."""

    def __init__(self, up: Upstream, folder: Path, stage: str, port: int) -> None:
        self.up, self.folder = up, folder
        (folder / STAGE).write_text(stage)
        self._config = CONFIG.format(root=ROOT, folder=folder, variable=FOLDER, port=port)

    def server(self, data: Path, env: dict[str, str] | None = None) -> Server:
        providers = [provider(self.up.base_url, models=["m"])]
        own = {FOLDER: str(self.folder), **(env or {})}
        return Server(data, providers, config=self._config, env=own, nodes=1)

    def calls(self) -> list:
        """One step of the model that calls every tool."""
        folder = {"folder": str(self.folder)}
        own = [(name, folder) for name in ("look", "charge", "send", "book")]
        mcp = [(f"{server}__{name}", {}) for server in ("stdio", "http") for name in ("look", "charge", "send")]
        files = ("files_read", {"path": STAGE})
        return calling(*own, *mcp, ("shell", {"command": command("shell")}), files)

    async def hanging(self) -> None:
        """Wait until every tool hangs where it is to be killed."""
        async with asyncio.timeout(LONG):
            while not all((self.folder / f"{name}.paused").exists() for name in CALLS):  # noqa: ASYNC110 - files
                await asyncio.sleep(0.02)


@asynccontextmanager
async def world(up: Upstream, tmp_path: Path, stage: str):
    folder = tmp_path / "work"
    folder.mkdir()
    async with remote(folder) as port:
        yield World(up, folder, stage, port)


async def asked(api: Native, run_id: str) -> list[dict]:
    """Wait until a person is asked about every tool that must not run twice."""
    reader, found = await api.events(run_id), []
    while len(found) < len(NEVER):
        frame = await reader.next_event()
        assert frame is not None, "the run ended before it asked"
        found += [frame.json()] if frame.event == "outcome.requested" else []
    reader.close()
    return found


async def listed(api: Native, run_id: str) -> None:
    """Wait until the run is listed as one that needs a person: nothing else of it is at work."""
    async with asyncio.timeout(LONG):
        while not (await api.run(run_id))["needs_approval"]:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.05)


async def tell(api: Native, run_id: str, request: dict, decision: str) -> None:
    """Answer a question. Until the run has been resumed it is refused, and has to be sent again."""
    async with asyncio.timeout(LONG):
        while True:
            response = await api.client.post(f"/api/runs/{run_id}/outcomes/{request['id']}", {"decision": decision})
            if response.status != 409:
                break
            await asyncio.sleep(0.1)
    assert 200 == response.status, await response.text()


async def go_on(api: Native, run_id: str, stage: str) -> list:
    """Answer what a person is asked; the events of the run that ends."""
    for request in await asked(api, run_id):
        await tell(api, run_id, request, "again" if stage == "before" else "ran")
    return await api.replay(run_id)


def check(folder: Path, frames: list) -> None:
    """Nothing has happened twice: not by effect id, and not at all if nobody counts by it."""
    happened = effects(folder)
    started: dict[str, set[str]] = {}
    for event in (frame.json() for frame in frames if frame.event == "tool.started"):
        started.setdefault(event["id"], set()).add(event["effect_id"])
    seen = [effect_id for ids in happened.values() for effect_id in ids]

    assert "completed" == frames[-1].json()["settlement"]["outcome"]
    assert sorted(CALLS) == sorted(happened)
    assert dict.fromkeys(CALLS, 1) == {name: len(set(ids)) for name, ids in happened.items()}
    assert dict.fromkeys(["book", *NEVER], 1) == {name: len(happened[name]) for name in ["book", *NEVER]}
    assert {1} == {len(ids) for ids in started.values()}
    assert set(seen) <= {effect_id for ids in started.values() for effect_id in ids}


@requirement("crash.no-repeat", "crash.effects")
@pytest.mark.parametrize("stage", ["before", "during"])
async def test_calls_that_a_kill_interrupts_have_one_effect(up, tmp_path, stage):
    """The agent goes on by itself where that does no harm, and asks a person about the rest, with the evidence."""
    async with world(up, tmp_path, stage) as here, here.server(tmp_path / "data") as server:
        up.enqueue(here.calls())
        async with server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Go", "agent/helper")
            await here.hanging()
        await server.kill9()
        up.enqueue(answer("Done."))
        await server.restart()
        async with server.client() as client:
            api = Native(client)
            requests = await asked(api, run_id)
            await listed(api, run_id)
            frames = await go_on(api, run_id, stage)

    check(here.folder, frames)
    assert ["http__send", "send", "shell", "stdio__send"] == sorted(request["tool"] for request in requests)
    shell = next(request for request in requests if request["tool"] == "shell")
    assert "HOLDFAST_EFFECT_ID" in shell["arguments"]
    assert 0 < shell["since"] <= shell["expires_at"]
    said = [told["content"] for told in up.requests[-1].body["messages"] if told["role"] == "tool"]
    assert (4 if stage == "during" else 0) == sum("A person says that it has run." in content for content in said)


@requirement("crash.no-repeat", "crash.effects")
async def test_calls_that_have_returned_before_a_kill_keep_their_results(up, tmp_path):
    """Nobody is asked about what is known."""
    async with world(up, tmp_path, "after") as here, here.server(tmp_path / "data") as server:
        up.enqueue(here.calls(), [Headers(), Role(), Hang()])
        async with server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Go", "agent/helper")
            reader = await api.events(run_id)
            while (frame := await reader.next_event()).event != "step.started" or frame.json()["step"] != 2:
                pass
            for _ in range(2):  # the second script is of this server
                await up.next_request()
        await server.kill9()
        up.enqueue(answer("Done."))
        await server.restart()
        async with server.client() as client:
            frames = await Native(client).replay(run_id)

    check(here.folder, frames)
    assert dict.fromkeys(CALLS, 1) == {name: len(ids) for name, ids in effects(here.folder).items()}
    assert "outcome.requested" not in [frame.event for frame in frames]


@requirement("crash.effects", "nodes.takeover")
async def test_another_node_goes_on_with_the_calls_of_one_that_was_killed(up, tmp_path):
    """The person answers at the node that is left. What it learns of the dead one is in the store."""
    shared = {"HOLDFAST_STORE": shared_postgres().new_url(), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(world(up, tmp_path, "during"))
        first = await stack.enter_async_context(here.server(tmp_path / "one", shared))
        second = await stack.enter_async_context(here.server(tmp_path / "two", shared))
        up.enqueue(here.calls())
        async with first.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Go", "agent/helper")
            await here.hanging()
        await first.kill9()
        up.enqueue(answer("Done."))
        async with second.client() as client:
            frames = await go_on(Native(client), run_id, "during")

    check(here.folder, frames)


@requirement("crash.effects")
async def test_the_question_about_a_call_survives_another_kill(up, tmp_path):
    """It is asked under the same id, and an answer that was confirmed is not asked for again."""
    async with world(up, tmp_path, "during") as here, here.server(tmp_path / "data") as server:
        up.enqueue(here.calls())
        async with server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Go", "agent/helper")
            await here.hanging()
        await server.kill9()
        await server.restart()
        async with server.client() as client:
            api = Native(client)
            first, *rest = await asked(api, run_id)
            await tell(api, run_id, first, "skip")
        await server.kill9()
        up.enqueue(answer("Done."))
        await server.restart()
        async with server.client() as client:
            api = Native(client)
            for request in rest:
                await tell(api, run_id, request, "ran")
            frames = await api.replay(run_id)

    check(here.folder, frames)
    assert len(NEVER) == len([frame for frame in frames if frame.event == "outcome.requested"])
    said = [told["content"] for told in up.requests[-1].body["messages"] if told["role"] == "tool"]
    assert 1 == sum("A person decided that it is not run again." in content for content in said)
