"""A connection of our server without a socket, and h11 as a second opinion on where each request ends."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import h11
import uvicorn
from uvicorn.server import ServerState

from holdfast.server.kit.http.connections import ConnectionLimits
from holdfast.server.kit.http.http_protocol import Protocol
from tests.support.served import protocol


class Request(NamedTuple):
    """One request as a server understood it."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        super().__init__({"peername": (address, 40000), "sockname": ("127.0.0.1", 8787)})
        self.written = b""
        self.is_paused = self.is_closed = False
        self.closed_or_ended = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed_or_ended.set()

    def close(self) -> None:
        self.is_closed = True
        self.closed_or_ended.set()

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Connected:
    """One connection to an app that answers each request with its number, and remembers all of them."""

    def __init__(
        self,
        limits: ConnectionLimits | None = None,
        address: str = "127.0.0.1",
        *,
        reads_bodies: bool = True,
        before_answering: Callable[[], Awaitable[object]] | None = None,
        make: Callable[..., Protocol] | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self.wire = Wire(address)
        self._address = address
        self._reads_bodies = reads_bodies
        self._before_answering = before_answering
        self._make = make or protocol(limits)
        self._state = ServerState()
        config = uvicorn.Config(self._app, lifespan="off", log_config=None, interface="asgi3", proxy_headers=False)
        self.protocol = self._make(
            config=config, server_state=self._state, app_state={}, _loop=asyncio.get_running_loop()
        )
        self.protocol.connection_made(self.wire)

    def another(self) -> "Connected":
        """Open another connection to the same server."""
        return Connected(address=self._address, make=self._make)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body, is_all = b"", not self._reads_bodies
        while not is_all:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            is_all = not message["more_body"]
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        self.requests.append(Request(scope["method"].encode(), target, _named(scope["headers"]), body))
        if self._before_answering is not None:
            await self._before_answering()
        answer = b"answer %d" % len(self.requests)
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]}
        )
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer})

    async def send(self, pieces: Iterable[bytes], *, wait: bool = True) -> None:
        """Send the pieces, each when the server reads, and wait until all that is complete was answered."""
        for piece in pieces:
            while self.wire.is_paused and not self.wire.is_closed:  # noqa: ASYNC110 - a turn of the loop is all that it takes
                await asyncio.sleep(0)
            if self.wire.is_closed:
                return
            self.protocol.data_received(piece)
            await asyncio.sleep(0)
        while wait and self._state.tasks and not self._waits_for_more():  # noqa: ASYNC110
            await asyncio.sleep(0)

    def _waits_for_more(self) -> bool:
        cycle = self.protocol.cycle
        return not self.protocol.pipeline and cycle.more_body and not cycle.message_event.is_set()

    async def leave(self) -> None:
        """Close the connection, and wait for the end of what is left of it."""
        self.protocol.connection_lost(None)
        while self._state.tasks:  # noqa: ASYNC110
            await asyncio.sleep(0)


def _named(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """Headers without the offer of another protocol, which our server leaves out, and without outer blanks."""
    return tuple((name, value.strip(b" \t")) for name, value in headers if name != b"upgrade")


def understood_by_h11(stream: bytes) -> list[Request]:
    """Parse a stream of requests with h11, as far as it is one. Each offer of another protocol is declined."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(stream)
    requests: list[Request] = []
    try:
        while (request := _next(connection)) is not None:
            requests.append(request)
            if connection.our_state is h11.MUST_CLOSE or connection.their_state is h11.MUST_CLOSE:
                break
            connection.start_next_cycle()
    except h11.ProtocolError:
        pass
    return requests


def _next(connection: h11.Connection) -> Request | None:
    head, body = None, b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            break
        else:
            return None
    assert head is not None
    status = 400 if head.method == b"CONNECT" else 200
    connection.send(h11.Response(status_code=status, headers=[(b"content-length", b"0")]))
    connection.send(h11.EndOfMessage())
    return Request(head.method, head.target, _named(head.headers), body)


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    """Cut a stream into pieces."""
    edges = sorted({place for place in places if 0 < place < len(stream)})
    return [stream[start:end] for start, end in zip([0, *edges], [*edges, len(stream)], strict=True)]
