"""One row of the matrix: a client, how it is run, and what is known of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MATRIX = Path(__file__).parent
CELLS = ("stream", "tools", "structured", "pictures", "reasoning", "usage", "leaving", "failures", "resume")
"""The columns. `leaving`: a client that leaves stops the model."""


ASKS_AFTER_TEXT = {
    "codex": 6,
    "codex over a WebSocket": 12,
    "claude-code": 2,
    "opencode": 1,
    "cline": 1,
    "continue": 1,
    "aider": 9,
}
"""Requests to the model by coding agents for one answer that breaks off after text, measured by their tests.

aider asks for about a minute, so its number depends on the machine."""


@dataclass(frozen=True)
class Test:
    """A test elsewhere that shows a cell: its file, from the root of the repository, and its name."""

    file: str
    name: str


@dataclass(frozen=True)
class Client:
    """A client with one of our APIs. `cells` are checked by its driver; `shown` by tests of their own."""

    name: str
    package: str
    api: str
    environment: str
    """`dev`, an environment of pins.toml, or the folder with the package.json."""
    driver: str = ""
    variant: str = ""
    cells: str = ""
    whole: bool = True
    """It can be asked without streaming."""
    fails: Mapping[str, str] = field(default_factory=dict)
    """Cells whose check fails, and why. A check that passes here fails the tests: the reason is no longer true."""
    lacks: str = ""
    """Cells for which the client has nothing."""
    shown: Mapping[str, Test] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    asks: int | None = None
    """Requests to the model for one answer that breaks off after text, if no check of failures shows that it is 1."""

    @property
    def id(self) -> str:
        return f"{self.name}, {self.api}"

    @property
    def is_light(self) -> bool:
        """Installed by `make setup-dev`, so that every run of the tests can have it."""
        return self.environment in ("dev", "node")

    def checked(self) -> list[str]:
        """The cells that its driver is put through."""
        return self.cells.split()
