"""Real servers on one PostgreSQL, as the measurements of nodes need them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg

from bench.instruments import Upstream
from tests.support.ports import free_port
from tests.support.postgres import Postgres
from tests.support.server import Server, provider


class Cluster(NamedTuple):
    """Equal servers, their store, and the upstream that they share."""

    servers: Sequence[Server]
    postgres: Postgres
    database: str
    upstream: Upstream

    async def fetch(self, query: str) -> list[tuple[object, ...]]:
        """Ask PostgreSQL."""
        connection = await asyncpg.connect(self.postgres.url(self.database))
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()


@asynccontextmanager
async def cluster(folder: Path, count: int, models: Sequence[str], *, config: str = "") -> AsyncIterator[Cluster]:
    """Start so many servers, with durable commits in PostgreSQL."""
    postgres = await asyncio.to_thread(Postgres, is_durable=True)
    upstream = Upstream()
    try:
        async with AsyncExitStack() as stack:
            database = await postgres.new_database()
            servers = [
                Server(
                    folder / f"node{n}",
                    [provider(f"http://127.0.0.1:{upstream.port}/v1", models=models)],
                    config=f"max_runs = 20000\nmax_connections = 20000\nmax_connections_per_address = 20000\n{config}",
                    env={
                        "HOLDFAST_STORE": postgres.url(database),
                        "HOLDFAST_CLUSTER_KEY": "k" * 32,
                        "HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{free_port()}",
                    },
                )
                for n in range(count)
            ]
            for server in servers:
                await stack.enter_async_context(server)
            yield Cluster(servers, postgres, database, upstream)
    finally:
        upstream.stop()
        await asyncio.to_thread(postgres.stop)
