"""Limits that hold before anybody knows who is asking: the real server, with clients that take too much or too long."""

import asyncio
import contextlib
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.server import Server
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "key-of-alice-86420"
START = b"POST /api/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
WITH_KEY = START + f"Authorization: Bearer {KEY}\r\n".encode()
MOST = 60_000_000
PATIENT = "head_timeout = 60\nbody_timeout = 60\nmax_connections = 40\n"
QUICK = "head_timeout = 0.5\nbody_timeout = 0.5\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with Server(
        tmp_path_factory.mktemp("patient"), config=PATIENT, env={"HOLDFAST_API_KEY": KEY}, forked=False
    ) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quick(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with Server(tmp_path_factory.mktemp("quick"), config=QUICK, env={"HOLDFAST_API_KEY": KEY}) as server:
        yield server


async def sessions(server: Server) -> list[object]:
    async with server.client(authorization=f"Bearer {KEY}") as client:
        return (await (await client.get("/api/sessions")).json())["sessions"]


# Size.


async def whole(reader: asyncio.StreamReader) -> bytes:
    """All that the server has answered when it closes the connection, or cuts it because more was sent."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            got += data
    return got


async def pour(server: Server, start: bytes, piece: bytes, *, pause: float = 0.0) -> tuple[bytes, int]:
    """Send a piece again and again until the server closes the connection. What it answered, and how much was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answered = asyncio.create_task(whole(reader))
    sent = 0
    writer.write(start)
    with contextlib.suppress(ConnectionError):
        while not answered.done() and sent < MOST:
            writer.write(piece)
            sent += len(piece)
            await writer.drain()
            await asyncio.wait({answered}, timeout=pause)
    try:
        return await asyncio.wait_for(answered, LONG), sent
    finally:
        writer.close()


@requirement("safe.head-limit")
@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (START + b"X-Long: ", 65536 * b"x"),
        (START, 8192 * b"X-A: b\r\n"),
        (b"GET /", 65536 * b"x"),
        (WITH_KEY + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", 8192 * b"X-A: b\r\n"),
        (WITH_KEY + b"Transfer-Encoding: chunked\r\n\r\n2;a=", 65536 * b"x"),
    ],
    ids=["one header", "many headers", "the address", "trailers", "the size of a chunk"],
)
async def test_a_head_without_an_end_is_refused_at_once_and_takes_no_memory(patient: Server, start, piece):
    """60 MB of it made everybody wait for 5 s, and half of that in short lines took 800 MB."""
    memory = patient.rss_kb()

    answer, sent = await pour(patient, start, piece)

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"head_too_large" in answer
    assert sent < MOST
    assert patient.rss_kb() - memory < 20_000
    assert [] == await sessions(patient)


# Time.


@requirement("safe.head-time", "safe.body-pace")
@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"G", b""),
        (START, b""),
        (START + b"X-Long: ", b"x"),
        (WITH_KEY + b"Content-Length: 50\r\n\r\n{", b""),
        (WITH_KEY + b"Content-Length: 5000\r\n\r\n{", b" "),
        (WITH_KEY + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
    ids=["a byte", "half a head", "a slow head", "half a body", "a slow body", "slow chunks"],
)
async def test_a_request_that_does_not_arrive_is_408_and_the_connection_ends(quick: Server, start, piece):
    """With a key or without: a client that never finishes must not hold a place for good."""
    answer, _ = await pour(quick, start, piece, pause=0.05)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in answer
    assert b"connection: close\r\n" in answer
    assert [] == await sessions(quick)


@requirement("safe.head-time")
async def test_a_connection_that_says_nothing_is_closed_without_an_answer(quick: Server):
    """A browser opens some ahead: an answer there would be taken for the answer to its next request."""
    assert (b"", 0) == await pour(quick, b"", b"", pause=0.05)


@requirement("safe.body-pace")
async def test_a_request_without_a_key_is_answered_and_its_body_not_waited_for(quick: Server):
    """The answer is known before the body: what is left of that has one interval to arrive."""
    answer, _ = await pour(quick, START + b"Content-Length: 1000000\r\n\r\n{", b" ", pause=0.05)

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert 1 == answer.count(b"HTTP/1.1")


@requirement("safe.head-time")
async def test_a_kept_connection_may_be_idle_for_longer_than_a_head_may_take(quick: Server):
    """Its time is that of kept connections: proxies and browsers count on it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", quick.port)
    health = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    for _ in range(2):
        writer.write(health)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONG)
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        assert (b"", 0) == await pour(quick, b"", b"", pause=0.05)  # which takes as long as a head may

    writer.close()
    assert head.startswith(b"HTTP/1.1 200 ")


# How many.


@contextlib.contextmanager
def silent(server: Server, count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(count):
            sockets.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30)))
        yield sockets


@requirement("safe.connection-limit")
async def test_connections_above_the_limit_are_refused_and_the_others_go_on(patient: Server):
    """Who is in stays in, who comes too late is told so, and the log has one line about all of them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", patient.port)
    health = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    writer.write(health)
    await reader.readuntil(b'"ok"}')
    with silent(patient, 80) as sockets:
        await asyncio.to_thread(sockets[-1].recv, 10)  # by then all have been accepted or refused
        refused = await asyncio.to_thread(lambda: [each.recv(65536) for each in sockets[45:]])
        writer.write(health)
        answer = await asyncio.wait_for(reader.readuntil(b'"ok"}'), LONG)
    writer.close()

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert all(each.startswith(b"HTTP/1.1 503 ") for each in refused[:-1])
    assert all(b"retry-after: 1\r\n" in each and b"too_many_connections" in each for each in refused[:-1])
    assert 1 == patient.log_text().count("refused a connection")
    assert await answers(patient)


async def answers(server: Server) -> bool:
    """There is room again, once the server has noticed that others have left."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        async with server.client() as client:
            with contextlib.suppress(ConnectionError):
                if (await client.get("/health")).status == 200:
                    return True
        await asyncio.sleep(0.05)
    return False


def limited(soft: int, hard: int) -> tuple[str, ...]:
    """The server with a limit of open files."""
    set_limit = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))"
    run = "os.execv(sys.executable, [sys.executable, '-m', 'holdfast', *sys.argv[1:]])"
    return (sys.executable, "-c", f"{set_limit}; {run}")


@requirement("safe.connection-limit")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_server_takes_no_more_connections_than_it_can_open_files(tmp_path: Path):
    """Without a file left it could read no key, open no upstream and accept nobody, and everybody would be reset."""
    async with Server(tmp_path, program=limited(128, 400), config="head_timeout = 60") as server:
        with silent(server, 500) as sockets:
            refused = await asyncio.to_thread(sockets[-1].recv, 65536)
            open_files = server.open_files()

            assert refused.startswith(b"HTTP/1.1 503 ")
            assert open_files < 400
        assert await answers(server)
        log = server.log_text()

    assert "max_connections is 136 instead of 10000: only 400 files can be open" in log
    assert "Too many open files" not in log
    assert "Traceback" not in log


@requirement("safe.connection-limit")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_server_raises_its_limit_of_open_files_as_far_as_it_may(tmp_path: Path):
    """A shell's 1,024 would be too few for the connections that are allowed."""
    async with Server(tmp_path, program=limited(256, 20_000)) as server:
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        log = server.log_text()

    assert re.search(r"^Max open files +20000 +20000 ", limits, re.MULTILINE)
    assert "max_connections is" not in log
