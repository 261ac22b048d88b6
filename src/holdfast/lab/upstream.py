"""The lab's upstream: an OpenAI-compatible server on plain sockets that misbehaves as its caller's prompt says.

It reads its connections while it plays, so it sees a client leave at once, in silence too. Every request with a tag is
recorded by the tag's word. A request without one (a title, a check of health) gets a short whole answer.

One task for each connection, and one more while a script is played.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from .scripts import (
    Call,
    Close,
    Done,
    Error,
    Finish,
    Garbage,
    Hang,
    Pause,
    Say,
    Script,
    Status,
    Step,
    Tag,
    Tokens,
    script_named,
    tagged,
)

__all__ = ["Request", "Upstream"]

DEFAULT: Script = (Say("Hello."), Finish(), Done())
HEALTH = ("/health", "/health_generate", "/model_info", "/server_info")
"""What routers ask before they believe that an upstream is there; any object will do."""
ERRORS = {400: "invalid_value", 401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class Request(msgspec.Struct):
    """One request as the upstream saw it. Times are `time.monotonic()`."""

    tag: Tag
    stream: bool
    received_at: float
    sent: int = 0
    """Bytes that were written so far."""
    finished: bool = False
    """The script was played to its end."""
    left_at: float | None = None
    """When the client went away, before that end."""


class Upstream:
    """`async with Upstream(port=9100) as upstream:` listens until the block is left."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, models: tuple[str, ...] = ("m",)) -> None:
        self.host, self.port, self.models = host, port, models
        self.requests: defaultdict[str, list[Request]] = defaultdict(list)
        self._changed = asyncio.Condition()
        self.refusing = False
        self._server: asyncio.Server | None = None
        self._placeholder: socket.socket | None = None
        self._connections: set[_Connection] = set()

    @property
    def base_url(self) -> str:
        """What the judged server must have as the address of its provider."""
        return f"http://{self.host}:{self.port}/v1"

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [connection.task for connection in self._connections]
        self.refuse()
        if placeholder := self._release():
            placeholder.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def accept(self) -> None:
        """Listen: the first time, and after `refuse`."""
        bound = self._release() or self._bound()
        self.port = bound.getsockname()[1]
        self.refusing = False
        self._server = await asyncio.start_server(self._connected, sock=bound)

    def refuse(self) -> None:
        """Refuse connections from now on, and close those that wait for another request. The port stays ours."""
        self.refusing = True
        if self._server is not None:
            self._server.close()
            self._server = None
            self._placeholder = self._bound()
        for connection in list(self._connections):
            if connection.request is None:
                connection.reset()

    async def seen(self, tag: Tag, timeout: float) -> Request:
        """Wait for the first request of a tag."""
        async with asyncio.timeout(timeout):
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self.requests[tag.token]))
        return self.requests[tag.token][0]

    async def all_left(self, tag: Tag, timeout: float) -> float | None:
        """Wait until no request of a tag is open, and return when the last went; None where one stays open."""

        def over() -> bool:
            return all(request.left_at or request.finished for request in self.requests[tag.token])

        try:
            async with asyncio.timeout(timeout):
                async with self._changed:
                    await self._changed.wait_for(over)
        except TimeoutError:
            return None
        return max((request.left_at or request.received_at for request in self.requests[tag.token]), default=None)

    async def changed(self) -> None:
        """Wake whoever waits for a request to come or to go."""
        async with self._changed:
            self._changed.notify_all()

    def _bound(self) -> socket.socket:
        """Return a socket that holds the port: while it does not listen, connections to it are refused."""
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self.host, self.port))
        except OSError:
            bound.close()
            raise
        return bound

    def _release(self) -> socket.socket | None:
        placeholder, self._placeholder = self._placeholder, None
        return placeholder

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.serve()
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # whoever sends half a request, or none, is not answered
        finally:
            self._connections.discard(connection)
            writer.transport.abort()


class _Connection:
    """One client: its requests, one after the other."""

    def __init__(self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.request: Request | None = None
        self._upstream, self._reader, self._writer = upstream, reader, writer

    async def serve(self) -> None:
        while True:
            method, path, headers = await self._head()
            if self._upstream.refusing:  # it was kept alive, or in the queue, when connections came to be refused
                self.reset()
                return
            body = await self._body(headers)
            if not await self._answer(method, path, body):
                return

    def reset(self) -> None:
        sock = self._writer.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _head(self) -> tuple[str, str, dict[str, str]]:
        raw = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").strip().split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        return method, path.partition("?")[0], {name.lower(): value.strip() for name, _, value in pairs}

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int((await self._reader.readline()).partition(b";")[0], 16):
            body += await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()
        return body

    async def _answer(self, method: str, path: str, body: bytes) -> bool:
        """Answer one request; tell whether another may follow on this connection."""
        if method == "POST" and path.endswith("/chat/completions"):
            return await self._complete(body)
        known = method == "GET" and path.endswith(("/models", *HEALTH))
        listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in self._upstream.models]}
        answer = listed if known else {"error": {"message": f"Unknown request URL: {path}", "code": "unknown_url"}}
        await _Stage(self._writer, stream=False).respond(200 if known else 404, answer)
        return True

    async def _complete(self, body: bytes) -> bool:
        asked = msgspec.json.decode(body)
        tag = tagged(body) or Tag("default", "")
        self.request = Request(tag, asked.get("stream") is True, time.monotonic())
        self._upstream.requests[tag.token].append(self.request)
        await self._upstream.changed()
        stage = _Stage(self._writer, stream=self.request.stream, model=str(asked.get("model")), request=self.request)
        try:
            return await self._play(stage, script_named(tag.script) or DEFAULT)
        finally:
            if not self.request.finished:
                self.request.left_at = time.monotonic()
            self.request = None
            await self._upstream.changed()

    async def _play(self, stage: _Stage, script: Script) -> bool:
        """Play a script until its end, or until the client leaves."""
        playing = asyncio.ensure_future(stage.play(script))
        leaving = asyncio.ensure_future(self._reader.read(1))
        try:
            await asyncio.wait({playing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                return False
            how = playing.result()
            if self.request is not None:
                self.request.finished = True
            if how == "reset":
                self.reset()
            return how is None and not leaving.done()
        finally:
            for task in (playing, leaving):
                task.cancel()
            await asyncio.gather(playing, leaving, return_exceptions=True)


class _Stage:
    """One answer being written, as a stream or as one object, as it was asked for."""

    def __init__(
        self, writer: asyncio.StreamWriter, *, stream: bool, model: str = "m", request: Request | None = None
    ) -> None:
        self._writer, self._stream, self._request = writer, stream, request
        self._envelope = {"id": "chatcmpl-lab", "created": 1_700_000_000, "model": model}
        self._begun = False
        self._text = ""
        self._call: dict[str, Any] | None = None
        self._finish: str | None = None
        self._broken = False

    async def play(self, script: Script) -> Literal["reset", "unclean", "clean"] | None:
        """Play a script, and return how the connection is to end where it must."""
        for step in script:
            if isinstance(step, Close):
                await self._close(step.how)
                return step.how
            if isinstance(step, Status):
                await self._status(step)
                return None
            if isinstance(step, Error) and not self._stream:
                await self.respond(200, _error(500))
                return None
            await (self._streamed(step) if self._stream else self._folded(step))
        await self._end()
        return None

    async def respond(self, status: int, body: Any, kind: str = "application/json") -> None:
        """Write a whole answer."""
        data = body if isinstance(body, bytes) else _json(body)
        await self._write(_head(status, kind, {"Content-Length": str(len(data))}) + data)

    async def _status(self, step: Status) -> None:
        if step.html:
            await self.respond(step.code, b"<!doctype html><title>Sign in</title>", "text/html")
        else:
            await self.respond(step.code, _error(step.code))

    # A stream.

    async def _streamed(self, step: Step) -> None:
        match step:
            case Say(text):
                await self._delta({"content": text})
            case Tokens(n, every, pad):
                await self._tokens(n, every, "x" * pad)
            case Call(arguments, name):
                function = {"arguments": arguments} | ({"name": name} if name else {})
                first = {"id": "call_lab", "type": "function"} if name else {}
                await self._delta({"tool_calls": [{"index": 0, "function": function, **first}]})
            case Finish(reason):
                await self._delta({}, reason)
            case Done():
                await self._event(b"[DONE]")
            case Error(event):
                await self._event(_json(_error(500)), b"event: error\n" if event else b"")
            case Garbage():
                await self._event(b'{"choices": [{"del')
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Hang():
                await asyncio.get_running_loop().create_future()

    async def _tokens(self, n: int, every: float, pad: str) -> None:
        beat = time.monotonic()
        for number in range(n):
            await self._delta({"content": f"t{number} {pad}"})
            if every:
                beat += every
                await asyncio.sleep(max(0.0, beat - time.monotonic()))

    async def _delta(self, delta: dict[str, Any], finish: str | None = None) -> None:
        if not self._begun:
            await self._chunk({"role": "assistant", "content": ""}, None)
        await self._chunk(delta, finish)

    async def _chunk(self, delta: dict[str, Any], finish: str | None) -> None:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        await self._event(_json(self._envelope | {"object": "chat.completion.chunk", "choices": choices}))

    async def _event(self, data: bytes, before: bytes = b"") -> None:
        await self._begin()
        block = before + b"data: " + data + b"\n\n"
        await self._write(b"%x\r\n%b\r\n" % (len(block), block))

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            await self._write(_head(200, "text/event-stream", {"Transfer-Encoding": "chunked"}))

    # One object.

    async def _folded(self, step: Step) -> None:
        match step:
            case Say(text):
                self._text += text
            case Tokens(n, every, pad):
                self._text += "".join(f"t{number} {'x' * pad}" for number in range(n))
                await asyncio.sleep(n * every)
            case Call(arguments, name):
                self._call = self._call or {"name": name, "arguments": ""}
                self._call["arguments"] += arguments
            case Finish(reason):
                self._finish = reason
            case Garbage():
                self._broken = True
            case Hang():
                await asyncio.get_running_loop().create_future()

    def _object(self) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": self._text}
        if self._call is not None:
            message["tool_calls"] = [{"id": "call_lab", "type": "function", "function": self._call}]
        choices = [{"index": 0, "message": message, "finish_reason": self._finish}]
        usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
        whole = _json(self._envelope | {"object": "chat.completion", "choices": choices, "usage": usage})
        return whole[:-20] if self._broken else whole

    # The end.

    async def _end(self) -> None:
        if self._stream:
            await self._begin()
            await self._write(b"0\r\n\r\n")
        else:
            await self.respond(200, self._object())

    async def _close(self, how: Literal["reset", "unclean", "clean"]) -> None:
        """Leave the answer unfinished: a stream after what it said, an object in its middle."""
        if self._stream:
            await self._begin()
            if how == "clean":
                await self._write(b"0\r\n\r\n")
        else:
            whole = self._object()
            head = _head(200, "application/json", {"Content-Length": str(len(whole))})
            await self._write(head + whole[: len(whole) // 2])

    async def _write(self, data: bytes) -> None:
        if self._request is not None:
            self._request.sent += len(data)
        self._writer.write(data)
        await self._writer.drain()


def _head(status: int, kind: str, headers: Mapping[str, str]) -> bytes:
    reason = {200: "OK"}.get(status, "Error")
    given = {"Content-Type": kind, **headers}
    return "\r\n".join([f"HTTP/1.1 {status} {reason}", *(f"{k}: {v}" for k, v in given.items()), "", ""]).encode()


def _error(code: int) -> dict[str, Any]:
    name = ERRORS.get(code, "server_error")
    return {"error": {"message": f"The lab's upstream says {code}.", "type": name, "code": name, "param": None}}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
