"""`holdfast doctor` on PostgreSQL: the server, and the nodes that share it."""

import asyncio
import re
from collections.abc import Iterator

import asyncpg
import pytest

from holdfast import __version__
from tests.e2e.test_cli import Ended, Shell
from tests.requirements import requirement
from tests.support.pooler import TransactionPooler
from tests.support.ports import free_port
from tests.support.postgres import Postgres
from tests.support.server import Server
from tests.support.tcp_proxy import TcpProxy

SCRIPTED = {"name": "scripted", "dialect": "scripted"}
KEY = "k" * 32


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """A server whose settings these tests may change. It flushes, unlike that of other tests."""
    server = Postgres(is_durable=True)
    yield server
    server.stop()


async def sql(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def examined(folder, store: str, key: str = KEY) -> Ended:
    (folder / "doctor").mkdir(exist_ok=True)
    env = {"HOLDFAST_PORT": str(free_port()), "HOLDFAST_STORE": store, "HOLDFAST_CLUSTER_KEY": key}
    return await Shell(folder / "doctor", env)("doctor")


def node(folder, store: str, address: str, key: str = KEY) -> Server:
    env = {"HOLDFAST_STORE": store, "HOLDFAST_CLUSTER_KEY": key, "HOLDFAST_NODE_ADDRESS": address}
    return Server(folder, [SCRIPTED], env=env)


def has(shown: Ended, line: str) -> bool:
    found = re.search(f"^{line}", shown.out, re.MULTILINE) is not None
    if not found:
        print(shown.out)  # pytest shows it
    return found


@requirement("nodes.doctor")
async def test_a_sound_cluster_is_reported_server_by_server(database, tmp_path):
    """Nothing is changed by looking: before the first server there are no tables, and after it none are made."""
    store = database.url(await database.new_database())
    empty = await examined(tmp_path, store)
    still_empty = await examined(tmp_path, store)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    async with node(tmp_path / "one", store, addresses[0]), node(tmp_path / "two", store, addresses[1]):
        shown = await examined(tmp_path, store)

    for early in (empty, still_empty):
        assert has(early, r"note  store postgresql://\S+: PostgreSQL \d+\.\d+.*: no tables yet")
    assert 0 == shown.code, shown.out
    assert has(shown, r"ok    store postgresql://\S+: PostgreSQL \d+\.\d+.*, schema \d+, 0 keys")
    assert has(shown, "ok    no transaction pooler")
    assert has(shown, r"note  no synchronous standby \(asynchronous ones: 0\)")
    assert has(shown, "ok    197 connections allowed; 2 servers may need 16")
    assert has(shown, "ok    the clock of this machine differs from PostgreSQL's by 0.0 s")
    assert has(shown, "ok    2 servers running")
    for address in addresses:
        assert has(shown, rf"ok    server \d+ at {address} answers, with the same cluster key")


@requirement("nodes.doctor")
async def test_servers_that_cannot_follow_each_other_are_problems(database, tmp_path):
    """One has another key, one told an address at which nothing listens, one is of another version."""
    store = database.url(await database.new_database())
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    async with (
        TcpProxy(int(addresses[1].rpartition(":")[2])) as proxy,
        node(tmp_path / "one", store, addresses[0], "another-key-" + KEY),
        node(tmp_path / "two", store, addresses[1]),
    ):
        nowhere, silent = f"127.0.0.1:{free_port()}", f"127.0.0.1:{proxy.port}"
        proxy.fall_silent()
        await sql(
            store,
            "INSERT INTO keepers (id, address, version, counts, since, until, seconds) SELECT v.*, counts, since, "
            f"until + 3600, seconds FROM keepers, (VALUES ('a', '{nowhere}', '0.0.1'), "
            f"('b', '{silent}', '{__version__}'), ('c', '', '{__version__}')) AS v WHERE number = 1",
        )
        shown = await examined(tmp_path, store)
        without_key = await examined(tmp_path, store, "")

    assert 1 == shown.code
    assert has(shown, f"bad   server 1 at {addresses[0]} has another cluster key\n .*HOLDFAST_CLUSTER_KEY")
    assert has(shown, rf"ok    server \d+ at {addresses[1]} answers")
    assert has(shown, rf"bad   server \d+ at {nowhere} cannot be reached from here: .+\n .*HOLDFAST_NODE_ADDRESS")
    assert has(shown, rf"bad   server \d+ at {silent} cannot be reached from here: no answer")
    assert has(shown, r"note  server \d+ has no cluster key\n .*by way of the store")
    assert has(shown, rf"note  5 servers, of different versions: 0\.0\.1, {re.escape(__version__)}")
    assert has(without_key, f"note  server 1 at {addresses[0]} has a cluster key, and this one has none")


@requirement("nodes.doctor")
async def test_a_transaction_pooler_is_found_and_the_remedy_named(database, tmp_path):
    """Behind one, hints are lost and statements of one server meet another's."""
    name = await database.new_database()
    async with TransactionPooler(database.port) as pooler:
        shown = await examined(tmp_path, database.url(name, pooler.port))

    assert 1 == shown.code
    assert has(shown, "bad   a pooler in transaction mode stands before PostgreSQL.*\n .*pool_mode = session")


@requirement("nodes.doctor")
async def test_settings_of_postgresql_that_lose_or_block_writes_are_reported(database, tmp_path):
    """Each with its remedy: a standby that is not there, too few connections, commits that are not flushed."""
    name = await database.new_database()
    store = database.url(name)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    async with node(tmp_path / "one", store, addresses[0]), node(tmp_path / "two", store, addresses[1]):
        await sql(
            store, f"ALTER DATABASE {name} CONNECTION LIMIT 20", f"ALTER DATABASE {name} SET synchronous_commit = off"
        )
        tight = await examined(tmp_path, store)
        await sql(database.url("postgres"), f"ALTER DATABASE {name} CONNECTION LIMIT 15")
        too_few = await examined(tmp_path, database.url(name))
    await sql(store, "UPDATE keepers SET fenced = FALSE, until = until - 60 WHERE number = 1")
    await sql(store, "ALTER SYSTEM SET synchronous_standby_names = 'elsewhere'", "SELECT pg_reload_conf()")
    try:
        blocked = await examined(tmp_path, store)
    finally:
        await sql(store, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

    assert has(tight, "note  20 connections allowed; 2 servers may need 16, and there is no room for one more")
    assert has(tight, "note  synchronous_commit is off by default; connections of Holdfast turn it on")
    assert has(too_few, "bad   15 connections allowed; 2 servers may need 16\n .*max_connections")
    assert has(blocked, "bad   no synchronous standby is connected: commits wait until one is\n .*standby_names")
    assert has(blocked, rf"note  server 1 at {addresses[0]} has not renewed its lease.*\n .*takes over its runs")
    assert 1 == too_few.code == blocked.code


@requirement("nodes.doctor")
async def test_a_store_of_a_newer_version_and_one_without_fsync_are_problems(postgres, tmp_path):
    """An old server refuses to start there; a power cut would take everything."""
    store = postgres.url(await postgres.new_database())
    async with node(tmp_path / "one", store, f"127.0.0.1:{free_port()}") as server:
        await server.terminate()
    await sql(store, "INSERT INTO migrations VALUES (9999, 'from_the_future', '', 0)")
    shown = await examined(tmp_path, store)
    await sql(store, "UPDATE migrations SET works_with = 1 WHERE number = 9999")
    compatible = await examined(tmp_path, store)

    assert 1 == shown.code
    assert has(shown, r"bad   store \S+: PostgreSQL .*: schema 9999, and this version knows \d+\n .*Install the newer")
    assert has(shown, "bad   fsync is off")
    assert has(compatible, r"note  store \S+: PostgreSQL .*: schema 9999, and this version knows \d+\n .*Install")
    assert has(compatible, "ok    0 servers running")


def test_the_pooler_of_the_tests_shares_connections(postgres):
    """Else the test above would have found something else."""

    async def processes() -> list[int]:
        async with TransactionPooler(postgres.port) as pooler:
            url = postgres.url("postgres", pooler.port)
            one, two = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(2)]
            found = [await each.fetchval("SELECT pg_backend_pid()") for each in (one, two)]
            async with one.transaction(), two.transaction():
                found += [await each.fetchval("SELECT pg_backend_pid()") for each in (one, two)]
            one.terminate(), two.terminate()
        return found

    first, second, third, fourth = asyncio.run(processes())

    assert first == second
    assert third != fourth
