"""Official JavaScript clients of other dialects against the server: `node/*.test.mjs` have the tests, this runs all."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.clients import KEY, SCRIPTS, setting

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOLDER = Path(__file__).parent / "node"
PACKAGES = {
    "anthropic.test.mjs": "@anthropic-ai/sdk",
    "ag-ui.test.mjs": "@ag-ui/client",
    "responses.test.mjs": "openai",
}
NODE = Path(sys.executable).parent / "node"
NAMES = [
    (script, name)
    for script in PACKAGES
    for name in re.findall(r'^test\("([^"]+)"', (FOLDER / script).read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def report(tmp_path_factory):
    """All of them are run once: how each ended, and all that node printed."""
    if not NODE.exists() or not all((FOLDER / "node_modules" / package).exists() for package in PACKAGES.values()):
        pytest.skip("node and the npm packages are installed by `make setup-dev`")
    async with setting(tmp_path_factory.mktemp("node-clients")) as here:
        here.up.models |= dict.fromkeys(["aborting", "aborting-ag-ui", "connecting"], SCRIPTS["hanging"])
        known = {"SERVER": here.server.url, "API_KEY": KEY, "UPSTREAM": here.up.base_url.removesuffix("/v1")}
        process = await asyncio.create_subprocess_exec(
            *(NODE, "--test", "--test-reporter=tap", *(FOLDER / script for script in PACKAGES)),
            env=os.environ | known,
            cwd=FOLDER,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(50):
                printed, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    text = printed.decode()
    found = re.findall(r"^ *(not ok|ok) \d+ - (.+?)$", text, re.MULTILINE)
    return {name: outcome for outcome, name in found}, text


@pytest.mark.parametrize("name", [name for _, name in NAMES])
async def test_node_clients(report, name):
    """See the test of that name in `node/`."""
    results, printed = report

    assert "ok" == results.get(name), printed


async def test_no_test_of_the_scripts_is_overlooked(report):
    """A test whose name is not found would never be looked at."""
    results, _ = report

    assert sorted(name for _, name in NAMES) == sorted(results)
