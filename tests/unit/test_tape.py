"""The tape: whatever is packed, cut and forgotten, what is left is what was said, where it was said."""

import random
import sys

import pytest

from holdfast.events import (
    Event,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    Words,
    decode_events,
    encode_events,
    needs_no_escape,
    plain_texts,
)
from holdfast.tape import BLOCK, Tape


def burst(chance: random.Random) -> list[Event] | Words:
    """Return what may come in one read: a token, words that lie together, thoughts, or a bit of everything."""
    count = chance.choice([1, 1, 1, 3, 40, BLOCK, 3 * BLOCK])
    kind = chance.randrange(5)
    if kind == 0:
        return Words([chance.choice(["a", " word", "", "日本", "🎈"]) for _ in range(count)])
    if kind == 1:
        return [Reasoning(f"hm {n}", choice=chance.choice([0, 0, 0, 1])) for n in range(count)]
    if kind == 2:
        return [Usage(1, count), Text("x"), ToolCall("call_1", "add", "{}")]
    if kind == 3:
        return [Text(f"{n}", logprobs={"content": []} if n == 7 else None) for n in range(count)]
    return [Text(f"{n} ") for n in range(count)]


@pytest.mark.parametrize("seed", range(12))
def test_a_tape_is_a_list_that_forgets_its_start(seed):
    """A list of all events ever is the simplest thing that is right: the tape must never differ from it."""
    chance = random.Random(seed)
    tape, every, start = Tape(), [], 0
    for _ in range(60):
        said = burst(chance)
        tape.extend(said)
        every += said
        if chance.random() < 0.5:
            tape.pack(chance.randint(tape.start, tape.end))
        if chance.random() < 0.1:
            stop = chance.randint(tape.start, tape.end)
            tape.cut(stop)
            del every[stop:]
        if chance.random() < 0.2:
            count = chance.randint(0, tape.end - tape.start)
            tape.forget(count)
            assert start <= tape.start <= start + count
            start = tape.start
        first = chance.randint(tape.start, tape.end)
        last = chance.randint(first, tape.end)

        assert len(every) == tape.end
        assert every[first:last] == tape.read(first, last)
        some = [*tape.some(first, last)]
        assert every[first : first + len(some)] == some
        assert bool(some) == (first < last), "a reader that gets nothing would wait for ever"

    assert every[tape.start :] == tape.read(tape.start, tape.end) == tape.read(tape.start, tape.end + 1)


def test_what_was_said_long_ago_takes_a_quarter_of_the_memory():
    """A thousand runs with long answers are held at once, and those that have ended stay for a while."""
    before, tape = sys.getallocatedblocks(), Tape()
    for number in range(20 * BLOCK):
        tape.extend([Text(f" {number:05}")])
        tape.pack(number)

    assert sys.getallocatedblocks() - before < 20 * BLOCK / 4


def test_words_are_the_events_that_they_stand_for():
    """Whoever does not know of them sees a sequence of events like any other."""
    words = Words(["a", "b", "c"])

    assert [Text("a"), Text("b"), Text("c")] == [*words]
    assert (3, Text("b"), [Text("b"), Text("c")]) == (len(words), words[1], [*words[1:]])
    assert Text("c") in words
    assert (["a", "b", "c"], ["a"]) == (plain_texts(words), plain_texts([Text("a")]))


@pytest.mark.parametrize(
    "said", [Text("a", choice=1), Text("a", logprobs={"content": []}), Reasoning("a"), Usage(1, 1)]
)
def test_what_says_more_than_text_is_not_plain(said):
    """A wire that takes the shorter way writes nothing but texts: the rest would be lost without a word."""
    assert plain_texts([Text("a"), said]) is None


@pytest.mark.parametrize("code", [*range(0x21), 0x22, 0x5C, 0x7F, 0xA0, 0x2028, 0xFEFF, 0x1F388])
def test_only_what_json_must_escape_needs_it(code):
    """RFC 8259: quotation mark, reverse solidus, and the control characters; anything else may stand as it is."""
    assert (code >= 0x20 and code not in (0x22, 0x5C)) == needs_no_escape(f"a{chr(code)}b")


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "日本"], ['"', "\\"], ["a", "\n"]])
def test_words_come_back_from_a_store_as_the_events_that_they_stand_for(texts):
    """They are kept by a shorter way; whoever reads them must not see by which."""
    events = [Text(text) for text in texts]

    assert events == [*decode_events(encode_events(Words(texts)))] == [*decode_events(encode_events(events))]
