"""The matrix of clients in docs/clients: each cell names an existing test, and each version is the one it ran with."""

import importlib.metadata
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients" / "README.md"
PACKAGES = [ROOT / "tests" / "e2e" / folder / "package.json" for folder in ("node", "coding_agents")]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").partition("## What the tests show")[2].splitlines()
    if line.startswith("|") and "---" not in line
][1:]
CELL = re.compile(r'\[yes\]\((?P<path>[^ ]+) "(?P<test>[^"]+)"\)')


def installed(client: str) -> str:
    """The version that the tests run: locked by npm, or installed by pip."""
    npm = {name: version for file in PACKAGES for name, version in json.loads(file.read_text())["dependencies"].items()}
    name = client.removesuffix(" (Python)").removesuffix(" (Node)")
    return npm[name] if name in npm and "Python" not in client else importlib.metadata.version(name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[2]}")
def test_every_cell_names_a_test_that_there_is(row):
    """A matrix that nobody checks says what once was."""
    cells = [cell for cell in row[3:] if cell]
    found = [CELL.fullmatch(cell) for cell in cells]

    assert cells
    assert all(found), cells
    for cell in found:
        assert cell is not None
        assert cell["test"] in (PAGE.parent / cell["path"]).read_text(encoding="utf-8")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[2]}")
def test_a_version_is_the_one_that_the_tests_run(row):
    """After an update of the lock files the page is written again."""
    assert installed(row[0]) == row[1]
