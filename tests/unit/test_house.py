"""What keeps the code readable, counted: one owner for each name, and folders that fit on a screen."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
MOST_FILES = 14
"""Files in one folder, of any kind: `__init__.py`, SQL and `py.typed` included."""
BUILT = SRC / "holdfast" / "web"
"""The browser UI as it was built: nobody reads it."""
MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 50
CORE_LOOP = {"run.py": "Run", "pump.py": "Pump", "keeper.py": "Keeper", "committer.py": "Committer"}
"""The four classes that work on a run from its start to its settlement, by their files in `runs`."""
MOST_LINES_OF_THE_CORE_LOOP = 600
"""In the bodies of the four classes, with their comments and docstrings: what they do, and no more.

Not counted: imports, limits and protocols, which state what these classes need of others, and small functions."""
MOST_LINES_OF_THE_CORE_FILES = 850
"""In the four files, with all that is in them: what one scrolls through. It may become less, not more."""
PACKAGES_OF_THE_ENGINE = {"runs": 1_400, "sessions": 600, "nodes": 1_400, "engine": 600}
"""Maximum number of lines in each. To change how a run runs, one reads only `runs`."""


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    return [(path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(SRC.rglob("*.py"))]


def foreign_private_names(tree: ast.AST) -> Iterator[ast.Attribute]:
    """`x._name`, unless x is the object itself, its class, or its base class."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.endswith("__"):
            continue
        if ast.unparse(node.value) not in ("self", "cls", "super()"):
            yield node


def test_no_object_uses_a_private_name_of_another():
    """Whatever reaches into another object has to be changed with it, and no test says so."""
    found = [
        f"{path}:{node.lineno} {ast.unparse(node)}" for path, tree in trees() for node in foreign_private_names(tree)
    ]

    assert [] == found


def test_a_private_name_of_another_object_is_found():
    """A search that finds nothing proves nothing until it has found something."""
    tree = ast.parse("run._log.seal()\nself._log.seal()\nself.run._log\nsuper()._end()\nnode.__class__\n")

    assert {"run._log", "self.run._log"} == {ast.unparse(node) for node in foreign_private_names(tree)}


def file_counts() -> dict[str, int]:
    """The number of files in each folder. One that has only migrations may grow: they are found by their numbers."""
    files = [path for path in SRC.rglob("*") if path.is_file() and is_source(path)]
    limited = {path.parent for path in files if not re.match(r"[0-9]{4}_", path.name)}
    return {str(folder.relative_to(ROOT)): sum(path.parent == folder for path in files) for folder in limited}


def is_source(path: Path) -> bool:
    return "__pycache__" not in path.parts and BUILT not in path.parents


def test_every_kind_of_file_counts():
    """A folder of SQL is looked over as well; migrations are apart from it."""
    counts = file_counts()

    assert 3 == counts["src/holdfast/store/sql"]
    assert 1 + len([path for path, _ in trees() if path.parent == Path("src/holdfast")]) == counts["src/holdfast"]


def test_no_folder_has_more_files_than_can_be_looked_over():
    """A newcomer looks for a file by its folder."""
    assert {} == {folder: count for folder, count in file_counts().items() if count > MOST_FILES}


def test_no_file_is_longer_than_one_subject():
    """What needs more room is two subjects."""
    sizes = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path, _ in trees()}

    assert {} == {path: lines for path, lines in sizes.items() if lines > MOST_LINES_OF_A_FILE}


def test_no_function_is_longer_than_a_page():
    """A function is a paragraph."""
    functions = [
        (f"{path}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert [] == [name for name, lines in functions if lines > MOST_LINES_OF_A_FUNCTION]
    assert functions, "the rule is checked against nothing"


def test_the_core_loop_can_be_read_in_one_sitting():
    """Run, Pump, Keeper and Committer: their invariants hold together, so they are read together.

    These are not all that has a part in a run: what else has one is in the same package, which has a limit too.
    """
    sizes = {}
    for file, name in CORE_LOOP.items():
        tree = ast.parse((SRC / "holdfast" / "runs" / file).read_text(encoding="utf-8"))
        (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
        sizes[name] = (found.end_lineno or 0) - found.lineno + 1

    assert sum(sizes.values()) <= MOST_LINES_OF_THE_CORE_LOOP, sizes


def test_the_files_of_the_core_loop_grow_no_longer():
    """Classes alone can be kept short by moving lines out of them, into the same file."""
    files = [SRC / "holdfast" / "runs" / file for file in CORE_LOOP]
    sizes = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in files}

    assert sum(sizes.values()) <= MOST_LINES_OF_THE_CORE_FILES, sizes


def test_each_package_of_the_engine_can_be_read_in_one_sitting():
    """How a run runs, sessions and other nodes are three subjects: what grows beyond its limit is two."""
    sizes = {
        package: sum(
            len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path, _ in trees() if path.parent == at
        )
        for package in PACKAGES_OF_THE_ENGINE
        for at in [Path("src/holdfast") / package]
    }

    assert all(sizes.values()), "the rule is checked against nothing"
    assert {} == {package: lines for package, lines in sizes.items() if lines > PACKAGES_OF_THE_ENGINE[package]}


def test_the_architecture_names_the_limits_of_these_packages():
    """A number in a document that no test compares is soon a wrong one."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[(\w+)/\]\(\.\./src/holdfast/\w+\) \|.*\| ([\d,]+) \|$", text, re.MULTILINE)

    assert PACKAGES_OF_THE_ENGINE == {package: int(lines.replace(",", "")) for package, lines in named}
