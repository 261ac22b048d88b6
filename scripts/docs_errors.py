"""The error codes in docs/reference/errors.md and in the protocol, written from `error_help` by `make reference`."""

from __future__ import annotations

from pathlib import Path

from holdfast.error_help import ERROR_PAGES, GROUPS, ErrorHelp
from holdfast.error_help.page import sentence

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "errors.md"
PROTOCOL = ROOT / "docs" / "protocol" / "03-errors.md"
BEGIN = "<!-- the table is written by scripts/docs_errors.py -->"
END = "<!-- end of the table -->"
HEAD = f"""# Error codes

Every error has a `code` that never changes, a `message` for people, and `help`: the path of a page with the text below.
The server itself serves that page, so it needs no internet and fits the version that runs:

```sh
curl http://127.0.0.1:8787{ERROR_PAGES}/upstream_auth    # text; a browser gets a page
holdfast explain upstream_auth                           # the same, without a server
```

[Chapter 3 of the protocol](../protocol/03-errors.md) has the shape of errors on each API. This page is written by
`scripts/docs_errors.py` from the table that the server uses.
"""


def page() -> str:
    """Return the page of all codes."""
    return HEAD + "".join(_section(title, group) for title, group in GROUPS.items())


def with_codes(protocol: str) -> str:
    """Return the chapter of the protocol with its table as it should be."""
    before, _, rest = protocol.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = [_row(each) for group in GROUPS.values() for each in group]
    table = ["| code | status | when |", "| --- | --- | --- |", *rows]
    return "\n".join([f"{before}{BEGIN}", "", *table, "", f"{END}{after}"])


def _section(title: str, group: tuple[ErrorHelp, ...]) -> str:
    return f"\n## {title}\n" + "".join(map(_entry, group))


def _entry(entry: ErrorHelp) -> str:
    status = f"Status {entry.status}." if entry.is_sent else "Printed by commands."
    more = f" Details: clause {entry.clause}." if entry.clause else ""
    return (
        f"\n### `{entry.code}`\n\n{sentence(entry.when)} {status}{more}\n\n"
        f"**Cause.** {entry.cause}\n\n**What to do.** {entry.remedy}\n"
    )


def _row(entry: ErrorHelp) -> str:
    more = f" ({entry.clause})" if entry.clause else ""
    return f"| `{entry.code}` | {entry.status} | {entry.when}{more} |"
