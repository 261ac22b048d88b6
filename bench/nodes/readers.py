"""Readers at the owner of a run and at another node, and stops through another node."""

import asyncio
import contextlib
import re
import statistics
import tempfile
import time
from pathlib import Path

from bench.nodes.servers import Cluster, cluster
from bench.plays import ENDLESS, LIVELY
from tests.support.http import Response
from tests.support.native import Native

READERS, SECONDS = 20, 8.0
STOPS, LIVE = 100, 100
SENT_AT = re.compile(r"T(\d{9,})")

Figures = dict[str, float]


async def measure() -> Figures:
    """Return latencies of readers, and the time from a stop to the close of its upstream."""
    with tempfile.TemporaryDirectory(prefix="hfbench") as folder:
        async with cluster(Path(folder), 2, [ENDLESS, LIVELY]) as nodes:
            async with nodes.servers[0].client() as first, nodes.servers[1].client() as second:
                owner, other = Native(first), Native(second)
                return await _latencies(owner, other) | await _stops(nodes, owner, other)


async def _latencies(owner: Native, other: Native) -> Figures:
    """Read the same runs at both nodes: what disturbs one reader disturbs the other."""
    runs = [await owner.start(await owner.new_session(), "hello", f"up/{ENDLESS}") for _ in range(READERS)]
    local: list[float] = []
    remote: list[float] = []
    reading = [asyncio.create_task(_read(await owner.events(run), local)) for run in runs]
    reading += [asyncio.create_task(_read(await other.events(run), remote)) for run in runs]
    await asyncio.sleep(SECONDS)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    for run in runs:
        await owner.stop(run)
    found: Figures = {}
    for name, seen in (("local", local[len(local) // 4 :]), ("remote", remote[len(remote) // 4 :])):
        found |= {f"{name}_p50_ms": statistics.median(seen), f"{name}_p99_ms": statistics.quantiles(seen, n=100)[98]}
    return found | {"remote_of_local": found["remote_p50_ms"] / found["local_p50_ms"]}


async def _read(reader: Response, latencies: list[float]) -> None:
    async for frame in reader.events(comments=False):
        if (sent := SENT_AT.search(frame.data)) is not None:
            latencies.append((time.monotonic_ns() - int(sent[1])) / 1e6)


async def _stops(nodes: Cluster, owner: Native, other: Native) -> Figures:
    """Stop runs through the node that does not own them, one at a time, beside others that go on."""
    live = [await owner.start(await owner.new_session(), "hello", f"up/{LIVELY}") for _ in range(LIVE)]
    asked: dict[str, int] = {}
    answered: list[float] = []
    await asyncio.to_thread(nodes.upstream.reset)
    for n in range(STOPS):
        run = await owner.start(await owner.new_session(), f"marker=stop{n}", f"up/{LIVELY}")
        await owner.shown(run, "T")
        began = asked[f"stop{n}"] = time.monotonic_ns()
        await other.stop(run)
        answered.append((time.monotonic_ns() - began) / 1e6)
    closed = await asyncio.to_thread(nodes.upstream.wait_closes, set(asked))
    times = [(closed[marker] - at) / 1e6 for marker, at in asked.items() if marker in closed]
    for run in live:
        with contextlib.suppress(AssertionError):
            await owner.stop(run)
    cuts = statistics.quantiles(times, n=100)
    return {
        "stop_close_p50_ms": statistics.median(times),
        "stop_close_p99_ms": cuts[98],
        "stop_answer_p50_ms": statistics.median(answered),
        "stop_never_closed": float(len(asked) - len(times)),
    }
