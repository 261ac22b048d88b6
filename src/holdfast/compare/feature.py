"""Comparisons."""

from __future__ import annotations

from ..server.features.observe.metrics.observers import Observers
from ..server.kit.calls import Http
from ..server.kit.chores import Chores
from ..server.kit.feature import Feature
from ..server.kit.http.offload import Offload
from ..server.running.running import Running
from .api import ComparisonsApi
from .runs import Rounds
from .scores_api import ScoresApi
from .sources import PaneSources
from .synthesis import Syntheses


class CompareFeature(Feature):
    """Comparisons of models, and the scores from votes."""

    def __init__(self, http: Http, running: Running, observers: Observers) -> None:
        bodies, streams, _ = http
        engine, store, starting = running.engine, running.store, running.starting
        panes = PaneSources(running.chats, running.agents, observers.enter, running.spending.metered_pane)
        self.rounds = Rounds(engine, store, panes, running.prices, starting.start)
        syntheses = Syntheses(engine, store, self.rounds)
        self._offload = Offload()
        self.inner = (
            ScoresApi(self.rounds, self._offload, store),
            ComparisonsApi(
                bodies,
                streams,
                starting,
                running.models,
                running.budgets,
                self.rounds,
                syntheses,
                engine,
                store,
            ),
        )

    def begin(self, chores: Chores) -> None:
        """Go on with the rounds of nodes that are gone."""
        chores.once("comparisons", self.rounds.jobs.take_up_all)

    async def close(self) -> None:
        """End the thread that computes scores."""
        self._offload.close()
