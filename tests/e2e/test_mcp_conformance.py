"""The MCP project's own conformance suite for clients, as far as Holdfast offers what a scenario is about.

Elicitation and OAuth are not offered (docs/agents-mcp.md).
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from bench.installs import node
from tests.requirements import requirement
from tests.support.waiting import LONG

SUITE = Path(__file__).parent / "node_modules" / "@modelcontextprotocol" / "conformance"
ROOT = Path(__file__).parents[2]


@pytest.mark.long("installs the suite")
@requirement("mcp.tools")
@pytest.mark.parametrize("scenario", ["initialize", "tools_call", "sse-retry"])
async def test_the_mcp_client_conforms(scenario):
    """Its judge sees what our client sent, and when."""
    program = node()
    if program is None or not SUITE.exists():
        pytest.skip("the suite is installed by `make test-all`")
    process = await asyncio.create_subprocess_exec(
        *(program, SUITE / "dist" / "index.js", "client", "--scenario", scenario, "--timeout", f"{LONG * 1000:.0f}"),
        *("--command", f"{sys.executable} -m tests.e2e.mcp_conformance_client"),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(2 * LONG):
        printed = (await process.communicate())[0].decode()
    passed = re.search(r"Passed: (\d+)/(\d+), (\d+) failed", printed)

    assert 0 == process.returncode, printed
    assert passed, printed
    assert int(passed[1]) == int(passed[2]) > 0, printed
