"""What keeps the code readable, counted: one owner for each name, and folders that fit on a screen."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

from holdfast.store import RunRecord, Store

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
SIMULATION = ROOT / "tests" / "simulation"
MOST_FILES = 14
"""Files in one folder, of any kind: `__init__.py`, SQL and `py.typed` included."""
BUILT = SRC / "holdfast" / "web"
"""The browser UI as it was built: nobody reads it."""
MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 50
MOST_LINES = 88_100
"""In all Python of the package. A lower sum lowers the limit here; a feature raises it by what it needs."""
CORE_LOOP = {"run.py": "Run", "pump.py": "Pump", "keeper.py": "Keeper", "committer.py": "Committer"}
"""The four classes that work on a run from its start to its settlement, by their files in `runs`."""
MOST_LINES_OF_THE_CORE_LOOP = 600
"""In the bodies of the four classes, with their comments and docstrings: what they do, and no more.

Not counted: imports, limits and protocols, which state what these classes need of others, and small functions."""
MOST_LINES_OF_THE_CORE_FILES = 880
"""In the four files, with all that is in them: what one scrolls through. It may become less, not more."""
OF_ASYNCIO = {"_get_running_loop", "_set_running_loop", "_log_destroy_pending", "_log_traceback"}
"""Private names of asyncio that a loop of one's own needs. Python has no public ones for them."""
PACKAGES_OF_THE_ENGINE = {"runs": 1_440, "sessions": 600, "nodes": 1_400, "engine": 600}
"""Maximum number of lines in each. To change how a run runs, one reads only `runs`."""


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    return [(path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(SRC.rglob("*.py"))]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_names(tree: ast.AST) -> Iterator[tuple[ast.Attribute, bool]]:
    """`x._name`, and whether x is the object itself, its class, or its base class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node, ast.unparse(node.value) in ("self", "cls", "super()")


def foreign_private_names(tree: ast.AST) -> Iterator[ast.Attribute]:
    """`x._name`, unless x is the object itself, its class, or its base class."""
    return (node for node, is_own in private_names(tree) if not is_own)


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


def hidden_names(package: Path, tree: ast.Module) -> set[str]:
    """What a package imports from elsewhere under the name of one of its own modules."""
    modules = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    elsewhere = [node for node in imports if node.level != 1 or node.module in modules]
    return modules & {name.asname or name.name for node in elsewhere for name in node.names}


def test_no_module_hides_what_its_package_imports():
    """The import of a module sets its name in the package: a function of that name is gone, and no checker says so."""
    found = {
        str(path.parent): hidden
        for path, tree in trees()
        if path.name == "__init__.py" and (hidden := hidden_names(ROOT / path.parent, tree))
    }

    assert not found


def test_every_kind_of_file_counts():
    """A folder of SQL is looked over as well; migrations are apart from it."""
    counts = file_counts()

    assert 3 == counts["src/holdfast/store/sql"]
    assert 1 + len([path for path, _ in trees() if path.parent == Path("src/holdfast")]) == counts["src/holdfast"]


Classes = dict[str, ast.ClassDef]


def classes_of(trees: Iterable[ast.AST]) -> Classes:
    """The classes in some files by their names."""
    return {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def bases(node: ast.ClassDef, classes: Classes) -> list[ast.ClassDef]:
    """All base classes of a class that are known."""
    direct = [classes.get(ast.unparse(base).rpartition(".")[2]) for base in node.bases]
    found = [base for base in direct if base is not None and base is not node]
    return found + [further for base in found for further in bases(base, classes)]


def defined(classes: Iterable[ast.ClassDef]) -> set[str]:
    """The private names that classes define: methods, names in their bodies, and attributes that they set."""
    nodes = [node for each in classes for node in ast.walk(each)]
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    stored = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return set(
        filter(is_private, functions | {node.id if isinstance(node, ast.Name) else node.attr for node in stored})
    )


def private_seams(tree: ast.Module, tests: Classes, ours: Classes) -> Iterator[str]:
    """Where a test knows private names of others: it imports, reads, sets or overrides one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.lineno} import {name.name}" for name in node.names if is_private(name.name))
    yield from (f"{node.lineno} {ast.unparse(node)}" for node in foreign_private_names(tree))
    for each in classes_of([tree]).values():
        inherited = defined(base for base in bases(each, ours | tests) if base.name in ours)
        known = defined([each, *bases(each, tests)]) - inherited
        yield from (f"{each.lineno} {each.name} overrides {name}" for name in sorted(defined([each]) & inherited))
        used = [node for node, is_own in private_names(each) if is_own and node.attr not in known]
        yield from (f"{node.lineno} {ast.unparse(node)}" for node in used)


FEW = 5
"""Methods of the store that a class beside the transactions may have: a wrapper, or one database's own way."""


def test_the_transactions_of_the_store_are_written_once():
    """A second implementation needs each change twice, and a test on it says nothing of the one that ships."""
    methods = {name for name in dir(Store) if not name.startswith("_")}
    stores = {
        f"{path}: {node.name}": len(
            methods & {each.name for each in node.body if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef)}
        )
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases)
    }
    written = {place for place, count in stores.items() if count > FEW}

    assert [] == sorted(place for place in written if "/store/rows/" not in place)
    assert any(place.endswith(": RowStore") for place in written), "the rule is checked against nothing"


def test_the_simulation_uses_no_private_name_of_what_it_tests():
    """A bad design on a private name no longer has its mistake once the name is moved: it is then the good design."""
    files = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SIMULATION.glob("*.py"))}
    tests, ours = classes_of(files.values()), classes_of(tree for _, tree in trees())
    found = [f"{name}:{seam}" for name, tree in files.items() for seam in private_seams(tree, tests, ours)]

    assert [] == [seam for seam in found if seam.rpartition(".")[2] not in OF_ASYNCIO]
    assert {"_SavesBlindly", "World"} <= tests.keys(), "the rule is checked against nothing"


def test_each_way_to_use_a_private_name_in_a_simulation_is_found():
    """Read on another object, inherited, overridden as a method or as an attribute, imported."""
    ours = classes_of([ast.parse("class Keeper:\n  def __init__(self): self._shared = 1\n  def _judge(self): ...")])
    lines = [
        "from holdfast.runs.keeper import _message_of, measured",
        "keeper._shared.clock()",
        "class Reads(Keeper):",
        "  def take(self): self._shared.clock()",
        "class Overrides(Reads):",
        "  def _judge(self): super()._judge()",
        "class Sets(Keeper):",
        "  def __init__(self): self._shared = 2",
        "class OfItsOwn(Reads):",
        "  def __init__(self): self._own = self._shown()",
        "  def _shown(self): return self._own",
    ]
    tree = ast.parse("\n".join(lines))
    found = sorted(private_seams(tree, classes_of([tree]), ours))

    assert found == [
        "1 import _message_of",
        "2 keeper._shared",
        "4 self._shared",
        "5 Overrides overrides _judge",
        "6 super()._judge",
        "7 Sets overrides _shared",
        "8 self._shared",
    ]


def test_no_folder_has_more_files_than_can_be_looked_over():
    """A newcomer looks for a file by its folder."""
    assert {} == {folder: count for folder, count in file_counts().items() if count > MOST_FILES}


def test_no_file_is_longer_than_one_subject():
    """What needs more room is two subjects."""
    sizes = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path, _ in trees()}

    assert {} == {path: lines for path, lines in sizes.items() if lines > MOST_LINES_OF_A_FILE}


def test_the_package_has_no_more_lines_than_it_had():
    """Whoever adds a feature looks first for what it makes needless."""
    assert sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path, _ in trees()) <= MOST_LINES


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


def joins_of_calls(tree: ast.AST) -> Iterator[str]:
    """Where a name grows by a piece, or a whole call is made of joined pieces."""
    for node in ast.walk(tree):
        grows = (
            isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute) and node.target.attr == "name"
        )
        appends = isinstance(node, ast.Call) and re.search(
            r"\barguments\.append$|_arguments\.append$", ast.unparse(node.func)
        )
        makes = isinstance(node, ast.Call) and ast.unparse(node.func) == "ToolCall" and ".join(" in ast.unparse(node)
        if grows or appends or makes:
            yield ast.unparse(node)


def test_tool_calls_are_joined_in_one_place():
    """Six types joined the pieces of a call, each with its own rule for ids and names."""
    found = {path.as_posix() for path, tree in trees() if any(joins_of_calls(tree))}

    assert {"src/holdfast/events.py"} == found


def test_each_way_to_join_a_tool_call_is_found():
    """A rule that finds nothing holds nothing."""
    ways = ["call.name += piece.name", "self._arguments.append(piece)", "ToolCall(id, name, ''.join(pieces))"]

    assert ways == [way for way in ways if list(joins_of_calls(ast.parse(way)))]


def test_held_work_has_one_mechanism():
    """Rounds, batches, deliveries and erasures are jobs: a fifth way to hold work would be written by hand again."""
    holding = {
        str(path.relative_to(SRC / "holdfast"))
        for path in SRC.rglob("*.py")
        if re.search(r"\bholds\.add\(", path.read_text(encoding="utf-8"))
    }

    assert {"nodes/jobs.py"} == holding


def test_what_was_asked_is_a_tagged_union():
    """A dictionary with 17 keys by convention was read in 54 places, and no type said which wire had set which key."""
    types = get_type_hints(RunRecord)
    tags = [kind.__struct_config__.tag for kind in get_args(types["ask"])]

    assert [] == [name for name, type in types.items() if get_origin(type) is dict]
    assert len(tags) == len(set(tags) - {None})


MOST_LOOKS_INTO_DICTIONARIES = 199
"""Calls of `.get("…")` in the source. It may become less, not more: what comes from outside becomes a type."""


def looks_into_dictionaries(tree: ast.AST) -> int:
    """The number of calls of a method `get` with a text as the first argument."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    gets = [node.args[0] for node in calls if isinstance(node.func, ast.Attribute) and node.func.attr == "get"]
    return sum(isinstance(name, ast.Constant) and isinstance(name.value, str) for name in gets)


def test_dictionaries_are_looked_into_no_more_often_than_they_were():
    """A key that is known by convention is a field that no checker knows. A lower count lowers the limit here."""
    assert 1 == looks_into_dictionaries(ast.parse("a.get('b')\na.get(b)\na.pop('b')\na['b']"))
    assert sum(looks_into_dictionaries(tree) for _, tree in trees()) <= MOST_LOOKS_INTO_DICTIONARIES


def test_decoders_are_one_family():
    """Two families had the same methods under other names: a fault that was mended in one stayed in the other."""
    classes = classes_of(tree for path, tree in trees() if "upstreams" in path.parts)
    decoding = [node for node in classes.values() if "take" in {each.name for each in functions_of(node)}]
    feeding = [
        node.name
        for node in classes.values()
        if {"feed", "end"} <= {each.name for each in functions_of(node)}
        and "Protocol" not in map(ast.unparse, node.bases)
    ]

    assert len(decoding) > 5
    assert [] == [
        node.name
        for node in decoding
        if "DialectDecoder" not in {node.name, *(base.name for base in bases(node, classes))}
    ]
    assert ["InflatingDecoder", "DialectDecoder"] == sorted(feeding, reverse=True)


def functions_of(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef)]


def test_usage_has_one_meter():
    """Five places told how much a run had used so far, each with its own estimate of the output."""
    prompts = {"history/__init__.py", "server/features/chat/pass_through.py", "wires/anthropic/request.py"}
    estimating = {
        path.relative_to("src/holdfast").as_posix()
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tokens_in"
    }

    assert {"log/usage_meter.py"} == estimating - prompts
