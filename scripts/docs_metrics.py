"""Writes the table of docs/metrics.md from the metrics themselves: `python scripts/docs_metrics.py`.

With `--check` it writes nothing, and fails if the table is not what it should be.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.server.metrics.families import FAMILIES, Family

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN = "<!-- the table is written by scripts/docs_metrics.py -->"
END = "<!-- end of the table -->"


def main() -> None:
    """Write the table, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    right = with_metrics(page)
    if "--check" not in sys.argv:
        PAGE.write_text(right, encoding="utf-8")
    elif page != right:
        sys.exit("docs/metrics.md is not what the metrics say. Run: python scripts/docs_metrics.py")


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


if __name__ == "__main__":
    main()
