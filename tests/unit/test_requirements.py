"""Every promise has a test, and every test that names a promise names one that exists."""

import ast
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import LATER, REQUIREMENTS, requirement

TESTS = Path(__file__).parents[1]
NOT_TESTS = {TESTS / "requirements.py", Path(__file__)}
IN_A_COMMENT = re.compile(r"//\s*@requirement\(([^)]*)\)")


@cache
def files() -> list[Path]:
    """All files of the tests. The npm packages beside them are forty thousand others: they are not even walked."""
    found = []
    for folder, folders, names in os.walk(TESTS):
        folders[:] = [name for name in folders if name != "node_modules"]
        found += [Path(folder, name) for name in names]
    return found


def sources(suffix: str) -> list[Path]:
    return [path for path in files() if path.suffix == suffix and path not in NOT_TESTS]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def bound_in_python(path: Path) -> list[str]:
    return [id for call in ast.walk(tree(path)) if is_requirement(call) for id in literals(call, path)]


def is_requirement(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return "requirement" == getattr(node.func, "id", getattr(node.func, "attr", None))


def literals(call: ast.Call, path: Path) -> list[str]:
    ids = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    assert len(ids) == len(call.args), f"{path}:{call.lineno}: an id is a literal, so that it can be found"
    return ids


def bound_by_default(path: Path) -> list[str]:
    """The ids of the tests that `make test` runs: those that are not marked `long`."""
    return [id for call in run_by_default(tree(path)) if is_requirement(call) for id in literals(call, path)]


def run_by_default(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all that is in it, without what is marked `long`: a test, a class, or a module by its `pytestmark`."""
    marks = getattr(node, "decorator_list", [])
    if isinstance(node, ast.Module):
        marks = [each for statement in node.body if is_pytestmark(statement) for each in ast.walk(statement)]
    if not any(is_long(mark) for mark in marks):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from run_by_default(child)


def is_pytestmark(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and "pytestmark" == getattr(node.targets[0], "id", None)


def is_long(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and "long" == getattr(node.func, "attr", None)


def bound_in_javascript(path: Path) -> list[str]:
    comments = IN_A_COMMENT.findall(path.read_text(encoding="utf-8"))
    return [id for arguments in comments for id in re.findall(r"""["']([^"']+)["']""", arguments)]


@cache
def bindings(in_python: Callable[[Path], list[str]] = bound_in_python) -> dict[str, set[str]]:
    """Each id that is named anywhere, and the files that name it."""
    found: dict[str, set[str]] = defaultdict(set)
    for suffix, bound in ((".py", in_python), (".mjs", bound_in_javascript)):
        for path in sources(suffix):
            for id in bound(path):
                found[id].add(str(path.relative_to(TESTS)))
    return found


def test_every_promise_of_this_release_is_bound_to_a_test():
    """A promise without a test is a hope."""
    missing = REQUIREMENTS.keys() - LATER - bindings().keys()

    assert not missing, "no test is bound to:\n" + "\n".join(sorted(missing))


def test_every_promise_has_a_test_in_the_default_run():
    """`make test` is what CI runs: a promise that only `make test-all` proves can be broken for days."""
    missing = REQUIREMENTS.keys() - LATER - bindings(bound_by_default).keys()

    assert not missing, "only long tests are bound to:\n" + "\n".join(sorted(missing))


def test_no_test_has_a_second_try(pytestconfig):
    """A test that fails once has found something. The plugin comes with a dependency."""
    assert not pytestconfig.pluginmanager.hasplugin("rerunfailures")


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
        for node in ast.walk(tree(path))
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


def test_long_tests_are_not_counted_for_the_default_run(tmp_path):
    """By a mark on the test, on its class or on its module. A mark on one parameter leaves the others."""
    some, all_of_it = tmp_path / "test_some.py", tmp_path / "test_all.py"
    some.write_text(
        '@pytest.mark.long("x")\n@requirement("stop.prompt")\ndef test_x(): ...\n'
        '@pytest.mark.long("x")\nclass TestX:\n    @requirement("stop.twice")\n    def test_y(self): ...\n'
        '@requirement("safe.key")\n@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.long("x"))])\n'
        "def test_z(x): ...\n"
    )
    all_of_it.write_text('pytestmark = [pytest.mark.long("x")]\n@requirement("stop.prompt")\ndef test_x(): ...\n')

    assert ["safe.key"] == bound_by_default(some)
    assert [] == bound_by_default(all_of_it)
