"""Batches."""

from __future__ import annotations

from ..server.kit.calls import Http
from ..server.kit.chores import Chores
from ..server.kit.feature import Feature
from ..server.running.running import Running
from .api import BatchesApi
from .runner import BatchRunner


class EvalsFeature(Feature):
    """Sets of prompts, over several models."""

    def __init__(self, http: Http, running: Running) -> None:
        self.batches = BatchRunner(
            running.store, running.engine, running.starting.start, running.budgets.payer_now, running.prices
        )
        self.inner = (
            BatchesApi(
                *(http.bodies, http.streams, running.models, running.budgets),
                *(self.batches, running.starting.check_files),
            ),
        )

    def begin(self, chores: Chores) -> None:
        """Go on with the batches of nodes that are gone."""
        chores.once("batches", self.batches.jobs.take_up_all)

    async def close(self) -> None:
        """End the process that matches patterns."""
        await self.batches.close()
