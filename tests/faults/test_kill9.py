"""`kill -9` at random moments with a hundred runs live: nothing that anybody saw is lost, nothing is said twice.

A round is a life of the server: a hundred messages are sent to a hundred sessions, clients read, follow feeds and stop
runs, and at a random moment the process is killed, sometimes once more while it recovers. Then every
client comes back with its cursor, and all notes are compared with what was kept. `HOLDFAST_KILL_ROUNDS=50` runs fifty
rounds, `HOLDFAST_KILL_SEED` other ones.
"""

import asyncio
import copy
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.faults.witnesses import LOST, Kept, Notes, Send, Witness, events_of, feed_of, violations
from tests.requirements import requirement
from tests.support.http import Frame
from tests.support.long import count
from tests.support.native import Native
from tests.support.server import Server, StartFailed, UpstreamProcess, provider
from tests.support.waiting import SOON

ROUNDS = int(os.environ.get("HOLDFAST_KILL_ROUNDS") or count(4, 12))
SEED = int(os.environ.get("HOLDFAST_KILL_SEED", "20260101"))
RUNS = 100
MORE_READERS = 40
FEEDS = 10
SETTLED_WITHIN_OF_READY = SOON
SETTLED_WITHIN_OF_THE_START = 3 * SOON
"""On a busy machine most of it goes by before the first line of ours has run."""


@dataclass(frozen=True)
class Plan:
    """What a round does, and when it is killed: after clients were told of so many `starts`, `frames`, ..."""

    counts: Literal["starts", "frames", "stops", "endings"]
    kill_at: int
    tokens: tuple[int, int]
    pace: tuple[int, int]
    """Milliseconds between two tokens."""
    stop_after: tuple[int, int] | None = None
    """Frames after which a client stops the run."""
    kill_again_after: float | None = None

    @classmethod
    def draw(cls, number: int) -> "Plan":
        """The plan of a round: each kind has its turn, everything else is left to the seed."""
        chance = random.Random(f"{SEED} {number}")
        again = chance.uniform(0.2, 1.0) if chance.random() < 0.3 else None
        match number % 4:
            case 0:
                return cls("starts", chance.randint(1, RUNS), (30, 60), (20, 40), None, again)
            case 1:
                return cls("frames", chance.randint(200, 6000), (40, 400), (20, 60), None, again)
            case 2:
                return cls("stops", chance.randint(1, RUNS // 2), (100, 200), (20, 40), (3, 20), again)
        return cls("endings", chance.randint(1, RUNS // 2), (8, 20), (10, 40), None, again)

    def model(self, chance: random.Random) -> str:
        return f"up/tokens:{chance.randint(*self.tokens)}:{chance.randint(*self.pace)}"


class Life:
    """One life of the server, as its clients live through it."""

    def __init__(self, api: Native, plan: Plan, chance: random.Random, notes: Notes) -> None:
        self._api = api
        self._plan = plan
        self._chance = chance
        self._notes = notes
        self._told: Counter[str] = Counter()
        self._moment = asyncio.Event()
        self._fresh: list[Witness] = []

    @property
    def frames(self) -> int:
        """What clients have seen, all together."""
        return sum(len(witness.frames) for witness in self._fresh)

    async def lived_until_killed(self, server: Server, sessions: list[str], name: str) -> None:
        """Send a message to each session and live with the answers; kill the server when the moment has come."""
        clients = [asyncio.create_task(self._chat(session_id, name)) for session_id in sessions]
        clients += [asyncio.create_task(self._watch(feed_of(id))) for id in self._chance.sample(sessions, FEEDS)]
        moment = asyncio.create_task(self._moment.wait())
        everybody = asyncio.gather(*clients)
        await asyncio.wait({moment, everybody}, return_when=asyncio.FIRST_COMPLETED)
        moment.cancel()
        await server.kill9()
        await everybody

    async def _chat(self, session_id: str, name: str) -> None:
        send = Send(session_id, f"{name} to {session_id}")
        self._notes.sends.append(send)
        try:
            send.run_id = await self._api.start(session_id, send.input, self._plan.model(self._chance))
        except LOST:
            return
        self._count("starts")
        readers = 2 if self._chance.random() < MORE_READERS / RUNS else 1
        stopping = [self._stop_after(send.run_id)] if self._plan.stop_after else []
        await asyncio.gather(*(self._watch(events_of(send.run_id)) for _ in range(readers)), *stopping)

    def _count(self, what: str) -> None:
        self._told[what] += 1
        if self._told[self._plan.counts] >= self._plan.kill_at:
            self._moment.set()

    def _count_frame(self, witness: Witness) -> None:
        is_end = witness.has_seen_the_end and witness.path.startswith("/api/runs/")
        self._count("endings" if is_end else "frames")

    async def _watch(self, path: str) -> None:
        witness = Witness(path, on_frame=self._count_frame)
        self._fresh.append(witness)
        await witness.follow_while_it_lasts(self._api)

    async def _stop_after(self, run_id: str) -> None:
        assert self._plan.stop_after is not None
        frames = self._chance.randint(*self._plan.stop_after)
        witness = Witness(events_of(run_id))
        self._fresh.append(witness)
        try:
            await witness.follow(self._api, until=lambda _: len(witness.frames) >= frames)
            self._notes.settlements[run_id] = (await self._api.stop(run_id))["settlement"]
            self._count("stops")
        except LOST:
            pass  # nobody knows whether it was stopped

    async def come_back(self) -> None:
        """Every client goes on from its cursor, to the end."""
        for witness in self._fresh:
            witness.on_frame = lambda _: None
        await asyncio.gather(*(self._go_on(witness) for witness in self._fresh))
        self._notes.witnesses += self._fresh

    async def _go_on(self, witness: Witness) -> None:
        if witness.path.startswith("/api/sessions/"):
            session = witness.path.removesuffix("/events")
            await self._api.client.request("PATCH", session, json={"title": self._notes.end_of_feeds})
            await witness.follow(self._api, until=self._notes.is_end_of_feed)
        elif not witness.has_seen_the_end:
            await witness.follow(self._api)


async def _restart(server: Server, kill_again_after: float | None) -> float:
    """Start again, killed once more somewhere in its recovery where the plan says so. The moment of the last start."""
    if kill_again_after is not None:
        try:
            async with asyncio.timeout(kill_again_after):
                await server.restart()
        except (TimeoutError, StartFailed):
            pass  # killed before it was ready
        await server.kill9()
    began = time.monotonic()
    await server.restart()
    return began


async def _all_settled(api: Native) -> None:
    """Wait for every run that was left behind, also for those whose starters never heard of them."""
    for status in ("running", "queued"):
        for run in (await api.get(f"/api/runs?status={status}&limit=200"))["runs"]:
            await api.settled(run["id"])


@requirement("crash.kill9", "crash.resume")
@pytest.mark.timeout(60 + 20 * ROUNDS)
async def test_nothing_that_was_seen_is_lost_when_the_server_is_killed_at_a_random_moment(tmp_path: Path):
    """Seen is saved, acknowledged is kept, one ending, no gaps and no repeats: at whatever moment the process dies."""
    chance = random.Random(SEED)
    starts: list[float] = []
    recoveries: list[float] = []
    outcomes: Counter[str] = Counter()
    known: set[str] = set()
    frames = 0
    async with UpstreamProcess(tmp_path / "up") as up:
        server = Server(tmp_path / "data", [provider(up.base_url, models=None)], config="max_runs = 1000")
        async with server, server.client() as client:
            api = Native(client)
            sessions = [await api.new_session(title=f"{n}") for n in range(RUNS)]
            for number in range(1, ROUNDS + 1):
                plan, notes = Plan.draw(number), Notes(end_of_feeds=f"the end of round {number}.")
                life = Life(api, plan, chance, notes)
                await life.lived_until_killed(server, sessions, f"round {number}")
                frames += life.frames

                began = await _restart(server, plan.kill_again_after)
                starts.append(time.monotonic() - began)
                await _all_settled(api)
                recoveries.append(time.monotonic() - began)
                await life.come_back()
                kept = await Kept.ask(api, notes, sessions, known)

                assert [] == violations(notes, kept), f"round {number} of seed {SEED}: {plan}"
                known |= kept.runs.keys()
                outcomes += Counter(run["settlement"]["outcome"] for run in kept.runs.values())
                await up.forget()
    print(
        f"\n{ROUNDS} rounds, {len(known)} runs ({dict(outcomes)}), {frames} frames seen before the kills; "
        f"ready {_median(starts)}, all settled {_median(recoveries)} after the process was started"
    )
    assert max(recoveries) < SETTLED_WITHIN_OF_THE_START
    assert max(b - a for a, b in zip(starts, recoveries, strict=True)) < SETTLED_WITHIN_OF_READY
    assert outcomes["interrupted"] > 0, "no run was ever killed: the rounds showed nothing"


def _median(seconds: list[float]) -> str:
    return f"{sorted(seconds)[len(seconds) // 2]:.2f} s (median), {max(seconds):.2f} s (most)"


# The checker itself must be able to find what it looks for.


def _frame(n: int, event: str, data: str) -> Frame:
    return Frame("event", id=str(n), event=event, data=data)


def _story() -> tuple[Notes, Kept]:
    """A run that was killed after two words, as an honest server would tell it."""
    settlement = {"outcome": "interrupted", "text": "a b"}
    stream = [
        _frame(1, "run.started", "{}"),
        _frame(2, "text.delta", '{"text": "a "}'),
        _frame(3, "text.delta", '{"text": "b"}'),
        _frame(4, "run.settled", '{"settlement": {"outcome": "interrupted", "text": "a b"}}'),
    ]
    run = {"id": "run_1", "session_id": "ses_1", "status": "settled", "text": "a b", "settlement": settlement}
    answer = {"role": "assistant", "content": "a b", "run_id": "run_1", "outcome": "interrupted", "partial": True}
    messages = [{"role": "user", "content": "hi", "run_id": None}, answer]
    session = {"id": "ses_1", "messages": messages, "active_run": None, "queued": []}
    notes = Notes([Send("ses_1", "hi", "run_1")], [Witness(events_of("run_1"), list(stream))], {"run_1": settlement})
    return notes, Kept({"ses_1": session}, {"run_1": run}, {events_of("run_1"): stream})


def _lies() -> dict[str, Any]:
    """Each way in which a server could fail its clients."""
    path = events_of("run_1")

    def messages(kept: Kept) -> list[dict[str, Any]]:
        return kept.sessions["ses_1"]["messages"]

    return {
        "an event that was seen is gone": lambda n, k: k.streams[path].pop(2),
        "an event that was seen says something else": lambda n, k: k.streams[path].__setitem__(
            2, replace(k.streams[path][2], data='{"text": "c"}')
        ),
        "a cursor repeated": lambda n, k: n.witnesses[0].frames.insert(2, n.witnesses[0].frames[1]),
        "a cursor skipped": lambda n, k: n.witnesses[0].frames.pop(1),
        "a reader never saw the end": lambda n, k: n.witnesses[0].frames.pop(),
        "two endings": lambda n, k: (
            k.streams[path].append(replace(k.streams[path][-1], id="5")),
            n.witnesses[0].frames.append(replace(k.streams[path][-1], id="5")),
        ),
        "no ending": lambda n, k: (k.streams[path].pop(), n.witnesses[0].frames.pop()),
        "the run is still running": lambda n, k: k.runs["run_1"].update(status="running"),
        "the run tells another text": lambda n, k: k.runs["run_1"].update(text="a"),
        "a client was told another ending": lambda n, k: n.settlements.update(run_1={"outcome": "stopped", "text": ""}),
        "the answer is not in history": lambda n, k: messages(k).pop(),
        "the answer is in history twice": lambda n, k: messages(k).append(messages(k)[-1]),
        "the answer in history is cut": lambda n, k: messages(k)[1].update(content="a "),
        "the answer is called complete": lambda n, k: messages(k)[1].update(partial=False, outcome="completed"),
        "the user's message is gone": lambda n, k: messages(k)[0].update(content="other"),
        "the user's message is there twice": lambda n, k: messages(k).insert(0, messages(k)[0]),
        "something still waits": lambda n, k: k.sessions["ses_1"]["queued"].append({"run_id": "run_2"}),
    }


def test_the_checker_believes_an_honest_server():
    """Otherwise every round would fail, or the checks below would find the wrong thing."""
    assert [] == violations(*_story())


@pytest.mark.parametrize("lie", _lies())
def test_the_checker_finds(lie):
    """A checker that cannot fail proves nothing."""
    notes, kept = copy.deepcopy(_story())
    _lies()[lie](notes, kept)

    assert [] != violations(notes, kept)
