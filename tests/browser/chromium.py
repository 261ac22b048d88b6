"""Finds a Chromium, or fetches one: `python -m tests.browser.chromium` says which, and installs one where it can.

A browser of the system is preferred; then the one that Playwright fetches; on Debian, for root, a package brings it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 100.0
"""Seconds for fetching something: behind a wall some ways wait for ever."""
INSTALLING = 600.0
"""Seconds for unpacking what has been fetched: a package manager that is killed in the middle of it leaves a mess."""


def find(own: str) -> Path | None:
    """Where `HOLDFAST_TEST_CHROMIUM` says, in the path, or Playwright's own, which may not be there."""
    asked = os.environ.get("HOLDFAST_TEST_CHROMIUM")
    places = [asked] if asked else [*(shutil.which(name) for name in NAMES), own]
    return next((Path(place) for place in places if place and Path(place).exists()), None)


def fetch(own: str) -> Path | None:
    """Try each way in turn. Nothing is said to be there that is not."""
    for way in _ways():
        for command, patience in way:
            if not _done(command, patience):
                break
        if (found := find(own)) is not None:
            return found
    return None


def _done(command: list[str], patience: float) -> bool:
    """Run a command that asks nobody anything; where it fails, say in a line why."""
    print("Fetching a browser for the tests:", " ".join(command), flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        ended = subprocess.run(
            command, timeout=patience, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"  {error}", flush=True)
        return False
    if ended.returncode:
        said = (ended.stdout + ended.stderr).decode(errors="replace")
        lines = [line.strip() for line in said.splitlines() if re.match(r"\s*(E:|Error|Failed)", line)]
        print(f"  {lines[0] if lines else f'it ended with {ended.returncode}'}", flush=True)
    return not ended.returncode


def _ways() -> list[list[tuple[list[str], float]]]:
    """Return what can be tried: the commands of each way, with the time that each may take."""
    apt = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    packaged = [
        (["apt-get", "update", "--quiet"], PATIENCE),
        ([*apt, "--download-only"], PATIENCE),
        ([*apt, "--no-download"], INSTALLING),
    ]
    playwright = [([sys.executable, "-m", "playwright", "install", "chromium"], PATIENCE)]
    may_install = shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0
    return [packaged, playwright] if may_install else [playwright]


def playwrights_own() -> str:
    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


if __name__ == "__main__":
    own = playwrights_own()
    print(find(own) or fetch(own) or "No Chromium could be found or fetched: tests of the browser UI will be skipped.")
