"""The table of docs/metrics.md, written from the metrics themselves by `make reference`."""

from __future__ import annotations

from pathlib import Path

from holdfast.server.features.observe.metrics.families import FAMILIES, Family

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN = "<!-- the table is written by scripts/docs_metrics.py -->"
END = "<!-- end of the table -->"


def with_metrics(page: str) -> str:
    """Return the page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = ["| metric | kind | labels | what it is |", "| --- | --- | --- | --- |", *map(row, FAMILIES)]
    return "\n".join([f"{before}{BEGIN}", *rows, f"{END}{after}"])


def row(family: Family) -> str:
    """Return a metric as a row of the table."""
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.text} |"
