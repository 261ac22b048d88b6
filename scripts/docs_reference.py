"""Writes every page and table that comes from the code: `python -m scripts.docs_reference`, or `make reference`.

With `--check` it writes nothing, and fails if a document is not what the code says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts import (
    docs_commands,
    docs_errors,
    docs_events,
    docs_fields,
    docs_metrics,
    docs_python,
    docs_settings,
    docs_settings_file,
)

ROOT = Path(__file__).parents[1]


def documents() -> dict[Path, str]:
    """Return each document with the text that it should have."""
    return {
        docs_commands.PAGE: docs_commands.page(),
        docs_errors.PAGE: docs_errors.page(),
        docs_errors.PROTOCOL: docs_errors.with_codes(docs_errors.PROTOCOL.read_text(encoding="utf-8")),
        docs_events.PAGE: docs_events.page(),
        docs_fields.PAGE: docs_fields.page(),
        docs_metrics.PAGE: docs_metrics.with_metrics(docs_metrics.PAGE.read_text(encoding="utf-8")),
        docs_python.PAGE: docs_python.page(),
        docs_settings.PAGE: docs_settings.with_table(docs_settings.PAGE.read_text(encoding="utf-8")),
        docs_settings_file.FILE: docs_settings_file.text(),
    }


def outdated() -> list[Path]:
    """Return the documents that are not what the code says."""
    return [path for path, text in documents().items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main() -> None:
    """Write the documents, or check them."""
    if "--check" not in sys.argv:
        for path, text in documents().items():
            path.write_text(text, encoding="utf-8")
    elif stale := outdated():
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"{names}: not what the code says. Run: make reference")


if __name__ == "__main__":
    main()
