"""The settings in use."""

from __future__ import annotations

from .settings import Settings


class CurrentSettings:
    """The settings in use. A reload of the settings file replaces them."""

    def __init__(self, now: Settings) -> None:
        self.now = now
        self.url = ""
        """The URL of the port that is listened on; empty if another program does that."""
