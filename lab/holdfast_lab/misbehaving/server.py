"""The misbehaving upstream: an OpenAI-dialect server on raw sockets that can do every wrong thing.

The script of a request is the first of these that exists:

1. the oldest one that was given by `up.enqueue(script)`: for one request;
2. `up.models[model]`, for each request for that model; a function there is given the request and returns a script;
3. a name that needs no registration: `echo:<text>`, `tokens:<n>:<delay ms>`, `end:<name in ENDINGS or ODDITIES>`,
   `silent`, `hang-after:<n>`;
4. `up.script`, for all the others.

It reads its sockets while it plays, so it notices at once that a client leaves, in silence and in pauses too. A
connection costs one protocol object, and one task while a script is played.
"""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

from .endings import TEXT, answer, named
from .exchange import LONG, Exchange, Gates, Recorded
from .parsing import ParsedRequest, RequestParser
from .steps import Script, Status

COMPLETIONS = (
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/moderations",
    "/v1/images/*",
    "/v1/audio/*",
    "/v1beta/models/*:streamGenerateContent",
    "/api/chat",
    "/model/*/converse-stream",
    "*/openai/deployments/*/chat/completions",
)
"""Paths of completions. Except for chat completions a script must write its frames itself, with `Raw`."""


def is_completion(path: str) -> bool:
    """Tell whether an answer is asked for there."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in COMPLETIONS)


class ScriptedUpstream:
    """`async with Upstream() as up:` listens on a port of its own until the block is left.

    A script that fails by its own fault (and a request that is not HTTP) fails the test when the block is left.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.host, self.port = host, port
        self._tls = tls
        self.script: Script = answer(TEXT) if script is None else script
        self.models: dict[str, Script | Callable[[Recorded], Script]] = {}
        self.listed: list[str] = ["m"]
        """What `GET /v1/models` names, besides the registered models."""
        self.described: dict[str, dict[str, Any]] = {}
        """Further fields of a model in that list, by its name."""
        self.models_script: Script | None = None
        """What `GET /v1/models` does instead, where it must go wrong."""
        self.at: dict[str, Script | Callable[[Recorded], Script]] = {}
        """What is at other places: a script, or a function from the request to one, by `GET /path`."""
        self.named: dict[str, Script] | None = None
        """The answers that `GET /v1/stream` tells again, by name, as llama-server does; None where it knows none."""
        self.ignores_close = False
        """True makes U go on sending after the client's FIN until it is reset; the FIN is recorded all the same."""
        self.requests: list[Recorded] = []
        """Requests for completions: the calls that cost money."""
        self.others: list[Recorded] = []
        """All other requests: models, wrong paths."""
        self.dropped: asyncio.Queue[str] = asyncio.Queue()
        """The names of the answers that it was told to drop."""
        self.errors: list[BaseException] = []
        self._queue: deque[Script] = deque()
        self._arrived: asyncio.Queue[Recorded] = asyncio.Queue()
        self.gates = Gates()
        self.connections: set[Connection] = set()
        self.players: set[asyncio.Task[None]] = set()
        self.connection_numbers = itertools.count(1)
        self.request_numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._placeholder: socket.socket | None = None
        self.is_accepting = False
        self._changed = asyncio.Event()

    @property
    def base_url(self) -> str:
        return f"http{'s' if self._tls else ''}://{self.host}:{self.port}/v1"

    @property
    def open_connections(self) -> int:
        return sum(1 for connection in self.connections if not connection.control)

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_listening()
        for _ in range(5):  # turns of the loop, in which a connection that was just taken becomes one of ours
            await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.reset()
        for connection in list(self.connections):
            await connection.lost.wait()
        if self.players:
            await asyncio.wait(self.players)
        if self.errors and kind is None:
            raise self.errors[0]

    # -- what the test says

    def enqueue(self, *scripts: Script) -> None:
        """Each script is for one request, in order."""
        self._queue.extend(scripts)

    def open(self, name: str = "gate") -> None:
        """Let pass the scripts that stand at the gate, and those that come."""
        self.gates.open(name)

    def shut(self, name: str = "gate") -> None:
        """The gate holds again, and nobody has reached it."""
        self.gates.shut(name)

    async def reached(self, name: str = "gate", timeout: float = LONG) -> None:
        """Wait until a script stands at the gate: all that comes before it has been written."""
        try:
            async with asyncio.timeout(timeout):
                await self.gates.reached(name)
        except TimeoutError:
            raise TimeoutError(f"no script reached the gate {name!r} within {timeout} s") from None

    async def next_request(self, timeout: float = LONG) -> Recorded:
        """The oldest request for a completion that was not given out yet, or the next to come."""
        try:
            async with asyncio.timeout(timeout):
                return await self._arrived.get()
        except TimeoutError:
            raise TimeoutError(f"no request came within {timeout} s") from None

    def refuse(self) -> None:
        """Refuse connections from now on and close idle ones. The port stays ours: `await up.listen()` reopens it."""
        self._stop_listening()
        self._placeholder = self._bound_socket()
        self.drop_idle()

    async def listen(self) -> None:
        if self._placeholder is None:
            self._placeholder = self._bound_socket()
            self.port = self._placeholder.getsockname()[1]
        bound, self._placeholder = self._placeholder, None
        self.is_accepting = True
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), sock=bound, backlog=4096, ssl=self._tls
        )

    def drop_idle(self) -> None:
        """Close the connections that wait for another request, as servers do after a while."""
        for connection in list(self.connections):
            if connection.idle:
                connection.finish()

    def start_over(self) -> None:
        """Drop the scripts that nobody asked for, and shut every gate."""
        self._queue.clear()
        self.gates.shut_all()

    @property
    def waiting(self) -> int:
        """How many scripts nobody has asked for yet."""
        return len(self._queue)

    def forget(self) -> None:
        """Drop the records, for long loads."""
        self.requests.clear()
        self.others.clear()
        self._arrived = asyncio.Queue()

    def changed(self) -> None:
        """Wake those who wait for a request to come or to go."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, is_true: Callable[[], bool], timeout: float) -> None:
        """Wait until something is true of the requests."""
        async with asyncio.timeout(timeout):
            while not is_true():
                await self._changed.wait()

    # -- inside

    def _bound_socket(self) -> socket.socket:
        """A socket that holds the port: without `listen` the kernel refuses connections to it."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else no TCP_NODELAY
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self.host, self.port))
        except OSError:
            sock.close()
            raise
        return sock

    def _stop_listening(self) -> None:
        self.is_accepting = False
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None

    def script_for(self, request: Recorded) -> Script:
        """Return the script that answers a request."""
        match request.method, request.path.partition("?")[0]:
            case method, path if (script := self.at.get(f"{method} {path}")) is not None:
                return script(request) if callable(script) else script
            case "POST", path if is_completion(path):
                return self._completion_script(request)
            case "GET", "/v1/models":
                return self.models_script or [Status(200, self.model_list())]
            case "GET", "/v1/stream" if self.named is not None:
                return self.named.get(request.query("conv_id"), [Status(404)])
            case "DELETE", "/v1/stream" if self.named is not None:
                self.dropped.put_nowait(request.query("conv_id"))
                return [Status(200, {})]
            case "GET", "/_control/requests":
                return [Status(200, {"requests": [recorded.summary() for recorded in self.requests]})]
            case "GET", "/_control/open":
                return [Status(200, {"open": self.open_connections})]
            case "POST", "/_control/gate":
                self.open(request.query("name"))
                return [Status(200, {})]
            case "POST", "/_control/forget":
                self.forget()
                return [Status(200, {})]
        return [Status(404, {"error": {"message": f"Unknown request URL: {request.path}", "code": "unknown_url"}})]

    def _completion_script(self, request: Recorded) -> Script:
        if self._queue:
            return self._queue.popleft()
        if request.model in self.models:
            script = self.models[request.model]
            return script(request) if callable(script) else script
        try:
            return named(request.model) or self.script
        except (KeyError, ValueError):
            return [Status(404)]

    def model_list(self) -> dict[str, Any]:
        """Return what `GET /v1/models` answers."""
        ids = list(dict.fromkeys([*self.listed, *self.models]))
        known = {name: self.described.get(name, {}) for name in ids}
        return {"object": "list", "data": [{"id": id, "object": "model", "owned_by": "u", **known[id]} for id in ids]}

    def record(self, request: Recorded) -> None:
        """Take note of a request."""
        if request.path.startswith("/_control/"):
            return
        if request.method == "POST" and is_completion(request.path.partition("?")[0]):
            self.requests.append(request)
            self._arrived.put_nowait(request)
        else:
            self.others.append(request)


class Connection(asyncio.Protocol):
    """One client connection: reads requests one after the other, and goes on reading while a script is played."""

    _transport: asyncio.Transport

    def __init__(self, up: ScriptedUpstream) -> None:
        self.control = False
        self._up = up
        self._parser = RequestParser()
        self._player: asyncio.Task[None] | None = None
        self._records: list[Recorded] = []
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._ended_by_us = False
        self.lost = asyncio.Event()
        self._number = next(up.connection_numbers)

    @property
    def is_held_back(self) -> bool:
        """The client does not read: nothing more is written."""
        return not self._may_write.is_set()

    @property
    def idle(self) -> bool:
        """No request is being answered."""
        return self._player is None

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._up.connections.add(self)
        if not self._up.is_accepting:
            self.reset()

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        self._next()

    def eof_received(self) -> bool:
        self._mark_closed("client")
        if self._up.ignores_close and self._player is not None:
            return True
        self._transport.abort()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._mark_closed("upstream" if self._ended_by_us else "client")
        self._up.connections.discard(self)
        self.lost.set()
        self._may_write.set()
        if self._player is not None:
            self._player.cancel()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # -- called by the exchange

    async def write(self, data: bytes) -> None:
        """Write, wait until there is room for more, and give the loop a turn, so that a departure is seen."""
        self._transport.write(data)
        await asyncio.sleep(0)
        await self._may_write.wait()

    def reset(self) -> None:
        self._ended_by_us = True
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def finish(self, last: bytes = b"") -> None:
        self._ended_by_us = True
        sock = self._transport.get_extra_info("socket")
        if last and hasattr(socket, "TCP_CORK") and self._transport.can_write_eof():
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # held back until the end of the connection
            self._transport.write(last)
            self._transport.write_eof()
        elif last:
            self._transport.write(last)
        self._transport.close()

    # -- inside

    def _mark_closed(self, by: Literal["client", "upstream"]) -> None:
        for recorded in self._records:
            recorded.mark_closed(by)
        self._up.changed()

    def _next(self) -> None:
        """Start on the next request, where one is complete and none is being answered."""
        if self._player is not None or self._transport.is_closing():
            return
        try:
            parsed = self._parser.take()
        except ValueError as error:
            self._up.errors.append(error)
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.finish()
            return
        if self._parser.wants_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._parser.wants_continue = False
        if parsed is not None:
            self._answer(parsed)

    def _answer(self, parsed: ParsedRequest) -> None:
        recorded = Recorded(
            number=next(self._up.request_numbers),
            method=parsed.method,
            path=parsed.path,
            headers=parsed.headers,
            raw=parsed.body,
            connection=self._number,
            version=parsed.version,
        )
        self.control = self.control or recorded.path.startswith("/_control/")
        self._records.append(recorded)
        self._up.record(recorded)
        self._up.changed()
        script = self._up.script_for(recorded)
        self._player = asyncio.get_running_loop().create_task(self._play(recorded, script))
        self._up.players.add(self._player)
        self._player.add_done_callback(self._played)

    async def _play(self, recorded: Recorded, script: Script) -> None:
        exchange = Exchange(self._up.gates, self, recorded)
        await exchange.play(script)
        if not exchange.keep_alive and not exchange.over:
            self.finish()

    def _played(self, task: asyncio.Task[None]) -> None:
        self._up.players.discard(task)
        self._player = None
        self._up.changed()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._up.errors.append(error)
            self.reset()
        self._next()
