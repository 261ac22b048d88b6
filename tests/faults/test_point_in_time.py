"""Recovery of PostgreSQL to a point in time, as docs/cluster.md says it: from a base backup and archived WAL."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.requirements import requirement
from tests.support.native import Native
from tests.support.postgres import Postgres
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream, answer


@pytest.fixture
def archived() -> Iterator[Postgres]:
    """A PostgreSQL of its own, which archives its WAL."""
    server = Postgres(is_archived=True)
    yield server
    server.stop()


async def told(api: Native, session_id: str, up: Upstream, words: str) -> None:
    up.enqueue(answer(words))
    await api.settled(await api.start(session_id, f"Say {words}", "up/m"))


@requirement("store.point-in-time")
async def test_everything_up_to_a_moment_comes_back_and_nothing_after_it(archived, tmp_path):
    """Somebody deletes what must not be lost. A dump of the night before would lose the day."""
    env = {"HOLDFAST_STORE": archived.url(await archived.new_database())}
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)], env=env) as server:
        async with server.client() as client:
            api = Native(client)
            early, late = await api.new_session(), await api.new_session()
            await told(api, early, up, "before the backup")
            backup = await asyncio.to_thread(archived.base_backup)
            await told(api, late, up, "after the backup")
            up.enqueue([Headers(), Role(), Delta("half an answer "), Hang()])
            running = await api.start(await api.new_session(), "Go on", "up/m")
            (await api.shown(running, "half an answer ")).close()
            known = {session: await api.transcript(session) for session in (early, late)}
            moment = await asyncio.to_thread(archived.now)
            await told(api, early, up, "after the moment")
            assert 204 == (await client.request("DELETE", f"/api/sessions/{late}")).status
        await asyncio.to_thread(archived.archive_everything)
        await server.kill9()  # every server is stopped before a restore
        await asyncio.to_thread(archived.recover, backup, moment)
        await server.restart()
        async with server.client() as client:
            api = Native(client)
            found = {session: await api.transcript(session) for session in (early, late)}
            cut = await api.settled(running)
            await told(api, late, up, "and it goes on")
            goes_on = await api.transcript(late)

    assert known == found
    assert ("interrupted", "half an answer ") == (cut["outcome"], cut["text"])
    assert [*known[late], ("user", "Say and it goes on"), ("assistant", "and it goes on")] == goes_on
