"""Three nodes under faults, with a fleet of clients whose history an offline checker judges.

`HOLDFAST_NODES_ROUNDS=20` runs so many rounds, and `HOLDFAST_NODES_SEED` other ones.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.nodes.checker import violations
from tests.nodes.cluster import Cluster, Node, cluster
from tests.nodes.fleet import Fleet, all_settled, kept_by, mark_ends
from tests.nodes.history import History, Story
from tests.requirements import requirement
from tests.support.long import count
from tests.support.postgres import Postgres

ROUNDS = int(os.environ.get("HOLDFAST_NODES_ROUNDS") or count(4, 200))
SEED = int(os.environ.get("HOLDFAST_NODES_SEED", "20260101"))
FRAMES = (50, 600)
"""Frames that the fleet has seen when the fault comes."""
BEYOND_THE_LEASE = 12.0
"""Seconds. A lease is 9 s."""

Fault = Callable[[Cluster, Node, random.Random], Awaitable[None]]

FAULTS: dict[str, Fault] = {
    "kill a node": lambda all, node, chance: all.kill(node, chance.uniform(0, BEYOND_THE_LEASE)),
    "pause a node": lambda all, node, chance: all.pause(node, chance.uniform(9, BEYOND_THE_LEASE)),
    "promote the standby": lambda all, node, chance: all.fail_over(),
    "restart all nodes": lambda all, node, chance: all.roll(),
    "kill PostgreSQL": lambda all, node, chance: all.kill_postgres(chance.uniform(0, 4)),
    "cut a node from PostgreSQL": lambda all, node, chance: all.cut(node.store, chance.uniform(0, BEYOND_THE_LEASE)),
    "silence PostgreSQL for a node": lambda all, node, chance: all.silence(node.store, chance.uniform(1, 12)),
    "delay PostgreSQL for a node": lambda all, node, chance: all.delay(node.store, chance.uniform(0.02, 0.3), 4),
    "cut a node from its peers": lambda all, node, chance: all.cut(node.peers, chance.uniform(0, 4)),
    "silence a node for its peers": lambda all, node, chance: all.silence(node.peers, chance.uniform(1, 4)),
    "delay a node for its peers": lambda all, node, chance: all.delay(node.peers, chance.uniform(0.02, 0.5), 4),
}
"""Each has its turn. The default suite has rounds for the first ones only."""


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL that only this file uses: it is killed, and replaced by its standby."""
    server = Postgres()
    yield server
    server.stop()


def drawn(chance: random.Random, number: int) -> list[str]:
    """Return the faults of a round: each kind has its turn, and the ways between nodes may break at the same time."""
    names = list(FAULTS)
    faults = [names[number % len(names)]]
    if "peers" not in faults[0] and chance.random() < 0.3:
        faults.append(chance.choice([name for name in names if "peers" in name]))
    return faults


async def lived(all: Cluster, number: int, faults: list[str], chance: random.Random) -> History:
    """Let a fleet of clients live through the faults of a round, and until nothing runs any more."""
    fleet = Fleet([node.server.url for node in all.nodes], chance, f"round {number}")
    async with asyncio.TaskGroup() as tasks:
        living = tasks.create_task(fleet.live())
        moment = tasks.create_task(fleet.seen(chance.randint(*FRAMES)))
        await asyncio.wait({living, moment}, return_when=asyncio.FIRST_COMPLETED)
        moment.cancel()
        for fault in faults:
            tasks.create_task(FAULTS[fault](all, chance.choice(all.nodes), chance))  # type: ignore[arg-type]
    await all_settled(all.nodes[0].server.url, fleet.history)
    return fleet.history


@requirement("nodes.history", "nodes.takeover", "nodes.fence", "nodes.outage", "nodes.follow")
@pytest.mark.timeout(600 + 60 * ROUNDS)
async def test_clients_of_three_nodes_are_never_told_two_stories(tmp_path: Path, own_postgres: Postgres):
    """Whatever breaks, at whatever moment: what a client was answered is what every node keeps."""
    outcomes: Counter[str] = Counter()
    async with cluster(tmp_path, own_postgres) as all:
        for number in range(ROUNDS):
            chance = random.Random(f"{SEED} {number}")
            faults = drawn(chance, number)
            history = await lived(all, number, faults, chance)
            urls = [node.server.url for node in all.nodes]
            await mark_ends(urls[0], history)
            nodes = [await kept_by(url, history) for url in urls]

            found = violations(Story(history, nodes))
            shown = "\n".join(f"{each.rule}: {each.shown_by}" for each in found)
            assert not found, f"round {number} of seed {SEED}, with {faults}:\n{shown}"
            outcomes += Counter(run["settlement"]["outcome"] for run in nodes[0].runs.values())
    print(f"\n{ROUNDS} rounds, {outcomes.total()} runs: {dict(outcomes)}")
    assert min(outcomes["completed"], outcomes["stopped"]) > 0, "nothing was tried"
