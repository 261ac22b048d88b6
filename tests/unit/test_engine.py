"""The engine with sources of every kind: whatever a source does, its run ends once, with every word, and truthfully."""

import asyncio
import gc
import logging
import re
import threading
from contextlib import aclosing
from random import Random

import pytest

from holdfast import (
    Completed,
    Failed,
    Finish,
    Interrupted,
    Limits,
    Notice,
    Reasoning,
    Settled,
    SourceFailed,
    Stopped,
    StopResult,
    Text,
    ToolCall,
    Truncated,
    Usage,
)
from holdfast.asks import ProgramAsk
from holdfast.engine.core import Core
from holdfast.errors import AnswerLost, RunLimitReached, RunNotFound, ShuttingDown
from holdfast.events import ErrorInfo, RunStarted, Snapshot, Thought, ToolDelta, ToolResult
from holdfast.ids import new_id
from holdfast.log.log import Log
from holdfast.log.segment import Segment, encode_segment, segment_of
from holdfast.store import RunRecord
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from tests.requirements import requirement
from tests.simulation.loop import SeededLoop
from tests.support.waiting import LONG

SURROGATE = "\ud83c"  # half an emoji


@pytest.fixture
async def engine():
    """Short limits, so that what waits for them does not wait long."""
    async with Core(MemoryStore(), limits=Limits(grace=0.05)) as engine:
        yield engine


@pytest.fixture(params=[False, True], ids=["in memory", "kept"])
def keep(request):
    """A run that nobody asked to keep publishes at once, a kept one after the store has it: both must do all this."""
    return request.param


async def source(*items):
    for item in items:
        yield item


async def forever(*items):
    """Yield these, then stay silent until cancelled."""
    for item in items:
        yield item
    await asyncio.Event().wait()


async def ended(run):
    """How it ended, within a time in which every one of these tests has to end."""
    async with asyncio.timeout(LONG):
        return await run.settled()


async def heard(run, after=0):
    async with asyncio.timeout(LONG):
        return [event async for _, event in run.read(after)]


async def spoken(run, text):
    """Wait until a reader can see this text."""
    async with asyncio.timeout(LONG):
        async with aclosing(run.read()) as events:
            async for _ in events:
                if run.text == text:
                    return
    raise AssertionError(f"the run ended with {run.text!r} where {text!r} was due")


# What a source may yield.


async def test_strings_events_and_batches_become_one_numbered_log(engine, keep):
    """A source yields what it has at hand: the log is the same."""
    call = ToolCall("call_1", "add", "{}")
    run = await engine.start(source("a", ["b", Text("c")], (Reasoning("hm"), call), Text("d")), keep=keep, model="m")
    settlement = await ended(run)

    assert [
        RunStarted("m"),
        *(Text("a"), Text("b"), Text("c")),
        *(Reasoning("hm"), call, Text("d"), Settled(settlement)),
    ] == await heard(run)
    assert ("abcd", "stop") == (settlement.text, settlement.finish_reason)
    assert isinstance(settlement, Completed)


async def test_empty_strings_and_empty_batches_are_not_events(engine, keep):
    """They carry nothing, and would only cost every reader a frame."""
    run = await engine.start(source("", [], (), "a", Text(""), Reasoning(""), ["", Text("")], "b"), keep=keep)

    assert [Text("a"), Text("b")] == (await heard(run))[1:-1]


async def test_a_source_that_yields_nothing_completes_without_text(engine, keep):
    """An empty answer is an answer: the source ended by itself."""
    run = await engine.start(source(), keep=keep)

    assert Completed(text="", finish_reason="stop") == await ended(run)


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        (Finish("stop"), Completed),
        (Finish("tool_calls"), Completed),
        (Finish("length"), Truncated),
        (Finish("content_filter"), Truncated),
        (Finish("error"), Failed),
        (Finish("stop", error=ErrorInfo("upstream_error", "It broke.")), Failed),
    ],
    ids=lambda value: getattr(value, "reason", getattr(value, "__name__", None)),
)
async def test_a_source_says_how_it_ended(engine, keep, finish, expected):
    """The settlement is a type, so that a failure cannot be read as a success by mistake."""
    settlement = await ended(await engine.start(source("a", finish), keep=keep))

    assert (expected, "a", finish.reason) == (type(settlement), settlement.text, settlement.finish_reason)


@requirement("truth.last-word")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((Finish("stop"), Finish("error")), Failed),
        ((Finish("error"), Finish("stop")), Failed),
        ((Finish("stop"), Finish("stop", error=ErrorInfo("upstream_error", "It broke."))), Failed),
        (([Finish("stop"), Finish("error")],), Failed),
        ((Finish("stop"), Finish("error", choice=1)), Failed),
        ((Finish("stop"), Finish("length")), Truncated),
        ((Finish("length"), Finish("stop")), Completed),
    ],
    ids=[
        "then failed",
        "failed before",
        "then an error",
        "at once",
        "of another choice",
        "then length",
        "after length",
    ],
)
async def test_the_last_word_of_a_source_counts_and_a_failure_wins(engine, keep, words, expected):
    """A source that says it is done and then says it failed has failed: the first word was hope, the last is known."""
    settlement = await ended(await engine.start(source("a", *words), keep=keep))

    assert (expected, "a") == (type(settlement), settlement.text)


@requirement("truth.last-word", "truth.logged")
@pytest.mark.parametrize("error", [ValueError("half way"), SourceFailed("It broke.")], ids=["stranger", "known"])
async def test_a_source_that_raises_after_it_said_it_had_finished_has_failed(engine, keep, caplog, error):
    """An agent whose text ends well and whose last save fails: whoever reads `completed` would not look again."""

    async def source():
        yield "a"
        yield Finish("stop")
        raise error

    with caplog.at_level(logging.INFO, "holdfast"):
        run = await engine.start(source(), keep=keep, kind="agent", model="agent/m")
        settlement = await ended(run)

    assert (Failed, "a", None) == (type(settlement), settlement.text, settlement.finish_reason)
    assert f"agent run {run.id} (agent/m)" in caplog.text
    assert str(error) in caplog.text


@requirement("truth.last-word")
async def test_a_source_that_is_cancelled_from_outside_after_it_said_it_had_finished_has_failed(engine, keep):
    """A cancel that is not ours is an error of the source as any other."""

    async def source():
        yield "a"
        yield Finish("stop")
        raise asyncio.CancelledError

    settlement = await ended(await engine.start(source(), keep=keep))

    assert (Failed, "source_cancelled") == (type(settlement), settlement.error.code)


async def test_what_is_said_after_a_finish_is_part_of_the_answer(engine, keep):
    """Upstreams send usage, and sometimes text, after their finish reason: no word of it is lost."""
    run = await engine.start(source("a", Finish("length"), "b", Usage(3, 5)), keep=keep)

    assert Truncated(text="ab", finish_reason="length", usage=Usage(3, 5)) == await ended(run)


@requirement("truth.last-word")
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
async def test_a_source_that_went_on_after_its_finish_and_is_stopped_is_stopped(engine, keep, at_once):
    """It had not finished: there was more to say, and nobody knows how much more would have come."""
    items = (Finish("stop"), "b")
    run = await engine.start(forever("a", list(items)) if at_once else forever("a", *items), keep=keep)
    await spoken(run, "ab")
    settlement = (await run.stop()).settlement

    assert (Stopped, "ab") == (type(settlement), settlement.text)


async def test_usage_that_nobody_counted_is_estimated_and_says_so(engine, keep):
    """A number without its source would pass for the provider's."""
    run = await engine.start(source(Usage(7, 0, "estimated"), Reasoning("12345"), "678"), keep=keep)

    assert Usage(7, 2, "estimated") == (await ended(run)).usage


# What it may not yield.

NOT_EVENTS = [
    42,
    None,
    b"bytes",
    object(),
    {"type": "text.delta", "text": "a"},
    RunStarted(),
    Snapshot("a"),
    Settled(Completed()),
    [["nested"]],
    Text(b"bytes"),
    Text(5),
    Text(None),
    Text("a", choice="first"),
    Text("a", logprobs=object()),
    Text("ä", logprobs={"content": [object()]}),
    Reasoning(b"bytes"),
    Reasoning("a", choice="first"),
    ToolCall("call_1", "add", {"a": 1}),
    ToolResult("call_1", "a", content=({"data": object()},)),
    Usage("many", 5),
]


def plainly(value: object) -> str:
    """A value as a test's name: the same in every process, so without addresses."""
    return re.sub(r" at 0x\w+", "", repr(value))


@pytest.mark.parametrize("nonsense", NOT_EVENTS, ids=plainly)
async def test_a_source_that_yields_nonsense_has_failed_and_keeps_its_words(engine, keep, nonsense):
    """A mistake in a source is told as a failure; it can neither forge an ending nor leave the run without one."""
    run = await engine.start(source("kept", nonsense, "never"), keep=keep)
    settlement = await ended(run)

    assert (Failed, "kept", "source_failed") == (type(settlement), settlement.text, settlement.error.code)
    assert ["kept"] == [event.text for event in await heard(run) if isinstance(event, Text)]


async def test_a_thought_is_for_the_agent_that_asked_and_is_not_logged(engine, keep):
    """Providers that seal what was thought yield it to whoever asks: in a chat there is nobody who gives it back."""
    run = await engine.start(source("a", Thought({"signature": "sealed"}), "b"), keep=keep)
    settlement = await ended(run)

    assert (Completed, "ab") == (type(settlement), settlement.text)
    assert [RunStarted(), Text("a"), Text("b"), Settled(settlement)] == await heard(run)


@pytest.mark.parametrize("not_a_source", [42, "text", ["a"], source], ids=plainly)
async def test_what_is_no_source_at_all_is_a_failed_run(engine, keep, not_a_source):
    """`start(my_generator)` without the call is the usual slip: it is told, and nothing hangs."""
    settlement = await ended(await engine.start(not_a_source, keep=keep))

    assert (Failed, "source_failed") == (type(settlement), settlement.error.code)


# Half an emoji can be neither sent nor stored.


@pytest.mark.parametrize(
    "items",
    [
        [f"a{SURROGATE}"],
        [Text("a", logprobs={"content": [{SURROGATE: SURROGATE}]})],
        [Text("ä", logprobs={"content": [{"token": SURROGATE}]})],
        [Reasoning(f"a{SURROGATE}")],
        [ToolResult("call_1", "a", content=({"text": [SURROGATE]},))],
        [ToolCall("call_1", "add", f"{SURROGATE}")],
        ["a", Finish(f"odd{SURROGATE}")],
        ["a", Finish("error", error=ErrorInfo("broken", f"{SURROGATE}", param=f"{SURROGATE}"))],
        ["a", SourceFailed(f"{SURROGATE}")],
    ],
    ids=["text", "logprobs", "both", "reasoning", "content", "arguments", "finish reason", "finish error", "exception"],
)
async def test_a_lone_surrogate_ends_up_as_a_question_mark_and_hurts_nobody(tmp_path, items):
    """It comes in from JSON escapes, and breaks `.encode()` wherever it gets to: the run must still settle."""

    async def raising():
        for item in items:
            if isinstance(item, Exception):
                raise item
            yield item

    store = await asyncio.to_thread(SqliteStore, str(tmp_path / "test.db"))
    async with Core(store) as engine:
        run = await engine.start(raising(), keep=True)
        settlement = await ended(run)
        events = [event async for _, event in run.read()]
        stored = (await store.get_run(run.id), await store.read_log(run.id, 0))
    await store.close()

    assert (settlement, events) == (stored[0].settlement, stored[1])
    assert "?" in encode_segment(segment_of(events)).decode()


@pytest.mark.parametrize(
    "said", [Segment(Text, ["a", SURROGATE, "ö"]), Segment(Reasoning, [f"a{SURROGATE}ö"])], ids=["text", "reasoning"]
)
def test_the_texts_of_a_log_can_be_stored_whatever_is_in_it(said):
    """A settlement takes them as they are: they may be long, and are not looked through a second time."""
    log = Log("run_1")
    log.append(said)
    log.publish(len(said))

    assert "a?ö" == log.text + log.reasoning


# How a source may break.


class Boom(Exception):
    """Knows nothing of Holdfast."""


async def test_a_source_that_raises_at_once_has_failed(engine, keep):
    """The first step of a source is as good a place to fail as any."""

    async def source():
        raise Boom("the secret is 42")
        yield

    run = await engine.start(source(), keep=keep)
    settlement = await ended(run)

    assert (Failed, "", "source_failed") == (type(settlement), settlement.text, settlement.error.code)
    assert [RunStarted(), Settled(settlement)] == await heard(run)


async def test_what_a_stranger_raised_is_logged_and_not_shown(engine, keep, caplog):
    """The words of an unknown exception may hold a key or a path; the server's log may, a reader may not see them."""

    async def source():
        yield "a"
        raise Boom("the secret is 42")

    with caplog.at_level(logging.ERROR, "holdfast"):
        settlement = await ended(await engine.start(source(), keep=keep))

    assert "Boom" in settlement.error.message
    assert "secret" not in settlement.error.message
    assert "the secret is 42" in caplog.text


@requirement("truth.logged", "safe.secrets")
async def test_what_a_source_raised_is_logged_with_its_run_and_without_keys(engine, keep, caplog):
    """Clients of upstreams quote the key that they were called with in their errors."""

    async def source():
        yield "a"
        raise Boom("401 for https://user:pa55word@up.example/v1?api_key=qwertyuiop with Bearer sk-abcdef123456")

    with caplog.at_level(logging.ERROR, "holdfast"):
        run = await engine.start(source(), keep=keep)
        await ended(run)

    assert run.id in caplog.text
    assert "Boom: 401 for" in caplog.text
    assert not [secret for secret in ("pa55word", "qwertyuiop", "abcdef123456") if secret in caplog.text]


@requirement("truth.logged")
async def test_what_a_stopped_source_raises_is_logged_and_changes_nothing(engine, keep, caplog):
    """The stop stands; but a cleanup that breaks is a bug that its author wants to hear of."""

    async def source():
        yield "a"
        try:
            await asyncio.Event().wait()
        finally:
            raise Boom("in the cleanup")

    with caplog.at_level(logging.ERROR, "holdfast"):
        run = await engine.start(source(), keep=keep)
        await spoken(run, "a")
        settlement = (await run.stop()).settlement

    assert (Stopped, "a") == (type(settlement), settlement.text)
    assert "in the cleanup" in caplog.text


async def test_a_source_may_choose_the_words_of_its_failure(engine, keep):
    """`SourceFailed` is raised on purpose: its code and message are meant for readers."""

    async def source():
        yield "a"
        raise SourceFailed("The tool is out of order.", code="tool_broken")

    settlement = await ended(await engine.start(source(), keep=keep))

    assert ("a", "tool_broken", "The tool is out of order.") == (
        settlement.text,
        settlement.error.code,
        settlement.error.message,
    )


@pytest.mark.parametrize("error", [StopAsyncIteration(), StopIteration(), GeneratorExit(), asyncio.CancelledError()])
async def test_a_generator_that_raises_what_means_an_end_elsewhere_has_failed(engine, keep, error):
    """None of these is the source's own end, and a success must never come of an accident."""

    async def source():
        yield "a"
        raise error

    settlement = await ended(await engine.start(source(), keep=keep))

    assert (Failed, "a") == (type(settlement), settlement.text)


class HardExit(BaseException):
    """Passes by every `except Exception`."""


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, HardExit])
def test_a_source_that_wants_to_end_the_process_ends_only_its_run(error, keep):
    """asyncio lets SystemExit and KeyboardInterrupt of any task end the loop, and with it every other run, unsaved.

    In a loop and thread of their own, where they could do no more than fail this test.
    """
    seen = []

    async def exits():
        try:
            yield "a"
            raise error("exits")
        finally:
            raise error("exits in its cleanup too")

    async def exits_in_close():
        raise error("exits")

    async def main():
        async with Core(MemoryStore(), limits=Limits(grace=0.05)) as engine:
            other = await engine.start(forever("b"), keep=keep)
            seen.append(await ended(await engine.start(exits(), keep=keep)))
            seen.append((await (await engine.start(Closable(closing=exits_in_close), keep=keep)).stop()).settlement)
            seen.append(other.status)
            seen.append((await other.stop()).settlement)

    def in_its_own_loop():
        try:
            asyncio.run(main())
        except BaseException as escaped:  # noqa: BLE001 - whatever comes out of the loop is what is looked for
            seen.append(escaped)

    thread = threading.Thread(target=in_its_own_loop)
    thread.start()
    thread.join(LONG)

    assert [Failed, Stopped, str, Stopped] == [type(thing) for thing in seen]
    assert ("a", "source_failed", "running") == (seen[0].text, seen[0].error.code, seen[2])


# Sources that are no generators.


class Iterator:
    """An async iterator with nothing else: no `aclose`."""

    def __init__(self, *items):
        self.items = list(items)
        self.asked_after_the_end = 0

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.items:
            return self.items.pop(0)
        self.asked_after_the_end += 1
        raise StopAsyncIteration


class Closable(Iterator):
    """An async iterator that wants to be closed, and notes by which task."""

    def __init__(self, *items, closing=None):
        super().__init__(*items)
        self.tasks = []
        self.closed_by = []
        self._closing = closing

    async def __anext__(self):
        self.tasks.append(asyncio.current_task())
        if not self.items:
            await asyncio.Event().wait()
        return await super().__anext__()

    async def aclose(self):
        self.closed_by.append(asyncio.current_task())
        if self._closing is not None:
            await self._closing()


async def hang():
    await asyncio.Event().wait()


async def boom():
    raise Boom("in close")


async def test_a_plain_iterator_is_a_source_and_is_asked_once_for_its_end(engine, keep):
    """Not every source is a generator; one that has said it is over is not asked again."""
    iterator = Iterator("a", "b")
    settlement = await ended(await engine.start(iterator, keep=keep))

    assert (Completed, "ab", 1) == (type(settlement), settlement.text, iterator.asked_after_the_end)


async def test_a_plain_iterator_without_a_close_can_be_stopped(engine, keep):
    """There is nothing to close: the cancel is all that it gets."""
    run = await engine.start(aiter(Silent("a")), keep=keep)
    await spoken(run, "a")
    settlement = (await run.stop()).settlement

    assert (Stopped, "a") == (type(settlement), settlement.text)


class Silent(Iterator):
    """Yields its items, then nothing, for ever."""

    async def __anext__(self):
        if not self.items:
            await asyncio.Event().wait()
        return await super().__anext__()


async def test_a_source_is_closed_by_the_task_that_reads_it_and_before_the_run_has_settled(engine, keep):
    """Closed from another task a generator raises, and an upstream stays open: this one is closed once, in its own."""
    source = Closable("a")
    run = await engine.start(source, keep=keep)
    await spoken(run, "a")
    await run.stop()

    assert [source.tasks[0]] == source.closed_by
    assert {source.tasks[0]} == set(source.tasks)


async def test_a_generator_has_left_its_finally_when_the_stop_returns(engine, keep):
    """`stop` means stopped: the upstream is closed, not about to be."""
    left = []

    async def source():
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            left.append(True)

    run = await engine.start(source(), keep=keep)
    await spoken(run, "a")
    await run.stop()

    assert [True] == left


async def test_a_source_that_raises_while_it_is_closed_is_still_stopped(engine, keep):
    """The stop was asked for and has happened; a broken cleanup does not change how the run ended."""
    run = await engine.start(Closable("a", closing=boom), keep=keep)
    await spoken(run, "a")
    settlement = (await run.stop()).settlement

    assert (Stopped, "a", "user") == (type(settlement), settlement.text, settlement.by)


async def test_a_source_that_raises_in_its_finally_is_still_stopped_and_asyncio_has_nothing_to_complain_of(engine):
    """An exception that nobody fetches is reported by asyncio much later and without a name: it must be fetched."""
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))

    async def source():
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            raise Boom("in finally")

    run = await engine.start(source())
    await spoken(run, "a")
    settlement = (await run.stop()).settlement
    del run

    assert Stopped is type(settlement)
    assert [] == complaints


@pytest.mark.parametrize("closing", [boom, hang], ids=["raises", "hangs"])
async def test_a_source_that_cannot_be_closed_before_its_first_step_is_still_stopped(engine, closing):
    """Then the pump has never run, and the close falls to the keeper, whom nothing may keep from settling."""
    source = Closable("a", closing=closing)
    run = await engine.start(source)
    async with asyncio.timeout(LONG):
        settlement = (await run.stop()).settlement

    assert (Stopped, "", []) == (type(settlement), settlement.text, source.tasks)


async def test_a_source_that_never_ends_its_close_is_left_behind_after_the_grace(engine, keep):
    """A hanging cleanup costs the grace period and no more."""
    run = await engine.start(Closable("a", closing=hang), keep=keep)
    await spoken(run, "a")
    async with asyncio.timeout(LONG):
        settlement = (await run.stop()).settlement

    assert (Stopped, "a", None) == (type(settlement), settlement.text, settlement.receipt.upstream_closed_at)


# Last words: what a source says after it was told to stop.


@pytest.mark.parametrize(
    "last",
    [[Finish("stop")], [["more", Finish("stop")]], [Finish("stop"), "more"], ["more", Finish("stop")]],
    ids=["finish", "text and finish", "finish, text", "text, finish"],
)
async def test_a_source_that_claims_to_have_finished_after_it_was_stopped_is_stopped(engine, keep, last):
    """Its last words come too late to be shown, so a `completed` would be the success of a text that is not whole."""

    async def source():
        yield "a"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for item in last:
                yield item

    run = await engine.start(source(), keep=keep)
    await spoken(run, "a")
    settlement = (await run.stop()).settlement

    assert (Stopped, "a") == (type(settlement), settlement.text)
    assert ["a"] == [event.text for event in await heard(run) if isinstance(event, Text)]


async def test_a_source_that_had_finished_before_the_stop_is_completed(engine, keep):
    """All of the answer was there, and its end was said: the stop came too late."""
    run = await engine.start(forever(["whole", Finish("stop")]), keep=keep)
    await spoken(run, "whole")

    completed = Completed(text="whole", finish_reason="stop", usage=Usage(0, 2, "estimated"))
    assert StopResult(completed, by_this_call=False) == await run.stop()


# Limits.


async def test_a_silent_source_has_failed_after_the_idle_limit(keep):
    """A run that nothing comes from must not run for ever; what came before is kept."""
    async with Core(MemoryStore(), limits=Limits(idle=0.05)) as engine:
        settlement = await ended(await engine.start(forever("a"), keep=keep))

        assert (Failed, "a", "upstream_stalled", 504) == (
            type(settlement),
            settlement.text,
            settlement.error.code,
            settlement.error.status,
        )


async def test_a_source_that_is_silent_from_the_start_has_failed_after_the_idle_limit():
    """Before the first word the limit holds too."""
    async with Core(limits=Limits(idle=0.05)) as engine:
        settlement = await ended(await engine.start(forever()))

        assert ("", "upstream_stalled") == (settlement.text, settlement.error.code)


def test_each_event_moves_the_idle_limit():
    """A slow source is not a silent one: this one takes three times the limit in all, by a clock that no load slows."""

    async def slow():
        for _ in range(15):
            yield "a"
            await asyncio.sleep(0.02)

    async def world():
        async with Core(limits=Limits(idle=0.1)) as engine:
            settlement = await ended(await engine.start(slow()))

            assert (Completed, "a" * 15) == (type(settlement), settlement.text)

    clock = SeededLoop(Random(0), disorder=0.0)
    clock.run(world())

    assert 0.3 <= clock.time() < 0.4


async def test_a_source_that_goes_on_talking_has_failed_at_the_deadline(keep):
    """The idle limit never falls due here: only the deadline can end it."""

    async def talkative():
        while True:
            yield "a"
            await asyncio.sleep(0.005)

    async with Core(MemoryStore(), limits=Limits(idle=30.0, deadline=0.15)) as engine:
        run = await engine.start(talkative(), keep=keep)
        settlement = await ended(run)

        assert (Failed, "deadline_exceeded", 504) == (
            type(settlement),
            settlement.error.code,
            settlement.error.status,
        )
        assert settlement.text
        assert settlement.text == "".join(event.text for event in await heard(run) if isinstance(event, Text))


async def test_one_run_may_have_less_time_than_the_others(engine, keep):
    """A pane or a cell of a batch has a time-out of its own; the limit of all stands above it."""
    record = RunRecord(id=new_id("run"))
    run = await engine.submit(record, source=forever("so far"), keep=keep, deadline=0.02)
    long = await engine.submit(RunRecord(id=new_id("run")), source=forever(), keep=keep, deadline=1e9)

    settled = await run.settled()

    assert (Failed, "deadline_exceeded", "so far") == (type(settled), settled.error.code, settled.text)
    assert engine.limits.deadline == long.deadline


async def test_without_limits_a_run_has_no_timer():
    """None means none: a run for days must not meet a default."""
    async with Core(limits=Limits(idle=None, deadline=None)) as engine:
        timers = len(asyncio.get_running_loop()._scheduled)
        run = await engine.start(forever("a"))
        await spoken(run, "a")

        assert timers + 1 == len(asyncio.get_running_loop()._scheduled)  # the one of `spoken`
        await run.stop()


async def test_more_runs_than_the_limit_are_refused_until_one_has_ended(keep):
    """A refused start has no run, costs no place and says when to try again."""
    async with Core(MemoryStore(), limits=Limits(runs=2)) as engine:
        first, _ = [await engine.start(forever(), keep=keep) for _ in range(2)]
        for _ in range(5):
            refused = forever()
            with pytest.raises(RunLimitReached) as error:
                await engine.start(refused, keep=keep)
            await refused.aclose()

        assert (429, 1.0) == (error.value.status, error.value.retry_after)
        assert 2 == len(engine.live())
        await first.stop()
        assert "running" == (await engine.start(forever(), keep=keep)).status


async def test_one_owner_at_its_limit_leaves_room_for_the_others(keep):
    """A limit for each owner is what keeps one of them from taking it all."""
    async with Core(MemoryStore(), limits=Limits(runs=3, runs_per_owner=1)) as engine:
        await engine.start(forever(), keep=keep, owner="ann")
        refused = forever()
        with pytest.raises(RunLimitReached):
            await engine.start(refused, keep=keep, owner="ann")
        await refused.aclose()

        assert "running" == (await engine.start(forever(), keep=keep, owner="bob")).status


async def test_places_are_given_back_however_a_run_ends(keep):
    """A place that leaks is a server that refuses everything after a week."""

    async def raises():
        raise Boom
        yield

    async with Core(MemoryStore(), limits=Limits(runs=1, grace=0.02, idle=0.02)) as engine:
        for make in (lambda: source("a"), raises, forever, lambda: source(42), lambda: 42, lambda: Closable()):
            await ended(await engine.start(make(), keep=keep))
        for make in (forever, Closable, lambda: Closable(closing=hang), lambda: Closable(closing=boom)):
            await (await engine.start(make(), keep=keep)).stop()

        assert "running" == (await engine.start(forever(), keep=keep)).status


async def test_nothing_starts_in_an_engine_that_is_closing(keep):
    """Otherwise a run could start after the last one was waited for."""
    engine = Core(MemoryStore())
    async with engine:
        run = await engine.start(forever("a"), keep=keep)
        await spoken(run, "a")
    late = forever()
    with pytest.raises(ShuttingDown):
        await engine.start(late, keep=keep)
    await late.aclose()

    assert (Stopped, "a", "shutdown") == (type(run.settlement), run.settlement.text, run.settlement.by)


@requirement("sub.unknown-404")
async def test_an_unknown_run_cannot_be_opened(engine):
    """It is told at once, with or without a store to look in."""
    with pytest.raises(RunNotFound):
        await engine.open("run_unknown")
    with pytest.raises(RunNotFound):
        await Core().open("run_unknown")


async def test_short_runs_that_have_ended_do_not_pile_up():
    """A run of two events takes the memory of many: a limit of events alone would let hundreds of thousands stay."""
    async with Core(limits=Limits(recent=200)) as engine:
        runs = [await engine.start(source("x")) for _ in range(10)]
        for run in runs:
            await ended(run)

        assert runs[-1] is await engine.open(runs[-1].id)
        with pytest.raises(RunNotFound):
            await engine.open(runs[0].id)


async def test_what_an_ended_run_was_asked_counts_too():
    """One long prompt takes the place of many short runs."""
    async with Core(limits=Limits(recent=1000)) as engine:
        before = await engine.start(source("x"))
        await ended(before)
        asked = RunRecord(id=new_id("run"), ask=ProgramAsk(data="x" * 200_000))
        await ended(await engine.submit(asked, source=source("y"), keep=False))

        with pytest.raises(RunNotFound):
            await engine.open(before.id)


@pytest.mark.parametrize(
    "more",
    [
        Reasoning("x" * 200_000),
        Text("x" * 200_000, choice=1),
        Reasoning("x" * 200_000, choice=1),
        ToolDelta(0, "call_1", "f", "x" * 200_000),
        ToolCall("call_1", "f", "x" * 200_000),
        ToolResult("call_1", "x" * 200_000),
        ToolResult("call_1", "", content=({"type": "image", "data": "x" * 200_000},)),
        Text("x", logprobs={"content": [{"token": "x", "logprob": -0.5, "bytes": [120]} for _ in range(1000)]}),
    ],
    ids=lambda said: f"{type(said).__name__}{getattr(said, 'choice', 0) or ''}",
)
async def test_what_an_ended_run_has_said_besides_its_text_counts_too(more):
    """A model may think, call and answer a second time far more than it says, and every word of that is kept."""
    async with Core(limits=Limits(recent=1000)) as engine:
        before = await engine.start(source("x"))
        await ended(before)
        await ended(await engine.start(source(more, "y")))

        with pytest.raises(RunNotFound):
            await engine.open(before.id)


async def test_what_cannot_be_weighed_is_remembered_all_the_same():
    """A request that somebody else's code has made may hold anything; nobody has looked at it before."""
    async with Core() as engine:
        asked = RunRecord(id=new_id("run"), ask=ProgramAsk(data=object()))
        run = await engine.submit(asked, source=source("x"), keep=False)
        await ended(run)

        assert run is await engine.open(run.id)


async def test_an_ended_run_holds_on_to_nothing_of_its_source():
    """Its error's traceback would hold every frame, and with it the request and the connection."""

    class Held:
        """Something large that a source uses."""

    async def failing():
        held = Held()
        yield "x"
        raise SourceFailed(str(held.__doc__))  # what is not of ours would be logged, and held by that

    async with Core() as engine:
        run = await engine.start(failing())
        await ended(run)

        assert [] == [each for each in gc.get_objects() if type(each) is Held]
        assert run is await engine.open(run.id)


# The interrupt hook.


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda run: run.stop(), "user"),
        (lambda run: run.stop(by="budget"), "budget"),
        (lambda run: run.leave(), "disconnect"),
    ],
    ids=["stopped", "out of budget", "left"],
)
@requirement("gone.attached")
async def test_the_interrupt_hook_is_called_once_and_with_the_reason(engine, keep, end, reason):
    """It is for sources that need more than a cancel: a remote job is called off by a request of its own."""
    calls = []
    run = await engine.start(forever("a"), keep=keep, lifetime="attached", interrupt=calls.append)
    await spoken(run, "a")
    await asyncio.gather(*(end(run) for _ in range(10)))
    await run.stop()

    assert [reason] == calls


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Limits(idle=0.02), "upstream_stalled"), (Limits(deadline=0.02), "deadline_exceeded")],
    ids=["idle", "deadline"],
)
async def test_the_interrupt_hook_is_called_when_time_is_up(limits, reason):
    """A remote job must not go on because it was silence, and not a person, that ended the run."""
    calls = []
    async with Core(limits=limits) as engine:
        await ended(await engine.start(forever(), interrupt=calls.append))

    assert [reason] == calls


async def test_the_interrupt_hook_is_not_called_where_nothing_was_interrupted(engine, keep):
    """A source that ended by itself has nothing to call off."""

    async def raises():
        raise Boom
        yield

    calls = []
    for make in (source, raises):
        run = await engine.start(make(), keep=keep, interrupt=calls.append)
        await ended(run)
        await run.stop()

    assert [] == calls


async def test_an_interrupt_hook_may_take_its_time_and_may_fail(engine, keep, caplog):
    """It is a courtesy to the source: it delays no stop, and its failure is logged and no more."""
    failed = asyncio.Event()

    async def hook(reason):
        await asyncio.sleep(0.02)
        failed.set()
        raise Boom("in the hook")

    run = await engine.start(forever("a"), keep=keep, interrupt=hook)
    await spoken(run, "a")
    settlement = (await run.stop()).settlement
    async with asyncio.timeout(LONG):
        await failed.wait()
    await engine.close()

    assert Stopped is type(settlement)
    assert "in the hook" in caplog.text


async def test_a_run_that_a_dead_process_left_goes_on_where_someone_knows_how():
    """Its log goes on after what was seen, under the next epoch, and it settles once."""
    store = MemoryStore()
    dead = Core(store)
    run = await dead.start(forever("one "), keep=True)
    await spoken(run, "one ")
    told = []

    async def again(record, log):
        told.append(log.text)
        return source("two")

    await store.release(dead.node_id)
    async with Core(store, again=again) as living:
        taken_up = await living.open(run.id)
        settlement = await taken_up.settled()
        events = [event async for _, event in taken_up.read()]

    assert ["one "] == told
    assert Completed(text="one two", finish_reason="stop", usage=settlement.usage) == settlement
    assert [RunStarted, Text, Notice, Text, Settled] == [type(event) for event in events]
    assert "one " == run.text
    await dead.close()


class LateStore(MemoryStore):
    """Saves at once, and says so when it is told to."""

    def __init__(self):
        super().__init__()
        self.has_saved, self.may_say_so = asyncio.Event(), asyncio.Event()

    async def append(self, node_id, entries):
        saved = await super().append(node_id, entries)
        self.has_saved.set()
        await self.may_say_so.wait()
        return saved


async def test_a_run_that_is_left_to_the_next_process_while_its_events_are_saved_is_let_go():
    """It waits for a person, and has just been told something: what the store answers then is of no use here."""
    store = LateStore()
    engine = Core(store, limits=Limits(grace=0.05))
    run = await engine.start(forever("one "), keep=True)
    await store.has_saved.wait()
    run.waits, left = True, asyncio.Event()
    run.log.watch(left.set)
    closing = asyncio.create_task(engine.close())
    await left.wait()
    store.may_say_so.set()
    await closing

    assert 0 == run.seq
    assert "running" == (await store.get_run(run.id)).status


async def test_an_answer_that_is_no_longer_there_leaves_the_run_interrupted():
    """It did not fail by itself, and nothing of what was seen is lost."""
    store = MemoryStore()
    dead = Core(store)
    run = await dead.start(forever("one "), keep=True)
    await spoken(run, "one ")

    async def lost():
        raise AnswerLost("It is gone.")
        yield

    async def again(record, log):
        return lost()

    await store.release(dead.node_id)
    async with Core(store, again=again) as living:
        settlement = await (await living.open(run.id)).settled()

    assert isinstance(settlement, Interrupted)
    assert "one " == settlement.text
    await dead.close()


@requirement("truth.last-word")
async def test_the_end_of_another_choice_ends_no_answer_that_goes_on(engine, keep):
    """The first choice has spoken again after its `Finish`: whoever stops the run there has stopped it."""
    has_spoken = asyncio.Event()

    async def speaks_on():
        yield "One "
        yield Finish("stop")
        yield "two "
        yield Finish("stop", choice=1)
        has_spoken.set()
        await asyncio.Event().wait()

    run = await engine.start(speaks_on(), keep=keep)
    await has_spoken.wait()
    settled = (await run.stop()).settlement

    assert (Stopped, "One two ") == (type(settled), settled.text)


@requirement("truth.last-word")
async def test_a_further_choice_that_has_ended_leaves_the_answer_ended(engine, keep):
    """Its text belongs to its own choice: both have finished, so a stop after that does not change the outcome."""
    has_spoken = asyncio.Event()

    async def two_choices():
        yield "One"
        yield Finish("stop")
        yield Text("Two", choice=1)
        yield Finish("stop", choice=1)
        has_spoken.set()
        await asyncio.Event().wait()

    run = await engine.start(two_choices(), keep=keep)
    await has_spoken.wait()
    settled = (await run.stop()).settlement

    assert (Completed, "One") == (type(settled), settled.text)
