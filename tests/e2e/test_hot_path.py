"""The hot path does no more work than it did: calls are counted, so that no machine and no load changes the figures.

A change that makes it cheaper lowers the budget here. `python -m bench` measures what it is worth in seconds.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Server, provider

BUDGET = {
    "a chunk that comes alone": 8,
    "a chunk of a hundred that come together": 0.2,
    "a chunk of a stored session that comes alone": 39,
    "a chunk of a whole answer that comes at once": 1.85,
    "a streaming request": 382,
    "a request without a stream": 337,
}
"""Calls in the event loop's thread, as they are now."""

WORSE = 1.1
"""A change that costs a tenth more must be meant. Timers of a busy machine are counted too."""

COUNTED = 50

AT_ONCE = {"Say it at once.": ["whole"], "Say much at once.": [f"piece{n}." for n in range(256)]}
"""What is answered without being told to, in one write: how many reads it takes must not depend on the machine."""


class Upstream:
    """Says a piece when it is told to, so that each comes to the server alone, or all of them at once."""

    def __init__(self) -> None:
        self.url = ""
        self._streams: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Upstream"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = json.loads(await reader.readexactly(content_length(head)))
                if not body.get("stream"):
                    answer = json.dumps(chunk({"content": "whole"}, "stop", "message")).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
                    continue
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                pieces = AT_ONCE.get(body["messages"][-1]["content"])
                writer.write(head if pieces is None else head + spoken(*pieces) + END)
                if pieces is None:
                    await self._streams.put(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the server has closed it
        finally:
            writer.close()

    async def stream(self) -> "Speaking":
        """The next answer that the server has asked for."""
        return Speaking(await self._streams.get())


class Speaking:
    """One answer as it is being given."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def say(self, *pieces: str) -> None:
        self._writer.write(spoken(*pieces))

    def end(self) -> None:
        self._writer.write(END)


def spoken(*pieces: str) -> bytes:
    return b"".join(framed(chunk({"content": piece}, None)) for piece in pieces)


def framed(chunk: Any) -> bytes:
    event = b"data: %b\n\n" % json.dumps(chunk).encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def chunk(delta: dict[str, str], finish: str | None, part: str = "delta") -> dict[str, Any]:
    return {"id": "c", "created": 1, "model": "m", "choices": [{"index": 0, part: delta, "finish_reason": finish}]}


END = framed(chunk({}, "stop")) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def content_length(head: bytes) -> int:
    (value,) = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(value)


class Caller:
    """One kept connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._seen = b""

    def ask(self, path: str, body: Any, accept: str = "*/*") -> None:
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)

    async def until(self, word: str) -> None:
        """Read up to a word."""
        while word.encode() not in self._seen:
            read = await self._reader.read(65536)
            assert read, f"the connection ended before {word!r}: {self._seen[-500:]!r}"
            self._seen += read
        self._seen = self._seen.partition(word.encode())[2]


class Bench:
    """A server that counts, an upstream, and one connection."""

    def __init__(self, server: Server, counter: Path, upstream: Upstream, caller: Caller) -> None:
        self.server, self.upstream, self.caller = server, upstream, caller
        self._counter = counter

    async def calls(self) -> int:
        reader, writer = await asyncio.open_unix_connection(self._counter)
        count = int(await reader.read())
        writer.close()
        return count

    async def speaking(self) -> Speaking:
        """The answer that was asked for, once its first pieces have come through."""
        speaking = await self.upstream.stream()
        for n in range(5):
            speaking.say(f"first{n}.")
            await self.caller.until(f"first{n}.")
        return speaking

    async def say_alone(self, speaking: Speaking) -> float:
        """Calls for each of many pieces, of which the next is said when the last has come through."""
        before = await self.calls()
        for n in range(COUNTED):
            speaking.say(f"piece{n}.")
            await self.caller.until(f"piece{n}.")
        return (await self.calls() - before) / COUNTED

    async def end(self, speaking: Speaking, last_word: str) -> None:
        speaking.end()
        await self.caller.until(last_word)
        await self.caller.until("0\r\n\r\n")


@pytest.fixture(name="bench")
async def _bench(tmp_path):
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has room for a hundred letters
        counter = Path(short) / "count"
        async with Upstream().listening() as upstream, counting(tmp_path / "data", counter, upstream) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            yield Bench(server, counter, upstream, Caller(reader, writer))
            writer.close()


def counting(data: Path, counter: Path, upstream: Upstream) -> Server:
    program = (sys.executable, "-m", "tests.support.counted", str(counter))
    return Server(data, [provider(upstream.url)], program=program, timeout=120.0)


def chat(content: str, *, stream: bool = True) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], "stream": stream}


async def chunk_alone(bench: Bench) -> float:
    bench.caller.ask("/v1/chat/completions", chat("Hi."))
    speaking = await bench.speaking()
    calls = await bench.say_alone(speaking)
    await bench.end(speaking, "[DONE]")
    return calls


async def chunk_together(bench: Bench) -> float:
    bench.caller.ask("/v1/chat/completions", chat("Hi."))
    speaking = await bench.speaking()
    before = await bench.calls()
    speaking.say(*(f"piece{n}." for n in range(100)))
    await bench.caller.until("piece99.")
    calls = await bench.calls() - before
    await bench.end(speaking, "[DONE]")
    return calls / 100


async def chunk_of_a_whole_answer(bench: Bench) -> float:
    """The start, the end and everything between, before a reader has seen any of it."""
    before = await bench.calls()
    bench.caller.ask("/v1/chat/completions", chat("Say much at once."))
    await bench.caller.until("[DONE]")
    await bench.caller.until("0\r\n\r\n")
    return (await bench.calls() - before) / 256


async def chunk_saved(bench: Bench) -> float:
    async with bench.server.client() as client:
        session = (await (await client.request("POST", "/api/sessions", json={})).json())["id"]
    bench.caller.ask(f"/api/sessions/{session}/runs", {"input": "Hi.", "model": "m"}, accept="text/event-stream")
    speaking = await bench.speaking()
    calls = await bench.say_alone(speaking)
    await bench.end(speaking, "run.settled")
    return calls


async def streaming_request(bench: Bench) -> float:
    before = await bench.calls()
    for _ in range(10):
        bench.caller.ask("/v1/chat/completions", chat("Say it at once."))
        await bench.caller.until("[DONE]")
        await bench.caller.until("0\r\n\r\n")
    return (await bench.calls() - before) / 10


async def whole_request(bench: Bench) -> float:
    before = await bench.calls()
    for _ in range(10):
        bench.caller.ask("/v1/chat/completions", chat("Say it at once.", stream=False))
        await bench.caller.until('"whole"')
        await bench.caller.until("}")
    return (await bench.calls() - before) / 10


MEASURES = {
    "a chunk that comes alone": chunk_alone,
    "a chunk of a hundred that come together": chunk_together,
    "a chunk of a stored session that comes alone": chunk_saved,
    "a chunk of a whole answer that comes at once": chunk_of_a_whole_answer,
    "a streaming request": streaming_request,
    "a request without a stream": whole_request,
}


async def test_the_hot_path_takes_no_more_calls_than_it_did(bench):
    """A tenth more work for each token would not be seen in any other test, and hardly in a benchmark.

    The least of 20 rounds counts: what else goes on in a server (a timer, a heartbeat) can only add to it.
    """
    taken = {what: min([await measure(bench) for _ in range(20)]) for what, measure in MEASURES.items()}

    assert {} == {what: calls for what, calls in taken.items() if calls > BUDGET[what] * WORSE}, f"of {taken}"


async def test_the_counter_counts(bench):
    """A counter that stands still would let everything pass."""
    before = await bench.calls()
    await whole_request(bench)

    assert await bench.calls() >= before + 100
