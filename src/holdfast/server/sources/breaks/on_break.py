"""What is done if an answer breaks off, where neither the request nor the chat says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....asks import OnBreak
from ....upstreams import FoundModel


class OnBreaks:
    """The choices of the settings: for a model, for a provider (`up/*`), or for all (`*`)."""

    def __init__(self, chosen: Mapping[str, OnBreak], fallbacks: Callable[[], Mapping[str, str]]) -> None:
        self._chosen, self._fallbacks = chosen, fallbacks

    def of(self, found: FoundModel) -> OnBreak | None:
        """Return what the settings say about a model; None if they say nothing."""
        if not self._chosen:
            return None
        names = (found.name, f"{found.provider.name}/*", "*")
        return next((self._chosen[name] for name in names if name in self._chosen), None)

    def in_chats(self, found: FoundModel) -> OnBreak:
        """Return what is done in a chat: without a setting, to go on if that leaves no seam, or has a stand-in."""
        if (chosen := self.of(found)) is not None:
            return chosen
        return "continue" if found.provider.prefills or found.name in self._fallbacks() else "settle"
