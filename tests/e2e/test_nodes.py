"""`GET /api/nodes` and `holdfast nodes`: what operators see of the servers that share a store."""

import asyncio
import json
import re
import signal
from contextlib import AsyncExitStack

import pytest

from holdfast import __version__
from tests.e2e.test_cli import Shell, here
from tests.e2e.test_cli_tables import columns, screen
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server, provider
from tests.support.tcp_proxy import TcpProxy
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Upstream
from tests.support.waiting import LONG

SCRIPTED = {"name": "scripted", "dialect": "scripted"}
ISO = r"2\d{3}-\d\d-\d\dT[\d:.]+Z"


async def listed(server: Server) -> list[dict]:
    async with server.client() as client:
        return (await Native(client).get("/api/nodes"))["nodes"]


async def said_of_readiness(client: Client) -> dict:
    return (await (await client.get("/ready")).json())["error"]


async def until(found, holds) -> None:
    """Wait until what a coroutine function returns fulfils a condition."""
    async with asyncio.timeout(LONG):
        while True:
            if holds(await found()):
                return
            await asyncio.sleep(0.1)


@requirement("nodes.list", "nodes.drain")
async def test_a_server_that_ends_is_listed_as_draining_while_its_runs_go_on(postgres, tmp_path):
    """An operator who restarts servers one by one sees which of them is still at work."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database())}
    script = [Headers(), Role(), Delta("half "), Gate(), Finish(), Done()]
    async with Upstream(script) as up, AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                Server(tmp_path / name, [provider(up.base_url)], config="drain = 60.0", env=env)
            )
            for name in ("one", "two")
        ]
        async with one.client() as client:
            run = await Native(client).start(await Native(client).new_session(), "hello", "up/m")
            (await Native(client).shown(run, "half ")).close()
            one.send_signal(signal.SIGTERM)
            await until(lambda: listed(two), lambda nodes: [True, False] == [node["draining"] for node in nodes])
        shown = await Shell(tmp_path, {})("nodes", "--url", two.url)
        up.open()
        await until(lambda: listed(two), lambda nodes: [False] == [node["draining"] for node in nodes])

    assert (0, 1) == (shown.code, shown.out.count("draining"))


@requirement("nodes.list")
async def test_each_server_of_a_store_is_listed_with_its_runs_until_it_has_ended(postgres, tmp_path):
    """Through any of them. One that ends in good order leaves the list at once, one that was killed does later."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    async with Upstream([Headers(), Role(), Delta("half "), Gate("never")]) as up, AsyncExitStack() as stack:
        one, two, three = servers = [
            Server(tmp_path / str(n), [provider(up.base_url)], env=env | {"HOLDFAST_NODE_ADDRESS": address})
            for n, address in enumerate(addresses)
        ]
        for server in servers:
            await stack.enter_async_context(server)
        nodes = await listed(two)
        async with one.client() as client:
            await Native(client).start(await Native(client).new_session(), "hello", "up/m")
        await until(lambda: listed(two), lambda nodes: [1, 0, 0] == [node["runs"] for node in nodes])
        await three.terminate()
        after_end = await listed(two)
        await one.kill9()
        await until(lambda: listed(two), lambda nodes: addresses[1:2] == [node["address"] for node in nodes])

    assert addresses == [node["address"] for node in nodes]
    assert [False, True, False] == [node["this"] for node in nodes]
    assert [True] * 3 == [node["alive"] for node in nodes]
    assert {__version__} == {node["version"] for node in nodes}
    assert all(0 < node["lease_left"] <= 9 for node in nodes)
    assert all(re.fullmatch(ISO, node["since"]) for node in nodes)
    assert [node["number"] for node in nodes] == sorted({node["number"] for node in nodes})
    assert addresses[:2] == [node["address"] for node in after_end]


@requirement("nodes.list")
async def test_on_sqlite_there_is_one_node(tmp_path):
    """Also after a restart: what the last process was is over."""
    async with Server(tmp_path, [SCRIPTED]) as server:
        before = await listed(server)
        await server.restart()
        after = await listed(server)

    for (node,) in (before, after):
        assert (True, True, None, 0) == (node["this"], node["alive"], node["address"], node["runs"])
        assert 0 < node["lease_left"] <= 15
    assert before[0]["id"] != after[0]["id"]


@requirement("nodes.list")
@pytest.mark.parametrize("width", [80, 44])
async def test_the_command_shows_the_servers_within_the_terminal(postgres, tmp_path, width):
    """And whole in a pipe, and as JSON for programs."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    address = f"127.0.0.1:{free_port()}"
    async with Server(tmp_path / "one", [SCRIPTED], env=env | {"HOLDFAST_NODE_ADDRESS": address}) as one:
        shell = Shell(tmp_path, here(one))
        lines = await screen(shell, width, "nodes")
        piped = (await shell("nodes")).out.splitlines()
        (node,) = json.loads((await shell("nodes", "--json")).out)

    assert [] == [line for line in lines if len(line) > width]
    first, second = columns(lines)[0], columns(lines)[1]
    assert ["NODE", "STATE", "SINCE", "RUNS", "LEASE"] == first[:5]
    assert ["1", "alive", "0"] == [second[0], second[1], second[3]]
    assert address in lines[1 if width == 80 else 2]
    assert "this node" in lines[1 if width == 80 else 2]
    assert "node\tstate\tsince\truns\tlease\tversion\taddress\tthis\tid" == piped[0]
    assert re.fullmatch(rf"1\talive\t{ISO}\t0\t[\d.]+\t{__version__}\t{address}\tthis\teng_\w+", piped[1])
    assert (address, True) == (node["address"], node["alive"])


async def test_without_a_server_the_command_starts_none(tmp_path):
    """One that it started would be the only one in the list."""
    shown = await Shell(tmp_path, {"HOLDFAST_PORT": "1"})("nodes")

    assert (1, "") == (shown.code, shown.out)
    assert "holdfast serve" in shown.err


@requirement("nodes.store-away")
async def test_the_list_and_readiness_name_postgresql_while_it_cannot_be_reached(postgres, tmp_path):
    """The reason is in the answer: an operator looks there first. Then the engine has noticed it too."""
    name = await postgres.new_database()
    async with TcpProxy(postgres.port) as proxy:
        async with Server(tmp_path, [SCRIPTED], env={"HOLDFAST_STORE": postgres.url(name, proxy.port)}) as server:
            async with server.client() as client:
                proxy.cut()
                nodes = await client.get("/api/nodes")
                ready = await client.get("/ready")
                answers = [(await nodes.json())["error"], (await ready.json())["error"]]
                await until(
                    lambda: said_of_readiness(client), lambda said: said["message"].startswith("The store cannot be")
                )

    assert [503, 503] == [nodes.status, ready.status]
    assert ["store_unavailable"] * 2 == [answer["code"] for answer in answers]
    assert "PostgreSQL" in answers[0]["message"]
