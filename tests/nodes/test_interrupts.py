"""Messages that interrupt each other through three nodes on one PostgreSQL."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.long import count
from tests.support.native import Native
from tests.support.postgres import shared_postgres
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUNDS = count(5, 100)


class World(NamedTuple):
    up: Upstream
    nodes: list[Native]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Three servers: each round has a session, a model and a gate of its own."""
    postgres = shared_postgres()
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    folder = tmp_path_factory.mktemp("interrupts")
    async with Upstream() as up, AsyncExitStack() as stack:
        nodes: list[Native] = []
        for number in range(3):
            server = Server(folder / str(number), [provider(up.base_url, models=None)], env=env)
            await stack.enter_async_context(server)
            nodes.append(Native(await stack.enter_async_context(server.client())))
        yield World(up, nodes)


async def replaced_and_completed(world: World, name: str, *, is_busy: bool) -> list[Any]:
    """Interrupt a session through every node at once; how each of these messages ended."""
    first, *_ = world.nodes
    world.up.models[name] = [Headers(), Role(), Delta("half "), Gate(name), Delta("whole"), Finish(), Done()]
    session, model = await first.new_session(), f"up/{name}"
    if is_busy:
        (await first.shown(await first.start(session, "first", model), "half ")).close()
    starting = [node.start(session, f"urgent {n}", model, if_busy="interrupt") for n, node in enumerate(world.nodes)]
    runs = await asyncio.gather(*starting)
    async with asyncio.TaskGroup() as readers:
        ends = [readers.create_task(node.settled(run)) for node, run in zip(world.nodes, runs, strict=True)]
        for two_of_them, each in enumerate(asyncio.as_completed(ends)):
            await each
            if two_of_them:
                break
        world.up.open(name)
    await first.settled(await first.start(session, "the next one is accepted at once", model, if_busy="reject"))
    return sorted((end.result()["outcome"], end.result().get("by") or "") for end in ends)


@requirement("nodes.interrupt", "busy.triple-send")
@pytest.mark.timeout(300 + 15 * ROUNDS)
@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
async def test_of_messages_that_interrupt_through_three_nodes_at_once_one_completes_and_two_are_replaced(
    world, is_busy
):
    """They were accepted and then only queued: each answer came after the one that it was to replace."""
    found: Counter[str] = Counter()
    for number in range(ROUNDS):
        async with asyncio.timeout(LONG):
            found[str(await replaced_and_completed(world, f"{number}-{is_busy}", is_busy=is_busy))] += 1

    assert {str([("completed", ""), ("stopped", "replaced"), ("stopped", "replaced")]): ROUNDS} == found
