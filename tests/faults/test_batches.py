"""Batches under faults: the store goes away in the middle, and people stop and resume as fast as they can."""

import asyncio
import random
from collections import Counter

import pytest

from holdfast.server.app import create_app
from holdfast.server.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.faults.test_store_away import Flaky
from tests.requirements import requirement
from tests.support.batches import World, asked_of
from tests.support.served import Served
from tests.support.upstream import Pause, Upstream, answer


@requirement("batch.once", "crash.store-away")
@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_batch_waits_for_a_store_that_is_away_and_counts_each_answer_once(how):
    """An answer that is there is not asked for again, whether its keeping failed or only the word of it was lost."""
    store = Flaky(MemoryStore())
    async with Upstream([Pause(0.02), *answer("42")]) as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a", "b"))
        async with Served(create_app(Settings(providers=(described,)), store, {})) as served:
            async with served.client(timeout=30) as client:
                world = World(up, client)
                batch = await world.create(20, ["up/a", "up/b"])
                await world.progressed(batch, 3)
                store.away = how
                await store.has_refused(store.refusals + 6)
                store.away = None
                ended = await world.settled(batch)
                cells = await world.cells(batch)

    assert ("finished", 40, 0) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])
    assert 40 == len({(cell["model"], cell["number"]) for cell in cells})
    assert {1} == set(asked_of(up).values())


@requirement("batch.stop")
@pytest.mark.parametrize("seed", range(3))
async def test_stops_and_resumes_in_any_order_lose_and_repeat_nothing(seed):
    """Two people at the same buttons: whatever they do, every cell is answered once in the end."""
    chosen = random.Random(seed)
    async with Upstream([Pause(0.01), *answer("42")]) as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a", "b"))
        async with Served(create_app(Settings(providers=(described,)), MemoryStore(), {})) as served:
            async with served.client(timeout=30) as client:
                world = World(up, client)
                batch = await world.create(30, ["up/a", "up/b"], concurrency=6)

                async def press(buttons):
                    for what in buttons:
                        told = await world.post(batch, what)
                        assert told["status"] in ("running", "stopped", "finished")
                        await asyncio.sleep(chosen.random() * 0.03)

                await asyncio.gather(*(press(chosen.choices(["stop", "resume"], k=12)) for _ in range(2)))
                before = await world.cells(batch)
                await world.post(batch, "resume")
                ended = await world.settled(batch)
                cells = await world.cells(batch)

    assert ("finished", 60, 0) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])
    assert {1} == set(Counter((cell["model"], cell["number"]) for cell in cells).values())
    assert 60 == len(cells)
    kept = {cell["id"]: cell for cell in cells}
    assert before == [kept[cell["id"]] for cell in before], "what was kept stays as it was"
