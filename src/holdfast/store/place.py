"""The address of a store, in a form that is safe to show."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

POSTGRES = ("postgresql", "postgres")
"""Schemes of the URL of a PostgreSQL database."""


_LOGIN = re.compile(r"(?<=://)([^:/?#@]*):.*@", re.DOTALL)  # greedy: a password may hold / ? # or @ as they are


def is_postgres(url: str) -> bool:
    """Return whether a URL names a PostgreSQL database."""
    scheme, found, _ = url.partition("://")
    return bool(found) and scheme in POSTGRES


def without_password(url: str) -> str:
    """Return a URL without its password, and without its options, which may hold one."""
    try:
        parts = urlsplit(_LOGIN.sub(r"\1@", url))
    except ValueError:  # a bracket that is not part of an IPv6 address
        return f"{url.partition('://')[0]}://…"
    user, at, place = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, user.partition(":")[0] + at + place, parts.path, "", ""))
