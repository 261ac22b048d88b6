"""Finds a Chromium, or fetches one: `python -m tests.browser.chromium` says which, and installs one where it can.

A browser of the system is preferred; then the one that Playwright fetches; on Debian, for root, a package brings it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 100.0
"""Seconds for one way of fetching it: behind a wall some of them wait for ever."""


def find(own: str) -> Path | None:
    """Where `HOLDFAST_TEST_CHROMIUM` says, in the path, or Playwright's own, which may not be there."""
    asked = os.environ.get("HOLDFAST_TEST_CHROMIUM")
    places = [asked] if asked else [*(shutil.which(name) for name in NAMES), own]
    return next((Path(place) for place in places if place and Path(place).exists()), None)


def fetch(own: str) -> Path | None:
    """Try each way in turn. Nothing is said to be there that is not."""
    for command in _ways():
        print("Fetching a browser for the tests:", " ".join(command), flush=True)
        try:
            subprocess.run(command, timeout=PATIENCE, check=False, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(error, flush=True)
        if (found := find(own)) is not None:
            return found
    return None


def _ways() -> list[list[str]]:
    apt = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    may_install = shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0
    packaged = [["apt-get", "update", "--quiet"], apt] if may_install else []
    return [*packaged, [sys.executable, "-m", "playwright", "install", "chromium"]]


def playwrights_own() -> str:
    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


if __name__ == "__main__":
    own = playwrights_own()
    print(find(own) or fetch(own) or "No Chromium could be found or fetched: tests of the browser UI will be skipped.")
