"""Tools of MCP servers, by stdio and by HTTP: calls, progress, stops, time-outs, deaths, and what is left of them."""

import asyncio
import logging
import os
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp.types import LATEST_PROTOCOL_VERSION

from holdfast.server.config.settings import AgentSettings, McpSettings, Settings, SettingsError
from holdfast.server.sources.agent_factory import agents_of
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.ports import free_port
from tests.support.server import Process, clean_environment
from tests.support.upstream import Upstream, answer, calling
from tests.support.waiting import LONG, SOON

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
COMMAND = (sys.executable, "-P", str(SERVER))
SECRET = "very-secret-6f1d0c2b9a8e"


class Slow:
    """What the slow server has seen."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "seen"

    def seen(self) -> list[str]:
        return self.file.read_text().split("\n")[:-1] if self.file.exists() else []

    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.seen() if line.startswith("pid ")]

    async def until(self, word: str) -> None:
        async with asyncio.timeout(LONG):
            while word not in self.seen():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid: int) -> None:
    async with asyncio.timeout(LONG):
        while lives(pid):  # noqa: ASYNC110 - a process that is not ours ends
            await asyncio.sleep(0.02)


async def warm(world) -> None:
    """Connect the server before a client waits for it: on a busy machine a new process takes its time."""
    await world.app.state.server.running.agents.agents["helper"].servers[0].of("local").tools()


@asynccontextmanager
async def connected(tmp_path, transport="stdio", *, is_warm=True, **more):
    """A server whose agent has the slow server's tools."""
    slow, agent = Slow(tmp_path), more.pop("agent", {})
    described = {"approval": "allow", **more}
    async with Upstream() as up:
        if transport == "stdio":
            command = {"command": COMMAND[0], "args": (*COMMAND[1:], str(slow.file)), "env": {"SLOW_SECRET": SECRET}}
            settings = {"mcp": (McpSettings("slow", **command, **described),)}
            async with serving(up, tmp_path, settings=settings, tools=("mcp:slow",), **agent) as world:
                if is_warm:
                    await warm(world)
                yield world, slow
            return
        port = free_port()
        process = Process(
            [*COMMAND, str(slow.file), str(port)], log=tmp_path / "mcp.log", env=clean_environment(), cwd=tmp_path
        )
        await process.start(re.compile("Uvicorn running"), LONG)
        try:
            settings = {"mcp": (McpSettings("slow", url=f"http://127.0.0.1:{port}/mcp", **described),)}
            async with serving(up, tmp_path, settings=settings, tools=("mcp:slow",), **agent) as world:
                yield world, slow
        finally:
            await process.kill9()


def results(frames):
    return [(frame.json()["output"], frame.json()["is_error"]) for frame in frames if frame.event == "tool.result"]


TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])


@requirement("mcp.tools")
async def test_a_run_says_that_it_waits_for_its_tools_only_if_it_does(tmp_path):
    """The first run starts the process of the server, which takes seconds. The next finds it there."""
    async with connected(tmp_path, is_warm=False) as (world, _):
        world.up.enqueue(answer("One."), answer("Two."))
        first = await world.api.replay((await world.start())[1])
        second = await world.api.replay((await world.start())[1])

    assert ["run.started", "notice", "step.started"] == [frame.event for frame in first][:3]
    assert ("starting_tools", "Starting the tools of slow.") == (first[1].json()["code"], first[1].json()["message"])
    assert "notice" not in [frame.event for frame in second]


@requirement("mcp.tools")
@TRANSPORTS
async def test_an_agent_calls_the_tools_of_an_mcp_server(tmp_path, transport):
    """Under names that every provider takes; the server is connected by the first run, and shared by the next."""
    async with connected(tmp_path, transport, is_warm=False) as (world, slow):
        begun = slow.pids()
        await warm(world)
        world.up.enqueue(calling(("slow__add", {"a": 1, "b": 2})), answer("3."))
        frames = await world.api.replay((await world.start())[1])
        world.up.enqueue(calling(("slow__add", {"a": 3, "b": 4})), answer("7."))
        again = await world.api.replay((await world.start())[1])
        offered = [tool["function"] for tool in world.up.requests[0].body["tools"]]

    assert ([] if transport == "stdio" else begun) == begun, "nobody had asked for it yet"
    assert [("3", False)] == results(frames)
    assert [("7", False)] == results(again)
    assert 1 == len(slow.pids())
    assert all(re.fullmatch(r"slow__[a-zA-Z0-9_-]{1,58}", tool["name"]) for tool in offered)
    assert len(offered) == len({tool["name"] for tool in offered}) == 12
    assert {"a", "b"} == set(offered[0]["parameters"]["properties"])


@requirement("mcp.stop", "stop.tools")
@TRANSPORTS
async def test_stop_cancels_the_call_by_the_protocols_own_notification(tmp_path, transport):
    """Its progress was shown; the server is told, and lives on for others."""
    async with connected(tmp_path, transport) as (world, slow):
        world.up.enqueue(calling(("slow__wait", {})))
        _, run_id = await world.start()
        progress = await world.until(run_id, "tool.progress")
        stopped = await world.api.stop(run_id)
        await slow.until("cancelled")
        world.up.enqueue(calling(("slow__add", {"a": 1, "b": 2})), answer("3."))
        frames = await world.api.replay((await world.start())[1])

    assert ("a quarter", 0.25) == (progress["message"], progress["fraction"])
    assert "stopped" == stopped["settlement"]["outcome"]
    assert not stopped["settlement"]["receipt"].get("refused"), "the server did as it was told"
    assert [("3", False)] == results(frames)
    assert 1 == len(slow.pids())


@requirement("mcp.stop")
async def test_a_call_that_takes_too_long_is_cancelled_too(tmp_path):
    """The model is told, and the server need not go on."""
    async with connected(tmp_path, timeout=3.0) as (world, slow):  # a busy server has begun with the call by then
        world.up.enqueue(calling(("slow__wait", {})), answer("Too slow."))
        frames = await world.api.replay((await world.start())[1])
        await slow.until("cancelled")

    assert [("slow__wait took longer than its 3 s and was stopped.", True)] == results(frames)
    assert "completed" == frames[-1].json()["settlement"]["outcome"]


@requirement("mcp.tools")
@TRANSPORTS
async def test_the_newest_version_of_the_protocol_is_spoken(tmp_path, transport, caplog):
    """With a server that knows it; the version before, which most servers speak, the real ones in e2e are asked in."""
    caplog.set_level(logging.INFO, "holdfast")
    async with connected(tmp_path, transport, is_warm=False) as (world, _):
        await warm(world)

    assert f"connected to MCP server slow, protocol {LATEST_PROTOCOL_VERSION}" in caplog.text
    assert "2026-07-28" == LATEST_PROTOCOL_VERSION, "the docs name it"


@requirement("mcp.death")
async def test_a_server_killed_in_mid_call_is_told_as_it_is_and_the_next_call_has_a_new_one(tmp_path):
    """Nobody knows whether the call has run, and the run goes on."""
    async with connected(tmp_path) as (world, slow):
        world.up.enqueue(calling(("slow__die", {})), calling(("slow__add", {"a": 1, "b": 2})), answer("3."))
        frames = await world.api.replay((await world.start())[1])

    died, added = results(frames)
    assert ("MCP server slow ended while die was running. It may have run.", True) == died
    assert ("3", False) == added
    assert 2 == len(slow.pids())
    assert "completed" == frames[-1].json()["settlement"]["outcome"]


@requirement("mcp.death")
async def test_a_server_that_died_between_two_runs_is_connected_anew(tmp_path):
    """What nobody was waiting for harms nobody."""
    async with connected(tmp_path) as (world, slow):
        world.up.enqueue(calling(("slow__add", {"a": 1, "b": 2})), answer("3."))
        await world.api.settled((await world.start())[1])
        os.kill(slow.pids()[0], 9)
        await gone(slow.pids()[0])
        world.up.enqueue(calling(("slow__add", {"a": 3, "b": 4})), answer("7."))
        frames = await world.api.replay((await world.start())[1])

    assert [("7", False)] == results(frames)


@requirement("mcp.death")
async def test_an_http_server_killed_in_mid_call_is_an_error_and_then_away(tmp_path):
    """The run of the next user fails with a reason, before any model was asked without its tools."""
    async with connected(tmp_path, "http") as (world, _):
        world.up.enqueue(calling(("slow__die", {})), answer("Oh."))
        frames = await world.api.replay((await world.start())[1])
        asked = len(world.up.requests)
        failed = await world.api.settled((await world.start())[1])

    ((_, is_error),) = results(frames)
    assert is_error
    assert "completed" == frames[-1].json()["settlement"]["outcome"]
    assert ("failed", "tool_server_away") == (failed["outcome"], failed["error"]["code"])
    assert asked == len(world.up.requests)


async def _slowest_health(api, until: asyncio.Event) -> float:
    """Ask for the server's health again and again; how long the slowest answer took."""
    slowest, loop = 0.0, asyncio.get_running_loop()
    while not until.is_set():
        began = loop.time()
        await api.get("/health")
        slowest = max(slowest, loop.time() - began)
        await asyncio.sleep(0.01)
    return slowest


@requirement("mcp.limit")
@TRANSPORTS
async def test_a_message_that_is_too_long_fails_its_call_and_holds_up_nobody(tmp_path, transport):
    """A result of 40 MB: the call fails and says why, the next one has a new connection, and others do not wait."""
    async with connected(tmp_path, transport) as (world, _):
        over = asyncio.Event()
        watching = asyncio.create_task(_slowest_health(world.api, over))
        began = asyncio.get_running_loop().time()
        world.up.enqueue(calling(("slow__large", {"size": 40_000_000})), calling(("slow__add", {"a": 1, "b": 2})))
        world.up.enqueue(answer("3."))
        frames = await world.api.replay((await world.start())[1])
        took = asyncio.get_running_loop().time() - began
        over.set()
        slowest = await watching

    (too_long, is_error), added = results(frames)
    assert is_error
    assert "MCP server slow" in too_long
    assert "8 MB" in too_long
    assert ("3", False) == added
    assert took < 60, "it took 88 s where the message was read to its end"
    assert slowest < SOON


@requirement("mcp.limit")
@TRANSPORTS
async def test_a_message_below_the_limit_is_read_whole(tmp_path, transport):
    """7 MB are fewer than the limit: people are shown the head and the tail, and the connection stays."""
    async with connected(tmp_path, transport) as (world, slow):
        world.up.enqueue(calling(("slow__large", {"size": 7_000_000})), answer("Long."))
        frames = await world.api.replay((await world.start())[1])

    ((output, is_error),) = results(frames)
    assert not is_error
    assert len(output) > 900_000
    assert 1 == len(slow.pids())


@requirement("mcp.limit")
async def test_a_program_that_ends_no_line_is_left_at_the_limit(tmp_path):
    """It is ended at once, with all that it still had to say."""
    lines = "import sys; sys.stdin.readline(); [print('x' * 1_000_000, end='', flush=True) for _ in range(1000)]"
    async with Upstream() as up:
        mcp = (McpSettings("endless", command=sys.executable, args=("-c", lines)),)
        async with serving(up, tmp_path, settings={"mcp": mcp}, tools=("mcp:endless",)) as world:
            failed = await world.api.settled((await world.start())[1])

    assert ("failed", "tool_server_away") == (failed["outcome"], failed["error"]["code"])
    assert "8 MB" in failed["error"]["message"]


@requirement("mcp.shutdown")
async def test_the_end_of_the_server_leaves_no_process(tmp_path):
    """Neither the MCP server nor what it has started, although that ignores the signal and left the session."""
    async with connected(tmp_path) as (world, slow):
        world.up.enqueue(calling(("slow__spawn", {})), answer("Done."))
        frames = await world.api.replay((await world.start())[1])
        ((child, _),) = results(frames)
        pids = [*slow.pids(), int(child)]
        lived = [lives(pid) for pid in pids]

    assert [True, True] == lived
    for pid in pids:
        await gone(pid)


async def test_a_person_is_asked_unless_the_settings_say_otherwise(tmp_path):
    """A server that others wrote is not trusted by default."""
    async with connected(tmp_path, approval="ask", agent={"approvals": {"slow__fail": "deny"}}) as (world, slow):
        calls = calling(("slow__add", {"a": 1, "b": 2}), ("slow__fail", {}))
        world.up.enqueue(calls, answer("3."))
        _, run_id = await world.start()
        asked = await world.until(run_id, "approval.requested")
        before = slow.seen()
        await world.api.client.post(f"/api/runs/{run_id}/approvals/{asked['id']}", {"decision": "allow"})
        frames = await world.api.replay(run_id)

    assert "slow__add" == asked["tool"]
    assert "add" not in before
    assert {("3", False), ("slow__fail may not be used here: the settings deny it.", True)} == set(results(frames))


@requirement("mcp.secrets")
async def test_a_failing_tool_does_not_show_the_secrets_that_it_was_given(tmp_path):
    """Programs quote their keys when they complain."""
    async with connected(tmp_path) as (world, _):
        world.up.enqueue(calling(("slow__fail", {})), answer("No."))
        frames = await world.api.replay((await world.start())[1])

    ((words, is_error),) = results(frames)
    assert is_error
    assert "no access with [redacted]" in words


async def test_only_the_tools_that_are_allowed_are_there(tmp_path):
    """The list in the settings is the server's own names."""
    async with connected(tmp_path, tools=("add",)) as (world, _):
        world.up.enqueue(answer("Hi."))
        await world.api.settled((await world.start())[1])
        offered = [tool["function"]["name"] for tool in world.up.requests[0].body["tools"]]

    assert ["slow__add"] == offered


async def test_a_server_that_cannot_be_started_fails_the_run_and_says_why(tmp_path):
    """An agent without its tools would be another agent."""
    async with Upstream() as up:
        mcp = (McpSettings("nowhere", command="/no/such/program"),)
        async with serving(up, tmp_path, settings={"mcp": mcp}, tools=("mcp:nowhere",)) as world:
            failed = await world.api.settled((await world.start())[1])

    assert ("failed", "tool_server_away") == (failed["outcome"], failed["error"]["code"])
    assert "MCP server nowhere cannot be reached" in failed["error"]["message"]
    assert [] == up.requests


@pytest.mark.parametrize(
    ("mcp", "tools", "words"),
    [
        ((McpSettings("a b", command="x"),), (), "not a valid name for an MCP server"),
        ((McpSettings("a", command="x"), McpSettings("a", command="y")), (), "is used twice"),
        ((McpSettings("a"),), (), "either a command or a url"),
        ((McpSettings("a", command="x", url="http://x"),), (), "either a command or a url"),
        ((McpSettings("a", command="x", env_from=("NOT_THERE",)),), (), "needs the variable NOT_THERE"),
        ((McpSettings("a", url="http://x", api_key_env="NOT_THERE"),), (), "needs the variable NOT_THERE"),
        ((), ("mcp:b",), "no .*mcp.* server named 'b'"),
    ],
)
def test_wrong_settings_are_told_at_the_start(mcp, tools, words):
    """Not when the first run needs the server."""
    agents = (AgentSettings("helper", model="up/m", tools=tools),)
    with pytest.raises(SettingsError, match=words):
        agents_of(Settings(mcp=mcp, agents=agents), {})
