"""How often the readers of sessions read the store: counted call by call, so that no machine changes the figures."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from holdfast.access import LOCAL
from holdfast.history import Message, Session
from holdfast.ids import new_id
from holdfast.runs.run import Run
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store import RunRecord, Store
from holdfast.store.opening import open_store
from tests.requirements import requirement
from tests.support.http import Client, Frame, Response
from tests.support.ports import free_port
from tests.support.served import NO_HOME, Served
from tests.support.waiting import LONG

READS = {"feed_place", "get_message", "get_run", "get_session", "list_runs", "messages", "open_session", "queued"}
READS |= {"read_feed", "read_log"}
"""Calls of a store that read sessions and runs. A node makes others in the background."""
WORDS = 20
OPEN_CHATS = [1, 10, 50]


class CountedStore:
    """Passes every call on to a store, and counts those that read. Each is one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads: Counter[str] = Counter()
        self.entries = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return self._counted(name, method) if name in READS else method

    def _counted(self, name: str, method: Any) -> Any:
        async def counted(*args: Any, **named: Any) -> Any:
            self.reads[name] += 1
            found = await method(*args, **named)
            self.entries += len(found) if name == "read_feed" else 0
            return found

        return counted


class Node:
    """A server in this process, and its store."""

    def __init__(self, app: Any, store: CountedStore, client: Client) -> None:
        self.engine, self.store, self.client = app.state.server.engine, store, client

    async def sessions(self, count: int) -> list[str]:
        new = [Session(id=new_id("ses"), owner=LOCAL) for _ in range(count)]
        return [(await self.store.create_session(session)).id for session in new]

    async def run(self, session_id: str, words: "Words") -> Run:
        record = RunRecord(id=new_id("run"), owner=LOCAL, session_id=session_id, message_id=new_id("msg"))
        question = Message(id=new_id("msg"), role="user", content="Hello")
        run: Run = await self.engine.submit(record, [question], source=words.source())
        return run

    async def follow(self, *sessions: str) -> Response:
        """Open the stream of a page: its chats, and its list of them."""
        listed = f"list={self.engine.changes.cursor(LOCAL)}"
        response = await self.client.get("/api/events?" + "&".join([listed, *(f"session={id}" for id in sessions)]))
        assert 200 == response.status
        return response


class Words:
    """The answer of a run, said word by word when the test says so."""

    def __init__(self) -> None:
        self._next: asyncio.Queue[str | None] = asyncio.Queue()
        self._said = 0

    async def source(self) -> AsyncIterator[str]:
        while (word := await self._next.get()) is not None:
            yield word

    async def say(self, reader: Response) -> None:
        """Say a word, and wait until a reader has it."""
        self._said += 1
        self._next.put_nowait(f"word{self._said} ")
        await until(reader, f"word{self._said} ")

    def end(self) -> None:
        self._next.put_nowait(None)


async def until(reader: Response, text: str) -> list[Frame]:
    """Read to a frame with a text."""
    frames: list[Frame] = []
    async with asyncio.timeout(LONG):
        while not frames or text not in f"{frames[-1].event} {frames[-1].data}":
            frame = await reader.next_event()
            assert frame is not None, f"the stream ended before {text!r}"
            frames.append(frame)
    return frames


@asynccontextmanager
async def served(url: str, nodes: int = 1) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as stack:
        started = []
        for _ in range(nodes):
            store = CountedStore(await asyncio.to_thread(open_store, url))
            shared = {"store": url, "cluster_key": "k" * 32, "node_address": f"127.0.0.1:{free_port()}"}
            app = create_app(Settings(**shared if nodes > 1 else {}), store, NO_HOME)  # type: ignore[arg-type]
            server = await stack.enter_async_context(Served(app))
            started.append(Node(app, store, await stack.enter_async_context(server.client())))
        yield started


@requirement("sub.two-tabs")
@pytest.mark.parametrize("chats", OPEN_CHATS)
async def test_a_word_costs_the_open_chats_of_a_page_no_read_of_the_store(chats, tmp_path):
    """Each word made every open chat read the store twice: fifty chats, a hundred reads."""
    async with served(f"sqlite:{tmp_path}") as (node,):
        sessions, words = await node.sessions(chats), Words()
        reader = await node.follow(*sessions)
        run = await node.run(sessions[-1], words)
        for _ in range(2):  # with the second, all that the start has changed is read
            await words.say(reader)
        node.store.reads.clear()
        for _ in range(WORDS):
            await words.say(reader)
        reads = dict(node.store.reads)
        words.end()
        await until(reader, "run.settled")

        assert {} == reads
        assert "completed" == (await run.settled()).outcome


@requirement("sub.two-tabs", "nodes.any")
async def test_a_word_of_another_node_costs_the_open_chats_of_a_page_no_read_of_the_store(postgres):
    """The words come from the owner.

    Every three seconds a node looks for changes whose hint was lost, and reads for each chat. Until it hears the owner
    it reads the log from the store. So one of the rounds has to do without a read.
    """
    async with served(postgres.new_url(), nodes=3) as (owner, *others):
        for node in others:
            await node.engine.look()
        for chats, node in zip(OPEN_CHATS, [*others, others[0]], strict=True):
            sessions, words = await owner.sessions(chats), Words()
            reader = await node.follow(*sessions)
            await owner.run(sessions[-1], words)
            rounds = [await reads_of_words(node, words, reader) for _ in range(10)]
            words.end()
            await until(reader, "run.settled")

            assert {} in rounds


async def reads_of_words(node: Node, words: Words, reader: Response) -> dict[str, int]:
    node.store.reads.clear()
    for _ in range(WORDS):
        await words.say(reader)
    return dict(node.store.reads)


@requirement("sub.two-tabs")
async def test_a_page_that_comes_back_reads_what_is_after_its_cursor_and_no_more(tmp_path):
    """Each open chat read its whole feed, with every message, at each reconnect."""
    async with served(f"sqlite:{tmp_path}") as (node,):
        (session,) = await node.sessions(1)
        reader = await node.follow(session)
        for _ in range(10):
            words = Words()
            await node.run(session, words)
            words.end()
            ended = await until(reader, "run.settled")
        words = Words()
        await node.run(session, words)
        started = await until(reader, "run.started")
        await words.say(reader)
        reader.leave()
        counts = []
        for frame in (ended[-1], started[-1]):
            node.store.reads.clear()
            node.store.entries = 0
            reader = await node.follow(frame.id)
            await until(reader, "word1 ")
            await words.say(reader)  # by now all that was there is read
            counts.append((node.store.entries, dict(node.store.reads)))
            reader.leave()
        words.end()

    assert [2, 0] == [entries for entries, _ in counts]
    assert {"get_session": 1, "feed_place": 1} == counts[1][1]  # the first is the check of the caller's rights
