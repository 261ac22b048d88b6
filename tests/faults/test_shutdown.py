"""The server is asked to end: nothing new begins, what goes on is drained or settled, and readers are sent off."""

import asyncio
import contextlib
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.http import Client, Frame, Response
from tests.support.native import Native
from tests.support.server import READY, Ended, Server, StartFailed, UpstreamProcess, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, Upstream, answer
from tests.support.waiting import LONG

WITHIN = 30.0
"""Seconds in which the process has ended, whatever was going on: less than the upstreams hang."""
LIVE = 1000
QUICK = 20
"""Runs of the thousand that end by themselves while the server waits."""
READERS = 150
AT_ONCE = 50

HANGING = [Headers(), Role(), Delta("half an answer"), Hang()]


async def _signalled(server: Server, *signals: signal.Signals) -> Ended:
    """Send signals one after the other, and wait for the end."""
    began = time.monotonic()
    for number in signals:
        with contextlib.suppress(ProcessLookupError):  # the one before has ended it
            server.send_signal(number)
        await asyncio.sleep(0)
    async with asyncio.timeout(LONG):
        code = await server._process.wait()
    return Ended(code, time.monotonic() - began)


async def _closing(client: Client) -> Response:
    """Wait until the server has begun to end; the answer that said so."""
    async with asyncio.timeout(LONG):
        while (ready := await client.get("/ready")).status == 200:  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.01)
    return ready


def _chat(model: str, **more: Any) -> dict[str, Any]:
    return {"model": f"up/{model}", "messages": [{"role": "user", "content": "Hello"}], **more}


# New starts.


@requirement("crash.sigterm")
async def test_while_the_server_ends_new_runs_are_503_and_the_others_go_on_to_their_end(tmp_path: Path):
    """A rolling restart must look to clients like a short pause: who comes new tries again, who is served is served."""
    async with Upstream() as up:
        up.models["slow"] = [Headers(), Role(), Delta("slow "), Gate(), Delta("answer"), Finish(), Done()]
        server = Server(tmp_path, [provider(up.base_url, models=None)], config="drain = 600")
        async with server, server.client() as client:
            api = Native(client)
            session, other = await api.new_session(), await api.new_session()
            run = await api.start(session, "Hello", "up/slow")
            reader = await api.shown(run, "slow ")

            server.send_signal(signal.SIGTERM)
            ready = await _closing(client)
            refused = [
                await api.send(other, "Hello", "up/slow"),
                await client.post("/v1/chat/completions", _chat("slow")),
                await client.post("/v1/chat/completions", _chat("slow", stream=True)),
                await client.post("/v1/chat/completions", _chat("slow", background=True)),
            ]
            alive, looked = await client.get("/health"), await api.run(run)
            up.open()
            rest = await reader.all_events()
            ended = await _signalled(server)

            assert 503 == ready.status
            assert [(503, "shutting_down")] * 4 == [
                (answer.status, (await answer.json())["error"]["code"]) for answer in refused
            ]
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
            assert (200, "running") == (alive.status, looked["status"])
            assert "completed" == rest[-1].json()["settlement"]["outcome"]
            assert 0 == ended.code
            assert 1 == len(up.requests)
            await server.restart()
            assert [("user", "Hello"), ("assistant", "slow answer")] == await api.transcript(session)
            assert [] == await api.transcript(other)


# What goes on.


@requirement("crash.sigterm")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_run_that_does_not_end_by_itself_is_settled_with_its_partial(tmp_path: Path, number: signal.Signals):
    """Stopped by the shutdown is the truth: it did not fail, and it is not complete."""
    async with Upstream() as up:
        up.models["hanging"] = HANGING
        server = Server(tmp_path, [provider(up.base_url, models=None)], config="drain = 0.2")
        async with server, server.client() as client:
            api = Native(client)
            session = await api.new_session()
            run = await api.start(session, "Hello", "up/hanging")
            reader = await api.shown(run, "half an answer")
            attached = await client.post("/v1/chat/completions", _chat("hanging", stream=True))
            await attached.next_event()
            waiting = await client.send("POST", "/v1/chat/completions", json=_chat("hanging"))
            for _ in range(3):
                await up.next_request()

            ended = await _signalled(server, number)
            last = (await reader.all_events())[-1]
            chunks = await attached.all_events()
            answered = await waiting.json()
            await server.restart()

            assert (0, True) == (ended.code, ended.seconds < WITHIN)
            assert "run.settled" == last.event
            settlement = last.json()["settlement"]
            told = ("stopped", "shutdown", True, "half an answer")
            assert told == tuple(settlement[name] for name in ("outcome", "by", "partial", "text"))
            assert settlement == (await api.run(run))["settlement"]
            assert [("user", "Hello"), ("partial", "half an answer")] == await api.transcript(session)
            assert "[DONE]" == chunks[-1].data
            assert "cancelled" == chunks[-2].json()["choices"][0]["finish_reason"]
            assert "cancelled" == answered["choices"][0]["finish_reason"]
            assert all(request.left_early for request in up.requests)


@requirement("crash.sigterm", "legs.crash")
@pytest.mark.parametrize("signals", [1, 2], ids=["the drain is over", "a second signal"])
async def test_the_next_start_goes_on_with_what_was_to_continue_after_a_break(tmp_path: Path, signals: int):
    """A deploy cuts the call of the model, not the answer: another leg goes on with it, and no word is lost."""
    async with Upstream() as up:
        up.models["m"] = [Headers(), Role(), Delta("half "), Hang()]
        config = "drain = 0.2" if signals == 1 else "drain = 600"
        server = Server(tmp_path, [provider(up.base_url, prefills=True)], config=config)
        async with server, server.client() as client:
            api = Native(client)
            session = await api.new_session()
            run = await api.start(session, "Hello", "up/m")
            await api.shown(run, "half ")
            if signals == 2:
                server.send_signal(signal.SIGTERM)
                await _closing(client)
            ended = await _signalled(server, signal.SIGTERM)
            up.models["m"] = answer("an answer")
            await server.restart()
            settled = await api.settled(run)

            assert (0, True) == (ended.code, ended.seconds < WITHIN)
            assert ("completed", "half an answer") == (settled["outcome"], settled["text"])
            assert [None, "prefill"] == [leg["how"] for leg in settled["legs"]]
            assert [("user", "Hello"), ("assistant", "half an answer")] == await api.transcript(session)
            assert 2 == len(up.requests)


@requirement("crash.sigterm")
async def test_the_reader_of_a_feed_is_told_when_to_come_back_and_finds_its_place(tmp_path: Path):
    """A feed has no end of its own: so it is ended in good form, with a hint, and taken up again where it was."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], config="drain = 0") as server:
        async with server.client() as client:
            api = Native(client)
            session = await api.new_session()
            await api.settled(await api.start(session, "Hello", "up/echo:first"))
            feed = await client.get(f"/api/sessions/{session}/events")
            before = [await _frame(feed) for _ in range(7)]

            server.send_signal(signal.SIGTERM)
            farewell = await feed.all_events()
            await _signalled(server)
            await server.restart()
            await api.start(session, "Hello again", "up/echo:second")
            again = await client.get(f"/api/sessions/{session}/events", headers={"Last-Event-ID": before[-1].id})
            first = await _frame(again)

            assert feed.complete
            assert ["1000"] == [frame.retry for frame in farewell]
            assert "run.settled" == before[-1].event
            assert ("message.added", "Hello again") == (first.event, first.json()["message"]["content"])


async def _frame(reader: Response) -> Frame:
    frame = await reader.next_event()
    assert frame is not None, "the stream ended"
    return frame


@requirement("crash.sigterm")
async def test_a_thousand_open_runs_are_settled_and_the_process_ends_in_time(tmp_path: Path):
    """An orchestrator kills what does not end in time, and whatever was not settled by then is a lie to its readers."""
    async with UpstreamProcess(tmp_path / "up") as up:
        config = "max_runs_per_owner = 2000\ndrain = 3"
        async with Server(tmp_path / "data", [provider(up.base_url, models=None)], config=config) as server:
            async with server.client() as client:
                api = Native(client)
                silent = await _start_many(client, LIVE - QUICK, "tokens:2:1000000000")
                readers = [await api.events(run) for run in silent[:READERS]]
                quick = await _start_many(client, QUICK, "tokens:2:300")
                readers += [await api.events(run) for run in quick]
                reading = [asyncio.create_task(reader.all_events()) for reader in readers]

                ended = await _signalled(server, signal.SIGTERM)
                seen = [(await frames)[-1] for frames in reading]
                await server.restart()
                kept = {run["id"]: run for run in await _all_runs(api)}

    print(f"\n{LIVE} runs open: the process ended {ended.seconds:.2f} s after SIGTERM")
    assert (0, True) == (ended.code, ended.seconds < WITHIN)
    assert {"run.settled"} == {frame.event for frame in seen}
    assert all(reader.complete for reader in readers)
    followed = [kept[run]["settlement"] for run in (*silent[:READERS], *quick)]
    assert followed == [frame.json()["settlement"] for frame in seen]
    assert LIVE == len(kept)
    assert {("stopped", "shutdown", True, "t0 ")} == {_ending(kept[run]) for run in silent}
    assert {("completed", None, False, "t0 t1 ")} == {_ending(kept[run]) for run in quick}


def _ending(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run["settlement"][name] for name in ("outcome", "by", "partial", "text"))


async def _start_many(client: Client, count: int, model: str) -> list[str]:
    """Runs in sessions of their own, each of which has shown its first word."""
    places = asyncio.Semaphore(AT_ONCE)

    async def start(number: int) -> str:
        body = _chat(model, background=True, session_id=f"{model} {number}")
        async with places:
            started = await client.post("/v1/chat/completions", body)
            assert 202 == started.status, await started.text()
            run_id = started.headers["x-run-id"]
            (await Native(client).shown(run_id, "t0 ")).leave()
            return run_id

    return list(await asyncio.gather(*map(start, range(count))))


async def _all_runs(api: Native) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    path = "/api/runs?limit=200"
    while page := (await api.get(path))["runs"]:
        runs += page
        path = f"/api/runs?limit=200&before={page[-1]['id']}"
    return runs


# Signals at awkward moments.


@requirement("crash.sigterm")
async def test_a_second_signal_cuts_the_waiting_short_and_loses_nothing(tmp_path: Path):
    """Whoever presses Ctrl-C again does not want to wait for answers, but never asked for half of them to be lost."""
    async with Upstream() as up:
        up.models["hanging"] = HANGING
        async with Server(tmp_path, [provider(up.base_url, models=None)], config="drain = 30") as server:
            async with server.client() as client:
                api = Native(client)
                session = await api.new_session()
                run = await api.start(session, "Hello", "up/hanging")
                reader = await api.shown(run, "half an answer")

                server.send_signal(signal.SIGTERM)
                await _closing(client)
                ended = await _signalled(server, signal.SIGTERM)
                last = (await reader.all_events())[-1].json()["settlement"]
                told = server.log_text()
                await server.restart()

                assert "Traceback" not in told
                assert (0, True) == (ended.code, ended.seconds < WITHIN)
                assert ("stopped", "shutdown", "half an answer") == (last["outcome"], last["by"], last["text"])
                assert [("user", "Hello"), ("partial", "half an answer")] == await api.transcript(session)


@requirement("crash.sigterm")
@pytest.mark.parametrize("signals", [1, 5])
async def test_a_signal_right_after_the_start_ends_it_at_once(tmp_path: Path, signals: int):
    """A deployment that is rolled back in its first second must not hang."""
    async with Server(tmp_path) as server:
        ended = await _signalled(server, *[signal.SIGTERM] * signals)

        assert (0, True) == (ended.code, ended.seconds < WITHIN)
        await server.restart()
        assert server.alive


@requirement("crash.sigterm", "crash.kill9")
async def test_a_signal_in_the_middle_of_the_start_leaves_what_the_next_start_can_use(tmp_path: Path):
    """Recovery may be cut off anywhere: what one start has not settled, the next one does.

    A run that was taken over but not yet given up when the signal came was stopped by it.
    """
    async with Upstream() as up:
        up.models["hanging"] = HANGING
        async with Server(tmp_path, [provider(up.base_url, models=None)]) as server, server.client() as client:
            api = Native(client)
            sessions = [await api.new_session() for _ in range(20)]
            runs = [await api.start(session, "Hello", "up/hanging") for session in sessions]
            for run in runs:
                await api.shown(run, "half an answer")
            await server.kill9()

            codes = [await _signalled_while_it_starts(server, after) for after in (0.1, 0.3, 0.5, 0.7, 0.9)]
            await server.restart()
            settled = [await api.settled(run) for run in runs]

            assert {0, -signal.SIGTERM} >= set(codes)
            assert {("interrupted", None), ("stopped", "shutdown")} >= {
                (ending["outcome"], ending["by"]) for ending in settled
            }
            assert {("half an answer", True)} == {(ending["text"], ending["partial"]) for ending in settled}
            assert [[("user", "Hello"), ("partial", "half an answer")]] * 20 == [
                await api.transcript(session) for session in sessions
            ]


async def _signalled_while_it_starts(server: Server, after: float) -> int:
    """Start the server, send SIGTERM some time after it has a process, ready or not; the code with which it ended."""
    starting = asyncio.create_task(server.start(READY, LONG))
    async with asyncio.timeout(LONG):
        while not server.alive:  # noqa: ASYNC110 - the process begins elsewhere
            await asyncio.sleep(0)
    await asyncio.wait({starting}, timeout=after)
    server.send_signal(signal.SIGTERM)
    try:
        await starting
    except StartFailed:
        pass  # it ended before it was ready
    return (await _signalled(server)).code


# What must not hold it up.


@requirement("crash.sigterm")
async def test_a_client_that_never_reads_does_not_hold_up_the_end(tmp_path: Path):
    """One stalled connection must not make an orchestrator reach for SIGKILL."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], config="drain = 0") as server:
        async with server.client() as client:
            api = Native(client)
            run = await api.start(await api.new_session(), "Hello", "up/tokens:40000:0")
            await api.settled(run)
            stalled = await client.send("GET", f"/api/runs/{run}/events", receive_buffer=4096)
            stalled.stop_reading()
            await api.run(run)

            ended = await _signalled(server, signal.SIGTERM)

            assert (0, True) == (ended.code, ended.seconds < WITHIN)


@requirement("crash.sigterm", "crash.store-away")
async def test_a_store_that_is_away_does_not_hold_up_the_end_and_the_next_start_settles(tmp_path: Path):
    """What cannot be settled now is left to the next process: the log is there, and the run is called interrupted."""
    async with Upstream() as up:
        up.models["hanging"] = HANGING
        async with Server(tmp_path, [provider(up.base_url, models=None)], config="drain = 0.2") as server:
            async with server.client() as client:
                api = Native(client)
                session = await api.new_session()
                run = await api.start(session, "Hello", "up/hanging")
                await api.shown(run, "half an answer")
                other_program = sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)
                other_program.execute("BEGIN EXCLUSIVE")

                ended = await _signalled(server, signal.SIGTERM)
                other_program.execute("ROLLBACK")
                other_program.close()
                await server.restart()

                print(f"\nthe store was away: the process ended {ended.seconds:.2f} s after SIGTERM")
                assert ended.seconds < WITHIN
                assert 0 == ended.code
                assert "interrupted" == (await api.settled(run))["outcome"]
                assert [("user", "Hello"), ("partial", "half an answer")] == await api.transcript(session)
