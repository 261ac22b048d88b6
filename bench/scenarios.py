"""What is measured: each scenario puts one load on one target and gives its figures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench import machine
from bench.instruments import Failed, Http, Upstream
from bench.targets import Target

Figures = dict[str, float]

ENDLESS = "paced:1000000:50"
HEARTBEAT = "idle:1000000:1000"
MODELS = ["bench", "flat:8", "flat:100", "flat:2000", ENDLESS, HEARTBEAT, "json", "silent", "mute"]

IDLE_STREAMS = 1000
LIVE_STREAMS = 200
CLOSES = 200


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    columns: tuple[str, ...]
    measure: Callable[[Target, Upstream, float], Figures]
    needs_native: bool = False
    needs_process: bool = False


# ---- streams ----


def ttft(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return _streams(target, upstream, streams=1, model="flat:8", expect=8, warmup=0.3, for_=seconds)


def flat(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return _streams(target, upstream, streams=16, model="flat:2000", expect=2000, warmup=0.5, for_=seconds)


def paced(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return _streams(target, upstream, streams=200, model=ENDLESS, ramp=1, warmup=0.5, for_=seconds)


def paced_1000(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return _streams(target, upstream, streams=1000, model=ENDLESS, ramp=2, warmup=1, for_=seconds)


def json_requests(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return _streams(target, upstream, streams=4, model="json", json=True, expect=1, warmup=0.3, for_=seconds)


def _streams(target: Target, upstream: Upstream, **load: Any) -> Figures:
    """Runs the client once. CPU is counted from its start to its end, and so are the chunks it is divided by."""
    upstream.reset()
    before = _clocks(target, upstream)
    seen = target.load(**load)
    wall, target_cpu, upstream_cpu, target_core, load_core = (
        after - at for after, at in zip(_clocks(target, upstream), before, strict=True)
    )
    others = target_core + load_core - target_cpu - upstream_cpu - seen["cpu_seconds"]
    late = upstream.stats()["late_mean_us"]
    if not seen["chunks"]:
        raise Failed(f"not one chunk in time: {seen['error_kinds']} {seen.get('first_error', '')}")
    return {
        "chunks_per_second": seen["chunks_per_second"],
        "requests_per_second": seen["requests_per_second"],
        "latency_p50_us": seen["latency_us"]["p50"],
        "latency_p99_us": seen["latency_us"]["p99"],
        "latency_max_us": seen["latency_us"]["max"],
        "ttft_p50_us": seen["ttft_us"]["p50"],
        "ttft_p99_us": seen["ttft_us"]["p99"],
        "ttft_max_us": seen["ttft_us"]["max"],
        "cpu_s_per_1m_chunks": target_cpu / seen["chunks_all"] * 1e6,
        "cpu_us_per_request": target_cpu / max(1, seen["requests"]) * 1e6,
        "target_busy": target_cpu / wall,
        "load_busy": (upstream_cpu + seen["cpu_seconds"]) / wall,
        "others_busy": max(0.0, others / wall),
        "upstream_late_mean_us": late,
        "errors": seen["errors"],
        "left_open": upstream.still_active(),
    }


def _clocks(target: Target, upstream: Upstream) -> tuple[float, ...]:
    cores = (machine.busy_seconds(machine.TARGET_CORE), machine.busy_seconds(machine.LOAD_CORE))
    return time.monotonic(), target.cpu_seconds(), upstream.cpu_seconds(), *cores


# ---- memory ----


def idle(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Memory before and with many open streams that say one token a second."""
    assert target.pid
    before = machine.memory(target.pid)
    with target.background(streams=IDLE_STREAMS, model=HEARTBEAT, ramp=1, for_=120):
        upstream.wait_active(IDLE_STREAMS, 60)
        time.sleep(max(2.0, seconds))
        cpu_before, start = target.cpu_seconds(), time.monotonic()
        during = machine.memory(target.pid)
        time.sleep(1)
        busy = (target.cpu_seconds() - cpu_before) / (time.monotonic() - start)
    return {
        "rss_before_mb": before.rss_kb / 1024,
        "rss_mb": during.rss_kb / 1024,
        "kb_per_stream": (during.rss_kb - before.rss_kb) / IDLE_STREAMS,
        "pss_kb_per_stream": (during.pss_kb - before.pss_kb) / IDLE_STREAMS,
        "target_busy": busy,
    }


# ---- closes ----


def stop(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Runs started and stopped by name while others stream: from the call to the upstream's sight of the close."""
    http, stopped, calls = Http(target.port), dict[str, int](), list[float]()
    with _live_streams(target, upstream):
        for group in range(CLOSES // 50):
            runs = {f"stop-{group}-{n}": _start_run(http, f"stop-{group}-{n}") for n in range(50)}
            upstream.wait_active(LIVE_STREAMS + len(runs))
            for marker, run in runs.items():
                stopped[marker] = time.monotonic_ns()
                http.ask("POST", f"/api/runs/{run}/stop", {})
                calls.append((time.monotonic_ns() - stopped[marker]) / 1e6)
                time.sleep(0.007)  # so that stops fall anywhere between two tokens
        figures = _closes(upstream, stopped)
    http.close()
    return figures | {"call_p50_ms": _percentile(calls, 0.5), "call_p99_ms": _percentile(calls, 0.99)}


def leave(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Clients of /v1/chat/completions that go while tokens come."""
    return _leave(target, upstream, "streaming", model=ENDLESS, leave_after=5)


def leave_silent(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Clients that go while the upstream has sent its headers and says nothing."""
    return _leave(target, upstream, "silent", model="silent", leave_ms=150)


def leave_mute(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Clients that go while the upstream has not answered at all."""
    return _leave(target, upstream, "mute", model="mute", leave_ms=150)


def _leave(target: Target, upstream: Upstream, marker: str, **how: Any) -> Figures:
    with _live_streams(target, upstream):
        seen = target.load(streams=20, requests=CLOSES, ramp=0.2, think=37, marker=marker, **how)
        return _closes(upstream, {left["marker"]: left["at"] for left in seen["leaves"]})


@contextmanager
def _live_streams(target: Target, upstream: Upstream) -> Iterator[None]:
    """Holds the load that closes are measured under, from the moment all of it has reached the upstream."""
    with target.background(streams=LIVE_STREAMS, model=ENDLESS, ramp=0.5, marker="live", for_=120):
        upstream.wait_active(LIVE_STREAMS)
        yield


def _start_run(http: Http, marker: str) -> str:
    session = http.ask("POST", "/api/sessions", {})["id"]
    asked = {"input": f"Say something. marker={marker}", "model": ENDLESS}
    return str(http.ask("POST", f"/api/sessions/{session}/runs", asked)["id"])


def _closes(upstream: Upstream, ended: dict[str, int]) -> Figures:
    if not ended:
        raise Failed("nobody left")
    seen = upstream.wait_closes(set(ended))
    delays = [(at - ended[marker]) / 1e6 for marker, at in seen.items()]
    return {
        "close_p50_ms": _percentile(delays, 0.5),
        "close_p99_ms": _percentile(delays, 0.99),
        "close_max_ms": max(delays, default=float("nan")),
        "closed": len(delays),
        "never_closed": len(ended) - len(delays),
    }


def _percentile(values: list[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("nan")


LATENCY = ("latency_p50_us", "added_p50_us", "latency_p99_us", "added_p99_us")
HEALTH = ("target_busy", "load_busy", "others_busy", "errors", "left_open")
CLOSE = ("close_p50_ms", "close_p99_ms", "close_max_ms", "never_closed")

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "ttft",
            "one stream at a time: time to the first token",
            ("ttft_p50_us", "added_ttft_p50_us", "ttft_p99_us", "ttft_max_us", "requests_per_second", *HEALTH),
            ttft,
        ),
        Scenario(
            "flat",
            "16 streams flat out, 2,000 chunks each",
            ("chunks_per_second", "of_direct", "of_nginx", "cpu_s_per_1m_chunks", *HEALTH),
            flat,
        ),
        Scenario(
            "paced",
            "200 streams x 50 chunks/s",
            ("chunks_per_second", *LATENCY, "ttft_p50_us", "cpu_s_per_1m_chunks", *HEALTH),
            paced,
        ),
        Scenario(
            "paced-1000",
            "1,000 streams x 50 chunks/s",
            ("chunks_per_second", *LATENCY, "ttft_p50_us", "cpu_s_per_1m_chunks", *HEALTH),
            paced_1000,
        ),
        Scenario(
            "idle",
            f"{IDLE_STREAMS:,} open streams, one chunk a second each: memory",
            ("rss_before_mb", "rss_mb", "kb_per_stream", "pss_kb_per_stream", "target_busy"),
            idle,
            needs_process=True,
        ),
        Scenario(
            "json",
            "requests without a stream, 4 connections",
            (
                "requests_per_second",
                "of_direct",
                "of_nginx",
                "ttft_p50_us",
                "ttft_p99_us",
                "cpu_us_per_request",
                *HEALTH,
            ),
            json_requests,
        ),
        Scenario(
            "stop",
            f"POST /api/runs/{{id}}/stop under {LIVE_STREAMS} live streams: upstream closed after",
            (*CLOSE, "call_p50_ms", "call_p99_ms"),
            stop,
            needs_native=True,
        ),
        Scenario(
            "leave",
            f"the client leaves mid-stream, under {LIVE_STREAMS} live streams: upstream closed after",
            CLOSE,
            leave,
        ),
        Scenario(
            "leave-silent",
            f"the client leaves a silent upstream, under {LIVE_STREAMS} live streams: upstream closed after",
            CLOSE,
            leave_silent,
        ),
        Scenario(
            "leave-mute",
            f"the client leaves before the upstream answers, under {LIVE_STREAMS} live streams: upstream closed after",
            CLOSE,
            leave_mute,
        ),
    )
}
