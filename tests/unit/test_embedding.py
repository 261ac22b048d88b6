"""The engine as another program uses it: a run by the program's own key, its outcome as a word, who stopped it."""

import asyncio
from typing import get_args

import msgspec
import pytest
from starlette.requests import Request

from holdfast import Completed, Engine, Failed, Interrupted, Limits, Outcome, Stopped, Truncated
from holdfast.asgi import events
from holdfast.asgi.event_stream import EventStream
from holdfast.engine.core import Core
from holdfast.errors import RunLimitReached
from holdfast.events import ErrorInfo, encode_settlement
from holdfast.history import Session
from holdfast.store import Idempotency, RunRecord
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from tests.requirements import requirement

ENDINGS = [
    Completed(),
    Truncated(),
    Stopped(by="user"),
    Failed(error=ErrorInfo("source_failed", "no")),
    Interrupted(),
]


@pytest.fixture(params=[False, True], ids=["in memory", "stored"])
def keep(request):
    """A run in memory and a stored one are found by different ways."""
    return request.param


class Source:
    """Counts how often it is read and closed; without an end unless it is given one."""

    def __init__(self, *texts: str, ends: bool = False) -> None:
        self.closed = 0
        self.is_read = False
        self._texts = list(texts)
        self._ends = ends

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.is_read = True
        if self._texts:
            return self._texts.pop(0)
        if self._ends:
            raise StopAsyncIteration
        return await asyncio.Event().wait()

    async def aclose(self):
        self.closed += 1


# the outcome


@requirement("embed.outcome")
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.outcome)
def test_the_outcome_is_the_word_of_the_wire(ending):
    """One word for one fact: the class, the attribute and the JSON must agree."""
    assert type(ending).__name__.lower() == ending.outcome == msgspec.json.decode(encode_settlement(ending))["outcome"]


@requirement("embed.outcome")
def test_the_outcomes_are_all_there_are():
    """A `match` over the words is a match over the classes."""
    assert get_args(Outcome) == tuple(ending.outcome for ending in ENDINGS)


# who stopped it


@requirement("stop.by-this-call")
async def test_one_of_many_stops_is_told_that_it_stopped_the_run(keep):
    """A program that bills, logs or answers once for a stop must know which call did it."""
    async with Engine(MemoryStore()) as engine:
        run = await engine.start(Source("a"), keep=keep)
        stops = await asyncio.gather(*(run.stop() for _ in range(20)))
        late = await run.stop()

    assert [True] + [False] * 19 == [stop.by_this_call for stop in stops]
    assert (stops[0].settlement, False) == late


@requirement("stop.by-this-call")
async def test_a_stop_that_comes_after_the_end_has_not_stopped_the_run(keep):
    """The run completed by itself."""
    async with Engine(MemoryStore()) as engine:
        run = await engine.start(Source("a", ends=True), keep=keep)
        await run.settled()
        result = await run.stop()

    assert ("completed", False) == (result.settlement.outcome, result.by_this_call)


@requirement("stop.by-this-call")
async def test_one_stop_of_a_queued_run_is_told_that_it_stopped_it():
    """A run that never started is ended in another way: the answer must be the same."""
    async with Core(MemoryStore(), sources=lambda run: Source("a")) as engine:
        await engine.store.create_session(Session(id="ses_1", owner=""))
        records = [RunRecord(id=f"run_{n}", session_id="ses_1", message_id=f"msg_{n}") for n in (1, 2)]
        first, second = [await engine.submit(record, if_busy="queue") for record in records]
        status = second.status
        stops = await asyncio.gather(*(second.stop() for _ in range(5)))
        await first.stop()

    assert "queued" == status
    assert [True] + [False] * 4 == [stop.by_this_call for stop in stops]


@requirement("stop.by-this-call")
async def test_a_stop_has_not_stopped_a_run_that_passed_its_limit_first():
    """The first cause stands, and the call is told that it was not the cause."""
    async with Engine(limits=Limits(deadline=0.01)) as engine:
        ending = asyncio.Event()
        run = await engine.start(Source("a"), interrupt=lambda _: ending.set())
        await ending.wait()
        result = await run.stop()

    assert ("failed", False) == (result.settlement.outcome, result.by_this_call)


# a run by the caller's own key


@requirement("start.own-key")
async def test_a_run_is_found_by_the_key_it_was_started_under(keep):
    """While it goes on and after its end. A program need not keep our ids."""
    async with Engine(MemoryStore()) as engine:
        run = await engine.start(Source("a"), key="order-17", keep=keep)
        found = [await engine.find("order-17")]
        await run.stop()
        found.append(await engine.find("order-17"))
        missing = await engine.find("order-18")

    assert [run.id] * 2 == [each.id for each in found]
    assert ("stopped", None) == (found[1].settlement.outcome, missing)


@requirement("start.own-key")
async def test_starts_at_the_same_time_with_one_key_give_one_run_and_close_the_other_sources(keep):
    """A form that was sent twice starts one run, and no source leaks."""
    sources = [Source("a") for _ in range(20)]
    async with Engine(MemoryStore()) as engine:
        runs = await asyncio.gather(*(engine.start(source, key="order-17", keep=keep) for source in sources))
        await asyncio.sleep(0)
        late = Source("b")
        runs.append(await engine.start(late, key="order-17", keep=keep))

    assert 1 == len({run.id for run in runs})
    assert [1] * 21 == [source.closed for source in [*sources, late]]
    assert 1 == sum(source.is_read for source in [*sources, late])


@requirement("start.own-key")
async def test_a_stored_run_and_one_in_memory_share_their_keys():
    """Whether a run is stored is no part of its name."""
    async with Engine(MemoryStore()) as engine:
        stored = await engine.start(Source("a"), key="one", keep=True)
        in_memory = await engine.start(Source("a"), key="two", keep=False)
        again = [await engine.start(Source(), key="one"), await engine.start(Source(), key="two", keep=True)]

    assert [stored.id, in_memory.id] == [run.id for run in again]


@requirement("start.own-key")
async def test_a_key_belongs_to_its_owner(keep):
    """One user's order 17 is not another's."""
    async with Engine(MemoryStore()) as engine:
        anns = await engine.start(Source("a"), key="17", owner="ann", keep=keep)
        bobs = await engine.start(Source("b"), key="17", owner="bob", keep=keep)
        found = [await engine.find("17", owner=owner) for owner in ("ann", "bob", "")]

    assert anns.id != bobs.id
    assert [anns.id, bobs.id, None] == [run and run.id for run in found]


@requirement("start.own-key")
async def test_a_repeated_key_needs_no_room(keep):
    """A retry of the only run that fits must find it, not be refused."""
    async with Engine(MemoryStore(), limits=Limits(runs=1)) as engine:
        run = await engine.start(Source("a"), key="17", keep=keep)
        again = await engine.start(Source("b"), key="17", keep=keep)
        with pytest.raises(RunLimitReached):
            await engine.start(Source("c"), key="18", keep=keep)

    assert run.id == again.id


@requirement("start.own-key")
async def test_a_key_is_free_again_once_its_run_is_forgotten():
    """An engine without a store remembers for a while, and not for ever."""
    async with Engine(limits=Limits(recent=1)) as engine:
        first = await engine.start(Source("a", ends=True), key="17")
        await first.settled()
        other = await engine.start(Source("b", ends=True))
        await other.settled()
        second = await engine.start(Source("c", ends=True), key="17")
        await second.settled()

    assert ("a", "c") == (first.text, second.text)


@requirement("start.own-key")
async def test_a_stored_run_is_found_by_its_key_in_the_next_process(tmp_path):
    """The key is stored with the run."""
    for expected in (None, "Once"):
        store = await asyncio.to_thread(SqliteStore, tmp_path)
        async with Engine(store) as engine:
            found = await engine.find("story")
            if found is None:
                await (await engine.start(Source("Once", ends=True), key="story", keep=True)).settled()
        await store.close()

        assert expected == (found and found.text)


@requirement("start.own-key")
async def test_an_idempotency_key_of_a_request_is_another_key():
    """A client that can choose its header must not reach a run that a program named."""
    async with Core(MemoryStore()) as engine:
        await engine.start(Source("a"), key="17", owner="ann", keep=True)
        sent = Idempotency("ann", "17", "digest")
        other = await engine.submit(RunRecord(id="run_x", owner="ann"), source=Source("b"), idempotency=sent)
        found = await engine.find("17", owner="ann")

    assert "run_x" == other.id != found.id


@pytest.mark.parametrize("key", ["", "a\nb", "x" * 257])
async def test_a_key_that_cannot_be_one_is_refused(key):
    """A mistake is an error at the call, not a run that nobody finds."""
    async with Engine() as engine:
        with pytest.raises(ValueError, match="1 to 256 printable characters"):
            await engine.start(Source("a"), key=key)
        with pytest.raises(ValueError, match="1 to 256 printable characters"):
            await engine.find(key)


@requirement("start.own-key")
async def test_a_start_that_is_cancelled_while_it_waits_for_its_key_closes_its_source():
    """The request that wanted the run has gone."""

    class SlowStore(MemoryStore):
        async def find_repeated(self, idempotency):
            await asyncio.Event().wait()

    source = Source("a")
    async with Engine(SlowStore()) as engine:
        starting = asyncio.create_task(engine.start(source, key="17"))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        await asyncio.sleep(0.01)

    assert (1, False) == (source.closed, source.is_read)


# a run as a response


@requirement("embed.frames")
async def test_the_response_of_a_run_can_be_made_in_a_thread():
    """FastAPI calls an endpoint that is no coroutine in a thread, which has no event loop."""
    async with Engine() as engine:
        run = await engine.start(Source("Hi.", ends=True))
        request = Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []})
        response = await asyncio.to_thread(events, run, request)

    assert isinstance(response, EventStream)
