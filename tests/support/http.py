"""A plain HTTP/1.1 client on a bare socket, for tests that must see what SDKs hide.

Every request has a connection of its own, and bytes are read only when the test asks for them. So a reader that never
reads is a test that does not ask, and leaving is a call that says how: FIN, RST or half-closed.
"""

import asyncio
import codecs
import json as jsonlib
import random
import re
import socket
import struct
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from holdfast_lab.misbehaving.parsing import ChunkDecoder, HeaderMap
from tests.support.waiting import LONG

LINE_END = re.compile(r"\r\n|\n|\r")


class Incomplete(ConnectionError):
    """The connection ended before the answer did. (A reset is a ConnectionResetError: also a ConnectionError.)"""


@dataclass(frozen=True)
class Frame:
    """One SSE block, or one comment line. Fields are what this very block said: nothing is inherited."""

    kind: Literal["event", "comment"]
    data: str = ""
    id: str | None = None
    event: str | None = None
    retry: str | None = None
    comment: str = ""
    lines: tuple[str, ...] = ()
    at: float = field(default=0.0, compare=False)

    def json(self) -> Any:
        return jsonlib.loads(self.data)


class FrameParser:
    """Bytes in, frames out. Splits lines as the standard says (LF, CRLF, CR and nothing else); UTF-8 must be valid."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._tail = ""
        self._after_cr = False
        self._block: list[str] = []

    @property
    def unfinished(self) -> str:
        """What stands after the last blank line: not empty at the end of a stream that was cut inside a frame."""
        return "\n".join([*self._block, self._tail]) if self._block or self._tail else ""

    def feed(self, data: bytes) -> list[Frame]:
        text = self._decoder.decode(data)
        if not text:
            return []
        if self._after_cr and text[0] == "\n":
            text = text[1:]
        self._after_cr = text.endswith("\r")
        *lines, self._tail = LINE_END.split(self._tail + text)
        return [frame for line in lines if (frame := self._line(line)) is not None]

    def _line(self, line: str) -> Frame | None:
        if line.startswith(":"):
            return Frame("comment", comment=line[1:].removeprefix(" "), lines=(line,), at=time.monotonic())
        if line:
            self._block.append(line)
            return None
        block, self._block = self._block, []
        return self._event(block) if block else None

    @staticmethod
    def _event(block: list[str]) -> Frame:
        data: list[str] = []
        fields: dict[str, str] = {}
        for line in block:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                data.append(value)
            else:
                fields[name] = value
        return Frame(
            "event",
            data="\n".join(data),
            id=fields.get("id"),
            event=fields.get("event"),
            retry=fields.get("retry"),
            lines=tuple(block),
            at=time.monotonic(),
        )


class Response:
    """One answer, on its own connection, read as far as the test asks."""

    status: int
    reason: str
    headers: HeaderMap

    def __init__(self, sock: socket.socket, method: str, timeout: float) -> None:
        self.raw_bytes = bytearray()
        """The body so far, without chunk framing."""
        self.complete = False
        """True once the body has ended as its framing says it must."""
        self.sent_at = time.monotonic()
        self._socket = sock
        self._method = method
        self._timeout = timeout
        self._head_read = False
        self._left = False
        self._stopped_reading = False
        self._receiving: asyncio.Task[bytes] | None = None
        self._chunks: ChunkDecoder | None = None
        self._length: int | None = None
        self._parser = FrameParser()
        self._frames: deque[Frame] = deque()
        self._parsed = 0

    @property
    def port(self) -> int:
        """The port of our side of the connection."""
        return int(self._socket.getsockname()[1])

    # -- reading

    async def head(self) -> Self:
        """Wait for status and headers. Informational answers (1xx) are passed over."""
        if self._head_read:
            return self
        buffer = bytearray()
        while not self._head_read:
            while (end := buffer.find(b"\r\n\r\n")) < 0:
                data = await self._receive()
                if not data:
                    raise Incomplete(f"the connection ended before the headers did: {bytes(buffer[:200])!r}")
                buffer += data
            head = bytes(buffer[:end])
            del buffer[: end + 4]
            self._read_head(head)
        self._add(bytes(buffer))
        return self

    async def body(self) -> bytes:
        """The whole body."""
        await self.head()
        while await self._more():
            pass
        return bytes(self.raw_bytes)

    async def text(self) -> str:
        return (await self.body()).decode()

    async def json(self) -> Any:
        return jsonlib.loads(await self.body())

    async def events(self, *, comments: bool = True) -> AsyncGenerator[Frame]:
        """Frames as they come, to the end of the answer. May be left and taken up again: no frame is lost."""
        while (frame := await self.next_event(comments=comments)) is not None:
            yield frame

    async def next_event(self, *, comments: bool = False) -> Frame | None:
        """The next frame; None at the proper end of the answer; Incomplete where the connection just broke off."""
        await self.head()
        while True:
            self._parse()
            while self._frames:
                frame = self._frames.popleft()
                if comments or frame.kind == "event":
                    return frame
            if not await self._more():
                return None

    async def all_events(self, *, comments: bool = False) -> list[Frame]:
        return [frame async for frame in self.events(comments=comments)]

    async def lines(self) -> AsyncGenerator[str]:
        """Lines as they come, to the end of the answer."""
        await self.head()
        read, going_on = 0, True
        while going_on:
            going_on = await self._more()
            *whole, _ = self.raw_bytes[read:].split(b"\n")
            for line in whole:
                read += len(line) + 1
                yield line.decode()

    @property
    def unfinished(self) -> str:
        """What came after the last whole frame."""
        return self._parser.unfinished

    # -- leaving

    def leave(self, how: Literal["fin", "rst", "half"] = "fin") -> None:
        """Go away now. After "half" our side is shut and the answer can still be read."""
        if self._socket.fileno() < 0:
            return
        if how == "half":
            self._socket.shutdown(socket.SHUT_WR)
            return
        self._left = True
        if how == "rst":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            self._discard_unread()
        self.close()

    def stop_reading(self) -> None:
        """Stay connected and never read again: the server's sends pile up in the kernel, then in the server."""
        self._stopped_reading = True

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        if self._receiving is not None:
            # Taken off the loop before the descriptor's number can belong to another socket.
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._receiving.cancel()
        self._socket.close()

    async def write(self, data: bytes) -> None:
        """Send more bytes of the request: for slow and broken ones."""
        async with asyncio.timeout(self._timeout):
            await asyncio.get_running_loop().sock_sendall(self._socket, data)

    # -- inside

    def _discard_unread(self) -> None:
        """A close with unread bytes is a reset, whatever was meant."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(65536):
                pass
        except OSError:
            pass  # nothing more to read, or the other side was faster

    def _read_head(self, head: bytes) -> None:
        status_line, *lines = head.split(b"\r\n")
        match = re.fullmatch(rb"HTTP/1\.[01] (\d{3})(?: (.*))?", status_line)
        if match is None:
            raise ValueError(f"not a status line: {status_line[:100]!r}")
        self.status, self.reason = int(match[1]), (match[2] or b"").decode("latin-1")
        self.headers = HeaderMap.parse(lines)
        self._head_read = self.status >= 200
        if self._method == "HEAD" or self.status in (204, 304):
            self._length = 0
        elif self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunks = ChunkDecoder()
        elif "content-length" in self.headers:
            self._length = int(self.headers["content-length"])

    def _add(self, data: bytes) -> None:
        if self._chunks is not None:
            self.raw_bytes += self._chunks.feed(data)
            self.complete = self._chunks.done
        else:
            self.raw_bytes += data
            self.complete = self._length is not None and len(self.raw_bytes) >= self._length
        if self.complete:
            self.close()

    async def _more(self) -> bool:
        """Read once. False where the body is complete."""
        if self.complete:
            return False
        data = await self._receive()
        if data:
            self._add(data)
        elif self._chunks is None and self._length is None:
            self.complete = True
            self.close()
        else:
            raise Incomplete(f"the connection ended inside the answer, after {len(self.raw_bytes)} bytes of body")
        return True

    async def _receive(self) -> bytes:
        if self._stopped_reading:
            raise RuntimeError("this response was told to stop reading")
        if self._left or self._socket.fileno() < 0:
            raise Incomplete("this side has left")
        self._receiving = asyncio.create_task(asyncio.get_running_loop().sock_recv(self._socket, 65536))
        try:
            async with asyncio.timeout(self._timeout):
                return await self._receiving
        except asyncio.CancelledError:
            if self._left:
                raise Incomplete("this side has left") from None
            raise
        finally:
            self._receiving = None

    def _parse(self) -> None:
        if self._parsed < len(self.raw_bytes):
            self._frames.extend(self._parser.feed(bytes(self.raw_bytes[self._parsed :])))
            self._parsed = len(self.raw_bytes)


class Client:
    """`async with Client(url) as c: r = await c.request("GET", "/health")`. Leaving the block closes what is open."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = LONG,
        receive_buffer: int | None = None,
        ports: Sequence[int] = (),
    ) -> None:
        """`ports` are those of equal nodes: each request goes to a random one of them."""
        parts = urlsplit(base_url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"only plain http is spoken here: {base_url!r}")
        self.host, self.port = parts.hostname, parts.port or 80
        self._ports = list(ports) or [self.port]
        self._netloc = parts.netloc
        self._prefix = parts.path.rstrip("/")
        self._headers = dict(headers or {})
        self._timeout = timeout
        self._receive_buffer = receive_buffer
        self._responses: list[Response] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for response in self._responses:
            response.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        pieces: Sequence[bytes] | None = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        receive_buffer: int | None = None,
    ) -> Response:
        """Send, and wait for status and headers."""
        response = await self.send(
            method,
            path,
            json=json,
            body=body,
            pieces=pieces,
            headers=headers,
            timeout=timeout,
            receive_buffer=receive_buffer,
        )
        return await response.head()

    async def get(self, path: str, **options: Any) -> Response:
        return await self.request("GET", path, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> Response:
        return await self.request("POST", path, json=json, **options)

    async def send(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        pieces: Sequence[bytes] | None = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        receive_buffer: int | None = None,
    ) -> Response:
        """Send and do not wait: for those who leave before the first byte. `pieces` makes the body chunked.

        A header given as None is left out, the ones this client sets (Host, Content-Length) too.
        """
        own: dict[str, str | None] = {"Host": self._netloc}
        if json is not None:
            body = jsonlib.dumps(json).encode()
            own["Content-Type"] = "application/json"
        if pieces is not None:
            own["Transfer-Encoding"] = "chunked"
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"
        elif body is not None or method in ("POST", "PUT", "PATCH"):
            own["Content-Length"] = str(len(body or b""))
        merged = _merge(own, self._headers, headers or {})
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in merged.items())]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        return await self.send_raw(head + (body or b""), method=method, timeout=timeout, receive_buffer=receive_buffer)

    async def send_raw(
        self, data: bytes, *, method: str = "GET", timeout: float | None = None, receive_buffer: int | None = None
    ) -> Response:
        """Connect and write exactly these bytes; more can follow by `response.write`."""
        timeout = timeout or self._timeout
        sock = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if (size := receive_buffer or self._receive_buffer) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        response = Response(sock, method, timeout)
        self._responses.append(response)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().sock_connect(sock, (self.host, random.choice(self._ports)))
            await response.write(data)
        except BaseException:
            response.close()
            raise
        response.sent_at = time.monotonic()
        return response


def _merge(*layers: Mapping[str, str | None]) -> dict[str, str]:
    """Later layers win, whatever the case of the name; None takes a header away."""
    merged: dict[str, tuple[str, str | None]] = {}
    for layer in layers:
        for name, value in layer.items():
            merged[name.lower()] = (name, value)
    return {name: value for name, value in merged.values() if value is not None}
