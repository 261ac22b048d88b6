"""The store raises what it should not: an error that is no `StoreUnavailable`. No run may hang for that."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from holdfast import Completed, Failed, Limits
from holdfast.engine.core import Core
from holdfast.events import AnySettlement
from holdfast.history import Message, Session
from holdfast.ids import new_id
from holdfast.runs.run import Run
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store import Append, LogEnd, RunEnd, RunRecord
from holdfast.store.memory import MemoryStore
from holdfast.store.records import NodeDetails, NodeRecord
from tests.requirements import requirement
from tests.support.served import NO_HOME, Served
from tests.support.waiting import LONG


class FaultyStore(MemoryStore):
    """A store in which the named methods raise a `TypeError`, while the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: set[str] = set()
        self.unwanted = "\0"
        """Events with this text cannot be saved."""

    def _fail(self, method: str) -> None:
        if method in self.faults:
            raise TypeError(f"{method} is broken")

    async def create_run(self, *args: object, **kwargs: object) -> RunRecord:
        made = await super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        self._fail("create_run")
        return made

    async def start_queued(self, *args: object, **kwargs: object) -> RunRecord | None:
        started = await super().start_queued(*args, **kwargs)  # type: ignore[arg-type]
        self._fail("start_queued")
        return started

    async def append(self, node_id: str, entries: Sequence[Append]) -> list[LogEnd]:
        self._fail("append")
        if any(self.unwanted in repr(entry.events) for entry in entries):
            raise TypeError("an event cannot be saved")
        return await super().append(node_id, entries)

    async def settle(self, *args: object, **kwargs: object) -> RunEnd | None:
        self._fail("settle")
        return await super().settle(*args, **kwargs)  # type: ignore[arg-type]

    async def renew(self, node_id: str, seconds: float, details: NodeDetails | None = None) -> NodeRecord | None:
        self._fail("renew")
        return await super().renew(node_id, seconds, details)

    async def release(self, node_id: str) -> None:
        self._fail("release")
        await super().release(node_id)

    async def get_run(self, run_id: str) -> RunRecord | None:
        self._fail("get_run")
        return await super().get_run(run_id)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
async def engine(store: FaultyStore) -> AsyncIterator[Core]:
    async with Core(store, limits=Limits(grace=0.05), lease=0.3) as engine:
        yield engine


async def two_words(store: FaultyStore, run_has_begun: asyncio.Event, faults: set[str]) -> AsyncIterator[str]:
    """A source whose first word is saved. Before its second one the store breaks."""
    yield "One "
    await run_has_begun.wait()
    store.faults |= faults
    yield "two."


async def shown(run: Run, text: str) -> None:
    async with asyncio.timeout(LONG):
        async for _ in run.read():
            if text in run.text:
                return


async def ended(run: Run) -> AnySettlement:
    async with asyncio.timeout(LONG):
        return await run.settled()


async def until_fails(engine: Core, *names: str) -> None:
    async with asyncio.timeout(LONG):
        while set(engine.failing) != set(names):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@requirement("crash.store-fails")
async def test_a_run_whose_events_cannot_be_saved_fails_with_what_was_shown(engine, store, caplog):
    """Its caller would wait for ever otherwise, and completed would be a lie: the second word is nowhere."""
    begun = asyncio.Event()
    run = await engine.start(two_words(store, begun, {"append"}), keep=True)
    await shown(run, "One ")
    begun.set()
    settlement = await ended(run)
    record = await store.get_run(run.id)

    assert isinstance(settlement, Failed)
    assert ("store_failed", "One ") == (settlement.error.code, settlement.text)
    assert record is not None
    assert settlement == record.settlement
    assert "append is broken" in caplog.text
    await until_fails(engine, "committer")
    store.faults.clear()
    await until_fails(engine)
    again = await engine.start(two_words(store, begun, set()), keep=True)
    assert Completed(text="One two.", usage=(await ended(again)).usage, finish_reason="stop") == await ended(again)


@requirement("crash.store-fails")
async def test_one_event_that_cannot_be_saved_fails_no_other_run(engine, store):
    """One write carries the events of all runs. One of them that breaks it must not take the others along."""
    store.unwanted = "poison"

    async def says(word: str) -> AsyncIterator[str]:
        yield word

    runs = [await engine.start(says(word), keep=True) for word in ("fine", "poison", "good")]
    ends = [await ended(run) for run in runs]

    assert [Completed, Failed, Completed] == [type(end) for end in ends]
    assert ["fine", "", "good"] == [end.text for end in ends]


@requirement("crash.store-fails")
async def test_a_settlement_that_the_store_cannot_take_is_stored_as_a_failure(engine, store):
    """The caller learns of the end once it is durable, and never of one that is not."""
    begun = asyncio.Event()
    begun.set()
    run = await engine.start(two_words(store, begun, {"settle"}), keep=True)
    await shown(run, "two.")
    async with asyncio.timeout(LONG):
        while not engine.store_is_away:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert run.settlement is None
    store.faults.clear()
    settlement = await ended(run)

    assert isinstance(settlement, Failed)
    assert ("store_failed", "One two.") == (settlement.error.code, settlement.text)


@requirement("crash.store-fails")
async def test_a_lease_that_cannot_be_renewed_is_reported_and_tried_again(engine, store):
    """The task would end in silence otherwise, and another process would take the runs of a living one."""
    store.faults = {"renew"}
    await until_fails(engine, "lease")
    store.faults.clear()
    await until_fails(engine)


@requirement("crash.store-fails")
async def test_a_run_that_the_store_has_added_with_an_error_is_settled(engine, store):
    """Its caller was told of an error. In the store it would run for ever otherwise, and block its session."""
    store.faults = {"create_run"}
    record = RunRecord(id=new_id("run"), owner="")
    with pytest.raises(TypeError):
        await engine.submit(record, source=two_words(store, asyncio.Event(), set()))
    async with asyncio.timeout(LONG):
        while engine.held:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    made = await store.get_run(record.id)

    assert made is not None
    assert isinstance(made.settlement, Failed)


@requirement("crash.store-fails")
async def test_a_queued_run_that_the_store_has_started_with_an_error_goes_on(engine, store):
    """The store says that it runs here, so this process has to run it."""
    begun = asyncio.Event()
    await store.create_session(Session(id="ses_1", owner=""))
    first, second = [
        await engine.submit(
            RunRecord(id=new_id("run"), owner="", session_id="ses_1", message_id=new_id("msg")),
            [Message(id=new_id("usr"), role="user", content="Hi.")],
            source=two_words(store, begun, {"start_queued"}),
            if_busy="queue",
        )
        for _ in range(2)
    ]
    assert "queued" == second.status
    begun.set()

    assert ["One two.", "One two."] == [(await ended(run)).text for run in (first, second)]


@requirement("crash.store-fails")
async def test_an_engine_closes_although_its_lease_cannot_be_released(store, caplog):
    """The lease ends by itself, and whatever closes after the engine must still be closed."""
    engine = await Core(store).__aenter__()
    store.faults = {"release"}
    await engine.close()

    assert engine.closing
    assert "could not release the lease" in caplog.text


@requirement("crash.store-fails")
async def test_ready_tells_of_a_store_that_cannot_save(store):
    """A load balancer sends new runs elsewhere while they would all fail here."""
    app = create_app(Settings(), store, NO_HOME)
    async with Served(app) as served, served.client() as client:
        begun = asyncio.Event()
        begun.set()
        run = await app.state.server.engine.start(two_words(store, begun, {"append"}), keep=True)
        assert isinstance(await ended(run), Failed)
        async with asyncio.timeout(LONG):
            while (answer := await client.get("/ready")).status == 200:
                pass
            told = (await answer.json())["error"]
            store.faults.clear()
            while (await client.get("/ready")).status != 200:
                pass

    assert ("task_failing", True) == (told["code"], "committer" in told["message"])
