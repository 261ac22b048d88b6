"""`/ready` on a store that reads and does not write, as on a full disk."""

import asyncio

from holdfast.errors import StoreUnavailable
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store.memory import MemoryStore
from holdfast.store.records import NodeDetails, NodeRecord
from tests.requirements import requirement
from tests.support.served import NO_HOME, Served, protocol
from tests.support.waiting import LONG


class FullDisk(MemoryStore):
    """Counts what is written in order to see whether it can be, and refuses it while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.writes = 0

    async def renew(self, node_id: str, seconds: float, details: NodeDetails | None = None) -> NodeRecord | None:
        self.writes += 1
        if self.is_full:
            raise StoreUnavailable("There is no space left on the disk.")
        return await super().renew(node_id, seconds, details)


@requirement("safe.ready")
async def test_a_store_that_cannot_write_is_noticed_by_the_first_who_asks():
    """A load balancer would send requests for some seconds that can only fail."""
    store = FullDisk()
    async with Served(create_app(Settings(), store, NO_HOME), http=protocol()) as served, served.client() as client:
        store.is_full = True
        refused = await client.get("/ready")
        store.is_full = False
        async with asyncio.timeout(LONG):
            while (await client.get("/ready")).status != 200:  # noqa: ASYNC110 - a result counts for a second
                await asyncio.sleep(0.05)

        assert (503, "store_unavailable") == (refused.status, (await refused.json())["error"]["code"])
        assert "retry-after" in refused.headers


@requirement("safe.ready")
async def test_a_crowd_that_asks_makes_the_store_write_once():
    """Anybody may ask, without a key: that must not become a load."""
    store = FullDisk()
    async with Served(create_app(Settings(), store, NO_HOME), http=protocol()) as served, served.client() as client:
        before = store.writes

        answers = await asyncio.gather(*(client.get("/ready") for _ in range(100)))

        assert [200] * 100 == [answer.status for answer in answers]
        assert store.writes - before < 20
