"""The official JavaScript clients against the server: `node/*.test.mjs` have the tests, this runs them."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.clients import KEY, SCRIPTS, Setting, setting
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, Tokens
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOLDER = Path(__file__).parent / "node"
INSTALLED = Path(__file__).parent / "node_modules"
NODE = Path(sys.executable).parent / "node"
PACKAGES = {
    "openai.test.mjs": "openai",
    "responses.test.mjs": "openai",
    "anthropic.test.mjs": "@anthropic-ai/sdk",
    "ag-ui.test.mjs": "@ag-ui/client",
    "ai_sdk.test.mjs": "ai",
    "truth.test.mjs": "ai",
}
"""Each script, and the npm package whose client it uses."""
SECOND_HALF = [f"t{number} " for number in range(20, 40)]
MODELS = {
    **dict.fromkeys(["breaking", "aborting", "aborting-ag-ui", "connecting"], SCRIPTS["hanging"]),
    **dict.fromkeys(["stopping", "hooked"], SCRIPTS["hanging"]),
    "silent-stream": [Hang()],
    "silent-whole": [Hang()],
    "two-tools-run": SCRIPTS["two-tools"],
    "gated": [Headers(), Role(), Delta("one "), Gate("node"), Delta("two"), Finish(), Done()],
    "cut-off": [Headers(), Role(), Tokens(20), Gate("workflow"), *map(Delta, SECOND_HALF), Finish(), Done()],
}
"""What only these scripts ask for."""
NAMES = [
    (script, name)
    for script in PACKAGES
    for name in re.findall(r'^test\("([^"]+)"', (FOLDER / script).read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reports(tmp_path_factory):
    """Run every script once, against one server: the outcome of each of its tests, and all that node printed."""
    if not NODE.exists() or not all((INSTALLED / package).exists() for package in PACKAGES.values()):
        pytest.skip("node and the npm packages are installed by `make setup-dev`")
    async with setting(tmp_path_factory.mktemp("node")) as here:
        here.up.models |= MODELS
        return {script: await run(script, here) for script in PACKAGES}


async def run(script: str, here: Setting) -> tuple[dict[str, str], str]:
    here.up.forget()  # the scripts count the requests for a model
    known = {"SERVER": here.server.url, "API_KEY": KEY, "UPSTREAM": here.up.base_url.removesuffix("/v1")}
    process = await asyncio.create_subprocess_exec(
        *(NODE, "--test-reporter=tap", FOLDER / script),
        env=os.environ | known,
        cwd=FOLDER,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(2 * LONG):  # a wait in a script has LONG
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = printed.decode()
    found = re.findall(r"^(not ok|ok) \d+ - (.+)$", text, re.MULTILINE)
    return {name: outcome for outcome, name in found}, text


@pytest.mark.parametrize(("script", "name"), NAMES)
async def test_node_client(reports, script, name):
    """See the test of that name in the script."""
    results, printed = reports[script]

    assert "ok" == results.get(name), printed


@pytest.mark.parametrize("script", PACKAGES)
async def test_no_test_of_a_script_is_overlooked(reports, script):
    """A test whose name is not found in the script's text would never be looked at."""
    results, _ = reports[script]

    assert sorted(name for file, name in NAMES if file == script) == sorted(results)


async def test_no_script_is_overlooked():
    """A script that is not in the table would never be run."""
    assert sorted(PACKAGES) == sorted(path.name for path in FOLDER.glob("*.test.mjs"))
