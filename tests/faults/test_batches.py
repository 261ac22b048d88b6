"""Batches under faults: the store goes away in the middle, and people stop and resume as fast as they can."""

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from holdfast.access import Budget
from holdfast.errors import StoreUnavailable
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.faults.test_store_away import Flaky
from tests.requirements import requirement
from tests.support.batches import World, asked_of
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Hang, Headers, Pause, Upstream, answer
from tests.support.waiting import LONG


@requirement("batch.once", "crash.store-away")
@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_batch_waits_for_a_store_that_is_away_and_counts_each_answer_once(how):
    """An answer that is there is not asked for again, whether its keeping failed or only the word of it was lost."""
    store = Flaky(MemoryStore())
    async with Upstream([Pause(0.02), *answer("42")]) as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a", "b"))
        async with Served(create_app(Settings(providers=(described,)), store, NO_HOME)) as served:
            async with served.client() as client:
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


class AwayAtStarts(MemoryStore):
    """It is away when it is asked for the fourth and the fifth time how much an owner has stored."""

    asked = 0

    async def stored_bytes(self, owner: str) -> int:
        self.asked += 1
        if self.asked in (4, 5):
            raise StoreUnavailable("away")
        return await super().stored_bytes(owner)


@requirement("batch.once", "crash.store-away")
async def test_a_batch_whose_budget_cannot_be_read_waits_for_the_store():
    """Its work ended at the first such start: the batch went on in name only, until the next start of the server."""
    store = AwayAtStarts()
    async with Upstream(answer("42")) as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a",))
        settings = Settings(providers=(described,), budget=Budget(bytes_stored=10**9))
        async with Served(create_app(settings, store, NO_HOME)) as served, served.client() as client:
            world = World(up, client)
            ended = await world.settled(await world.create(8, ["up/a"], concurrency=2))

    assert ("finished", 8, 0) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])
    assert {1} == set(asked_of(up).values())
    assert store.asked > 8


@requirement("batch.stop")
@pytest.mark.parametrize("seed", range(3))
async def test_stops_and_resumes_in_any_order_lose_and_repeat_nothing(seed):
    """Two people at the same buttons: whatever they do, every cell is answered once in the end."""
    chosen = random.Random(seed)
    async with Upstream([Pause(0.01), *answer("42")]) as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a", "b"))
        async with Served(create_app(Settings(providers=(described,)), MemoryStore(), NO_HOME)) as served:
            async with served.client() as client:
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


@requirement("batch.stop")
@pytest.mark.parametrize("button", ["resume", "stop", "delete"])
async def test_a_batch_that_is_being_deleted_is_gone_for_whoever_waits_to_change_it(tmp_path, button):
    """A resume that came before the deletion was done must not ask on for a batch that nobody can see or stop."""
    async with Upstream([Pause(0.01), *answer("42")]) as up:
        up.models["b"] = [Headers(), Hang()]
        providers = [provider(up.base_url, models=["a", "b"])]
        async with Server(tmp_path, providers) as server, server.client() as client:
            world = World(up, client)
            for _ in range(4):
                batch = await world.create(30, ["up/a", "up/b"], concurrency=6)
                await world.progressed(batch, 3)
                path = f"/api/batches/{batch['id']}"
                call = ("DELETE", path) if button == "delete" else ("POST", f"{path}/{button}")
                pressed = [client.request(*call) for _ in range(4)]
                deleted, *others = await asyncio.gather(client.request("DELETE", path), *pressed)

                assert deleted.status in ((204, 404) if button == "delete" else (204,))
                assert {each.status for each in others} <= {200, 204, 404}
                assert 404 == (await client.get(path)).status
            async with asyncio.timeout(LONG):
                while _documents(tmp_path):  # noqa: ASYNC110 - in another process
                    await asyncio.sleep(0.02)
            for request in up.requests:
                if request.model == "b":
                    await request.wait_closed()
        assert [] == _documents(tmp_path)


def _documents(folder):
    with closing(sqlite3.connect(folder / "holdfast.db")) as db:
        return db.execute("SELECT kind, id FROM documents").fetchall()


@requirement("start.idempotent")
async def test_the_key_of_a_batch_that_is_being_deleted_begins_another():
    """Nobody is given a batch that is as good as gone, and the new one keeps the key."""
    async with Upstream([Pause(0.01), *answer("42")]) as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a",))
        app = create_app(Settings(providers=(described,)), MemoryStore(), NO_HOME)
        async with Served(app) as served, served.client() as client:
            world = World(up, client)
            body = {"models": ["up/a"], "prompts": [{"prompt": "?"}] * 500}
            headers = {"idempotency-key": "k"}

            async def begin():
                return await (await client.post("/api/batches", body, headers=headers)).json()

            first = await begin()
            path = f"/api/batches/{first['id']}"
            deleting = asyncio.create_task(client.request("DELETE", path))
            while (await client.get(path)).status == 200:
                pass
            second = await begin()
            await deleting
            third = await begin()

            assert first["id"] != second["id"]
            assert ("running", second["id"]) == (second["status"], third["id"])
            assert "running" == (await world.get(second))["status"]
            await client.request("DELETE", f"/api/batches/{second['id']}")


class Late(MemoryStore):
    """A store that tells a server what the last one left only when a new batch is half made."""

    def __init__(self) -> None:
        super().__init__()
        self.half_made = asyncio.Event()
        self.told = asyncio.Event()

    async def list_documents(self, kind, owner=None, **options):
        if kind == "batch" and not self.told.is_set():
            await self.half_made.wait()
        if kind == "batch" and options.get("before"):  # the server has looked at the page before
            self.told.set()
        return await super().list_documents(kind, owner, **options)

    async def put_document(self, document, expected_version=None):
        if document.kind.startswith("prompts:"):
            self.half_made.set()
            await self.told.wait()
        return await super().put_document(document, expected_version)


@requirement("batch.once")
async def test_a_batch_that_is_being_made_is_not_taken_for_what_the_last_server_left():
    """A server that has just started looks for halves to erase, while its first caller makes a batch."""
    store = Late()
    async with Upstream(answer("42")) as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a",))
        async with Served(create_app(Settings(providers=(described,)), store, {})) as served:
            async with served.client() as client:
                world = World(up, client)
                batch = await world.create(2, ["up/a"])
                ended = await world.settled(batch)

                assert ("finished", 2) == (ended["status"], ended["progress"]["done"])
