"""What agents keep of one owner is not shown to another: files, and whatever an MCP server remembers."""

import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.mcp.described import McpServer
from holdfast.agents.mcp.pool import ToolServers
from holdfast.agents.tools import ToolContext
from holdfast.server.config.settings import KeySettings, McpSettings
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.http import Client
from tests.support.native import Native
from tests.support.upstream import Upstream, answer, calling

KEYS = {"ada": "ada-key-4f1c9d77aa0142", "bob": "bob-key-77aa014f1c9d42"}
MCP_SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def two_owners(tmp_path: Path, settings: dict[str, Any] | None = None, **agent: Any) -> AsyncIterator[Any]:
    """A function that lets an owner's agent call one tool and returns what came of it."""
    digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
    keys = tuple(KeySettings(name, sha256=digest) for name, digest in digests.items())
    async with (
        Upstream() as up,
        serving(up, tmp_path, settings={"keys": keys, **(settings or {})}, users=("*",), **agent) as world,
    ):

        async def call(owner: str, tool: str, **arguments: Any) -> tuple[str, bool]:
            up.enqueue(calling((tool, arguments)), answer("Done."))
            url = f"http://127.0.0.1:{world.api.client.port}"
            async with Client(url, {"authorization": f"Bearer {KEYS[owner]}"}, timeout=60) as client:
                api = Native(client)
                frames = await api.replay(await api.start(await api.new_session(), "Go", "agent/helper"))
            (result,) = [frame.json() for frame in frames if frame.event == "tool.result"]
            return result["output"], result["is_error"]

        call.url = f"http://127.0.0.1:{world.api.client.port}"  # type: ignore[attr-defined]
        yield call


WRITES = {"tools": ("files", "shell"), "approvals": {"files_write": "allow", "shell": "allow"}}


@requirement("safe.agent-owners")
async def test_each_owner_has_a_folder_of_its_own(tmp_path):
    """The same agent, the same path: what Ada's has written Bob's does not find, and Ada's next run does."""
    async with two_owners(tmp_path, **WRITES) as call:
        await call("ada", "files_write", path="diary.txt", content="CANARY")
        bobs = [
            await call("bob", "files_read", path="diary.txt"),
            await call("bob", "files_search", text="canary"),
            await call("bob", "files_list"),
            await call("bob", "shell", command="cat *; pwd"),
        ]
        hers = await call("ada", "files_read", path="diary.txt")

    assert ("CANARY", False) == hers
    assert "CANARY" not in str(bobs)
    assert str(tmp_path / "agents" / "helper" / "conf_bob") in bobs[3][0]


@requirement("safe.agent-owners")
async def test_a_folder_that_the_settings_name_is_shared(tmp_path):
    """Who names one wants all to see it."""
    async with two_owners(tmp_path, **WRITES, folder=str(tmp_path / "all")) as call:
        await call("ada", "files_write", path="board.txt", content="for all")

        assert ("for all", False) == await call("bob", "files_read", path="board.txt")


@requirement("safe.agent-owners")
@pytest.mark.parametrize("is_shared", [False, True], ids=["by default", "where the settings share it"])
async def test_each_owner_has_a_connection_to_an_mcp_server_of_its_own(tmp_path, is_shared):
    """A server remembers what it was told: for its owner's next run, and for nobody else's."""
    command = {"command": sys.executable, "args": ("-P", str(MCP_SERVER), str(tmp_path / "seen"))}
    mcp = (McpSettings("slow", **command, approval="allow", shared=is_shared),)
    async with two_owners(tmp_path, {"mcp": mcp}, tools=("mcp:slow",)) as call:
        told = [
            await call("ada", "slow__remember", text="hers"),
            await call("bob", "slow__remember", text="his"),
            await call("ada", "slow__remember", text="again"),
        ]

    shared = ["hers", "hers his", "hers his again"]
    assert (shared if is_shared else ["hers", "his", "hers again"]) == [output for output, _ in told]


async def test_a_connection_that_is_not_used_ends_when_another_owner_needs_one(tmp_path):
    """A process for each key that was ever used would stay for good. The next call of its owner starts it again."""
    described = McpServer(name="slow", command=sys.executable, args=("-P", str(MCP_SERVER), str(tmp_path / "seen")))
    servers = ToolServers(described, idle=0.0)
    try:
        for owner in ("ada", "bob", "ada"):
            output = await servers.of(owner).call("remember", {"text": owner}, ToolContext())
    finally:
        await servers.close()

    assert 3 == (tmp_path / "seen").read_text().count("pid")
    assert "ada" == output.text
