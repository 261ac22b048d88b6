"""The decoder of an upstream's server-sent events."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.upstreams.sse import EventTooLarge, ServerSentEvent, SSEDecoder
from tests.requirements import requirement

FRAGMENTS = [
    *[b"data: ", b"data:", b"data", b"event: ", b"event:", b"id: 1", b"retry: 5", b": ping", b":", b" "],
    *[b"\n", b"\r", b"\r\n", b"\n\n", b'data: {"a":1}\n\n', b"x", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\x00"],
]
bodies = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb", b"\xef\xbb\xbf\xef\xbb\xbf"]),
    st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(b"".join),
).map(b"".join)
cuts = st.lists(st.integers(0, 150), max_size=30)


def cut(body: bytes, at: Iterable[int]) -> list[bytes]:
    places = [0, *sorted(place for place in at if place < len(body)), len(body)]
    return [body[begin:end] for begin, end in pairwise(places)]


def drip(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


def decode(reads: Iterable[bytes]) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    return [event for read in reads for event in decoder.feed(read)] + decoder.finish()


def decode_until_too_large(reads: Iterable[bytes], max_event: int) -> tuple[list[ServerSentEvent], bool]:
    decoder = SSEDecoder(max_event)
    events: list[ServerSentEvent] = []
    try:
        for read in reads:
            events += decoder.feed(read)
        events += decoder.finish()
    except EventTooLarge:
        return events, True
    return events, False


def decode_whole(body: bytes) -> list[ServerSentEvent]:
    """The WHATWG rules, line by line, for a body that is all there."""
    *lines, unfinished = re.split(b"\r\n|\r|\n", body.removeprefix(b"\xef\xbb\xbf"))
    events: list[ServerSentEvent] = []
    block: list[bytes] = []
    for line in lines:
        if line:
            block.append(line)
        else:
            events += decode_lines(block)
            block = []
    return events + [event for event in decode_lines([*block, unfinished]) if event[1]]


def decode_lines(lines: list[bytes]) -> list[ServerSentEvent]:
    fields = [[*line.split(b":", 1), b""][:2] for line in lines]
    values = [(name, value[1:] if value[:1] == b" " else value) for name, value in fields]
    data = [value for name, value in values if name == b"data"]
    kinds = [value for name, value in values if name == b"event"]
    return [(kinds[-1] if kinds else b"", b"\n".join(data))] if data else []


@requirement("start.text-exact")
@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"data:a\n\ndata:  b\n\n", [(b"", b"a"), (b"", b" b")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"data\n\ndata\ndata\n\ndata:", [(b"", b""), (b"", b"\n")]),
        (b"event: e\ndata: a\n\ndata: b\n\n", [(b"e", b"a"), (b"", b"b")]),
        (b"data: a\nevent: e\n\n", [(b"e", b"a")]),
        (b"event: e\n\ndata: a\n\n", [(b"", b"a")]),
        (b": ping\n\ndata: a\n\n:\n\n", [(b"", b"a")]),
        (b": ping\ndata: a\n: ping\n\n", [(b"", b"a")]),
        (b"id: 7\nretry: 10\nfoo: bar\nfoo\ndata: a\n\n", [(b"", b"a")]),
        (b" data: a\nDATA: b\ndatax: c\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [(b"", b"a")]),
        (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"data: a: b\n\n", [(b"", b"a: b")]),
        (b"", []),
        (b"\xef\xbb", []),
    ],
)
@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
def test_events_are_decoded_by_the_whatwg_rules(body: bytes, events: list[ServerSentEvent], line_end: bytes) -> None:
    """Upstreams send all of it: comments as keep-alives, no space after the colon, CRLF cut between two reads."""
    body = body.replace(b"\n", line_end)

    assert events == decode([body])
    assert events == decode(drip(body))


@requirement("start.text-exact")
@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_only_cr_and_lf_end_a_line(character: str) -> None:
    """These eight are line ends to `str.splitlines` and may stand in a JSON string."""
    data = f'{{"text":"a{character}b"}}'.encode()

    assert [(b"", data)] == decode([b"data: " + data + b"\n\n"])
    assert [(b"", data)] == decode(drip(b"event:\rdata: " + data + b"\n\n"))


def test_a_blank_line_of_carriage_returns_completes_an_event_at_once() -> None:
    """Waiting for the LF that may follow a CR would delay each event until the next one."""
    decoder = SSEDecoder()

    assert [(b"", b"a")] == decoder.feed(b"data: a\r\n\r")
    assert [] == decoder.feed(b"")
    assert [] == decoder.feed(b"\ndata: b\r")
    assert [] == decoder.feed(b"")
    assert [(b"", b"b\nc")] == decoder.feed(b"\ndata: c\r\n\r\n")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n"])
def test_a_last_event_without_its_blank_line_is_given_at_the_end(end: bytes) -> None:
    """The standard drops it, but upstreams do end after `data: [DONE]`, and without it the answer would look cut."""
    decoder = SSEDecoder()

    assert [(b"", b"a")] == decoder.feed(b"data: a\n\ndata: [DONE]" + end)
    assert [(b"", b"[DONE]")] == decoder.finish()
    assert [] == decoder.finish()


@requirement("safe.redos")
@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_an_event_that_is_too_large_is_refused_after_those_before_it(size: int) -> None:
    """An endless line must not fill the memory, and the words that came before it must not be lost with it."""
    body = b"data: a\n\n: " + b"x" * 99 + b"\ndata: b\n\ndata: c\n\n"
    reads = [body[at : at + size] for at in range(0, len(body), size)]

    assert ([(b"", b"a")], True) == decode_until_too_large(reads, max_event=50)
    assert ([(b"", b"a"), (b"", b"b"), (b"", b"c")], False) == decode_until_too_large(reads, max_event=200)


def test_an_event_as_large_as_the_limit_is_accepted() -> None:
    """The limit counts the bytes between two blank lines, without the line end of the last."""
    body = b"data: 1234\r\n\r\n"

    assert ([(b"", b"1234")], False) == decode_until_too_large(drip(body), max_event=10)
    assert ([], True) == decode_until_too_large(drip(body), max_event=9)


def test_a_decoder_that_has_refused_goes_on_refusing() -> None:
    """What follows an event of unknown length cannot be trusted to begin at a line."""
    decoder = SSEDecoder(max_event=10)
    with pytest.raises(EventTooLarge, match="larger than 10 bytes"):
        decoder.feed(b"x" * 11)

    with pytest.raises(EventTooLarge):
        decoder.feed(b"\n\ndata: a\n\n")
    with pytest.raises(EventTooLarge):
        decoder.finish()


@requirement("start.text-exact")
@given(bodies, cuts)
def test_every_way_to_cut_a_body_gives_what_the_whole_gives(body: bytes, at: list[int]) -> None:
    """Where the network cuts its reads is chance, and chance must not change an event."""
    assert decode_whole(body) == decode(cut(body, at))


@given(bodies, cuts, st.integers(1, 40))
def test_every_way_to_cut_a_body_meets_the_same_limit(body: bytes, at: list[int], max_event: int) -> None:
    """A limit that depends on the reads would refuse today what it took yesterday."""
    assert decode_until_too_large([body], max_event) == decode_until_too_large(cut(body, at), max_event)


@given(st.binary(), cuts)
def test_any_bytes_are_decoded(body: bytes, at: list[int]) -> None:
    """An upstream may send anything; to the decoder nothing is an error but size."""
    assert decode_whole(body) == decode(cut(body, at))


HOSTILE = {
    "one long line": b"x",
    "blank lines": b"\n",
    "carriage returns": b"\r",
    "CRLF": b"\r\n",
    "empty data lines": b"data\n",
    "comments": b":\n",
    "small events": b"data: a\n\n",
    "events with a type": b"event: e\ndata: a\n\n",
}


@requirement("safe.redos")
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("size", [1, 1000, 10_000_000], ids=["one byte each", "small reads", "one read"])
def test_eight_times_the_bytes_take_about_eight_times_as_long(unit: bytes, size: int) -> None:
    """A decoder that scans its whole buffer at each read needs hours for one large event that drips in."""
    amount = 2_000 if size == 1 else 40_000

    large = seconds_to_decode(unit * (8 * amount // len(unit)), size)
    assert large < 4 * 8 * seconds_to_decode(unit * (amount // len(unit)), size) + 0.001


@requirement("safe.redos")
def test_a_byte_costs_the_same_however_much_of_its_event_came_before() -> None:
    """An event of megabytes may drip in: to copy or scan what is there at each read would take minutes."""
    assert seconds_to_drip_after(4_000_000) < 32 * seconds_to_drip_after(10_000) + 0.005


def seconds_to_drip_after(size: int) -> float:
    def once() -> float:
        decoder = SSEDecoder()
        decoder.feed(b"data: " + b"x" * size)
        begin = time.process_time()
        for _ in range(500):
            decoder.feed(b"x")
        return time.process_time() - begin

    return min(once() for _ in range(3))


def seconds_to_decode(body: bytes, size: int) -> float:
    reads = [body[at : at + size] for at in range(0, len(body), size)]

    def once() -> float:
        begin = time.process_time()
        decode(reads)
        return time.process_time() - begin

    return min(once() for _ in range(3))
