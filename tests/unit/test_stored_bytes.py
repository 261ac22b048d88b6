"""The counter of the bytes that an owner has stored is equal to a recount of the rows, whatever was written."""

import asyncio
import base64
import contextlib
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator

import asyncpg
import pytest
from click.testing import CliRunner

from holdfast.asks import ProgramAsk
from holdfast.cli import main
from holdfast.errors import HoldfastError
from holdfast.events import Completed, Stopped, Text
from holdfast.history import Message, Session
from holdfast.store import Append, Document, RunRecord, Store
from holdfast.store.opening import open_store
from holdfast.store.opening.copying import copy_store
from tests.requirements import requirement

OWNERS = ("one", "two")
ROWS = {
    "messages": "SELECT owner, body FROM messages JOIN sessions ON sessions.n = messages.session",
    "pictures": "SELECT owner, data FROM files JOIN files_used ON file = files.n JOIN sessions ON sessions.n = session",
    "asks": "SELECT owner, ask FROM runs",
    "input": "SELECT owner, input FROM runs",
    "settlements": "SELECT owner, settlement FROM runs WHERE settlement IS NOT NULL",
    "logs": "SELECT owner, body FROM events JOIN runs ON runs.n = events.run WHERE status = 'settled'",
    "documents": "SELECT owner, body FROM documents",
}
"""All that counts. A picture counts in each session that has it, a log from its settlement on."""


async def recounted(url: str) -> dict[str, int]:
    """Return the bytes of each owner's rows, read from the database itself."""
    sums: Counter[str] = Counter()
    for query in ROWS.values():
        for owner, body in await _fetched(url, query):
            sums[owner] += len(body)
    return {owner: sums[owner] for owner in OWNERS}


async def _fetched(url: str, query: str) -> list[tuple[str, bytes]]:
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(f"{url.removeprefix('sqlite:')}/holdfast.db")) as db:
            return db.execute(query).fetchall()
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def counted(store: Store) -> dict[str, int]:
    """Return what the store says of each owner."""
    return {owner: await store.stored_bytes(owner) for owner in OWNERS}


class Writer:
    """Writes of every kind, drawn at random. Those that the store refuses count too: they must change nothing."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store, self._draw, self._n = store, random.Random(seed), 0
        self.does = [getattr(self, name) for name in vars(Writer) if name.startswith("does_")]

    def _id(self, kind: str, *, new: bool = False) -> str:
        self._n += new
        return f"{kind}{self._n if new else self._draw.randrange(max(1, self._n - 12), self._n + 2)}"

    def _message(self) -> Message:
        picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes([self._draw.randrange(3)]) * 100).decode()
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
        text = {"type": "text", "text": "ä" * self._draw.randrange(50)}
        return Message(id=self._id("m", new=True), role="user", content=[text, url][: self._draw.randrange(1, 3)])

    async def write(self) -> None:
        """Do one of the writes."""
        with contextlib.suppress(HoldfastError):
            await self._draw.choice(self.does)()

    async def does_create_a_session(self) -> None:
        owner = self._draw.choice(OWNERS)
        await self._store.create_session(Session(id=self._id("s", new=True), owner=owner))

    async def does_copy_a_session(self) -> None:
        owner = self._draw.choice(OWNERS)
        await self._store.copy_session(
            Session(id=self._id("s", new=True), owner=owner), [self._message(), self._message()]
        )

    async def does_start_a_run(self) -> None:
        session = self._draw.choice([self._id("s"), None])
        known = None if session is None else await self._store.get_session(session)
        record = RunRecord(
            id=self._id("r", new=True),
            owner=self._draw.choice(OWNERS) if known is None else known.owner,
            session_id=session,
            message_id=self._id("a", new=True),
            node_id="node",
            ask=ProgramAsk(data={"x": "r" * self._draw.randrange(50)}),
        )
        await self._store.create_run(record, [self._message()] if session else [], if_busy="queue")

    async def does_append(self) -> None:
        if (run := await self._store.get_run(self._id("r"))) is not None:
            text = Text("t" * self._draw.randrange(1, 80))
            await self._store.append("node", [Append(run.id, run.epoch, run.seq + 1, [text])])

    async def does_settle(self) -> None:
        if (run := await self._store.get_run(self._id("r"))) is not None:
            ending, message = Completed(text="all of it", finish_reason="stop"), None
            if run.session_id:
                message = Message(id=run.message_id or "", role="assistant", content="all of it", run_id=run.id)
            now = self._draw.uniform(0, 9)
            await self._store.settle(run.id, run.epoch, seq=run.seq + 1, settlement=ending, message=message, now=now)

    async def does_change_the_queue(self) -> None:
        await self._store.change_queued(self._id("r"), [self._message()])
        await self._store.drop_queued(self._id("r"), Stopped(text="", by="user"), 3.0)
        await self._store.start_queued(self._id("s"), node_id="node", now=3.0)

    async def does_trim_logs(self) -> None:
        await self._store.trim_logs(self._draw.uniform(0, 9))

    async def does_delete_a_run(self) -> None:
        await self._store.delete_run(self._id("r"))

    async def does_delete_a_session(self) -> None:
        await self._store.delete_session(self._id("s"))

    async def does_put_a_document(self) -> None:
        body = {"x": "d" * self._draw.randrange(80)}
        for id in (self._id("d"), self._id("d", new=True)):
            known = await self._store.get_document("kind", id)
            owner = self._draw.choice(OWNERS) if known is None else known.owner
            await self._store.put_document(Document(kind="kind", id=id, owner=owner, body=body))

    async def does_delete_a_document(self) -> None:
        await self._store.delete_document("kind", self._id("d"))

    async def does_erase_an_owner(self) -> None:
        if self._draw.random() < 0.1:
            owner = self._draw.choice(OWNERS)
            for id in await self._store.sessions_of(owner):
                await self._store.delete_session(id)
            await self._store.delete_runs(9.0, of=[owner])
            await self._store.delete_documents_of(owner)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    """The address of an empty database."""
    return request.getfixturevalue("postgres").new_url() if request.param == "postgres" else f"sqlite:{tmp_path}"


@pytest.fixture
def may_block(blocking_is_an_error) -> Iterator[None]:
    """Commands run on a loop of their own, on which nothing else waits."""
    blocking_is_an_error.deactivate()
    yield
    blocking_is_an_error.activate()


@contextlib.asynccontextmanager
async def opened(url: str):
    """A store with a living node."""
    store = await asyncio.to_thread(open_store, url)
    try:
        await store.renew("node", 3600.0)
        yield store
    finally:
        await store.release("node")
        await store.close()


@requirement("budget.bytes")
async def test_the_counter_is_equal_to_a_recount_after_any_sequence_of_writes(url):
    """A counter that is wrong once stays wrong, and refuses people with room, or nobody."""
    async with opened(url) as store:
        for seed in range(12):
            writer = Writer(store, seed)
            for _ in range(60):
                await writer.write()
            assert await recounted(url) == await counted(store), f"seed {seed}"
        assert all((await counted(store)).values())


@requirement("budget.bytes")
async def test_writes_of_one_owner_at_the_same_time_are_all_counted(url):
    """Neither may one write over the sum of another, nor may two of them wait for each other."""
    async with opened(url) as store:
        writer = Writer(store, 1)
        for _ in range(10):
            await asyncio.gather(*(writer.write() for _ in range(30)))
            assert await recounted(url) == await counted(store)


@requirement("budget.bytes")
async def test_the_check_of_a_database_names_an_owner_with_a_wrong_counter(tmp_path, may_block):
    """Whoever sees a budget refuse too early can see why, and a copy counts anew."""
    async with opened(f"sqlite:{tmp_path}") as store:
        await store.put_document(Document(kind="kind", id="d", owner="one", body={"x": "words"}))
        (right,) = {*(await counted(store)).values()} - {0}
    check = ["db", "check", "--data", str(tmp_path)]
    assert 0 == CliRunner().invoke(main, check).exit_code
    with contextlib.closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as db:
        db.execute("UPDATE stored SET bytes = bytes + 5")
    checked = CliRunner().invoke(main, check)

    assert 1 == checked.exit_code
    assert f"counted {right + 5} bytes of one, and stored {right}" in " ".join(checked.output.split())


@requirement("budget.bytes")
async def test_a_copy_counts_what_was_copied(postgres, tmp_path, may_block):
    """Rows come in another order than they were written in, so a copy counts anew when it has all of them."""
    source, between, target = f"sqlite:{tmp_path / 'a'}", postgres.new_url(), f"sqlite:{tmp_path / 'b'}"
    async with opened(source) as store:
        writer = Writer(store, 2)
        for _ in range(200):
            await writer.write()
        expected = await counted(store)
    for one, other in ((source, between), (between, target)):
        await copy_store(one, other, lambda what, done, total: None)
        async with opened(other) as store:
            assert expected == await counted(store) == await recounted(other)
