"""The client for callers that need no more than requests to one server: the command line."""

import asyncio
import contextlib
import hashlib
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from holdfast.http_client.client import Client
from holdfast.http_client.errors import Broken, NotThere
from holdfast.http_client.route import Route
from tests.requirements import requirement

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[list[bytes]]:
    """A server on a Unix socket that answers each request with its body, and keeps what came."""
    came: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                body = await reader.readexactly(length)
                came.append(head + body)
                writer.write(HEAD % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answer, path)
    try:
        yield came
    finally:
        server.close()


@requirement("safe.key-address")
async def test_a_server_is_reached_through_a_socket_whatever_the_environment_says(tmp_path, monkeypatch):
    """The key of the command line goes into the user's own folder, and to no proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with served(tmp_path / "s") as came:
        route = Route(socket_path=str(tmp_path / "s"))
        with closing(Client("http://localhost", headers={"Authorization": "Bearer k"}, route=route)) as client:
            for body in (b"", b'{"a": 1}'):
                with closing(await client.send("POST", "/api/a b", body, query={"q": "x y&z"})) as reply:
                    assert (200, body) == (reply.status, await reply.read_all())

    first, second = came
    assert first.startswith(b"POST /api/a%20b?q=x+y%26z HTTP/1.1\r\nHost: localhost\r\n")
    assert b"Authorization: Bearer k\r\n" in first
    assert second.endswith(b'Content-Length: 8\r\n\r\n{"a": 1}')


async def test_a_socket_that_nobody_listens_on_is_told_in_words(tmp_path):
    """A server that was killed leaves its file."""
    with closing(Client("http://localhost", route=Route(socket_path=str(tmp_path / "gone")))) as client:
        with pytest.raises(NotThere, match="no such file or directory"):
            await client.send("GET", "/health")


async def test_a_connection_that_ends_before_the_answer_is_told_in_words(tmp_path):
    """An empty message would tell nobody anything."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(hang_up, tmp_path / "s")
    with closing(Client("http://localhost", route=Route(socket_path=str(tmp_path / "s")))) as client:
        with pytest.raises(Broken, match="the connection ended before the response did"):
            await client.send("POST", "/")
    server.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8787",
        "ftp://h",
        "http://",
        "http://u:p@h",
        "http://h:0",
        "http://h:99999",
        "http://a b",
        "http://h?q=1",
    ],
)
def test_an_address_that_makes_no_sense_is_refused(url):
    """Before anything is sent, and without repeating what may be a password."""
    with pytest.raises(ValueError, match="must begin with http:// or https:// and name a host") as refused:
        Client(url)

    assert "u:p" not in str(refused.value)


def test_a_key_cannot_add_lines_to_a_request():
    """It comes from the environment."""
    with pytest.raises(ValueError, match="control character"):
        Client("http://h", headers={"Authorization": "Bearer k\r\nX-Other: 1"})


@requirement("imports.hostile")
async def test_a_file_is_sent_without_being_in_memory(tmp_path):
    """An export of gigabytes is imported on a small machine, by a slow server too."""
    size, sent, arrived, ended = 64 * 1024 * 1024, hashlib.sha256(), hashlib.sha256(), asyncio.Event()
    with (tmp_path / "export").open("wb") as file:
        for number in range(64):
            piece = bytes([number]) * (size // 64)
            file.write(piece)
            sent.update(piece)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        left = size
        while left:
            data = await reader.read(65536)
            arrived.update(data)
            left -= len(data)
        writer.write(HEAD % 2 + b"ok")
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_unix_server(answer, tmp_path / "s")
    route = Route(socket_path=str(tmp_path / "s"))
    tracemalloc.start()
    try:
        with (tmp_path / "export").open("rb") as file, closing(Client("http://localhost", route=route)) as client:
            with closing(await client.send("POST", "/", file)) as reply:
                body = await reply.read_all()
        await ended.wait()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        server.close()

    assert (b"ok", sent.digest()) == (body, arrived.digest())
    assert most < size // 4


async def test_a_response_that_comes_before_a_file_was_sent_is_returned(tmp_path):
    """A server that refuses it reads no more. The rest of the file would be taken for the next request."""
    came: list[bytes] = []
    ended = asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(HEAD % 2 + b"no")
        await writer.drain()
        with contextlib.suppress(ConnectionError):
            await reader.read()  # until the client has left
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.release()

    (tmp_path / "export").write_bytes(bytes(16 * 1024 * 1024))
    server = await asyncio.start_unix_server(answer, tmp_path / "s")
    route = Route(socket_path=str(tmp_path / "s"))
    try:
        with (tmp_path / "export").open("rb") as file, closing(Client("http://localhost", route=route)) as client:
            bodies = []
            for body in (file, b""):
                with closing(await client.send("POST", "/", body)) as reply:
                    bodies.append(await reply.read_all())
        for _ in came:
            await ended.acquire()
    finally:
        server.close()

    assert [b"no"] * 2 == bodies
    assert 2 == len(came)
