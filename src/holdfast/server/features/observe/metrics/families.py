"""Every metric: its name, its kind, its labels, and what it counts. docs/metrics.md is written from this list."""

from __future__ import annotations

from typing import Literal, NamedTuple

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Bounds for durations of milliseconds: the store, the event loop, the garbage collector, one token."""
FIRST = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WHOLE = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
STOP = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

MODEL = ("provider", "model")


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    optional: bool = False
    """True if it has a value only on servers that can read it."""


FAMILIES = (
    Family(
        "holdfast_runs_total",
        "counter",
        "Runs that have settled on this node, by outcome and kind.",
        ("outcome", "kind", *MODEL),
    ),
    Family(
        "holdfast_run_duration_seconds",
        "histogram",
        "Time from the start of a run to its settlement.",
        ("outcome", *MODEL),
        WHOLE,
    ),
    Family(
        "holdfast_time_to_first_token_seconds",
        "histogram",
        "Time from the start of a run to the first output of its model.",
        MODEL,
        FIRST,
    ),
    Family(
        "holdfast_time_per_output_token_seconds",
        "histogram",
        "Mean time between two tokens of a run, without the time to the first. Runs of agents are left out.",
        MODEL,
        QUICK,
    ),
    Family(
        "holdfast_run_queue_time_seconds",
        "histogram",
        "Time that a run waited in the queue of its session.",
        (),
        WHOLE,
    ),
    Family(
        "holdfast_prompt_tokens_total",
        "counter",
        "Input tokens of settled runs, as counted by the provider or else estimated.",
        MODEL,
    ),
    Family(
        "holdfast_generation_tokens_total",
        "counter",
        "Output tokens of settled runs, as counted by the provider or else estimated.",
        MODEL,
    ),
    Family(
        "holdfast_cost_total",
        "counter",
        "Cost of settled runs by the `prices` of the settings.",
        (*MODEL, "currency"),
    ),
    Family(
        "holdfast_stop_latency_seconds",
        "histogram",
        "Time from the request to stop a run to its settlement.",
        ("by",),
        STOP,
    ),
    Family(
        "holdfast_run_errors_total",
        "counter",
        "Runs that have failed, by the code of the error. Codes that begin with `upstream_` are those of upstreams.",
        ("provider", "code"),
    ),
    Family("holdfast_upstream_retries_total", "counter", "Requests to upstreams that were repeated.", ("provider",)),
    Family(
        "holdfast_fallbacks_total",
        "counter",
        "Runs that another model has answered than the requested one, by the provider that answered.",
        ("provider",),
    ),
    Family("holdfast_runs_running", "gauge", "Runs in progress on this node."),
    Family("holdfast_runs_limit", "gauge", "Maximum number of concurrent runs (`max_runs`)."),
    Family("holdfast_runs_queued", "gauge", "Runs that wait in the queue of their session on this node."),
    Family("holdfast_subscribers", "gauge", "Open event streams."),
    Family(
        "holdfast_subscriber_lag_events",
        "gauge",
        "Events that the slowest open event stream has not been sent yet.",
    ),
    Family(
        "holdfast_store_operation_seconds",
        "histogram",
        "Duration of the calls to the store. `append` is the commit of new events.",
        ("operation",),
        QUICK,
    ),
    Family("holdfast_store_errors_total", "counter", "Calls to the store that have failed.", ("operation",)),
    Family("holdfast_events_saved_total", "counter", "Events of runs that were written to the store."),
    Family("holdfast_unsaved_events", "gauge", "Events of runs in progress that are not in the store yet."),
    Family("holdfast_store_wal_bytes", "gauge", "Size of SQLite's write-ahead log; 0 with another store."),
    Family(
        "holdfast_postgres_wal_bytes_total",
        "counter",
        "Bytes that PostgreSQL has ever written to its write-ahead log, for all databases. The same on each node.",
        optional=True,
    ),
    Family(
        "holdfast_postgres_slot_lag_bytes",
        "gauge",
        "Write-ahead log that PostgreSQL keeps for the replication slot furthest behind. Absent without a slot.",
        optional=True,
    ),
    Family("holdfast_store_available", "gauge", "1, or 0 while a write waits for the store to come back."),
    Family("holdfast_nodes", "gauge", "Nodes with a lease on the store, this one included, as last read."),
    Family("holdfast_takeovers_total", "counter", "Runs of dead nodes that this node has taken over."),
    Family("holdfast_background_tasks_failing", "gauge", "Background tasks whose last attempt failed."),
    Family(
        "holdfast_requests_refused_total",
        "counter",
        "Requests refused before a route: wrong, expired, revoked or missing key, Host, Origin.",
        ("reason",),
    ),
    Family("holdfast_event_loop_lag_seconds", "histogram", "Delay of a timer of the event loop.", (), QUICK),
    Family(
        "holdfast_gc_pause_seconds",
        "histogram",
        "Duration of the pauses by Python's garbage collector.",
        ("generation",),
        QUICK,
    ),
    Family("holdfast_build_info", "gauge", "1, with the version of the server.", ("version",)),
)
