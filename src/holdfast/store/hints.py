"""Hints between engines of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

Hear = Callable[[str, str], None]
"""Called with the topic and the id of a hint."""


class Hints:
    """Calls those who listen, in the next turn of the loop."""

    def __init__(self) -> None:
        self._listeners: dict[str, Hear] = {}

    def listen(self, keeper: str, hear: Hear) -> Callable[[], None]:
        """Call `hear` with each hint for a node, until the returned function is called."""
        self._listeners[keeper] = hear

        def end() -> None:
            self._listeners.pop(keeper, None)

        return end

    def send(self, topic: str, ids: Sequence[str], to: str) -> None:
        """Wake a node, or all of them."""
        for keeper, hear in self._listeners.items():
            for id in ids if to in ("", keeper) else ():
                asyncio.get_running_loop().call_soon(hear, topic, id)
