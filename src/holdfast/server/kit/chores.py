"""Chores: the background tasks of features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...concurrency.background import Background
from ...nodes.holds import Holds

CHORE = "chore"
"""The kind of holds for work that one node does for all. The node that holds a chore keeps it."""


class Chores(Background):
    """The background tasks of a server. Some of them are done by one node for all."""

    def __init__(self, holds: Holds) -> None:
        super().__init__()
        self._holds = holds

    def by_one_node(
        self, name: str, seconds: float, step: Callable[[], Awaitable[object]], *, first: float = 0.0
    ) -> None:
        """Do a step at intervals, unless another node of the store does it."""

        async def done() -> None:
            if await self._holds.take(CHORE, name):
                await step()

        self.every(name, seconds, done, first=first)
