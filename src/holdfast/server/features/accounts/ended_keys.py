"""The end of what a key has begun: its detached runs and its batches stop when it is revoked or expires."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ....concurrency.tasks import OwnedTasks
from ....engine.core import Core


class EndedKeys:
    """Stops what ended keys have begun on this node. Every node learns of a key's end by itself.

    What still waits, in a queue or for its turn, asks for the key when it starts, and fails.
    """

    def __init__(
        self, engine: Core, stop_batches: Callable[[frozenset[str]], Coroutine[Any, Any, None]], tasks: OwnedTasks
    ) -> None:
        self._engine = engine
        self._stop_batches = stop_batches
        self._tasks = tasks

    def stop(self, keys: frozenset[str]) -> None:
        """Stop the runs and batches of keys, by the ids of the keys."""
        self._tasks.start(self._stop_batches(keys))  # a batch stops its runs itself, so that it can go on
        for run in self._engine.live():
            if run.record.payer.key in keys and run.record.kind != "batch":
                self._tasks.start(run.stop(by="revoked"))
