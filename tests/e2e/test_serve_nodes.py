"""`holdfast serve --nodes`: several processes on one port, and the one that looks after them."""

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from holdfast.server.features.accounts.made_keys import new_key
from tests.e2e.test_cli import Shell
from tests.e2e.test_nodes import listed, until
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server, StartFailed, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Upstream
from tests.support.waiting import LONG

SCRIPTED = {"name": "scripted", "dialect": "scripted"}


async def several(folder: Path, postgres, providers=(SCRIPTED,), count: int = 3, config: str = "") -> Server:
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database())}
    return Server(folder, providers, config=config, env=env, args=["--nodes", str(count)], port=free_port(count + 1))


def children(pid: int) -> set[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return set(map(int, found.stdout.split()))


async def have_ended(pids: set[int]) -> None:
    async def left() -> list[int]:
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    await until(left, lambda left: not left)


@requirement("nodes.serve")
async def test_a_node_that_is_killed_is_started_again_and_the_others_answer_meanwhile(postgres, tmp_path):
    """Each has an address of its own for the others, and all of them serve one port."""
    async with await several(tmp_path, postgres) as server:
        before = await listed(server)
        pids = children(server.pid)
        victim = min(pids)
        os.kill(victim, signal.SIGKILL)
        await have_ended({victim})  # a connection that the kernel had given to it is lost with it
        answers = []
        for _ in range(20):
            async with server.client() as client:  # a connection of its own: the kernel chooses its node
                answers.append((await client.get("/health")).status)
        await until(lambda: asyncio.to_thread(children, server.pid), lambda now: len(now) == 3 and victim not in now)
        await until(lambda: listed(server), lambda nodes: 3 == sum(node["alive"] for node in nodes))
        await until(lambda: listed(server), lambda nodes: {n["number"] for n in before} != {n["number"] for n in nodes})
        log = server.log_text()

    assert [f"127.0.0.1:{server.port + n}" for n in (1, 2, 3)] == sorted(node["address"] for node in before)
    assert [200] * 20 == answers
    assert "ended with -9, and is started again in 1 s" in log
    assert 1 == log.count("Holdfast is ready on")


@requirement("nodes.serve")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_all_nodes_after_their_runs(postgres, tmp_path, number):
    """The run is drained: it completes before the processes are gone. The exit code is 0."""
    script = [Headers(), Role(), Delta("one "), Gate(), Delta("two"), Finish(), Done()]
    async with Upstream(script) as up:
        async with await several(tmp_path, postgres, [provider(up.base_url)], config="drain = 60.0") as server:
            pids = children(server.pid)
            async with server.client() as client:
                api = Native(client)
                run = await api.start(await api.new_session(), "hello", "up/m")
                (await api.shown(run, "one ")).close()
                server.send_signal(number)
                await until(lambda: refuses(server), lambda refused: refused)
                up.open()
            async with asyncio.timeout(LONG):
                code = await server._process.wait()
            await have_ended(pids)
            await server.restart()
            async with server.client() as client:
                settlement = (await Native(client).run(run))["settlement"]

    assert ("completed", "one two") == (settlement["outcome"], settlement["text"])
    assert 0 == code


async def refuses(server: Server) -> bool:
    """Whether no node takes new runs: one that ends in good order has left the list, or answers no more."""
    try:
        async with server.client() as client:
            return 200 != (await client.get("/ready")).status
    except OSError:
        return True


@requirement("nodes.serve")
async def test_the_exit_code_tells_of_a_node_that_did_not_end_well(postgres, tmp_path):
    """Killed while it drained, it has settled nothing."""
    script = [Headers(), Role(), Delta("one "), Gate()]
    async with Upstream(script) as up:
        async with await several(tmp_path, postgres, [provider(up.base_url)], config="drain = 60.0") as server:
            pids = children(server.pid)
            async with server.client() as client:
                api = Native(client)
                run = await api.start(await api.new_session(), "hello", "up/m")
                reader = await api.shown(run, "one ")
                server.send_signal(signal.SIGTERM)
                await until(lambda: asyncio.to_thread(children, server.pid), lambda now: len(now) == 1)
                for pid in children(server.pid):
                    os.kill(pid, signal.SIGKILL)
                reader.close()
            async with asyncio.timeout(LONG):
                code = await server._process.wait()
            await have_ended(pids)

    assert 1 == code


@requirement("nodes.serve")
async def test_nodes_end_with_the_process_that_looks_after_them(postgres, tmp_path):
    """A port that is served by processes that nobody knows of could not be used again."""
    async with await several(tmp_path, postgres) as server:
        pids = children(server.pid)
        await server.kill9(group=False)
        await have_ended(pids)
        await server.restart()

        assert 3 == len(children(server.pid))


@requirement("nodes.serve", "ops.reload")
async def test_sighup_makes_every_node_read_the_settings_again(postgres, tmp_path):
    """A node that is started later reads them as they are then. Otherwise the nodes would answer by different rules."""
    async with await several(tmp_path, postgres, count=2) as server:
        server.rewrite('[aliases]\nmine = "scripted/echo"\n', [SCRIPTED])
        server.send_signal(signal.SIGHUP)
        await until(
            lambda: asyncio.to_thread(server.log_text),
            lambda log: 2 == log.count("the settings were reloaded: changed aliases"),
        )
        newest = max(node["number"] for node in await listed(server))
        victim = min(children(server.pid))
        os.kill(victim, signal.SIGKILL)
        await have_ended({victim})  # a connection that the kernel had given to it is lost with it
        await until(lambda: listed(server), lambda nodes: newest < max(node["number"] for node in nodes))
        answers = [await asked(server, "mine") for _ in range(20)]

    assert [200] * 20 == answers


@requirement("nodes.serve", "nodes.settings")
async def test_without_a_cluster_key_nodes_save_no_provider_that_the_next_start_could_not_read(postgres, tmp_path):
    """They make a key for themselves, which is gone with them. What it had sealed would stop every later start."""
    added = {"name": "new", "base_url": "http://127.0.0.1:9/v1", "models": ["m"]}
    async with await several(tmp_path, postgres, count=2) as server:
        async with server.client() as client:
            response = await client.request("PUT", "/api/settings", json={"providers": [added]})
            told = await response.json()
        await server.restart()
        answer = await asked(server, "scripted/echo")

    assert (503, "settings_not_saved") == (response.status, told["error"]["code"])
    assert "cluster_key" in told["error"]["message"]
    assert 200 == answer


async def asked(server: Server, model: str) -> int:
    """Return the status of an answer, on a connection of its own: the kernel chooses its node."""
    async with server.client() as client:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        return (await client.post("/v1/chat/completions", json=body)).status


@requirement("nodes.serve")
async def test_nodes_that_cannot_start_end_the_command(postgres, tmp_path):
    """A wrong setting is an error, not a loop: here the port for the peers of the second node is taken."""
    server = await several(tmp_path, postgres)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", server.port + 2))
        taken.listen()
        with pytest.raises(StartFailed, match=r"node 2 ended with \d before it was ready"):
            async with server:
                pass


@pytest.mark.parametrize("nodes", ["0", "65", "many"])
async def test_a_number_of_nodes_that_makes_no_sense_is_refused(tmp_path, nodes):
    """With the range in the message."""
    shown = await Shell(tmp_path, {})("serve", "--nodes", nodes)

    assert 2 == shown.code
    assert "--nodes" in shown.err


async def test_on_sqlite_several_nodes_are_refused_with_the_reason(tmp_path):
    """Each process would keep the others out of the file."""
    shown = await Shell(tmp_path, {"HOLDFAST_PORT": str(free_port())})("serve", "--nodes", "2")

    assert 1 == shown.code
    assert "--nodes needs a store on PostgreSQL: SQLite is for one process." in shown.err
    assert not (tmp_path / "data" / "holdfast" / "holdfast.db").exists()


@requirement("nodes.serve", "nodes.settings")
async def test_without_a_cluster_key_in_the_settings_no_provider_is_saved_that_the_next_start_could_not_read(
    postgres, tmp_path
):
    """The key that the nodes trust each other by is gone when they end, and settings that it encrypts are with it."""
    async with await several(tmp_path, postgres, count=2) as server:
        async with server.client() as client:
            added = {"name": "new", "base_url": "http://127.0.0.1:9/v1", "api_key": "sk-new", "models": ["m"]}
            refused = await client.request("PUT", "/api/settings", json={"providers": [added]})
            error = (await refused.json()).get("error", {})
        await server.restart()
        async with server.client() as client:
            health = (await client.get("/health")).status

    assert (503, "settings_not_saved") == (refused.status, error.get("code"))
    assert 200 == health


@requirement("nodes.serve", "ops.reload")
async def test_a_reload_by_request_removes_a_key_on_every_node(postgres, tmp_path):
    """The request reaches one of them. A key that leaked would open the others until a restart."""
    keys = {name: new_key(name, admin=True) for name in ("ann", "bob")}
    tables = {
        name: f'[[keys]]\nname = "{name}"\nadmin = true\nsha256 = "{key.record.sha256}"\n' for name, key in keys.items()
    }
    async with await several(tmp_path, postgres, config="".join(tables.values())) as server:
        server.rewrite(tables["ann"], [SCRIPTED])
        async with server.client() as client:
            headers = {"authorization": f"Bearer {keys['ann'].key}"}
            changed = (await (await client.post("/api/settings/reload", headers=headers)).json())["changed"]
        await until(
            lambda: asyncio.to_thread(server.log_text),
            lambda log: 3 == log.count("key of bob: revoked"),
        )

    assert ["keys"] == changed
