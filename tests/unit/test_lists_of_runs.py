"""Lists of runs, and sources that find no room."""

import pytest

from holdfast.access import LOCAL
from holdfast.engine.core import Core
from holdfast.errors import RunLimitReached
from holdfast.events import Finish, Text
from holdfast.runs.run import Limits
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store.memory import MemoryStore
from tests.support.native import Native
from tests.support.served import NO_HOME, Served


class Counting(MemoryStore):
    """Counts the reads of single runs, and deletes each run that it has listed."""

    reads = 0
    deletes = False

    async def get_run(self, run_id):
        self.reads += 1
        return await super().get_run(run_id)

    async def list_runs(self, **which):
        listed = await super().list_runs(**which)
        for record in listed if self.deletes and which.get("owner") is not None else ():
            await self.delete_run(record.id)
        return listed


async def test_a_list_of_runs_reads_the_store_once_and_does_not_fail_for_one_that_is_deleted_meanwhile():
    """Each run was read once more. If retention deleted one in between, the whole list was 404."""
    store = Counting()
    async with Core(store) as engine:
        for word in ("one", "two", "three"):
            await (await engine.start(said(word), keep=True, owner=LOCAL)).settled()
    async with Served(create_app(Settings(), store, NO_HOME)) as served, served.client() as client:
        store.reads = 0
        store.deletes = True
        shown = await Native(client).get("/api/runs")

    assert ["three", "two", "one"] == [run["text"] for run in shown["runs"]]
    assert 0 == store.reads


async def said(text: str):
    yield Text(text)
    yield Finish("stop")


@pytest.mark.parametrize("keep", [False, True])
async def test_a_source_for_which_there_is_no_room_is_closed(keep):
    """It may hold a connection to an upstream."""
    closed = []

    class Source:
        def __aiter__(self):
            return self

        async def __anext__(self):
            raise StopAsyncIteration

        async def aclose(self):
            closed.append(True)

    async with Core(MemoryStore(), limits=Limits(runs=0)) as engine:
        with pytest.raises(RunLimitReached):
            await engine.start(Source(), keep=keep)

    assert [True] == closed
