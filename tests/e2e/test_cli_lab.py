"""`holdfast lab` as a person and a script use it, at our own server and at none."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_port
from tests.support.server import Server, clean_environment, provider
from tests.support.waiting import LONG


class Ended(NamedTuple):
    """How a command ended and what it printed."""

    code: int | None
    out: str
    err: str


async def lab(folder: Path, *args: str) -> Ended:
    command = (sys.executable, "-m", "holdfast", "lab", *args)
    env = clean_environment() | {"HOME": str(folder), "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=env, cwd=folder
    )
    async with asyncio.timeout(LONG):
        out, err = await process.communicate()
    return Ended(process.returncode, out.decode(), err.decode())


async def test_a_server_is_judged_and_the_report_says_so_in_three_forms(tmp_path):
    """A table for a person, JSON for a script, a page to pass on."""
    port = free_port()
    async with Server(tmp_path / "data", [provider(f"http://127.0.0.1:{port}/v1")]) as server:
        where = ["--url", f"{server.url}/v1", "--model", "up/m", "--server", "holdfast", "--upstream-port", str(port)]
        chosen = ["--only", "truth/c*"]  # and no latency: a busy machine has its own
        shown = await lab(tmp_path, *where, *chosen, "--report", "page.html")
        told = await lab(tmp_path, *where, *chosen, "--wire", "native", "--json")

    page = (tmp_path / "page.html").read_text()
    report = json.loads(told.out)
    assert (0, 0) == (shown.code, told.code), shown.err + told.err
    assert "truth/cut " in shown.out
    assert "4 pass, 0 fail" in shown.out
    assert '<td class="pass">pass</td><td>told as failure' in page
    assert "<script" not in page
    assert {"native"} == {finding["wire"] for finding in report["findings"]}
    assert {"truth/completed", "truth/cut"} == {
        finding["id"] for finding in report["findings"] if finding["verdict"] == "pass"
    }


async def test_a_server_that_is_not_there_is_no_failure_of_its_promises(tmp_path):
    """One line that says what to do, and not a table of failures."""
    ended = await lab(tmp_path, "--url", "http://127.0.0.1:9/v1", "--upstream-port", "0")

    assert (1, "") == (ended.code, ended.out)
    assert "did not ask the lab's upstream" in ended.err
    assert "OpenAI-compatible provider" in ended.err


async def test_without_an_address_it_says_what_is_missing(tmp_path):
    """The first thing that a newcomer types."""
    ended = await lab(tmp_path)

    assert 2 == ended.code
    assert "--url" in ended.err


async def test_without_the_package_the_command_says_how_to_install_it(tmp_path):
    """The lab is a package of its own: whoever has only the server learns what to do, and sees no traceback."""
    code = "import sys; sys.modules['holdfast_lab'] = None; from holdfast.cli import main; main(['lab', '--help'])"
    command = (sys.executable, "-c", code)
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=clean_environment(), cwd=tmp_path)
    async with asyncio.timeout(LONG):
        _, err = await process.communicate()

    assert 1 == process.returncode
    assert "pip install ./lab" in err.decode()
    assert "Traceback" not in err.decode()


async def test_the_upstream_alone_says_how_servers_are_told_to_use_it(tmp_path):
    """Nobody should have to read our code to set up theirs."""
    command = (sys.executable, "-m", "holdfast", "lab", "upstream", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=clean_environment(), cwd=tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(LONG):
        first = (await process.stdout.readline()).decode()
        while not (line := await process.stdout.readline()).startswith(b"vllm-router"):
            assert line
    os.kill(process.pid, signal.SIGINT)
    async with asyncio.timeout(LONG):
        await process.communicate()

    assert "ready on http://127.0.0.1:" in first
    assert 0 == process.returncode
