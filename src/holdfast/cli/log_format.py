"""How the server's log looks: each entry begins with its time, and nothing in an entry can look like another one."""

from __future__ import annotations

import logging

from .chat.screen import safe

FORMAT = "%(asctime)s %(levelname)s %(message)s"


class LogFormatter(logging.Formatter):
    """Indents the further lines of an entry, and removes what commands a terminal.

    Names of models, errors of upstreams and the error output of MCP servers come from others. With a line end in one of
    them, somebody could write entries of their own.
    """

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Return an entry."""
        first, *more = super().format(record).splitlines() or [""]
        return "\n    ".join(map(safe, (first, *more)))


def log_to_stderr(level: str) -> None:
    """Write the log of this process to its error output, from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
