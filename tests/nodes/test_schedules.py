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
from tests.nodes.fleet import was_refused
from tests.requirements import requirement
from tests.support.long import count
from tests.support.native import Native
from tests.support.postgres import Postgres
from tests.support.waiting import LONG

OCCURRENCES = count(100, 10_000)
SCHEDULES = count(8, 100)
EVERY = count(1, 3)
"""Seconds between two times of a schedule: it remembers a hundred, and new ones are added after each round of kills."""
CALM = count(3, 8)
"""Seconds between two faults."""
SEED = 20260328


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL that only this file uses: it is killed, and replaced by its standby."""
    server = Postgres()
    yield server
    server.stop()


@requirement("schedules.once")
@pytest.mark.timeout(1800)
async def test_each_occurrence_has_one_run_while_nodes_and_the_database_die(tmp_path: Path, own_postgres: Postgres):
    """A node is killed at moments that are drawn, so at every step of a start; once the standby takes over."""
    chance, kills = random.Random(SEED), 0
    occurrences: dict[str, dict[str, Any]] = {}
    """By their schedules and times."""
    ids: list[str] = []
    async with cluster(tmp_path, own_postgres) as all:
        while len(with_run(occurrences)) < OCCURRENCES:
            added_now = await added(all)
            ids += added_now
            for node in all.nodes:
                await asyncio.sleep(CALM + chance.random())
                await all.kill(node, chance.uniform(0.0, 2.0))
                kills += 1
                if kills == 2:
                    await all.fail_over()
            async with all.nodes[0].server.client() as client:
                api = Native(client)
                occurrences |= await paused(api, added_now)
                for id in added_now:
                    assert 204 == (await client.request("DELETE", f"/api/schedules/{id}")).status
        async with all.nodes[0].server.client() as client:
            runs = [run["id"] async for run in all_runs(Native(client)) if not was_refused(run)]

    started = [one["run"]["id"] for one in with_run(occurrences)]
    taken_back = [one for one in occurrences.values() if "paused" in (one["why"] or "")]
    lost = {id: gaps([one for key, one in occurrences.items() if key.startswith(id)]) for id in ids}
    left_out = sum(one["others"] for one in occurrences.values())
    print(
        f"\n{len(occurrences)} occurrences, {len(runs)} runs, {len(taken_back)} taken back by the pause, "
        f"{left_out} left out; {kills} kills"
    )
    assert {} == {id: found for id, found in lost.items() if found}
    assert Counter(started) == Counter(runs), "a run without an occurrence, or an occurrence with two"
    assert len(occurrences) == len(started) + len(taken_back)


def with_run(occurrences: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in occurrences.values() if one["state"] == "started"]


async def added(all: Cluster) -> list[str]:
    """Add the schedules through all nodes in turn."""
    ids = []
    for number in range(SCHEDULES):
        async with all.nodes[number % len(all.nodes)].server.client() as client:
            when = {"kind": "every", "seconds": EVERY}
            asked = {"name": f"s{number}", "prompt": "Go", "model": "up/echo:hi", "when": when}
            response = await client.post("/api/schedules", asked)
            assert 201 == response.status, await response.text()
            ids.append((await response.json())["id"])
    return ids


async def paused(api: Native, ids: list[str]) -> dict[str, dict[str, Any]]:
    """Pause all, and wait until nothing is about to start: what a dead node had begun is found by another.

    Returns the occurrences by their schedules and times.
    """

    async def pause(id: str) -> None:
        while 200 != (await api.client.post(f"/api/schedules/{id}/pause")).status:  # noqa: ASYNC110
            await asyncio.sleep(0.2)

    occurrences = {}
    async with asyncio.timeout(4 * LONG):
        await asyncio.gather(*map(pause, ids))
        for id in ids:
            found = await history(api, id)
            while "begun" in [one["state"] for one in found]:
                await asyncio.sleep(0.2)
                found = await history(api, id)
            occurrences |= {f"{id} {one['at']}": one for one in found}
    return occurrences


async def history(api: Native, id: str) -> list[dict[str, Any]]:
    """The occurrences of a schedule. A node that has just lost its database answers later."""
    async with asyncio.timeout(LONG):
        while 200 != (response := await api.client.get(f"/api/schedules/{id}/history")).status:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    found: list[dict[str, Any]] = (await response.json())["occurrences"]
    return found


def gaps(occurrences: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the number of times from the first to the last: nothing, or how many it should be."""
    times = sorted((datetime.fromisoformat(one["at"]).timestamp(), one["others"]) for one in occurrences)
    counted = sum(1 + others for _, others in times) - times[0][1]
    expected = round((times[-1][0] - times[0][0]) / EVERY) + 1
    return [] if counted == expected else [f"{expected} times, {counted} counted"]


async def all_runs(api: Native) -> AsyncIterator[dict[str, Any]]:
    path: str | None = "/api/runs?limit=200"
    while path is not None:
        page = await api.get(path)
        for run in page["runs"]:
            yield run
        path = f"/api/runs?limit=200&before={page['next']}" if page["next"] else None
