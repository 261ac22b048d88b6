"""The lines that `holdfast top` shows: a pure function from intervals to text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ..client import Object
from ..screen import flat
from .samples import Interval

MOST_MODELS = 20
_FAILED = ("failed", "interrupted")

_Row = list[str]


def lines(
    nodes: Mapping[str, Interval | str], listed: Sequence[Object], width: int, height: int | None = None
) -> list[str]:
    """Return the view, no line longer than the width and no more of them than the height.

    A server without metrics has the reason in place of figures. `listed` are all nodes of the store: also those whose
    metrics were not read.
    """
    alive = [interval for interval in nodes.values() if isinstance(interval, Interval)]
    is_listed = len(listed) > 1 or len(alive) < len(nodes)
    drawn = [
        *_table(["NODE", *_NODE_COLUMNS], [_node_row(name, node) for name, node in nodes.items()]),
        "",
        *([*_table(_LISTED_COLUMNS, [*map(_listed_row, listed)]), ""] if is_listed and listed else []),
        *(_measured(alive) if alive else _table(["ERROR", "LAST MINUTE"], _late_error_rows(listed))),
    ]
    return [line[:width] for line in drawn[:height]]


def _measured(nodes: Sequence[Interval]) -> list[str]:
    return [
        *_table(["MODEL", "RUN/S", "FAIL/S", "TOK/S", "TTFT 50%", "TTFT 95%"], _model_rows(nodes)),
        "",
        *_table(["ERROR", "PROVIDER", "NOW", "IN ALL"], _error_rows(nodes)),
    ]


class _LastMinute(msgspec.Struct, frozen=True):
    """The figures that a node last saved in the store. A node that saved none has no numbers."""

    runs: int | None = None
    failed: int | None = None
    ttft_p95_ms: float | None = None
    errors: dict[str, int] = {}


def _last_minute(node: Object) -> _LastMinute:
    return msgspec.convert(node["last_minute"] or {}, _LastMinute)


def _late_error_rows(listed: Sequence[Object]) -> list[_Row]:
    """Return a row for each error of the last minute on any node, the most frequent first."""
    errors: Counter[str] = Counter()
    for node in listed:
        errors.update(_last_minute(node).errors)
    return [[flat(code), _count(count)] for code, count in errors.most_common()]


_NODE_COLUMNS = (
    *("RUNS", "QUEUED", "READERS", "LAG", "RUN/S", "FAIL/S", "TOK/S", "TTFT 95%", "STOP 99%"),
    *("COMMIT 99%", "UNSAVED", "LOOP 99%", "CPU", "MEMORY", "REFUSED/S"),
)


def _node_row(name: str, node: Interval | str) -> _Row:
    if isinstance(node, str):
        return [flat(name), flat(node)]
    now = node.now
    failed = sum(node.rate("holdfast_runs_total", outcome=outcome) for outcome in _FAILED)
    is_away = bool(now.of("holdfast_store_available")) and not now.total("holdfast_store_available")
    return [
        flat(name),
        *(_count(now.total(f"holdfast_{gauge}")) for gauge in ("runs_running", "runs_queued", "subscribers")),
        _count(now.total("holdfast_subscriber_lag_events")),
        _rate(node.rate("holdfast_runs_total")),
        _rate(failed),
        _rate(node.rate("holdfast_generation_tokens_total")),
        _time(node.quantile(0.95, "holdfast_time_to_first_token_seconds")),
        _time(node.quantile(0.99, "holdfast_stop_latency_seconds")),
        "away" if is_away else _time(node.quantile(0.99, "holdfast_store_operation_seconds", operation="append")),
        _count(now.total("holdfast_unsaved_events")),
        _time(node.quantile(0.99, "holdfast_event_loop_lag_seconds")),
        f"{node.rate('process_cpu_seconds_total'):.0%}",
        f"{now.total('process_resident_memory_bytes') / 1e6:.0f} MB",
        _rate(node.rate("holdfast_requests_refused_total")),
    ]


_LISTED_COLUMNS = ("OF STORE", "STATE", "RUNS", "LEASE", "RUN/MIN", "FAIL/MIN", "TTFT 95%", "VERSION", "ADDRESS")


def _listed_row(node: Object) -> _Row:
    """Return the row of a node, from the figures that it last saved in the store."""
    last_minute = _last_minute(node)
    state = "draining" if node["draining"] else "alive" if node["alive"] else "lease ended"
    first = last_minute.ttft_p95_ms
    return [
        str(node["number"]),
        state,
        _count(node["runs"]),
        f"{max(node['lease_left'], 0):.0f} s",
        *("-" if count is None else _count(count) for count in (last_minute.runs, last_minute.failed)),
        _time(None if first is None else first / 1000),
        flat(node["version"]),
        flat(node["address"] or "-"),
    ]


def _model_rows(nodes: Sequence[Interval]) -> list[_Row]:
    """Return a row for each model, the busiest first."""
    models = dict.fromkeys(model for node in nodes for model in node.values("holdfast_runs_total", "provider", "model"))
    rows = []
    for provider, model in models:
        of_model = {"provider": provider, "model": model}
        runs = sum(node.rate("holdfast_runs_total", **of_model) for node in nodes)
        failed = sum(node.rate("holdfast_runs_total", outcome=way, **of_model) for node in nodes for way in _FAILED)
        tokens = sum(node.rate("holdfast_generation_tokens_total", **of_model) for node in nodes)
        first = [_slowest(nodes, share, of_model) for share in (0.5, 0.95)]
        rows.append(
            (runs, [flat(f"{provider}/{model}"), _rate(runs), _rate(failed), _rate(tokens), *map(_time, first)])
        )
    return [row for _, row in sorted(rows, key=lambda each: (-each[0], each[1][0]))[:MOST_MODELS]]


def _slowest(nodes: Sequence[Interval], share: float, labels: Mapping[str, str]) -> float | None:
    """Return the time to the first token of a model on the node where it takes longest."""
    found = [node.quantile(share, "holdfast_time_to_first_token_seconds", **labels) for node in nodes]
    return max((each for each in found if each is not None), default=None)


def _error_rows(nodes: Sequence[Interval]) -> list[_Row]:
    """Return a row for each kind of error, the most frequent first."""
    name = "holdfast_run_errors_total"
    kinds = dict.fromkeys(kind for node in nodes for kind in node.values(name, "code", "provider"))
    rows = []
    for code, provider in kinds:
        labels = {"code": code, "provider": provider}
        new = sum(node.more(name, **labels) for node in nodes)
        total = sum(node.now.total(name, **labels) for node in nodes)
        rows.append((-new, -total, [flat(code), flat(provider), _count(new), _count(total)]))
    return [row for *_, row in sorted(rows)]


def _table(columns: Sequence[str], rows: Sequence[_Row]) -> list[str]:
    """Return rows below their names: the first column to the left, the others to the right."""
    whole = [row for row in rows if len(row) == len(columns)]
    widths = [max(len(row[at]) for row in (columns, *whole)) for at in range(len(columns))]
    widths[0] = max([widths[0], *(len(row[0]) for row in rows)])
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            if len(row) == len(columns)
            else [row[0].ljust(widths[0]), *row[1:]]
        )
        for row in (columns, *rows)
    ]


def _count(value: float) -> str:
    return f"{value:.0f}"


def _rate(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
