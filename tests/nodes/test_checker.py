"""The checker of histories finds each kind of fault, for its own reason."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast_lab.misbehaving.endings import tokens_text
from tests.nodes.checker import violations
from tests.nodes.history import History, Kept, Reading, Send, Stop, Story, events_path, feed_path
from tests.support.http import Frame

SESSION, FIRST, SECOND = "ses_1", "run_1", "run_2"
TEXTS = {FIRST: tokens_text(3), SECOND: tokens_text(1)}
"""The first run completes. The second was stopped after one of its three words."""


def frame(id: str, type: str, **data: Any) -> Frame:
    return Frame("event", id=id, event=type, data=json.dumps({"type": type, **data}))


def settlement(run_id: str) -> dict[str, Any]:
    return {"outcome": "completed" if run_id == FIRST else "stopped", "text": TEXTS[run_id]}


def log(run_id: str) -> list[Frame]:
    words = [word + " " for word in TEXTS[run_id].split()]
    deltas = [frame(str(n), "text.delta", run=run_id, seq=n, text=word) for n, word in enumerate(words, 2)]
    end = str(len(words) + 2)
    ending = frame(end, "run.settled", run=run_id, seq=int(end), settlement=settlement(run_id))
    return [frame("1", "run.started", run=run_id, seq=1), *deltas, ending]


def run(run_id: str) -> dict[str, Any]:
    return {
        "id": run_id,
        "session_id": SESSION,
        "status": "settled",
        "text": TEXTS[run_id],
        "seq": len(log(run_id)),
        "started_at": "then",
        "settlement": settlement(run_id),
    }


def answer(run_id: str) -> dict[str, Any]:
    said = settlement(run_id)
    return {"id": "msg", "role": "assistant", "content": said["text"], "run_id": run_id, "outcome": said["outcome"]}


def asked(text: str) -> dict[str, Any]:
    return {"id": "msg", "role": "user", "content": text, "run_id": None}


def feed() -> list[Frame]:
    return [
        frame("1", "run.started", n=1, run_id=FIRST),
        frame("1:1", "run.started", run=FIRST, seq=1),
        *(frame(f"1:{seq}", "text.delta", run=FIRST, seq=seq, text=f"t{seq - 2} ") for seq in (2, 3, 4)),
        frame("2", "run.settled", n=2, run_id=FIRST),
        frame("3", "run.started", n=3, run_id=SECOND),
        frame("3:1", "run.started", run=SECOND, seq=1),
        frame("3:2", "text.delta", run=SECOND, seq=2, text="t0 "),
        frame("4", "run.settled", n=4, run_id=SECOND),
    ]


def kept() -> Kept:
    messages = [asked("one"), answer(FIRST), asked("two"), answer(SECOND)]
    session = {"id": SESSION, "messages": messages, "active_run": None, "queued": []}
    streams = {events_path(FIRST): log(FIRST), events_path(SECOND): log(SECOND), feed_path(SESSION): feed()}
    return Kept({SESSION: session}, {FIRST: run(FIRST), SECOND: run(SECOND)}, streams)


def honest() -> Story:
    """Two messages to a session: one is answered, and the answer of the other is stopped."""
    history = History(
        sessions=[SESSION],
        sends=[Send(SESSION, "one", 3, [FIRST, FIRST]), Send(SESSION, "two", 3, [SECOND])],
        stops=[Stop(SECOND, run(SECOND))],
        readings=[Reading(events_path(FIRST), log(FIRST)), Reading(feed_path(SESSION), feed())],
    )
    return Story(history, [kept(), kept(), kept()])


Change = Callable[[Kept], Any]


def everywhere(change: Change) -> Callable[[Story], Any]:
    """Return a change of what all nodes keep: they agree on something false."""
    return lambda story: [change(node) for node in story.nodes]


def messages(node: Kept) -> list[dict[str, Any]]:
    session = node.sessions[SESSION]
    assert session is not None
    found: list[dict[str, Any]] = session["messages"]
    return found


def seen(story: Story, n: int = 0) -> list[Frame]:
    return story.history.readings[n].frames


def end_twice(node: Kept) -> None:
    stream = node.streams[events_path(SECOND)]
    stream.append(replace(stream[-1], id=str(len(stream) + 1)))


def complete_early(node: Kept) -> None:
    """A stopped run is called completed everywhere, with the text that it had."""
    ended = settlement(SECOND) | {"outcome": "completed"}
    node.runs[SECOND]["settlement"] = ended
    stream = node.streams[events_path(SECOND)]
    stream[-1] = frame(str(len(stream)), "run.settled", settlement=ended)
    messages(node)[3]["outcome"] = "completed"


def overlap(node: Kept) -> None:
    entries = [entry for entry in feed() if "n" in entry.json()]
    order = [entries[0], entries[2], entries[1], entries[3]]
    node.streams[feed_path(SESSION)] = [
        frame(str(n), each.json()["type"], n=n, run_id=each.json()["run_id"]) for n, each in enumerate(order, 1)
    ]


FALSE: dict[str, tuple[str, Callable[[Story], Any]]] = {
    "a node answers 500": ("broken-answer", lambda it: it.history.broken.append("GET /: 500")),
    "a node keeps another title": ("nodes-differ", lambda it: it.nodes[1].sessions[SESSION].update(title="x")),
    "a node lacks a run": ("nodes-differ", lambda it: it.nodes[2].runs.pop(SECOND)),
    "a node lacks the end of a log": ("nodes-differ", lambda it: it.nodes[1].streams[events_path(FIRST)].pop()),
    "a reader gets an event twice": ("numbers", lambda it: seen(it).insert(2, seen(it)[1])),
    "a reader misses an event": ("numbers", lambda it: seen(it).pop(1)),
    "a reader of the feed misses an entry": ("numbers", lambda it: seen(it, 1).pop(5)),
    "a reader of the feed misses the last words of a run": ("numbers", lambda it: seen(it, 1).pop(4)),
    "a reader of the feed gets a run's event twice": ("numbers", lambda it: seen(it, 1).insert(2, seen(it, 1)[2])),
    "a reader of the feed gets another entry": (
        "seen-is-kept",
        lambda it: seen(it, 1).__setitem__(0, frame("1", "run.started", n=1, run_id="run_9")),
    ),
    "a reader saw another word": (
        "seen-is-kept",
        lambda it: seen(it).__setitem__(1, frame("2", "text.delta", run=FIRST, seq=2, text="other ")),
    ),
    "a reader saw more than is kept": (
        "seen-is-kept",
        lambda it: seen(it).append(frame("6", "text.delta", run=FIRST, seq=6, text="more")),
    ),
    "a run never ends": ("not-settled", everywhere(lambda node: node.runs[FIRST].update(status="running"))),
    "a message waits for ever": (
        "not-settled",
        everywhere(lambda node: node.sessions[SESSION].update(queued=[{"run_id": "run_3"}])),  # type: ignore[union-attr]
    ),
    "a kept log has a gap": (
        "kept-numbers",
        everywhere(lambda node: node.streams[events_path(SECOND)].__setitem__(0, frame("0", "run.started"))),
    ),
    "a kept feed has a gap": (
        "kept-numbers",
        lambda it: (
            it.history.readings.pop(),
            everywhere(lambda node: node.streams[feed_path(SESSION)].pop(0))(it),
        ),
    ),
    "a run ends twice": ("one-settlement", everywhere(end_twice)),
    "a run ends twice in the feed": (
        "one-settlement",
        everywhere(lambda node: node.streams[feed_path(SESSION)].append(frame("5", "run.settled", n=5, run_id=SECOND))),
    ),
    "a run has another ending than its log": (
        "one-settlement",
        everywhere(lambda node: node.runs[FIRST]["settlement"].update(finish_reason="length")),
    ),
    "a stop is answered with a running run": (
        "stop-ends",
        lambda it: it.history.stops[0].run.update(status="running", settlement=None),
    ),
    "a stopped run has completed after all": (
        "stop-stands",
        lambda it: it.history.stops[0].run.update(settlement={"outcome": "stopped", "text": ""}),
    ),
    "one key starts two runs": ("one-key-one-run", lambda it: it.history.sends[0].run_ids.append(SECOND)),
    "an accepted message is not there": (
        "accepted-is-kept",
        everywhere(lambda node: messages(node)[2].update(content="other")),
    ),
    "the run of an accepted message is gone": (
        "accepted-is-kept",
        lambda it: it.history.sends.append(Send(SESSION, "one", 3, ["run_9"])),
    ),
    "a session is gone that was not deleted": (
        "accepted-is-kept",
        lambda it: (it.history.stops.clear(), everywhere(lambda node: node.sessions.update({SESSION: None}))(it)),
    ),
    "an accepted message is there twice": (
        "said-twice",
        everywhere(lambda node: messages(node).append(asked("two"))),
    ),
    "a message without an answer is there twice": (
        "said-twice",
        lambda it: (
            it.history.sends[1].run_ids.clear(),
            everywhere(lambda node: messages(node).append(asked("two")))(it),
        ),
    ),
    "a part of an answer is called completed": (
        "whole",
        lambda it: (it.history.stops.clear(), everywhere(complete_early)(it)),
    ),
    "an answer is not in the session": ("answer-once", everywhere(lambda node: messages(node).pop())),
    "an answer is there twice": ("answer-once", everywhere(lambda node: messages(node).append(answer(SECOND)))),
    "an answer has another outcome than its run": (
        "answer-once",
        everywhere(lambda node: messages(node)[3].update(outcome="completed")),
    ),
    "a deleted session is there": ("deleted-stays", lambda it: it.history.deleted.add(SESSION)),
    "two runs of a session at once": (
        "one-running",
        lambda it: (it.history.readings.pop(), everywhere(overlap)(it)),
    ),
}
"""What is false in each history, and the rule that has to find it."""


def test_an_honest_history_breaks_no_rule():
    """Otherwise every round would fail, or the histories below would be found for the wrong reason."""
    assert [] == violations(honest())


@pytest.mark.parametrize("lie", FALSE)
def test_a_false_history_is_found_for_its_own_reason(lie):
    """A checker that cannot fail proves nothing, and one that fails for another reason proves as little."""
    rule, falsify = FALSE[lie]
    story = copy.deepcopy(honest())
    falsify(story)

    assert {rule} == {found.rule for found in violations(story)}


def test_a_deleted_session_may_be_gone():
    """Its readers keep what they saw, and nothing can be compared with it."""
    story = honest()
    story.history.deleting.add(SESSION)
    story.history.deleted.add(SESSION)
    for node in story.nodes:
        node.sessions[SESSION] = None
        node.runs.clear()
        node.streams.clear()

    assert [] == violations(story)


def test_a_queued_message_that_was_dropped_is_not_in_the_session():
    """A message enters its session when its run starts."""
    story = honest()
    story.history.sends.append(Send(SESSION, "three", 3, ["run_3"]))
    for node in story.nodes:
        stopped = {"outcome": "stopped", "text": ""}
        node.runs["run_3"] = run(FIRST) | {"id": "run_3", "text": "", "started_at": None, "settlement": stopped}
        node.streams[events_path("run_3")] = [frame("1", "run.settled", settlement=stopped)]

    assert [] == violations(story)
