"""nginx and Caddy in front of several servers, set up as docs/cluster.md says, while a server is killed."""

from contextlib import AsyncExitStack

import pytest

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.proxies import caddy, nginx
from tests.support.server import Server, provider
from tests.support.upstream import TEXT, Upstream, answer

NAME = "chat.example.com"
HEADERS = {"host": NAME, "authorization": "Bearer alice"}


@requirement("nodes.any")
@pytest.mark.parametrize("proxy", [nginx, caddy])
async def test_a_chat_continues_through_the_proxy_when_a_server_is_killed(postgres, tmp_path, proxy):
    """Each request may come to another server, and none to the one that is gone."""
    store = postgres.url(await postgres.new_database())
    async with Upstream(answer(TEXT)) as up, AsyncExitStack() as stack:
        servers = []
        for name in ("one", "two", "three"):
            env = {
                "HOLDFAST_STORE": store,
                "HOLDFAST_CLUSTER_KEY": "k" * 32,
                "HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{free_port()}",
                "HOLDFAST_API_KEY": "alice",
            }
            config = f'allowed_hosts = ["{NAME}"]'
            server = Server(tmp_path / name, [provider(up.base_url)], config=config, env=env)
            servers.append(await stack.enter_async_context(server))
        url = await stack.enter_async_context(proxy(tmp_path, *(server.port for server in servers)))
        async with Client(url, HEADERS) as client:
            session = await Native(client).new_session()
            await Native(client).settled(await Native(client).start(session, "before", "up/m"))
        await servers[0].kill9()
        statuses, outcomes = [], []
        for _ in range(6):
            async with Client(url, HEADERS) as client:
                statuses.append((await client.get(f"/api/sessions/{session}")).status)
                run = await Native(client).start(session, "after", "up/m")
                outcomes.append((await Native(client).settled(run))["outcome"])

    assert [200] * 6 == statuses
    assert ["completed"] * 6 == outcomes
