"""A public name means one thing: no class, function or type alias of the top level is defined in two modules.

Constants are not included. A constant belongs to its module, which gives it its meaning: `PATIENCE` of one is a number
of seconds for one thing, and that of another for something else.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "holdfast"
BUILT_IN = {"bool", "bytes", "dict", "float", "frozenset", "int", "list", "object", "set", "str", "tuple", "type"}


def defined() -> dict[str, list[str]]:
    """The modules of each public class, function and type alias of the top level, by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SRC.rglob("*.py")):
        for name in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            if not name.startswith("_"):
                found[name].add(str(path.relative_to(SRC)))
    return {name: sorted(places) for name, places in found.items()}


def names_in(tree: ast.Module) -> Iterator[str]:
    """The classes, functions and type aliases of a module."""
    types = set(BUILT_IN)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            types |= {name for alias in node.names if is_a_class(name := alias.asname or alias.name)}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            types |= {node.name} if isinstance(node, ast.ClassDef) else set()
            yield node.name
        elif (name := alias_in(node, types)) is not None:
            types.add(name)
            yield name


def is_a_class(name: str) -> bool:
    """Whether a name is written as that of a class, and not as that of a constant."""
    return name[:1].isupper() and not name.isupper()


def alias_in(node: ast.stmt, types: set[str]) -> str | None:
    """The name of a type alias, if the statement is one."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id if ast.unparse(node.annotation).endswith("TypeAlias") else None
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return None
    name = node.targets[0].id
    return name if is_a_class(name.lstrip("_")) and is_a_type(node.value, types) else None


def is_a_type(node: ast.expr, types: set[str]) -> bool:
    """Whether an expression is a type: a class, `X[...]`, `X | Y`, or None in a union."""
    match node:
        case ast.Name(id=name):
            return name in types
        case ast.Attribute(attr=name):
            return is_a_class(name)
        case ast.Subscript(value=value):
            return is_a_type(value, types)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return is_a_type(left, types) and is_a_type(right, types)
        case ast.Constant(value=value):
            return value is None
    return False


def test_no_name_is_defined_in_two_modules():
    """A reader who searches for a name finds one definition."""
    names = defined()

    assert {} == {name: places for name, places in names.items() if len(places) > 1}
    assert {"Engine", "new_id", "Source", "Outcome"} <= names.keys(), "the rule is checked against nothing"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Kind = Callable[[int], None]", ["Kind"]),
        ("Kind = Literal['a', 'b']", ["Kind"]),
        ("Kind: TypeAlias = 'Y | None'", ["Kind"]),
        ("Kind = str | list[dict[str, Any]]", ["Kind"]),
        ("Kind = int\nOther = Kind | None", ["Kind", "Other"]),
        ("Kind = msgspec.Struct", ["Kind"]),
        ("class X: ...", ["X"]),
        ("def x(): ...", ["x"]),
        ("PATIENCE = 1.0", []),
        ("KEPT: int = 3", []),
        ("x = TABLE['a']", []),
        ("Kind = make_class()", []),
        ("T = TypeVar('T')", []),
    ],
)
def test_the_rule_means_classes_functions_and_type_aliases(line, found):
    """A search that finds nothing proves nothing until it has found something."""
    tree = ast.parse(f"from collections.abc import Callable\nfrom typing import Any, Literal, TypeAlias\n{line}")

    assert found == list(names_in(tree))
