"""PostgreSQL with several nodes at once, killed and started again, cut off, and silent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
import pytest
from msgspec.structs import replace

from holdfast.errors import SessionBusy, StoreUnavailable
from holdfast.events import Completed, Text
from holdfast.history import Message, Session
from holdfast.ids import new_id
from holdfast.store import Append, Idempotency, RunRecord, Store
from holdfast.store.opening import open_store
from tests.requirements import requirement
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import LONG

LEASE = 3600.0
ROUNDS = 12
DONE = Completed(text="hi", finish_reason="stop")

T = TypeVar("T")


@asynccontextmanager
async def opened(*urls: str) -> AsyncIterator[list[Store]]:
    stores = [await asyncio.to_thread(open_store, url) for url in urls]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


@pytest.fixture
async def two(postgres) -> AsyncIterator[list[Store]]:
    """Two nodes on one database, `a` and `b`, both alive."""
    url = postgres.url(await postgres.new_database())
    async with opened(url, url) as stores:
        for store, node in zip(stores, "ab", strict=True):
            await store.renew(node, LEASE)
        yield stores


def record(session: str | None, node_id: str) -> RunRecord:
    return RunRecord(
        id=new_id("run"), owner="o", session_id=session, message_id=new_id("msg"), node_id=node_id, created_at=1.0
    )


def said(text: str = "hello") -> Message:
    return Message(id=new_id("msg"), role="user", content=text)


async def new_session(store: Store) -> str:
    return (await store.create_session(Session(id=new_id("ses"), owner="o"))).id


async def outcome(work: Awaitable[T]) -> T | Exception:
    try:
        return await work
    except (SessionBusy, StoreUnavailable) as error:
        return error


async def settle(store: Store, run: RunRecord, epoch: int = 1, seq: int = 1) -> Any:
    message = Message(id=run.message_id or "", role="assistant", content="hi", run_id=run.id)
    end = await store.settle(run.id, epoch, seq=seq, settlement=DONE, message=message, now=2.0)
    return end and end.settlement


async def until_it_answers(work: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call to a store that is away, as the engine does."""
    async with asyncio.timeout(LONG):
        while True:
            try:
                return await work()
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def until_it_waits(call: asyncio.Task[Any], watch: asyncpg.Connection) -> None:
    """Return once a call waits for a lock that another connection has."""
    async with asyncio.timeout(LONG):
        while not await watch.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ):
            assert not call.done()


# two nodes at the same moment


@requirement("nodes.races")
async def test_of_two_runs_that_start_in_a_session_at_once_one_is_running(two):
    """Each node sees an idle session. The lock on its row lets one of them be first."""
    session = await new_session(two[0])
    for _ in range(ROUNDS):
        runs = [record(session, node) for node in "ab"]
        found = await asyncio.gather(
            *(outcome(store.create_run(run, [said()])) for store, run in zip(two, runs, strict=True))
        )

        (running,) = [it for it in found if isinstance(it, RunRecord)]
        (busy,) = [it for it in found if isinstance(it, SessionBusy)]
        assert running.id == busy.run_id
        assert 1 == len(await two[0].list_runs(session_id=session, status="running"))
        await settle(two[1], running)


@requirement("nodes.races")
async def test_a_run_that_is_queued_while_another_settles_starts_once(two):
    """Whichever is first, nothing is lost: the run started at once, or it is queued and one node starts it."""
    session = await new_session(two[0])
    for _ in range(ROUNDS):
        first = await two[0].create_run(record(session, "a"), [said()])
        second = record(session, "b")
        _, added = await asyncio.gather(settle(two[0], first), two[1].create_run(second, [said()], if_busy="queue"))
        started = await asyncio.gather(*(store.start_queued(session, node_id="a", now=3.0) for store in two))

        assert (added.status == "queued") == (1 == len([run for run in started if run is not None]))
        (running,) = await two[1].list_runs(session_id=session, status="running")
        assert second.id == running.id
        await settle(two[1], running)
    feed = await two[0].read_feed(session, 0)
    assert list(range(1, len(feed) + 1)) == [entry.n for entry in feed]


@requirement("nodes.races")
async def test_a_run_is_settled_by_its_owner_or_taken_by_another(two):
    """Never both: a claim raises the epoch, and a settlement names the one it was made under."""
    for number in range(ROUNDS):
        node = f"dead{number}"
        await two[0].renew(node, LEASE)
        run = await two[0].create_run(record(None, node))
        await two[0].renew(node, 0.0)
        settled, owned = await asyncio.gather(settle(two[0], run), two[1].claim("b"))

        stored = await two[0].get_run(run.id)
        assert stored is not None
        if settled is None:
            assert ("running", "b", 2, {run.id: 2}) == (stored.status, stored.node_id, stored.epoch, owned)
            assert DONE == await settle(two[1], run, epoch=2)
        else:
            assert ("settled", {}) == (stored.status, {id: epoch for id, epoch in owned.items() if id == run.id})


@requirement("nodes.races")
async def test_one_idempotency_key_makes_one_run_on_two_nodes(two):
    """A client that repeats its request may reach another node while the first is still at it."""
    for number in range(ROUNDS):
        key = Idempotency("o", f"key {number}", "digest")
        runs = [record(None, node) for node in "ab"]
        found = await asyncio.gather(
            *(store.create_run(run, idempotency=key) for store, run in zip(two, runs, strict=True))
        )

        assert found[0] == found[1]
        assert found[0].id in {run.id for run in runs}


@requirement("nodes.races")
@pytest.mark.parametrize("if_busy", ["reject", "queue"])
async def test_one_idempotency_key_makes_one_run_of_a_session_on_two_nodes(two, if_busy):
    """The second node waits for the session. It then finds a session that is busy, with the run of its own key."""
    session = await new_session(two[0])
    for number in range(ROUNDS):
        key = Idempotency("o", f"key {number}", "digest")
        runs = [record(session, node) for node in "ab"]
        found = await asyncio.gather(
            *(
                store.create_run(run, [said()], if_busy=if_busy, idempotency=key)
                for store, run in zip(two, runs, strict=True)
            )
        )

        assert found[0] == found[1]
        await settle(two[0], found[0])


@requirement("nodes.fence-waits")
async def test_a_claim_waits_for_an_append_that_is_under_way(two, postgres):
    """Otherwise the old owner's words would come after the new owner has read the end of the log."""
    await two[0].renew("old", LEASE)
    run = await two[0].create_run(record(None, "old"))
    await two[0].renew("old", 0.0)
    url = two[0].place
    append, watch = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        under_way = append.transaction()
        await under_way.start()
        await append.execute("SELECT 1 FROM keepers WHERE id = 'old' AND NOT fenced FOR KEY SHARE")
        await append.execute(
            """INSERT INTO events (run, first, count, body, at) SELECT n, 1, 1, '["a"]', 1 FROM runs WHERE id = $1""",
            run.id,
        )
        claim = asyncio.create_task(two[1].claim("b"))
        await until_it_waits(claim, watch)
        await under_way.commit()

        assert {run.id: 2} == await claim
        assert [Text("a")] == await two[1].read_log(run.id, 0)
        assert ["fenced"] == await two[0].append("old", [Append(run.id, 1, 2, [Text("late")])])
    finally:
        await append.close()
        await watch.close()


async def test_an_append_of_a_node_that_was_fenced_meanwhile_is_refused(two):
    """One that waits for the claim sees what the claim has done, though it began before."""
    await two[0].renew("old", LEASE)
    run = await two[0].create_run(record(None, "old"))
    fencing, watch = await asyncpg.connect(two[0].place), await asyncpg.connect(two[0].place)
    try:
        claim = fencing.transaction()
        await claim.start()
        await fencing.execute("SELECT 1 FROM keepers WHERE id = 'old' FOR UPDATE")
        await fencing.execute("UPDATE keepers SET fenced = TRUE WHERE id = 'old'")
        append = asyncio.create_task(two[0].append("old", [Append(run.id, 1, 1, [Text("late")])]))
        await until_it_waits(append, watch)
        await claim.commit()

        assert ["fenced"] == await append
        assert [] == await two[1].read_log(run.id, 0)
    finally:
        await fencing.close()
        await watch.close()


# texts


@pytest.mark.parametrize("text", ["a\x00b", "\x00", "\ufdd0", "\ufdd00\x00\ufdd01", "\U0010ffff"])
async def test_texts_that_postgresql_does_not_take_come_back_as_they_were(two, text):
    """It has no U+0000 in texts. Titles, prompts and ids may have one."""
    session = await two[0].create_session(Session(id=new_id("ses") + text, owner="o", title=text, system=text))
    stored = await two[1].get_session(session.id)
    run = await two[0].create_run(replace(record(session.id, "a"), model=text), [said(text)])

    assert session == stored
    assert [session.id] == [found.id for found in await two[1].list_sessions("o", prefix=session.id)]
    assert run == await two[1].get_run(run.id)
    assert [text] == [message.content for message in await two[1].messages(session.id)]


# PostgreSQL is away


@requirement("nodes.store-away")
async def test_what_was_acknowledged_is_there_after_postgresql_was_killed(postgres):
    """`kill -9` of every process of the server, in the middle of appends. Calls fail, and succeed when repeated."""
    url = postgres.url(await postgres.new_database())
    async with opened(url) as (store,):
        await store.renew("a", LEASE)
        run = await store.create_run(record(None, "a"))
        acknowledged: list[int] = []
        enough = asyncio.Event()

        async def append_all() -> None:
            for seq in range(1, 301):
                entry = Append(run.id, 1, seq, [Text(str(seq))])
                await until_it_answers(lambda: store.append("a", [entry]))  # noqa: B023  called before the next round
                acknowledged.append(seq)
                if seq == 50:
                    enough.set()

        appending = asyncio.create_task(append_all())
        async with asyncio.timeout(LONG):
            await enough.wait()
        await asyncio.to_thread(postgres.kill)
        seen = len(acknowledged)
        await asyncio.to_thread(postgres.start)
        log = await until_it_answers(lambda: store.read_log(run.id, 0))
        await appending

        assert [Text(str(seq)) for seq in range(1, seen + 1)] == log[:seen]
        assert [Text(str(seq)) for seq in range(1, 301)] == await store.read_log(run.id, 0)


@requirement("nodes.store-away")
async def test_a_connection_that_is_cut_is_an_answer_that_can_be_repeated(postgres):
    """Every error of the driver is `StoreUnavailable`, which callers repeat. The password is in none of them."""
    name = await postgres.new_database()
    async with TcpProxy(postgres.port) as proxy:
        url = postgres.url(name, proxy.port).replace("holdfast@", "holdfast:a-secret@")
        async with opened(url) as (store,):
            session = await new_session(store)
            proxy.cut()
            with pytest.raises(StoreUnavailable) as refused:
                await store.create_run(record(session, "a"), [said()])
            await proxy.listen()
            run = record(session, "a")
            started = await until_it_answers(lambda: store.create_run(run, [said()]))

            assert "a-secret" not in str(refused.value)
            assert run.id == started.id
            assert 1 == len(await store.list_runs(session_id=session))


@requirement("nodes.store-away")
async def test_a_server_that_falls_silent_is_given_up(postgres):
    """A half-open connection says nothing, for ever. No call waits for it longer than its limit."""
    name = await postgres.new_database()
    async with TcpProxy(postgres.port) as proxy:
        async with opened(postgres.url(name, proxy.port)) as (store,):
            session = await new_session(store)
            proxy.fall_silent()
            with pytest.raises(StoreUnavailable):
                await store.get_session(session)
            proxy.speak()

            assert session == (await until_it_answers(lambda: store.get_session(session))).id


@requirement("nodes.hints")
async def test_hints_are_heard_again_after_the_connection_was_cut(postgres):
    """The connection for hints comes back by itself, and tells with an empty hint that some may have been lost."""
    name = await postgres.new_database()
    async with TcpProxy(postgres.port) as proxy, opened(postgres.url(name, proxy.port), postgres.url(name)) as stores:
        heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        end = stores[0].listen("a", lambda topic, id: heard.put_nowait((topic, id)))
        async with asyncio.timeout(LONG):
            assert ("", "") == await heard.get()
            await stores[1].hint("session", ["before"], "a")
            assert ("session", "before") == await heard.get()
            proxy.cut()
            await proxy.listen()
            assert ("", "") == await heard.get()
            await stores[1].hint("session", ["after"])
            assert ("session", "after") == await heard.get()
        end()


# the schema


async def test_nodes_that_start_at_once_make_the_schema_once(postgres):
    """All nodes of a deployment start together, on an empty database."""
    url = postgres.url(await postgres.new_database())
    async with opened(url), opened(url):
        pass
    url = postgres.url(await postgres.new_database())
    stores = await asyncio.gather(*(asyncio.to_thread(open_store, url) for _ in range(4)))

    assert [[]] * 4 == [await store.nodes() for store in stores]
    for store in stores:
        await store.close()
