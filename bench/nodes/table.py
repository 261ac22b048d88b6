"""The table of docs/scale.md, from the newest results."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent.parent / "results" / "nodes.json"
BEGIN, END = "<!-- bench: nodes -->", "<!-- end -->"

Value = Callable[[dict[str, Any]], float]


class Aim(NamedTuple):
    """A line of the table: what was aimed at, and how it is read from the results of a part."""

    part: str
    text: str
    limit: str
    shown: str
    value: Value
    most: float


AIMS = [
    Aim(
        "appends",
        "commit of 500 events of 100 runs, p50, of SQLite's",
        "at most 2x",
        "{:.2f}x",
        lambda it: it["postgresql_of_sqlite_100x5"],
        2,
    ),
    Aim(
        "appends",
        "commit of one event, p50, of SQLite's",
        "at most 2x",
        "{:.1f}x",
        lambda it: it["postgresql_of_sqlite_1x1"],
        2,
    ),
    Aim(
        "appends",
        "the same without waiting for the disk, as SQLite's",
        "at most 2x",
        "{:.1f}x",
        lambda it: it["no_fsync_postgresql_of_sqlite_1x1"],
        2,
    ),
    Aim(
        "appends",
        "PostgreSQL, processor time for an event in commits of 500",
        "at most 10 us",
        "{:.1f} us",
        lambda it: it["us_per_event_100x5"],
        10,
    ),
    Aim(
        "appends",
        "PostgreSQL, processor time for an event in commits of 20",
        "at most 10 us",
        "{:.1f} us",
        lambda it: it["us_per_event_20x1"],
        10,
    ),
    Aim(
        "readers",
        "a reader at another node, p50, of one at the owner",
        "at most 1.5x",
        "{:.2f}x",
        lambda it: it["remote_of_local"],
        1.5,
    ),
    Aim(
        "readers",
        "a reader at another node, p50, more than one at the owner",
        "at most 2 ms",
        "{:.2f} ms",
        lambda it: it["remote_p50_ms"] - it["local_p50_ms"],
        2,
    ),
    Aim(
        "readers",
        "stop through another node: upstream closed, p50",
        "",
        "{:.1f} ms",
        lambda it: it["stop_close_p50_ms"],
        float("inf"),
    ),
    Aim(
        "readers",
        "stop through another node: upstream closed, p99",
        "at most 50 ms",
        "{:.1f} ms",
        lambda it: it["stop_close_p99_ms"],
        50,
    ),
    Aim(
        "takeover",
        "runs of a killed node, settled for their readers, longest",
        "at most 15 s",
        "{:.1f} s",
        lambda it: it["takeover_max_s"],
        15,
    ),
    Aim(
        "outage",
        "30 s without PostgreSQL, 5 nodes: runs taken from the living",
        "none",
        "{:.0f}",
        lambda it: it["outage_taken"],
        0,
    ),
    Aim(
        "outage",
        "the same: runs that did not complete",
        "none",
        "{:.0f}",
        lambda it: it["outage_runs"] - it["outage_completed"],
        0,
    ),
    Aim("rolling", "rolling restart under 300 streams: gaps", "none", "{:.0f}", lambda it: it["rolling_gaps"], 0),
    Aim(
        "rolling",
        "the same: runs that did not complete",
        "none",
        "{:.0f}",
        lambda it: it["rolling_runs"] - it["rolling_completed"],
        0,
    ),
    Aim(
        "idle",
        "ten idle nodes, without PostgreSQL",
        "at most 5% of a core",
        "{:.1f}%",
        lambda it: it["idle_nodes_percent"],
        5,
    ),
    Aim(
        "idle",
        "PostgreSQL below ten idle nodes",
        "",
        "{:.1f}%",
        lambda it: it["idle_postgres_percent"],
        float("inf"),
    ),
]


def newest() -> dict[str, Any]:
    """Return the newest results."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"parts": {}}
    return results


def table(results: dict[str, Any]) -> str:
    """Return the results as a table, with the load of the machine before each part."""
    lines = ["| measured | aim | reached | met | load before |", "| --- | ---: | ---: | ---: | ---: |"]
    for aim in AIMS:
        if (part := results["parts"].get(aim.part)) is None:
            continue
        value = aim.value(part)
        met = "" if not aim.limit else "yes" if value <= aim.most else "**no**"
        lines.append(f"| {aim.text} | {aim.limit} | {aim.shown.format(value)} | {met} | {part['load']} |")
    machine = results["machine"]
    where = f"{machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}, Python {machine['python']}"
    return "\n".join([*lines, "", f"Measured on {where}."])


def written(document: str, results: dict[str, Any]) -> str:
    """Return the document with the table in its place."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"
