"""HTTP/1.1 as a client, byte by byte: what an upstream may send, and what becomes of its connection."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast.providers import connections
from holdfast.providers.connections import Broken, Connections, NotHTTP, NotThere, head_of

pytestmark = pytest.mark.asyncio

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Origin:
    """A server that answers what a test says, and counts who came."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.connections = 0
        self.requests: list[bytes] = []
        self.ended = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._handler(reader, writer)
            await reader.read()  # to the end that the client makes
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended.set()
            writer.close()

    async def asked(self, reader: asyncio.StreamReader) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))


@asynccontextmanager
async def origin(*answers: bytes, then: Handler | None = None) -> AsyncIterator[tuple[Origin, Connections, str]]:
    """Answers one request after the other with these bytes, on any number of connections."""
    left = list(answers)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            await server.asked(reader)
            writer.write(left.pop(0))
            await writer.drain()
        if then is not None:
            await then(reader, writer)

    server = Origin(handler)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    client = Connections(url)
    try:
        yield server, client, url
    finally:
        client.close()
        listening.close()


def get(url: str) -> bytes:
    return head_of("GET", f"{url}/v1/models", {"Accept": "*/*"})


async def body(client: Connections, url: str) -> bytes:
    return await (await client.send(get(url))).read_upto(1 << 20)


async def test_a_connection_is_used_again_after_a_whole_answer():
    """A handshake for each answer would be felt in the first token."""
    async with origin(WHOLE, WHOLE, WHOLE) as (server, client, url):
        assert [b"hi"] * 3 == [await body(client, url) for _ in range(3)]

    assert 1 == server.connections


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        WHOLE + b"HTTP/1.1 200 OK\r\n",
        WHOLE + b"what?",
    ],
    ids=["said so", "http/1.0", "another answer", "garbage"],
)
async def test_a_connection_is_not_used_again_where_that_is_not_safe(answer):
    """What follows an answer unasked would be taken for the next one's."""
    async with origin(answer) as (server, client, url):
        assert b"hi" == (await body(client, url))[:2]
        await asyncio.wait_for(server.ended.wait(), 10)

        assert not client._idle


async def test_a_connection_that_was_given_up_meanwhile_is_no_failure():
    """The upstream closed it while it was idle, or while the request was on its way: nothing was answered."""
    async with origin(WHOLE, then=_hang_up) as (server, client, url):
        assert b"hi" == await body(client, url)
        reply = asyncio.create_task(client.send(get(url)))
        with pytest.raises(Broken):  # the new connection is hung up on as well, which is a failure
            await asyncio.wait_for(reply, 10)

    assert 2 == server.connections


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


async def test_an_answer_may_end_with_its_connection():
    """HTTP/1.0, and servers that know no better."""

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with origin(b"HTTP/1.1 200 OK\r\n\r\nhi", then=end) as (_, client, url):
        reply = await client.send(get(url))

        assert b"hi" == await reply.read_upto(10)
        assert reply.is_whole


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\n",
    ],
    ids=["too short", "no last chunk", "broken framing"],
)
async def test_what_had_arrived_before_the_break_is_read_first(answer):
    """No word may be lost because the next one was."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with origin(answer, then=cut) as (server, client, url):
        reply = await client.send(get(url))
        await asyncio.wait_for(server.ended.wait(), 10)

        assert b"hi" == await reply.read()
        with pytest.raises(Broken):
            await reply.read()
        assert not reply.is_whole


async def test_answers_that_only_announce_another_are_passed_over():
    """100 Continue and 103 Early Hints may come at any time."""
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with origin(early + WHOLE, WHOLE) as (server, client, url):
        reply = await client.send(get(url))

        assert (200, b"hi") == (reply.status, await reply.read_upto(10))
        assert "link" not in reply.headers
        assert b"hi" == await body(client, url)
    assert 1 == server.connections


@pytest.mark.parametrize(
    "answer", [b"220 mail.example ESMTP\r\n", b"HTTP/1.1 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60_000]
)
async def test_what_is_not_http_is_told_so(answer):
    """A port where something else listens, and a head without an end."""
    async with origin(answer) as (server, client, url):
        with pytest.raises(NotHTTP):
            await asyncio.wait_for(client.send(get(url)), 10)
        await asyncio.wait_for(server.ended.wait(), 10)


async def test_a_reader_that_is_slow_holds_up_the_sender_and_misses_nothing():
    """The rest waits at its sender, not in our memory."""
    size = 8 * 1024 * 1024
    written = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        while written < size:
            writer.write(b"x" * 65536)
            await writer.drain()
            written += 65536

    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    async with origin(head, then=pour) as (_, client, url):
        reply = await client.send(get(url))
        await until(lambda: is_paused(reply))
        held = reply._size
        read = 0
        while data := await reply.read():
            read += len(data)

    assert size == read
    assert held < 2 * connections._BUFFERED


def is_paused(reply: connections.Reply) -> bool:
    return reply._connection is not None and reply._connection._is_paused


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the kernel brings it about
        await asyncio.sleep(0)


async def test_closing_an_answer_that_is_not_whole_closes_its_connection_at_once():
    """The upstream stops working for nobody."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    async with origin(head) as (server, client, url):
        (await client.send(get(url))).close()
        await asyncio.wait_for(server.ended.wait(), 10)

        assert not client._idle


async def test_giving_up_before_the_head_closes_the_connection():
    """As a run that is stopped before its first word does."""
    async with origin(b"") as (server, client, url):
        asking = asyncio.create_task(client.send(get(url)))
        await until(lambda: server.requests)
        asking.cancel()
        await asyncio.wait_for(server.ended.wait(), 10)

    assert asking.cancelled()


async def test_idle_connections_are_closed_after_a_while(monkeypatch):
    """Some upstreams count them."""
    monkeypatch.setattr(connections, "IDLE", 0.05)
    async with origin(WHOLE) as (server, client, url):
        assert b"hi" == await body(client, url)
        await asyncio.wait_for(server.ended.wait(), 10)

        assert not client._idle


async def test_who_is_not_there_is_told_with_its_reason():
    """Refused, unknown and silent are three different things to do something about."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        refused = Connections(f"http://127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(NotThere) as why:
            await refused.send(b"GET / HTTP/1.1\r\n\r\n")
        assert isinstance(why.value.__cause__, ConnectionRefusedError)
    with pytest.raises(NotThere) as why:
        await Connections("http://name.invalid").send(b"GET / HTTP/1.1\r\n\r\n")
    assert isinstance(why.value.__cause__, socket.gaierror)


async def test_a_silent_handshake_ends_after_the_time_for_connecting():
    """A port that accepts and says nothing is where TLS would wait for ever."""
    async with origin(b"", then=None) as (_, _, url):
        silent = Connections(url.replace("http:", "https:"), connect_timeout=0.1)
        with pytest.raises(NotThere) as why:
            await silent.send(b"GET / HTTP/1.1\r\n\r\n")

    assert isinstance(why.value.__cause__, TimeoutError)


async def test_tls_is_not_spoken_with_a_stranger():
    """A server that answers in the clear is no TLS server, and neither is its error text shown."""

    async def blurt(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with origin(then=blurt) as (_, _, url):
        with pytest.raises(NotThere) as why:
            await Connections(url.replace("http:", "https:")).send(b"GET / HTTP/1.1\r\n\r\n")

    assert isinstance(why.value.__cause__, ssl.SSLError)


async def test_a_reset_in_the_middle_is_a_break():
    """RST instead of FIN: nothing was whole, whatever the framing says."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async with origin(b"HTTP/1.1 200 OK\r\n\r\nhi", then=reset) as (_, client, url):
        with pytest.raises(Broken):
            await body(client, url)


@pytest.mark.parametrize(
    ("url", "first", "host"),
    [
        ("http://h/v1", b"GET /v1 HTTP/1.1", b"h"),
        ("http://h:81", b"GET / HTTP/1.1", b"h:81"),
        ("http://[::1]:8080/v1?a=b&c=%20", b"GET /v1?a=b&c=%20 HTTP/1.1", b"[::1]:8080"),
        ("http://bücher.example/a b/ü", b"GET /a%20b/%C3%BC HTTP/1.1", b"xn--bcher-kva.example"),
    ],
)
async def test_the_first_lines_of_a_request(url, first, host):
    """Whatever stands in an address, it is one line of ASCII."""
    lines = head_of("GET", url, {}).split(b"\r\n")

    assert [first, b"Host: " + host, b"", b""] == lines


async def test_a_configured_host_and_the_length_of_a_body():
    """A gateway may want a name of its own; a length is always ours to say."""
    lines = head_of("POST", "http://h/", {"host": "other", "Content-Length": "9"}, 3).split(b"\r\n")

    assert [b"POST / HTTP/1.1", b"host: other", b"Content-Length: 3", b"", b""] == lines


async def test_a_loop_that_only_reads_gets_to_its_other_work(monkeypatch):
    """uvloop reads on while a thousand sockets have something. Those read last then wait, so that a stop does not."""
    monkeypatch.setattr(connections, "_READS", 3)
    taken: list[bytes] = []

    def take(data: bytes) -> bool:
        taken.append(data)
        return True

    async with origin(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") as (_, client, url):
        reply = await client.send(get(url))
        pouring = asyncio.create_task(reply.pour(take))
        await asyncio.sleep(0)
        connection = reply._connection
        assert connection is not None
        paused = []
        for _ in range(12):  # reads of a loop that does not turn
            connection.data_received(b"1\r\nx\r\n")
            paused.append(is_paused(reply))
        await until(lambda: not is_paused(reply))
        pouring.cancel()
        reply.close()

    assert ([False] * 6, True) == (paused[:6], paused[-1])
    assert [b"x"] * 12 == taken
