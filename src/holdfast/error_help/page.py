"""The help for an error code as text and as a small page, which loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from ..markup import Child, Markup, page, tag
from . import ERRORS, GROUPS, ErrorHelp

HELP_STYLE = """
:root { --back: #fff; --text: #1c1e21; --link: #1d4fc4; --code: #f0f1f3 }
@media (prefers-color-scheme: dark) { :root { --back: #15171a; --text: #e6e7e9; --link: #9db8ff; --code: #26292e } }
html { background: var(--back); color: var(--text); color-scheme: light dark }
body { font: 1.05rem/1.6 system-ui, sans-serif; margin: 0 auto; max-width: 42rem; padding: 2rem 1.25rem 4rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2rem } a { color: var(--link) }
code { background: var(--code); border-radius: .25rem; font-size: .9em; overflow-wrap: anywhere; padding: .1em .3em }
dt { margin-top: .75rem } dd { margin: 0 }
"""
HELP_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{base64.b64encode(hashlib.sha256(HELP_STYLE.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The content security policy of the pages: their style and nothing else."""


def sentence(text: str) -> str:
    """Return a phrase with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def error_text(entry: ErrorHelp) -> str:
    """Return the help for a code as text for a terminal."""
    status = f" (HTTP {entry.status})" if entry.is_sent else ""
    more = f"More: docs/protocol, clause {entry.clause}." if entry.clause else ""
    head = f"{entry.code}{status}\n{sentence(entry.when)}"
    parts = (head, f"Cause: {entry.cause}", f"What to do: {entry.remedy}", more)
    return "\n\n".join(filter(None, parts)) + "\n"


def error_page(entry: ErrorHelp) -> str:
    """Return the page of a code. Its link is relative: the server may stand below a prefix."""
    document = page(
        f"{entry.code} · Holdfast",
        HELP_STYLE,
        tag("h1", tag("code", entry.code)),
        tag("p", _marked(sentence(entry.when))),
        tag("p", f"HTTP status: {entry.status}") if entry.is_sent else None,
        tag("h2", "Cause"),
        tag("p", _marked(entry.cause)),
        tag("h2", "What to do"),
        tag("p", _marked(entry.remedy)),
        tag("p", f"Clause {entry.clause} of the protocol (docs/protocol) has the details.") if entry.clause else None,
        tag("p", tag("a", "All error codes", href="../errors")),
    )
    return str(document)


def error_list_text() -> str:
    """Return all codes as text for a terminal."""
    width = max(map(len, ERRORS))
    groups = [
        "\n".join([title, *(f"  {each.code:<{width}}  {each.when}" for each in group)])
        for title, group in GROUPS.items()
    ]
    return "\n\n".join(groups) + "\n"


def error_list_page() -> str:
    """Return the page that lists all codes."""
    groups = [[tag("h2", title), tag("dl", map(_listed, group))] for title, group in GROUPS.items()]
    return str(page("Error codes · Holdfast", HELP_STYLE, tag("h1", "Error codes"), *groups))


def _listed(entry: ErrorHelp) -> list[Markup]:
    link = tag("a", tag("code", entry.code), href=f"errors/{entry.code}")
    return [tag("dt", link), tag("dd", _marked(sentence(entry.when)))]


def _marked(text: str) -> Iterator[Child]:
    """Yield the parts of a text, with what is in backquotes as code."""
    for number, part in enumerate(text.split("`")):
        yield tag("code", part) if number % 2 else part
