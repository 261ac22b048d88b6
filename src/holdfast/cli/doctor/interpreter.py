"""How the Python interpreter was built: with optimisation by a profile (PGO) and at link time (LTO), or without."""

from __future__ import annotations

import platform
import sys
import sysconfig
from collections.abc import Iterator

from .check import Check

SLOWER = "the server takes 3 to 12% more processor time"


def built(options: str | None, prefix: str) -> str:
    """Return how an interpreter was built, by the options of its `configure`; empty if they do not tell.

    A distribution has a build of its own, with both, which Debian's options do not show.
    """
    has_profile = "--enable-optimizations" in (options or "")
    has_links = "--with-lto" in (options or "")
    if has_profile and has_links:
        return "with PGO and LTO"
    if not options or prefix == "/usr":
        return ""
    return "with PGO, without LTO" if has_profile else "without PGO and LTO"


def this_build() -> str:
    """Return how this interpreter was built."""
    return built(sysconfig.get_config_var("CONFIG_ARGS"), sys.base_prefix)


def check_interpreter(build: str) -> Iterator[Check]:
    """Report the interpreter, and one that is slower than it could be. `build` is that of `built`."""
    what = f"Python {platform.python_version()}{' ' if build else ''}{build}"
    if "without" not in build:
        yield Check("ok", what)
    else:
        advice = f"So {SLOWER}. Distributions, python.org, the official images and uv have builds with both."
        yield Check("note", what, advice)
