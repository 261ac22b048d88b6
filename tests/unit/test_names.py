"""A public name means one thing: no class or function of the top level is defined in two modules."""

import ast
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "holdfast"


def defined() -> dict[str, list[str]]:
    """The modules of each public class and function of the top level, by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                found[node.name].add(str(path.relative_to(SRC)))
    return {name: sorted(places) for name, places in found.items()}


def test_no_name_is_defined_in_two_modules():
    """A reader who searches for a name finds one definition."""
    names = defined()

    assert {} == {name: places for name, places in names.items() if len(places) > 1}
    assert names, "the rule is checked against nothing"
