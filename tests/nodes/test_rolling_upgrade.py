"""Three nodes are upgraded one after the other under streams: older and newer ones work side by side meanwhile."""

import asyncio
import os
import random
from pathlib import Path

import asyncpg

from holdfast import __version__
from tests.nodes.checker import violations
from tests.nodes.cluster import Cluster, cluster
from tests.nodes.fleet import Fleet, all_settled, kept_by, mark_ends
from tests.nodes.history import Story
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.newer_version import NEWER, newer_version
from tests.support.postgres import Postgres
from tests.support.server import Server

FRAMES = 50
"""Frames that the fleet has seen when the first node is upgraded."""


async def versions(server: Server) -> list[str]:
    """Return the versions of all nodes, as one of them lists them."""
    async with server.client() as client:
        return sorted(node["version"] for node in (await Native(client).get("/api/nodes"))["nodes"])


async def upgrade(all: Cluster, newer: Path) -> list[list[str]]:
    """Upgrade one node after the other, and return the versions that run after each step."""
    seen = []
    for node in all.nodes:
        path = os.pathsep.join([str(newer), node.server.environment["PYTHONPATH"]])
        await node.server.restart({"PYTHONPATH": path})
        seen.append(await versions(node.server))
    return seen


@requirement("nodes.versions", "nodes.drain", "nodes.history")
async def test_three_nodes_are_upgraded_one_by_one_and_no_client_is_told_two_stories(tmp_path, postgres: Postgres):
    """The first newer node changes the tables. What the older ones answer afterwards is what all nodes keep."""
    newer, chance = newer_version(tmp_path / "newer"), random.Random(20260102)
    async with cluster(tmp_path, postgres) as all:
        urls = [node.server.url for node in all.nodes]
        fleet = Fleet(urls, chance, "upgrade")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fleet.live())
            await fleet.seen(FRAMES)
            steps = await upgrade(all, newer)
        await all_settled(urls[0], fleet.history)
        await mark_ends(urls[0], fleet.history)
        nodes = [await kept_by(url, fleet.history) for url in urls]
        database = await asyncpg.connect(all.nodes[0].server.environment["HOLDFAST_STORE"])
        applied = [row[0] for row in await database.fetch("SELECT name FROM migrations ORDER BY name")]
        await database.close()

    assert applied[-1].endswith("_colour")
    assert [[__version__] * (2 - n) + [NEWER] * (n + 1) for n in range(3)] == steps
    found = violations(Story(fleet.history, nodes))
    assert not found, "\n".join(f"{each.rule}: {each.shown_by}" for each in found)
    assert "completed" in {run["settlement"]["outcome"] for run in nodes[0].runs.values()}
