"""What only `make test-all` runs: tests marked `long`, and the larger counts of generated cases.

One environment variable decides for both, so that a count that is read at import and a mark agree in every worker.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

EVERYTHING = os.environ.get("HOLDFAST_TEST_ALL") == "1"
"""True in `make test-all`."""


def count(default: int, everything: int) -> int:
    """How many generated cases to try: by default, and in `make test-all`."""
    return everything if EVERYTHING else default


def cases(everything: Iterable[Any], *default: Any, reason: str) -> list[Any]:
    """Return the parameters of a test. `make test` takes those of the default, the rest is marked `long`."""
    long = pytest.mark.long(reason)
    return [case if case in default else pytest.param(case, marks=long) for case in everything]
