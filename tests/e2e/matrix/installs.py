"""Installs the Python clients of the matrix, each into a virtual environment that nothing else uses.

python -m tests.e2e.matrix.installs            # all of pins.toml: `make test-all` does it
python -m tests.e2e.matrix.installs dspy llm   # some
"""

import sys
import tomllib
from pathlib import Path

from bench.installs import FromPyPI, install

PLACE = Path(sys.prefix) / "clients"
PINS: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "pins.toml").read_text())["environments"]
"""The packages of each environment."""
OWN = "dev"
"""The environment of the tests themselves."""


class NotInstalledError(Exception):
    """The client is one that only `make test-all` installs, or one that could not be installed."""


def python_of(environment: str) -> Path:
    """The interpreter that has the packages of an environment."""
    if environment == OWN:
        return Path(sys.executable)
    if not (PLACE / environment / ".installed").exists():
        raise NotInstalledError(f"python -m tests.e2e.matrix.installs {environment}")
    return PLACE / environment / "bin" / "python"


def pinned(environment: str, package: str) -> str:
    """The version of a package that an environment has."""
    names = {each.partition("==")[0].partition("[")[0]: each.partition("==")[2] for each in PINS[environment]}
    return names[package]


def main(names: list[str]) -> None:
    for name in names or PINS:
        reason = install(name, FromPyPI(tuple(PINS[name])), PLACE)
        print(f"{name}: {reason or 'installed'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
