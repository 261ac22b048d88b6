"""Bytes that no client sends: handshakes that are none, frames against the rules, floods and silence."""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
import pytest_asyncio
from websockets.frames import Close, Frame, Opcode

from tests.requirements import requirement
from tests.support.server import Server
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 20_000
CONFIG = f"body_limit = {LIMIT}\nbody_timeout = 2\nhead_timeout = 5\nsend_timeout = 1\nheartbeat = 0.5\n"
SCRIPTED = [{"name": "scripted", "dialect": "scripted"}]
HEAD = [
    b"GET /v1/responses HTTP/1.1",
    b"Host: 127.0.0.1",
    b"Upgrade: websocket",
    b"Connection: Upgrade",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
]
ACCEPTED = b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # of RFC 6455, 1.3
HIDDEN = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    async with Server(tmp_path_factory.mktemp("frames"), SCRIPTED, config=CONFIG, forked=False) as server:
        yield server


class Line(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def frame(self) -> Frame:
        """The next frame but pings."""
        while True:
            first, second = await self.reader.readexactly(2)
            size = second & 127
            if size >= 126:
                size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8))
            data = await self.reader.readexactly(size)
            if Opcode(first & 15) is not Opcode.PING:
                return Frame(Opcode(first & 15), data)

    async def closed(self) -> int:
        """Read up to the server's close, and return its code."""
        while (frame := await self.frame()).opcode is not Opcode.CLOSE:
            pass
        return int(Close.parse(frame.data).code)

    async def rest(self) -> bytes:
        """Everything up to the end. A reset is an end too."""
        pieces = b""
        try:
            while piece := await self.reader.read(65536):
                pieces += piece
        except ConnectionResetError:
            pass
        return pieces


@asynccontextmanager
async def line(server: Server, *lines: bytes):
    """A connection. With lines, they are sent as the head of a request."""
    async with asyncio.timeout(LONG):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            if lines:
                writer.write(b"\r\n".join([*lines, b"", b""]))
            yield Line(reader, writer)
        finally:
            writer.close()


@asynccontextmanager
async def upgraded(server: Server):
    async with line(server, *HEAD) as connected:
        head = await connected.head()
        assert head.startswith(b"HTTP/1.1 101 ")
        assert ACCEPTED in head
        yield connected


def masked(data: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


ASKED = json.dumps({"type": "response.create", "model": "scripted/lorem:3", "input": "Hi", "store": False}).encode()


@requirement("safe.websocket")
async def test_a_message_may_come_in_any_pieces(server):
    """Of frames and of bytes, with control frames in between."""
    async with upgraded(server) as connected:
        whole = masked(ASKED[:20], fin=False) + masked(b"on?", Opcode.PING)
        whole += masked(b"", Opcode.CONT, fin=False) + masked(ASKED[20:], Opcode.CONT)
        for byte in whole:
            await connected.send(bytes([byte]))
        pong = await connected.frame()
        created = await connected.frame()

    assert (Opcode.PONG, b"on?") == (pong.opcode, pong.data)
    assert "response.created" == json.loads(created.data)["type"]


AGAINST_THE_RULES = {
    "not masked": (Frame(Opcode.TEXT, b"{}").serialize(mask=False), 1002),
    "a reserved opcode": (b"\x83\x80\x00\x00\x00\x00", 1002),
    "a reserved bit": (b"\xf1\x80\x00\x00\x00\x00", 1002),
    "a long ping": (b"\x89\xfe\x00\x7e" + bytes(130), 1002),
    "a ping in pieces": (b"\x09\x80\x00\x00\x00\x00", 1002),
    "a continuation of nothing": (masked(b"{}", Opcode.CONT), 1002),
    "a message within a message": (masked(b"{", fin=False) + masked(b"}"), 1002),
    "a close of one byte": (b"\x88\x81\x00\x00\x00\x00\x03", 1002),
    "binary": (masked(b"{}", Opcode.BINARY), 1003),
    "announced as too large": (b"\x81\xff" + (1 << 62).to_bytes(8) + bytes(4), 1009),
    "too large": (masked(bytes(LIMIT + 1)), 1009),
    "too large in pieces": (masked(bytes(LIMIT), fin=False) + masked(b"xx", Opcode.CONT), 1009),
    "too many pieces": (masked(b"{", fin=False) + masked(b"ab", Opcode.CONT, fin=False) * 5000, 1008),
    "HTTP": (HIDDEN, 1002),
}
"""Bytes, and the code of the close that answers them."""


@requirement("safe.websocket")
@pytest.mark.parametrize(("sent", "code"), AGAINST_THE_RULES.values(), ids=AGAINST_THE_RULES)
async def test_a_frame_against_the_rules_ends_the_connection_with_a_reason(server, sent, code):
    """And nothing in it is run, or taken for a request of HTTP."""
    async with upgraded(server) as connected:
        await connected.send(sent)

        assert code == await connected.closed()
        connected.writer.write_eof()
        assert b"HTTP/1.1" not in await connected.rest()


@requirement("safe.websocket")
@pytest.mark.parametrize(
    "message",
    [b"", b"{", b"[]", b"\xff\xfe", b'"text"', b'{"type": 1}', b'{"type": "response.create"}', b"[" * 5000, b"null"],
    ids=lambda value: str(value)[:24],
)
async def test_a_message_that_is_no_request_gets_an_error_and_the_connection_stays(server, message):
    """As a bad body does over HTTP."""
    async with upgraded(server) as connected:
        await connected.send(masked(message))
        refused = json.loads((await connected.frame()).data)
        await connected.send(masked(ASKED))
        created = json.loads((await connected.frame()).data)

    assert ("error", 400) == (refused["type"], refused["status"])
    assert "response.created" == created["type"]


@requirement("safe.websocket")
async def test_a_message_that_does_not_arrive_in_time_ends_the_connection(server):
    """A client that holds half a message holds memory. One that is silent between two messages may stay."""
    async with upgraded(server) as slow, upgraded(server) as silent:
        await slow.send(masked(ASKED)[:30])

        assert 1008 == await slow.closed()
        await silent.send(masked(ASKED))
        assert "response.created" == json.loads((await silent.frame()).data)["type"]


@requirement("safe.websocket")
async def test_a_client_that_sends_pings_and_never_reads_is_cut_off(server):
    """The answers would fill the server's memory."""
    async with upgraded(server) as connected:
        flood = masked(bytes(125), Opcode.PING) * 2000
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await endlessly(connected, flood)


@requirement("safe.websocket")
async def test_a_client_that_sends_requests_and_never_reads_is_cut_off(server):
    """Each message beyond the limit got a refusal, which waited in the server's memory: 7 MB became 800."""
    async with upgraded(server) as connected:
        before = server.rss_kb()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await endlessly(connected, masked(b"") * 2000)

        assert server.rss_kb() - before < 50_000


async def endlessly(connected: Line, data: bytes) -> None:
    while True:
        await connected.send(data)


@requirement("safe.websocket", "safe.one-request")
@pytest.mark.parametrize("early", [masked(ASKED), HIDDEN, b"\x81"], ids=["a frame", "a request", "a byte"])
async def test_bytes_before_the_answer_are_http_and_there_is_no_upgrade(server, early):
    """Else a proxy that has not seen a 101 yet, and this server, would disagree about what they are."""
    async with line(server) as connected:
        await connected.send(b"\r\n".join([*HEAD, b"", b""]) + early)
        answered = await connected.head()
        connected.writer.write_eof()

    assert answered.startswith(b"HTTP/1.1 400 ")


NO_HANDSHAKES = {
    "no key": ([line for line in HEAD if b"Key" not in line], b"400"),
    "a short key": ([*HEAD[:5], b"Sec-WebSocket-Key: AAAA"], b"400"),
    "an old version": ([*HEAD[:4], b"Sec-WebSocket-Version: 8", HEAD[5]], b"400"),
    "a body": ([*HEAD, b"Content-Length: 0"], b"400"),
    "two offers": ([*HEAD, b"Upgrade: h2c"], b"200"),
    "another offer": ([line.replace(b": websocket", b": h2c") for line in HEAD], b"200"),
    "another path": ([HEAD[0].replace(b"responses", b"models"), *HEAD[1:]], b"200"),
    "a POST": ([HEAD[0].replace(b"GET", b"POST"), *HEAD[1:], b"Content-Length: 2"], b"400"),
}
"""The lines of a head, and the status of its answer."""


@requirement("safe.websocket", "safe.one-request")
@pytest.mark.parametrize(("head", "status"), NO_HANDSHAKES.values(), ids=NO_HANDSHAKES)
async def test_what_is_no_handshake_is_answered_as_http(server, head, status):
    """And the next request on the connection is read where this one ends."""
    body = b"{}" if head[0].startswith(b"POST") else b""
    async with line(server) as connected:
        await connected.send(b"\r\n".join([*head, b"", b""]) + body + HIDDEN.replace(b"\r\n\r\n", b"\r\nX: 1\r\n\r\n"))
        answers = await connected.head()
        await connected.send(HIDDEN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answers += await connected.rest()

    assert answers.startswith(b"HTTP/1.1 " + status)
    assert 3 == answers.count(b"HTTP/1.1 ")


@requirement("safe.websocket")
async def test_random_frames_leave_the_server_as_it_was(server):
    """It answers or closes, and goes on serving the others."""
    for _ in range(50):
        async with upgraded(server) as connected:
            await connected.send(os.urandom(400))
            connected.writer.write_eof()
            await connected.rest()
    async with upgraded(server) as connected:
        await connected.send(masked(ASKED))

        assert "response.created" == json.loads((await connected.frame()).data)["type"]
    assert "Traceback" not in server.log_text()
