"""Schedules on three nodes and one PostgreSQL, while nodes and the database die: runs equal occurrences."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.cluster import Cluster, cluster
from tests.requirements import requirement
from tests.support.long import count
from tests.support.native import Native
from tests.support.postgres import Postgres
from tests.support.waiting import LONG

SCHEDULES = count(8, 30)
"""Each is due every second."""
CALM = count(3, 14)
"""Seconds between two faults: a history remembers a hundred occurrences."""
SEED = 20260328


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL that only this file uses: it is killed, and replaced by its standby."""
    server = Postgres()
    yield server
    server.stop()


@requirement("schedules.once")
@pytest.mark.timeout(600)
async def test_each_occurrence_has_one_run_while_nodes_and_the_database_die(tmp_path: Path, own_postgres: Postgres):
    """A node is killed at moments that are drawn, so at every step of a start; then the standby takes over."""
    chance = random.Random(SEED)
    async with cluster(tmp_path, own_postgres) as all:
        ids = await added(all)
        for node in all.nodes:
            await asyncio.sleep(CALM + chance.random())
            await all.kill(node, chance.uniform(0.0, 2.0))
        await asyncio.sleep(CALM)
        await all.fail_over()
        await asyncio.sleep(CALM)
        async with all.nodes[0].server.client() as client:
            api = Native(client)
            await paused(api, ids)
            occurrences = {id: await history(api, id) for id in ids}
            runs = [run["id"] async for run in all_runs(api)]

    started = [one["run"]["id"] for each in occurrences.values() for one in each if one["state"] == "started"]
    states = Counter(one["state"] for each in occurrences.values() for one in each)
    lost = {id: gaps(each) for id, each in occurrences.items()}
    print(
        f"\n{len(runs)} runs, {dict(states)}, {sum(one['others'] for e in occurrences.values() for one in e)} left out"
    )
    assert {} == {id: found for id, found in lost.items() if found}
    assert Counter(started) == Counter(runs), "a run without an occurrence, or an occurrence with two"
    assert {"started"} == set(states)
    assert len(runs) > SCHEDULES * 5 * CALM


async def added(all: Cluster) -> list[str]:
    """Add the schedules through all nodes in turn."""
    ids = []
    for number in range(SCHEDULES):
        async with all.nodes[number % len(all.nodes)].server.client() as client:
            when = {"kind": "every", "seconds": 1}
            asked = {"name": f"s{number}", "prompt": "Go", "model": "up/echo:hi", "when": when}
            response = await client.post("/api/schedules", asked)
            assert 201 == response.status, await response.text()
            ids.append((await response.json())["id"])
    return ids


async def paused(api: Native, ids: list[str]) -> None:
    """Pause all, and wait until nothing is about to start: what a dead node had begun is found by another."""
    async with asyncio.timeout(4 * LONG):
        for id in ids:
            while 200 != (await api.client.post(f"/api/schedules/{id}/pause")).status:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            while "begun" in [one["state"] for one in await history(api, id)]:  # noqa: ASYNC110
                await asyncio.sleep(0.2)


async def history(api: Native, id: str) -> list[dict[str, Any]]:
    """The occurrences of a schedule, the oldest first."""
    found: list[dict[str, Any]] = (await api.get(f"/api/schedules/{id}/history"))["occurrences"]
    return found[::-1]


def gaps(occurrences: list[dict[str, Any]]) -> list[str]:
    """The times that have no occurrence, or two: the seconds from the first to the last."""
    times = sorted((datetime.fromisoformat(one["at"]).timestamp(), one["others"]) for one in occurrences)
    counted = sum(1 + others for _, others in times) - times[0][1]
    expected = round(times[-1][0] - times[0][0]) + 1
    twice = [at for at, number in Counter(at for at, _ in times).items() if number > 1]
    wrong = [] if counted == expected else [f"{expected} times, {counted} counted"]
    return [*wrong, *map(str, twice)]


async def all_runs(api: Native) -> AsyncIterator[dict[str, Any]]:
    path: str | None = "/api/runs?limit=200"
    while path is not None:
        page = await api.get(path)
        for run in page["runs"]:
            yield run
        path = f"/api/runs?limit=200&before={page['next']}" if page["next"] else None
