"""Every promise has a test, and every test that names a promise names one that exists."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.requirements import LATER, REQUIREMENTS, requirement

TESTS = Path(__file__).parents[1]
NOT_TESTS = {TESTS / "requirements.py", Path(__file__)}
IN_A_COMMENT = re.compile(r"//\s*@requirement\(([^)]*)\)")


def sources(suffix: str) -> list[Path]:
    return [path for path in TESTS.rglob(f"*{suffix}") if "node_modules" not in path.parts and path not in NOT_TESTS]


def bound_in_python(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [id for call in ast.walk(tree) if is_requirement(call) for id in literals(call, path)]


def is_requirement(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return "requirement" == getattr(node.func, "id", getattr(node.func, "attr", None))


def literals(call: ast.Call, path: Path) -> list[str]:
    ids = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    assert len(ids) == len(call.args), f"{path}:{call.lineno}: an id is a literal, so that it can be found"
    return ids


def bound_in_javascript(path: Path) -> list[str]:
    comments = IN_A_COMMENT.findall(path.read_text(encoding="utf-8"))
    return [id for arguments in comments for id in re.findall(r"""["']([^"']+)["']""", arguments)]


def bindings() -> dict[str, set[str]]:
    """Each id that is named anywhere, and the files that name it."""
    found: dict[str, set[str]] = defaultdict(set)
    for suffix, bound in ((".py", bound_in_python), (".mjs", bound_in_javascript)):
        for path in sources(suffix):
            for id in bound(path):
                found[id].add(str(path.relative_to(TESTS)))
    return found


def test_every_promise_of_this_release_is_bound_to_a_test():
    """A promise without a test is a hope."""
    missing = REQUIREMENTS.keys() - LATER - bindings().keys()

    assert not missing, "no test is bound to:\n" + "\n".join(sorted(missing))


def test_every_bound_id_is_a_promise():
    """A misspelt id would leave its promise unproven, in JavaScript too, where nothing fails at import."""
    unknown = {id: files for id, files in bindings().items() if id not in REQUIREMENTS}

    assert {} == unknown


def test_what_is_bound_is_not_put_off():
    """`LATER` must not grow stale: an id leaves it with its first test."""
    assert set() == LATER & bindings().keys()


def test_only_promises_can_be_put_off():
    """An id in `LATER` that was renamed would excuse nothing."""
    assert set() == LATER - REQUIREMENTS.keys()


def test_ids_stand_on_functions_that_pytest_collects():
    """A decorated helper is never run, and would prove nothing."""
    stray = [
        f"{path.relative_to(TESTS)}:{node.lineno} {node.name}"
        for path in sources(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("test_")
        if any(is_requirement(decorator) for decorator in node.decorator_list)
    ]

    assert [] == stray


def test_an_unknown_id_fails_at_import():
    """A typo is found by the editor's first run, not by the review."""
    with pytest.raises(LookupError, match=r"stop\.promtp"):
        requirement("stop.promtp")


def test_ids_are_bound_where_they_are_looked_for(tmp_path):
    """The search itself must see decorators, marks and JavaScript comments."""
    python, javascript = tmp_path / "test_x.py", tmp_path / "x.mjs"
    python.write_text(
        '@requirement("stop.prompt", "stop.twice")\ndef test_x(): ...\npytestmark = [requirement("safe.key")]\n'
    )
    javascript.write_text('// @requirement("sub.status", "sub.own-seq")\ntest("x", () => {})\n')

    assert {"stop.prompt", "stop.twice", "safe.key"} == set(bound_in_python(python))
    assert ["sub.status", "sub.own-seq"] == bound_in_javascript(javascript)
