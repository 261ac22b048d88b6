"""What becomes of runs when a node or PostgreSQL ends, and what an idle cluster costs."""

import asyncio
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench import machine
from bench.nodes.servers import Cluster, cluster
from tests.support.http import Client, Response
from tests.support.native import Native
from tests.support.server import Server

KILLS, RUNS_KILLED = 4, 10
OUTAGE, RUNS_IN_OUTAGE = 30.0, 60
STREAMS = 300
IDLE_NODES, IDLE_SECONDS = 10, 20.0
LOST = (OSError, TimeoutError)

Figures = dict[str, float]


async def takeover() -> Figures:
    """`kill -9` of the owner of some runs: how long until readers elsewhere get their end?"""
    times: list[float] = []
    model = "paced:1000000:5"
    with tempfile.TemporaryDirectory(prefix="hfbench") as folder:
        async with cluster(Path(folder), 3, [model]) as nodes:
            for n in range(KILLS):
                victim, witness = nodes.servers[n % 3], nodes.servers[(n + 1) % 3]
                async with victim.client() as first, witness.client() as second:
                    times += await _taken_over(victim, Native(first), Native(second), f"up/{model}")
                await victim.restart()
    return {"takeover_p50_s": statistics.median(times), "takeover_max_s": max(times), "takeovers": len(times)}


async def _taken_over(victim: Server, owner: Native, other: Native, model: str) -> list[float]:
    runs = [await owner.start(await owner.new_session(), "hello", model) for _ in range(RUNS_KILLED)]
    readers = [await other.shown(run, "T") for run in runs]
    await victim.kill9()
    began = time.monotonic()

    async def end_of(reader: Response) -> float:
        events = await reader.all_events()
        assert "run.settled" == events[-1].event
        return time.monotonic() - began

    return await asyncio.gather(*(end_of(reader) for reader in readers))


async def outage() -> Figures:
    """PostgreSQL is away for half a minute under five nodes. No run may be taken from a living node."""
    model = "paced:400:5"  # 80 s
    with tempfile.TemporaryDirectory(prefix="hfbench") as folder:
        async with cluster(Path(folder), 5, [model]) as nodes:
            runs = []
            for n in range(RUNS_IN_OUTAGE):
                async with nodes.servers[n % 5].client() as client:
                    api = Native(client)
                    runs.append(await api.start(await api.new_session(), "hello", f"up/{model}"))
            await asyncio.to_thread(nodes.postgres.kill)
            await asyncio.sleep(OUTAGE)
            await asyncio.to_thread(nodes.postgres.start)
            async with nodes.servers[0].client() as client:
                outcomes = Counter([(await Native(client).settled(run))["outcome"] for run in runs])
            ((taken,),) = await nodes.fetch("SELECT count(*) FROM runs WHERE epoch > 1")
    return {"outage_taken": float(str(taken)), "outage_completed": outcomes["completed"], "outage_runs": len(runs)}


async def rolling_restart() -> Figures:
    """Restart three nodes, one after the other, under streams that each last ten seconds."""
    model = "paced:50:5"
    with tempfile.TemporaryDirectory(prefix="hfbench") as folder:
        async with cluster(Path(folder), 3, [model], config="drain = 30") as nodes:
            over = asyncio.Event()
            seen: Counter[str] = Counter()
            clients = [asyncio.create_task(_streams(nodes, n, f"up/{model}", over, seen)) for n in range(STREAMS)]
            await asyncio.sleep(12.0)  # every client has a stream by now
            for server in nodes.servers:
                await server.restart()
            over.set()
            await asyncio.gather(*clients)
    return {f"rolling_{name}": float(times) for name, times in seen.items()} | {
        "rolling_streams": float(STREAMS),
        "rolling_gaps": float(seen["gaps"]),
        "rolling_runs": float(sum(times for name, times in seen.items() if name not in ("gaps", "reconnects"))),
    }


async def _streams(nodes: Cluster, n: int, model: str, over: asyncio.Event, seen: Counter[str]) -> None:
    """Start a run at any node that takes it, read it to its end over reconnects, and begin again until it is over."""
    await asyncio.sleep(n / STREAMS * 10)
    round_, session = 0, ""
    while not over.is_set():
        round_ += 1
        try:
            async with nodes.servers[(n + round_) % 3].client(timeout=20) as client:
                session = session or await Native(client).new_session()
                run = await Native(client).start(session, "hello", model)
        except (*LOST, AssertionError):
            await asyncio.sleep(0.2)
            continue
        seen[await _read_to_the_end(nodes, n, run, seen)] += 1


async def _read_to_the_end(nodes: Cluster, n: int, run: str, seen: Counter[str]) -> str:
    last = 0
    while True:
        n += 1
        try:
            async with Client(nodes.servers[n % 3].url, timeout=20) as client:
                reader = await client.get(f"/api/runs/{run}/events?after={last}")
                async for frame in reader.events(comments=False):
                    if frame.id is None:
                        continue
                    seen["gaps"] += int(frame.id) != last + 1
                    last = int(frame.id)
                    if frame.event == "run.settled":
                        return _ending(frame.json()["settlement"])
        except LOST:
            await asyncio.sleep(0.2)
        seen["reconnects"] += 1


def _ending(settlement: dict[str, Any]) -> str:
    """Return how a run ended, and why if it did not complete."""
    why = settlement["by"] or (settlement["error"] or {}).get("code")
    return "_".join(filter(None, [settlement["outcome"], why]))


async def idle() -> Figures:
    """The processor time of ten nodes and PostgreSQL while nothing happens."""
    with tempfile.TemporaryDirectory(prefix="hfbench") as folder:
        async with cluster(Path(folder), IDLE_NODES, ["m"]) as nodes:
            await asyncio.sleep(10.0)  # what a start leaves to do
            pids = [server.pid for server in nodes.servers]
            before = [machine.cpu_seconds(pid) for pid in [*pids, nodes.postgres.pid]]
            await asyncio.sleep(IDLE_SECONDS)
            used = [machine.cpu_seconds(pid) for pid in [*pids, nodes.postgres.pid]]
    spent = [(b - a) / IDLE_SECONDS * 100 for a, b in zip(before, used, strict=True)]
    return {"idle_nodes_percent": sum(spent[:-1]), "idle_postgres_percent": spent[-1]}
