"""The browser of the tests is found or fetched, and where neither can be it is said in a line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[2]
APT = f"""#!{sys.executable}
import sys
from pathlib import Path

here = Path(__file__).parent
with open(here / "asked", "a") as asked:
    print(*sys.argv[1:], file=asked)
if "--no-download" in sys.argv and (here / "fetched").exists():
    (here / "chromium").touch(0o755)
if "--download-only" in sys.argv:
    (here / "fetched").touch()
"""
BROKEN_APT = f"""#!{sys.executable}
import sys

print("Reading package lists...")
sys.exit("E: Unable to locate package chromium")
"""
NONE = "No Chromium could be found or fetched: tests of the browser UI will be skipped."

as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root installs packages")


def said(folder: Path, apt: str = "", **environment: str) -> list[str]:
    """What `make setup-dev` prints of a browser, on a machine without one that has no command but this apt-get."""
    if apt:
        (folder / "apt-get").write_text(apt)
        (folder / "apt-get").chmod(0o755)
    alone = {
        "PATH": str(folder),
        "PLAYWRIGHT_BROWSERS_PATH": str(folder / "own"),
        "PLAYWRIGHT_DOWNLOAD_HOST": "http://127.0.0.1:9",  # where nobody listens
    }
    kept = {name: value for name, value in os.environ.items() if name != "HOLDFAST_TEST_CHROMIUM"}
    command = [sys.executable, "-m", "tests.browser.chromium"]
    ended = subprocess.run(
        command, cwd=ROOT, env=kept | alone | environment, capture_output=True, text=True, check=True
    )
    assert "" == ended.stderr
    return ended.stdout.splitlines()


def test_where_none_can_be_had_that_is_said_in_a_line(tmp_path):
    """The rest of the tests run, and nobody wonders why these do not."""
    lines = said(tmp_path)

    assert [False, True, False] == [line.startswith("  ") for line in lines]  # what was tried, why not, what follows
    assert NONE == lines[-1]


@as_root
def test_the_package_is_fetched_before_it_is_installed(tmp_path):
    """A fetch that takes too long is ended, and that must never be in the middle of unpacking."""
    lines = said(tmp_path, APT)
    asked = (tmp_path / "asked").read_text().splitlines()

    assert str(tmp_path / "chromium") == lines[-1]
    assert ["update", "install", "install"] == [each.split()[0] for each in asked]
    assert ["--download-only", "--no-download"] == [each.split()[-1] for each in asked[1:]]


@as_root
def test_a_package_that_is_not_there_is_said_and_the_next_way_is_tried(tmp_path):
    """In the package manager's own words."""
    lines = said(tmp_path, BROKEN_APT)

    assert "  E: Unable to locate package chromium" in lines
    assert any("playwright install" in line for line in lines)
    assert NONE == lines[-1]


def test_one_that_is_named_is_taken(tmp_path):
    """Before all others, and nothing is fetched then."""
    (tmp_path / "mine").touch()

    assert [str(tmp_path / "mine")] == said(tmp_path, HOLDFAST_TEST_CHROMIUM=str(tmp_path / "mine"))
