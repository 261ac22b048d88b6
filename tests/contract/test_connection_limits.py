"""What a connection may take before its key is known, to the byte: without a socket, so that each read is ours."""

import asyncio
import logging

import pytest

from holdfast.server.kit.http.connections import ConnectionLimits, OpenConnections, TooManyConnections, network_of
from holdfast.server.kit.http.http_protocol import HEAD_LIMIT, MOST_AHEAD, PACE
from tests.requirements import requirement
from tests.support.framing import Connected, cut
from tests.support.waiting import LONG

READ = 256 * 1024
"""The most that the event loop reads at once."""
CHUNKED = b"POST /first HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


def head(size: int, filler: bytes = b"x") -> bytes:
    """A request whose line and headers have exactly that many bytes."""
    start, end = b"GET /first HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ", b"\r\n\r\n"
    return start + filler * (size - len(start) - len(end)) + end


def status(connected: Connected) -> int:
    return int(connected.wire.written.split()[1])


@requirement("safe.head-limit")
@pytest.mark.parametrize("size", [HEAD_LIMIT, HEAD_LIMIT - 1, 1000])
@pytest.mark.parametrize("read", [READ, 4096, 1])
async def test_a_head_of_the_limit_is_taken_however_it_arrives(size, read):
    """A limit that refuses too early is a bug as well; a body and a second request behind it count for nothing."""
    stream = head(size) + CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (READ, READ * b"b") + head(size)
    connected = Connected()

    await connected.send(cut(stream, range(0, len(stream), read) if read > 1 else range(size)))
    await connected.leave()

    assert [b"", READ * b"b", b""] == [request.body for request in connected.requests]


@requirement("safe.head-limit")
@pytest.mark.parametrize("read", [READ, 4096, 1])
@pytest.mark.parametrize("before", [b"", head(100), CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"], ids=["none", "GET", "POST"])
async def test_a_head_above_the_limit_is_431_and_the_connection_ends(read, before):
    """On a fresh connection and on a kept one, in one read and byte by byte."""
    stream = head(HEAD_LIMIT + 100)
    connected = Connected()
    await connected.send([before] if before else [])
    connected.wire.written = b""

    await connected.send(cut(stream, range(0, len(stream), read)))
    await connected.send([head(100)])
    await connected.leave()

    assert 431 == status(connected)
    assert b"head_too_large" in connected.wire.written
    assert b"connection: close" in connected.wire.written
    assert bool(before) == len(connected.requests)


@requirement("safe.head-limit")
@pytest.mark.parametrize("piece", [b"x", b"X-A: b\r\n"], ids=["one header", "many headers"])
async def test_a_head_without_an_end_is_refused_with_the_read_that_exceeds_the_limit(piece):
    """What is read later is thrown away unseen: the cost of a head does not grow with what a client sends."""
    connected = Connected()
    endless = (READ // len(piece)) * piece
    await connected.send([b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (b"X-Long: " if piece == b"x" else b""), endless])
    first = connected.wire.written

    for _ in range(1000):
        connected.protocol.data_received(endless)

    assert 431 == status(connected)
    assert first == connected.wire.written
    await connected.leave()


@requirement("safe.head-limit")
@pytest.mark.parametrize("line", [b"X-T: 1\r\n", b"X-T: " + 1000 * b"x" + b"\r\n"], ids=["short", "long"])
async def test_trailers_above_the_limit_are_431(line):
    """They are a second head, behind the body."""
    connected = Connected()
    await connected.send([CHUNKED + b"3\r\nabc\r\n0\r\n"])

    await connected.send(2 * HEAD_LIMIT // len(line) * [line])
    await connected.leave()

    assert (431, []) == (status(connected), connected.requests)


@requirement("safe.head-limit")
async def test_the_size_of_a_chunk_cannot_grow_without_an_end():
    """An extension of a chunk is no part of the body, and nobody's limit otherwise."""
    connected = Connected()
    await connected.send([CHUNKED + b"3"])

    await connected.send(40 * [b";a=" + 4096 * b"x"])
    await connected.leave()

    assert (431, []) == (status(connected), connected.requests)


@requirement("safe.head-limit", "safe.one-request")
async def test_what_cannot_be_read_waits_for_the_answer_before_it():
    """An error in the middle of another answer would be taken for a part of that."""
    connected = Connected()

    await connected.send([head(100) + b"nonsense\r\n\r\n" + head(100)])
    await connected.leave()

    assert 1 == len(connected.requests)
    assert connected.wire.written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert connected.wire.written.endswith(b"connection: close\r\n\r\nanswer 1")
    assert connected.wire.is_closed


@requirement("safe.head-limit")
async def test_requests_that_are_sent_ahead_have_a_limit():
    """Thousands fit into one read, and each of them takes memory until its turn comes."""
    connected = Connected()

    await connected.send([10 * MOST_AHEAD * head(100)])
    await connected.leave()

    assert MOST_AHEAD + 1 == len(connected.requests) == connected.wire.written.count(b"HTTP/1.1 200 ")
    assert connected.wire.written.count(b"connection: close\r\n") == 1
    assert connected.wire.is_closed


# Time.


POST = b"POST /first HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"


@requirement("safe.head-time")
@pytest.mark.parametrize("before", [b"", head(100)], ids=["first", "second"])
@pytest.mark.parametrize("start", [b"G", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b"], ids=["a byte", "half a head"])
async def test_a_head_that_is_overdue_is_408(before, start):
    """On a fresh connection and on a kept one."""
    connected = Connected()
    await connected.send([before] if before else [])
    connected.wire.written = b""
    await connected.send([start])

    connected.protocol.overdue()
    await connected.leave()

    assert 408 == status(connected)
    assert b"request_timeout" in connected.wire.written


@requirement("safe.head-time")
async def test_a_connection_that_says_nothing_is_closed_without_a_word():
    """Browsers open connections ahead: an answer to no question would be taken for the answer to the first one."""
    connected = Connected()

    connected.protocol.overdue()
    await connected.leave()

    assert (b"", True) == (connected.wire.written, connected.wire.is_closed)


@requirement("safe.head-time")
async def test_time_does_not_run_while_the_answer_before_is_being_sent():
    """A client may send the start of its next request whenever it likes; what it waits for is ours to send."""
    answering = asyncio.Event()
    connected = Connected(before_answering=answering.wait)
    await connected.send([head(100) + b"GET /second HTTP/1.1\r\n"], wait=False)
    connected.protocol.overdue()
    before = connected.wire.written

    answering.set()
    await connected.send([b"Host: 127.0.0.1\r\n\r\n"])
    await connected.leave()

    assert b"" == before
    assert [b"/first", b"/second"] == [request.target for request in connected.requests]


@requirement("safe.head-time")
@pytest.mark.parametrize("stray", [b"\r\n", b"\r"])
async def test_empty_lines_between_requests_keep_no_connection_open(stray):
    """They are no start of a request: the time of a kept connection goes on."""
    connected = Connected()
    await connected.send([head(100)])
    timer = connected.protocol.timeout_keep_alive_task

    await connected.send([stray])

    assert timer is not None
    assert timer is connected.protocol.timeout_keep_alive_task
    assert not timer.cancelled()
    await connected.leave()


@requirement("safe.body-pace")
@pytest.mark.parametrize(("each", "expected"), [(PACE, 200), (PACE - 1, 408), (0, 408)])
async def test_a_body_has_to_keep_its_pace(each, expected):
    """One byte now and then keeps no connection: some must arrive in each interval."""
    connected = Connected()
    await connected.send([POST])

    for _ in range(20):
        await connected.send([each * b"b"])
        connected.protocol.overdue()
    await connected.send([(1_000_000 - 20 * each) * b"b"])
    await connected.leave()

    assert expected == status(connected)
    assert (1 if expected == 200 else 0) == len(connected.requests)


@requirement("safe.body-pace")
async def test_time_does_not_run_while_it_is_the_server_that_does_not_read():
    """The kernel holds what the client has sent: it cannot send more, however willing."""
    connected = Connected()
    await connected.send([POST])
    connected.protocol.flow.pause_reading()

    connected.protocol.overdue()
    connected.protocol.flow.resume_reading()
    await connected.send([1_000_000 * b"b"])
    await connected.leave()

    assert 200 == status(connected)


@requirement("safe.body-pace")
async def test_the_rest_of_a_body_whose_answer_was_given_has_one_interval():
    """A request without a key is answered before its body has come: nobody waits for that for long."""
    connected = Connected(reads_bodies=False)
    await connected.send([POST])
    answered = connected.wire.written

    await connected.send([10 * PACE * b"b"])
    connected.protocol.overdue()

    assert 200 == status(connected)
    assert (answered, True) == (connected.wire.written, connected.wire.is_closed)
    await connected.leave()


@requirement("safe.one-request")
async def test_who_asks_before_it_sends_its_body_and_is_answered_at_once_is_let_go():
    """It may send the body, or leave it out: what comes next could be either, and must be taken for neither."""
    connected = Connected(reads_bodies=False)

    await connected.send([POST.replace(b"Host", b"Expect: 100-continue\r\nHost"), head(100)])
    await connected.leave()

    assert 1 == connected.wire.written.count(b"HTTP/1.1")
    assert connected.wire.is_closed


@requirement("safe.head-time", "safe.body-pace")
@pytest.mark.parametrize("start", [b"", b"GET / HT", POST, POST + b"b"], ids=["nothing", "head", "body", "more"])
async def test_the_clock_finds_who_is_overdue(start):
    """Whatever the connection waits for, it ends by itself; then nothing is left of it."""
    connected = Connected(ConnectionLimits(head_timeout=0.05, body_timeout=0.05))
    await connected.send([start] if start else [])

    await asyncio.wait_for(connected.wire.closed_or_ended.wait(), LONG)

    assert start == b"" or 408 == status(connected)
    await connected.leave()


# How many.


class Somebody:
    due = float("inf")

    def overdue(self) -> None:
        raise AssertionError("never due")


@requirement("safe.connection-limit")
async def test_one_address_cannot_take_the_room_of_all(caplog):
    """Beyond its share an address is refused, and the others are not. One log line says so, not one for each."""
    connections = OpenConnections(ConnectionLimits(connections=6, for_each_address=2))
    caplog.set_level(logging.WARNING, "holdfast")
    here = [Somebody(), Somebody()]
    for each in here:
        connections.add(each, "10.0.0.1")
    for _ in range(50):
        with pytest.raises(TooManyConnections, match=r"10\.0\.0\.1 has 2 connections"):
            connections.add(Somebody(), "10.0.0.1")
    others = [Somebody() for _ in range(4)]
    for each in others:
        connections.add(each, "127.0.0.1")
    with pytest.raises(TooManyConnections, match="max_connections"):
        connections.add(Somebody(), "10.0.0.2")

    connections.remove(here[0])
    connections.add(here[0], "10.0.0.1")

    assert 1 == len(caplog.records)
    for each in [*here, *others]:
        connections.remove(each)


@requirement("safe.connection-limit")
@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", None),
        ("127.8.9.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
    ],
)
def test_what_counts_as_one_address(address, network):
    """Who has an IPv6 address has its network. Loopback is where a reverse proxy comes from, for all of its clients."""
    assert network == network_of(address)


@requirement("safe.connection-limit")
async def test_a_connection_beyond_the_limit_is_told_so():
    """503 says that it may try again; a reset would say nothing."""
    connected = Connected(ConnectionLimits(connections=1, for_each_address=1), address="10.0.0.1")
    another = connected.another()

    assert 503 == status(another)
    assert b"retry-after: 1\r\n" in another.wire.written
    assert b"too_many_connections" in another.wire.written
    assert another.wire.is_closed
    await another.leave()
    await connected.leave()
