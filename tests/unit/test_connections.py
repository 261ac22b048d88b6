"""HTTP/1.1 as a client, byte by byte: what an upstream may send, and what becomes of its connection."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.http_client import connection as one_connection
from holdfast.http_client.addresses import Address
from holdfast.http_client.connection import IDLE
from holdfast.http_client.errors import Broken, NotHTTP, NotThere
from holdfast.http_client.pool import Connections
from holdfast.http_client.request import head_of
from tests.requirements import requirement
from tests.support.waiting import LONG, SOON

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
async def origin(
    *answers: bytes, then: Handler | None = None, keep: float = IDLE
) -> AsyncIterator[tuple[Origin, Connections, str]]:
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
    client = Connections(url, keep=keep)
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
        await asyncio.wait_for(server.ended.wait(), LONG)

        assert not client._idle


async def test_a_connection_that_was_given_up_meanwhile_is_no_failure(monkeypatch):
    """The upstream closed it while the request was on its way, so nobody has read that."""
    monkeypatch.setattr(one_connection, "UNREAD", 60.0)  # a busy machine may notice the close late
    async with origin(WHOLE, then=_hang_up) as (server, client, url):
        assert b"hi" == await body(client, url)
        reply = asyncio.create_task(client.send(get(url)))
        with pytest.raises(Broken):  # the new connection is hung up on as well, which is a failure
            await asyncio.wait_for(reply, LONG)

    assert 2 == server.connections


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


async def test_a_request_that_is_safe_to_repeat_is_repeated_however_late_its_connection_is_lost(monkeypatch):
    """A list of models that is read twice costs nobody anything."""
    monkeypatch.setattr(one_connection, "UNREAD", 0.0)
    async with origin(WHOLE, then=_hang_up) as (server, client, url):
        assert b"hi" == await body(client, url)
        with pytest.raises(Broken):  # the new connection is hung up on as well, which is a failure
            await asyncio.wait_for(client.send(get(url), is_repeatable=True), LONG)

    assert 2 == server.connections


@requirement("truth.asked-once")
async def test_an_end_that_the_loop_has_not_read_yet_is_seen_before_the_request_is_written(monkeypatch):
    """A loop that was busy learns late that an idle connection was closed. A request must not be risked on it."""
    monkeypatch.setattr(one_connection, "UNREAD", 0.0)  # what is written to a closed connection is a failure
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        client = Connections(url)
        first, answer = await asyncio.gather(asyncio.to_thread(answer_one, listening), body(client, url))
        first.close()  # and the loop does not turn before the next request is written
        second, again = await asyncio.gather(asyncio.to_thread(answer_one, listening), body(client, url))
        client.close()
        second.close()

    assert [b"hi", b"hi"] == [answer, again]


def answer_one(listening: socket.socket) -> socket.socket:
    """Answer the request that comes on the next connection, without the loop."""
    listening.settimeout(LONG)
    connection, _ = listening.accept()
    connection.recv(65536)
    connection.sendall(WHOLE)
    return connection


@pytest.mark.parametrize(("told", "kept"), [(b"timeout=1", 2), (b"timeout=60, max=100", 1), (b"max=5", 1)])
async def test_a_connection_is_kept_no_longer_than_its_upstream_says(told, kept):
    """Who says that it closes idle connections after a second may be about to: the next request takes another."""
    answer = WHOLE.replace(b"\r\n\r\n", b"\r\nKeep-Alive: %b\r\n\r\n" % told)
    async with origin(answer, answer) as (server, client, url):
        assert [b"hi", b"hi"] == [await body(client, url), await body(client, url)]

    assert kept == server.connections


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
        await asyncio.wait_for(server.ended.wait(), LONG)

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
            await asyncio.wait_for(client.send(get(url)), LONG)
        await asyncio.wait_for(server.ended.wait(), LONG)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "one header": (b"HTTP/1.1 200 OK\r\na: ", b"b"),
    "interim responses": (b"", b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n"),
    "trailers": (CHUNKED + b"2\r\nhi\r\n0\r\n", b"a: b\r\n"),
    "one trailer": (CHUNKED + b"2\r\nhi\r\n0\r\na: ", b"b"),
    "a chunk extension": (CHUNKED + b"2\r\nhi\r\n2;a=", b"b"),
}


@requirement("safe.upstream-headers")
@pytest.mark.parametrize("flood", FLOODS)
async def test_what_is_no_part_of_a_body_has_an_end(flood):
    """An upstream could fill the memory with it: none of it reaches anybody, so nothing else would notice."""
    begin, piece = FLOODS[flood]
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while sent < 64 * 1024 * 1024:
            writer.write(piece * (65536 // len(piece)))
            await writer.drain()
            sent += 65536

    async with origin(begin, then=pour) as (server, client, url):
        with pytest.raises(NotHTTP, match="more than 256 kB of headers"):
            await asyncio.wait_for(read_all(client, url), LONG)
        await asyncio.wait_for(server.ended.wait(), LONG)

        assert not client._idle
    assert sent < 32 * 1024 * 1024  # what the kernel buffers, and no more


async def read_all(client: Connections, url: str) -> None:
    reply = await client.send(get(url))
    assert b"hi" == await reply.read()
    await reply.read()


@requirement("safe.upstream-headers")
async def test_trailers_are_no_headers_of_the_next_response():
    """A trailer could say of another answer that it is compressed, or how long it is."""
    trailed = CHUNKED + b"2\r\nhi\r\n0\r\nContent-Encoding: gzip\r\nRetry-After: 9\r\n\r\n"
    async with origin(trailed, WHOLE) as (server, client, url):
        assert b"hi" == await body(client, url)
        reply = await client.send(get(url))

        assert {"content-length": "2"} == reply.headers
        assert b"hi" == await reply.read()
    assert 1 == server.connections


@requirement("safe.upstream-headers")
async def test_a_long_body_in_small_chunks_is_not_taken_for_a_flood():
    """The framing of a long answer is more than any limit in all, but never without a word of the answer."""

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(100):
            writer.write(b"1;ext=%b\r\nx\r\n" % (b"e" * 5000) * 10)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with origin(CHUNKED, then=pour) as (_, client, url):
        assert b"x" * 1000 == await body(client, url)


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
    assert held < 2 * one_connection._BUFFERED


def is_paused(reply: one_connection.Reply) -> bool:
    return reply._connection is not None and reply._connection._is_paused


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the kernel brings it about
        await asyncio.sleep(0)


async def test_closing_an_answer_that_is_not_whole_closes_its_connection_at_once():
    """The upstream stops working for nobody."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    async with origin(head) as (server, client, url):
        (await client.send(get(url))).close()
        await asyncio.wait_for(server.ended.wait(), LONG)

        assert not client._idle


async def test_giving_up_before_the_head_closes_the_connection():
    """As a run that is stopped before its first word does."""
    async with origin(b"") as (server, client, url):
        asking = asyncio.create_task(client.send(get(url)))
        await until(lambda: server.requests)
        asking.cancel()
        await asyncio.wait_for(server.ended.wait(), LONG)

    assert asking.cancelled()


async def test_idle_connections_are_closed_after_a_while():
    """Some upstreams count them."""
    async with origin(WHOLE, keep=0.05) as (server, client, url):
        assert b"hi" == await body(client, url)
        await asyncio.wait_for(server.ended.wait(), LONG)

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


class Mute:
    """An address that does not answer: a listener whose queue is full, so that the kernel drops whoever comes."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.socket(family)
        self._listening.bind((host, 0))
        self._listening.listen(0)
        self._waiting: list[socket.socket] = []
        while self._joins_the_queue(family):
            assert len(self._waiting) < 100
        self.address = address_of(self._listening)

    def _joins_the_queue(self, family: int) -> bool:
        self._waiting.append(socket.socket(family))
        self._waiting[-1].settimeout(0.05)
        try:
            self._waiting[-1].connect(self._listening.getsockname())
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        for each in (*self._waiting, self._listening):
            each.close()


def address_of(listening: Any) -> Address:
    return (listening.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", listening.getsockname())


@asynccontextmanager
async def mute(host: str = "127.0.0.1") -> AsyncIterator[Address]:
    there = await asyncio.to_thread(Mute, host)
    try:
        yield there.address
    finally:
        there.close()


def resolving(*addresses: Address) -> Any:
    async def resolve(host: str, port: int) -> list[Address]:
        assert ("sound.test", 443) == (host, port) or ("sound.test", 80) == (host, port)
        return list(addresses)

    return resolve


@requirement("start.first-address")
@pytest.mark.parametrize("silent", [["::1"], ["127.0.0.1"], ["::1", "127.0.0.1", "::1"]])
async def test_a_silent_address_does_not_hide_one_that_answers(silent):
    """A broken IPv6 is the usual case: whoever tries the addresses in turn never comes to the one that works."""
    async with AsyncExitStack() as stack:
        mutes = [await stack.enter_async_context(mute(host)) for host in silent]
        server, _, url = await stack.enter_async_context(origin(WHOLE))
        sound = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port_of(url)))
        client = Connections("http://sound.test", resolve=resolving(*mutes, sound), connect_timeout=30)
        began = time.monotonic()
        assert b"hi" == await body(client, "http://sound.test")
        took = time.monotonic() - began
        client.close()

    assert took < SOON  # as a rule a quarter of a second for each silent one; in turn it would be 30
    assert 1 == server.connections


@requirement("start.first-address")
async def test_addresses_that_are_all_silent_end_after_the_time_for_connecting():
    """The time is for all of them together."""
    async with mute() as one, mute() as two:
        client = Connections("http://sound.test", resolve=resolving(one, two), connect_timeout=0.6)
        with pytest.raises(NotThere) as why:
            await asyncio.wait_for(client.send(get("http://sound.test")), LONG)

    assert isinstance(why.value.__cause__, TimeoutError)


async def test_an_address_that_refuses_is_passed_over_at_once():
    """A server that listens on IPv4 alone, at a name that has both."""
    async with origin(WHOLE) as (_, _, url):
        refusing = socket.socket()
        refusing.bind(("127.0.0.1", 0))
        sound = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port_of(url)))
        client = Connections("http://sound.test", resolve=resolving(address_of(refusing), sound))
        assert b"hi" == await body(client, "http://sound.test")
        client.close()
        refusing.close()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the name sound.test, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sound.test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("sound.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "sound.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


async def answer_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
    writer.close()


@asynccontextmanager
async def secure(certificate: Path) -> AsyncIterator[tuple[Address, list[str | None]]]:
    """A server that speaks TLS and answers one request, and the names that it was asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    asked_for: list[str | None] = []
    context.sni_callback = lambda _, name, __: asked_for.append(name)

    server = await asyncio.start_server(answer_and_close, "127.0.0.1", 0, ssl=context)
    try:
        yield address_of(server.sockets[0]), asked_for
    finally:
        server.close()


@requirement("start.first-address")
async def test_tls_is_checked_against_the_name_whichever_address_answers(certificate, monkeypatch):
    """The certificate must be for the name that was configured: an address is never what is trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with mute() as silent, secure(certificate) as (sound, asked_for):
        client = Connections("https://sound.test", resolve=resolving(silent, sound), connect_timeout=30)
        assert b"hi" == await body(client, "https://sound.test")
        client.close()

        assert ["sound.test"] == asked_for


@requirement("start.first-address")
async def test_a_certificate_for_another_name_is_refused(certificate, monkeypatch):
    """Also where it is trusted, and its address is the one that the name resolved to."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def elsewhere(host: str, port: int) -> list[Address]:
        return [sound]

    async with secure(certificate) as (sound, asked_for):
        with pytest.raises(NotThere) as why:
            await Connections("https://other.test", resolve=elsewhere).send(get("https://other.test"))

    assert isinstance(why.value.__cause__, ssl.SSLCertVerificationError)
    assert ["other.test"] == asked_for


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
async def test_addresses_and_names_are_reached(host):
    """By the resolver that is used outside of tests."""
    server = await asyncio.start_server(answer_and_close, host.strip("[]"), 0)
    url = f"http://{host}:{server.sockets[0].getsockname()[1]}"
    client = Connections(url)
    assert b"hi" == await body(client, url)
    client.close()
    server.close()


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
    monkeypatch.setattr(one_connection, "_READS", 3)
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
