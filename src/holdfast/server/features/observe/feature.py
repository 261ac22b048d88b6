"""What operators see of a server: health, nodes and metrics."""

from __future__ import annotations

from ...kit.chores import Chores
from ...kit.feature import Feature
from ...running.running import Running
from ..accounts.keys import Keys
from .health import HealthApi
from .metrics.observers import Observers
from .metrics.port import MetricsApi
from .nodes import NodesApi
from .store_check import StoreCheck

LOOK_AT_MODELS = 15.0
"""Seconds until a new model of a provider has its own label in the metrics."""
LOOK_AT_WAL = 10.0
"""Seconds between two readings of PostgreSQL's write-ahead log, for the metrics."""
OLD_REQUEST = 60.0
"""Seconds after which a request to another node is removed. Callers wait less."""


class Observe(Feature):
    """Health, nodes and metrics."""

    def __init__(self, running: Running, keys: Keys, chores: Chores, observers: Observers) -> None:
        engine, self._store = running.engine, running.store
        self._metrics = observers.metrics
        self.inner = (
            NodesApi(observers.activity, engine, self._store),
            HealthApi(keys, chores, engine, self._store, StoreCheck(engine)),
            MetricsApi(observers.metrics),
        )

    def begin(self, chores: Chores) -> None:
        """Read what metrics show, and delete requests between nodes whose callers no longer wait."""
        chores.by_one_node("old requests", 60.0, lambda: self._store.forget_intents(OLD_REQUEST), first=60.0)
        if self._metrics is not None:
            chores.every("model names", LOOK_AT_MODELS, self._metrics.look)
            chores.every("write-ahead log", LOOK_AT_WAL, self._metrics.look_at_store)
            chores.once("measuring", self._metrics.measure_process)
