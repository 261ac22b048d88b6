"""`holdfast copy`: a store on SQLite, on PostgreSQL, and back."""

import asyncio
import base64
import sqlite3
from collections.abc import Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.events import Completed, Text
from holdfast.history import Message, Session
from holdfast.store import Append, Document, Idempotency, KeyRecord, RunRecord, Store
from holdfast.store.opening import open_store
from holdfast.store.opening.copying import CopyRefused, copy_store
from holdfast.store.rows.migrations import StoreDamaged
from tests.requirements import requirement

PICTURE = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256))).decode()
KEY = Idempotency("o", "key", "digest")


@pytest.fixture(autouse=True)
def may_block(blocking_is_an_error) -> Iterator[None]:
    """The command copies on a loop of its own, on which nothing else waits."""
    blocking_is_an_error.deactivate()
    yield
    blocking_is_an_error.activate()


@asynccontextmanager
async def opened(url: str):
    store = await asyncio.to_thread(open_store, url)
    try:
        yield store
    finally:
        await store.close()


async def fill(store: Store, sessions: int = 3) -> None:
    """Add something of every kind."""
    await store.renew("k", 1.0)
    for number in range(sessions):
        session = Session(
            id=f"ses{number}", owner="o", title=f"Title {number} \x00", pinned=number == 1, params={"n": 1}
        )
        await store.create_session(session)
        parts = [{"type": "text", "text": f"words{number} über"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
        asked = Message(id=f"ask{number}", role="user", content=parts)
        run = RunRecord(id=f"run{number}", owner="o", session_id=session.id, message_id=f"msg{number}", node_id="k")
        await store.create_run(run, [asked], idempotency=KEY if number == 0 else None)
        await store.append("k", [Append(run.id, 1, 1, [Text("a"), Text("\x00b")], at=5.0)])
        if number == 0:
            answer = Message(id="msg0", role="assistant", content="a\x00b", run_id=run.id)
            await store.settle(run.id, 1, seq=3, settlement=Completed(text="a\x00b"), message=answer, now=9.0)
        else:
            queued = RunRecord(id=f"next{number}", owner="o", session_id=session.id, node_id="k")
            await store.create_run(queued, [Message(id=f"q{number}", role="user", content="more")], if_busy="queue")
    await store.put_document(Document(kind="batch", id="b", owner="o", body={"x": ["\x00"]}))
    await store.add_key(KeyRecord(id="key1", name="ann", sha256="d", created_at=2.5, admin=True, owner="svc_1"))
    await store.add_key(KeyRecord(id="key2", name="bob", sha256="e", owner="svc_2"))
    await store.revoke_key("key2", 4.0)


async def everything(store: Store, owner: str = "o") -> list[Any]:
    """Return what a store has, as far as its methods tell."""
    sessions = await store.list_sessions(owner)
    runs = await store.list_runs()
    found: list[Any] = [sessions, runs, await store.list_keys(), await store.list_documents("batch")]
    found += [await store.list_sessions(owner, query=word) for word in ("words1", "ub", "title")]
    for session in sessions:
        found += [await store.open_session(session.id), await store.read_feed(session.id, 0)]
        for message in await store.messages(session.id):
            if isinstance(message.content, list):
                sha256 = message.content[1]["image_url"]["url"].removeprefix("holdfast-file:")
                found.append(await store.read_files(session.id, [sha256]))
    for run in runs:
        found += [await store.read_log(run.id, 0), await store.read_times(run.id)]
    return [*found, await store.find_repeated(KEY)]


def silent(what: str, done: int, total: int) -> None:
    """Progress that is not looked at."""


@requirement("store.copy")
async def test_a_store_is_the_same_on_postgresql_and_back_again(postgres, tmp_path):
    """Chats, runs, logs, feeds, documents, keys, pictures, the index and idempotency keys."""
    url = postgres.url(await postgres.new_database())
    async with opened(f"sqlite:{tmp_path / 'one'}") as store:
        await fill(store)
        before = await everything(store)
    told: list[str] = []
    count = await copy_store(f"sqlite:{tmp_path / 'one'}", url, lambda what, done, total: told.append(what))
    back = await copy_store(url, f"sqlite:{tmp_path / 'two'}", silent)
    async with opened(url) as there, opened(f"sqlite:{tmp_path / 'two'}") as again:
        assert before == await everything(there)
        assert before == await everything(again)
        await there.create_session(Session(id="new", owner="o"))
        run = await there.create_run(RunRecord(id="new", owner="o", session_id="new", node_id="k"))

    assert count == back > 20
    assert "copying events" in told
    assert "running" == run.status


@requirement("store.copy")
async def test_a_text_where_bytes_belong_is_copied_as_bytes(postgres, tmp_path):
    """SQLite takes both. A key that was forgotten had one."""
    async with opened(f"sqlite:{tmp_path}") as store:
        await fill(store)
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as db:
        db.execute("UPDATE api_keys SET details = '{}'")
        db.commit()

    assert await copy_store(f"sqlite:{tmp_path}", postgres.url(await postgres.new_database()), silent) > 20


@requirement("store.copy")
async def test_a_value_that_does_not_fit_is_not_called_an_error_of_the_server(postgres, tmp_path):
    """Whoever is told to look whether PostgreSQL is up looks in the wrong place."""
    async with opened(f"sqlite:{tmp_path}") as store:
        await fill(store)
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as db:
        db.execute("UPDATE sessions SET created_at = 'yesterday'")
        db.commit()
    with pytest.raises(StoreDamaged, match=r"does not fit its column .* The server is not the cause"):
        await copy_store(f"sqlite:{tmp_path}", postgres.url(await postgres.new_database()), silent)


@requirement("store.copy")
async def test_a_copy_that_was_interrupted_continues_and_is_not_used_before(postgres, tmp_path):
    """It may take hours. Until it is complete, no server takes half of the chats for all of them."""
    url = postgres.url(await postgres.new_database())
    source = f"sqlite:{tmp_path}"
    async with opened(source) as store:
        await fill(store)
        before = await everything(store)

    def cut(what: str, done: int, total: int) -> None:
        if what == "copying runs":
            raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        await copy_store(source, url, cut)
    with pytest.raises(StoreDamaged, match="unfinished copy"):
        await asyncio.to_thread(open_store, url)
    await copy_store(source, url, silent)
    async with opened(url) as there:
        assert before == await everything(there)


@requirement("store.copy")
async def test_a_store_that_has_something_is_never_copied_to(postgres, tmp_path):
    """Nor is one copied that a server uses, or that does not exist."""
    url = postgres.url(await postgres.new_database())
    source = f"sqlite:{tmp_path / 'one'}"
    async with opened(source) as store, opened(url) as there:
        await fill(store, 1)
        await there.add_key(KeyRecord(id="key", name="zoe", sha256="z", owner="svc_3"))
        with pytest.raises(HoldfastError, match="in use by"):
            await copy_store(source, url, silent)
    with pytest.raises(CopyRefused, match="has something already"):
        await copy_store(source, url, silent)
    with pytest.raises(CopyRefused, match="There is no database"):
        await copy_store(f"sqlite:{tmp_path / 'none'}", url, silent)
    with pytest.raises(CopyRefused, match="sqlite:FOLDER"):
        await copy_store("nowhere", url, silent)
    async with opened(url) as there:
        await there.renew("alive", 3600.0)
    with pytest.raises(HoldfastError, match="in use by 1 servers"):
        await copy_store(url, f"sqlite:{tmp_path / 'two'}", silent)
