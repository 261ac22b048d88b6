"""What keeps the tests green on machines of every speed, and in every order."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.order import in_order
from tests.support.paces import PACES, SOME, Pace, repeats, runs

ROOT = Path(__file__).parents[2]
READ_ONCE = {
    *("count", "all", "text_content", "inner_text", "inner_html", "input_value", "get_attribute", "bounding_box"),
    *("all_text_contents", "all_inner_texts", "evaluate", "evaluate_all", "measure"),
    *("is_visible", "is_hidden", "is_enabled", "is_disabled", "is_checked", "is_editable"),
}
"""Methods that return what a page has at that moment."""


def read_once(tree: ast.AST) -> Iterator[ast.Assert]:
    """Assertions about what a page has at the moment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            calls = (each.value for each in ast.walk(node) if isinstance(each, ast.Await))
            names = (call.func for call in calls if isinstance(call, ast.Call))
            if any(isinstance(name, ast.Attribute) and name.attr in READ_ONCE for name in names):
                yield node


def test_no_assertion_reads_a_page_once():
    """The page may still be drawing: `expect`, `tab.finds` and `becomes` wait until it is as it should be."""
    found = [
        f"{path.name}:{node.lineno} {ast.unparse(node)}"
        for path in sorted((ROOT / "tests" / "browser").glob("*.py"))
        for node in read_once(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert [] == found


def test_an_assertion_that_reads_a_page_once_is_found():
    """A search that finds nothing proves nothing until it has found something."""
    tree = ast.parse(
        "async def test():\n"
        "    assert 1 == await rows.count()\n"
        "    assert 'x' in [await row.text_content() for row in rows]\n"
        "    assert 200 == (await client.get('/')).status\n"
    )

    assert [2, 3] == [node.lineno for node in read_once(tree)]


def as_items(*nodeids: str) -> list[Any]:
    return [SimpleNamespace(nodeid=nodeid) for nodeid in nodeids]


def names_of(items: list[Any]) -> list[str]:
    return [item.nodeid for item in items]


A, B, C = ([f"{name}.py::test_{n}" for n in range(20)] for name in "abc")


def test_without_a_seed_tests_run_as_they_are_written_but_the_longest_files_first():
    """A developer reads them in that order."""
    assert [*C, *A, *B] == names_of(in_order(as_items(*A, *B, *C), ("c.py",), ""))


def test_a_seed_gives_one_order_and_every_file_stays_together():
    """pytest-xdist hands out whole files, and its processes have to agree."""
    items = as_items(*A, *B, *C)
    order = names_of(in_order(items, ("c.py",), "7"))

    assert order == names_of(in_order(items, ("c.py",), "7"))
    assert order != names_of(in_order(items, ("c.py",), "8"))
    assert sorted(C) == sorted(order[:20]) != order[:20]
    assert {"a.py", "b.py"} == {name.partition("::")[0] for name in order[20:]}
    assert 1 == len({name.partition("::")[0] for name in order[20:40]})


def test_a_file_alone_is_repeated_in_the_same_order():
    """Whoever has a failure and its seed runs one file, not all of them."""
    whole = names_of(in_order(as_items(*A, *B, *C), (), "7"))

    assert [name for name in whole if name.startswith("b.py")] == names_of(in_order(as_items(*B), (), "7"))


def test_every_pace_runs_every_file_and_tells_how_to_repeat_it():
    """A file that is gone, or a pace that runs nothing, would be green for ever."""
    assert [] == [file for file in SOME if not (ROOT / file).exists()]
    for pace in PACES:
        assert SOME == [each for arguments in runs(pace, SOME) for each in arguments if each in SOME]
    assert (
        f"HOLDFAST_TEST_SEED=7 HOLDFAST_TEST_THROTTLE=6 {sys.executable} -m pytest --numprocesses 4 --dist loadfile"
        " one.py  # beside 2 busy processes"
    ) == repeats(Pace(throttle=6, at_once=4, busy=2), runs(Pace(at_once=4), ["one.py"])[0], "7")
