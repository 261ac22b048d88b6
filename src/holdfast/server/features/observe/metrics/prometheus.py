"""The metrics of a server, for Prometheus."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from ..... import __version__
from .....engine.core import Core
from .....errors import StoreUnavailable
from .....events import AnySettlement, Failed, Stopped
from .....history import Measured
from .....ids import ModelName, full_name
from .....log.log import Log
from .....runs.run import Run
from .....store import Store
from .....store.records import WalPosition
from .....upstreams import Providers
from ....config.settings import Settings
from ...audit.refused_keys import GateRefusal
from . import ReaderCounts
from .timed_store import timed_store
from .values import MetricTable

OTHER = "other"
MOST_MODELS = 200
"""Maximum number of models that become labels, of all providers together. A service may offer hundreds."""


class ModelLabel(NamedTuple):
    """A provider and a model, as labels."""

    provider: str
    model: str


_UNKNOWN = ModelLabel(OTHER, OTHER)


class ModelLabels:
    """The labels `provider` and `model`. Names come from users, so only models that are offered become labels."""

    def __init__(self, providers: Providers | None = None) -> None:
        self._providers = providers
        self._labels: dict[ModelName, ModelLabel] = {}
        self._names: frozenset[str] = frozenset()
        self._used: set[ModelLabel] = set()
        if providers is not None:
            self._take({provider.name: provider.models or () for provider in providers.all})

    async def look(self) -> None:
        """Read the lists of models of the upstreams. The providers cache them."""
        if (providers := self._providers) is not None:
            self._take({provider.name: await provider.list_models() for provider in providers.all})

    def _take(self, listed: Mapping[str, Iterable[str]]) -> None:
        offered = [ModelLabel(provider, model) for provider, models in listed.items() for model in models]
        self._labels = {full_name(*label): label for label in offered}
        self._names = frozenset(listed)

    def of(self, name: ModelName) -> ModelLabel:
        """Return the labels of a model's name. A model that is not offered is `other`."""
        label = self._labels.get(name)
        if label is None:
            provider = name.partition("/")[0]
            return ModelLabel(provider, OTHER) if provider in self._names else _UNKNOWN
        if label not in self._used:
            if len(self._used) >= MOST_MODELS:
                return ModelLabel(label.provider, OTHER)
            self._used.add(label)
        return label


EVERY = 0.25
"""Seconds between two measurements of the event loop."""


async def measured_process(lag: Callable[[float], None], pause: Callable[[int, float], None]) -> None:
    """Report each delay of a timer, and each pause with the generation that was collected, until cancelled."""
    watch = _GcWatch(pause)
    gc.callbacks.append(watch)
    try:
        while True:
            due = perf_counter() + EVERY  # uvloop's clock counts milliseconds
            await asyncio.sleep(EVERY)
            lag(max(0.0, perf_counter() - due))
    finally:
        gc.callbacks.remove(watch)


class _GcWatch:
    """Called by Python before and after each collection."""

    def __init__(self, pause: Callable[[int, float], None]) -> None:
        self._pause = pause
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = perf_counter()
        elif self._began:
            self._pause(info["generation"], perf_counter() - self._began)


MOST_CODES = 100
"""Maximum number of error codes that become labels. Ours are fewer; a provider of another package may have any."""


class PrometheusMetrics:
    """Counts each run once, when it has settled, from the times and tokens that the engine has measured.

    Gauges are read when the metrics are requested. So a token costs nothing, and a run some microseconds.
    """

    def __init__(self, settings: Settings) -> None:
        self._registry = CollectorRegistry()
        self._table = table = MetricTable()
        self._registry.register(table)
        self._labels = ModelLabels()
        self._gauges: dict[str, Callable[[], float]] = {}
        self._currency = settings.currency
        self._of_runs: dict[tuple[str, str, ModelLabel], _RunValues] = {}
        self._codes: set[str] = set()
        self._wal_bytes: Callable[[], int] = lambda: 0  # of a store that has such a log
        self._read_wal: Callable[[], Awaitable[WalPosition]] | None = None
        ProcessCollector(registry=self._registry)
        table["holdfast_build_info"].of(__version__).set(1)
        table["holdfast_runs_limit"].of().set(settings.max_runs)

    # reports of the parts of the server

    def timed(self, store: Store) -> Store:
        """Return the store with a measured duration of every call."""
        self._wal_bytes = getattr(store, "wal_bytes", self._wal_bytes)
        self._read_wal = getattr(store, "read_wal", None)
        return timed_store(store, self._table)

    def settled(self, run: Run) -> None:
        """Count a run that has settled."""
        record, settlement = run.record, run.settlement
        assert settlement is not None
        key = settlement.outcome, record.kind, self._labels.of(settlement.answered_by or record.model)
        values = self._of_runs.get(key)
        if values is None:
            values = self._of_runs[key] = _RunValues(self._table, *key, self._currency)
        values.count(settlement, run.measured)
        self._count_troubles(run, settlement, key[2].provider)
        if isinstance(settlement, Stopped) and run.measured and (receipt := settlement.receipt):
            latency = receipt.settled_at - receipt.stop_requested_at
            self._table["holdfast_stop_latency_seconds"].of(settlement.by).observe(max(0.0, latency))
        if run.measured and record.queue_number is not None and record.started_at is not None:
            waited = record.started_at - record.created_at
            self._table["holdfast_run_queue_time_seconds"].of().observe(max(0.0, waited))

    def _count_troubles(self, run: Run, settlement: AnySettlement, provider: str) -> None:
        """Count a failure, a fallback and retries."""
        if isinstance(settlement, Failed):
            self._table["holdfast_run_errors_total"].of(provider, self._code(settlement.error.code)).inc()
        if settlement.answered_by is not None:
            self._table["holdfast_fallbacks_total"].of(provider).inc()
        if isinstance(run.log, Log) and run.log.retries:
            requested = self._labels.of(run.record.model).provider
            self._table["holdfast_upstream_retries_total"].of(requested).inc(run.log.retries)

    def _code(self, code: str) -> str:
        """Return the label for the code of an error."""
        if len(self._codes) < MOST_CODES:
            self._codes.add(code)
        return code if code in self._codes else OTHER

    def refused(self, refused: GateRefusal) -> None:
        """Count a request that was refused before it reached a route."""
        self._table["holdfast_requests_refused_total"].of(refused.reason).inc()

    # values that are read at a request for the metrics

    def watch(self, engine: Core, providers: Providers, readers: ReaderCounts, failing: Callable[[], int]) -> None:
        """Read the values of gauges from these parts at each request for the metrics."""
        self._labels = ModelLabels(providers)
        self._gauges = {
            "holdfast_runs_running": lambda: len(engine.live()),
            "holdfast_runs_queued": lambda: engine.held.get("runs", 0) - len(engine.live()),
            "holdfast_subscribers": lambda: len(readers()),
            "holdfast_subscriber_lag_events": lambda: max(readers(), default=0),
            "holdfast_unsaved_events": lambda: sum(map(_unsaved, engine.live())),
            "holdfast_store_available": lambda: not engine.store_is_away,
            "holdfast_background_tasks_failing": failing,
        }

    async def look(self) -> None:
        """Learn the models of the providers, which are values of labels."""
        await self._labels.look()

    async def look_at_store(self) -> None:
        """Read the position of the store's write-ahead log. It is removed while the store is not reachable."""
        if self._read_wal is None:
            return
        try:
            wal = await self._read_wal()
        except StoreUnavailable:
            wal = WalPosition()
        self._table["holdfast_postgres_wal_bytes_total"].show(wal.written)
        self._table["holdfast_postgres_slot_lag_bytes"].show(wal.slot_lag)

    async def measure_process(self) -> None:
        """Measure the event loop and the garbage collector until cancelled."""
        lag, pause = self._table["holdfast_event_loop_lag_seconds"].of(), self._table["holdfast_gc_pause_seconds"]
        await measured_process(lag.observe, lambda generation, seconds: pause.of(str(generation)).observe(seconds))

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a format that the client accepts, and the content type. A thread writes the text."""
        for name, value in self._gauges.items():
            self._table[name].of().set(value())
        encode, content_type = choose_encoder(accept)
        return await asyncio.to_thread(self._encoded, encode), content_type

    def _encoded(self, encode: Callable[[CollectorRegistry], bytes]) -> bytes:
        """Return the text, with the values that are read from the disk."""
        self._table["holdfast_store_wal_bytes"].of().set(self._wal_bytes())
        return encode(self._registry)


class _RunValues:
    """The metrics of runs with the same labels."""

    def __init__(self, table: MetricTable, outcome: str, kind: str, label: ModelLabel, currency: str) -> None:
        self._runs = table["holdfast_runs_total"].of(outcome, kind, *label)
        self._duration = table["holdfast_run_duration_seconds"].of(outcome, *label)
        self._first = table["holdfast_time_to_first_token_seconds"].of(*label)
        self._between = table["holdfast_time_per_output_token_seconds"].of(*label)
        self._input = table["holdfast_prompt_tokens_total"].of(*label)
        self._output = table["holdfast_generation_tokens_total"].of(*label)
        self._cost = table["holdfast_cost_total"].of(*label, currency)

    def count(self, settlement: AnySettlement, measured: Measured | None) -> None:
        """Count a run, its tokens, its cost and its times."""
        usage = settlement.usage
        self._runs.inc()
        self._input.inc(usage.input_tokens)
        self._output.inc(usage.output_tokens)
        if usage.cost:
            self._cost.inc(usage.cost)
        if measured is None:
            return
        self._duration.observe(measured.ended - measured.started)
        if measured.first is not None:
            self._first.observe(measured.first - measured.asked)
            if measured.has_pace and usage.output_tokens > 1:
                self._between.observe((measured.last - measured.first) / (usage.output_tokens - 1))


def _unsaved(run: Run) -> int:
    return run.log.appended - run.log.seq if isinstance(run.log, Log) else 0
