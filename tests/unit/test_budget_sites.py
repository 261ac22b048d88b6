"""Every run of the server is started within the budgets of its payer: a start that forgets them does not pass here."""

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "holdfast"
FOLDERS = ("server", "compare", "evals")
STARTS = {SRC / "server" / "budgets" / "budgets.py"}
"""The one place that starts runs by the engine itself."""


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for folder in FOLDERS:
        for file in sorted((SRC / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    yield file, node


def test_no_run_is_started_past_the_budgets():
    """`engine.submit` and `engine.start` are called in one place of the server."""
    found = [
        f"{file.relative_to(SRC)}:{call.lineno}"
        for file, call in calls()
        if file not in STARTS
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("submit", "start")
        if "engine" in ast.unparse(call.func.value)
    ]

    assert [] == found


def test_every_record_of_a_run_names_its_payer():
    """Whoever adds a wire is reminded that someone pays for its runs."""
    records = [call for _, call in calls() if ast.unparse(call.func) == "RunRecord"]
    without = [call.lineno for call in records if "payer" not in {keyword.arg for keyword in call.keywords}]

    assert len(records) >= 8
    assert [] == without
