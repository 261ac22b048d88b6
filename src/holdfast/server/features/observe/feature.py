"""What operators see of a server: health, nodes and metrics."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from starlette.types import ASGIApp

from ....access import ANYONE
from ....upstreams import Providers
from ...config.current import CurrentSettings
from ...config.settings import Settings
from ...kit.chores import Chores
from ...kit.feature import Endpoint, Feature
from ...running.running import Running
from ..accounts.keys import Keys
from ..audit.refused_keys import GateRefusal
from .health import HealthApi
from .metrics import ReaderCounts
from .metrics.observers import Observers
from .metrics.port import MetricsApi, metrics_served
from .nodes import NodesApi

LOOK_AT_MODELS = 15.0
"""Seconds until a new model of a provider has its own label in the metrics."""
LOOK_AT_WAL = 10.0
"""Seconds between two readings of PostgreSQL's write-ahead log, for the metrics."""
OLD_REQUEST = 60.0
"""Seconds after which a request to another node is removed. Callers wait less."""


class ObserveFeature(Feature):
    """Health, nodes and metrics."""

    def __init__(self, running: Running, keys: Keys, observers: Observers, current: CurrentSettings) -> None:
        engine, self._store = running.engine, running.store
        self._chores, self._engine = running.chores, engine
        self._metrics, self._traces = observers.metrics, observers.traces
        self.inner = (
            NodesApi(observers.activity, engine, self._store),
            HealthApi(current, keys, self._chores, engine, self._store),
            MetricsApi(observers.metrics),
        )

    def watch(self, providers: Providers, readers: ReaderCounts) -> None:
        """Read what metrics show: before the start, which may settle runs of dead nodes."""
        if self._metrics is not None:
            self._metrics.watch(self._engine, providers, readers, self._failing)

    def _failing(self) -> int:
        """Return the number of background tasks that fail."""
        return len(self._chores.failing | self._engine.failing)

    def traced(self, endpoints: list[Endpoint]) -> list[Endpoint]:
        """Return the endpoints. With traces on, those that need a key create spans: probes and the page do not."""
        if (traces := self._traces) is None:
            return endpoints
        return [
            each if each.who is ANYONE else each.with_handler(traces.handler(each.method, each.path, each.handler))
            for each in endpoints
        ]

    def requests(self, app: ASGIApp) -> ASGIApp:
        """Return the application of such endpoints."""
        return app if self._traces is None else self._traces.requests(app)

    def counting(self, count: Callable[[GateRefusal], None]) -> Callable[[GateRefusal], None]:
        """Return a function that counts a request that the gate refuses, in the metrics too."""

        def counted(refused: GateRefusal) -> None:
            if self._metrics is not None:
                self._metrics.refused(refused)
            count(refused)

        return counted

    def served(self, settings: Settings, sock: socket.socket | None) -> AbstractAsyncContextManager[None]:
        """Serve the port for metrics within a block, if the settings name one."""
        return metrics_served(self._metrics, settings, sock)

    def begin(self, chores: Chores) -> None:
        """Read what metrics show, and delete requests between nodes whose callers no longer wait."""
        chores.by_one_node("old requests", 60.0, lambda: self._store.forget_intents(OLD_REQUEST), first=60.0)
        if self._metrics is not None:
            chores.every("model names", LOOK_AT_MODELS, self._metrics.look)
            chores.every("write-ahead log", LOOK_AT_WAL, self._metrics.look_at_store)
            chores.once("measuring", self._metrics.measure_process)
