"""The end of what a key has begun: its detached runs and its batches stop when it is revoked or expires."""

from __future__ import annotations

from ...concurrency.tasks import OwnedTasks
from ...engine.core import Core
from ...evals.runner import BatchRunner


class EndedKeys:
    """Stops what ended keys have begun on this node. Every node learns of a key's end by itself.

    What still waits, in a queue or for its turn, asks for the key when it starts, and fails.
    """

    def __init__(self, engine: Core, batches: BatchRunner, tasks: OwnedTasks) -> None:
        self._engine = engine
        self._batches = batches
        self._tasks = tasks

    def stop(self, keys: frozenset[str]) -> None:
        """Stop the runs and batches of keys, by the ids of the keys."""
        self._tasks.start(self._batches.stop_of_keys(keys))  # a batch stops its runs itself, so that it can go on
        for run in self._engine.live():
            if run.record.payer.key in keys and run.record.kind != "batch":
                self._tasks.start(run.stop(by="revoked"))
