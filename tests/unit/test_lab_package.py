"""The fault lab is a package of its own that uses only the public API of `holdfast`."""

import ast
import importlib
import itertools
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
import holdfast_lab
from holdfast_lab.http import Broken
from holdfast_lab.sse import MAX_EVENT, SSEDecoder
from tests.support.server import clean_environment
from tests.support.waiting import LONG

ROOT = Path(__file__).parents[2]
LAB = ROOT / "lab"
PUBLIC = {"holdfast", "holdfast.markup"}
"""Modules of `holdfast` that are documented for others. Only what their `__all__` names may be imported."""


def imports_of_holdfast() -> list[tuple[str, str, str]]:
    """Each import of `holdfast` in the lab: the file, the module and the name; the name is "" for a whole module."""
    found = []
    for path in sorted(LAB.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found += [(path.relative_to(LAB).as_posix(), alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found += [(path.relative_to(LAB).as_posix(), node.module or "", alias.name) for alias in node.names]
    return [one for one in found if one[1].partition(".")[0] == "holdfast"]


OF_CONTRACTS = ("access", "asks", "errors", "events", "history", "ids", "store", "upstreams")
"""What a store and a provider are made of: their contracts speak of nothing else."""


def is_public(module: str, name: str) -> bool:
    """Whether a module may be imported whole, or one of its names."""
    return f"{module}.{name}" in PUBLIC or (module in PUBLIC and name in importlib.import_module(module).__all__)


def test_the_lab_imports_only_public_names_of_holdfast():
    """Anybody could have written it, and a change inside of Holdfast cannot break it."""
    of_contracts = [one for one in imports_of_holdfast() if "contracts" in one[0]]
    of_the_lab = [one for one in imports_of_holdfast() if "contracts" not in one[0]]

    assert [] == [one for one in of_the_lab if not is_public(one[1], one[2])]
    assert of_the_lab, "the rule is checked against nothing"
    assert set(OF_CONTRACTS) == {one[1].split(".")[1] for one in of_contracts}


@pytest.mark.parametrize(("module", "name"), [("holdfast.upstreams.sse", "SSEDecoder"), ("holdfast", "ids")])
def test_the_rule_forbids_what_is_not_public(module, name):
    """A rule that allows everything would pass as well."""
    assert not is_public(module, name)


def test_importing_the_lab_loads_neither_the_server_nor_the_command_line():
    """It judges servers over HTTP. It does not run one."""
    code = "import sys, holdfast_lab; print([n for n in sys.modules if n.startswith(('holdfast.server', 'click'))])"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=True).stdout

    assert "[]" == loaded.strip()


def test_both_packages_have_the_same_version():
    """They are released together."""
    listed = tomllib.loads((LAB / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    assert holdfast.__version__ == holdfast_lab.__version__ == listed


def build(folder: Path, kind: str, into: Path) -> list[str]:
    """Build a distribution as `pip` and `python -m build` do, and return the names of its files."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(into)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=LONG)
    (made,) = into.iterdir()
    if kind == "wheel":
        return zipfile.ZipFile(made).namelist()
    with tarfile.open(made) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_each_distribution_holds_its_own_package_and_not_the_other(kind, tmp_path):
    """`pip install holdfast` brings no fault lab, and `pip install holdfast-lab` brings all of it."""
    server, lab = build(ROOT, kind, tmp_path / "server"), build(LAB, kind, tmp_path / "lab")

    assert [] == [name for name in server if "holdfast_lab" in name or name.startswith("lab/")]
    modules = {str(path.relative_to(LAB)) for path in (LAB / "holdfast_lab").rglob("*.py")}
    assert modules == {name for name in lab if name.endswith(".py")}
    assert "holdfast_lab/py.typed" in lab
    assert [] == [name for name in lab if name.startswith("holdfast/")]


@pytest.mark.parametrize("folder", [ROOT, LAB], ids=["holdfast", "lab"])
def test_an_editable_install_needs_nothing_beyond_the_locked_build_tools(folder, tmp_path):
    """`make setup-dev` builds both without isolation, from a fresh clone."""
    code = f"from hatchling.build import build_editable; print(build_editable({str(tmp_path)!r}))"
    command = [sys.executable, "-c", code]
    made = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=LONG).stdout

    names = zipfile.ZipFile(tmp_path / made.split()[-1]).namelist()
    assert [] == [name for name in names if name.endswith(".py")]
    assert 1 == sum(name.endswith(".pth") for name in names)


# its decoder

STREAM = (
    b"\xef\xbb\xbfevent: a\ndata: 1\n\n: comment\r\ndata: 2\r\ndata:3\r\n\r\nid: 7\rdata:\xe2\x80\xa8\r\rdata: cut off"
)
EVENTS = [(b"a", b"1"), (b"", b"2\n3"), (b"", b"\xe2\x80\xa8")]


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_events_are_the_same_wherever_the_bytes_are_cut(cuts):
    """TCP cuts where it likes, between CR and LF and inside of a character too."""
    decoder = SSEDecoder()
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in itertools.pairwise(places)]

    assert EVENTS == [event for piece in pieces for event in decoder.feed(piece)]


def test_an_event_without_end_is_not_held_in_memory():
    """The judged server may be anything."""
    decoder = SSEDecoder()
    decoder.feed(b"data: " + b"x" * (MAX_EVENT // 2))

    with pytest.raises(Broken, match="more than"):
        decoder.feed(b"x" * MAX_EVENT)
