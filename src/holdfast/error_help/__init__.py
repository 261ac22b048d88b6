"""What every error code means: cause and remedy.

This is the only table of codes. The server answers `GET /docs/errors/CODE` from it, `holdfast explain CODE` prints it,
and the tables of docs/protocol/03-errors.md and docs/reference/errors.md are written from it. A test fails for a code
without help.
"""

from __future__ import annotations

from .accounts import ACCOUNT_ERRORS
from .entry import ErrorHelp
from .operation import OPERATION_ERRORS, START_ERRORS
from .requests import REQUEST_ERRORS
from .sessions import SESSION_ERRORS
from .sharing import SHARING_ERRORS
from .upstreams import MODEL_ERRORS, UPSTREAM_ERRORS

GROUPS: dict[str, tuple[ErrorHelp, ...]] = {
    "Requests and access": REQUEST_ERRORS,
    "Accounts": ACCOUNT_ERRORS,
    "Runs, sessions and comparisons": SESSION_ERRORS,
    "Sharing": SHARING_ERRORS,
    "Models and sources": UPSTREAM_ERRORS,
    "The embedded model, tools and prompts": MODEL_ERRORS,
    "The server": OPERATION_ERRORS,
    "The start": START_ERRORS,
}
"""All codes, by what they are about."""

ERRORS: dict[str, ErrorHelp] = {each.code: each for group in GROUPS.values() for each in group}
"""All codes by their names."""

ERROR_PAGES = "/docs/errors"
"""The path of the pages on every server: they need no internet, and fit the version that runs."""


def help_at(code: str) -> str | None:
    """Return the path of the page of a code. None for a code of an agent or a provider that is not part of Holdfast."""
    return f"{ERROR_PAGES}/{code}" if code in ERRORS else None
