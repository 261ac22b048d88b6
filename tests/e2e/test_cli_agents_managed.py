"""Agents and MCP servers on the command line: added, tried, listed and removed."""

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.test_cli import Shell, here
from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Upstream

pytestmark = pytest.mark.asyncio

SLOW = Path(__file__).parents[1] / "support" / "mcp_server.py"


@requirement("managed.cli")
async def test_an_agent_gets_the_tools_of_a_server_in_the_terminal(tmp_path):
    """From a command to an agent, with each mistake told in a line."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=["m"])]) as server:
        shell = Shell(tmp_path, here(server))

        async def done(*args: str) -> str:
            ended = await shell(*args)
            assert 0 == ended.code, ended.err
            return str(ended.out)

        command = (sys.executable, "-P", str(SLOW), str(tmp_path / "seen"))
        assert "Added slow." in await done("mcp", "add", "slow", "--env", "SLOW_SECRET=quiet-please", "--", *command)
        assert "add\tAdd two numbers." in await done("mcp", "tools", "slow")
        assert "42\n" == await done("mcp", "call", "slow", "add", '{"a": 20, "b": 22}')
        failed = await shell("mcp", "call", "slow", "fail")
        assert (1, True) == (failed.code, "[redacted]" in failed.out)
        [listed] = json.loads(await done("mcp", "ls", "--json"))
        assert ("slow", "connected", ["SLOW_SECRET"]) == (listed["name"], listed["state"], listed["env"])
        added = ("agents", "add", "helper", "-m", "up/m", "--tool", "mcp:slow", "--allow", "slow__add")
        assert "holdfast chat --agent helper" in await done(*added)
        [agent] = json.loads(await done("agents", "ls", "--json"))
        assert ({"slow__add": "allow"}, ["mcp:slow"]) == (agent["approvals"], agent["tools"])
        wrong = {
            ("mcp", "add", "other"): "--server-url",
            ("mcp", "add", "other", "--server-url", "ftp://host/"): "http://",
            ("mcp", "call", "slow", "add", "{"): "not JSON",
            ("mcp", "disconnect", "slow"): "connect an account",
            ("mcp", "rm", "slow"): "'helper'",
            ("agents", "add", "helper", "-m", "up/m"): "already",
            ("agents", "rm", "nobody"): "no agent",
        }
        for args, words in wrong.items():
            ended = await shell(*args)
            assert 0 != ended.code, args
            assert words in ended.err, (args, ended.err)
        assert "Removed helper.\n" == await done("agents", "rm", "helper")
        assert "Removed slow.\n" == await done("mcp", "rm", "slow")
