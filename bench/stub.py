"""The least server that has the calls the scenarios need: it splices bytes, and its runs only hold a connection.

It proves the instruments and gives the figure for "Python, hands off". It keeps nothing and judges nothing.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator

numbers = itertools.count(1)


class Proxy:
    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._runs: dict[str, asyncio.StreamWriter] = {}
        self._drains: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for head, body in requests(reader):
                method, path, _ = head.split(b" ", 2)
                if path.startswith(b"/v1/"):
                    await self._splice(head + body, reader, writer)
                    return
                status, answer = await self._answer(method.decode(), path.decode(), body)
                text = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(text), text))
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str]]:
        parts = path.strip("/").split("/")
        if parts == ["api", "sessions"]:
            return 201, {"id": f"ses_{next(numbers)}"}
        if parts[:2] == ["api", "sessions"] and parts[3:] == ["runs"]:
            return 202, {"id": await self._run(body)}
        if parts[:2] == ["api", "runs"] and parts[3:] == ["stop"]:
            self._runs.pop(parts[2]).transport.abort()
            return 200, {"id": parts[2]}
        return 200, {"path": path}

    async def _run(self, body: bytes) -> str:
        asked = json.loads(body)
        message = {"role": "user", "content": asked["input"]}
        text = json.dumps({"model": asked["model"], "stream": True, "messages": [message]}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
        name = f"run_{next(numbers)}"
        self._runs[name] = writer
        drain = asyncio.create_task(copy(reader, None))
        self._drains.add(drain)
        drain.add_done_callback(self._drains.discard)
        return name

    async def _splice(self, begun: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        up_writer.write(begun)
        ways = [asyncio.create_task(copy(reader, up_writer)), asyncio.create_task(copy(up_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        up_writer.transport.abort()


async def requests(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """The heads and bodies of a connection's requests."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        yield head, await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> None:
    try:
        while data := await reader.read(262144):
            if writer:
                writer.write(data)
                await writer.drain()
    except ConnectionError:
        pass  # an end like any other


async def main(port: int, upstream_port: int) -> None:
    proxy = Proxy(upstream_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
