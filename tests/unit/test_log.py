"""The log: numbers without gaps, nothing seen before it is published, nothing after the end, and a bounded memory."""

import asyncio
import random
from collections import Counter
from contextlib import aclosing

import pytest

from holdfast.engine.core import Core
from holdfast.errors import ResumeGap, RunSettled
from holdfast.events import (
    Completed,
    Event,
    Reasoning,
    Settled,
    Snapshot,
    Steered,
    StepStarted,
    Text,
    ToolCall,
    Usage,
)
from holdfast.log.log import Log
from holdfast.log.segment import Segment, segment_of
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement

END = Settled(Completed(text="all"))


def texts(*words: str) -> list[Event]:
    return [Text(word) for word in words]


def segment(*words: str) -> Segment:
    return segment_of(texts(*words))


def published(*words: str, limit: int | None = None) -> Log:
    log = Log("run_1", limit=limit)
    for word in words:
        log.append(segment(word))
        log.publish(log.appended)
    return log


def everything_after(log: Log, after: int) -> list[tuple[int, Event]]:
    """Read slice by slice, as a cursor does."""
    seen: list[tuple[int, Event]] = []
    while events := log.slice(after):
        seen += enumerate(events, after + 1)
        after += len(events)
    return seen


def test_what_is_appended_is_unseen_until_it_is_published():
    """Seen is saved: a reader must never be shown what a crash could still lose."""
    log = Log("run_1")
    log.append(segment("a", "b"))

    assert (0, 2, "", []) == (log.seq, log.appended, log.text, [event for _, event in everything_after(log, 0)])

    log.publish(1)

    assert (1, "a", texts("a")) == (log.seq, log.text, [event for _, event in everything_after(log, 0)])
    assert texts("b") == [*log.pending()]


@requirement("sub.resume-exact")
@pytest.mark.parametrize("after", range(5))
def test_after_n_comes_n_plus_one(after):
    """The one rule of a cursor, at every place it can stand, the end included."""
    log = published("a", "b", "c")
    log.close(END)

    assert [(seq, event) for seq, event in enumerate([*texts("a", "b", "c"), END], 1) if seq > after] == (
        everything_after(log, after)
    )


@requirement("sub.own-seq")
def test_the_settlement_has_a_number_of_its_own():
    """A client that saw everything but the end resumes right before it, so the end cannot share a number."""
    log = published("a")
    log.close(END)

    assert [(1, Text("a")), (2, END)] == everything_after(log, 0)
    assert (2, 2) == (log.seq, log.appended)


def test_a_slice_is_never_the_whole_of_a_long_log():
    """A replay of a million events must not hold the loop, nor be rendered in one piece."""
    log = Log("run_1")
    log.append(segment(*map(str, range(5000))))
    log.publish(5000)

    assert 0 < len(log.slice(0)) < 1000
    assert [*range(1, 5001)] == [seq for seq, _ in everything_after(log, 0)]


def test_nothing_can_be_appended_after_the_seal_but_the_settlement():
    """A source that goes on after its run was stopped is fenced off here."""
    log = published("a")
    log.seal()

    with pytest.raises(RunSettled):
        log.append(segment("late"))

    log.close(END)

    assert [Text("a"), END] == [event for _, event in everything_after(log, 0)]


def test_nothing_can_be_appended_after_the_end():
    """Nothing after the end: the second invariant."""
    log = published("a")
    log.close(END)

    with pytest.raises(RunSettled):
        log.append(segment("late"))

    assert (2, "a") == (log.seq, log.text)


def test_closing_publishes_what_was_still_pending():
    """Readers that wait for the end get all of it, in order."""
    log = Log("run_1")
    log.append(segment("a", "b"))
    log.close(END)

    assert [Text("a"), Text("b"), END] == [event for _, event in everything_after(log, 0)]


def test_the_text_is_the_visible_text_of_the_first_answer_only():
    """Reasoning, tools and the other answers of `n` are events, but not the text that is kept and shown."""
    log = Log("run_1")
    call, usage = ToolCall("call_1", "add", "{}"), Usage(1, 2)
    log.append(
        segment_of([Reasoning("hm"), Text("a"), Text("B", choice=1), Reasoning("x", choice=1), call, usage, Text("c")])
    )
    log.publish(log.appended)

    assert ("ac", "hm") == (log.text, log.reasoning)
    assert ([call], usage) == (log.tool_calls, log.usage)


def test_a_cursor_beyond_what_is_published_reads_nothing():
    """What waits for the store is shown to nobody, wherever a cursor stands and however the events lie in memory."""
    log = published("a", "b")
    log.append(Segment(Text, ["w"] * 20))
    log.append(segment(*"x" * 40))
    log.publish(5)

    assert {after: [] for after in range(5, 70)} == {after: [*log.slice(after)] for after in range(5, 70)}


def test_a_text_that_was_asked_for_is_held_once():
    """A settlement holds the text too: a copy for each who asks would double what an ended run takes."""
    log = published("some", " text")
    said = log.text
    log.close(END)

    assert "some text" == said
    assert said is log.text


def test_the_text_can_be_asked_for_at_any_moment():
    """The status shows it while the run goes on; asking must neither change nor cost the next answer."""
    log = Log("run_1")
    for number in range(300):
        log.append(segment(str(number % 10)))
        log.publish(log.appended)

        assert "".join(str(n % 10) for n in range(number + 1)) == log.text


@requirement("sub.gap-410")
def test_a_cursor_before_what_is_kept_is_an_error_and_never_a_silent_gap():
    """A log with a limit forgets its oldest events; whoever needs them must be told where it begins now."""
    log = published(*map(str, range(100)), limit=10)

    with pytest.raises(ResumeGap) as gap:
        log.slice(0)

    assert gap.value.oldest == log.oldest > 1
    assert [*range(log.oldest, 101)] == [seq for seq, _ in everything_after(log, log.oldest - 1)]
    with pytest.raises(ResumeGap):
        log.slice(log.oldest - 2)


def test_a_log_with_a_limit_never_holds_more():
    """The memory of a run that nobody asked to keep is bounded; its text is not forgotten."""
    log = Log("run_1", limit=10)
    for number in range(1000):
        log.append(segment(str(number)))
        log.publish(log.appended)

        assert log.appended - log.oldest < 10

    assert "".join(map(str, range(1000))) == log.text


def test_trimming_never_forgets_what_is_not_yet_published():
    """What waits for the store has been seen by nobody: it must still be shown."""
    log = published(*map(str, range(10)), limit=10)
    log.append(segment(*(f"w{n}" for n in range(50))))
    log.publish(20)

    assert [f"w{n}" for n in range(10, 50)] == [event.text for event in log.pending()]
    log.publish(60)
    assert (60, Text("w49")) == (log.seq, log.slice(59)[0])


@requirement("sub.gap-410")
async def test_a_snapshot_stands_for_all_that_was_visible_and_reading_goes_on_right_after_it():
    """It is what a reader gets in place of events that were trimmed: text and reasoning without a hole."""
    log = Log("run_1", limit=4)
    for number in range(9):
        log.append(segment_of([Reasoning(f"r{number}"), Text(f"t{number}")]))
        log.publish(log.appended)
    seq, snapshot = await log.snapshot()
    log.append(segment("next"))
    log.publish(log.appended)

    assert Snapshot("".join(f"t{n}" for n in range(9)), "".join(f"r{n}" for n in range(9))) == snapshot
    assert [(19, Text("next"))] == everything_after(log, seq)


def test_a_watcher_is_woken_for_each_publication_and_for_the_end_until_it_unwatches():
    """A reader that is not woken sleeps for ever; one that has left must not be kept alive by the log."""
    log, woken = Log("run_1"), []
    log.append(segment("a", "b"))
    log.watch(lambda: woken.append("stays"))
    unwatch = log.watch(lambda: woken.append("leaves"))
    log.publish(1)
    unwatch()
    log.publish(2)
    log.close(END)

    assert ["stays", "leaves", "stays", "stays"] == woken
    unwatch()  # twice is harmless


def test_an_abandoned_log_forgets_what_nobody_saw_and_sends_its_readers_off():
    """Another owner writes this log now: what we had not saved may differ from what it will say."""
    log, woken = published("seen"), []
    log.append(segment("unseen"))
    log.watch(lambda: woken.append(True))
    log.abandon()

    assert (True, 1, 1, [True]) == (log.closed, log.seq, log.appended, woken)
    assert [Text("seen")] == [event for _, event in everything_after(log, 0)]
    with pytest.raises(RunSettled):
        log.append(segment("late"))


@requirement("sub.atomic-attach")
@pytest.mark.parametrize("keep", [False, True], ids=["in memory", "saved first"])
async def test_ten_thousand_attaches_racing_appends_see_no_gap_and_no_repeat(keep):
    """Replay and live are one loop over one log: there is no moment at which an event could fall between the two."""
    attaches, attached, chance = 10_000, 0, random.Random(7)

    async def source():
        while attached < attaches:
            yield [f"{number} " for number in range(chance.randint(1, 3))]
            await asyncio.sleep(0)

    async def attach(after, leaves_after):
        nonlocal attached
        attached += 1
        due = after + 1
        async with aclosing(run.read(after=after)) as events:
            async for seq, _ in events:
                if seq != due:
                    return f"after {after} came {seq} where {due} was due"
                due += 1
                if seq - after == leaves_after:
                    return "left"
        return f"read to {due - 1}"

    async with Core(MemoryStore()) as engine:
        run = await engine.start(source(), keep=keep)
        readers: list[asyncio.Task[str]] = []
        while len(readers) < attaches:
            for _ in range(min(chance.randint(1, 20), attaches - len(readers))):
                after = max(0, run.seq - chance.randint(0, 12))
                stays = chance.random() < 0.02
                readers.append(asyncio.create_task(attach(after, None if stays else chance.randint(1, 30))))
            await asyncio.sleep(0)
        ends = Counter(await asyncio.gather(*readers))

        assert {"left", f"read to {run.seq}"} == ends.keys()
        assert ends["left"] > 9_000


def test_a_message_put_in_before_the_first_step_stands_in_the_steps():
    """An agent can be reached a moment before it asks its model: what was accepted then is not lost."""
    log = Log("run_1")
    log.append(segment_of([Steered("msg_1", "Use metres."), StepStarted(1), Text("Yes.")]))
    log.publish(3)

    assert log.steps is not None
    assert [("", ("Use metres.",)), ("Yes.", ())] == [(step.text, step.inputs) for step in log.steps.all()]


def test_a_message_put_in_where_no_step_ever_began_stands_there_too():
    """The run was stopped at that very moment."""
    log = Log("run_1")
    log.append(segment_of([Steered("msg_1", "Use metres.")]))
    log.publish(1)

    assert log.steps is not None
    assert [("Use metres.",)] == [step.inputs for step in log.steps.all()]
