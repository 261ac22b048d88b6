"""Readers of a link, below the server."""

import asyncio

from holdfast.engine.core import Core
from holdfast.log.log import Log
from holdfast.server.features.sharing.links import Spectator
from holdfast.server.features.sharing.shares import Share
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement


@requirement("share.limits")
async def test_a_reader_of_a_link_that_leaves_watches_nothing_any_more(monkeypatch):
    """Otherwise each one that was there costs a call for each token, and a node follows a run for no one."""
    watching, watch, end = set(), Log.watch, asyncio.Event()

    def counted(log, wake):
        leave, number = watch(log, wake), object()
        watching.add(number)
        return lambda: (watching.discard(number), leave())

    async def source():
        yield "Hello"
        await end.wait()

    monkeypatch.setattr(Log, "watch", counted)
    store = MemoryStore()
    async with Core(store) as engine:
        run = await engine.start(source())
        before = set(watching)
        spectator = Spectator(engine, store, Share(session_id="ses_1"), 0)
        await spectator.begin(run, "")
        leave = spectator.watch(lambda: None)
        assert len(watching - before) == 1

        leave()

        assert not watching - before
        end.set()
