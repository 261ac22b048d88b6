"""Metrics for Prometheus. Without the setting nothing is measured, and `prometheus_client` is not loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from .....engine.core import Core
from .....errors import HoldfastError, how_to_install
from .....runs.run import Run
from .....store import Store
from .....upstreams import Providers
from ....config.settings import Settings
from ...audit.refused_keys import GateRefusal


class MetricsNotInstalled(HoldfastError):
    """The package that metrics need is not installed."""

    code = "metrics_not_installed"
    status = 503
    message = f"Metrics need prometheus-client. Install it: {how_to_install('metrics')}."


class Metrics(Protocol):
    """The only part that measures. The engine, the store and the server report events to it."""

    def timed(self, store: Store) -> Store:
        """Return the store with a measured duration of every call."""
        ...

    def settled(self, run: Run) -> None:
        """Count a run that has settled."""
        ...

    def refused(self, refused: GateRefusal) -> None:
        """Count a request that was refused before it reached a route."""
        ...

    def watch(self, engine: Core, providers: Providers, readers: ReaderCounts, failing: Callable[[], int]) -> None:
        """Read the values of gauges from these parts at each request for the metrics."""
        ...

    async def look(self) -> None:
        """Read the models of the providers, which are values of labels."""
        ...

    async def look_at_store(self) -> None:
        """Read the position of the store's write-ahead log."""
        ...

    async def measure_process(self) -> None:
        """Measure the event loop and the garbage collector until cancelled."""
        ...

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a format that the client accepts, and the content type."""
        ...


ReaderCounts = Callable[[], list[int]]
"""Returns the number of events that each open event stream is behind."""


def metrics_of(settings: Settings) -> Metrics | None:
    """Return the metrics; None if they are off."""
    if not (settings.metrics or settings.metrics_port):
        return None
    try:
        module: Any = importlib.import_module(
            ".prometheus", __package__
        )  # only now: prometheus-client comes with an extra
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise MetricsNotInstalled from error
    made: Metrics = module.PrometheusMetrics(settings)
    return made
