"""Writes the matrix of docs/clients/README.md from the table: `python -m tests.e2e.matrix.page`."""

import importlib.metadata
import json
from pathlib import Path

from tests.e2e.matrix import installs
from tests.e2e.matrix.client import CELLS, MATRIX, Client
from tests.e2e.matrix.table import CLIENTS

ROOT = MATRIX.parents[2]
PAGE = ROOT / "docs" / "clients" / "README.md"
BEGIN = "<!-- the matrix is written by `python -m tests.e2e.matrix.page` -->"
END = "<!-- end of the matrix -->"
FOLDERS = {
    "node": MATRIX.parent / "node",
    "matrix-node": MATRIX / "node",
    "coding_agents": MATRIX.parent / "coding_agents",
}
"""Environments that npm installs."""
TITLES = {"structured": "structured output", "leaving": "leaving stops the model", "resume": "coming back"}


def main() -> None:
    PAGE.write_text(with_matrix(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_matrix(page: str) -> str:
    """Return the page with the matrix as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{matrix()}\n{END}{after}"


def matrix() -> str:
    """Return the rows, and below them the reason of each `no`."""
    reasons = list(dict.fromkeys(reason for client in CLIENTS for reason in client.fails.values()))
    head = ["client", "version", "API", *(TITLES.get(cell, cell) for cell in CELLS), "asked again after text"]
    lines = [head, ["---"] * len(head), *(row(client, reasons) for client in CLIENTS)]
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes, ""])


def row(client: Client, reasons: list[str]) -> list[str]:
    cells = (shown(client, cell, reasons) for cell in CELLS)
    return [client.name, version(client), client.api, *cells, asked_again(client)]


def asked_again(client: Client) -> str:
    """Return how often a client repeats a request whose answer broke off after text, as the check of failures shows."""
    if "failures" in client.checked() and "failures" not in client.fails:
        return "no"
    if client.asks is None:
        return ""
    return {1: "no", 2: "once"}.get(client.asks, f"{client.asks - 1} times")


def shown(client: Client, cell: str, reasons: list[str]) -> str:
    """Return what a cell says, with a link to what shows it."""
    if test := client.shown.get(cell):
        return f'[yes](../../{test.file} "{test.name}")'
    if reason := client.fails.get(cell):
        return f"[no](../../{_path(client)}) ({reasons.index(reason) + 1})"
    if cell in client.checked():
        return f"[yes](../../{_path(client)})"
    return "none" if cell in client.lacks.split() else ""


def _path(client: Client) -> Path:
    return (MATRIX / client.driver).relative_to(ROOT)


def version(client: Client) -> str:
    """Return the version that the tests run."""
    if folder := FOLDERS.get(client.environment):
        found: str = json.loads((folder / "package.json").read_text())["dependencies"][client.package]
        return found
    if client.environment == installs.OWN:
        return importlib.metadata.version(client.package)
    return installs.pinned(client.environment, client.package)


if __name__ == "__main__":
    main()
