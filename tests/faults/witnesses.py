"""What clients saw, and whether it agrees with what the server has kept.

A *witness* is a client that writes down every frame it was shown, loses its connection when the server dies, and comes
back with its cursor. `violations` compares all their notes with what the server says afterwards. It is pure, so that it
can be shown to find each kind of lie.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.http import Frame, Response
from tests.support.native import Native

LOST = (OSError, TimeoutError)  # connection refused, reset or broken off; nobody there within the client's patience


@dataclass(eq=False)
class Witness:
    """Reads a stream of frames, and writes down which it has seen. `path` names what it reads."""

    path: str
    frames: list[Frame] = field(default_factory=list)
    on_frame: Callable[["Witness"], None] = lambda _: None

    @property
    def cursor(self) -> str:
        """The number of the last frame that had one."""
        return next((frame.id for frame in reversed(self.frames) if frame.id is not None), "0")

    @property
    def has_seen_the_end(self) -> bool:
        return bool(self.frames) and self.frames[-1].event == "run.settled"

    async def follow(self, api: Native, until: Callable[[Frame], bool] = lambda frame: False) -> None:
        """Read on from the cursor, to the end of the stream or to the frame that is waited for."""
        reader = await api.client.get(self.path, headers={"Last-Event-ID": self.cursor})
        assert 200 == reader.status, await reader.text()
        while (frame := await self._next(reader)) is not None and not until(frame):
            pass
        reader.leave()

    async def follow_while_it_lasts(self, api: Native) -> None:
        """The same, until the server dies."""
        try:
            await self.follow(api)
        except LOST:
            pass  # it has died

    async def _next(self, reader: Response) -> Frame | None:
        frame = await reader.next_event()
        if frame is not None:
            self.frames.append(frame)
            self.on_frame(self)
        return frame


@dataclass
class Send:
    """A message that a client sent. `run_id` is None where it never heard whether it was accepted."""

    session_id: str
    input: str
    run_id: str | None = None


@dataclass
class Notes:
    """All that clients know of one server, over all of its lives."""

    sends: list[Send] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)
    settlements: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settlements that a client was told as the answer to a stop."""
    end_of_feeds: str = ""
    """The title that a session got last: a feed has no end of its own, so this entry is where it is compared to."""

    def is_end_of_feed(self, frame: Frame) -> bool:
        return frame.event == "session.changed" and self.end_of_feeds in frame.data


@dataclass
class Kept:
    """What the server says in the end: sessions, runs, and every stream read from its start."""

    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    streams: dict[str, list[Frame]] = field(default_factory=dict)
    """By the path of the stream."""

    @classmethod
    async def ask(cls, api: Native, notes: Notes, sessions: Iterable[str], known: Container[str] = ()) -> "Kept":
        """Ask for the runs of the sessions but those that are known already, and for every stream with a witness."""
        kept = cls()
        await asyncio.gather(*(kept._ask_session(api, session_id, known) for session_id in sessions))
        paths = {witness.path for witness in notes.witnesses} | {events_of(run_id) for run_id in kept.runs}
        for path in paths:
            replay = Witness(path)
            await replay.follow(api, until=notes.is_end_of_feed)
            kept.streams[path] = replay.frames
        return kept

    async def _ask_session(self, api: Native, session_id: str, known: Container[str]) -> None:
        self.sessions[session_id] = await api.session(session_id)
        listed = (await api.get(f"/api/runs?session_id={session_id}&limit=200"))["runs"]
        new = [run["id"] for run in listed if run["id"] not in known]
        self.runs |= {run_id: await api.run(run_id) for run_id in new}  # a list shows only the beginning of a text


def events_of(run_id: str) -> str:
    return f"/api/runs/{run_id}/events"


def feed_of(session_id: str) -> str:
    return f"/api/sessions/{session_id}/events"


def violations(notes: Notes, kept: Kept) -> list[str]:
    """Everything in which the server's word and the clients' notes differ. Empty is good."""
    found: list[str] = []
    for witness in notes.witnesses:
        found += _of_witness(witness, kept.streams[witness.path])
    for run_id, run in kept.runs.items():
        found += _of_run(run, kept.streams[events_of(run_id)])
    for run_id, told in notes.settlements.items():
        if told != kept.runs[run_id]["settlement"]:
            found.append(f"{run_id}: a client was told {told}, but {kept.runs[run_id]['settlement']} is kept")
    for session_id, session in kept.sessions.items():
        sends = [send for send in notes.sends if send.session_id == session_id]
        found += _of_session(session, sends, kept.runs)
    return found


def _of_witness(witness: Witness, stream: Sequence[Frame]) -> list[str]:
    """A cursor goes on without gap or repeat, and what was seen is what is kept."""
    seen, expected = [_said(frame) for frame in witness.frames], [_said(frame) for frame in stream]
    if seen == expected[: len(seen)] and len(seen) == len(expected):
        return []
    differ = (n for n, (a, b) in enumerate(zip(seen, expected, strict=False)) if a != b)
    place = next(differ, min(len(seen), len(expected)))
    at = (seen[place : place + 1] or ["nothing"])[0], (expected[place : place + 1] or ["nothing"])[0]
    return [f"{witness.path}: frame {place + 1} was seen as {at[0]}, but is kept as {at[1]}"]


def _said(frame: Frame) -> tuple[str | None, str | None, str]:
    return frame.id, frame.event, frame.data


def _of_run(run: dict[str, Any], stream: Sequence[Frame]) -> list[str]:
    """The log has no gap and one ending, and the run tells the same as its log."""
    found = []
    if [str(n) for n in range(1, len(stream) + 1)] != [frame.id for frame in stream]:
        found.append(f"{run['id']}: its events are numbered {[frame.id for frame in stream]}")
    endings = [n for n, frame in enumerate(stream, 1) if frame.event == "run.settled"]
    if endings != [len(stream)]:
        return [*found, f"{run['id']}: of {len(stream)} events {endings} are settlements"]
    settlement = stream[-1].json()["settlement"]
    text = "".join(frame.json()["text"] for frame in stream if frame.event == "text.delta")
    if (run["status"], run["settlement"], run["text"]) != ("settled", settlement, text) or settlement["text"] != text:
        found.append(f"{run['id']}: its log says {text!r} and {settlement}, the run {run}")
    return found


def _of_session(session: dict[str, Any], sends: Sequence[Send], runs: dict[str, dict[str, Any]]) -> list[str]:
    """Each message that was accepted is there once, and right after it what its run left."""
    where, messages = session["id"], session["messages"]
    found = []
    if session["active_run"] is not None or session["queued"]:
        found.append(f"{where}: something still runs or waits: {session['active_run']} {session['queued']}")
    times = Counter(message["content"] for message in messages if message["role"] == "user")
    for send in sends:
        if times[send.input] > 1 or (send.run_id is not None and times[send.input] != 1):
            found.append(f"{where}: {send.input!r}, sent as {send.run_id}, is there {times[send.input]} times")
    for run in (run for run in runs.values() if run["session_id"] == where):
        found += _of_answer(run, messages, sends)
    return found


def _of_answer(run: dict[str, Any], messages: Sequence[dict[str, Any]], sends: Sequence[Send]) -> list[str]:
    settlement = run["settlement"]
    left = [n for n, message in enumerate(messages) if message["run_id"] == run["id"]]
    if len(left) != (1 if settlement["text"] else 0):
        return [f"{run['id']}: {settlement} left {len(left)} messages"]
    if not left:
        return []
    message, before = messages[left[0]], messages[left[0] - 1]
    told = (message["role"], message["content"], message["outcome"], message["partial"])
    completed = settlement["outcome"] == "completed"
    found = []
    if told != ("assistant", settlement["text"], settlement["outcome"], not completed):
        found.append(f"{run['id']}: {settlement} left {told}")
    sent = next((send.input for send in sends if send.run_id == run["id"]), before["content"])
    if (before["role"], before["content"]) != ("user", sent):
        found.append(f"{run['id']}: its answer follows {before['content']!r}, not {sent!r}")
    return found
