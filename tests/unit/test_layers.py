"""The layers of the architecture, as data: imports go down only, and stand at the top of the file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).parents[2] / "src"

# The longest matching prefix counts: `store` is the Protocol, `store.` are the stores.
LAYERS: dict[str, int] = {
    "cli": 5,
    "cli.": 5,
    "__main__": 5,
    "server": 4,
    "server.": 4,
    "lab": 4,
    "lab.": 4,
    "": 3,  # holdfast/__init__.py: re-exports what is below the server
    "testing": 3,
    "asgi": 3,
    "engine": 3,
    "run": 3,
    "recovery": 3,
    "store.": 3,
    "providers.": 3,
    "agent": 3,
    "agent.": 3,
    "store": 2,
    "providers": 2,
    "wire": 2,
    "wire.": 2,
    "history": 2,
    "judgement": 2,
    "records": 2,
    "comparisons": 1,
    "log": 1,
    "steps": 1,
    "tape": 1,
    "reasoning": 1,
    "events": 0,
    "errors": 0,
    "ids": 0,
    "ratings": 0,
    "batches": 0,
    "scores": 2,
}

# Beyond "down only": who may look sideways, and who may not look down.
SIDEWAYS = {
    ("errors", "events"),  # an error carries what its event says
    ("log", "tape"),  # a log is kept on one
    ("log", "steps"),  # a log knows what it tells of an agent's steps
    ("store", "history"),  # the Protocol speaks of sessions and messages
    ("wire.native", "history"),  # a wire renders what the lower half of its layer describes
    ("wire.native", "store"),
    ("wire.openai_chat", "history"),
    ("wire.openai_responses_input", "history"),
    ("wire.ag_ui", "history"),
    ("wire.ai_sdk", "history"),
    ("wire.ai_sdk_messages", "history"),
    ("agent.mcp_described", "providers.redaction"),  # what an MCP server says of an error may quote a key as well
    ("engine", "recovery"),
    ("engine", "run"),
    ("asgi", "run"),
    ("__main__", "cli"),
}
SEES_ITS_OWN_LAYER = {"", "testing"}
STRANGERS = [{"store", "providers"}, {"lab", "server"}]

# The engine alone needs msgspec. What else a module may import comes with an extra.
THIRD_PARTY: dict[str, set[str]] = {
    "": {"msgspec"},
    "cli": {"msgspec", "click", "rich", "aiohttp"},
    "asgi": {"msgspec", "starlette"},
    "server": {"msgspec", "starlette", "uvicorn", "uvloop", "httptools", "aiohttp", "anyio", "rich"},
    "agent.mcp_connection": {"msgspec", "mcp", "httpx2", "jsonschema"},
    "providers.connections": {"httptools"},
    "providers.local_child": {"msgspec", "xllamacpp"},
}

# Who may import inside a function, and what: `open_store()` and the registry take in only what was asked for.
LATE: dict[str, str] = {"cli": "", "store": "store.", "providers": "providers."}


class Import(NamedTuple):
    """One import in our source. Names of ours are without `holdfast.`; the package itself is ""."""

    importer: str
    imported: str
    ours: bool
    inside_function: bool
    line: int

    def __str__(self) -> str:
        return f"{self.importer or '__init__'}:{self.line} imports {self.imported or 'holdfast'}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted((SRC / "holdfast").rglob("*.py"))}


def short(module: str) -> str:
    return module.removeprefix("holdfast").removeprefix(".")


def imported_names(node: ast.AST, importer: str, path: Path, known: dict[str, Path]) -> list[str]:
    """The modules, in full, that an import statement takes in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*parents, *([node.module] if node.module else [])])
    submodules = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name in known else base for name in submodules]


def walk(node: ast.AST, inside_function: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, inside_function
        inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from walk(child, inside_function or inner)


def imports() -> list[Import]:
    known = modules()
    return [
        Import(short(importer), short(name) if ours else name, ours, inside_function, node.lineno)
        for importer, path in known.items()
        for node, inside_function in walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in dict.fromkeys(imported_names(node, importer, path, known))
        for ours in [name.split(".")[0] == "holdfast"]
    ]


def layer(module: str) -> int:
    """A module that the table does not name has no layer: a KeyError says which."""
    if module in LAYERS:
        return LAYERS[module]
    return LAYERS[module.partition(".")[0] + "."]


def package(module: str) -> str:
    return module.partition(".")[0]


def is_allowed(importer: str, imported: str) -> bool:
    if {package(importer), package(imported)} in STRANGERS:
        return False
    if layer(imported) < layer(importer) or (importer, imported) in SIDEWAYS:
        return True
    same_layer = layer(imported) == layer(importer)
    return same_layer and (package(importer) == package(imported) or importer in SEES_ITS_OWN_LAYER)


def may_be_late(found: Import) -> bool:
    return found.importer in LATE and found.imported.startswith(LATE[found.importer])


def third_party(module: str) -> set[str]:
    return THIRD_PARTY.get(module) or THIRD_PARTY.get(package(module)) or THIRD_PARTY[""]


def test_every_module_has_a_layer():
    """A new module is placed on purpose."""
    assert [] == [
        module for module in map(short, modules()) if module not in LAYERS and f"{package(module)}." not in LAYERS
    ]


def test_imports_go_down_only():
    """The engine knows no concrete store, provider or agent; nothing but the command line knows the server."""
    upward = [
        str(found)
        for found in imports()
        if found.ours and not is_allowed(found.importer, found.imported)
        if not (found.inside_function and may_be_late(found))
    ]

    assert [] == upward


def test_there_are_no_cycles():
    """Where modules of one layer may import one another, one of them still comes first."""
    graph: dict[str, set[str]] = {short(module): set() for module in modules()}
    for found in imports():
        if found.ours and not found.inside_function and found.importer != found.imported:
            graph[found.importer].add(found.imported)

    TopologicalSorter(graph).prepare()


def test_no_import_of_ours_hides_inside_a_function():
    """A hidden import is a cycle that nobody wanted to see."""
    hidden = [str(found) for found in imports() if found.ours and found.inside_function and not may_be_late(found)]

    assert [] == hidden


def test_the_engine_alone_needs_msgspec_and_nothing_else():
    """`pip install holdfast` pulls in no server, no model and no database driver."""
    allowed = sys.stdlib_module_names
    foreign = [
        str(found)
        for found in imports()
        if not found.ours
        if (name := package(found.imported)) not in allowed and name not in third_party(found.importer)
    ]

    assert [] == foreign


def test_importing_holdfast_loads_nothing_of_the_server():
    """What the source says, seen from outside: a fresh interpreter, and what it has loaded."""
    extras = sorted(set.union(*THIRD_PARTY.values()) - THIRD_PARTY[""])
    code = f"import sys, holdfast; print([name for name in {extras} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "[]" == loaded.strip()


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("engine", "store", True),
        ("engine", "store.memory", False),
        ("engine", "providers.scripted", False),
        ("engine", "agent.loop", False),
        ("events", "errors", False),
        ("history", "store", False),
        ("store.sqlite", "store.memory", True),
        ("store.sqlite", "providers", False),
        ("providers.anthropic", "store", False),
        ("store", "store.memory", False),
        ("wire.sse", "wire.native", True),
        ("wire.sse", "engine", False),
        ("log", "reasoning", False),
        ("testing", "engine", True),
        ("testing", "server.app", False),
        ("", "server.app", False),
        ("server.app", "engine", True),
        ("server.app", "cli", False),
        ("cli", "server.app", True),
    ],
)
def test_the_rules_mean_what_the_architecture_says(importer, imported, allowed):
    """A rule that allows everything would pass as well."""
    assert allowed == is_allowed(importer, imported)
