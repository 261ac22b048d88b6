"""The table of docs/settings.md, written from the settings themselves by `make reference`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from holdfast.server.config import settings
from holdfast.server.config.settings import PREFIX, SCALARS

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
BEGIN = "<!-- the table is written by scripts/docs_settings.py -->"
END = "<!-- end of the table -->"


def with_table(page: str) -> str:
    """Return the page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}{END}{after}"


def table() -> str:
    """Return every scalar setting as a row: name, variable, default, and what it is."""
    said = descriptions("Settings")
    rows = ["| setting | variable | default | what it is |", "| --- | --- | --- | --- |"]
    for field in SCALARS:
        variable = f"`{PREFIX}{field.name.upper()}`"
        rows.append(f"| `{field.name}` | {variable} | {shown(field.default)} | {one_line(said[field.name])} |")
    return "\n".join(rows) + "\n"


def descriptions(struct: str) -> dict[str, str]:
    """Return the string below each field of a struct."""
    return described_in(getattr(settings, struct))


def described_in(struct: type[Any]) -> dict[str, str]:
    """Return the string below each field of a struct."""
    return dict(_described(ast.parse(inspect.getsource(struct)).body[0]))


def _described(struct: Any) -> Iterator[tuple[str, str]]:
    for field, below in pairwise([*struct.body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            yield field.target.id, str(text)


def shown(default: Any) -> str:
    """Return a default as people read it."""
    if default is msgspec.NODEFAULT or default in ("", ()):
        return "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def one_line(text: str) -> str:
    """Return a text that stands in one cell."""
    return " ".join(text.split()).replace("|", "\\|")
