"""The store is slow, away, locked by another program, or on a disk that is full."""

import asyncio
import contextlib
import inspect
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from starlette.types import Message as AsgiMessage

from holdfast.engine.core import Core
from holdfast.errors import StoreUnavailable
from holdfast.events import Completed, Stopped, Text
from holdfast.history import Message, Session
from holdfast.ids import new_id
from holdfast.runs.run import Run
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store import FeedEntry, RunRecord
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Frame, FrameParser, Response
from tests.support.native import Native
from tests.support.served import NO_HOME
from tests.support.server import Server, StartFailed, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Upstream
from tests.support.waiting import LONG, SOON

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
        async with asyncio.timeout(LONG):
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

    app = create_app(Settings(), store, NO_HOME)
    server = app.state.server
    async with server.engine:
        session = await store.create_session(Session(id=new_id("ses"), owner="local"))
        record = RunRecord(id=new_id("run"), owner="local", session_id=session.id, message_id=new_id("msg"))
        run = await server.engine.submit(record, [Message(id="msg_1", role="user", content="hi")], source=source())
        tab = Tab(app, f"/api/sessions/{session.id}/events")
        live = await tab.read(until="first ")

        store.become_slow()
        server.engine.touch(session.id, session.owner)
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


# A store that is away.


class Flaky:
    """A store that can be away: it refuses before it does anything, or after, so that only the answer is lost."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.away: Literal["before", "after"] | None = None
        self.refusals = 0
        self._refused = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method  # `listen`, which reaches no medium

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.away == "before":
                self._refuse()
            result = await method(*args, **kwargs)
            if self.away == "after":
                self._refuse()
            return result

        return call

    def _refuse(self) -> None:
        self.refusals += 1
        self._refused.set()
        raise StoreUnavailable("away")

    async def has_refused(self, times: int) -> None:
        """Wait until the store was asked in vain so often."""
        async with asyncio.timeout(LONG):
            while self.refusals < times:
                self._refused.clear()
                await self._refused.wait()


class Words:
    """A source that says what the test tells it to say."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[str | None] = asyncio.Queue()
        self.was_closed = asyncio.Event()

    def say(self, *words: str | None) -> None:
        """Say words; None is the end."""
        for word in words:
            self.queue.put_nowait(word)

    async def __call__(self) -> AsyncIterator[str]:
        try:
            while (word := await self.queue.get()) is not None:
                yield word
        finally:
            self.was_closed.set()


LEASE = 0.2
"""Shorter than the store is away: an engine must not take its own runs for those of a dead one when it is back."""


async def _start(engine: Core, words: Words, session_id: str, input: str = "hi") -> Run:
    record = RunRecord(id=new_id("run"), session_id=session_id, message_id=new_id("msg"))
    return await engine.submit(record, [Message(id=new_id("msg"), role="user", content=input)], source=words())


@requirement("crash.store-away")
@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_run_goes_on_while_the_store_is_away_and_settles_late_and_once(how):
    """Losing the database for a while is no reason to lose an answer; nor is a lost confirmation to write it twice."""
    memory, words = MemoryStore(), Words()
    store = Flaky(memory)
    async with Core(store, lease=LEASE) as engine:
        await memory.create_session(Session(id="ses_1", owner=""))
        run = await _start(engine, words, "ses_1")
        reader = run.read()
        words.say("one ")
        shown = [await anext(reader) for _ in range(2)]

        store.away = how
        words.say("two ", "three", None)
        await words.was_closed.wait()
        await store.has_refused(12)
        seen_meanwhile, settled_meanwhile = run.seq, run.settlement
        store.away = None
        settlement = await run.settled()
        shown += [item async for item in reader]

    messages = await memory.messages("ses_1")
    feed = [entry.type for entry in await memory.read_feed("ses_1", 0)]
    assert (2, None) == (seen_meanwhile, settled_meanwhile)
    assert isinstance(settlement, Completed)
    assert [1, 2, 3, 4, 5] == [seq for seq, _ in shown]
    assert "one two three" == "".join(event.text for _, event in shown if isinstance(event, Text))
    assert ["hi", "one two three"] == [message.content for message in messages]
    assert ["message.added", "run.started", "message.added", "run.settled"] == feed
    assert [event for _, event in shown] == await memory.read_log(run.id, 0)


@requirement("crash.store-away")
async def test_a_stop_closes_the_source_although_the_store_is_away():
    """Stopping must not wait for a disk: what costs money ends now, and is written down when that is possible."""
    memory, words = MemoryStore(), Words()
    store = Flaky(memory)
    async with Core(store, lease=LEASE) as engine:
        await memory.create_session(Session(id="ses_1", owner=""))
        run = await _start(engine, words, "ses_1")
        words.say("half")
        async for _, event in run.read():
            if isinstance(event, Text):
                break

        store.away = "before"
        stopping = asyncio.create_task(run.stop())
        async with asyncio.timeout(SOON):
            await words.was_closed.wait()
        await store.has_refused(5)
        store.away = None
        settlement = (await stopping).settlement

    assert isinstance(settlement, Stopped)
    assert ("half", "user") == (settlement.text, settlement.by)
    assert ["hi", "half"] == [message.content for message in await memory.messages("ses_1")]


@requirement("crash.store-away")
@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_start_that_the_store_did_not_confirm_leaves_nothing_that_blocks_the_session(how):
    """The caller was told that it failed: so it has failed, whatever the store had done by then."""
    memory = MemoryStore()
    store = Flaky(memory)
    async with Core(store, lease=LEASE) as engine:
        await memory.create_session(Session(id="ses_1", owner=""))

        store.away = how
        with pytest.raises(StoreUnavailable):
            await _start(engine, Words(), "ses_1", "never")
        await store.has_refused(4)
        store.away = None
        words = Words()
        words.say("ok", None)
        async with asyncio.timeout(LONG):
            run = await _start_when_free(engine, words)
            await run.settled()

    records = await memory.list_runs(session_id="ses_1")
    assert {"settled"} == {record.status for record in records}
    assert ["ok"] == [message.content for message in await memory.messages("ses_1") if message.role == "assistant"]


async def _start_when_free(engine: Core, words: Words) -> Run:
    """Queue behind a run that is about to be given up."""
    record = RunRecord(id=new_id("run"), session_id="ses_1", message_id=new_id("msg"))
    message = Message(id=new_id("msg"), role="user", content="again")
    return await engine.submit(record, [message], source=words(), if_busy="queue")


# The real one, locked by another program.


@contextlib.contextmanager
def _locked(database: Path) -> Iterator[None]:
    """Another program takes the write lock, as a backup tool or a curious developer does."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other_program:
        other_program.execute("BEGIN EXCLUSIVE")
        yield
        other_program.execute("ROLLBACK")


def _gated(name: str) -> list[Any]:
    """An answer whose second half comes when the test says so; `{name}-said` is reached when all of it is written."""
    half = [Headers(), Role(), Delta("half "), Gate(name)]
    return [*half, Delta("an answer"), Finish(), Done(), Gate(f"{name}-said")]


async def _ready(client: Client, status: int) -> Response:
    """Ask whether the server is ready, until the answer is the one that is waited for."""
    async with asyncio.timeout(LONG):
        while (ready := await client.get("/ready")).status != status:  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.05)
    return ready


@requirement("crash.store-away")
async def test_runs_outlast_a_locked_database_and_whoever_asks_is_told_the_truth(tmp_path: Path):
    """A lock of some seconds costs some seconds: no answer, no acknowledged message, and no false word."""
    async with Upstream() as up:
        up.models["a"], up.models["b"] = _gated("a"), _gated("b")
        async with Server(tmp_path, [provider(up.base_url, models=None)]) as server, server.client() as client:
            api = Native(client)
            sessions = [await api.new_session() for _ in range(3)]
            runs = [
                await api.start(session, "Hello", f"up/{name}") for session, name in zip(sessions, "ab", strict=False)
            ]
            readers = [await api.shown(run, "half ") for run in runs]

            with _locked(tmp_path / "holdfast.db"):
                up.open("a")
                await up.reached("a-said")
                refused = await api.send(sessions[2], "Hello?", "up/echo:ok")
                stopping = asyncio.create_task(client.post(f"/api/runs/{runs[1]}/stop"))
                (stopped_request,) = [request for request in up.requests if request.model == "b"]
                closed_at = await stopped_request.wait_closed()
                ready, health = await _ready(client, 503), await client.get("/health")
                meanwhile = [(await api.run(run))["status"] for run in runs]
                transcript = await api.transcript(sessions[0])
            stopped = await (await stopping).json()
            endings = [(await reader.all_events())[-1].json()["settlement"] for reader in readers]
            up.open("a-said")
            again = await api.send(sessions[2], "Hello?", "up/echo:ok")
            await api.settled((await again.json())["id"])
            await _ready(client, 200)

            assert (503, "store_unavailable") == (refused.status, (await refused.json())["error"]["code"])
            assert int(refused.headers["retry-after"]) >= 1
            assert "locked" in (await refused.json())["error"]["message"]
            assert closed_at > 0
            assert ("store_unavailable", 200) == ((await ready.json())["error"]["code"], health.status)
            assert ["running", "running"] == meanwhile
            assert [("user", "Hello")] == transcript
            assert ["completed", "stopped"] == [ending["outcome"] for ending in endings]
            assert endings[1] == stopped["settlement"]
            assert [("user", "Hello"), ("assistant", "half an answer")] == await api.transcript(sessions[0])
            assert [("user", "Hello"), ("partial", "half ")] == await api.transcript(sessions[1])
            assert [("user", "Hello?"), ("assistant", "ok")] == await api.transcript(sessions[2])


@requirement("crash.store-away", "crash.kill9")
async def test_kill_9_while_the_database_is_locked_loses_nothing_that_was_shown(tmp_path: Path):
    """What could not be saved was never shown, so a crash at that moment takes back nothing."""
    async with Upstream() as up:
        up.models["a"] = _gated("a")
        async with Server(tmp_path, [provider(up.base_url, models=None)]) as server, server.client() as client:
            api = Native(client)
            session = await api.new_session()
            run = await api.start(session, "Hello", "up/a")
            reader = await api.shown(run, "half ")

            with _locked(tmp_path / "holdfast.db"):
                up.open("a")
                await up.reached("a-said")
                await api.send(session, "Anyone?", "up/echo:ok", if_busy="queue")
                await server.kill9()
            with pytest.raises(ConnectionError):
                await reader.next_event()
            await server.restart()

            assert "interrupted" == (await api.settled(run))["outcome"]
            assert [("user", "Hello"), ("partial", "half ")] == await api.transcript(session)


# A full disk.


class Tmpfs:
    """A disk of a few megabytes that can really be full. Needs the right to mount."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def __enter__(self) -> "Tmpfs":
        self.path.mkdir()
        mounting = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", str(self.path)]
        if shutil.which("mount") is None or subprocess.run(mounting, check=False, capture_output=True).returncode:
            pytest.skip("this user may not mount a small disk; the test with a limit on files shows the same")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)

    def fill(self, server: Server) -> None:
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self, server: Server) -> None:
        self._filler.unlink()


class FileLimit:
    """A limit on the size of the server's files, which it meets in the middle of a write. Needs no rights."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "FileLimit":
        self.path.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fill(self, server: Server) -> None:
        largest = max(file.stat().st_size for file in self.path.iterdir())
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (largest + 100, resource.RLIM_INFINITY))

    def free(self, server: Server) -> None:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@requirement("crash.disk-full")
@pytest.mark.parametrize("disk", [Tmpfs, FileLimit])
async def test_a_full_disk_is_said_clearly_and_costs_nothing_that_was_acknowledged(tmp_path: Path, disk):
    """Whoever was told yes finds it again; whoever was told no was told why; and with space all goes on by itself."""
    with disk(tmp_path / "disk") as small:
        async with Upstream() as up:
            up.models["a"] = _gated("a")
            async with Server(small.path, [provider(up.base_url, models=None)]) as server, server.client() as client:
                api = Native(client)
                session = await api.new_session()
                await api.settled(await api.start(session, "before", "up/echo:kept"))
                running = await api.start(session, "during", "up/a")
                await api.shown(running, "half ")

                small.fill(server)
                refused, accepted = await _send_until_refused(api)
                up.open("a")
                await up.reached("a-said")
                ready, health = await _ready(client, 503), await client.get("/health")
                readable = await api.transcript(session)
                small.free(server)
                up.open("a-said")
                ending = await api.settled(running)
                after = await api.new_session()
                await api.settled(await api.start(after, "after", "up/echo:works"))
                await server.kill9()
                await server.restart()

                error = (await refused.json())["error"]
                assert (503, "store_unavailable") == (refused.status, error["code"])
                assert "disk" in error["message"].lower()
                assert int(refused.headers["retry-after"]) >= 1
                assert ("store_unavailable", 200) == ((await ready.json())["error"]["code"], health.status)
                told = [("user", "before"), ("assistant", "kept"), ("user", "during")]
                assert told == readable
                assert "completed" == ending["outcome"]
                assert [*told, ("assistant", "half an answer")] == await api.transcript(session)
                assert [("user", "after"), ("assistant", "works")] == await api.transcript(after)
                assert accepted == [title for title in await _titles(api) if title.startswith("accepted")]


async def _send_until_refused(api: Native) -> tuple[Any, list[str]]:
    """Make sessions until there is no room for another; the refusal, and the titles of those that were accepted."""
    accepted: list[str] = []
    for number in range(200):
        title = f"accepted {number:03}"
        made = await api.client.post("/api/sessions", {"title": title, "system": "x" * 1000})
        if made.status != 201:
            return made, accepted[::-1]
        accepted.append(title)
    raise AssertionError("a full disk took two hundred sessions")


async def _titles(api: Native) -> list[str]:
    """The titles of all sessions, the one changed last first."""
    return [session["title"] for session in (await api.get("/api/sessions?limit=200"))["sessions"]]


@requirement("crash.disk-full")
async def test_a_server_that_starts_on_a_full_disk_says_so_or_works_and_has_lost_nothing(tmp_path: Path):
    """After a crash on a full disk the operator needs words, not a traceback, and then all of the data."""
    with Tmpfs(tmp_path / "disk") as small:
        async with Upstream() as up:
            up.models["a"] = _gated("a")
            async with Server(small.path, [provider(up.base_url, models=None)]) as server, server.client() as client:
                api = Native(client)
                session = await api.new_session()
                run = await api.start(session, "Hello", "up/a")
                await api.shown(run, "half ")
                small.fill(server)
                await server.kill9()

                said = "ready"
                try:
                    await server.restart()
                except StartFailed as failure:
                    said = str(failure)
                small.free(server)
                await server.restart()

                assert "Traceback" not in said
                assert said == "ready" or "space" in said or "full" in said
                assert "interrupted" == (await api.settled(run))["outcome"]
                assert [("user", "Hello"), ("partial", "half ")] == await api.transcript(session)
