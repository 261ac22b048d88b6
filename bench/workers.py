"""`python -m bench.workers`: what do two workers on one data folder make of two cores?

One process, beside two workers on one folder (`--workers 2`), and beside two processes with a port and a folder each:
the most that the workers could reach. No process has a core of its own here, the load's neither, so that a second
server takes what there really is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import commits, machine, native, report
from bench.__main__ import measure
from bench.instruments import Http, Upstream, run_client
from bench.measure import Figures, metered
from bench.scenarios import LATENCY, Scenario, streams
from bench.targets import Direct, Holdfast, Target

CLIENTS = 2
"""Load clients at the same time, each with its share of the streams: one for each process, or both for the one."""


class Shared(Target):
    """A target whose load comes from two clients."""

    @property
    def ports(self) -> list[int]:
        """Where each client goes."""
        return [self.port] * CLIENTS

    def load(self, **options: Any) -> dict[str, Any]:
        return self.loads([options] * CLIENTS)

    def stop_all(self) -> None:
        for port in set(self.ports):
            native.stop_all(port)

    def loads(self, options: list[dict[str, Any]]) -> dict[str, Any]:
        """Runs the clients at the same time; `streams` and `requests` of each are those of all."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            ran = [pool.submit(_client, port, each) for port, each in zip(self.ports, options, strict=True)]
            return together([each.result() for each in ran])


def _client(port: int, options: dict[str, Any]) -> dict[str, Any]:
    shares = {name: options[name] // CLIENTS for name in ("streams", "requests") if name in options}
    return run_client(port, **options | shares)


def together(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates and counts are added; of latencies the mean of the medians is taken, and the worst of the rest."""
    added = ("chunks", "chunks_all", "chunks_per_second", "requests", "requests_per_second", "errors", "cpu_seconds")
    whole: dict[str, Any] = {name: sum(each[name] for each in seen) for name in added}
    for name in ("latency_us", "ttft_us"):
        middle = sum(each[name]["p50"] for each in seen) / len(seen)
        whole[name] = {"p50": middle} | {share: max(each[name][share] for each in seen) for share in ("p99", "max")}
    return whole | {"error_kinds": [each["error_kinds"] for each in seen]}


class Line(Shared, Direct):
    """No server, for what the others add."""


class One(Shared, Holdfast):
    """One process on one data folder."""

    name = "one process"


class Crew(Shared, Holdfast):
    """Two workers on one data folder: both clients go to the one port that they share."""

    name = "two workers"

    def command(self) -> list[str]:
        return [*super().command(), "--workers", "2"]

    def ready(self) -> bool:
        """Whether both of them take requests by now."""
        if not super().ready():
            return False
        http = Http(self.port)
        try:
            return bool(http.ask("GET", "/ready").get("workers") == 2)
        finally:
            http.close()


class Two(Shared, Holdfast):
    """Two processes, each with a port and a data folder of its own; this one starts the other."""

    name = "two processes"

    def __init__(self, upstream_port: int, models: list[str]) -> None:
        self._other = Holdfast(upstream_port, models)
        super().__init__(upstream_port, models)

    @property
    def ports(self) -> list[int]:
        return [self.port, self._other.port]

    @property
    def pids(self) -> list[int]:
        return super().pids + self._other.pids

    def stop(self) -> None:
        self._other.stop()
        super().stop()


# ---- scenarios ----


def stateless(**load: Any) -> Callable[[Target, Upstream, float], Figures]:
    """A load of chat completions, which nobody keeps."""

    def measured(target: Target, upstream: Upstream, seconds: float) -> Figures:
        return _noted(target, streams(target, upstream, **load, for_=seconds))

    return measured


def stored(sessions: int, ends: dict[str, str], **load: Any) -> Callable[[Target, Upstream, float], Figures]:
    """A load of runs in stored sessions; the direct line has none, and gets the same load without them."""

    def measured(target: Target, upstream: Upstream, seconds: float) -> Figures:
        assert isinstance(target, Shared)
        if not target.native:
            return streams(target, upstream, **load, for_=seconds)
        with ExitStack() as files:
            places = [files.enter_context(native.in_sessions(port, sessions // CLIENTS)) for port in target.ports]
            options = [load | ends | place | {"for_": seconds} for place in places]
            seen = metered(target, upstream, lambda: target.loads(options), target.stop_all)
            return _noted(target, seen)

    return measured


def _noted(target: Target, figures: Figures) -> Figures:
    """With the memory of all processes. That one waits for a core is what two cores for all of them mean."""
    figures["rss_mb"] = sum(machine.memory(pid).rss_kb for pid in target.pids) / 1024
    del figures["target_waited"]
    return figures


FIGURES = ("chunks_per_second", "requests_per_second", *LATENCY, "cpu_s_per_1m_chunks", "cpu_us_per_request", "rss_mb")
HEALTH = ("target_busy", "load_busy", "others_busy", "stolen", "errors", "left_open")

WORKERS: dict[str, Scenario] = {
    name: Scenario(name, title, (*FIGURES, *HEALTH), measured)
    for name, title, measured in (
        ("flat", "16 streams flat out", stateless(**native.FLAT)),
        (
            "json",
            "requests without a stream, 8 connections",
            stateless(streams=8, model="json", json=True, expect=1, warmup=0.3),
        ),
        ("paced", "200 streams x 50 chunks/s", stateless(**native.PACED)),
        ("paced-1000", "1,000 streams x 50 chunks/s", stateless(**native.PACED | {"streams": 1000, "ramp": 2})),
        ("stored", "16 runs flat out in stored sessions", stored(800, {"ends": native.SETTLED}, **native.FLAT)),
        ("stored-paced", "200 runs x 50 chunks/s in stored sessions", stored(200, {}, **native.PACED)),
    )
}


def main() -> None:
    asked = _arguments()
    machine.allow_many_files()
    machine.share_cores()
    results: dict[str, Any] = {"kind": "workers", "seconds": asked.seconds, "rounds": asked.rounds, "scenarios": {}}
    upstream = Upstream()
    try:
        for name in asked.scenarios or WORKERS:
            seen = measure(WORKERS[name], [Line, One, Crew, Two], upstream, asked.seconds, asked.rounds)
            results["scenarios"][name] = seen
        results["commits"] = commits.measure(asked.seconds)
        print(commit_table(results["commits"]))
    finally:
        upstream.stop()
        if results["scenarios"]:
            print(f"results: {report.save(results, asked.json, 'workers')}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"one or more of {', '.join(WORKERS)}")
    parser.add_argument("--seconds", type=float, default=3, help="measured time of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="times each is measured (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where the results go (default: bench/results/)")
    asked = parser.parse_args()
    if unknown := [name for name in asked.scenarios if name not in WORKERS]:
        parser.error(f"no such scenario: {', '.join(unknown)}")
    return asked


# ---- tables ----

ROWS: list[tuple[str, str, str]] = [
    ("16 streams flat out: chunks/s", "flat", "chunks_per_second"),
    ("... CPU s for 1M chunks", "flat", "cpu_s_per_1m_chunks"),
    ("requests without a stream, 8 connections: /s", "json", "requests_per_second"),
    ("... CPU µs for each", "json", "cpu_us_per_request"),
    ("200 streams x 50/s: added latency p50, µs", "paced", "added_p50_us"),
    ("... p99, µs", "paced", "added_p99_us"),
    ("... CPU s for 1M chunks", "paced", "cpu_s_per_1m_chunks"),
    ("1,000 streams x 50/s: chunks/s", "paced-1000", "chunks_per_second"),
    ("... added latency p50, µs", "paced-1000", "added_p50_us"),
    ("16 runs flat out in stored sessions: chunks/s", "stored", "chunks_per_second"),
    ("... CPU s for 1M chunks", "stored", "cpu_s_per_1m_chunks"),
    ("200 runs x 50/s in stored sessions: added latency p50, µs", "stored-paced", "added_p50_us"),
    ("... p99, µs", "stored-paced", "added_p99_us"),
    ("... CPU s for 1M chunks", "stored-paced", "cpu_s_per_1m_chunks"),
    ("... memory of all processes, MB", "stored-paced", "rss_mb"),
]


RATIOS = {Crew.name: "workers to one", Two.name: "two to one"}
"""What stands beside one process, and what its ratio to that is called."""

COMMITS = (
    *("rows_per_second", "commits_per_second", "commit_p50_ms", "commit_p99_ms", "commit_max_ms"),
    *("stalled_over_50_ms", "refused", "cpu_us_per_row"),
)


def table(results: dict[str, Any]) -> str:
    """One process beside two in Markdown, with what the second changes, and what went wrong."""
    medians = {name: measured["median"] for name, measured in results["scenarios"].items()}
    known = {target for median in medians.values() for target in median}
    others = [name for name in RATIOS if name in known or name == Two.name]
    rows = [[title, *_cells(medians.get(name, {}), figure, others)] for title, name, figure in ROWS]
    doubts = [
        f"{target}, {name}: {doubt}.\n"
        for name, measured in results["scenarios"].items()
        for target in (One.name, *others)
        for doubt in _doubts(target, measured)
    ]
    return "\n".join([report.markdown(["", One.name, *others, *(RATIOS[name] for name in others)], rows), *doubts])


def _cells(median: dict[str, Figures], figure: str, others: list[str]) -> list[str]:
    one, *more = (median.get(target, {}).get(figure) for target in (One.name, *others))
    return [report.number(figure, value) for value in (one, *more)] + [_ratio(one, value) for value in more]


def _ratio(one: float | None, other: float | None) -> str:
    return f"{other / one:.2f}x" if one and other and min(one, other) > 0 else "-"


def _doubts(target: str, measured: dict[str, Any]) -> list[str]:
    if target not in measured["failures"] and target not in measured["median"]:
        return []  # measured before there was such a target
    if target in measured["failures"]:
        return [f"failed, {measured['failures'][target].splitlines()[0]}"]
    figures = measured["median"][target]
    wrong = [f"{figures[name]:.0f} {report.words(name)}" for name in ("errors", "left_open") if figures[name]]
    return [*wrong, *report.doubts(target, figures)]


def commit_table(found: dict[str, Figures]) -> str:
    """A column for each layout of writers and files."""
    rows = [
        [report.words(name), *(report.number(name, figures[name]) for figures in found.values())] for name in COMMITS
    ]
    return report.markdown(["", *found], rows)


if __name__ == "__main__":
    main()
