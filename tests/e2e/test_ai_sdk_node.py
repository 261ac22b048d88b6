"""The AI SDK's own client against the server: `node/ai_sdk.test.mjs` has the tests, this runs them."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.clients import BEGIN, KEY, setting
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOLDER = Path(__file__).parent / "node"
SCRIPT = FOLDER / "ai_sdk.test.mjs"
NODE = Path(sys.executable).parent / "node"
NAMES = re.findall(r'^test\("([^"]+)"', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
SCRIPTS = {
    "gated": [Headers(), Role(), Delta("one "), Gate("node"), Delta("two"), Finish(), Done()],
    "stopping": [*BEGIN, Hang()],
    "hooked": [*BEGIN, Hang()],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def report(tmp_path_factory):
    """All of them are run once: how each ended, and all that node printed."""
    if not NODE.exists() or not (FOLDER / "node_modules" / "ai").exists():
        pytest.skip("node and the npm packages of the AI SDK are installed by `make setup-dev`")
    async with setting(tmp_path_factory.mktemp("ai-sdk-node")) as here:
        here.up.models |= SCRIPTS
        known = {"SERVER": here.server.url, "API_KEY": KEY, "UPSTREAM": here.up.base_url.removesuffix("/v1")}
        process = await asyncio.create_subprocess_exec(
            *(NODE, "--test-reporter=tap", SCRIPT),
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
    found = re.findall(r"^(not ok|ok) \d+ - (.+)$", text, re.MULTILINE)
    return {name: outcome for outcome, name in found}, text


@pytest.mark.parametrize("name", NAMES)
async def test_ai_sdk(report, name):
    """See the test of that name in `node/ai_sdk.test.mjs`."""
    results, printed = report

    assert "ok" == results.get(name), printed


async def test_no_test_of_the_script_is_overlooked(report):
    """A test whose name is not found would never be looked at."""
    results, _ = report

    assert sorted(NAMES) == sorted(results)
