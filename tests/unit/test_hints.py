"""Hints between the servers of a PostgreSQL store."""

import asyncio

import asyncpg

from holdfast.store.postgres.hints import HintListener
from tests.requirements import requirement
from tests.support.waiting import LONG


@requirement("nodes.hints")
async def test_a_notification_of_another_program_is_counted_and_logged_once(postgres, caplog):
    """Any user of the database may send one. Each was a traceback in the log of every server."""
    url = postgres.url(await postgres.new_database())
    came, connected = asyncio.Event(), asyncio.Event()
    listener = HintListener(url)
    listener.listen("node", lambda topic, id: (came if topic else connected).set())
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(LONG):
            await connected.wait()
            for payload in ("", "junk", '{"topic": 1}', '["session"]', '["session", [1]]'):
                await connection.execute("SELECT pg_notify('holdfast', $1)", payload)
            await connection.execute("SELECT pg_notify('holdfast', $1)", '["session", ["ses_1"]]')
            await came.wait()
    finally:
        await connection.close()
        await listener.close()

    assert 5 == listener.foreign
    (record,) = [each for each in caplog.records if each.name == "holdfast.store.postgres.hints"]
    assert "not from a server of this store" in record.message
    assert record.exc_info is None
