"""The page docs/reference/python.md, written from signatures and docstrings by `make reference`.

The source is read and not imported, so that no extra has to be installed.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
PAGE = ROOT / "docs" / "reference" / "python.md"
HEAD = """# Python

Every public name, with its signature and its documentation. What is not on this page may change without notice.
[Embed the engine](../embedding.md) is the guide; [Events](events.md) has the events as JSON.
This page is written by `scripts/docs_python.py`.
"""
MODULES = {
    "holdfast": "needs msgspec and nothing else",
    "holdfast.fastapi": "needs FastAPI",
    "holdfast.starlette": "needs Starlette",
    "holdfast.asgi": "needs Starlette",
    "holdfast.server": "needs `pip install '/path/to/holdfast[server]'`",
    "holdfast.testing": "needs msgspec and nothing else",
}
SHOWN = {
    "Run": {
        *("id", "record", "status", "settlement", "text", "seq", "read", "settled", "stop", "leave", "on_stop"),
        *("saved", "times"),
    },
    "Case": set[str](),
    "Store": {"delete_run", "delete_runs", "trim_logs", "close"},
    "ProviderSettings": set[str](),
    "Settings": set[str](),
}
"""The members of classes of which only a part is meant for programs. [Settings](../settings.md) has a page."""

LONGEST = 300
"""Characters of a value that is shown."""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


def page() -> str:
    """Return the page of all public names."""
    return HEAD + "".join(_module(name, needs) for name, needs in MODULES.items())


def public_names(module: str) -> list[str]:
    """Return what a module promises to keep."""
    body = _parsed(_file(module)).body
    (names,) = [_value(node) for node in body if isinstance(node, ast.Assign) and _name(node) == "__all__"]
    found: list[str] = ast.literal_eval(names)
    return found


def _module(module: str, needs: str) -> str:
    about = ast.get_docstring(_parsed(_file(module))) or ""
    names = "".join(_entry(*_find(module, name), name) for name in public_names(module))
    return f"\n## {module}\n\nIt {needs}.\n\n{_prose(about)}\n{names}"


# where a name is defined


def _file(module: str) -> Path:
    path = SRC / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _find(module: str, name: str) -> tuple[Definition, str]:
    """Return the definition of a name, and the documentation below it. Imports are followed."""
    body = _parsed(_file(module)).body
    for node, following in pairwise([*body, ast.Pass()]):
        if isinstance(node, Definition) and _name(node) == name:
            return node, _below(following)
    for node in _imports(body):
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                return _find(_absolute(module, node), alias.name)
    raise LookupError(f"{module}.{name}")


def _imports(body: list[ast.stmt]) -> Iterator[ast.ImportFrom]:
    """Yield the imports of a module, those for type checkers too."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If):
            yield from _imports(node.body)


def _absolute(module: str, node: ast.ImportFrom) -> str:
    is_package = _file(module).name == "__init__.py"
    parents = module.split(".")[: (1 if is_package else 0) - node.level or None]
    return ".".join([*parents, *([node.module] if node.module else [])])


# what is said of it


def _entry(node: Definition, below: str, name: str) -> str:
    if isinstance(node, ast.ClassDef):
        members = "".join(_members(node))
        return f"\n### {name}\n\n{_class(node)}\n{members}"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"\n### {name}\n\n{_signature(node, name)}\n\n{_prose(ast.get_docstring(node) or '')}\n"
    value = ast.unparse(_value(node))
    shown = value if len(value) <= LONGEST else "…"
    return f"\n### {name}\n\n{_code(f'{name} = {shown}')}\n\n{_prose(below)}\n"


def _class(node: ast.ClassDef) -> str:
    """Return how it is made, and its documentation."""
    about = _prose(ast.get_docstring(node) or "")
    made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    if made is None or node.name == "Run":  # a program gets its runs from the engine
        bases = [name for base in node.bases if (name := ast.unparse(base)) in public_names("holdfast")]
        return f"{_code(f'class {node.name}' + (f'({bases[0]})' if bases else ''))}\n\n{about}"
    arguments = _prose(ast.get_docstring(made) or "")
    return f"{_signature(made, f'class {node.name}')}\n\n{about}" + (f"\n\n{arguments}" if arguments else "")


def _members(node: ast.ClassDef) -> Iterator[str]:
    rows, methods = [], []
    made = [each.body for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    fields = [*node.body, *(made[0] if node.name in SHOWN and made else [])]
    for each, following in pairwise([*fields, ast.Pass()]):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _is_shown(node, each):
            methods.append(_method(node.name, each))
        elif isinstance(each, ast.Assign | ast.AnnAssign) and _is_shown(node, each):
            rows.append(f"| `{_name(each)}` | {_typed(each)} | {_cell(_prose(_below(following)))} |\n")
    if rows:
        yield "\n| attribute | type and default | |\n| --- | --- | --- |\n" + "".join(rows)
    yield from methods


def _typed(node: ast.Assign | ast.AnnAssign) -> str:
    """Return the type of an attribute with its default. What an `__init__` assigns is no default."""
    if isinstance(node, ast.Assign):
        return ""
    is_default = node.value is not None and isinstance(node.target, ast.Name)
    return _cell(f"`{ast.unparse(node.annotation)}{f' = {ast.unparse(_value(node))}' if is_default else ''}`")


def _is_shown(node: ast.ClassDef, member: Definition) -> bool:
    name = _name(member)
    if isinstance(member, ast.Assign) and node.name not in SHOWN:
        return False
    return not name.startswith("_") and name in SHOWN.get(node.name, {name})


def _method(of: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    about = _prose(ast.get_docstring(node) or "")
    if any(ast.unparse(each) == "property" for each in node.decorator_list):
        assert node.returns is not None
        return f"\n#### {of}.{node.name}\n\n{_code(f'{node.name}: {ast.unparse(node.returns)}')}\n\n{about}\n"
    return f"\n#### {of}.{node.name}\n\n{_signature(node, node.name)}\n\n{about}\n"


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    arguments = node.args
    for group in (arguments.posonlyargs, arguments.args):
        group[:] = [each for each in group if each.arg not in ("self", "cls")]
    returns = "" if node.returns is None or name.startswith("class ") else f" -> {ast.unparse(node.returns)}"
    start = "async def " if isinstance(node, ast.AsyncFunctionDef) else "" if name.startswith("class ") else "def "
    line = f"{start}{name}({', '.join(_parts(arguments))}){returns}"
    if len(line) > 100:
        each = "".join(f"    {part},\n" for part in _parts(arguments))
        line = f"{start}{name}(\n{each}){returns}"
    return _code(line)


def _parts(arguments: ast.arguments) -> Iterator[str]:
    """Yield each argument as it is written."""
    missing = len(arguments.args) - len(arguments.defaults)
    for number, each in enumerate(arguments.args):
        yield _with_default(each, arguments.defaults[number - missing] if number >= missing else None)
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _with_default(each, default)
    if arguments.kwarg is not None:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _with_default(each: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(each) + ("" if default is None else f" = {ast.unparse(default)}")


def _name(node: Definition) -> str:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else "_"
    return node.name


def _value(node: ast.Assign | ast.AnnAssign) -> ast.expr:
    assert node.value is not None
    return node.value


def _below(node: ast.stmt) -> str:
    """Return the documentation of what is assigned: the string after it."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return inspect.cleandoc(node.value.value) if is_text else ""  # type: ignore[attr-defined]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _prose(text: str) -> str:
    """Return a docstring as Markdown: a tag in it is text."""
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)


def _code(text: str) -> str:
    return f"```\n{text}\n```"
