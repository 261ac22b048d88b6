"""One request as the upstream saw it, and the answer that is written to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, Protocol
from urllib.parse import parse_qs

from .parsing import HeaderMap
from .steps import Pace, Script, Style, as_json, choice, sliced

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
LONG = 120.0
"""Seconds that a test waits for what must happen."""
FALLBACK_KEY = "sk-upstream-0123456789abcdef0123456789abcdef"
"""The secret in error bodies if the caller sent no key."""
SEPARATE_TURNS = 3
"""Loop turns between two writes that must not be read as one: a reader in the same loop needs two of them."""


@dataclass(eq=False)
class Recorded:
    """One request as U saw it. Times are `time.monotonic()`, which is the same clock in every process."""

    number: int
    method: str
    path: str
    headers: HeaderMap
    raw: bytes
    connection: int
    version: str = "HTTP/1.1"
    body: Any = None
    received_at: float = field(default_factory=time.monotonic)
    first_byte_at: float | None = None
    closed_at: float | None = None
    closed_by: Literal["client", "upstream"] | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    finished: bool = False
    bytes_sent: int = 0

    def __post_init__(self) -> None:
        try:
            self.body = json.loads(self.raw) if self.raw else None
        except ValueError:
            self.body = None

    @property
    def model(self) -> str:
        return str(self.body.get("model", "")) if isinstance(self.body, dict) else ""

    @property
    def stream(self) -> bool:
        asked = isinstance(self.body, dict) and self.body.get("stream") is True
        return asked or (self.method == "GET" and self.path.startswith("/v1/stream?"))

    @property
    def wants_usage(self) -> bool:
        """A whole object always has its usage; a stream has it only if that was asked for."""
        options = self.body.get("stream_options") if isinstance(self.body, dict) else None
        return not self.stream or (isinstance(options, dict) and options.get("include_usage") is True)

    def query(self, name: str) -> str:
        return parse_qs(self.path.partition("?")[2]).get(name, [""])[0]

    @property
    def key(self) -> str:
        """The secret that the caller used."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ").strip()
        named = [self.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key", "api-key")]
        return bearer or next(filter(None, named), FALLBACK_KEY)

    @property
    def left_early(self) -> bool:
        """The client went away before the script was played to its end."""
        return self.closed_by == "client" and not self.finished

    async def wait_closed(self, timeout: float = LONG) -> float:
        """Wait until the connection is gone; the moment at which it went."""
        try:
            async with asyncio.timeout(timeout):
                await self.closed.wait()
        except TimeoutError:
            raise TimeoutError(f"after {timeout} s the connection of request {self.number} is still open") from None
        assert self.closed_at is not None
        return self.closed_at

    def mark_closed(self, by: Literal["client", "upstream"]) -> None:
        if self.closed_at is None:
            self.closed_at, self.closed_by = time.monotonic(), by
            self.closed.set()

    def summary(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "path": self.path,
            "model": self.model,
            "body": self.body,
            "connection": self.connection,
            "received_at": self.received_at,
            "first_byte_at": self.first_byte_at,
            "closed_at": self.closed_at,
            "closed_by": self.closed_by,
            "finished": self.finished,
            "bytes_sent": self.bytes_sent,
            "open": self.closed_at is None,
        }


class Gates:
    """The places where scripts wait for the test, by name."""

    def __init__(self) -> None:
        self._open: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def open(self, name: str) -> None:
        """Let pass the scripts that wait there, and those that come."""
        self._open[name].set()

    def shut(self, name: str) -> None:
        """Hold scripts again. None has reached the gate."""
        self._open[name].clear()
        self._reached[name].clear()

    def shut_all(self) -> None:
        """Shut every gate."""
        for name in self._open:
            self.shut(name)

    async def pass_through(self, name: str) -> None:
        """Wait there, as a script."""
        self._reached[name].set()
        await self._open[name].wait()

    async def reached(self, name: str) -> None:
        """Wait until a script stands there."""
        await self._reached[name].wait()


class Peer(Protocol):
    """The connection that an answer is written to."""

    async def write(self, data: bytes) -> None:
        """Write, and wait until there is room for more."""

    def reset(self) -> None:
        """End the connection with RST."""

    def finish(self, last: bytes = b"") -> None:
        """End the connection with FIN, in the packet of the last bytes if it can be."""


class Exchange:
    """One request being answered: what the steps write with.

    A caller that did not ask for a stream gets the same script folded into one `chat.completion` at its end; silences,
    errors and broken connections stay what they are.
    """

    def __init__(self, gates: Gates, peer: Peer, recorded: Recorded) -> None:
        self.recorded = recorded
        self.style = Style()
        self.over = False
        """The connection has been ended by the script."""
        self._gates = gates
        self._peer = peer
        self._framing: Literal["chunked", "close"] | int | None = None
        self._body_sent = 0
        self._off_the_rails = False
        self._folded: list[dict[str, Any]] = []
        self._envelope = {
            "id": f"chatcmpl-u{recorded.number}",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": recorded.model or "m",
        }
        self._before_text = as_json(self._envelope)[:-1] + b',"choices":[{"index":0,"delta":{"content":'
        self._after_text = b'},"finish_reason":null}]}'

    @property
    def keep_alive(self) -> bool:
        asked = self.recorded.headers.get("connection", "").lower()
        wanted = asked == "keep-alive" if self.recorded.version == "HTTP/1.0" else asked != "close"
        whole = self._framing == "chunked" or self._framing == self._body_sent
        return wanted and whole and not self.over and not self._off_the_rails

    async def play(self, script: Script) -> None:
        for step in script:
            await step.play(self)
            if self.over:
                break
        else:
            await self._end()
        self.recorded.finished = True

    async def _end(self) -> None:
        if self._is_folded:
            if self._framing is None:
                await self.respond(200, fold(self._envelope, self._folded), {})
            elif self._folded:
                await self.body(as_json(fold(self._envelope, self._folded)))
        await self.last_chunk()

    @property
    def _is_folded(self) -> bool:
        """Nothing of the one object that was asked for is sent yet."""
        return not self.recorded.stream and self._body_sent == 0 and not self._off_the_rails

    async def _tear(self) -> None:
        """Send one half of the object that is left unfinished."""
        if self._is_folded and self._folded:
            whole = as_json(fold(self._envelope, self._folded))
            if self._framing is None:
                await self.head(200, {}, len(whole))
            await self.body(whole[: len(whole) // 2])

    # -- HTTP

    async def wire(self, data: bytes) -> None:
        self._off_the_rails = True
        await self._write(data)

    async def head(
        self, status: int, headers: Mapping[str, str], framing: Literal["chunked", "close"] | int, body: bytes = b""
    ) -> None:
        if self._framing is not None:
            raise ValueError("a script sends its headers once")
        if framing == "chunked" and self.recorded.version == "HTTP/1.0":
            framing = "close"
        self._framing = framing
        kind = "text/event-stream; charset=utf-8" if self.recorded.stream else "application/json"
        given = {"Content-Type": kind, "x-request-id": f"req_u{self.recorded.number}"} | dict(headers)
        if framing == "chunked":
            given["Transfer-Encoding"] = "chunked"
        elif framing == "close":
            given["Connection"] = "close"
        else:
            given["Content-Length"] = str(framing)
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Unknown')}", *(f"{k}: {v}" for k, v in given.items())]
        self._body_sent += len(body)
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def respond(self, status: int, body: dict[str, Any] | str | bytes, headers: Mapping[str, str]) -> None:
        data = self._fill(as_json(body) if isinstance(body, dict) else body.encode() if isinstance(body, str) else body)
        await self.head(status, {"Content-Type": "application/json"} | dict(headers), len(data), data)

    async def body(self, data: bytes) -> None:
        if self._framing is None:
            await self.head(200, {}, "chunked")
        self._body_sent += len(data)
        await self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._framing == "chunked" and data else data)

    async def pieces(self, pieces: Sequence[bytes], every: float) -> None:
        pace = Pace(every)
        for piece in pieces:
            await self.body(piece)
            await pace.next()
            for _ in range(SEPARATE_TURNS):
                await asyncio.sleep(0)

    async def last_chunk(self) -> None:
        if last := self._last_chunk():
            await self._write(last)

    def _last_chunk(self) -> bytes:
        return b"0\r\n\r\n" if self._framing == "chunked" and not self._off_the_rails else b""

    async def cut(self) -> None:
        """Reset the connection, in the middle of what was asked for as one object."""
        await self._tear()
        self.over = True
        self._peer.reset()

    async def eof(self, clean: bool) -> None:
        """Close the connection: with the last chunk, or in the middle.

        A client that had read the last chunk before the end of the connection would use it for its next request.
        """
        if not clean:
            await self._tear()
        self.over = True
        self._peer.finish(self._last_chunk() if clean else b"")

    # -- the dialect

    async def text(self, text: str) -> None:
        if self.recorded.stream:
            await self.event(self._before_text + as_json(text) + self._after_text)
        else:
            self._folded.append(choice({"content": text}))

    async def chunk(self, data: dict[str, Any]) -> None:
        if self.recorded.stream:
            await self.event(as_json(self._envelope | data))
        else:
            self._folded.append(data)

    async def error(self, error: dict[str, Any], event: str | None) -> None:
        if self.recorded.stream:
            await self.event(self._fill(as_json({"error": error})), event)
        else:
            await self.body(self._fill(as_json({"error": error})))

    async def event(self, data: bytes, event: str | None = None) -> None:
        if not self.recorded.stream:
            return
        block = self.style.frame(data, event)
        if self.style.slice is None:
            await self.body(block)
        else:
            await self.pieces(sliced(block, self.style.slice), self.style.every)

    async def gate(self, name: str) -> None:
        """Wait until the test opens the gate."""
        await self._gates.pass_through(name)

    def _fill(self, data: bytes) -> bytes:
        return data.replace(b"$KEY", self.recorded.key.encode()).replace(b"$MODEL", self.recorded.model.encode())

    async def _write(self, data: bytes) -> None:
        if self.recorded.first_byte_at is None:
            self.recorded.first_byte_at = time.monotonic()
        self.recorded.bytes_sent += len(data)
        await self._peer.write(data)


def fold(envelope: dict[str, Any], chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The chunks of a stream as the one object that a caller without `stream` gets."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    folded = envelope | {"object": "chat.completion"}
    finish = None
    for chunk in chunks:
        if chunk.get("usage"):
            folded["usage"] = chunk["usage"]
        for one in chunk.get("choices") or []:
            finish = finish or one.get("finish_reason")
            for name, value in (one.get("delta") or {}).items():
                if name == "tool_calls":
                    _fold_calls(calls, value)
                elif name != "role" and value:
                    message[name] = message.get(name, "") + value
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": list(calls.values())}
    return folded | {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def _fold_calls(calls: dict[int, dict[str, Any]], deltas: Sequence[dict[str, Any]]) -> None:
    for delta in deltas:
        empty = {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
        call = calls.setdefault(delta.get("index", 0), empty)
        call["id"] = call["id"] or delta.get("id")
        for name, value in delta.get("function", {}).items():
            call["function"][name] += value
