"""Segments: what arrived together, and a log of them that is packed, cut and forgotten without losing an event."""

import random
import sys

import pytest

from holdfast.errors import ResumeGap
from holdfast.events import Event, Reasoning, Text, ToolCall, Usage
from holdfast.log.log import Log
from holdfast.log.segment import (
    OutputTimes,
    Segment,
    decode_segment,
    encode_segment,
    joined,
    needs_no_escape,
    packed,
    segment_of,
)
from tests.requirements import requirement

MANY = 512


def burst(chance: random.Random) -> Segment:
    """Return what may come in one read: a token, texts, thoughts, or a bit of everything."""
    count = chance.choice([1, 1, 1, 3, 40, MANY, 3 * MANY])
    kind = chance.randrange(5)
    if kind == 0:
        return Segment(Text, [chance.choice(["a", " word", "", "日本", "🎈"]) for _ in range(count)])
    if kind == 1:
        return segment_of([Reasoning(f"hm {n}", choice=chance.choice([0, 0, 0, 1])) for n in range(count)])
    if kind == 2:
        return segment_of([Usage(1, count), Text("x"), ToolCall("call_1", "add", "{}")])
    if kind == 3:
        return segment_of([Text(f"{n}", logprobs={"content": []} if n == 7 else None) for n in range(count)])
    return segment_of([Text(f"{n} ") for n in range(count)])


def read(log: Log, after: int) -> list[Event]:
    events: list[Event] = []
    while some := log.slice(after + len(events)):
        events += some
    return events


@pytest.mark.parametrize("limit", [None, 2000], ids=["all", "trimmed"])
@pytest.mark.parametrize("seed", range(12))
def test_a_log_is_a_list_that_forgets_its_start(seed, limit):
    """A list of all events ever is the simplest thing that is right: the log must never differ from it."""
    chance = random.Random(seed)
    log, every = Log("run_1", limit=limit), []
    for _ in range(60):
        said = burst(chance)
        log.append(said)
        every += said
        if chance.random() < 0.8:
            log.publish(chance.randint(log.seq, log.appended))
        after = chance.randint(log.oldest - 1, log.seq)

        assert len(every) == log.appended
        assert every[log.seq :] == [*log.pending()]
        assert every[after : log.seq] == read(log, after)
        assert limit is None or log.seq - log.oldest < limit

    log.drop_unpublished()
    assert every[log.oldest - 1 : log.seq] == read(log, log.oldest - 1)
    visible = [event for event in every[: log.seq] if isinstance(event, Text) and not event.choice]
    assert "".join(event.text for event in visible) == log.text
    if log.oldest > 1:
        with pytest.raises(ResumeGap):
            log.slice(log.oldest - 2)


@pytest.mark.parametrize("kind", [Text, Reasoning])
def test_what_was_said_long_ago_takes_a_quarter_of_the_memory(kind):
    """A thousand runs with long answers are held at once, and those that have ended stay for a while."""
    before, log = sys.getallocatedblocks(), Log("run_1")
    for number in range(20 * MANY):
        log.append_published(Segment(kind, (f" {number:05}",)), 1.0)
        if number % 100 == 0:
            assert log.size  # a question in between does not delay the packing

    assert sys.getallocatedblocks() - before < 20 * MANY / 4


def test_a_segment_is_the_events_that_it_stands_for():
    """Code that does not know how they are held sees a sequence of events like any other."""
    segment = segment_of([Text("a"), Text("b"), Text("c")])

    assert (Text, ["a", "b", "c"]) == (segment.kind, segment.texts)
    for same in (segment, packed(segment), joined([segment[:1], segment[1:]]), joined([segment])):
        assert [Text("a"), Text("b"), Text("c")] == [*same]
        assert (3, Text("b"), [Text("b"), Text("c")]) == (len(same), same[1], [*same[1:]])
        assert Text("c") in same
    assert [Text("a"), Usage(1, 1)] == [*joined([segment[:1], segment_of([Usage(1, 1)])])]


@pytest.mark.parametrize(
    "said", [Text("a", choice=1), Text("a", logprobs={"content": []}), Text("a", refusal=True), Reasoning("a"), Usage()]
)
def test_what_says_more_than_text_is_not_plain(said):
    """A wire that takes the shorter way writes nothing but texts: the rest would be lost without a word."""
    segment = segment_of([Text("a"), said])

    assert (None, [Text("a"), said]) == (segment.kind, [*segment])


@pytest.mark.parametrize("code", [*range(0x21), 0x22, 0x5C, 0x7F, 0xA0, 0x2028, 0xFEFF, 0x1F388])
def test_only_what_json_must_escape_needs_it(code):
    """RFC 8259: quotation mark, reverse solidus, and the control characters; anything else may stand as it is."""
    assert (code >= 0x20 and code not in (0x22, 0x5C)) == needs_no_escape(f"a{chr(code)}b")


@pytest.mark.parametrize("kind", [Text, Reasoning])
@pytest.mark.parametrize("texts", [[], [""], ["a", "", "日本"], ['"', "\\"], ["a", "\n"]])
def test_a_segment_comes_back_from_a_store_as_the_events_that_it_stands_for(kind, texts):
    """Plain text is stored in a shorter form, which a reader does not see."""
    segment = Segment(kind, texts)

    assert [kind(text) for text in texts] == [*decode_segment(encode_segment(segment))]
    assert [*segment] == [*decode_segment(encode_segment(packed(segment)))]


@requirement("sub.thought")
def test_a_thought_lasts_from_each_piece_of_reasoning_to_what_comes_next():
    """What an agent does between two thoughts is not thinking."""
    times, thought, said = OutputTimes(), segment_of([Reasoning("Hm")]), segment_of([Text("So")])
    times.think(segment_of([ToolCall("call_1", "add", "{}")]), 1.0)
    assert times.thought is None
    times.think(thought, 10.0)
    times.think(thought, 12.0)
    times.think(said, 15.0)
    times.think(segment_of([ToolCall("call_1", "add", "{}"), Reasoning("Hm")]), 20.0)
    times.think(said, 21.5)
    times.think(said, 30.0)
    assert (6.5, None) == (times.thought, times.thinking_at)
