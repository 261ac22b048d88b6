"""The layers of the architecture, as data: imports go down only, and stand at the top of the file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).parents[2] / "src"

# The longest matching prefix counts: `store` is the Protocol, `store.` are the stores.
LAYERS: dict[str, int] = {
    "__main__": 7,
    "cli": 7,
    "server.app": 6,  # puts the server together, so it knows every feature
    "compare.api": 5,
    "compare.feature": 5,
    "compare.scores_api": 5,
    "evals.api": 5,
    "evals.feature": 5,
    "compare": 4,
    "evals": 4,
    "server": 4,
    "starlette": 4,  # routes for apps that embed the engine
    "fastapi": 4,
    "": 3,  # holdfast/__init__.py: re-exports what is below the server
    "testing": 3,
    "asgi": 3,
    "peers": 3,
    "embedding": 3,
    "engine": 3,
    "nodes": 3,
    "sessions": 3,
    "runs": 3,
    "store.": 3,
    "upstreams.": 3,
    "agents": 3,
    "store.records": 2,
    "store": 2,
    "store.nodes": 2,  # a part of the Protocol
    "store.filing": 2,  # a part of the Protocol
    "store.people": 2,  # parts of the Protocol
    "store.documents": 2,  # uses the Protocol alone
    "upstreams": 2,
    "wires": 2,
    "history": 2,
    "prompt": 0,
    "attachments": 1,
    "compare.scores": 2,
    "compare.wire": 2,
    "compare.model": 1,
    "compare.shapes": 1,
    "evals.model": 1,
    "log": 1,
    "concurrency": 1,
    "events": 0,
    "questions": 0,
    "silence": 0,
    "asks": 0,
    "environment": 0,
    "errors": 0,
    "access": 0,
    "watchers": 0,
    "json_pieces": 0,
    "task_context": 0,
    "pricing": 0,
    "redaction": 0,
    "fields": 0,
    "error_help": 0,
    "markup": 0,
    "http_client": 0,
    "compare.ratings": 0,
    "ids": -1,  # what things are called
}

# Beyond "down only": who may look sideways, and who may not look down.
SIDEWAYS = {
    ("events", "questions"),  # some events are questions, and their answers
    ("events", "silence"),  # what a source may yield, and is no event
    ("error_help", "markup"),  # a page about an error is HTML
    ("errors", "events"),  # an error carries what its event says
    ("pricing", "events"),  # a cost is that of a usage
    ("asks", "events"),  # a fork begins with events of an earlier run
    ("fields", "errors"),  # a field that cannot be honoured is an error
    ("access", "watchers"),
    ("attachments", "concurrency"),  # a PDF is read in a child process
    ("access", "errors"),  # a request that outlives its access ends with an error
    ("store", "store.records"),  # re-exported by the package
    ("store.documents", "store"),
    ("store", "history"),  # the Protocol speaks of sessions and messages
    ("store.filing", "history"),  # what is filed is a session
    ("wires", "history"),  # a wire renders what the lower half of its layer describes
    ("wires", "store"),
    ("compare.wire", "wires"),
    ("compare.shapes", "wires"),
    ("compare", "server"),  # a comparison's panes are chats of the server
    ("server", "compare"),  # the services of the server hold its comparisons
    ("evals", "server"),
    ("server", "evals"),
    ("evals", "compare"),
    ("sessions", "runs"),  # in this order: runs know neither sessions nor nodes, and sessions know no nodes
    ("nodes", "sessions"),
    ("nodes", "runs"),
    ("engine", "nodes"),  # puts them together
    ("engine", "sessions"),
    ("engine", "runs"),
    ("asgi", "runs"),
    ("embedding", "engine"),
    ("embedding", "runs"),
    ("embedding", "store."),  # opens the one that a URL names
    ("fastapi", "starlette"),
    ("peers", "engine"),
    ("peers", "nodes"),
    ("peers", "runs"),
    ("__main__", "cli"),
}
SEES_ITS_OWN_LAYER = {"", "testing"}
STRANGERS = [{"store", "upstreams"}]

# Exported by the package without being imported: only a type checker reads these lines.
EXPORTED_LATE = {("server", "server.app"), ("server", "server.config.settings")}

# The engine alone needs msgspec. What else a module may import comes with an extra.
THIRD_PARTY: dict[str, set[str]] = {
    "": {"msgspec"},
    "cli": {"msgspec", "click", "rich"},
    "cli.chat.editor": {"msgspec", "prompt_toolkit"},
    "cli.doctor.certificate": {"cryptography"},
    "cli.lab": {"msgspec", "click", "rich", "holdfast_lab"},
    "asgi": {"msgspec", "starlette"},
    "compare.api": {"msgspec", "starlette"},
    "compare.audience": {"starlette"},
    "compare.runs": {"msgspec"},
    "compare.scores_api": {"starlette"},
    "evals.api": {"msgspec", "starlette"},
    "fastapi": {"fastapi", "starlette"},
    "starlette": {"msgspec", "starlette"},
    "server": {"msgspec", "starlette", "uvicorn", "uvloop", "httptools", "websockets", "anyio", "rich"},
    "server.features.accounts.people.passwords": {"argon2", "zxcvbn"},
    "server.features.accounts.factors.qr": {"segno"},
    "server.features.accounts.factors.webauthn": {"fido2"},
    "server.features.accounts.oidc.provider": {"msgspec", "joserfc"},
    "server.secrets.sealer": {"cryptography"},
    "server.features.notifications.web_push": {"cryptography", "msgspec"},
    "server.features.notifications.push": {"cryptography", "msgspec"},
    "peers.certificates": {"cryptography"},
    "server.features.observe.metrics.values": {"prometheus_client"},
    "server.features.observe.metrics.prometheus": {"prometheus_client"},
    "server.features.observe.traces.attributes": {"msgspec", "opentelemetry"},
    "server.features.observe.traces.calls": {"opentelemetry"},
    "server.features.observe.traces.otel": {"opentelemetry", "starlette"},
    "server.features.observe.traces.requests": {"opentelemetry", "starlette"},
    "server.features.observe.traces.traced_store": {"msgspec", "opentelemetry"},
    "server.kit.http.compression": {
        "starlette",
        "backports",
        "compression",
    },  # zstd: of the standard library from 3.14 on
    "agents.mcp.connection": {"msgspec", "mcp", "httpx2", "jsonschema"},
    "agents.mcp.limit": {"httpx2"},
    "agents.mcp.stdio": {"mcp", "anyio"},
    "http_client": {"aiohappyeyeballs", "httptools"},
    "store.postgres": {"msgspec", "asyncpg"},
    "upstreams.local.child": {"msgspec", "xllamacpp"},
    "attachments.pdf_child": {"pypdfium2"},  # in a process of its own
}

RARE = {
    *("argon2", "asyncpg", "backports", "cryptography", "fido2", "joserfc", "jsonschema", "mcp", "opentelemetry"),
    *("prometheus_client", "websockets"),
    *("prompt_toolkit", "pypdfium2", "rich", "segno", "xllamacpp", "zxcvbn"),
}
"""Packages that most servers never use. `importlib.import_module` loads one, or our module, when it is needed."""

# Who may import inside a function, and what: a command loads only what it needs.
LATE: dict[str, str] = {"cli": ""}


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


@cache
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


@cache
def imports() -> list[Import]:
    known = modules()
    return [
        Import(short(importer), short(name) if ours else name, ours, inside_function, node.lineno)
        for importer, path in known.items()
        for node, inside_function in walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in dict.fromkeys(imported_names(node, importer, path, known))
        for ours in [name.split(".")[0] == "holdfast"]
    ]


def placed(module: str) -> str | None:
    """Return the longest entry of the table that names a module or a package above it."""
    if module in LAYERS:
        return module
    above = module.rpartition(".")[0]
    while above:
        if f"{above}." in LAYERS:
            return f"{above}."
        if above in LAYERS:
            return above
        above = above.rpartition(".")[0]
    return None


def layer(module: str) -> int:
    """A module that the table does not name has no layer: the error says which."""
    found = placed(module)
    assert found is not None, f"{module} has no layer"
    return LAYERS[found]


def package(module: str) -> str:
    return module.partition(".")[0]


def is_allowed(importer: str, imported: str) -> bool:
    if {package(importer), package(imported)} in STRANGERS:
        return False
    if layer(imported) < layer(importer) or (placed(importer), placed(imported)) in SIDEWAYS:
        return True
    same_layer = layer(imported) == layer(importer)
    return same_layer and (package(importer) == package(imported) or importer in SEES_ITS_OWN_LAYER)


def may_be_late(found: Import) -> bool:
    return found.importer in LATE and found.imported.startswith(LATE[found.importer])


def third_party(module: str) -> set[str]:
    """`compare` and `evals` have routes, so they may import what the server may."""
    parent = module.rpartition(".")[0]
    return THIRD_PARTY.get(module) or THIRD_PARTY.get(parent) or THIRD_PARTY.get(package(module)) or THIRD_PARTY[""]


def test_every_module_has_a_layer():
    """A new module is placed on purpose."""
    assert [] == [module for module in map(short, modules()) if placed(module) is None]


def test_imports_go_down_only():
    """The engine knows no concrete store, provider or agent; nothing but the command line knows the server."""
    upward = [
        str(found)
        for found in imports()
        if found.ours and not is_allowed(found.importer, found.imported)
        if (found.importer, found.imported) not in EXPORTED_LATE
        if not (found.inside_function and may_be_late(found))
    ]

    assert [] == upward


def test_there_are_no_cycles():
    """Where modules of one layer may import one another, one of them still comes first."""
    graph: dict[str, set[str]] = {short(module): set() for module in modules()}
    for found in imports():
        late = found.inside_function or (found.importer, found.imported) in EXPORTED_LATE
        if found.ours and not late and found.importer != found.imported:
            graph[found.importer].add(found.imported)

    TopologicalSorter(graph).prepare()


def folder_of(module: str) -> str | None:
    """The folder of a module; None for a package itself, which speaks for the modules below it."""
    path = modules()[f"holdfast.{module}" if module else "holdfast"]
    return None if path.stem in ("__init__", "__main__") else module.rpartition(".")[0] or "holdfast"


def folders_that_import_each_other() -> set[str]:
    """Every folder from which imports lead back to it, by way of others."""
    graph: dict[str, set[str]] = {}
    for found in imports():
        if (
            found.ours
            and (here := folder_of(found.importer))
            and (there := folder_of(found.imported))
            and here != there
        ):
            graph.setdefault(here, set()).add(there)

    def reached(folder: str, seen: set[str]) -> set[str]:
        for below in graph.get(folder, set()) - seen:
            seen.add(below)
            reached(below, seen)
        return seen

    return {folder for folder in graph if folder in reached(folder, set())}


def test_folders_form_a_tree():
    """A folder is read after those that it imports: in a cycle of folders there is no first one to read."""
    assert set() == folders_that_import_each_other()


def test_no_handler_takes_all_services():
    """A handler names the services that it needs. What may use everything can be understood only with everything."""
    takers = {found.importer for found in imports() if found.imported in ("server.running.running", "server.opening")}

    assert [] == [taker for taker in takers if taker.rpartition(".")[2] not in ("feature", "app", "opening")]


def test_the_application_is_a_list_of_features():
    """What a feature is built of is said beside it."""
    assert 30 >= len({found.imported for found in imports() if found.importer == "server.app" and found.ours})


def test_the_door_is_in_no_cycle_of_folders():
    """It is given what it needs of the server, so that every part of the server may start runs."""
    above = [str(found) for found in imports() if found.importer.startswith("server.starting") and found.ours]

    assert [] == [line for line in above if "imports server" in line and "imports server.starting" not in line]


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


def test_a_server_loads_rare_packages_only_when_it_needs_them():
    """cryptography alone takes a seventh of the memory, and most servers have neither secrets nor other servers."""
    code = f"import sys, holdfast.cli.serve; print(sorted(name for name in {sorted(RARE)} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "[]" == loaded.strip()


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("engine.core", "store", True),
        ("engine.core", "store.memory", False),
        ("engine.core", "upstreams.scripted", False),
        ("engine.core", "agents.loop", False),
        ("engine.core", "nodes.node", True),
        ("engine.core", "runs.pump", True),
        ("nodes.node", "engine.core", False),
        ("nodes.recovery", "sessions.queue", True),
        ("sessions.queue", "nodes.intents", False),
        ("sessions.queue", "runs.pump", True),
        ("runs.pump", "engine.core", False),
        ("runs.pump", "nodes.lease", False),
        ("runs.pump", "sessions.queue", False),
        ("events", "errors", False),
        ("history", "store", False),
        ("store.sqlite", "store.memory", True),
        ("store.sqlite", "upstreams", False),
        ("upstreams.anthropic.provider", "store", False),
        ("store", "store.memory", False),
        ("wires.sse", "wires.native", True),
        ("wires.sse", "engine.core", False),
        ("log.log", "engine.core", False),
        ("testing", "engine.core", True),
        ("testing", "server.app", False),
        ("", "server.app", False),
        ("server.app", "engine.core", True),
        ("server.app", "cli", False),
        ("cli", "server.app", True),
    ],
)
def test_the_rules_mean_what_the_architecture_says(importer, imported, allowed):
    """A rule that allows everything would pass as well."""
    assert allowed == is_allowed(importer, imported)
