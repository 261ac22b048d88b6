"""Reading a run: any number of readers, from any place, at any time, and each sees all of it once and in order."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.routing import Route

from holdfast.asgi import events, on_error
from holdfast.engine.core import Core
from holdfast.errors import HoldfastError
from holdfast.runs.run import Limits
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Frame, Response
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import (
    Delta,
    Done,
    Finish,
    Gate,
    Headers,
    Repeat,
    Role,
    Step,
    Tokens,
    Upstream,
    UsageChunk,
    answer,
)
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024


class World(NamedTuple):
    api: Native
    up: Upstream
    client: Client
    server: Server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests: each has sessions, models and gates of its own."""
    async with Upstream() as up:
        async with Server(
            tmp_path_factory.mktemp("subscribe"), [provider(up.base_url, models=None)], forked=False
        ) as server:
            async with server.client() as client:
                yield World(Native(client), up, client, server)


def gated(*parts: str | int, gate: str) -> list[Step]:
    """An answer that waits between its parts at the gates `<gate>0`, `<gate>1`, …; a number is that many tokens."""
    steps: list[Step] = []
    for number, part in enumerate(parts):
        steps += [Gate(f"{gate}{number - 1}")] if number else []
        steps += [Tokens(part) if isinstance(part, int) else Delta(part)]
    return [Headers(), Role(), *steps, Finish(), UsageChunk(3, 5), Done()]


async def completed(world: World, model: str, *texts: str) -> str:
    """The id of a run in a session that has ended with these texts."""
    world.up.models[model] = answer(*texts)
    run_id = await world.api.start(await world.api.new_session(), "Hello", model)
    assert "completed" == (await world.api.settled(run_id))["outcome"]
    return run_id


async def frames_to(response: Response, text: str) -> list[Frame]:
    """Read until the deltas so far say a text."""
    frames: list[Frame] = []
    left = text
    while left:
        frame = await response.next_event()
        assert frame is not None, f"the stream ended with {said(frames)!r}"
        frames.append(frame)
        delta = said([frame])
        assert left.startswith(delta)
        left = left.removeprefix(delta)
    return frames


def said(frames: list[Frame]) -> str:
    return "".join(frame.json()["text"] for frame in frames if frame.event == "text.delta")


def numbers(frames: list[Frame]) -> list[int]:
    return [int(frame.id or -1) for frame in frames]


# Replay, live, and everything between.


@requirement("sub.replay-then-live")
async def test_a_late_reader_is_replayed_what_was_and_then_follows_live(world):
    """Replay and live are one stream: no second request, no gap and no repeat where they meet."""
    world.up.models["late"] = gated("one ", "two ", "three", gate="late")
    run_id = await world.api.start(await world.api.new_session(), "Hello", "late")
    await (await world.api.events(run_id)).head()
    await world.api.shown(run_id, "one ")
    world.up.open("late0")
    await world.api.shown(run_id, "one two ")
    late = await world.api.events(run_id)
    replayed = await frames_to(late, "one two ")
    world.up.open("late1")
    live = await late.all_events()

    assert ("one two ", "three") == (said(replayed), said(live))
    assert [*range(1, len(replayed + live) + 1)] == numbers(replayed + live)
    assert ["run.started", "run.settled"] == [replayed[0].event, live[-1].event]


@requirement("sub.same-for-all")
async def test_a_hundred_readers_see_the_same_bytes_wherever_they_attached(world):
    """One log, one order, one rendering: forty from the start, thirty in the middle, thirty after the end."""
    world.up.models["hundred"] = gated(60, 60, 60, gate="hundred")
    run_id = await world.api.start(await world.api.new_session(), "Hello", "hundred")
    await world.up.reached("hundred0")
    readers = [await world.api.events(run_id) for _ in range(40)]
    world.up.open("hundred0")
    await world.up.reached("hundred1")
    readers += [await world.api.events(run_id) for _ in range(30)]
    world.up.open("hundred1")
    await readers[0].body()
    readers += [await world.api.events(run_id) for _ in range(30)]
    bodies = await asyncio.gather(*(reader.body() for reader in readers))

    assert 100 == len(bodies)
    assert 1 == len(set(bodies))
    assert 180 == bodies[0].count(b"event: text.delta")


@requirement("sub.resume-exact", "sub.own-seq")
async def test_after_n_comes_n_plus_one_for_every_n_in_the_query_and_in_the_header(world):
    """Browsers send Last-Event-ID by themselves, scripts ask with a query: both get exactly the rest, to the byte."""
    run_id = await completed(world, "resume", *(f"{n}," for n in range(12)))
    whole = await (await world.api.events(run_id)).all_events()
    path = f"/api/runs/{run_id}/events"
    by_query = [await (await world.client.get(f"{path}?after={n}")).all_events() for n in range(len(whole) + 1)]
    by_header = [
        await (await world.client.get(path, headers={"Last-Event-ID": str(n)})).all_events()
        for n in range(len(whole) + 1)
    ]

    assert [whole[n:] for n in range(len(whole) + 1)] == by_query == by_header
    assert [*range(1, len(whole) + 1)] == numbers(whole) == [frame.json()["seq"] for frame in whole]
    assert {run_id} == {frame.json()["run"] for frame in whole}
    assert ["run.settled"] == [frame.event for frame in whole if frame.event == "run.settled"]


@requirement("sub.resume-exact")
async def test_a_reader_that_left_in_the_middle_goes_on_where_it_was_while_the_run_goes_on(world):
    """The run did not wait: what came while the reader was away is there, once."""
    world.up.models["middle"] = gated("a", "b", "c", gate="middle")
    run_id = await world.api.start(await world.api.new_session(), "Hello", "middle")
    first = await world.api.events(run_id)
    seen = await frames_to(first, "a")
    first.leave("rst")
    world.up.open("middle0")
    await world.api.shown(run_id, "ab")
    again = await world.api.events(run_id, after=numbers(seen)[-1])
    seen += await frames_to(again, "b")
    world.up.open("middle1")
    seen += await again.all_events()

    assert [*range(1, len(seen) + 1)] == numbers(seen)
    assert "abc" == said(seen)


@requirement("sub.after-end")
async def test_a_settled_run_replays_and_the_stream_closes(world):
    """Whoever comes late needs no other call than whoever came early."""
    run_id = await completed(world, "ended", "all ", "of it")
    response = await world.api.events(run_id)
    frames = await response.all_events()

    assert ("all of it", "run.settled", True) == (said(frames), frames[-1].event, response.complete)
    assert "" == response.unfinished
    assert "completed" == frames[-1].json()["settlement"]["outcome"]


@requirement("sub.after-end", "sub.event-source-ends")
async def test_a_reader_that_has_seen_the_end_gets_204(world):
    """An EventSource reconnects by itself after the end, for ever, unless it is told that there is nothing more."""
    run_id = await completed(world, "seen", "all")
    end = (await world.api.run(run_id))["seq"]
    response = await world.client.get(f"/api/runs/{run_id}/events?after={end}")

    assert (204, b"") == (response.status, await response.body())


@requirement("sub.after-end")
async def test_a_completion_that_nobody_asked_to_keep_can_still_be_read_for_a_while(world):
    """A client that lost its connection in the last moment comes back for the end."""
    world.up.models["unkept"] = answer("not kept")
    body = {"model": "unkept", "messages": [{"role": "user", "content": "Hello"}]}
    completion = await world.client.post("/v1/chat/completions", body)
    await completion.json()
    frames = await world.api.replay(completion.headers["x-run-id"])

    assert ("not kept", "run.settled") == (said(frames), frames[-1].event)


@requirement("sub.unknown-404")
@pytest.mark.parametrize("run_id", ["run_unknown", "run_" + "0" * 36, "x" * 4000, "%00", "..%2F..", "%F0%9F%8C%8A"])
async def test_an_unknown_run_is_404_at_once_on_every_call(world, run_id):
    """A stream that opens and stays silent would leave a client waiting for ever."""
    began = time.monotonic()
    answers = [
        await world.client.get(f"/api/runs/{run_id}/events"),
        await world.client.get(f"/api/runs/{run_id}"),
        await world.client.post(f"/api/runs/{run_id}/stop"),
    ]

    assert [404] * 3 == [answer.status for answer in answers]
    assert {"run_not_found", "not_found"} >= {(await answer.json())["error"]["code"] for answer in answers}
    assert time.monotonic() - began < SOON


# Cursors that make no sense.

BAD_CURSORS = {
    "a word": "garbage",
    "negative": "-1",
    "from the future": "1000000",
    "huge": "9" * 400,
    "above 64 bits": str(2**64),
    "a fraction": "1.5",
    "an exponent": "1e3",
    "hexadecimal": "0x1",
    "other digits": "%D9%A3",
    "a NUL": "%00",
    "a number and a NUL": "1%00",
    "a line break": "1%0A%0Adata:%20forged",
    "empty": "",
    "two numbers": "1,2",
    "a feed's cursor": "1:2",
    "another run's id": "run_00000000000000000000000000000000000:3",
    "not UTF-8": "%FF%FE",
}


@requirement("sub.bad-cursor")
@pytest.mark.parametrize("cursor", BAD_CURSORS.values(), ids=BAD_CURSORS.keys())
async def test_a_cursor_that_makes_no_sense_starts_at_the_first_event_and_says_so(world, cursor):
    """Guessing would skip or repeat events; the client learns, in a frame without a number, to begin anew."""
    run_id = await completed(world, "bad-cursor", "whole ", "text")
    frames = await (await world.client.get(f"/api/runs/{run_id}/events?after={cursor}")).all_events()

    assert ("notice", None, "cursor_reset") == (frames[0].event, frames[0].id, frames[0].json()["code"])
    assert [*range(1, len(frames))] == numbers(frames[1:])
    assert ("whole text", "run.settled") == (said(frames), frames[-1].event)


@requirement("sub.bad-cursor")
@pytest.mark.parametrize("cursor", ["garbage", "-1", "1000000", "9" * 400, "1:2", "\xff", "\N{WATER WAVE}"])
async def test_a_bad_cursor_in_the_header_is_treated_the_same(world, cursor):
    """An EventSource sends back whatever it last saw, of another run too."""
    run_id = await completed(world, "bad-header", "whole")
    header = {"Last-Event-ID": cursor.encode().decode("latin-1")}
    frames = await (await world.client.get(f"/api/runs/{run_id}/events", headers=header)).all_events()

    assert ("cursor_reset", "whole") == (frames[0].json()["code"], said(frames))


@requirement("sub.bad-cursor")
@pytest.mark.parametrize("where", ["query", "header"])
async def test_a_cursor_of_a_megabyte_is_refused_or_reset_and_the_server_goes_on(world, where):
    """Nobody sends one by mistake; it must cost neither the server nor the other readers anything."""
    run_id = await completed(world, f"megabyte-{where}", "whole")
    path, long = f"/api/runs/{run_id}/events", "7" * MIB
    if where == "query":
        asked = world.client.get(f"{path}?after={long}")
    else:
        asked = world.client.get(path, headers={"Last-Event-ID": long})
    try:
        outcome: Any = said(await (await asked).all_events())
    except ConnectionError as error:
        outcome = error

    assert outcome in ("whole", "") or isinstance(outcome, ConnectionError)
    assert "whole" == said(await world.api.replay(run_id))


@requirement("sub.bad-cursor")
async def test_a_nul_byte_in_the_header_reaches_nobody(world):
    """It is no header line at all."""
    run_id = await completed(world, "nul-header", "whole")
    response = await world.client.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": "1\x00"})

    assert 400 == response.status
    assert "whole" == said(await world.api.replay(run_id))


@requirement("sub.bad-cursor")
async def test_a_cursor_ahead_of_a_run_that_goes_on_does_not_wait_for_the_run_to_catch_up(world):
    """Otherwise the reader would get nothing, and then a text whose beginning is missing."""
    world.up.models["ahead"] = gated("one ", "two", gate="ahead")
    run_id = await world.api.start(await world.api.new_session(), "Hello", "ahead")
    await world.api.shown(run_id, "one ")
    reader = await world.api.events(run_id, after=500)
    before = await frames_to(reader, "one ")
    world.up.open("ahead0")
    after = await reader.all_events()

    assert "cursor_reset" == before[0].json()["code"]
    assert [*range(1, len(before + after))] == numbers(before[1:] + after)


# Events that are gone.


@requirement("sub.gap-410")
async def test_a_cursor_whose_events_are_gone_is_410_and_a_snapshot_takes_their_place():
    """The events of runs that ended long ago are forgotten, their text is not."""
    store = MemoryStore()
    async with Upstream(answer("long ", "ago")) as up:
        settings = Settings(providers=(ProviderSettings("up", base_url=up.base_url, models=("m",)),))
        async with Served(create_app(settings, store, NO_HOME)) as served, served.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Hello", "m")
            end = numbers(await api.replay(run_id))[-1]
            await store.trim_logs(time.time() + 60)
            path = f"/api/runs/{run_id}/events"
            refused = [await client.get(f"{path}?after={n}") for n in ("0", "1", str(end - 2), "garbage", "999999")]
            refused.append(await client.get(path))
            rest = await api.replay(run_id, after=end - 1)
            snapshot = await (await client.get(f"{path}?after=snapshot")).all_events()

            for response in refused:
                body = await response.json()
                assert (410, "resume_gap", end) == (response.status, body["error"]["code"], body["oldest"])
            assert [(str(end), "run.settled")] == [(frame.id, frame.event) for frame in rest]
            assert [(str(end - 1), "snapshot"), (str(end), "run.settled")] == [(f.id, f.event) for f in snapshot]
            assert "long ago" == snapshot[0].json()["text"]


@requirement("sub.gap-410")
async def test_a_run_longer_than_its_log_offers_a_snapshot_and_goes_on_live_from_there():
    """A run that nobody asked to keep has a limit; a reader that comes too late still gets all of the text."""
    more = asyncio.Event()

    async def source():
        for number in range(100):
            yield f"{number} "
        await more.wait()
        yield "live"

    engine = Core(limits=Limits(log=20))

    async def read(request):
        return events(await engine.open(request.path_params["run_id"]), request)

    app = Starlette(routes=[Route("/{run_id}", read)], exception_handlers={HoldfastError: on_error})
    async with engine, Served(app) as served, served.client() as client:
        run = await engine.start(source())
        async with asyncio.timeout(LONG):
            while run.seq < 101:  # noqa: ASYNC110 - the source never waits before it is there
                await asyncio.sleep(0)
        refused = await client.get(f"/{run.id}?after=5")
        oldest = (await refused.json())["oldest"]
        reader = await client.get(f"/{run.id}?after=snapshot")
        snapshot = await reader.next_event()
        from_oldest = await client.get(f"/{run.id}?after={oldest - 1}")
        more.set()
        live = await reader.all_events()
        kept = await from_oldest.all_events()

        text = "".join(f"{number} " for number in range(100))
        assert (410, True) == (refused.status, 81 <= oldest <= 92)
        assert ("101", "snapshot", text) == (snapshot.id, snapshot.event, snapshot.json()["text"])
        assert ([102, 103], "live") == (numbers(live), said(live))
        assert [*range(oldest, 104)] == numbers(kept)


# The session's feed.


async def feed(world: World, session_id: str, after: str | None = None) -> Response:
    headers = {} if after is None else {"Last-Event-ID": after}
    response = await world.client.get(f"/api/sessions/{session_id}/events", headers=headers)
    assert 200 == response.status
    return response


async def read_feed(response: Response, *, until: str, times: int = 1) -> list[Frame]:
    """Read a feed to an entry of that type, the first or a later one. A feed itself has no end."""
    frames: list[Frame] = []
    while times:
        frame = await response.next_event()
        assert frame is not None, "the feed ended"
        frames.append(frame)
        times -= frame.event == until and ":" not in (frame.id or "")
    return frames


@requirement("sub.two-tabs")
async def test_two_tabs_see_the_same_the_users_message_included_and_the_deltas_as_they_come(world):
    """The tab that did not send must show the question, the answer as it grows, and its end, all without a reload."""
    world.up.models["tabs"] = gated("one ", "two", gate="tabs")
    session_id = await world.api.new_session()
    tabs = [await feed(world, session_id) for _ in range(2)]
    run_id = await world.api.start(session_id, "Which?", "tabs")
    begun = [await frames_to(tab, "one ") for tab in tabs]
    world.up.open("tabs0")
    ended = [await read_feed(tab, until="run.settled") for tab in tabs]

    assert begun[0] == begun[1]
    assert ended[0] == ended[1]
    question, *_ = [frame.json()["message"] for frame in begun[0] if frame.event == "message.added"]
    assert ("user", "Which?") == (question["role"], question["content"])
    assert ("two", "one two") == (said(ended[0]), ended[0][-1].json()["settlement"]["text"])
    assert run_id == ended[0][-1].json()["run_id"]
    answers = [frame.json()["message"] for frame in ended[0] if frame.event == "message.added"]
    assert [("assistant", "one two", run_id)] == [(said["role"], said["content"], said["run_id"]) for said in answers]


@requirement("sub.two-tabs")
async def test_a_feed_can_be_taken_up_after_every_one_of_its_frames_across_runs(world):
    """A laptop that wakes up may have stopped anywhere: in an answer, before its run, after a rename."""
    session_id = await eventful(world, "prefix")
    whole = await read_feed(await feed(world, session_id), until="run.settled", times=3)
    resumed = []
    for place, frame in enumerate(whole[:-1]):
        left = sum(later.event == "run.settled" for later in whole[place + 1 :])
        reader = await feed(world, session_id, after=frame.id)
        resumed.append(await read_feed(reader, until="run.settled", times=left))
        reader.leave()

    assert len({frame.id for frame in whole}) == len(whole)
    for place, frames in enumerate(resumed):
        assert [frame.id for frame in whole[place + 1 :]] == [frame.id for frame in frames]
        assert whole[place + 1 :] == frames


async def eventful(world: World, name: str) -> str:
    """A session in which a lot has happened: three runs, a rename and a queued message in the middle of an answer."""
    world.up.models[name] = gated("one ", "two ", "three", gate=name)
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "First?", name)
    await world.api.shown(run_id, "one ")
    assert 200 == (await world.client.request("PATCH", f"/api/sessions/{session_id}", json={"title": "New"})).status
    world.up.models[f"{name}-2"], world.up.models[f"{name}-3"] = answer("four ", "five"), answer("six")
    world.up.open(f"{name}0")
    await world.api.shown(run_id, "one two ")
    second = await world.api.start(session_id, "Second?", f"{name}-2", if_busy="queue")
    world.up.open(f"{name}1")
    await world.api.settled(run_id)
    await world.api.settled(second)
    await world.api.settled(await world.api.start(session_id, "Third?", f"{name}-3"))
    return session_id


@requirement("sub.two-tabs")
async def test_a_feed_can_be_taken_up_in_the_middle_of_an_answer_that_goes_on(world):
    """After `n:seq` comes `n:seq+1`, then live: the other tab is in step again without a reload."""
    world.up.models["wake"] = gated("one ", "two ", "three", gate="wake")
    session_id = await world.api.new_session()
    stays, sleeps = await feed(world, session_id), await feed(world, session_id)
    run_id = await world.api.start(session_id, "Hello", "wake")
    seen = await frames_to(sleeps, "one ")
    sleeps.leave("rst")
    world.up.open("wake0")
    await world.api.shown(run_id, "one two ")
    woken = await feed(world, session_id, after=seen[-1].id)
    seen += await frames_to(woken, "two ")
    world.up.open("wake1")
    seen += await read_feed(woken, until="run.settled")

    assert await read_feed(stays, until="run.settled") == seen


async def feeds(world: World, *asked: str) -> Response:
    response = await world.client.get("/api/events?" + "&".join(f"session={each}" for each in asked))
    assert 200 == response.status
    return response


@requirement("sub.two-tabs")
async def test_several_sessions_are_read_through_one_connection_each_as_in_its_own_feed(world):
    """A browser has six connections to a server and its reader has more tabs than that."""
    sessions = [await eventful(world, name) for name in ("many-a", "many-b")]
    alone = {id: await read_feed(await feed(world, id), until="run.settled", times=3) for id in sessions}
    together = await feeds(world, *sessions)
    frames = [await together.next_event() for _ in range(sum(map(len, alone.values())))]

    for id in sessions:
        mine = [frame for frame in frames if frame.id.startswith(f"{id}@")]
        assert [(f"{id}@{frame.id}", frame.event, frame.data) for frame in alone[id]] == [
            (frame.id, frame.event, frame.data) for frame in mine
        ]


@requirement("sub.two-tabs")
async def test_each_of_several_sessions_has_a_cursor_of_its_own(world):
    """After a lost connection each goes on where it was."""
    ahead, behind = await eventful(world, "own-a"), await eventful(world, "own-b")
    whole = await read_feed(await feed(world, ahead), until="run.settled", times=3)
    resumed = await feeds(world, f"{ahead}@{whole[-2].id}", f"{behind}@1")
    first = {frame.id.partition("@")[0]: frame for frame in [await resumed.next_event() for _ in range(2)]}

    assert (f"{ahead}@{whole[-1].id}", "2") == (first[ahead].id, first[behind].id.partition("@")[2])


@requirement("sub.two-tabs", "safe.owner-404")
async def test_a_session_that_is_deleted_or_never_was_leaves_the_others_as_they_are(world):
    """One tab's deletion must not cut off the others."""
    stays, leaves = await world.api.new_session(), await world.api.new_session()
    reader = await feeds(world, "ses_unknown", stays, leaves)
    unknown = await reader.next_event()
    assert 204 == (await world.client.request("DELETE", f"/api/sessions/{leaves}")).status
    deleted = await reader.next_event()
    await world.client.request("PATCH", f"/api/sessions/{stays}", json={"title": "Still here"})
    changed = await reader.next_event()

    assert [("session.deleted", None, "ses_unknown"), ("session.deleted", None, leaves)] == [
        (frame.event, frame.id, frame.json()["session_id"]) for frame in (unknown, deleted)
    ]
    assert (f"{stays}@1", "session.changed") == (changed.id, changed.event)


@requirement("safe.sse-injection")
async def test_the_name_of_a_session_that_is_not_there_forges_no_frame(world):
    """It comes from the query, where anything can stand."""
    reader = await feeds(world, "x%0Adata:%20forged%0A%0Aevent:%20run.settled")

    assert ["session.deleted"] == [frame.event for frame in await reader.all_events()]


@pytest.mark.parametrize("query", ["", "?" + "&".join(["session=x"] * 51)])
async def test_no_session_and_too_many_are_refused(world, query):
    """A stream of nothing would wait for ever."""
    response = await world.client.get(f"/api/events{query}")

    assert (400, "session") == (response.status, (await response.json())["error"]["param"])


@requirement("sub.two-tabs")
async def test_a_view_tells_where_its_feed_goes_on(world):
    """A page loads the session once, and then hears what is new: all of the answer that is being written, for one."""
    session_id = await eventful(world, "view")
    world.up.models["view-on"] = gated("one ", "two", gate="view-on")
    run_id = await world.api.start(session_id, "Once more", "view-on")
    await world.api.shown(run_id, "one ")
    view = await world.api.session(session_id)
    reader = await feed(world, session_id, after=view["feed"])
    world.up.open("view-on0")
    frames = await read_feed(reader, until="run.settled")

    assert (run_id, "Once more") == (view["active_run"]["id"], view["messages"][-1]["content"])
    assert "one two" == said(frames)
    assert [1, "message.added", "run.settled"] == [
        frames[0].json()["seq"],
        *(frame.event for frame in frames if "n" in frame.json()),
    ]


@requirement("sub.two-tabs", "sub.bad-cursor")
@pytest.mark.parametrize("cursor", ["garbage", "99", "99:1", "2:9999", "-1", "2:-1", "1:2:3", "9" * 100, ""])
async def test_a_feeds_cursor_that_makes_no_sense_never_leaves_anything_out(world, cursor):
    """From the start is too much and can be told apart by its ids; a gap could not."""
    world.up.models["feed-bad"] = answer("one ", "two")
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Hello", "feed-bad")
    await world.api.settled(run_id)
    frames = await read_feed(await feed(world, session_id, after=cursor), until="run.settled")

    assert "one two" == said(frames)


@requirement("sub.two-tabs")
async def test_a_feed_ends_when_its_session_is_deleted_and_of_none_is_404(world):
    """A tab that shows a deleted session learns it."""
    session_id = await world.api.new_session()
    tab = await feed(world, session_id)
    assert 204 == (await world.client.request("DELETE", f"/api/sessions/{session_id}")).status

    assert ([], True) == (await tab.all_events(), tab.complete)
    assert 404 == (await world.client.get(f"/api/sessions/{session_id}/events")).status


# The status.


@requirement("sub.status")
async def test_the_status_has_the_text_so_far_and_then_how_it_ended(world):
    """A client that cannot stream asks now and then: it must get as much as one that can."""
    world.up.models["status"] = gated("one ", "two", gate="status")
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Hello", "status")
    reader = await world.api.shown(run_id, "one ")
    during = await world.api.run(run_id)
    listed = (await world.api.session(session_id))["active_run"]
    world.up.open("status0")
    await reader.all_events()
    after = await world.api.run(run_id)

    assert ("running", "one ", None, None) == (
        during["status"],
        during["text"],
        during["settlement"],
        during["settled_at"],
    )
    # only the node that works on a run knows what it waits for, and another one may have answered
    assert listed | {"waits_for": None} == during | {"waits_for": None}
    assert ("settled", "one two") == (after["status"], after["text"])
    assert after["seq"] > during["seq"] > 0
    settlement = after["settlement"]
    assert ("completed", "stop", False, None) == (
        settlement["outcome"],
        settlement["finish_reason"],
        settlement["partial"],
        settlement["error"],
    )
    assert {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8, "source": "provider"} == settlement["usage"]
    assert after["created_at"] <= after["started_at"] <= after["settled_at"]


# Readers that do not read.


def memory(pid: int) -> int:
    """What a process holds, in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no Pss")


async def stalled(world: World, run_id: str, count: int) -> list[Response]:
    """Readers that ask for the events and never read them, with a small window so that the kernel takes little."""
    readers = []
    for _ in range(count):
        reader = await world.client.send("GET", f"/api/runs/{run_id}/events", receive_buffer=4096)
        reader.stop_reading()
        readers.append(reader)
    return readers


@requirement("sub.slow-reader-bounded")
@pytest.mark.parametrize(("deltas", "size"), [(20_000, 10), (1_000, 5_000)], ids=["small deltas", "large deltas"])
@pytest.mark.one_server("it measures the memory of a process")
async def test_readers_that_never_read_cost_less_than_a_megabyte_each_and_slow_nobody(world, deltas, size):
    """A cursor is a number: what a reader has not taken stays in the log, once, and not in a queue of its own."""
    name = f"never-read-{size}"
    world.up.models[name] = [Headers(), Role(), Repeat(deltas, Delta("x" * size)), Gate(name), Finish(), Done()]
    run_id = await world.api.start(await world.api.new_session(), "Hello", name)
    early = await take(await world.api.events(run_id), deltas + 1)
    before = memory(world.server.pid)
    readers = await stalled(world, run_id, 20)
    late = await take(await world.api.events(run_id), deltas + 1)
    after = memory(world.server.pid)
    began = time.monotonic()
    world.up.open(name)
    ends = [await reader.body() for reader in (early, late)]
    seconds = time.monotonic() - began

    assert [1, 1] == [body.count(b"event: run.settled") for body in ends]
    assert seconds < SOON
    assert after - before < 20 * MIB
    for reader in readers:
        reader.leave("rst")


async def take(reader: Response, count: int) -> Response:
    """Read this many events; the reader goes on from there."""
    for _ in range(count):
        assert await reader.next_event() is not None
    return reader


@requirement("sub.slow-reader-bounded")
async def test_a_reader_that_did_not_read_for_long_still_gets_everything(world):
    """It is behind, not lost: nothing was thrown away on its behalf."""
    world.up.models["behind"] = [Headers(), Role(), Tokens(20_000), Finish(), Done()]
    run_id = await world.api.start(await world.api.new_session(), "Hello", "behind")
    reader = await world.client.send("GET", f"/api/runs/{run_id}/events", receive_buffer=4096)
    await world.api.settled(run_id)
    seqs = numbers(await reader.all_events())

    assert [*range(1, 20_003)] == seqs


@requirement("sub.slow-reader-bounded", "sub.resume-exact")
async def test_thirty_readers_that_leave_and_return_see_all_of_it_once_while_twenty_never_read(world):
    """The crowd of a real afternoon: tunnels, closed lids and frozen tabs, on one run."""
    tokens, chance = 3_000, random.Random(11)
    world.up.models["crowd"] = [Headers(), Role(), Tokens(tokens, 0.0005), Finish(), Done()]
    run_id = await world.api.start(await world.api.new_session(), "Hello", "crowd")
    frozen = await stalled(world, run_id, 20)
    before = memory(world.server.pid)
    visits = itertools.count()

    async def come_and_go() -> list[int]:
        seen = [0]
        while seen[-1] < tokens + 2:  # a reader that left right after the settlement has seen all of it
            next(visits)
            reader = await world.api.events(run_id, after=seen[-1])
            for _ in range(chance.choice([1, 7, 50, 400, 1000])):
                frame = await reader.next_event()
                if frame is None:
                    break
                seen.append(int(frame.id or -1))
            reader.leave(chance.choice(["fin", "rst"]))
        return seen[1:]

    seen = await asyncio.gather(*(come_and_go() for _ in range(30)))
    after = memory(world.server.pid)

    assert [[*range(1, tokens + 3)]] * 30 == seen
    assert next(visits) > 100
    assert after - before < 20 * MIB
    for reader in frozen:
        reader.leave("rst")


@requirement("sub.timeline")
@pytest.mark.one_server("the times of a run that is not stored are known to its own node only")
@pytest.mark.parametrize("kept", [True, False], ids=["in a session", "in memory"])
async def test_a_timeline_tells_when_each_event_came(world, kept):
    """People want to see what really happened: where the model paused, and when it was stopped."""
    name = f"timeline-{kept}"
    world.up.models[name] = gated("one ", "two", gate=name)
    if kept:
        run_id = await world.api.start(await world.api.new_session(), "Hello", name)
    else:
        body = {"model": name, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        stream = await world.client.post("/v1/chat/completions", body)
        await stream.head()
        run_id = stream.headers["x-run-id"]
    reader = await world.api.shown(run_id, "one ")
    during = await world.api.get(f"/api/runs/{run_id}/timeline")
    opened = time.time()
    world.up.open(f"{name}0")
    events = await reader.all_events()
    after = await world.api.get(f"/api/runs/{run_id}/timeline")

    assert run_id == during["run"] == after["run"]
    assert after["times"][: len(during["times"])] == during["times"]
    seqs, times = zip(*after["times"], strict=True)
    assert list(seqs) == sorted(set(seqs))
    assert list(times) == sorted(times)
    assert int(events[-1].id) - 1 == seqs[-1]
    paused = next(at for seq, at in after["times"] if seq > during["times"][-1][0])
    assert datetime.fromisoformat(paused).timestamp() >= opened - 0.01


@requirement("sub.timeline")
async def test_the_timeline_has_the_time_to_first_token_of_the_answer(world):
    """One run has one such time, in its chat and in its details."""
    world.up.models["one-time"] = gated("one ", "two", gate="one-time")
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Hello", "one-time")
    (await world.api.shown(run_id, "one ")).close()
    during = await world.api.get(f"/api/runs/{run_id}/timeline")
    world.up.open("one-time0")
    await world.api.settled(run_id)
    after = await world.api.get(f"/api/runs/{run_id}/timeline")
    answered = (await world.api.session(session_id))["messages"][-1]

    assert during["ttft_ms"] is None
    assert answered["figures"]["ttft_ms"] == after["ttft_ms"] > 0


@requirement("sub.timeline")
async def test_the_timeline_of_an_unknown_run_is_404(world):
    """As everywhere else."""
    assert 404 == (await world.client.get("/api/runs/run_nothing/timeline")).status
