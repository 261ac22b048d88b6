"""One error code as people read it."""

from __future__ import annotations

import msgspec


class ErrorHelp(msgspec.Struct, frozen=True):
    """What is published about an error code. Backquotes in the texts mark code."""

    code: str
    status: str
    """The HTTP status, or the statuses. `*start*`: only commands print it, before or without a server."""
    when: str
    """What happened, as a phrase."""
    cause: str
    """The usual reasons, as sentences."""
    remedy: str
    """What to do, as sentences."""
    clause: str = ""
    """The number of the clause of the protocol that has the details."""

    @property
    def is_sent(self) -> bool:
        """Whether a server sends the code. Otherwise only commands print it."""
        return not self.status.startswith("*")
