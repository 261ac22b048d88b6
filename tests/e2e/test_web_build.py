"""The browser UI that is committed is the one that its source gives."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import requirement

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "web"
BUILT = ROOT / "src" / "holdfast" / "web"
NODE = Path(sys.executable).parent / "node"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@requirement("ui.build")
def test_the_committed_page_is_what_its_source_builds_to(tmp_path):
    """Nobody can review a bundle; so it is built again here and compared, byte by byte."""
    if not (SOURCE / "node_modules" / "vite").exists():
        pytest.skip("vite is installed by `make setup-dev`")
    vite = SOURCE / "node_modules" / "vite" / "bin" / "vite.js"
    command = [NODE, vite, "build", "--outDir", tmp_path / "web", "--logLevel", "error"]
    subprocess.run(command, cwd=SOURCE, check=True, env={**os.environ, "NODE_ENV": "production"})

    assert contents(BUILT) == contents(tmp_path / "web")


def test_the_reducers_of_the_page_do_what_their_own_tests_say():
    """What turns events into what is drawn is tested where it is written, without a browser: `web/test`."""
    vitest = SOURCE / "node_modules" / "vitest" / "vitest.mjs"
    if not vitest.exists():
        pytest.skip("vitest is installed by `make setup-dev`")
    done = subprocess.run([NODE, vitest, "run"], cwd=SOURCE, capture_output=True, text=True, timeout=300)

    assert 0 == done.returncode, done.stdout + done.stderr


@requirement("ui.build")
def test_the_first_load_is_under_90_kb():
    """A phone on a train opens it too. What few need (colours for code, formulas) is loaded when it is needed."""
    page = (BUILT / "index.html").read_text(encoding="utf-8")
    first = ["index.html", *(name[1:] for name in re.findall(r'(?:src|href)="(/[^"]+)"', page)), "assets/worker.js"]

    assert sum(len(gzip.compress((BUILT / name).read_bytes())) for name in first) < 90_000
