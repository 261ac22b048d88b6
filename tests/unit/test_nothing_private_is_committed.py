"""The repository says nothing about the machines and mirrors that it was made with."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Joined here, so that this file does not contain what it looks for.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ["files", "pythonhosted", "org"],
        ["pypi", "org"],
        ["registry", "npmjs", "org"],
        ["deb", "debian", "org"],
    )
]
MACHINE_PATH = re.compile(rb"(?<![\w.~}])/(?:root|work)/")


@cache
def files() -> list[Path]:
    """What is committed, and what would be by `git add --all`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file()]


@pytest.fixture(autouse=True)
def _in_a_checkout():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: a source distribution has nothing to commit")


@pytest.mark.parametrize("host", REGISTRIES)
def test_no_file_names_a_package_registry(host):
    """Locks hold names, versions and hashes; where packages come from is the business of each machine."""
    assert [] == [str(path.relative_to(ROOT)) for path in files() if host.encode() in path.read_bytes()]


def test_no_package_lock_says_where_it_was_resolved():
    """npm writes the mirror of whoever made the lock into `resolved`."""
    locks = [path for path in files() if path.name == "package-lock.json"]
    packages = [package for path in locks for package in json.loads(path.read_bytes())["packages"].items()]

    assert packages
    assert [] == [name for name, entry in packages if "resolved" in entry and not entry.get("link")]


def test_no_file_has_a_path_of_a_machine():
    """A path of one machine is wrong on every other."""
    assert [] == [str(path.relative_to(ROOT)) for path in files() if MACHINE_PATH.search(path.read_bytes())]
