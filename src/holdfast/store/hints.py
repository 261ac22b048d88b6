"""Hints between engines of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .nodes import OnHint


class LocalHints:
    """The hints of a store that one process has: it calls the listeners, in the next iteration of the event loop."""

    def __init__(self) -> None:
        self._listeners: dict[str, OnHint] = {}

    async def hint(self, topic: str, ids: Sequence[str], to: str = "") -> None:
        """Wake a node, or all nodes."""
        for node_id, on_hint in self._listeners.items():
            for id in ids if to in ("", node_id) else ():
                asyncio.get_running_loop().call_soon(on_hint, topic, id)

    def listen(self, node_id: str, on_hint: OnHint) -> Callable[[], None]:
        """Call `on_hint` with each hint for a node, until the returned function is called."""
        self._listeners[node_id] = on_hint

        def end() -> None:
            self._listeners.pop(node_id, None)

        return end
