"""The order in which tests run: the longest files first, and the rest as a seed has it.

Tests stay with their file, since pytest-xdist hands out whole files. The order within a file depends on the seed and
the file alone, so that a failure is repeated with that file.
"""

import os
import random
from collections import defaultdict

import pytest

VARIABLE = "HOLDFAST_TEST_SEED"
"""`random`, or the seed of an order to repeat. Without it tests run as they are written."""


def choose_seed() -> None:
    """Make up a seed if one is to be made up. The processes of pytest-xdist find it in their environment."""
    if os.environ.get(VARIABLE) == "random":
        os.environ[VARIABLE] = str(random.SystemRandom().randrange(1_000_000))


def seed() -> str:
    return os.environ.get(VARIABLE, "")


def in_order(items: list[pytest.Item], first: tuple[str, ...], seed: str) -> list[pytest.Item]:
    """Return the tests of the files of `first`, and then the others."""
    files: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    names = list(files)
    if seed:
        random.Random(seed).shuffle(names)
        for name, tests in files.items():
            random.Random(f"{seed} {name}").shuffle(tests)
    names.sort(key=lambda name: not name.startswith(first))
    return [item for name in names for item in files[name]]
