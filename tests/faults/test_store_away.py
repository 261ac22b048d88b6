"""The store is slow, away, locked by another program, or on a disk that is full."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import Message as AsgiMessage

from holdfast.history import Message, Session
from holdfast.ids import new_id
from holdfast.server.app import create_app
from holdfast.server.settings import Settings
from holdfast.store import FeedEntry, RunRecord
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Frame, FrameParser

# A slow store.


class SlowFeed(MemoryStore):
    """A store that takes its time to read a session's feed, whenever the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def read_feed(self, session_id: str, after: int, limit: int = 512) -> list[FeedEntry]:
        self.asked.set()
        await self.may_answer.wait()
        return await super().read_feed(session_id, after, limit)

    def become_slow(self) -> None:
        self.asked.clear()
        self.may_answer.clear()


class Tab:
    """A browser tab that reads a stream of an ASGI app in this process."""

    def __init__(self, app: Any, path: str) -> None:
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._parser = FrameParser()
        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
        self._task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> AsgiMessage:
        await asyncio.Event().wait()
        raise AssertionError("this tab never leaves by itself")

    async def _send(self, message: AsgiMessage) -> None:
        for frame in self._parser.feed(message.get("body", b"")):
            if frame.kind == "event":
                self._frames.put_nowait(frame)

    async def read(self, until: str) -> list[Frame]:
        """The frames up to one that says something."""
        frames: list[Frame] = []
        async with asyncio.timeout(5):
            while not frames or until not in frames[-1].data:
                frames.append(await self._frames.get())
        return frames

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@requirement("sub.two-tabs")
async def test_a_feed_tells_the_last_words_before_the_message_that_they_are_part_of():
    """Between two looks of a tab a run can say its last words and settle: a slow store must not turn their order."""
    store, said = SlowFeed(), asyncio.Event()

    async def source() -> AsyncIterator[str]:
        yield "first "
        await said.wait()
        yield "last"

    app = create_app(Settings(), store, {})
    parts = app.state.parts
    async with parts.engine:
        session = await store.create_session(Session(id=new_id("ses"), owner="local"))
        record = RunRecord(id=new_id("run"), owner="local", session_id=session.id, message_id=new_id("msg"))
        run = await parts.engine.submit(record, [Message(id="msg_1", role="user", content="hi")], source=source())
        tab = Tab(app, f"/api/sessions/{session.id}/events")
        live = await tab.read(until="first ")

        store.become_slow()
        parts.engine.touch(session.id)
        await store.asked.wait()
        said.set()
        await run.settled()
        store.may_answer.set()
        live += await tab.read(until="run.settled")
        replay = await (again := Tab(app, f"/api/sessions/{session.id}/events")).read(until="run.settled")
        for open_tab in (tab, again):
            await open_tab.close()

    told = [frame.event for frame in live]
    assert ["text.delta", "text.delta", "message.added", "run.settled"] == told[-4:]
    assert [(frame.id, frame.data) for frame in replay] == [(frame.id, frame.data) for frame in live]
