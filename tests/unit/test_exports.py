"""What `holdfast` exports exists and is documented."""

import ast
import inspect
from itertools import pairwise
from pathlib import Path

import pytest

import holdfast

SRC = Path(holdfast.__file__).parent


def documentation(name: str) -> str:
    """The docstring of a class, function or module; of anything else, the string below its assignment."""
    value = getattr(holdfast, name)
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        return value.__doc__ or ""
    return next((text for path in SRC.rglob("*.py") if (text := below_assignment(name, path))), "")


def below_assignment(name: str, path: Path) -> str:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for statement, following in pairwise(body):
        if (
            name in assigned(statement)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            return str(following.value.value)
    return ""


def assigned(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        targets = []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_no_name_is_exported_twice():
    """`__all__` is the list of what we promise to keep."""
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_export_exists_and_is_documented(name):
    """Undocumented means unfinished. A constant or an alias is documented by a string below its assignment."""
    assert hasattr(holdfast, name)
    text = documentation(name).strip()
    assert text, f"holdfast.{name} has no docstring"
    assert not text.startswith(f"{name}("), f"the docstring of holdfast.{name} is only the one that dataclass made"
