"""The environment of child processes: an allow-list, and variables that are named.

The environment holds the keys of upstreams. Linux shows that of a child to every process of the same user, to the
commands of a tool too, so no child has all of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

ALLOWED = frozenset(
    {
        "COLORTERM",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "NO_COLOR",
        "PATH",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
    }
)
"""Variables that hold no secrets and that programs need. `LC_*` is allowed too."""


def child_environment(
    named: Mapping[str, str] | None = None, *, prefixes: tuple[str, ...] = (), environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a child: the allowed variables, those with one of the prefixes, and what is `named`.

    A value that begins with `()` is a shell function, which some shells would run.
    """
    allowed = {
        name: value
        for name, value in environ.items()
        if (name in ALLOWED or name.startswith(("LC_", *prefixes))) and not value.startswith("()")
    }
    return {**allowed, **(named or {})}
