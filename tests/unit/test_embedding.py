"""The engine as another program uses it: a run by the program's own key, its outcome as a word, who stopped it."""

import asyncio
import re
import signal
import time
from typing import Any, get_args

import msgspec
import pytest
from starlette.requests import Request

from holdfast import Completed, Engine, Failed, Interrupted, Limits, Outcome, Stopped, Truncated
from holdfast.asgi import events
from holdfast.asgi.event_stream import EventStream
from holdfast.engine.core import Core
from holdfast.errors import IdempotencyConflict, RunLimitReached, RunNotFound
from holdfast.events import ErrorInfo, encode_settlement
from holdfast.fastapi import run_routes
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


# what is no source


async def tale(subject="a fox"):
    yield f"Once there was {subject}."


async def pushed(out):
    out.emit(["Once."])


async def forgets_the_outlet():
    raise AssertionError("nobody calls this")


def plain():
    yield "Once."


class Callable:
    async def __call__(self, out):
        out.emit(["Once."])


@requirement("embed.refused")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ["a", "b"], "not a list"),
        (lambda: "a", "not a str"),
        (lambda: None, "not a NoneType"),
        (lambda: 1, "not an int"),
        (lambda: iter("a"), "not a str_.*iterator"),
        (lambda: tale, r"tale was not called: pass tale\(…\)"),
        (lambda: forgets_the_outlet(), r"forgets_the_outlet\(\) is a coroutine: let forgets_the_outlet yield text"),
        (lambda: forgets_the_outlet, "forgets_the_outlet does not take an Outlet"),
        (lambda: plain(), r"plain\(\) is a plain generator: write `async def plain`"),
        (lambda: plain, "plain is a plain generator function"),
        (lambda: Callable, "Callable is a class"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_no_source_is_refused_at_the_call(make, said):
    """A run that fails later, with a traceback out of the engine, hides the mistake from whoever made it."""
    async with Engine() as engine:
        with pytest.raises(TypeError, match=rf"^start\(\) needs an async generator.*{said}"):
            await engine.start(make())
        none = await engine.list()

    assert [] == none


@requirement("embed.refused")
@pytest.mark.parametrize(
    "source",
    [
        lambda: tale(),
        lambda: Source("Once.", ends=True),
        lambda: pushed,
        lambda: Callable(),
        lambda: lambda o: pushed(o),
    ],
    ids=["generator", "iterator", "push source", "object", "lambda"],
)
async def test_what_is_a_source_is_taken(source):
    """The check must not refuse what a run can read."""
    async with Engine() as engine:
        settlement = await (await engine.start(source())).settled()

    assert ("completed", "Once") == (settlement.outcome, settlement.text[:4])


@requirement("embed.refused")
async def test_other_mistakes_of_a_start_are_refused_at_the_call():
    """A misspelt lifetime would be a run that nobody stops; an owner that is None would be everyone's."""
    async with Engine() as engine:
        with pytest.raises(ValueError, match="lifetime is 'detached' or 'attached', not 'atached'"):
            await engine.start(tale(), lifetime="atached")
        with pytest.raises(ValueError, match="keep=True needs a store"):
            await engine.start(tale(), keep=True)
        for call in (engine.start(tale(), owner=None), engine.open("run_x", owner=None), engine.list(owner=7)):
            with pytest.raises(TypeError, match="owner must be a string"):
                await call
        with pytest.raises(RuntimeError, match="this engine has no store"):
            _ = engine.store
        told = tale()
        await (await engine.start(told)).settled()
        with pytest.raises(TypeError, match=r"This one has ended: call tale\(…\) again"):
            await engine.start(told)
        shared = tale()
        run, refused = await asyncio.gather(*(engine.start(shared) for _ in range(2)), return_exceptions=True)
        assert "A run reads this one already: call tale(…) again" in str(refused)
        assert (await run.settled()).text == "Once there was a fox."
    with pytest.raises(TypeError, match="`limits` is a Limits, such as"):
        Engine(limits={"runs": 3})


# the life of an engine


@requirement("embed.refused")
async def test_an_engine_that_is_not_running_says_how_to_start_it():
    """An app whose author forgot the lifespan must not keep runs that no end settles."""
    engine = Engine()
    with pytest.raises(RuntimeError, match=r"async with engine.*lifespan=engine\.lifespan"):
        await engine.start(tale())
    async with engine:
        with pytest.raises(RuntimeError, match="started already"):
            await engine.__aenter__()
    with pytest.raises(RuntimeError, match="not running"):
        await engine.open("run_x")


@requirement("embed.kept")
async def test_an_engine_opens_what_its_url_names_and_keeps_each_run(tmp_path):
    """Nobody has to remember a flag at each start. The same engine is started again by the next test of an app."""
    engine = Engine(f"sqlite:{tmp_path}")
    async with engine:
        kept = await engine.start(tale(), owner="ann")
        unkept = await engine.start(tale(), owner="ann", keep=False)
        await asyncio.gather(kept.settled(), unkept.settled())
    async with engine:
        again = await engine.open(kept.id, owner="ann")
        with pytest.raises(RunNotFound):
            await engine.open(unkept.id, owner="ann")
        deleted = await engine.store.delete_runs(time.time() + 1)
        rest = await engine.list(owner="ann")

    assert ("Once there was a fox.", 1, []) == (again.text, deleted, rest)


@requirement("embed.kept")
async def test_a_store_that_cannot_be_opened_leaves_an_engine_that_can_be_started(tmp_path):
    """The folder was not there yet: the next try must not find half of an engine."""
    (tmp_path / "data").write_text("not a folder, and not a database")
    engine = Engine(f"sqlite:{tmp_path / 'data'}")
    with pytest.raises(Exception, match="data"):
        await engine.__aenter__()
    (tmp_path / "data").unlink()
    async with engine:
        run = await engine.start(tale())

    assert run.kept


@requirement("embed.shutdown")
async def test_a_lifespan_leaves_the_signal_handlers_as_it_found_them():
    """They belong to the server. In a thread, where tests of an app may run it, there are none to hear."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    engine = Engine()
    async with engine.lifespan(None):
        heard = signal.getsignal(signal.SIGINT)
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def in_a_thread():
        async with engine.lifespan(None):
            return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    assert heard not in before
    assert before == after == await asyncio.to_thread(asyncio.run, in_a_thread())


# owners


@requirement("embed.owner")
async def test_what_belongs_to_another_is_not_found(keep):
    """Also if nobody is named: then only runs that belong to nobody are found."""
    async with Engine(MemoryStore()) as engine:
        anns = await engine.start(Source("a"), owner="ann", keep=keep)
        nobodys = await engine.start(Source("b"), keep=keep)
        for call in (engine.open, engine.stop):
            for run, owner in ((anns, "bob"), (anns, ""), (nobodys, "ann")):
                with pytest.raises(RunNotFound):
                    await call(run.id, owner=owner)
        mine = await engine.open(anns.id, owner="ann")
        status = mine.status
        stopped = await engine.stop(anns.id, owner="ann")

    assert (anns.id, "running", True) == (mine.id, status, stopped.by_this_call)


@requirement("embed.owner")
@pytest.mark.parametrize("store", [MemoryStore, lambda: None], ids=["stored", "in memory"])
async def test_an_owner_lists_the_own_runs_page_by_page(store):
    """The newest first, those that go on and those that have ended, and none of anybody else."""
    async with Engine(store()) as engine:
        runs = []
        for number in range(5):
            runs.append(await engine.start(Source("a", ends=number % 2 == 0), owner="ann"))
            await engine.start(Source("b"), owner="bob")
        await asyncio.gather(*(run.settled() for run in runs[::2]))
        pages, before = [], None
        while page := await engine.list(owner="ann", before=before, limit=2):
            pages.append(page)
            before = page[-1].id
        nobodys = await engine.list()

    listed = [run.id for page in pages for run in page]
    assert [2, 2, 1] == [len(page) for page in pages]
    assert {run.id for run in runs} == set(listed)
    assert [] == nobodys


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
async def test_a_key_of_another_digest_is_refused_and_found_all_the_same(keep):
    """Who looks for a run knows its key, and not the request that started it."""
    unread = Source("b")
    async with Engine(MemoryStore()) as engine:
        run = await engine.start(Source("a"), key="order-17", digest="one", keep=keep)
        with pytest.raises(IdempotencyConflict):
            await engine.start(unread, key="order-17", digest="two", keep=keep)
        again = await engine.start(Source("c"), key="order-17", digest="one", keep=keep)
        found = await engine.find("order-17")

    assert [run.id] * 2 == [again.id, found.id]
    assert 1 == unread.closed


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


@pytest.mark.parametrize(
    ("store", "error", "said"),
    [(5, TypeError, "`store` is a text such as 'sqlite:./data'"), ("sqlite", ValueError, "use memory:, sqlite:PATH")],
)
async def test_a_store_that_is_none_is_refused_with_what_to_write(store: Any, error: type[Exception], said: str):
    """A bare word would be a folder of that name, and a number an engine that fails later."""
    with pytest.raises(error, match=re.escape(said)):
        async with Engine(store):
            pass


@pytest.mark.parametrize("after", [-1, "3", None, 1.5, True])
async def test_a_position_that_is_none_is_refused(after: Any):
    """At the call, and not as an error of the log that it is read from."""
    async with Engine() as engine:
        run = await engine.start(tale())
        with pytest.raises(ValueError, match="`after` is the seq of the last event that was seen"):
            run.read(after=after)


@requirement("embed.frames")
async def test_the_response_of_a_run_can_be_made_in_a_thread():
    """FastAPI calls an endpoint that is no coroutine in a thread, which has no event loop."""
    async with Engine() as engine:
        run = await engine.start(Source("Hi.", ends=True))
        request = Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []})
        response = await asyncio.to_thread(events, run, request)

    assert isinstance(response, EventStream)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"owner": "ann"}, "owner is a dependency"),
        ({"owner": None}, "owner is a dependency"),
        ({"owner": lambda: "ann", "start": tale()}, "pass story, not story"),
    ],
    ids=["a name", "nobody", "a source"],
)
def test_what_cannot_make_routes_is_refused_when_they_are_made(given, said):
    """Not with the first request of somebody."""
    with pytest.raises(TypeError, match=said):
        run_routes(Engine(), **given)
