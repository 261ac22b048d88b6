"""Stopping a run: at once, whatever it is doing; with its partial kept once; and with one ending that all agree on."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple

import pytest
import pytest_asyncio

from holdfast import Completed, Finish, Limits, Settled, Stopped, Text, Usage
from holdfast.engine.core import Core
from holdfast.events import RunStarted
from holdfast.history import Message, Session
from holdfast.ids import new_id
from holdfast.store import RunRecord
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Frame
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import (
    Delta,
    Done,
    Gate,
    Headers,
    Raw,
    ReasoningDelta,
    Recorded,
    Role,
    Step,
    Tokens,
    Upstream,
    UsageChunk,
    answer,
)
from tests.support.upstream import Finish as FinishChunk
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")


class World(NamedTuple):
    api: Native
    up: Upstream
    client: Client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests: each has sessions, models and gates of its own."""
    async with Upstream() as up:
        async with Server(tmp_path_factory.mktemp("stop"), [provider(up.base_url, models=None)]) as server:
            async with server.client() as client:
                yield World(Native(client), up, client)


def silent_after(*steps: Step, name: str) -> list[Step]:
    """A script that falls silent for good: its gate is never opened, and tells the test that it is reached."""
    return [*steps, Gate(name)]


def saying(*texts: str) -> list[Step]:
    return [Headers(), Role(), *map(Delta, texts)]


async def started(world: World, model: str, script: list[Step], **more: object) -> tuple[str, str]:
    """A session and the run in it that plays a script."""
    world.up.models[model] = script
    session_id = await world.api.new_session()
    return session_id, await world.api.start(session_id, "Hello", model, **more)


def asked(world: World, model: str) -> list[Recorded]:
    return [request for request in world.up.requests if request.model == model]


# Prompt, in every phase.

PHASES: dict[str, tuple[list[Step], str]] = {
    "before the headers": ([], ""),
    "after the headers": ([Headers()], ""),
    "after the role": ([Headers(), Role()], ""),
    "while thinking": ([Headers(), Role(), ReasoningDelta("Hm")], ""),
    "after text": (saying("one ", "two"), "one two"),
    "in the middle of a line": ([*saying("one"), Raw(b'data: {"choi')], "one"),
}


@requirement("stop.prompt", "stop.closes-upstream")
@pytest.mark.parametrize("phase", PHASES)
async def test_a_run_that_waits_for_a_silent_upstream_stops_at_once(world, phase):
    """Nothing comes that a loop could check between: the stop must reach into the middle of an await."""
    steps, text = PHASES[phase]
    model = f"silent {phase}"
    _, run_id = await started(world, model, silent_after(*steps, name=model))
    await world.up.reached(model)
    if text:
        await world.api.shown(run_id, text)
    began = time.monotonic()
    run = await world.api.stop(run_id)
    seconds = time.monotonic() - began
    closed_at = await asked(world, model)[0].wait_closed()

    assert ("settled", "stopped", "user", text) == (
        run["status"],
        run["settlement"]["outcome"],
        run["settlement"]["by"],
        run["settlement"]["text"],
    )
    assert seconds < SOON
    assert closed_at - began < SOON
    assert asked(world, model)[0].left_early


@requirement("stop.prompt", "stop.closes-upstream")
async def test_a_run_that_streams_stops_at_once(world):
    """The upstream would go on for minutes, and every token of it is paid for."""
    _, run_id = await started(world, "streams", [Headers(), Role(), Tokens(100_000, 0.002)])
    await world.api.shown(run_id, "t0 t1 t2 t3 t4 ")
    began = time.monotonic()
    run = await world.api.stop(run_id)
    seconds = time.monotonic() - began
    closed_at = await asked(world, "streams")[0].wait_closed()

    assert "stopped" == run["settlement"]["outcome"]
    assert seconds < SOON
    assert closed_at - began < SOON


@requirement("stop.prompt", "stop.closes-upstream")
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("said", ["", "so far"], ids=["before the first token", "after text"])
async def test_a_completion_is_stopped_from_elsewhere_and_its_own_client_is_told(world, stream, said):
    """Started on one wire, stopped on another: who waits for the answer gets what there is, and never a success."""
    model = f"completion {stream} {said}"
    world.up.models[model] = silent_after(*(saying(said) if said else []), name=model)
    session_id = await world.api.new_session()
    body = {"model": model, "stream": stream, "session_id": session_id, "messages": [{"role": "user", "content": "Hi"}]}
    waiting = await world.client.send("POST", "/v1/chat/completions", json=body)
    await world.up.reached(model)
    run_id = (await world.api.session(session_id))["active_run"]["id"]
    if said:
        await world.api.shown(run_id, said)
    began = time.monotonic()
    await world.api.stop(run_id)
    closed_at = await asked(world, model)[0].wait_closed()
    if stream:
        frames = await (await waiting.head()).all_events()
        text = "".join(choice["delta"].get("content") or "" for f in frames[:-1] for choice in f.json()["choices"])
        last, finish = frames[-2].json(), frames[-2].json()["choices"][0]["finish_reason"]
    else:
        last = await waiting.json()
        text, finish = last["choices"][0]["message"]["content"], last["choices"][0]["finish_reason"]

    assert time.monotonic() - began < SOON
    assert closed_at - began < SOON
    assert (said, "cancelled", "stopped") == (text, finish, last["holdfast"]["outcome"])


@requirement("stop.before-first-step")
@pytest.mark.parametrize("lifetime", ["detached", "attached"])
async def test_a_stop_before_the_source_has_taken_its_first_step_still_settles(lifetime):
    """A task cancelled before its first step runs no cleanup, so the keeper must not be that task."""
    steps = []

    async def source():
        steps.append("entered")
        yield "never"

    async with Core() as engine, asyncio.timeout(LONG):
        run = await engine.start(source(), lifetime=lifetime)
        settlement = (await run.stop()).settlement
        events = [event async for _, event in run.read()]

    assert (Stopped, "", "user") == (type(settlement), settlement.text, settlement.by)
    assert [RunStarted(), Settled(settlement)] == events
    assert [] == steps


@requirement("stop.before-first-step", "stop.no-text")
async def test_a_stop_on_the_heels_of_its_start_settles_and_leaves_the_question(world):
    """A double click: the stop is sent as soon as the id is known, whatever the run has come to."""
    for number in range(20):
        session_id, run_id = await started(world, "heels", silent_after(name="heels"))
        run = await world.api.stop(run_id)

        assert ("stopped", "") == (run["settlement"]["outcome"], run["settlement"]["text"]), number
        assert [("user", "Hello")] == await world.api.transcript(session_id)


# What is kept.


@requirement("stop.partial-once", "stop.terminal-event")
async def test_the_partial_is_kept_once_and_exactly_and_every_reader_is_told(world):
    """What was streamed is what is kept, to the letter; ten readers on three wires see one ending that says stopped."""
    text = "Héllo wörld \N{WATER WAVE} \u2028 <b>&"
    session_id, run_id = await started(world, "partial", silent_after(*saying(text[:5], text[5:]), name="partial"))
    await world.api.shown(run_id, text)
    readers = [await world.api.events(run_id) for _ in range(8)]
    feed = await world.client.get(f"/api/sessions/{session_id}/events")
    completion = f"/v1/chat/completions/{run_id.replace('run_', 'chatcmpl-')}?stream=true"
    chunks = await world.client.get(completion)
    await world.api.stop(run_id)
    told = [await reader.all_events() for reader in readers]
    fed = await until(feed, "run.settled")
    last_chunk = (await chunks.all_events())[-2].json()

    for frames in told:
        assert ["run.settled"] == [frame.event for frame in frames if frame.event == "run.settled"]
        assert ("run.settled", "stopped", text) == (
            frames[-1].event,
            frames[-1].json()["settlement"]["outcome"],
            frames[-1].json()["settlement"]["text"],
        )
    assert ("stopped", "stopped") == (fed[-1].json()["outcome"], fed[-1].json()["settlement"]["outcome"])
    assert ("cancelled", "stopped") == (
        last_chunk["choices"][0]["finish_reason"],
        last_chunk["holdfast"]["outcome"],
    )
    question, partial = (await world.api.session(session_id))["messages"]
    assert ("user", "Hello") == (question["role"], question["content"])
    assert ("assistant", text, True, "stopped", run_id) == (
        partial["role"],
        partial["content"],
        partial["partial"],
        partial["outcome"],
        partial["run_id"],
    )


async def until(feed, event: str) -> list[Frame]:
    """Read a feed to an entry of that type."""
    frames: list[Frame] = []
    while not frames or frames[-1].event != event:
        frame = await feed.next_event()
        assert frame is not None, "the feed ended"
        frames.append(frame)
    return frames


@requirement("stop.no-text")
@pytest.mark.parametrize("phase", [phase for phase, (_, text) in PHASES.items() if not text])
async def test_where_nothing_was_visible_no_message_is_kept_and_the_question_stays(world, phase):
    """An empty bubble says nothing, and an empty assistant message is refused by strict providers."""
    model = f"nothing {phase}"
    session_id, run_id = await started(world, model, silent_after(*PHASES[phase][0], name=model))
    await world.up.reached(model)
    run = await world.api.stop(run_id)

    assert (False, "") == (run["settlement"]["partial"], run["settlement"]["text"])
    assert [("user", "Hello")] == await world.api.transcript(session_id)


@requirement("stop.think")
@pytest.mark.parametrize(
    ("deltas", "reasoning", "text"),
    [
        (["<think>x"], "x", ""),
        (["<th", "ink>", "Let me see", ". 42?"], "Let me see. 42?", ""),
        (["<think>x</think>\nThe answer is 42"], "x", "The answer is 42"),
        (["<think>", "x", "</thi", "nk>", "\n", "The answer", " is 42"], "x", "The answer is 42"),
    ],
    ids=["unclosed", "unclosed in pieces", "closed", "closed in pieces"],
)
async def test_thoughts_are_no_partial(world, deltas, reasoning, text):
    """Thinking is another event from the moment it arrives: there is nothing to strip from what was visible."""
    model = f"think {len(deltas)} {bool(text)}"
    session_id, run_id = await started(world, model, silent_after(*saying(*deltas), name=model))
    await thought(world, run_id, reasoning, text)
    run = await world.api.stop(run_id)
    messages = (await world.api.session(session_id))["messages"]

    assert text == run["settlement"]["text"]
    assert [("assistant", text, True)] * bool(text) == [
        (said["role"], said["content"], said["partial"]) for said in messages[1:]
    ]


async def thought(world: World, run_id: str, reasoning: str, text: str) -> None:
    """Wait until a reader has been shown these thoughts and this text."""
    seen = {"reasoning.delta": "", "text.delta": ""}
    reader = await world.api.events(run_id)
    while (reasoning, text) != tuple(seen.values()):
        frame = await reader.next_event()
        assert frame is not None, f"the run ended after {seen}"
        if frame.event in seen:
            seen[frame.event] += frame.json()["text"]


@requirement("stop.history")
async def test_the_model_next_sees_the_partial_as_its_own_words_and_nothing_of_the_stop(world):
    """A marker in the transcript is answered by the model sooner or later; the partial belongs to the conversation."""
    session_id, run_id = await started(world, "history", silent_after(*saying("Once upon"), name="history"))
    await world.api.shown(run_id, "Once upon")
    await world.api.stop(run_id)
    world.up.models["history"] = answer(" a time")
    await world.api.settled(await world.api.start(session_id, "Go on", "history"))

    assert [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Once upon"},
        {"role": "user", "content": "Go on"},
    ] == asked(world, "history")[1].body["messages"]


@requirement("stop.history")
async def test_the_model_next_sees_no_empty_answer_where_nothing_was_visible(world):
    """Two questions follow each other then: as one message, which is valid for every upstream."""
    session_id, run_id = await started(world, "no-history", silent_after(name="no-history"))
    await world.up.reached("no-history")
    await world.api.stop(run_id)
    world.up.models["no-history"] = answer("Yes")
    await world.api.settled(await world.api.start(session_id, "Are you there?", "no-history"))

    shown = asked(world, "no-history")[1].body["messages"]
    assert [{"role": "user", "content": "Hello\n\nAre you there?"}] == shown


@requirement("stop.usage")
async def test_usage_so_far_is_recorded_as_the_providers_where_it_counted(world):
    """Some upstreams count along with every chunk: what they said last stands."""
    script = silent_after(*saying("one "), UsageChunk(7, 1), Delta("two"), UsageChunk(7, 2), name="counted")
    _, run_id = await started(world, "counted", script)
    reader = await world.api.events(run_id)
    while (await reader.next_event()).json().get("output_tokens") != 2:
        pass
    run = await world.api.stop(run_id)

    assert {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9, "source": "provider"} == (
        run["settlement"]["usage"]
    )


@requirement("stop.usage")
async def test_usage_so_far_is_estimated_where_nobody_counted_and_says_so(world):
    """A stopped upstream never sends its count, and what it said was not free."""
    _, run_id = await started(world, "estimated", silent_after(*saying("12345678"), name="estimated"))
    await world.api.shown(run_id, "12345678")
    usage = (await world.api.stop(run_id))["settlement"]["usage"]

    assert ("estimated", 2) == (usage["source"], usage["output_tokens"])
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@requirement("stop.receipt")
async def test_the_receipt_says_when_it_was_asked_when_the_upstream_closed_and_when_it_settled(world):
    """A stop that is only a change of colour is the oldest lie of chat windows: here is the proof, with times."""
    _, run_id = await started(world, "receipt", silent_after(*saying("a"), name="receipt"))
    await world.api.shown(run_id, "a")
    before = time.time()
    run = await world.api.stop(run_id)
    after = time.time()
    await asked(world, "receipt")[0].wait_closed()

    receipt = [datetime.fromisoformat(moment).timestamp() for moment in run["settlement"]["receipt"].values()]
    assert ["stop_requested_at", "upstream_closed_at", "settled_at"] == list(run["settlement"]["receipt"])
    assert [before - 0.001, *receipt, after + 0.001] == sorted([before - 0.001, *receipt, after + 0.001])


# Races, repeats, and runs that are meant or not.


@requirement("stop.twice")
async def test_a_second_stop_changes_nothing_and_gets_the_same_answer(world):
    """A retry after a lost answer, or a second tab: the first ending stands, after the end too."""
    session_id, run_id = await started(world, "twice", silent_after(*saying("a"), name="twice"))
    await world.api.shown(run_id, "a")
    answers = [await world.api.stop(run_id) for _ in range(3)]
    ended = await started(world, "twice-ended", answer("whole"))
    await world.api.settled(ended[1])
    before = await world.api.run(ended[1])

    assert answers[0] == answers[1] == answers[2] == await world.api.run(run_id)
    assert [("user", "Hello"), ("partial", "a")] == await world.api.transcript(session_id)
    assert ("completed", before) == (before["settlement"]["outcome"], await world.api.stop(ended[1]))


@requirement("stop.fifty-at-once")
async def test_fifty_stops_at_once_give_one_settlement(world):
    """All of them succeed, with the very same ending, and history has it once."""
    session_id, run_id = await started(world, "fifty", silent_after(*saying("a"), name="fifty"))
    reader = await world.api.shown(run_id, "a")
    answers = await asyncio.gather(*(world.api.stop(run_id) for _ in range(50)))
    rest = await reader.all_events()

    assert [answers[0]] * 50 == answers
    assert ["run.settled"] == [frame.event for frame in rest]
    assert [("user", "Hello"), ("partial", "a")] == await world.api.transcript(session_id)


@requirement("stop.fifty-at-once")
async def test_fifty_stops_at_once_from_fifty_causes_name_the_first():
    """Whoever came first is who stopped it; the others are told so."""
    async with Core(MemoryStore()) as engine:
        run = await engine.start(forever("a"), keep=True)
        causes = ["budget", *["user", "replaced", "disconnect", "shutdown"] * 13]
        stops = await asyncio.gather(*(run.stop(by=by) for by in causes))

    assert "budget" == stops[0].settlement.by
    assert all(stop.settlement is stops[0].settlement for stop in stops)
    assert [stops[0]] == [stop for stop in stops if stop.by_this_call]


async def forever(*items):
    for item in items:
        yield item
    await asyncio.Event().wait()


@requirement("stop.races-end")
async def test_a_stop_that_races_the_end_gives_one_ending_and_history_agrees():
    """Two thousand races, from a stop before the first step to one after the end, at every turn of the loop between."""
    chance, outcomes = random.Random(3), set()

    async def source(words, finishes):
        for number in range(words):
            yield f"{number} "
            for _ in range(chance.randint(0, 2)):
                await asyncio.sleep(0)
        if finishes:
            yield Finish("stop")

    async with Core(MemoryStore()) as engine:
        store = engine.store
        for _ in range(2000):
            words, turns = chance.randint(0, 4), chance.randint(0, 16)
            session = await store.create_session(Session(id=new_id("ses"), owner=""))
            record = RunRecord(id=new_id("run"), session_id=session.id, message_id=new_id("msg"))
            question = Message(id=new_id("msg"), role="user", content="Hello")
            run = await engine.submit(record, [question], source=source(words, chance.random() < 0.5))
            for _ in range(turns):
                await asyncio.sleep(0)
            settlement = (await run.stop()).settlement
            events = [event async for _, event in run.read()]
            stored = await store.get_run(run.id)
            _, *answers = await store.messages(session.id)

            shown = "".join(event.text for event in events if isinstance(event, Text))
            assert [Settled(settlement)] == [event for event in events if isinstance(event, Settled)]
            assert events[-1] == Settled(stored.settlement)
            assert shown == settlement.text
            assert [settlement.text] * bool(settlement.text) == [answer.content for answer in answers]
            assert all(answer.partial == isinstance(settlement, Stopped) for answer in answers)
            if isinstance(settlement, Completed):
                assert "".join(f"{number} " for number in range(words)) == shown
            outcomes.add(type(settlement))

    assert {Completed, Stopped} == outcomes


@requirement("stop.races-end")
async def test_a_stop_that_races_the_end_over_the_wire_gives_one_ending_and_history_agrees(world):
    """The same with a real upstream, whose last words and the stop are sent at the same moment."""
    outcomes = []
    for number in range(40):
        gate = f"race{number}"
        script = [*saying("one "), Gate(gate), Delta("two"), FinishChunk(), Done()]
        session_id, run_id = await started(world, "race", script)
        reader = await world.api.shown(run_id, "one ")
        stopping = asyncio.create_task(world.api.stop(run_id)) if number % 2 else None
        for _ in range(number // 4):
            await asyncio.sleep(0)
        world.up.open(gate)
        settlement = (await (stopping or world.api.stop(run_id)))["settlement"]
        told = (await reader.all_events())[-1].json()["settlement"]
        message = (await world.api.session(session_id))["messages"][1]

        assert settlement == told
        assert (settlement["text"], settlement["partial"], settlement["outcome"]) == (
            message["content"],
            message["partial"],
            message["outcome"],
        )
        assert settlement["text"] in (("one two",) if settlement["outcome"] == "completed" else ("one ", "one two"))
        outcomes.append(settlement["outcome"])

    assert {"completed", "stopped"} >= set(outcomes)


@requirement("stop.stale")
async def test_a_late_stop_of_an_old_run_never_touches_the_new_one(world):
    """The stop was for what the user saw then: by the time it arrives, another answer is under way."""
    session_id, old = await started(world, "stale", silent_after(*saying("old"), name="stale"))
    await world.api.shown(old, "old")
    await world.api.stop(old)
    world.up.models["stale"] = [*saying("new "), Gate("stale-new"), Delta("whole"), FinishChunk(), Done()]
    new = await world.api.start(session_id, "Again", "stale")
    reader = await world.api.shown(new, "new ")
    late = [await world.api.stop(old) for _ in range(3)]
    during = await world.api.run(new)
    world.up.open("stale-new")
    await reader.all_events()

    assert [(old, "old")] * 3 == [(run["id"], run["settlement"]["text"]) for run in late]
    assert "running" == during["status"]
    assert "completed" == (await world.api.run(new))["settlement"]["outcome"]
    assert ("assistant", "new whole") == (await world.api.transcript(session_id))[-1]


@requirement("stop.queued")
async def test_a_queued_run_is_stopped_before_it_starts_and_leaves_no_trace(world):
    """It was never asked, so it has nothing to answer: neither its question nor the upstream knows of it."""
    session_id, first = await started(world, "queued", [*saying("a"), Gate("queued"), FinishChunk(), Done()])
    await world.api.shown(first, "a")
    second = await world.api.start(session_id, "Dropped", "queued", if_busy="queue")
    world.up.models["queued-third"] = answer("third")
    third = await world.api.start(session_id, "Third", "queued-third", if_busy="queue")
    reader = await world.api.events(second)
    stopped = await world.api.stop(second)
    frames = await reader.all_events()
    world.up.open("queued")
    await world.api.settled(first)
    await world.api.settled(third)

    assert ("settled", "stopped", "user") == (
        stopped["status"],
        stopped["settlement"]["outcome"],
        stopped["settlement"]["by"],
    )
    assert [("1", "run.settled")] == [(frame.id, frame.event) for frame in frames]
    assert 1 == len(asked(world, "queued"))
    assert [("user", "Hello"), ("assistant", "a"), ("user", "Third"), ("assistant", "third")] == (
        await world.api.transcript(session_id)
    )


@requirement("stop.queued", "stop.prompt")
async def test_stopping_a_session_stops_what_runs_and_what_waits(world):
    """Nothing of the queue may slip in between: the user has said that enough is enough."""
    session_id, first = await started(world, "session", silent_after(*saying("a"), name="session"))
    await world.api.shown(first, "a")
    queued = [await world.api.start(session_id, f"Next {n}", "session", if_busy="queue") for n in range(3)]
    response = await world.client.post(f"/api/sessions/{session_id}/stop")
    stopped = (await response.json())["stopped"]
    await asked(world, "session")[0].wait_closed(SOON)

    assert {first, *queued} == {run["id"] for run in stopped}
    assert {("settled", "stopped")} == {(run["status"], run["settlement"]["outcome"]) for run in stopped}
    assert [("user", "Hello"), ("partial", "a")] == await world.api.transcript(session_id)
    session = await world.api.session(session_id)
    assert (None, [], 1) == (session["active_run"], session["queued"], len(asked(world, "session")))


# A source that does not listen.


@requirement("stop.ignoring-source")
@pytest.mark.parametrize("keep", [False, True], ids=["in memory", "kept"])
async def test_a_source_that_swallows_its_cancel_is_abandoned_after_the_grace_and_fenced_off(keep):
    """Libraries with a bare `except:` exist: the stop does not wait for them, and their late words are nobody's."""
    go_on, refused = asyncio.Event(), asyncio.Event()

    async def source():
        yield "before"
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                pass
        try:
            yield "after"
            yield Usage(1, 1)
            yield Finish("stop")
        finally:
            refused.set()

    async with Core(MemoryStore(), limits=Limits(grace=0.1)) as engine, asyncio.timeout(LONG):
        run = await engine.start(source(), keep=keep)
        while run.text != "before":  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
        began = time.monotonic()
        settlement = (await run.stop()).settlement
        seconds = time.monotonic() - began
        go_on.set()
        await refused.wait()
        late = (await run.stop()).settlement
        events = [event async for _, event in run.read()]

    assert 0.1 <= seconds < SOON
    assert (Stopped, "before", None) == (type(settlement), settlement.text, settlement.receipt.upstream_closed_at)
    assert settlement == late
    assert [RunStarted(), Text("before"), Settled(settlement)] == events


@requirement("stop.ignoring-source")
async def test_an_abandoned_source_frees_its_session_for_the_next_run():
    """What hangs is the source, not the conversation."""
    release = asyncio.Event()

    async def deaf():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass
        yield "late"

    async def quick():
        yield "quick"

    store = MemoryStore()
    async with Core(store, limits=Limits(grace=0.05)) as engine, asyncio.timeout(LONG):
        session = await store.create_session(Session(id="ses_1", owner=""))
        runs = []
        for source in (deaf(), quick()):
            record = RunRecord(id=new_id("run"), session_id=session.id, message_id=new_id("msg"))
            question = Message(id=new_id("msg"), role="user", content="Hello")
            runs.append(await engine.submit(record, [question], source=source, if_busy="interrupt"))
        settlements = [await run.settled() for run in runs]
        release.set()

    assert [Stopped, Completed] == [type(settlement) for settlement in settlements]
    assert ["Hello", "Hello", "quick"] == [message.content for message in await store.messages(session.id)]
