"""What happens to a message that comes while the session's run is still going on."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Response
from tests.support.native import Native
from tests.support.server import NODES, Server, provider
from tests.support.upstream import Delta, Done, Exchange, Finish, Gate, Hang, Headers, Role, Step, Upstream, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAX_QUEUE = 4


class World(NamedTuple):
    api: Native
    up: Upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests that do not kill it: each has sessions and models of its own."""
    async with Upstream() as up:
        data, providers = tmp_path_factory.mktemp("busy"), [provider(up.base_url, models=None)]
        async with Server(data, providers, config=f"max_queue = {MAX_QUEUE}") as server:
            async with server.client() as client:
                yield World(Native(client), up)


def gated(name: str, before: str = "so far ", after: str = "done") -> list[Step]:
    """An answer that waits in its middle until the test opens the gate."""
    return [Headers(), Role(), Delta(before), Gate(name), Delta(after), Finish(), Done()]


def hanging(text: str) -> list[Step]:
    """Says a text, then nothing more."""
    return [Headers(), Role(), Delta(text), Hang()]


def said_to(up: Upstream, model: str) -> list[list[tuple[str, str]]]:
    """What the upstream was shown at each request for a model."""
    asked = [request.body["messages"] for request in up.requests if request.model == model]
    return [[(message["role"], message["content"]) for message in messages] for messages in asked]


# reject


@requirement("busy.reject")
async def test_a_second_message_is_refused_with_the_id_of_the_run_that_stands_in_its_way(world):
    """Two answers at once would tear a conversation apart; who was refused must be able to stop or follow the other."""
    api, up = world
    up.models["reject"] = gated("reject")
    session = await api.new_session()
    first = await api.start(session, "one", "up/reject")
    await up.reached("reject")

    refused = await api.send(session, "two", "up/reject")
    body = await refused.json()
    up.open("reject")
    await api.settled(first)

    assert (409, "session_busy", first) == (refused.status, body["error"]["code"], body["active_run"])
    assert "false" == refused.headers["x-should-retry"]
    assert [("user", "one"), ("assistant", "so far done")] == await api.transcript(session)
    assert 1 == len(said_to(up, "reject"))


@requirement("busy.reject")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_chat_completions_in_a_busy_session_are_refused_too(world, stream):
    """A session is one conversation, whichever dialect speaks to it."""
    api, up = world
    model = f"reject-v1-{stream}"
    up.models[model] = gated(model)
    session = await api.new_session()
    first = await api.start(session, "one", f"up/{model}")
    await up.reached(model)

    body = {
        "model": f"up/{model}",
        "session_id": session,
        "stream": stream,
        "messages": [{"role": "user", "content": "two"}],
    }
    refused = await api.client.post("/v1/chat/completions", body)
    code = (await refused.json())["error"]["code"]
    up.open(model)
    await api.settled(first)

    assert (409, "session_busy") == (refused.status, code)
    assert [("user", "one"), ("assistant", "so far done")] == await api.transcript(session)


@requirement("busy.reject")
async def test_after_the_end_the_session_takes_the_next_message(world):
    """Busy ends with the settlement, at once: whoever has seen the end may go on."""
    api = world.api
    session = await api.new_session()
    await api.settled(await api.start(session, "one", "up/echo:1"))

    await api.settled(await api.start(session, "two", "up/echo:2"))

    assert ["one", "1", "two", "2"] == [said for _, said in await api.transcript(session)]


# queue


@requirement("busy.queue")
async def test_queued_messages_run_in_their_order_one_after_the_other(world):
    """Whoever queues expects to be answered next, with all that was said before in view."""
    api, up = world
    up.models["queue"] = gated("queue", "A", "!")
    session = await api.new_session()
    runs = [await api.start(session, "one", "up/queue")]
    await up.reached("queue")

    runs += [await api.start(session, said, "up/queue", if_busy="queue") for said in ("two", "three")]
    waiting = await api.session(session)
    asked_before = len(said_to(up, "queue"))
    up.open("queue")
    outcomes = [(await api.settled(run))["outcome"] for run in runs]

    assert [(1, runs[1], "two"), (2, runs[2], "three")] == [
        (queued["n"], queued["run_id"], queued["input"]) for queued in waiting["queued"]
    ]
    assert (runs[0], 1) == (waiting["active_run"]["id"], asked_before)
    assert ["completed"] * 3 == outcomes
    told = [("user", "one"), ("assistant", "A!"), ("user", "two"), ("assistant", "A!"), ("user", "three")]
    assert [told[:1], told[:3], told] == said_to(up, "queue")
    assert [*told, ("assistant", "A!")] == await api.transcript(session)


@requirement("busy.queue")
async def test_a_queued_run_says_so_until_it_starts_and_its_reader_sees_it_to_the_end(world):
    """A client that queued a message reads the same run as any other: it need not know when it starts."""
    api, up = world
    up.models["queue-reader"] = gated("queue-reader")
    session = await api.new_session()
    await api.start(session, "one", "up/queue-reader")
    queued = await api.start(session, "two", "up/echo:second", if_busy="queue")

    before = await api.run(queued)
    reader = await api.events(queued)
    up.open("queue-reader")
    frames = await reader.all_events()

    assert ("queued", None, None) == (before["status"], before["started_at"], before["settlement"])
    assert ["run.started", "text.delta", "usage", "run.settled"] == [frame.event for frame in frames]
    assert ["1", "2", "3", "4"] == [frame.id for frame in frames]


@requirement("busy.queue")
async def test_a_queued_message_can_be_read_and_changed_until_it_runs(world):
    """A second thought costs nothing while the message waits; afterwards it is too late, and that is said."""
    api, up = world
    up.models["edit"] = gated("edit")
    session = await api.new_session()
    await api.start(session, "one", "up/edit")
    run = await api.start(session, "tow", "up/echo:ok", if_busy="queue")
    path = f"/api/sessions/{session}/queue/1"

    changed = await (await api.client.request("PATCH", path, json={"input": "two"})).json()
    read = await api.get(path)
    up.open("edit")
    await api.settled(run)
    too_late = await api.client.request("PATCH", path, json={"input": "three"})

    assert ("two", run) == (changed["input"], changed["run_id"])
    assert changed == read
    assert 404 == too_late.status
    assert ["one", "so far done", "two", "ok"] == [said for _, said in await api.transcript(session)]


@requirement("busy.queue-order")
async def test_queued_messages_are_moved_and_run_in_their_new_order(world):
    """What came to mind last may be needed first."""
    api, up = world
    up.models["move"] = gated("move")
    session = await api.new_session()
    await api.start(session, "one", "up/move")
    runs = [await api.start(session, text, "up/echo:ok", if_busy="queue") for text in ("two", "three", "four")]
    path = f"/api/sessions/{session}/queue"

    moved = await (await api.client.request("PATCH", f"{path}/{runs[2]}", json={"place": 1, "input": "4"})).json()
    waiting = [item["run_id"] for item in (await api.session(session))["queued"]]
    bad = await api.client.request("PATCH", f"{path}/{runs[2]}", json={"place": 0})
    up.open("move")
    await api.settled(runs[1])

    assert (1, "4", runs[2]) == (moved["n"], moved["input"], moved["run_id"])
    assert [runs[2], runs[0], runs[1]] == waiting
    assert 400 == bad.status
    said = [text for role, text in await api.transcript(session) if role == "user"]
    assert ["one", "4", "two", "three"] == said


@requirement("busy.queue-order")
async def test_a_queued_message_is_sent_now_before_the_others(world):
    """The partial that it replaces stays, and stops nothing else."""
    api, up = world
    session = await api.new_session()
    up.models["in-the-way"] = hanging("so far")
    first = await api.start(session, "one", "up/in-the-way")
    await api.shown(first, "so far")
    two, three = [await api.start(session, text, "up/echo:ok", if_busy="queue") for text in ("two", "three")]
    sent = await api.client.post(f"/api/sessions/{session}/queue/{three}/send")
    await api.settled(two)
    late = await api.client.post(f"/api/sessions/{session}/queue/{three}/send")

    assert (204, 404) == (sent.status, late.status)
    stopped = await api.settled(first)
    assert ("stopped", "replaced", "so far") == (stopped["outcome"], stopped["by"], stopped["text"])
    assert ["one", "so far", "three", "ok", "two", "ok"] == [text for _, text in await api.transcript(session)]


@requirement("busy.queue")
@pytest.mark.parametrize("way", ["delete", "stop"])
async def test_a_queued_message_can_be_taken_back_without_a_trace(world, way):
    """Dropping it and stopping its run are the same: it never ran, and the transcript does not know of it."""
    api, up = world
    model = f"drop-{way}"
    up.models[model] = gated(model)
    session = await api.new_session()
    await api.start(session, "one", f"up/{model}")
    dropped = await api.start(session, "two", "up/echo:never", if_busy="queue")
    last = await api.start(session, "three", "up/echo:last", if_busy="queue")

    if way == "delete":
        answered = await api.client.request("DELETE", f"/api/sessions/{session}/queue/1")
    else:
        answered = await api.client.post(f"/api/runs/{dropped}/stop")
    again = await api.client.request("DELETE", f"/api/sessions/{session}/queue/1")
    up.open(model)
    await api.settled(last)
    settled = await api.settled(dropped)

    assert (204 if way == "delete" else 200, 404) == (answered.status, again.status)
    assert ("stopped", "user", "") == (settled["outcome"], settled["by"], settled["text"])
    assert ["run.settled"] == [frame.event for frame in await api.replay(dropped)]
    assert ["one", "so far done", "three", "last"] == [said for _, said in await api.transcript(session)]
    assert [] == said_to(up, "echo:never")


@requirement("busy.queue")
async def test_stopping_the_session_stops_what_runs_and_what_waits(world):
    """Stop means silence: a queued message that starts right after a Stop would be the opposite."""
    api, up = world
    up.models["stop-all"] = hanging("half")
    session = await api.new_session()
    runs = [await api.start(session, "one", "up/stop-all")]
    runs += [await api.start(session, said, "up/echo:never", if_busy="queue") for said in ("two", "three")]
    await api.shown(runs[0], "half")

    stopped = await (await api.client.post(f"/api/sessions/{session}/stop")).json()
    session_after = await api.session(session)

    assert set(runs) == {run["id"] for run in stopped["stopped"]}
    assert {"stopped"} == {run["settlement"]["outcome"] for run in stopped["stopped"]}
    assert (None, []) == (session_after["active_run"], session_after["queued"])
    assert [("user", "one"), ("partial", "half")] == await api.transcript(session)


@requirement("busy.queue")
async def test_a_full_queue_is_429_and_takes_messages_again_when_there_is_room(world):
    """A client in a loop must not fill the disk; the refusal says when to come back."""
    api, up = world
    up.models["full"] = gated("full")
    session = await api.new_session()
    await api.start(session, "first", "up/full")
    queued = [await api.start(session, f"{n}", "up/echo:ok", if_busy="queue") for n in range(MAX_QUEUE)]

    refused = await api.send(session, "one too many", "up/echo:ok", if_busy="queue")
    await api.stop(queued[0])
    taken = await api.send(session, "last", "up/echo:ok", if_busy="queue")
    up.open("full")
    await api.settled((await taken.json())["id"])

    assert (429, "run_limit") == (refused.status, (await refused.json())["error"]["code"])
    assert int(refused.headers["retry-after"]) >= 1
    assert 202 == taken.status
    users = [said for role, said in await api.transcript(session) if role == "user"]
    assert ["first", *map(str, range(1, MAX_QUEUE)), "last"] == users


@requirement("busy.queue", "crash.kill9")
@pytest.mark.parametrize("way", ["kill -9", "SIGTERM"])
async def test_the_queue_survives_the_server_and_runs_after_its_restart(tmp_path: Path, way):
    """A message that was accepted is a promise, however the server ended in between."""
    async with Upstream() as up:
        up.models["half"] = hanging("half an answer")
        async with Server(tmp_path, [provider(up.base_url, models=None)], config="drain = 0") as server:
            async with server.client() as client:
                api = Native(client)
                session = await api.new_session()
                runs = [await api.start(session, "one", "up/half")]
                for said in ("two", "three"):
                    runs.append(await api.start(session, said, f"up/echo:answer to {said}", if_busy="queue"))
                await api.shown(runs[0], "half an answer")

                await (server.kill9() if way == "kill -9" else server.terminate())
                calls_before = len(up.requests)
                await server.restart()
                settled = [await api.settled(run) for run in runs]

                ended = ("interrupted", None) if way == "kill -9" else ("stopped", "shutdown")
                assert [ended, ("completed", None), ("completed", None)] == [
                    (settlement["outcome"], settlement["by"]) for settlement in settled
                ]
                assert 3 == len(up.requests)
                assert 1 == calls_before or NODES > 1, "a server that ends must not begin the next"
                assert [
                    ("user", "one"),
                    ("partial", "half an answer"),
                    ("user", "two"),
                    ("assistant", "answer to two"),
                    ("user", "three"),
                    ("assistant", "answer to three"),
                ] == await api.transcript(session)


# interrupt


@requirement("busy.interrupt-order")
async def test_an_interrupting_message_comes_after_the_saved_partial(world):
    """The next answer must see what was already said: so the old run is settled before the new one starts."""
    api, up = world
    up.models["interrupted"] = hanging("The first of")
    session = await api.new_session()
    first = await api.start(session, "Count the planets.", "up/interrupted")
    reader = await api.shown(first, "The first of")

    second = await api.start(session, "Never mind.", "up/echo:Fine.", if_busy="interrupt")
    last_of_first = (await reader.all_events())[-1].json()["settlement"]
    await api.settled(second)

    assert ("stopped", "replaced", "The first of") == tuple(last_of_first[name] for name in ("outcome", "by", "text"))
    told = [("user", "Count the planets."), ("assistant", "The first of"), ("user", "Never mind.")]
    assert [told] == said_to(up, "echo:Fine.")
    assert [told[0], ("partial", "The first of"), told[2], ("assistant", "Fine.")] == await api.transcript(session)
    old, new = up.requests[-2:]
    assert old.closed_at is not None
    assert old.closed_at < new.received_at


@requirement("busy.interrupt-order")
async def test_an_interrupt_before_the_first_word_leaves_both_messages_and_one_answer(world):
    """Nothing was said, so nothing is kept of the first run; its user's message stays."""
    api, up = world
    up.models["mute"] = [Gate("mute")]
    session = await api.new_session()
    first = await api.start(session, "one", "up/mute")
    await up.reached("mute")

    second = await api.start(session, "two", "up/echo:ok", if_busy="interrupt")
    await api.settled(second)

    assert "stopped" == (await api.settled(first))["outcome"]
    assert [("user", "one"), ("user", "two"), ("assistant", "ok")] == await api.transcript(session)


@requirement("busy.interrupt-order")
async def test_an_interrupt_goes_before_what_is_queued(world):
    """Interrupting means now: what waits goes on waiting, and keeps its turn."""
    api, up = world
    up.models["jump"] = hanging("half")
    session = await api.new_session()
    await api.shown(await api.start(session, "one", "up/jump"), "half")
    queued = await api.start(session, "three", "up/echo:third", if_busy="queue")

    await api.start(session, "two", "up/echo:second", if_busy="interrupt")
    await api.settled(queued)

    said = [said for _, said in await api.transcript(session)]
    assert ["one", "half", "two", "second", "three", "third"] == said


@requirement("busy.triple-send")
async def test_three_quick_sends_give_two_partials_and_an_answer(world):
    """Impatient people press Send again: each press is kept, and each answer as far as it got, in their order."""
    api, up = world
    up.models["quick"] = gated("quick")
    session = await api.new_session()
    runs: list[str] = []

    for said in ("one", "two", "three"):
        runs.append(await api.start(session, said, "up/quick", if_busy="interrupt"))
        await api.shown(runs[-1], "so far ")
    up.open("quick")
    settled = [await api.settled(run) for run in runs]

    assert [("stopped", "replaced"), ("stopped", "replaced"), ("completed", None)] == [
        (settlement["outcome"], settlement["by"]) for settlement in settled
    ]
    assert [
        ("user", "one"),
        ("partial", "so far "),
        ("user", "two"),
        ("partial", "so far "),
        ("user", "three"),
        ("assistant", "so far done"),
    ] == await api.transcript(session)


@requirement("busy.triple-send")
@pytest.mark.parametrize("round", range(5))
async def test_three_sends_in_the_same_moment_are_each_kept_and_each_settled(world, round):
    """Nobody can say which of them comes first; all the same each is one turn, and history agrees with every ending."""
    api, up = world
    model = f"at-once-{round}"
    up.models[model] = gated(model)
    session = await api.new_session()

    async def send(said: str) -> str:
        return await api.start(session, said, f"up/{model}", if_busy="interrupt")

    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        sending = [group.create_task(send(said)) for said in ("one", "two", "three")]
    up.open(model)
    runs = {task.result(): said for task, said in zip(sending, ("one", "two", "three"), strict=True)}
    settled = {run: await api.settled(run) for run in runs}
    transcript = await api.transcript(session)

    order = [said for role, said in transcript if role == "user"]
    expected: list[tuple[str, str]] = []
    for run in sorted(runs, key=lambda run: order.index(runs[run])):
        ending = settled[run]
        expected.append(("user", runs[run]))
        if ending["text"]:
            expected.append(("assistant" if ending["outcome"] == "completed" else "partial", ending["text"]))
    assert {"one", "two", "three"} == set(order)
    assert 3 == len(order)
    assert expected == transcript
    assert ["completed", "stopped", "stopped"] == sorted(ending["outcome"] for ending in settled.values())
    assert ("assistant", "so far done") == transcript[-1]


# sessions


@requirement("busy.sessions-parallel")
async def test_a_silent_session_keeps_no_other_waiting(world):
    """One model that hangs must not be everybody's problem."""
    api, up = world
    up.models["hung"] = [Gate("hung")]
    silent = await api.new_session()
    hung = await api.start(silent, "hello?", "up/hung")
    await up.reached("hung")

    async def chat(number: int) -> list[tuple[str, str]]:
        session = await api.new_session()
        await api.settled(await api.start(session, "hello", f"up/echo:{number}"))
        return await api.transcript(session)

    async with asyncio.timeout(LONG):
        chats = await asyncio.gather(*(chat(number) for number in range(20)))
    still = await api.run(hung)
    await api.stop(hung)

    assert [[("user", "hello"), ("assistant", f"{number}")] for number in range(20)] == chats
    assert "running" == still["status"]


@dataclass(frozen=True)
class Alone(Step):
    """Counts how many play it at once, and stays until the loop has had time for others to come."""

    seen: list[int]
    playing: list[None]

    async def play(self, out: Exchange) -> None:
        self.playing.append(None)
        self.seen.append(len(self.playing))
        try:
            await asyncio.sleep(0.005)
        finally:
            self.playing.pop()


@requirement("busy.one-run-per-session")
async def test_of_twenty_starts_at_once_one_is_taken(world):
    """The check and the start are one step: otherwise two requests could both find the session free."""
    api, up = world
    up.models["one-of-many"] = gated("one-of-many")
    session = await api.new_session()

    answers = await asyncio.gather(*(api.send(session, f"{n}", "up/one-of-many") for n in range(20)))
    taken = [await answer.json() for answer in answers if answer.status == 202]
    up.open("one-of-many")
    for run in taken:
        await api.settled(run["id"])

    assert [202] + [409] * 19 == sorted(answer.status for answer in answers)
    assert {taken[0]["id"]} == {(await answer.json())["active_run"] for answer in answers if answer.status == 409}
    assert 1 == len(said_to(up, "one-of-many"))
    assert 2 == len(await api.transcript(session))


@requirement("busy.one-run-per-session")
@pytest.mark.parametrize("seed", range(3))
async def test_no_mixture_of_sends_stops_and_dialects_makes_two_runs_overlap(world, seed):
    """Whatever clients do at once, the upstream never hears two requests of one session at the same time."""
    api, up = world
    chance = random.Random(seed)
    model = f"storm-{seed}"
    alone = Alone([], [])
    up.models[model] = [Headers(), Role(), Delta("a"), alone, Delta("b"), alone, Finish(), Done()]
    session = await api.new_session()

    async def act(number: int) -> Response:
        policy = chance.choice(["reject", "queue", "queue", "interrupt"])
        if chance.random() < 0.3:
            body = {
                "model": f"up/{model}",
                "session_id": session,
                "if_busy": policy,
                "messages": [{"role": "user", "content": f"{number}"}],
            }
            return await api.client.post("/v1/chat/completions", body)
        answer = await api.send(session, f"{number}", f"up/{model}", if_busy=policy)
        if answer.status == 202 and chance.random() < 0.2:
            await api.stop((await answer.json())["id"])
        return answer

    async with asyncio.timeout(LONG):
        answers = await asyncio.gather(*(act(number) for number in range(30)))
        for run in (await api.get(f"/api/runs?session_id={session}&limit=200"))["runs"]:
            await api.settled(run["id"])
    feed = await _feed(api, session)
    users = [said for role, said in await api.transcript(session) if role == "user"]

    assert {answer.status for answer in answers} <= {200, 202, 409, 429}
    assert {1} == set(alone.seen)
    assert _never_two_at_once(feed)
    assert len(users) == len(set(users))


async def _feed(api: Native, session: str) -> list[dict[str, Any]]:
    """All entries of a session's feed up to now; its deletion ends the stream."""
    reader = await api.client.get(f"/api/sessions/{session}/events")
    title = await (await api.client.request("PATCH", f"/api/sessions/{session}", json={"title": "the end"})).json()
    entries: list[dict[str, Any]] = []
    while not entries or entries[-1].get("title") != title["title"]:
        frame = await reader.next_event()
        assert frame is not None
        entries.append(frame.json())
    reader.leave()
    return entries


def _never_two_at_once(feed: list[dict[str, Any]]) -> bool:
    running: set[str] = set()
    for entry in feed:
        if entry["type"] == "run.started" and "n" in entry:
            running.add(entry["run_id"])
            if len(running) > 1:
                return False
        elif entry["type"] == "run.settled":
            running.discard(entry["run_id"])
    return not running


# idempotency, where the server dies in between (start.idempotent without a crash is tested elsewhere)


@requirement("start.idempotent", "crash.kill9")
async def test_a_repeated_start_finds_its_run_after_kill_9(tmp_path: Path):
    """A client that lost its connection tries again: with the same key it must not pay for a second answer."""
    key = {"Idempotency-Key": "press-1"}
    async with Upstream() as up:
        up.models["half"] = hanging("half")
        async with Server(tmp_path, [provider(up.base_url, models=None)]) as server, server.client() as client:
            api = Native(client)
            session = await api.new_session()
            first = await api.start(session, "one", "up/half", headers=key)
            await api.shown(first, "half")

            await server.kill9()
            await server.restart()
            again = await api.start(session, "one", "up/half", headers=key)
            other = await api.send(session, "two", "up/half", headers=key)

            assert first == again
            assert (409, "idempotency_conflict") == (other.status, (await other.json())["error"]["code"])
            assert 1 == len(up.requests)
            await api.settled(first)
            assert [("user", "one"), ("partial", "half")] == await api.transcript(session)


@requirement("start.idempotent", "crash.kill9")
async def test_a_start_that_races_kill_9_happens_once_when_it_is_repeated(tmp_path: Path):
    """Nobody knows whether the first try got through; the second must make it one message either way."""
    async with Upstream() as up:
        up.script = answer("ok")
        async with Server(tmp_path, [provider(up.base_url, models=None)]) as server, server.client() as client:
            api = Native(client)
            sessions = [await api.new_session() for _ in range(40)]
            path = "/api/sessions/{}/runs"
            body = {"input": "once", "model": "up/m"}

            for number, session in enumerate(sessions):
                await client.send("POST", path.format(session), json=body, headers={"Idempotency-Key": f"k{number}"})
            await server.kill9()
            await server.restart()
            runs = [
                await api.start(session, "once", "up/m", headers={"Idempotency-Key": f"k{number}"})
                for number, session in enumerate(sessions)
            ]
            outcomes = [(await api.settled(run))["outcome"] for run in runs]
            transcripts = [await api.transcript(session) for session in sessions]

            assert {"completed", "interrupted"} >= set(outcomes)
            assert [1] * 40 == [sum(role == "user" for role, _ in transcript) for transcript in transcripts]
