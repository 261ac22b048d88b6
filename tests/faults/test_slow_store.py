"""A store that answers late, so that something happens between two reads of one request."""

import asyncio

from holdfast.history import Session
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.waiting import LONG


class SlowStore(MemoryStore):
    """A store whose next answer to `get_session` is held back."""

    def __init__(self) -> None:
        super().__init__()
        self.holds_next = False
        self.held = asyncio.Event()
        self.released = asyncio.Event()

    async def get_session(self, session_id: str) -> Session | None:
        session = await super().get_session(session_id)
        if self.holds_next:
            self.holds_next = False
            self.held.set()
            await self.released.wait()
        return session


@requirement("sub.two-tabs")
async def test_a_session_that_is_opened_while_its_run_ends_shows_the_response_or_its_feed_does():
    """The page shows the view, and then what comes after it in the feed. A response in neither is lost."""
    store = SlowStore()
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), store, NO_HOME)
    async with Served(app) as served, served.client() as client:
        api = Native(client)
        session = await api.new_session()
        run = await api.start(session, "Hello", "scripted/lorem:1000000:20")
        await api.shown(run, "Lorem")
        store.holds_next = True
        opening = asyncio.create_task(api.session(session))
        async with asyncio.timeout(LONG):
            await store.held.wait()
            stopping = asyncio.create_task(api.stop(run))
            while (await store.get_run(run)).status != "settled":  # noqa: ASYNC110
                await asyncio.sleep(0)
            store.released.set()
            view = await opening
            await stopping

        later = await store.read_feed(session, int(view["feed"]))
        shown = [message["role"] for message in view["messages"]]
        added = [entry.data["message"]["role"] for entry in later if entry.type == "message.added"]
        assert ["user", "assistant"] == shown + added
        assert (view["active_run"] is not None) == ("run.settled" in [entry.type for entry in later])
