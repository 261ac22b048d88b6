"""`holdfast serve` on PostgreSQL: settings, readiness, commands, and two servers on one store."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Engine
from holdfast.errors import StoreUnavailable
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server, StartFailed, clean_environment, provider
from tests.support.tcp_proxy import TcpProxy
from tests.support.upstream import TEXT, Delta, Done, Gate, Headers, Role, Upstream, answer
from tests.support.waiting import LONG

PASSWORD = "pw-that-nobody-sees"


def holdfast(
    *arguments: str, folder, store: str = "", input: str = "", version: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with the settings of a folder: of this version, or of the one in the folder `version`."""
    env = clean_environment() | {"HOLDFAST_DATA": str(folder), "HOME": str(folder)}
    if version is not None:
        env["PYTHONPATH"] = os.pathsep.join([str(version), env["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        env=env | ({"HOLDFAST_STORE": store} if store else {}),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        input=input,
    )


async def until_ready(server: Server, status: int) -> None:
    async with asyncio.timeout(LONG), server.client() as client:
        while True:
            if status == (await client.get("/ready")).status:
                return
            await asyncio.sleep(0.1)


@requirement("nodes.store-away", "safe.store-password")
async def test_a_server_on_postgresql_is_ready_only_while_it_can_be_reached(postgres, tmp_path):
    """And what was said before is there afterwards. The password is in neither its log nor its answers."""
    name = await postgres.new_database()
    async with TcpProxy(postgres.port) as proxy, Upstream(answer(TEXT)) as up:
        store = postgres.url(name, proxy.port).replace("holdfast@", f"holdfast:{PASSWORD}@")
        async with Server(tmp_path, [provider(up.base_url)], env={"HOLDFAST_STORE": store}) as server:
            async with server.client() as client:
                api = Native(client)
                session = await api.new_session()
                run = await api.start(session, "hello", "up/m")
                assert "completed" == (await api.settled(run))["outcome"]
                await until_ready(server, 200)
                proxy.cut()
                await until_ready(server, 503)
                refused = await (await client.get("/ready")).text()
                await proxy.listen()
                await until_ready(server, 200)
                kept = await api.run(run)

            assert "completed" == kept["settlement"]["outcome"]
            assert PASSWORD not in refused + server.log_text()


@requirement("nodes.any")
async def test_a_run_of_one_server_is_read_and_stopped_through_another(postgres, tmp_path):
    """Both show the same chats. A reader at either follows the run, and a stop at either stops it."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    addresses = [{"HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{free_port()}"} for _ in range(2)]
    async with Upstream([Headers(), Role(), Delta("half "), Gate("never"), Done()]) as up:
        one = Server(tmp_path / "one", [provider(up.base_url)], env=env | addresses[0])
        two = Server(tmp_path / "two", [provider(up.base_url)], env=env | addresses[1])
        async with one, two, one.client() as first, two.client() as second:
            here, there = Native(first), Native(second)
            session = await here.new_session()
            run = await here.start(session, "hello", "up/m")
            reader = await there.shown(run, "half ")
            stopped = await second.post(f"/api/runs/{run}/stop", {})
            settled = await here.settled(run)
            rest = await reader.all_events()
            said = await there.get(f"/api/sessions/{session}")

    assert 200 == stopped.status
    assert ("stopped", "user") == (settled["outcome"], settled["by"])
    assert "run.settled" == rest[-1].event
    assert "half " in str(said)


@requirement("nodes.takeover")
async def test_a_run_whose_server_was_killed_is_settled_by_another_for_its_reader(postgres, tmp_path):
    """The reader sits at the server that lives: it waits, and misses neither a word nor the end."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    addresses = [{"HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{free_port()}"} for _ in range(2)]
    async with Upstream([Headers(), Role(), Delta("half "), Gate("never"), Done()]) as up:
        one = Server(tmp_path / "one", [provider(up.base_url)], env=env | addresses[0])
        two = Server(tmp_path / "two", [provider(up.base_url)], env=env | addresses[1])
        async with one, two, one.client() as first, two.client() as second:
            run = await Native(first).start(await Native(first).new_session(), "hello", "up/m")
            reader = await Native(second).shown(run, "half ")
            await one.kill9()
            rest = await reader.all_events()
            settled = (await Native(second).run(run))["settlement"]

    assert ["run.settled"] == [frame.event for frame in rest if frame.event]
    assert ("interrupted", "half ") == (settled["outcome"], settled["text"])


@requirement("safe.store-password")
def test_the_address_of_the_store_is_shown_without_its_password(tmp_path):
    """In the list of settings, and in the error of a server that cannot be reached."""
    url = f"postgresql://ann:{PASSWORD}@127.0.0.1:1/chats?password={PASSWORD}"
    shown = holdfast("config", "show", folder=tmp_path, store=url)
    doctor = holdfast("doctor", folder=tmp_path, store=url)
    served = holdfast("serve", "--port", "0", folder=tmp_path, store=url)

    assert "postgresql://ann@127.0.0.1:1/chats" in shown.stdout
    assert "PostgreSQL" in served.stderr
    assert 0 != served.returncode
    for said in (shown, doctor, served):
        assert PASSWORD not in said.stdout + said.stderr


@requirement("safe.store-password")
@pytest.mark.parametrize("password", ["s3cr/et", "s3cr#et", "s3cr?et", "s3cr@et", "s3cr[et"])
def test_a_password_that_is_not_escaped_is_not_shown_either(tmp_path, password):
    """A URL is cut at such a character, and the rest of the password was taken for a host, a path or a port."""
    url = f"postgresql://ann:{password}@127.0.0.1:1/chats"
    shown = holdfast("config", "show", folder=tmp_path, store=url)
    doctor = holdfast("doctor", folder=tmp_path, store=url)
    served = holdfast("serve", "--port", "0", folder=tmp_path, store=url)

    assert 0 != served.returncode
    for said in (shown, doctor, served):
        assert "s3cr" not in said.stdout + said.stderr
        assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("value", "reason"), [("mysql://h/db", "must be postgresql://"), ("/var/lib/holdfast", "To store in SQLite")]
)
def test_a_store_of_another_kind_is_refused(tmp_path, value, reason):
    """A misspelt address must not become a folder of that name."""
    served = holdfast("serve", folder=tmp_path, store=value)

    assert reason in served.stderr
    assert [] == [name for name in os.listdir(tmp_path) if name.startswith(("mysql", "holdfast.db"))]


def test_commands_for_sqlite_name_the_tool_for_postgresql(postgres, tmp_path):
    """A backup of an empty data folder would be taken for one of the chats. Keys work on both."""
    url = postgres.new_url()
    made = holdfast("key", "new", "ann", folder=tmp_path, store=url)
    listed = holdfast("key", "ls", folder=tmp_path, store=url)
    revoked = holdfast("key", "revoke", "ann", folder=tmp_path, store=url)
    backup = holdfast("backup", "b.tar.gz", folder=tmp_path, store=url)

    assert 0 == made.returncode, made.stderr
    assert "ann" in listed.stdout
    assert "Revoked ann." in revoked.stdout
    assert "pg_dump" in backup.stderr
    assert not (tmp_path / "holdfast.db").exists()


WITHOUT_DRIVER = """
import sys
from pathlib import Path
sys.modules["asyncpg"] = None
from holdfast.cli import main
main(["serve", "--port", "0", "--store", "postgresql://ann@127.0.0.1:1/chats"])
"""


def test_without_the_driver_the_error_names_what_to_install(tmp_path):
    """`pip install holdfast[server]` has no driver for PostgreSQL."""
    served = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER],
        env=clean_environment() | {"HOLDFAST_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "holdfast[postgres]'" in served.stderr
    assert "Traceback" not in served.stderr


@pytest.mark.parametrize(("user", "database"), [("nobody", "postgres"), ("holdfast", "nowhere")])
async def test_a_wrong_user_or_database_is_told_from_a_server_that_is_away(postgres, user, database):
    """Whoever is sent to look at a running server does not look at the address."""
    url = postgres.url(database).replace("holdfast@", f"{user}@")
    with pytest.raises(StoreUnavailable, match="Check the user, the password and the database"):
        async with Engine(url):
            pass


@requirement("nodes.port-taken")
async def test_a_port_for_other_servers_that_is_taken_is_one_line(postgres, tmp_path):
    """As with the port for clients: what, why, and what to do, instead of a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env = {
            "HOLDFAST_STORE": postgres.url(await postgres.new_database()),
            "HOLDFAST_CLUSTER_KEY": "k" * 32,
            "HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{port}",
        }
        with pytest.raises(StartFailed, match="ended with 1;") as refused:
            async with Server(tmp_path, [provider("http://127.0.0.1:1/v1")], env=env):
                pass

    assert f"Error: Cannot listen on 127.0.0.1:{port} for the other servers: Address already in use. " in str(
        refused.value
    )
    assert "Set node_address" in str(refused.value)
    assert "Traceback" not in str(refused.value)


async def wal_metrics_when(is_so, client):
    """Wait until the metrics of PostgreSQL's write-ahead log are so, and return them by their names."""
    async with asyncio.timeout(LONG):
        while True:
            families = text_string_to_metric_families(await (await client.get("/metrics")).text())
            samples = [each for family in families for each in family.samples]
            if is_so(shown := {each.name: each.value for each in samples if "_postgres_" in each.name}):
                return shown
            await asyncio.sleep(0.05)


@requirement("ops.metrics-wal")
async def test_the_write_ahead_log_of_postgresql_and_what_it_keeps_for_a_slot_are_metrics(postgres, tmp_path):
    """A standby that is away lets PostgreSQL keep its log until the disk is full."""
    url, slot = postgres.url(await postgres.new_database()), f"away_{free_port()}"
    database = await asyncpg.connect(url)
    try:
        await database.execute("SELECT pg_create_physical_replication_slot($1, TRUE)", slot)
        before = await database.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        async with Server(tmp_path, config="metrics = true\n", env={"HOLDFAST_STORE": url}) as server:
            async with server.client() as client:
                shown = await wal_metrics_when(lambda shown: len(shown) == 2, client)
    finally:
        await database.execute("SELECT pg_drop_replication_slot($1)", slot)
        await database.close()

    assert shown["holdfast_postgres_wal_bytes_total"] >= before
    assert 0 <= shown["holdfast_postgres_slot_lag_bytes"] < shown["holdfast_postgres_wal_bytes_total"]


@requirement("ops.metrics-wal")
@pytest.mark.one_server("each node says it once")
async def test_without_the_right_to_read_it_the_write_ahead_log_is_absent_and_the_log_says_so(postgres, tmp_path):
    """A managed PostgreSQL may not let its users see it. A zero would look like an idle database."""
    name, role = await postgres.new_database(), f"limited_{free_port()}"
    database = await asyncpg.connect(postgres.url(name))
    try:
        await database.execute(f"CREATE ROLE {role} LOGIN")
        await database.execute(f"ALTER DATABASE {name} OWNER TO {role}")
        await database.execute("REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn() FROM PUBLIC")
    finally:
        await database.close()
    env = {"HOLDFAST_STORE": postgres.url(name).replace("holdfast@", f"{role}@")}
    async with Server(tmp_path, config="metrics = true\n", env=env) as server, server.client() as client:
        shown = await wal_metrics_when(lambda shown: "write-ahead log is not measured" in server.log_text(), client)
        log = server.log_text()

    assert {} == shown
    assert 1 == log.count("GRANT EXECUTE ON FUNCTION pg_current_wal_lsn()")
