"""What is measured: each scenario puts one load on one target and gives its figures."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import closes, machine, native, starting
from bench.instruments import Upstream
from bench.measure import Figures, metered
from bench.plays import ENDLESS, HEARTBEAT, MODELS, SHORT
from bench.targets import Target

__all__ = ["MODELS", "SCENARIOS", "Figures", "Scenario"]

IDLE_STREAMS = 5000


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    columns: tuple[str, ...]
    measure: Callable[[Target, Upstream, float], Figures]
    needs_native: bool = False
    needs_process: bool = False
    most_rounds: int = 9
    """What takes long and hardly varies is measured less often."""


# ---- streams ----


def ttft(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return streams(target, upstream, streams=1, model="flat:8", expect=8, warmup=0.3, for_=seconds)


def flat(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return streams(target, upstream, streams=16, model="flat:2000", expect=2000, warmup=0.5, for_=seconds)


def flat_short(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return streams(target, upstream, streams=16, model="flat:256", expect=256, warmup=0.5, for_=seconds)


def paced(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return streams(target, upstream, streams=200, model=ENDLESS, ramp=1, warmup=0.5, for_=seconds)


def paced_short(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Each stream that ends is followed by the next. They begin one after the other, and so they end."""
    return streams(target, upstream, streams=200, model=SHORT, expect=256, ramp=5, warmup=1, for_=seconds)


def paced_1000(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """The warm-up is long, since the last to begin waits for a busy core: the rate is that of all of them."""
    return streams(target, upstream, streams=1000, model=ENDLESS, ramp=2, warmup=3, for_=seconds)


def json_requests(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return streams(target, upstream, streams=4, model="json", json=True, expect=1, warmup=0.3, for_=seconds)


def streams(target: Target, upstream: Upstream, **load: Any) -> Figures:
    """Runs the client once."""
    return metered(target, upstream, lambda: target.load(**load))


# ---- memory ----


def idle(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Memory before and with thousands of open streams that say one token in five seconds."""
    assert target.pid
    upstream.reset()
    before = machine.memory(target.pid)
    with target.background(streams=IDLE_STREAMS, model=HEARTBEAT, ramp=10, for_=300) as load:
        upstream.wait_active(IDLE_STREAMS, 90)
        time.sleep(6)  # each stream has sent something
        cpu_before, start = target.cpu_seconds(), time.monotonic()
        time.sleep(max(5.0, seconds))
        busy = (target.cpu_seconds() - cpu_before) / (time.monotonic() - start)
        during, held = machine.memory(target.pid), upstream.stats()["active"]
        seen = load.end()
    return {
        "held": held,
        **during.figures(before, IDLE_STREAMS),
        "target_busy": busy,
        "errors": seen["errors"],
        "left_open": upstream.still_active(20),
    }


LATENCY = ("latency_p50_us", "added_p50_us", "latency_p99_us", "added_p99_us")
HEALTH = ("target_busy", "load_busy", "target_waited", "others_busy", "stolen", "errors", "left_open")
IDLE_HEALTH = ("target_busy", "errors", "left_open")
CLOSE = ("close_p50_ms", "close_p99_ms", "close_max_ms", "never_opened", "never_closed")

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
            "flat-short",
            "16 streams flat out, 256 chunks each",
            ("chunks_per_second", "of_direct", "of_nginx", "cpu_s_per_1m_chunks", *HEALTH),
            flat_short,
        ),
        Scenario(
            "paced",
            "200 streams x 50 chunks/s",
            ("chunks_per_second", *LATENCY, "ttft_p50_us", "cpu_s_per_1m_chunks", *HEALTH),
            paced,
        ),
        Scenario(
            "paced-short",
            "200 streams x 50 chunks/s, 256 chunks each",
            ("chunks_per_second", *LATENCY, "ttft_p50_us", "cpu_s_per_1m_chunks", *HEALTH),
            paced_short,
        ),
        Scenario(
            "paced-1000",
            "1,000 streams x 50 chunks/s",
            ("chunks_per_second", *LATENCY, "ttft_p50_us", "cpu_s_per_1m_chunks", *HEALTH),
            paced_1000,
        ),
        Scenario(
            "idle",
            f"{IDLE_STREAMS:,} open streams, one chunk in 5 s each: memory",
            (*("held", "rss_before_mb", "rss_mb", "kb_per_stream", "pss_kb_per_stream"), *IDLE_HEALTH),
            idle,
            needs_process=True,
            most_rounds=1,
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
            f"POST /api/runs/{{id}}/stop under {closes.LIVE_STREAMS:,} live streams: upstream closed after",
            (*CLOSE, "call_p50_ms", "call_p99_ms"),
            closes.stop,
            needs_native=True,
        ),
        Scenario(
            "leave",
            f"the client leaves mid-stream, under {closes.LIVE_STREAMS:,} live streams: upstream closed after",
            CLOSE,
            closes.leave,
            most_rounds=2,
        ),
        Scenario(
            "leave-silent",
            f"the client leaves a silent upstream, under {closes.LIVE_STREAMS:,} live streams: upstream closed after",
            CLOSE,
            closes.leave_silent,
            most_rounds=2,
        ),
        Scenario(
            "leave-mute",
            f"the client leaves before any answer, under {closes.LIVE_STREAMS:,} live streams: upstream closed after",
            CLOSE,
            closes.leave_mute,
            most_rounds=2,
        ),
        Scenario(
            "durable",
            "200 paced runs in stored sessions, seen is saved; 16 flat out; and 16 answers of 256 English words",
            (
                *("chunks_per_second", *LATENCY, "cpu_s_per_1m_chunks", "flat_chunks_per_second", "of_stateless"),
                *("text_chunks_per_second", "text_of_stateless"),
                *HEALTH,
            ),
            native.durable,
            needs_native=True,
        ),
        Scenario(
            "fan-out",
            f"one run, {native.SUBSCRIBERS:,} subscribers; what a further subscriber costs",
            (
                *("chunks_per_second", "latency_p50_us", "latency_p99_us", "cpu_us_per_delivery"),
                *("first_us", "next_us", "next_of_first", *IDLE_HEALTH),
            ),
            native.fan_out,
            needs_native=True,
        ),
        Scenario(
            "replay",
            f"a reader joins a log of {native.REPLAYED:,} events; others ask for /health meanwhile",
            ("replay_s", "events_per_second", "ping_p50_ms", "ping_p99_ms", "longest_stall_ms", "errors"),
            native.replay,
            needs_native=True,
            most_rounds=1,
        ),
        Scenario(
            "start",
            "from the command to the first answer, and what is there then",
            ("cold_start_s", "warm_start_s", "rss_mb", "modules", "packages"),
            starting.start,
            needs_native=True,
        ),
    )
}
