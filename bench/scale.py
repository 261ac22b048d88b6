"""`python -m bench.scale`: does cost grow as the work grows? Each curve over three decades, on our server alone.

Takes about a quarter of an hour and 6 GB of disk for its largest folder; `--quick` leaves out the last decade.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import grow, machine, report
from bench.instruments import Failed, Http, Upstream, run_client
from bench.measure import Meter
from bench.native import SETTLED, in_sessions, paths, replayed, start_run, subscribers
from bench.plays import ENDLESS, MODELS, SIZES
from bench.targets import Holdfast

Point = dict[str, float]
SESSIONS = [100, 1_000, 10_000, 100_000]
SUBSCRIBERS = [1, 10, 100, 1_000]
TURNS = [10, 100, 1_000, 10_000]
CHATS = [1, 10, 100]
FEEDS = 50  # of one connection at most
CHUNKS_IN_ALL = 200_000
REPEATS = 15


def chunks(size: int, upstream: Upstream, asked: argparse.Namespace) -> Point:
    """Runs of so many chunks in stored sessions, one after the other, until there were enough.

    A stored run waits for its store. A detached run that is not stored waits for no reader: here the reader shares a
    core with the upstream, and would fall behind the events in memory.
    """
    target = Holdfast(upstream.port, MODELS)
    requests = max(1, CHUNKS_IN_ALL // size)
    try:
        run_client(target.port, streams=4, requests=50, model="flat:100")
        with in_sessions(target.port, requests) as where:
            load = {**where, "requests": requests, "model": f"flat:{size}", "expect": size, "ends": SETTLED}
            meter = Meter(target, upstream)
            seen = run_client(target.port, timeout=60, **load)
            cpu = meter.target_cpu()
        if seen["errors"]:
            raise Failed(f"not every chunk was read: {seen['error_kinds']}")
        return {"cpu_us_per_chunk": cpu / seen["chunks_all"] * 1e6, "ms_per_run": seen["answer_us"]["mean"] / 1e3}
    finally:
        target.stop()


def fan_out(size: int, upstream: Upstream, asked: argparse.Namespace) -> Point:
    """One run of 50 chunks a second with so many subscribers."""
    target = Holdfast(upstream.port, MODELS)
    try:
        run_client(target.port, streams=4, requests=50, model="flat:100")
        seen = subscribers(target, upstream, size, ENDLESS, asked.seconds)
        per_chunk = seen["cpu_us_per_delivery"] * size
        return {"cpu_us_per_chunk": per_chunk, "cpu_us_per_delivery": seen["cpu_us_per_delivery"]} | {
            name: seen[name] for name in ("latency_p50_us", "latency_p99_us", "errors")
        }
    finally:
        target.stop()


def log_length(size: int, upstream: Upstream, asked: argparse.Namespace) -> Point:
    """A reader joins the log of a run that has ended."""
    target = Holdfast(upstream.port, MODELS)
    try:
        seen = replayed(target, f"flat:{size}", size)
        return {"replay_ms": seen["replay_s"] * 1e3, "longest_stall_ms": seen["longest_stall_ms"]} | {
            "errors": seen["errors"]
        }
    finally:
        target.stop()


def turns(size: int, upstream: Upstream, asked: argparse.Namespace) -> Point:
    """A turn in a session of so many messages. The model gets all of them each time."""
    target = Holdfast(upstream.port, MODELS)
    http = Http(target.port)
    try:
        said = [{"role": ("user", "assistant")[n % 2], "content": f"{grow.COMMON} message {n}"} for n in range(size)]
        session = http.ask("POST", "/api/sessions/import", {"messages": said})["id"]
        _turn(http, session)
        meter = Meter(target, upstream)
        for _ in range(REPEATS):
            _turn(http, session)
        return {"cpu_ms_per_turn": meter.target_cpu() / REPEATS * 1e3}
    finally:
        http.close()
        target.stop()


def _turn(http: Http, session: str) -> None:
    run = http.ask("POST", f"/api/sessions/{session}/runs", {"input": "And then?", "model": "flat:8"})["id"]
    while http.ask("GET", f"/api/sessions?prefix={session}")["sessions"][0]["active_run"] == run:
        time.sleep(0.01)


def open_chats(size: int, upstream: Upstream, asked: argparse.Namespace) -> Point:
    """A page with so many chats open, in one of which a model answers."""
    target = Holdfast(upstream.port, MODELS)
    http = Http(target.port)
    try:
        run_client(target.port, streams=4, requests=50, model="flat:100")
        idle = [http.ask("POST", "/api/sessions", {"title": "idle"})["id"] for _ in range(size - 1)]
        run = start_run(http, ENDLESS)
        chats = [http.ask("GET", f"/api/runs/{run}")["session_id"], *idle]
        feeds = ["&session=".join(chats[first : first + FEEDS]) for first in range(0, size, FEEDS)]
        with paths([f"/api/events?session={feed}" for feed in feeds]) as file:
            meter = Meter(target, upstream)
            seen = run_client(target.port, get=True, paths=file, streams=len(feeds), warmup=1, for_=asked.seconds)
            cpu = meter.target_cpu()
        http.ask("POST", f"/api/runs/{run}/stop", {})
        return {"cpu_us_per_chunk": cpu / seen["chunks_all"] * 1e6, "latency_p50_us": seen["latency_us"]["p50"]}
    finally:
        http.close()
        target.stop()


# ---- stored sessions and messages ----


def stored(size: int, upstream: Upstream, asked: argparse.Namespace) -> Point:
    """A data folder with so many sessions of a hundred messages: what a person waits for."""
    data = asked.folder / "grown"
    grow.grow(data, size, said=lambda text: None)
    target = Holdfast.on(data)(upstream.port, MODELS)
    http = Http(target.port)
    try:
        point = {name: _median_ms(http, call, size) for name, call in CALLS.items()}
        return point | _start_runs(http, size) | {"server_start_ms": target.started_in * 1e3}
    finally:
        http.close()
        target.stop()


def _sessions(http: Http, query: str) -> list[Any]:
    found: list[Any] = http.ask("GET", f"/api/sessions?limit=50&{query}")["sessions"]
    if not found and "zzz" not in query:
        raise Failed(f"nothing was found by {query}")
    return found


def _open(http: Http, turn: int, size: int) -> None:
    session = http.ask("GET", f"/api/sessions/{grow.session_id(_some(turn, size))}")
    if len(session["messages"]) < grow.MESSAGES_EACH:
        raise Failed(f"a session was opened with {len(session['messages'])} messages")


def _some(turn: int, size: int) -> int:
    """Another session each time, all over the file."""
    return (turn * 7919) % size + 1


Call = Callable[[Http, int, int], Any]
CALLS: dict[str, Call] = {
    "list_ms": lambda http, turn, size: _sessions(http, ""),
    "list_further_ms": lambda http, turn, size: _sessions(http, f"before={grow.session_id(size // 2)}"),
    "search_rare_ms": lambda http, turn, size: _sessions(http, f"query={grow.rare_word(_some(turn, size), 7)}"),
    "search_common_ms": lambda http, turn, size: _sessions(http, f"query={grow.COMMON}"),
    "search_one_letter_ms": lambda http, turn, size: _sessions(http, "query=w"),
    "search_two_words_ms": lambda http, turn, size: _sessions(http, f"query={grow.COMMON}+w{turn + 1}"),
    "search_nothing_ms": lambda http, turn, size: _sessions(http, "query=zzz"),
    "open_ms": lambda http, turn, size: _open(http, turn, size),
    "list_runs_ms": lambda http, turn, size: http.ask("GET", "/api/runs?limit=50"),
    "list_failed_runs_ms": lambda http, turn, size: http.ask("GET", "/api/runs?limit=50&outcome=failed"),
}


def _median_ms(http: Http, call: Call, size: int) -> float:
    took = []
    for turn in range(REPEATS):
        begin = time.perf_counter()
        call(http, turn, size)
        took.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(took)


def _start_runs(http: Http, size: int) -> Point:
    """From sending a message to the answer that it runs, and to the run's end."""
    accepted, ended = [], []
    for turn in range(REPEATS):
        session = grow.session_id(_some(turn + 50, size))
        begin = time.perf_counter()
        run = http.ask("POST", f"/api/sessions/{session}/runs", {"input": f"Say item{turn}.", "model": "flat:8"})["id"]
        accepted.append((time.perf_counter() - begin) * 1e3)
        while http.ask("GET", f"/api/runs/{run}")["status"] != "settled":
            pass
        ended.append((time.perf_counter() - begin) * 1e3)
    return {"start_run_ms": statistics.median(accepted), "whole_run_ms": statistics.median(ended)}


Measure = Callable[[int, Upstream, argparse.Namespace], Point]

CURVES: dict[str, tuple[str, str, list[int], Measure]] = {
    "chunks": ("Chunks in a run", "chunks", SIZES, chunks),
    "subscribers": ("Subscribers of a run", "subscribers", SUBSCRIBERS, fan_out),
    "log": ("Replay of a log", "events", SIZES, log_length),
    "turns": ("Messages in a session", "messages", TURNS, turns),
    "open-chats": ("Chats that a page has open", "chats", CHATS, open_chats),
    "stored": ("Stored sessions of a hundred messages", "sessions", SESSIONS, stored),
}


def main() -> None:
    asked = _arguments()
    machine.allow_many_files()
    machine.pin_load()
    upstream, results = Upstream(), dict[str, Any]()
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=asked.folder) as folder:
            asked.folder = Path(folder)
            for name in asked.curves or CURVES:
                results[name] = _curve(name, upstream, asked)
    finally:
        upstream.stop()
        if results:
            print(f"results: {report.save({'kind': 'scale', 'curves': results}, asked.json, 'scale')}")


def _curve(name: str, upstream: Upstream, asked: argparse.Namespace) -> dict[str, Any]:
    title, unit, sizes, measure = CURVES[name]
    points = []
    for size in sizes[:-1] if asked.quick else sizes:
        try:
            point = measure(size, upstream, asked)
        except (Failed, OSError) as failure:
            print(f"{name} {size:,}: FAILED, {failure}", flush=True)
            break
        points.append({"size": size, **point})
        print(f"{name} {size:,}: " + ", ".join(f"{key} {value:,.2f}" for key, value in point.items()), flush=True)
    return {"title": title, "unit": unit, "points": points}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("curves", nargs="*", metavar="curve", help=f"one or more of {', '.join(CURVES)}")
    parser.add_argument("--quick", action="store_true", help="without the last decade")
    parser.add_argument("--seconds", type=float, default=4, help="measured time of each load (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where the grown data folder is made (default: a temporary one)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where the results go (default: bench/results/)")
    asked = parser.parse_args()
    if unknown := [name for name in asked.curves if name not in CURVES]:
        parser.error(f"no such curve: {', '.join(unknown)}")
    return asked


if __name__ == "__main__":
    main()
