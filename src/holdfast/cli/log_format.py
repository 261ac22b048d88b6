"""Format of the server's log: each entry begins with its time, and no text in an entry can forge another entry."""

from __future__ import annotations

import logging

from .chat.screen import safe

FORMAT = "%(asctime)s %(levelname)s %(message)s"


class LogFormatter(logging.Formatter):
    """Indents the continuation lines of an entry, and removes control characters.

    Names of models, errors of upstreams and the error output of MCP servers come from others. Without
    the indent, a line end in one of them could forge an entry.
    """

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Return an entry."""
        first, *more = super().format(record).splitlines() or [""]
        return "\n    ".join(map(safe, (first, *more)))


def log_to_stderr(level: str) -> None:
    """Write the log of this process to standard error, from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
