"""A second try is for tests that drive other processes, and for no others; whoever reads the output sees each."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ONCE = '''
"""Fails in its first try, with fixtures of every scope around it that are made with an event loop."""

from pathlib import Path

import pytest
import pytest_asyncio

TRIES = Path(__file__).with_suffix(".tries")
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared():
    TRIES.write_text(TRIES.read_text() + "s" if TRIES.exists() else "s")
    yield "shared"
    TRIES.write_text(TRIES.read_text() + "e")


@pytest_asyncio.fixture(loop_scope="session")
async def own(shared):
    yield shared


async def test_before(own):
    assert own


async def test_fails_once(own):
    TRIES.write_text(TRIES.read_text() + "t")
    assert TRIES.read_text() == "stt", "the first try"


async def test_after(own):
    assert own
'''
HANGS = """
import time
from pathlib import Path

import pytest

TRIES = Path(__file__).with_suffix(".tries")


@pytest.mark.timeout(2)
def test_hangs_in_its_second_try_only():
    if TRIES.exists():
        time.sleep(600)
    TRIES.write_text("t")
    raise AssertionError("the first try")
"""


pytestmark = pytest.mark.timeout(240)

AGAIN, ONLY_ONCE = ("browser", "e2e", "faults"), ("unit", "contract", "acceptance", "protocol", "simulation")


@dataclass
class Ended:
    """How a run of pytest ended, and where it was."""

    tests: Path
    code: int
    output: str


@pytest.fixture(scope="module", params=[(), ("--numprocesses", "2", "--dist", "loadfile")], ids=["alone", "xdist"])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Suites of the same names as here, with the conftest and the settings from here."""
    folder = tmp_path_factory.mktemp("suites")
    tests = folder / "tests"
    for suite in (*AGAIN, *ONLY_ONCE):
        (tests / suite).mkdir(parents=True)
        (tests / suite / f"test_{suite}.py").write_text(ONCE, encoding="utf-8")
    (tests / "e2e" / "test_hangs.py").write_text(HANGS, encoding="utf-8")
    shutil.copy(TESTS / "conftest.py", tests)
    shutil.copy(TESTS.parent / "pyproject.toml", folder)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *request.param, str(tests)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Ended(tests, ended.returncode, ended.stdout + ended.stderr)


@pytest.mark.parametrize("suite", AGAIN)
def test_what_drives_other_processes_is_tried_again_and_listed(ended, suite):
    """The failure that was forgiven is printed, and the fixtures that others share stay as they are."""
    name = f"tests/{suite}/test_{suite}.py::test_fails_once"

    assert f"RERUN {name}" in ended.output
    assert f"PASSED {name}" in ended.output
    assert f"FAILED {name}" not in ended.output
    assert "AssertionError: the first try" in ended.output
    assert "stte" == (ended.tests / suite / f"test_{suite}.tries").read_text()


@pytest.mark.parametrize("suite", ONLY_ONCE)
def test_nothing_else_is(ended, suite):
    """There a test that fails once has found something."""
    name = f"tests/{suite}/test_{suite}.py::test_fails_once"

    assert f"RERUN {name}" not in ended.output
    assert f"FAILED {name}" in ended.output
    assert "ste" == (ended.tests / suite / f"test_{suite}.tries").read_text()


def test_a_second_try_has_a_time_limit_too_and_is_the_last(ended):
    """A run that hangs must fail a test, not CI."""
    assert 1 == ended.code
    assert "Timeout (>2.0s)" in ended.output
    assert "FAILED tests/e2e/test_hangs.py" in ended.output
    assert f"{len(ONLY_ONCE) + 1} failed" in ended.output
    assert f"{len(AGAIN) + 1} rerun" in ended.output
