"""Every run of the server is started by one door: a start that goes past its checks does not pass here."""

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "holdfast"
FOLDERS = ("server", "compare", "evals")
DOOR = "server/starting/starting.py"
MAKE_RECORDS = {DOOR, "compare/runs.py", "evals/runner.py"}
"""A wire gets the record of its run from the door. Panes and the cells of batches were checked when they were made."""


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for folder in FOLDERS:
        for file in sorted((SRC / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                yield file.relative_to(SRC).as_posix(), node


def test_no_run_is_started_past_the_door():
    """`engine.submit` and `engine.start` are mentioned in one place of the server."""
    found = [
        file
        for file, node in nodes()
        if isinstance(node, ast.Attribute) and node.attr in ("submit", "start")
        if "engine" in ast.unparse(node.value)
    ]

    assert [DOOR] == found


def test_every_record_of_a_run_names_its_payer_and_no_wire_makes_one():
    """One that a wire made itself could name a model or a payer that nobody has looked at."""
    calls = [(file, node) for file, node in nodes() if isinstance(node, ast.Call)]
    records = [(file, call) for file, call in calls if ast.unparse(call.func) == "RunRecord"]
    without = [file for file, call in records if "payer" not in {keyword.arg for keyword in call.keywords}]

    assert MAKE_RECORDS == {file for file, _ in records}
    assert [] == without
