"""How soon an upstream is closed after its run was stopped by name, or its client has left."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.instruments import Failed, Http, Upstream
from bench.measure import Figures, percentile
from bench.native import start_run
from bench.plays import ENDLESS, LIVELY
from bench.targets import Target

LIVE_STREAMS = 1000
CLOSES = 200
_GROUP = 50

serial = itertools.count(1)
"""No marker is used twice: a close that was seen in an earlier measurement would be taken for one of this."""


def stop(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Runs started and stopped by name while others stream: from the call to the upstream's sight of the close."""
    http, stopped, calls = Http(target.port), dict[str, int](), list[float]()
    upstream.reset()
    with _live_streams(target, upstream):
        for _ in range(CLOSES // _GROUP):
            runs = {(marker := f"stop-{next(serial)}"): start_run(http, ENDLESS, marker) for _ in range(_GROUP)}
            upstream.wait_active(LIVE_STREAMS + len(runs), 60)
            for marker, run in runs.items():
                stopped[marker] = time.monotonic_ns()
                http.ask("POST", f"/api/runs/{run}/stop", {})
                calls.append((time.monotonic_ns() - stopped[marker]) / 1e6)
                time.sleep(0.007)  # so that stops fall anywhere between two tokens
        figures = figures_of(upstream, stopped)
    http.close()
    return figures | {"call_p50_ms": percentile(calls, 0.5), "call_p99_ms": percentile(calls, 0.99)}


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
    upstream.reset()
    with _live_streams(target, upstream) as live:
        seen = target.load(streams=20, requests=CLOSES, ramp=0.2, think=37, marker=f"{marker}-{next(serial)}", **how)
        opened = upstream.stats()["requests"] - live
        return figures_of(upstream, {left["marker"]: left["at"] for left in seen["leaves"]}, opened)


@contextmanager
def _live_streams(target: Target, upstream: Upstream) -> Iterator[int]:
    """Holds the load that closes are measured under, from the moment all of it has reached the upstream."""
    with target.background(streams=LIVE_STREAMS, model=LIVELY, ramp=2, marker="live", for_=300):
        upstream.wait_active(LIVE_STREAMS, 60)
        yield LIVE_STREAMS


def figures_of(upstream: Upstream, ended: dict[str, int], opened: int | None = None) -> Figures:
    """How long after each marked moment the upstream has seen its connection end.

    A busy target may not have asked the upstream yet when the client leaves: only so many were `opened`.
    """
    if not ended:
        raise Failed("no client left")
    seen = upstream.wait_closes(set(ended))
    delays = [(at - ended[marker]) / 1e6 for marker, at in seen.items()]
    if any(delay < 0 for delay in delays):
        raise Failed("the instruments are wrong: an upstream was closed before its client left")
    return {
        "close_p50_ms": percentile(delays, 0.5),
        "close_p99_ms": percentile(delays, 0.99),
        "close_max_ms": max(delays, default=float("nan")),
        "closed": len(delays),
        "never_opened": 0 if opened is None else len(ended) - opened,
        "never_closed": (len(ended) if opened is None else opened) - len(delays),
    }
