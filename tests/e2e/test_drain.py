"""A server of several ends for an upgrade: what it works on goes on elsewhere, and two versions share the tables."""

import asyncio
import signal

import pytest

from holdfast.history import Session
from holdfast.server.features.accounts.made_keys import new_key
from holdfast.store import RunRecord
from holdfast.store.opening import open_store
from holdfast.store.postgres import schema
from holdfast.store.rows.migrations import Migration, StoreInUse, StoreTooNew
from tests.contract.test_attach import HALF
from tests.requirements import requirement
from tests.support.batches import World, asked_of
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server, provider
from tests.support.upstream import Gate, Upstream, answer
from tests.support.waiting import LONG


@requirement("nodes.drain", "crash.goes-on")
async def test_another_server_goes_on_with_an_answer_when_one_is_asked_to_end(postgres, tmp_path):
    """llama-server keeps the answer, and is not told to stop. The reader misses no word, and repeats none."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    addresses = [{"HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{free_port()}"} for _ in range(2)]
    async with Upstream(HALF) as up:
        up.named = {}
        described = [provider(up.base_url, "llamacpp", profile="llamacpp")]
        one = Server(tmp_path / "one", described, config="drain = 0.5", env=env | addresses[0])
        two = Server(tmp_path / "two", described, env=env | addresses[1])
        async with one, two, one.client() as first, two.client() as second:
            here, there = Native(first), Native(second)
            run = await here.start(await here.new_session(), "Hi", "llamacpp/m")
            reader = await there.shown(run, "upon ")
            up.named[run] = answer("Once upon ", "a time.")
            one.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LONG):
                rest = await reader.all_events()
            settled = (await there.run(run))["settlement"]

    assert ("completed", "Once upon a time.") == (settled["outcome"], settled["text"])
    assert "a time." == "".join(frame.json()["text"] for frame in rest if frame.event == "text.delta")
    assert 1 == len(up.requests)
    assert up.dropped.empty()


@requirement("nodes.drain", "nodes.work")
async def test_another_server_goes_on_with_a_batch_when_one_is_asked_to_end(postgres, tmp_path):
    """At once, not after the lease. Answers that are stored are not asked for again."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database())}
    async with Upstream(answer("42")) as up:
        up.models["b"] = [Gate("go"), *answer("43")]
        described = [provider(up.base_url, models=["a", "b"])]
        one = Server(tmp_path / "one", described, config="drain = 0", env=env)
        two = Server(tmp_path / "two", described, env=env)
        async with one, two, one.client() as first, two.client() as second:
            here, there = World(up, first), World(up, second)
            batch = await here.create(2, ["up/a", "up/b"], concurrency=4)
            await here.progressed(batch, 2)
            one.send_signal(signal.SIGTERM)
            up.gates.open("go")
            async with asyncio.timeout(LONG):
                ended = await there.settled(batch)
            cells = await there.cells(batch)

    assert ("finished", 4, 0) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])
    assert {"42", "43"} == {cell["text"] for cell in cells}
    assert {1} == {times for (model, _), times in asked_of(up).items() if model == "a"}


def newer(sql: str) -> list[Migration]:
    """The steps of a version that is one ahead."""
    known = schema.postgres_steps()
    return [*known, Migration(known[-1].number + 1, "9999_newer", sql)]


@requirement("nodes.versions")
async def test_a_server_of_the_older_version_works_and_starts_after_a_step_that_only_adds(postgres, monkeypatch):
    """So servers are upgraded one after the other, and one that crashes meanwhile comes back."""
    url, older = postgres.url(await postgres.new_database()), schema.postgres_steps
    running = await asyncio.to_thread(open_store, url)
    await running.renew("old", 3600.0)
    await running.create_session(Session(id="ses_before", owner="me"))
    tables = ("sessions", "runs", "documents", "keepers", "intents", "holds", "api_keys")
    added = newer("-- works with 1\n" + "".join(f"ALTER TABLE {table} ADD COLUMN colour text;" for table in tables))
    monkeypatch.setattr(schema, "postgres_steps", lambda: added)
    upgraded = await asyncio.to_thread(open_store, url)
    monkeypatch.setattr(schema, "postgres_steps", older)
    restarted = await asyncio.to_thread(open_store, url)

    for number, store in enumerate((running, upgraded, restarted)):
        await store.create_session(Session(id=f"ses_{number}", owner="me"))
        await store.create_run(RunRecord(id=f"run_{number}", owner="me", session_id=f"ses_{number}", node_id="old"))
        await store.add_key(new_key(f"name{number}").record)
        assert await store.hold("batch", "b", "old")
        assert ["old"] == [node.id for node in await store.nodes()]
    assert 4 == len(await running.list_sessions("me"))
    assert 3 == len(await running.list_runs(owner="me")) == len(await running.list_keys())
    for store in (running, upgraded, restarted):
        await store.close()


@requirement("nodes.versions")
async def test_a_step_that_breaks_older_servers_waits_until_they_are_stopped(postgres, monkeypatch):
    """And a server of the older version that starts afterwards is refused, with the reason."""
    url, older = postgres.url(await postgres.new_database()), schema.postgres_steps
    running = await asyncio.to_thread(open_store, url)
    await running.renew("old", 3600.0)
    breaking = newer("ALTER TABLE sessions RENAME COLUMN title TO name")
    monkeypatch.setattr(schema, "postgres_steps", lambda: breaking)
    with pytest.raises(StoreInUse, match="1 running servers cannot work with"):
        await asyncio.to_thread(open_store, url)
    await running.create_session(Session(id="ses_1", owner="me", title="As before"))
    await running.release("old")
    await running.close()
    await (await asyncio.to_thread(open_store, url)).close()
    monkeypatch.setattr(schema, "postgres_steps", older)

    with pytest.raises(StoreTooNew, match="written by a newer Holdfast"):
        await asyncio.to_thread(open_store, url)
