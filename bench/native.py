"""Loads on our own API: runs in stored sessions, many subscribers of one run, and the replay of a long log."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.instruments import Failed, Http, Upstream, background, run_client
from bench.measure import Figures, Meter, metered, of_client, refuse_nothing
from bench.plays import ENDLESS, LONG, QUICK, WORDS
from bench.targets import Target

SETTLED = "run.settled"
EVENTS = "Accept: text/event-stream"
ASK = '{"input":"Say something. marker=%MARKER%","model":"%MODEL%"}'
TEXT: dict[str, Any] = {"streams": 16, "model": WORDS, "expect": 256, "warmup": 0.5}
FLAT: dict[str, Any] = {"streams": 16, "model": "flat:2000", "expect": 2000, "warmup": 0.5}
PACED: dict[str, Any] = {"streams": 200, "model": ENDLESS, "ramp": 1, "warmup": 0.5}
SUBSCRIBERS = 1000
REPLAYED = 1_000_000


def start_run(http: Http, model: str, marker: str = "run") -> str:
    """The id of a detached run in a session of its own."""
    session = http.ask("POST", "/api/sessions", {})["id"]
    asked = {"input": f"Say something. marker={marker}", "model": model}
    return str(http.ask("POST", f"/api/sessions/{session}/runs", asked)["id"])


@contextmanager
def paths(lines: list[str]) -> Iterator[str]:
    """A file that tells the load client where each request goes."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        file = Path(folder) / "paths"
        file.write_text("\n".join(lines) + "\n")
        yield str(file)


# ---- stored sessions ----


def durable(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Runs that are saved before they are shown, next to the same load on runs that are not stored."""
    flat, of_stateless = _flat(target, FLAT, 800, seconds)
    text, text_of_stateless = _flat(target, TEXT, 5000, seconds)
    with in_sessions(target.port, PACED["streams"]) as where:
        paced = metered(
            target,
            upstream,
            lambda: run_client(target.port, **where, **PACED, for_=seconds),
            lambda: stop_all(target.port),
        )
    direct = run_client(upstream.port, **PACED, for_=seconds)
    return {
        **paced,
        "flat_chunks_per_second": flat["chunks_per_second"],
        "of_stateless": of_stateless,
        "text_chunks_per_second": text["chunks_per_second"],
        "text_of_stateless": text_of_stateless,
        "added_p50_us": paced["latency_p50_us"] - direct["latency_us"]["p50"],
        "added_p99_us": paced["latency_p99_us"] - direct["latency_us"]["p99"],
        "errors": flat["errors"] + text["errors"] + paced["errors"],
    }


def _flat(target: Target, load: dict[str, Any], sessions: int, seconds: float) -> tuple[dict[str, Any], float]:
    """What the clients of stored runs have seen, and their throughput as a share of that without a store.

    There are as many sessions as runs, or the later runs would have a history that the others do not have.
    """
    stateless = run_client(target.port, **load, for_=seconds)
    with in_sessions(target.port, sessions) as where:
        stored = run_client(target.port, **where, **load, ends=SETTLED, for_=seconds)
    refuse_nothing(stored)
    return stored, stored["chunks_per_second"] / stateless["chunks_per_second"]


@contextmanager
def in_sessions(port: int, sessions: int) -> Iterator[dict[str, Any]]:
    """What makes each request of a load start a run in a session of its own and read its events."""
    http = Http(port)
    ids = [http.ask("POST", "/api/sessions", {})["id"] for _ in range(sessions)]
    http.close()
    with paths([f"/api/sessions/{each}/runs" for each in ids]) as file:
        yield {"paths": file, "body": ASK, "header": EVENTS}


def stop_all(port: int) -> None:
    """Detached runs go on when their client has left, as they should: they are stopped, and none may stay."""
    http = Http(port)
    while runs := [run["id"] for run in http.ask("GET", "/api/runs?status=running&limit=200")["runs"]]:
        for run in runs:
            http.ask("POST", f"/api/runs/{run}/stop", {})
    http.close()


# ---- many subscribers ----


def fan_out(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """One run and many subscribers; then what the second costs, from eleven of them and one."""
    figures = subscribers(target, upstream, SUBSCRIBERS, ENDLESS, seconds)
    alone = subscribers(target, upstream, 1, QUICK, seconds)
    eleven = subscribers(target, upstream, 11, QUICK, seconds)
    per_run = {1: alone["cpu_us_per_delivery"], 11: eleven["cpu_us_per_delivery"] * 11}
    return figures | {
        "first_us": per_run[1],
        "next_us": (per_run[11] - per_run[1]) / 10,
        "next_of_first": (per_run[11] - per_run[1]) / 10 / per_run[1],
    }


def subscribers(target: Target, upstream: Upstream, count: int, model: str, seconds: float) -> Figures:
    """CPU for each chunk that is delivered to one of the subscribers of one run, the run's own work included."""
    http = Http(target.port)
    upstream.reset()
    run = start_run(http, model)
    meter, path = Meter(target, upstream), f"/api/runs/{run}/events"
    seen = run_client(target.port, get=True, path=path, streams=count, ramp=count / 1000, warmup=1, for_=seconds)
    cpu, busy = meter.target_cpu(), meter.figures(seen["cpu_seconds"])
    http.ask("POST", f"/api/runs/{run}/stop", {})
    http.close()
    refuse_nothing(seen)
    return {
        "subscribers": count,
        **of_client(seen),
        "cpu_us_per_delivery": cpu / seen["chunks_all"] * 1e6,
        **busy,
        "left_open": upstream.still_active(),
    }


# ---- replay ----


def replay(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """A reader joins the log of a million events that has ended, while another client asks for /health all the time."""
    return replayed(target, LONG, REPLAYED)


def replayed(target: Target, model: str, events: int) -> Figures:
    """The time that a log takes to be read again from its start, and the longest that others had to wait meanwhile."""
    http = Http(target.port)
    run = start_run(http, model)
    made = _until_settled(http, run, events)
    http.close()
    with background(target.port, get=True, path="/health", streams=1, think=1, prompt=True, for_=300) as pings:
        time.sleep(0.2)
        begin = time.monotonic()
        seen = run_client(
            target.port, get=True, path=f"/api/runs/{run}/events", requests=1, ends=SETTLED, expect=events, timeout=60
        )
        took = time.monotonic() - begin
        waits = pings.end()["answer_us"]
    return {
        "events": events,
        "replay_s": took,
        "events_per_second": events / took,
        "made_in_s": made,
        "ping_p50_ms": waits["p50"] / 1e3,
        "ping_p99_ms": waits["p99"] / 1e3,
        "longest_stall_ms": waits["max"] / 1e3,
        "errors": seen["errors"],
    }


def _until_settled(http: Http, run: str, events: int) -> float:
    """Waits for a run to end by a look at the list of sessions, which says so without the run's text."""
    begin = time.monotonic()
    while time.monotonic() < begin + 30 + events / 5000:
        if all(each["active_run"] != run for each in http.ask("GET", "/api/sessions?limit=50")["sessions"]):
            return time.monotonic() - begin
        time.sleep(0.1)
    raise Failed("the run that should be replayed did not end")
