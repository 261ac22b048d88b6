"""Three real servers on one real PostgreSQL, with a proxy on each way that a fault can break."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_port
from tests.support.postgres import Postgres
from tests.support.server import Server, UpstreamProcess, provider
from tests.support.tcp_proxy import TcpProxy

NODES = 3
PEER_HOST = "127.0.0.2"
"""A node listens for its peers on 127.0.0.1. The address that it tells them has the same port here, at a proxy."""
CONFIG = "max_runs = 1000\nheartbeat = 1\ndrain = 1"


class Node(NamedTuple):
    """A server, its way to PostgreSQL, and the way of the other nodes to it."""

    server: Server
    store: TcpProxy
    peers: TcpProxy


class Cluster:
    """Equal nodes, and what breaks them. Every fault is over when its method returns."""

    def __init__(self, nodes: list[Node], postgres: Postgres) -> None:
        self.nodes = nodes
        self._postgres = postgres

    async def kill(self, node: Node, seconds: float) -> None:
        """`kill -9` of a node, which starts again after a while."""
        await node.server.kill9()
        await asyncio.sleep(seconds)
        await node.server.restart()

    async def pause(self, node: Node, seconds: float) -> None:
        """Suspend a node, as a debugger or a machine that swaps does."""
        node.server.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            node.server.send_signal(signal.SIGCONT)

    async def cut(self, way: TcpProxy, seconds: float) -> None:
        """Reset the connections of a way, and refuse new ones."""
        way.cut()
        await asyncio.sleep(seconds)
        await way.listen()

    async def silence(self, way: TcpProxy, seconds: float) -> None:
        """Pass nothing on, and keep the connections."""
        way.fall_silent()
        await asyncio.sleep(seconds)
        way.speak()

    async def delay(self, way: TcpProxy, by: float, seconds: float) -> None:
        """Let everything on a way take longer."""
        way.delay = by
        await asyncio.sleep(seconds)
        way.delay = 0.0

    async def kill_postgres(self, seconds: float) -> None:
        """`kill -9` of every process of PostgreSQL, which starts again after a while."""
        await asyncio.to_thread(self._postgres.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._postgres.start)

    async def fail_over(self) -> None:
        """Kill PostgreSQL, and let its synchronous standby take its place."""
        standby = await asyncio.to_thread(self._postgres.standby)
        await asyncio.to_thread(self._postgres.kill)
        await asyncio.to_thread(self._postgres.replace_by, standby)
        for node in self.nodes:
            node.store.to = self._postgres.port
            node.store.cut()
            await node.store.listen()

    async def roll(self) -> None:
        """Restart the nodes one after the other, as an upgrade does."""
        for node in self.nodes:
            await node.server.restart()


@asynccontextmanager
async def cluster(folder: Path, postgres: Postgres) -> AsyncIterator[Cluster]:
    """Start an upstream and the nodes."""
    database = await postgres.new_database()
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(UpstreamProcess(folder / "up"))
        nodes: list[Node] = []
        for number in range(NODES):
            store = await stack.enter_async_context(TcpProxy(postgres.port))
            port = free_port()
            peers = await stack.enter_async_context(TcpProxy(port, host=PEER_HOST, port=port))
            env = {
                "HOLDFAST_STORE": postgres.url(database, store.port),
                "HOLDFAST_CLUSTER_KEY": "k" * 32,
                "HOLDFAST_NODE_ADDRESS": f"{PEER_HOST}:{port}",
            }
            providers = [provider(up.base_url, models=None)]
            server = Server(folder / f"node{number}", providers, config=CONFIG, env=env)
            nodes.append(Node(await stack.enter_async_context(server), store, peers))
        yield Cluster(nodes, postgres)
