"""Clients that use random nodes, lose connections, come back at other nodes, and note everything they are answered."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.nodes.history import END_OF_FEED, END_OF_READING, History, Kept, Reading, Send, Stop, events_path, feed_path
from tests.support.http import Client, Frame, Response
from tests.support.waiting import LONG

CHATS = 10
SENDS = (1, 3)
TOKENS = (5, 150)
PACE = (10, 30)
"""Milliseconds between two tokens."""
PATIENCE = 12.0
"""Seconds that a client waits for an answer, or for the next heartbeat. Then it tries another node."""
PAUSE = 0.2
LOST = (OSError, TimeoutError)
LATER = (429, 503, 504)
"""Statuses that ask the client to try again."""
REFUSED = ("owner_silent", "store_unavailable")
"""Errors with which a start is refused after another node may have found its run by the key."""


class Fleet:
    """The clients of a round. Each chat has one session, and sends, reads, stops and sometimes deletes."""

    def __init__(self, urls: Sequence[str], chance: random.Random, name: str) -> None:
        self.history = History()
        self._urls = urls
        self._chance = chance
        self._name = name
        self._frames = 0
        self._awaited = 0
        self._moment = asyncio.Event()

    async def live(self) -> None:
        """Chat, until every run that a client knows has ended for its readers."""
        async with asyncio.timeout(3 * LONG):
            await asyncio.gather(*(self._chat(f"{self._name}, chat {n}") for n in range(CHATS)))

    async def seen(self, frames: int) -> None:
        """Wait until the readers of this fleet have got so many frames, together."""
        self._awaited = frames
        await self._moment.wait()

    # a client

    async def _chat(self, name: str) -> None:
        session_id = await self._new_session()
        async with asyncio.TaskGroup() as readers:
            if self._is(0.4):
                readers.create_task(self._read(feed_path(session_id), session_id))
            async with asyncio.TaskGroup() as work:
                await self._talk(session_id, name, work)
                if self._is(0.15):
                    work.create_task(self._delete(session_id))
            await self._answered("PATCH", f"/api/sessions/{session_id}", {"title": END_OF_READING})

    async def _talk(self, session_id: str, name: str, work: asyncio.TaskGroup) -> None:
        for n in range(self._chance.randint(*SENDS)):
            send = Send(session_id, f"{name}, message {n}", self._chance.randint(*TOKENS))
            self.history.sends.append(send)
            following = self._follow(send, work) if await self._send(send) else []
            if following and self._is(0.4):
                await asyncio.wait(following)

    def _is(self, chance: float) -> bool:
        return self._chance.random() < chance

    def _follow(self, send: Send, work: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Read a run, by one or two readers, and perhaps stop it."""
        run_id, readers = send.run_ids[0], self._chance.randint(1, 2)
        if self._is(0.3):
            work.create_task(self._stop(run_id, send.session_id, self._chance.randint(1, 40)))
        return [work.create_task(self._read(events_path(run_id), send.session_id)) for _ in range(readers)]

    async def _new_session(self) -> str:
        answer = await self._answered("POST", "/api/sessions", {})
        assert answer is not None
        self.history.sessions.append(answer["id"])
        return str(answer["id"])

    async def _send(self, send: Send) -> bool:
        """Send a message until it is accepted or refused. Some are sent to two nodes at once."""
        policy = self._chance.choice(["queue", "queue", "reject", "interrupt"])
        model = f"up/tokens:{send.tokens}:{self._chance.randint(*PACE)}"
        body = {"input": send.input, "model": model, "if_busy": policy}
        path, headers = f"/api/sessions/{send.session_id}/runs", {"Idempotency-Key": send.input}
        times = 2 if self._is(0.2) else 1
        answers = await asyncio.gather(*(self._answered("POST", path, body, headers) for _ in range(times)))
        run_ids = [run["id"] for run in answers if run is not None]
        if len(set(run_ids)) > 1:
            run_ids = [run_id for run_id in run_ids if not await self._was_refused(run_id)]
        send.run_ids += run_ids
        return bool(send.run_ids)

    async def _was_refused(self, run_id: str) -> bool:
        """Return whether a start was refused after this client was told of it: then its key has started another run."""
        run = await self._answered("GET", f"/api/runs/{run_id}")
        return run is not None and was_refused(run)

    async def _stop(self, run_id: str, session_id: str, after: int) -> None:
        """Read some events of a run, then stop it."""
        await self._read(events_path(run_id), session_id, after)
        if (run := await self._answered("POST", f"/api/runs/{run_id}/stop", {})) is not None:
            self.history.stops.append(Stop(run_id, run))

    async def _delete(self, session_id: str) -> None:
        self.history.deleting.add(session_id)
        await self._answered("DELETE", f"/api/sessions/{session_id}")
        self.history.deleted.add(session_id)

    # one request, at any node that answers it

    async def _answered(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Repeat a request at random nodes, until one answers. None if that is a refusal, or has no content."""
        while True:
            async with Client(self._chance.choice(self._urls), timeout=PATIENCE) as client:
                try:
                    response = await client.request(method, path, json=body, headers=headers)
                    if response.status not in LATER:
                        return await self._judged(method, path, response)
                    await response.body()
                except LOST:
                    pass  # the next try may reach another node
            await asyncio.sleep(PAUSE)

    async def _judged(self, method: str, path: str, response: Response) -> dict[str, Any] | None:
        if response.status in (404, 409, 204):
            return None
        if response.status not in (200, 201, 202):
            self.history.broken.append(f"{method} {path}: {response.status} {await response.text()}")
            return None
        answer: dict[str, Any] = await response.json()
        return answer

    async def _read(self, path: str, session_id: str, most: int = 1_000_000) -> None:
        """Read to the end, over as many connections as it takes, and leave some of them for no reason."""
        reading = Reading(path)
        self.history.readings.append(reading)
        while not _is_end(reading) and len(reading.frames) < most:
            async with Client(self._chance.choice(self._urls), timeout=PATIENCE) as client:
                try:
                    if not await self._read_once(client, reading, session_id, most):
                        return
                except LOST:
                    pass  # it comes back with its cursor
            await asyncio.sleep(PAUSE)

    async def _read_once(self, client: Client, reading: Reading, session_id: str, most: int) -> bool:
        """Read on from the last number. False if there is nothing to read any more."""
        response = await client.get(reading.path, headers={"Last-Event-ID": _cursor(reading)})
        if response.status in LATER:
            return True
        if response.status != 200:
            if response.status != 404 or session_id not in self.history.deleting:
                self.history.broken.append(f"GET {reading.path}: {response.status} {await response.text()}")
            return False
        if self._is(0.3):
            most = min(most, len(reading.frames) + self._chance.randint(1, 60))
        has_ended = False
        while len(reading.frames) < most and not _is_end(reading) and not has_ended:
            frame = await response.next_event()
            if frame is not None and frame.data:
                reading.frames.append(frame)
                self._count()
            elif frame is None and session_id not in self.history.deleting:
                self.history.broken.append(f"GET {reading.path}: it ended after {_cursor(reading)}")
            has_ended = frame is None or not frame.data  # without data it is the farewell of a node that ends
        response.leave()
        return True

    def _count(self) -> None:
        self._frames += 1
        if self._frames == self._awaited:
            self._moment.set()


def was_refused(run: dict[str, Any]) -> bool:
    """Return whether the start of a run was refused although it was stored: then its key starts another one."""
    error = (run["settlement"] or {}).get("error") or {}
    return run["seq"] == 1 and error.get("code") in REFUSED


def _cursor(reading: Reading) -> str:
    return next((frame.id for frame in reversed(reading.frames) if frame.id is not None), "0")


def _is_end(reading: Reading) -> bool:
    if not reading.frames:
        return False
    last = reading.frames[-1]
    if reading.path.startswith("/api/runs/"):
        return last.event == "run.settled"
    return last.event == "session.changed" and END_OF_READING in last.data


# afterwards


async def kept_by(url: str, history: History) -> Kept:
    """Ask a node for everything that it keeps of the sessions of a round."""
    kept = Kept()
    async with Client(url) as client:
        for session_id in history.sessions:
            kept.sessions[session_id] = session = await _json(client, f"/api/sessions/{session_id}")
            if session is None:
                continue
            listed = await _json(client, f"/api/runs?session_id={session_id}&limit=200")
            assert listed is not None
            for run_id in [run["id"] for run in listed["runs"]]:
                kept.runs[run_id] = await _json(client, f"/api/runs/{run_id}") or {}
                kept.streams[events_path(run_id)] = await _frames(client, events_path(run_id), lambda frame: False)
            feed = feed_path(session_id)
            kept.streams[feed] = await _frames(client, feed, lambda frame: END_OF_FEED in frame.data)
    return kept


async def all_settled(url: str, history: History) -> None:
    """Wait until nothing is running or queued in the sessions of a round, also for runs that no client knows."""
    async with asyncio.timeout(LONG), Client(url) as client:
        for session_id in history.sessions:
            while (session := await _json(client, f"/api/sessions/{session_id}")) is not None:
                if session["active_run"] is None and not session["queued"]:
                    break
                await asyncio.sleep(PAUSE)


async def mark_ends(url: str, history: History) -> None:
    """Give every feed an entry that no run of the round comes after."""
    async with Client(url) as client:
        for session_id in history.sessions:
            await _json(client, f"/api/sessions/{session_id}", "PATCH", {"title": END_OF_FEED})


async def _json(client: Client, path: str, method: str = "GET", body: Any = None) -> dict[str, Any] | None:
    """Return the answer of a node, which may not be ready again right after a fault. None if there is no such thing."""
    async with asyncio.timeout(LONG):
        while (response := await client.request(method, path, json=body)).status in LATER:
            await response.body()
            await asyncio.sleep(PAUSE)
    answer: dict[str, Any] = await response.json()
    assert response.status in (200, 404), answer
    return answer if response.status == 200 else None


async def _frames(client: Client, path: str, is_last: Callable[[Frame], bool]) -> list[Frame]:
    response, frames = await client.get(path), list[Frame]()
    while (frame := await response.next_event()) is not None:
        frames.append(frame)
        if is_last(frame):
            response.leave()
            break
    return frames
