"""Judges the history of a round: it compares what clients were answered with what every node keeps.

It is pure, so that false histories can show that it finds each kind of fault, and for its own reason.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from holdfast_lab.misbehaving.endings import tokens_text
from tests.nodes.history import Kept, Reading, Send, Story, events_path, feed_path
from tests.support.http import Frame


class Violation(NamedTuple):
    """A promise that was broken, and what shows it."""

    rule: str
    shown_by: str


Found = Iterator[Violation]


def violations(story: Story) -> list[Violation]:
    """Return everything in which the nodes have broken a promise. Empty is good."""
    kept = story.nodes[0]
    found = [Violation("broken-answer", shown) for shown in story.history.broken]
    found += _of_nodes(story.nodes)
    for reading in story.history.readings:
        found += _of_reading(reading, kept)
    for run_id, run in kept.runs.items():
        found += _of_run(run, kept.streams[events_path(run_id)])
    found += _of_stops(story, kept)
    for send in story.history.sends:
        found += _of_send(send, story, kept)
    for session_id in story.history.sessions:
        found += _of_session(session_id, story, kept)
    return found


def _of_nodes(nodes: Sequence[Kept]) -> Found:
    """Every node has the same sessions, runs, logs and feeds."""
    first = nodes[0]
    for number, other in enumerate(nodes[1:], 2):
        for kind in ("sessions", "runs", "streams"):
            here, there = getattr(first, kind), getattr(other, kind)
            for name in here.keys() | there.keys():
                if _comparable(here.get(name)) != _comparable(there.get(name)):
                    yield Violation("nodes-differ", f"{name}: node 1 and node {number} keep different {kind}")


def _comparable(value: Any) -> Any:
    return [(frame.event, frame.data) for frame in value] if isinstance(value, list) else value


def _said(frame: Frame) -> tuple[str | None, str | None, str]:
    return frame.id, frame.event, frame.data


# readers


def _of_reading(reading: Reading, node: Kept) -> Found:
    """A reader gets each number once and in order over all its connections, and only what is kept."""
    kept = node.streams.get(reading.path)
    if reading.path.startswith("/api/sessions/"):
        yield from _of_feed(reading, kept)
        yield from _of_runs_in_feed(reading, node)
        return
    numbers = [frame.id for frame in reading.frames]
    if numbers != [str(n) for n in range(1, len(numbers) + 1)]:
        yield Violation("numbers", f"{reading.path}: a reader got {numbers}")
        return
    if kept is None:
        return  # its session was deleted
    for seen, stored in zip(reading.frames, kept, strict=False):
        if _said(seen) != _said(stored):
            yield Violation("seen-is-kept", f"{reading.path}: seen {_said(seen)}, kept {_said(stored)}")
            return
    if len(reading.frames) > len(kept):
        yield Violation("seen-is-kept", f"{reading.path}: {len(reading.frames)} events seen, {len(kept)} kept")


def _of_feed(reading: Reading, kept: Sequence[Frame] | None) -> Found:
    """The entries of a feed have each number once. The events of a run that come between them are in order."""
    last: dict[str, int] = {}
    entries = [frame for frame in reading.frames if "n" in frame.json()]
    for frame in reading.frames:
        event = frame.json()
        if "seq" in event:
            if event["seq"] != last.get(event["run"], event["seq"] - 1) + 1:
                yield Violation("numbers", f"{reading.path}: {event['run']} {last[event['run']]} then {event['seq']}")
            last[event["run"]] = event["seq"]
    numbers = [frame.json()["n"] for frame in entries]
    if numbers != list(range(1, len(numbers) + 1)):
        yield Violation("numbers", f"{reading.path}: a reader of the feed got {numbers}")
    elif kept is not None:
        stored = [frame.data for frame in kept if "n" in frame.json()]
        if [frame.data for frame in entries] != stored[: len(entries)]:
            yield Violation("seen-is-kept", f"{reading.path}: a reader of the feed got other entries than are kept")


def _of_runs_in_feed(reading: Reading, node: Kept) -> Found:
    """Before its end, a feed has shown all events of a run that began in it."""
    last: dict[str, int] = {}
    for event in (frame.json() for frame in reading.frames):
        if "seq" in event:
            last[event["run"]] = event["seq"]
        elif event["type"] == "run.started":
            last[event["run_id"]] = 0
        elif event["type"] == "run.settled" and event["run_id"] in last and event["run_id"] in node.runs:
            run = node.runs[event["run_id"]]
            if last[run["id"]] != run["seq"] - 1:
                yield Violation(
                    "numbers", f"{reading.path}: {run['id']} ended after {last[run['id']]}, not {run['seq']}"
                )


# runs


def _of_run(run: dict[str, Any], stream: Sequence[Frame]) -> Found:
    """A run has ended, once, and its log says the same as the run."""
    if run["status"] != "settled":
        yield Violation("not-settled", f"{run['id']}: it is {run['status']}")
        return
    if [frame.id for frame in stream] != [str(n) for n in range(1, len(stream) + 1)]:
        yield Violation("kept-numbers", f"{run['id']}: its events are {[frame.id for frame in stream]}")
    ends = [n for n, frame in enumerate(stream, 1) if frame.event == "run.settled"]
    if ends != [len(stream)]:
        yield Violation("one-settlement", f"{run['id']}: of {len(stream)} events {ends} are settlements")
        return
    text = "".join(frame.json()["text"] for frame in stream if frame.event == "text.delta")
    settlement = stream[-1].json()["settlement"]
    if (run["settlement"], run["text"], settlement["text"]) != (settlement, text, text):
        yield Violation("one-settlement", f"{run['id']}: its log says {text!r} and {settlement}, the run {run}")


def _of_stops(story: Story, kept: Kept) -> Found:
    """The ending that a stop was answered with is the ending of the run, for ever."""
    for stop in story.history.stops:
        if stop.run["settlement"] is None:
            yield Violation("stop-ends", f"{stop.run_id}: a stop was answered with {stop.run}")
        elif (run := kept.runs.get(stop.run_id)) is not None and run != stop.run:
            yield Violation("stop-stands", f"{stop.run_id}: answered {stop.run}, kept {run}")


# messages


def _of_send(send: Send, story: Story, kept: Kept) -> Found:
    """A message that was accepted is there once, with one run; one that was not answered is there at most once."""
    if len(set(send.run_ids)) > 1:
        yield Violation("one-key-one-run", f"{send.input}: accepted as {send.run_ids}")
    session = kept.sessions.get(send.session_id)
    if session is None:
        return  # `_of_session` judges whether that is right
    accepted = [kept.runs[run_id] for run_id in set(send.run_ids) if run_id in kept.runs]
    if len(accepted) < len(set(send.run_ids)):
        yield Violation("accepted-is-kept", f"{send.input}: the run {send.run_ids} is gone")
    times = sum(message["content"] == send.input for message in session["messages"])
    if times > 1:
        yield Violation("said-twice", f"{send.input}: {times} times in {send.session_id}")
    if not times and any(run["started_at"] for run in accepted):
        yield Violation("accepted-is-kept", f"{send.input}: its run has started, and it is not in {send.session_id}")
    for run in accepted:
        yield from _of_text(send, run)


def _of_text(send: Send, run: dict[str, Any]) -> Found:
    """A completed answer is whole, and any other is the beginning of it."""
    whole, text = tokens_text(send.tokens), run["text"]
    if run["status"] == "settled" and run["settlement"]["outcome"] == "completed" and text != whole:
        yield Violation("whole", f"{run['id']}: completed with {text!r}")
    elif not whole.startswith(text):
        yield Violation("whole", f"{run['id']}: {text!r} is not the beginning of its answer")


def _of_session(session_id: str, story: Story, kept: Kept) -> Found:
    session, history = kept.sessions.get(session_id), story.history
    if session is None:
        if session_id not in history.deleting:
            yield Violation("accepted-is-kept", f"{session_id}: it is gone, and was not deleted")
        return
    if session_id in history.deleted:
        yield Violation("deleted-stays", f"{session_id}: its deletion was answered, and it is there")
    if session["active_run"] is not None or session["queued"]:
        yield Violation("not-settled", f"{session_id}: {session['active_run']} {session['queued']}")
    runs = [run for run in kept.runs.values() if run["session_id"] == session_id]
    yield from _of_answers(session, runs)
    yield from _of_turns(session_id, kept.streams[feed_path(session_id)])


def _of_answers(session: dict[str, Any], runs: Sequence[dict[str, Any]]) -> Found:
    """Each run has left its text as one message, and has the outcome of the run."""
    left = Counter(message["run_id"] for message in session["messages"] if message["role"] == "assistant")
    for run in runs:
        settlement = run["settlement"]
        if settlement is None:
            continue  # `_of_run` reports it
        if left[run["id"]] != (1 if settlement["text"] else 0):
            yield Violation("answer-once", f"{run['id']}: {settlement} is there {left[run['id']]} times")
    by_run = {run["id"]: run["settlement"] for run in runs}
    for message in session["messages"]:
        if message["role"] != "assistant":
            continue
        settlement = by_run.get(message["run_id"])
        if settlement is None or (message["content"], message["outcome"]) != (
            settlement["text"],
            settlement["outcome"],
        ):
            yield Violation("answer-once", f"{message['id']}: {message}, but its run settled as {settlement}")


def _of_turns(session_id: str, feed: Sequence[Frame]) -> Found:
    """By the feed, which is the store's own order, a run begins only if no other of its session is running."""
    running = ""
    entries = [frame.json() for frame in feed if "n" in frame.json()]
    if [entry["n"] for entry in entries] != list(range(1, len(entries) + 1)):
        yield Violation("kept-numbers", f"{session_id}: its feed has {[entry['n'] for entry in entries]}")
    ended = Counter(entry["run_id"] for entry in entries if entry["type"] == "run.settled")
    for run_id, times in ended.items():
        if times > 1:
            yield Violation("one-settlement", f"{run_id}: {times} settlements in the feed of {session_id}")
    for entry in entries:
        if entry["type"] == "run.started":
            if running:
                yield Violation("one-running", f"{session_id}: {entry['run_id']} began while {running} was running")
            running = entry["run_id"]
        elif entry["type"] == "run.settled" and entry["run_id"] == running:
            running = ""
