"""U, the misbehaving upstream: an OpenAI-dialect server on raw sockets that can do every wrong thing.

What a request gets is a *script*, a list of steps. The script is the first of these that exists:

1. the oldest one that the test gave by `up.enqueue(script)`: for one request;
2. `up.models[model]`, for each request for that model; a function there is given the request and returns a script;
3. a name that needs no registration: `echo:<text>`, `tokens:<n>:<delay ms>`, `end:<name in ENDINGS or ODDITIES>`,
   `silent`, `hang-after:<n>`;
4. `up.script`, for all the others.

U reads its sockets while it plays, so it notices a client that leaves at once, in silence and in pauses too. A
connection costs one protocol object, and one task while a script is played.

    python -m tests.support.upstream --port 0       # the same as a process of its own: prints "listening on PORT"
"""

import argparse
import asyncio
import gzip
import itertools
import json
import resource
import signal
import socket
import struct
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qs

from tests.support.http import ChunkDecoder, HeaderMap

TEXT = "Héllo wörld 🌊"
"""The visible text of every ending that shows text."""
REASONING = "I wonder."
"""What the endings that think have thought."""
FALLBACK_KEY = "sk-upstream-0123456789abcdef0123456789abcdef"
"""The secret in error bodies where the caller sent no key of its own."""
COMPLETIONS = ("/v1/chat/completions", "/v1/messages")
"""Where an answer is asked for. To the second, Anthropic's, a script must write its events itself, with `Raw`."""
SEPARATE_TURNS = 3
"""Loop turns between two writes that must not be read as one: a reader in the same loop needs two of them."""


# ---------------------------------------------------------------------------------------------------------------------
# Small things


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _json(value: Any) -> bytes:
    """As UTF-8 bytes, so that characters can be split; as escapes where UTF-8 cannot say it (a lone surrogate)."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _sliced(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


# ---------------------------------------------------------------------------------------------------------------------
# Steps


class Step:
    """One thing that the upstream does."""

    async def play(self, out: "Exchange") -> None:
        raise NotImplementedError


Script = Sequence[Step]


@dataclass(frozen=True)
class Status(Step):
    """A whole answer that is no stream. Without a body, the error that OpenAI would send, with the caller's key in it.

    `$KEY` and `$MODEL` in any body are replaced by what the caller sent.
    """

    code: int
    body: dict[str, Any] | str | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    async def play(self, out: "Exchange") -> None:
        await out.respond(self.code, error_body(self.code) if self.body is None else self.body, self.headers)


@dataclass(frozen=True)
class Headers(Step):
    """Status and headers now. Steps that need them send them by themselves where this step is left out.

    `framing` is "chunked", "close" (the body lasts until the connection ends) or a Content-Length, right or wrong.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: Literal["chunked", "close"] | int = "chunked"

    async def play(self, out: "Exchange") -> None:
        await out.head(self.status, self.headers, self.framing)


@dataclass(frozen=True)
class Chunk(Step):
    """Any chunk. `id`, `object`, `created` and `model` are added where it does not have them itself."""

    data: dict[str, Any]

    async def play(self, out: "Exchange") -> None:
        await out.chunk(self.data)


@dataclass(frozen=True)
class Role(Step):
    """The first chunk of an answer."""

    role: str = "assistant"

    async def play(self, out: "Exchange") -> None:
        await out.chunk(_choice({"role": self.role, "content": ""}))


@dataclass(frozen=True)
class Delta(Step):
    """Visible text."""

    text: str

    async def play(self, out: "Exchange") -> None:
        await out.text(self.text)


@dataclass(frozen=True)
class ReasoningDelta(Step):
    """Reasoning in a field of its own."""

    text: str
    field: Literal["reasoning_content", "reasoning"] = "reasoning_content"

    async def play(self, out: "Exchange") -> None:
        await out.chunk(_choice({self.field: self.text}))


@dataclass(frozen=True)
class ToolDelta(Step):
    """A piece of a tool call. What is None is not sent."""

    index: int | None = 0
    id: str | None = None
    name: str | None = None
    arguments: str | None = None

    async def play(self, out: "Exchange") -> None:
        function = {"name": self.name, "arguments": self.arguments}
        call = {
            "index": self.index,
            "id": self.id,
            "type": "function" if self.id is not None else None,
            "function": {name: value for name, value in function.items() if value is not None},
        }
        await out.chunk(_choice({"tool_calls": [{name: value for name, value in call.items() if value is not None}]}))


@dataclass(frozen=True)
class Finish(Step):
    """The chunk that says why."""

    reason: str = "stop"

    async def play(self, out: "Exchange") -> None:
        await out.chunk(_choice({}, self.reason))


@dataclass(frozen=True)
class UsageChunk(Step):
    """Usage in a chunk without choices."""

    prompt: int = 3
    completion: int = 5

    async def play(self, out: "Exchange") -> None:
        total = self.prompt + self.completion
        usage = {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total}
        await out.chunk({"choices": [], "usage": usage})


@dataclass(frozen=True)
class Done(Step):
    """`[DONE]`."""

    async def play(self, out: "Exchange") -> None:
        await out.event(b"[DONE]")


@dataclass(frozen=True)
class InBandError(Step):
    """A data frame `{"error": …}` inside a stream that began with 200."""

    error: dict[str, Any] = field(default_factory=lambda: error_body(500)["error"])

    async def play(self, out: "Exchange") -> None:
        await out.error(self.error, None)


@dataclass(frozen=True)
class EventError(Step):
    """The same as an `event: error` frame."""

    error: dict[str, Any] = field(default_factory=lambda: error_body(500)["error"])

    async def play(self, out: "Exchange") -> None:
        await out.error(self.error, "error")


@dataclass(frozen=True)
class Raw(Step):
    """These bytes of body, in one write (and one HTTP chunk)."""

    data: bytes

    async def play(self, out: "Exchange") -> None:
        await out.body(self.data)


@dataclass(frozen=True)
class Split(Step):
    """These bytes of body in separate writes, split at one offset or at several."""

    data: bytes
    at: int | tuple[int, ...]
    every: float = 0.0

    async def play(self, out: "Exchange") -> None:
        cuts = [0, *((self.at,) if isinstance(self.at, int) else self.at), len(self.data)]
        await out.pieces([self.data[a:b] for a, b in itertools.pairwise(cuts)], self.every)


@dataclass(frozen=True)
class Slices(Step):
    """These bytes of body in separate writes of `size` bytes, `every` seconds apart."""

    data: bytes
    size: int = 1
    every: float = 0.0

    async def play(self, out: "Exchange") -> None:
        await out.pieces(_sliced(self.data, self.size), self.every)


@dataclass(frozen=True)
class Wire(Step):
    """These bytes on the socket, outside of any framing: for broken HTTP. The connection ends with the script."""

    data: bytes

    async def play(self, out: "Exchange") -> None:
        await out.wire(self.data)


@dataclass(frozen=True)
class Style(Step):
    """How the SSE frames that follow are written."""

    newline: str = "\n"
    space: bool = True
    slice: int | None = None
    every: float = 0.0

    async def play(self, out: "Exchange") -> None:
        out.style = self

    def frame(self, data: bytes, event: str | None = None) -> bytes:
        colon, end = (b": " if self.space else b":"), self.newline.encode()
        head = b"event" + colon + event.encode() + end if event else b""
        return head + b"data" + colon + data + end + end


@dataclass(frozen=True)
class Pause(Step):
    """Nothing for a while."""

    seconds: float

    async def play(self, out: "Exchange") -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True)
class Gate(Step):
    """Nothing until the test calls `up.open(name)`. `await up.reached(name)` tells it that a script stands here."""

    name: str = "gate"

    async def play(self, out: "Exchange") -> None:
        await out.gate(self.name)


@dataclass(frozen=True)
class Hang(Step):
    """Silence until the client leaves."""

    async def play(self, out: "Exchange") -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Cut(Step):
    """The connection is reset (RST)."""

    async def play(self, out: "Exchange") -> None:
        out.cut()


@dataclass(frozen=True)
class Eof(Step):
    """The connection is closed (FIN): after the proper last chunk, or, not clean, without it."""

    clean: bool = True

    async def play(self, out: "Exchange") -> None:
        await out.eof(self.clean)


@dataclass(frozen=True)
class Repeat(Step):
    """One step n times, `every` seconds apart."""

    n: int
    step: Step
    every: float = 0.0

    async def play(self, out: "Exchange") -> None:
        pace = _Pace(self.every)
        for _ in range(self.n):
            await self.step.play(out)
            await pace.next()


@dataclass(frozen=True)
class Tokens(Step):
    """n numbered deltas `t0 `, `t1 `, …, `every` seconds apart. Costs nothing but the moment it is played."""

    n: int
    every: float = 0.0

    async def play(self, out: "Exchange") -> None:
        pace = _Pace(self.every)
        for number in range(self.n):
            await out.text(f"t{number} ")
            await pace.next()


class _Pace:
    """Waits for the next beat. Late once is not late for ever: beats are counted from the start."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._next = time.monotonic()

    async def next(self) -> None:
        if self._every:
            self._next += self._every
            await asyncio.sleep(max(0.0, self._next - time.monotonic()))


# ---------------------------------------------------------------------------------------------------------------------
# Scripts


def answer(*texts: str, finish: str = "stop") -> list[Step]:
    """A faultless answer."""
    deltas = [Delta(text) for text in texts]
    return [Headers(), Role(), *deltas, Finish(finish), UsageChunk(3, len(texts)), Done()]


def calling(*calls: tuple[str, Any], text: str = "", prefix: str = "call") -> "list[Step]":
    """An answer that says something and calls tools: `(name, arguments)` each, arguments as JSON unless a string."""
    said: list[Step] = [Delta(text)] if text else []
    for n, (name, arguments) in enumerate(calls):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        said.append(ToolDelta(index=n, id=f"{prefix}_{n}", name=name, arguments=written))
    return [Headers(), Role(), *said, Finish("tool_calls"), Done()]


def tokens(n: int, every: float = 0.0) -> list[Step]:
    """A faultless answer of n numbered tokens."""
    return [Headers(), Role(), Tokens(n, every), Finish(), UsageChunk(3, n), Done()]


def tokens_text(n: int) -> str:
    """What `tokens(n)` says."""
    return "".join(f"t{number} " for number in range(n))


def frame(data: dict[str, Any] | str, newline: str = "\n") -> bytes:
    """One SSE frame, for Raw, Split and Slices."""
    return Style(newline=newline).frame(data.encode() if isinstance(data, str) else _json(data))


def text_chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    """A text chunk as a whole, with fixed id and model, for the scripts that write their own bytes."""
    return {"id": "chatcmpl-u", "object": "chat.completion.chunk", "created": 0, "model": "m"} | _choice(
        {"content": text}, finish
    )


def error_body(code: int) -> dict[str, Any]:
    """What OpenAI answers, secret included."""
    message, kind, name = {
        400: ("Invalid value for 'temperature'. Request made with key $KEY.", "invalid_request_error", "invalid_value"),
        401: ("Incorrect API key provided: $KEY. Find yours in settings.", "invalid_request_error", "invalid_api_key"),
        403: ("Key $KEY may not use this model.", "permission_error", "forbidden"),
        404: ("The model `$MODEL` does not exist for key $KEY.", "invalid_request_error", "model_not_found"),
        429: ("Rate limit reached for $MODEL with key $KEY.", "requests", "rate_limit_exceeded"),
    }.get(code, ("The server had an error. Authorization was: Bearer $KEY", "server_error", "server_error"))
    return {"error": {"message": message, "type": kind, "param": None, "code": name}}


def named(model: str) -> Script | None:
    """The script that a model's name asks for by itself."""
    kind, _, rest = model.partition(":")
    match kind:
        case "echo":
            return answer(rest)
        case "tokens":
            n, _, delay = rest.partition(":")
            return tokens(int(n), float(delay or 0) / 1000)
        case "end":
            return (ENDINGS | ODDITIES)[rest]
        case "silent":
            return [Hang()]
        case "hang-after":
            return [Headers(), Role(), Tokens(int(rest)), Hang()]
    return None


_BEGIN: list[Step] = [Headers(), Role(), Delta(TEXT[:3]), Delta(TEXT[3:])]
_END: list[Step] = [UsageChunk(), Done()]
_WHOLE: list[Step] = [*_BEGIN, Finish(), *_END]

ENDINGS: dict[str, list[Step]] = {
    "completed": _WHOLE,
    "completed-no-done": [*_BEGIN, Finish()],
    "length": [*_BEGIN, Finish("length"), *_END],
    "content-filter": [*_BEGIN, Finish("content_filter"), *_END],
    "in-band-error": [*_BEGIN, InBandError()],
    "event-error": [*_BEGIN, EventError()],
    "cut": [*_BEGIN, Cut()],
    "eof": [*_BEGIN, Eof()],
    "eof-unclean": [*_BEGIN, Eof(clean=False)],
    "stall": [*_BEGIN, Hang()],
    "silence": [Hang()],
    "silence-after-headers": [Headers(), Hang()],
    "400": [Status(400)],
    "401": [Status(401)],
    "404": [Status(404)],
    "429": [Status(429, headers={"Retry-After": "7"})],
    "500": [Status(500)],
    "html-200": [Status(200, "<!doctype html><h1>Sign in</h1><p>$KEY</p>", {"Content-Type": "text/html"})],
    "json-error-200": [Status(200, error_body(500))],
    "crlf": [Style(newline="\r\n"), *_WHOLE],
    "comments": [Headers(), Raw(b": hello\n\n:\n\n"), *_BEGIN[1:], Raw(b": still here\n\n"), Finish(), *_END],
    "no-space": [Style(space=False), *_WHOLE],
    "split-utf8": [Style(slice=1), *_WHOLE],
    "garbage-json": [*_BEGIN, Raw(b'data: {"choices": [{"del\n\n'), Finish(), *_END],
    "think": [
        Headers(),
        Role(),
        *(Delta(text) for text in ("<th", "ink>" + REASONING[:4], REASONING[4:], "</thi", "nk>\n" + TEXT[:3])),
        Delta(TEXT[3:]),
        Finish(),
        *_END,
    ],
}
"""Every way in which an answer can end, by the name that the truth table has for it.

A refused connection is not a script: `up.refuse()`.
"""

ENDINGS_WITHOUT_TEXT = frozenset(
    {"silence", "silence-after-headers", "400", "401", "404", "429", "500", "html-200", "json-error-200"}
)
"""The endings that come before any text. All others show exactly TEXT."""

ODDITIES: dict[str, list[Step]] = {
    "done-no-finish": [*_BEGIN, Done()],
    "text-after-finish": [*_BEGIN, Finish(), Delta("late"), Finish("length"), *_END, Delta("after the end")],
    "unknown-finish": [*_BEGIN, Finish("eos_token"), *_END],
    "empty": [Headers(), Role(), Finish(), *_END],
    "nothing-at-all": [Headers(), Eof()],
    "null-fields": [
        *_BEGIN,
        Chunk({"choices": [{"index": 0, "delta": None, "finish_reason": None}]}),
        Chunk({"choices": [{"index": 0, "delta": {"content": None}, "finish_reason": None}]}),
        Chunk({"choices": None}),
        Finish(),
        *_END,
    ],
    "changing-ids": [
        *_BEGIN[:2],
        Chunk(text_chunk(TEXT[:3]) | {"id": "other", "model": "another", "created": 0}),
        Chunk(text_chunk(TEXT[3:]) | {"id": None}),
        Finish(),
        *_END,
    ],
    "cr": [Style(newline="\r"), *_WHOLE],
    "bom": [Headers(), Raw(b"\xef\xbb\xbf"), *_WHOLE[1:]],
    "sse-fields": [Headers(), Raw(b"retry: 5\n\nid: 7\nevent: ping\ndata: {}\n\ndata\n\n"), *_WHOLE[1:]],
    "two-data-lines": [
        *_BEGIN,
        Raw(b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"!"}}]}\n\n'),
        Finish(),
        *_END,
    ],
    "split-crlf": [Style(newline="\r\n", slice=1), *_WHOLE],
    "line-separators": answer("a\u2028b\u2029c\u0085d", "e\x0bf\x0cg\x1ch\x1di"),
    "lone-surrogate": answer("a\ud83c", "\udf0ab", "\ud83c"),
    "invalid-utf8": [
        *_BEGIN,
        Raw(b'data: {"choices":[{"index":0,"delta":{"content":"\xff\xfe"}}]}\n\n'),
        Finish(),
        *_END,
    ],
    "unclosed-think": answer("<think>", REASONING),
    "reasoning-content": [Headers(), Role(), ReasoningDelta(REASONING), *_WHOLE[2:]],
    "reasoning": [Headers(), Role(), ReasoningDelta(REASONING, "reasoning"), *_WHOLE[2:]],
    "tool-call": [
        Headers(),
        Role(),
        ToolDelta(id="call_1", name="add", arguments=""),
        ToolDelta(arguments='{"a": 1, '),
        ToolDelta(arguments='"b": 2}'),
        Finish("tool_calls"),
        *_END,
    ],
    "429-date": [Status(429, headers={"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"})],
    "429-absurd": [Status(429, headers={"Retry-After": "1000000000"})],
    "429-negative": [Status(429, headers={"Retry-After": "-1"})],
    "503": [Status(503, headers={"Retry-After": "1"})],
    "403": [Status(403)],
    "redirect": [Status(307, "", {"Location": "http://127.0.0.1:9/elsewhere"})],
    "wrong-content-type": [Headers(headers={"Content-Type": "text/plain"}), *_WHOLE[1:]],
    "gzip": [Status(200, gzip.compress(b"data: " + b" " * 1_000_000), {"Content-Encoding": "gzip"})],
    "bad-chunked": [*_BEGIN, Wire(b"zz\r\nnot a chunk\r\n"), Hang()],
    "not-http": [Wire(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")],
    "length-too-long": [Headers(framing=100_000), *_WHOLE[1:], Eof(clean=False)],
    "until-close": [Headers(framing="close"), *_WHOLE[1:]],
    "huge-line": [*_BEGIN, Raw(b"data: "), Repeat(800, Raw(b"x" * 65_536)), Raw(b"\n\n"), Finish(), *_END],
    "endless": [Headers(), Role(), Repeat(10**9, Delta("again "))],
    "drip": [Style(slice=1, every=0.001), *answer("slow")],
}
"""More of what real upstreams do; what each should become is for its test to say."""


# ---------------------------------------------------------------------------------------------------------------------
# What was asked, and the answering of it


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

    def query(self, name: str) -> str:
        return parse_qs(self.path.partition("?")[2]).get(name, [""])[0]

    @property
    def key(self) -> str:
        """The secret that the caller used."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ").strip()
        return bearer or self.headers.get("x-api-key", "") or FALLBACK_KEY

    @property
    def left_early(self) -> bool:
        """The client went away before the script was played to its end."""
        return self.closed_by == "client" and not self.finished

    async def wait_closed(self, timeout: float = 5.0) -> float:
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
            "connection": self.connection,
            "received_at": self.received_at,
            "first_byte_at": self.first_byte_at,
            "closed_at": self.closed_at,
            "closed_by": self.closed_by,
            "finished": self.finished,
            "bytes_sent": self.bytes_sent,
            "open": self.closed_at is None,
        }


class Exchange:
    """One request being answered: what the steps write with.

    A caller that did not ask for a stream gets the same script folded into one `chat.completion` at its end; silences,
    errors and broken connections stay what they are.
    """

    def __init__(self, up: "Upstream", connection: "_Connection", recorded: Recorded) -> None:
        self.recorded = recorded
        self.style = Style()
        self.over = False
        """The connection has been ended by the script."""
        self._up = up
        self._connection = connection
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
        self._before_text = _json(self._envelope)[:-1] + b',"choices":[{"index":0,"delta":{"content":'
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
        if not self.recorded.stream and self._body_sent == 0 and not self._off_the_rails:
            if self._framing is None:
                await self.respond(200, fold(self._envelope, self._folded), {})
            elif self._folded:
                await self.body(_json(fold(self._envelope, self._folded)))
        await self.last_chunk()

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
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{k}: {v}" for k, v in given.items())]
        self._body_sent += len(body)
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def respond(self, status: int, body: dict[str, Any] | str | bytes, headers: Mapping[str, str]) -> None:
        data = self._fill(_json(body) if isinstance(body, dict) else body.encode() if isinstance(body, str) else body)
        await self.head(status, {"Content-Type": "application/json"} | dict(headers), len(data), data)

    async def body(self, data: bytes) -> None:
        if self._framing is None:
            await self.head(200, {}, "chunked")
        self._body_sent += len(data)
        await self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._framing == "chunked" and data else data)

    async def pieces(self, pieces: Sequence[bytes], every: float) -> None:
        pace = _Pace(every)
        for piece in pieces:
            await self.body(piece)
            await pace.next()
            for _ in range(SEPARATE_TURNS):
                await asyncio.sleep(0)

    async def last_chunk(self) -> None:
        if self._framing == "chunked" and not self._off_the_rails:
            await self._write(b"0\r\n\r\n")

    def cut(self) -> None:
        self.over = True
        self._connection.reset()

    async def eof(self, clean: bool) -> None:
        if clean:
            await self.last_chunk()
        self.over = True
        self._connection.finish()

    # -- the dialect

    async def text(self, text: str) -> None:
        if self.recorded.stream:
            await self.event(self._before_text + _json(text) + self._after_text)
        else:
            self._folded.append(_choice({"content": text}))

    async def chunk(self, data: dict[str, Any]) -> None:
        if self.recorded.stream:
            await self.event(_json(self._envelope | data))
        else:
            self._folded.append(data)

    async def error(self, error: dict[str, Any], event: str | None) -> None:
        if self.recorded.stream:
            await self.event(self._fill(_json({"error": error})), event)
        else:
            await self.body(self._fill(_json({"error": error})))

    async def event(self, data: bytes, event: str | None = None) -> None:
        if not self.recorded.stream:
            return
        block = self.style.frame(data, event)
        if self.style.slice is None:
            await self.body(block)
        else:
            await self.pieces(_sliced(block, self.style.slice), self.style.every)

    async def gate(self, name: str) -> None:
        self._up._reached[name].set()
        await self._up._gates[name].wait()

    def _fill(self, data: bytes) -> bytes:
        return data.replace(b"$KEY", self.recorded.key.encode()).replace(b"$MODEL", self.recorded.model.encode())

    async def _write(self, data: bytes) -> None:
        if self.recorded.first_byte_at is None:
            self.recorded.first_byte_at = time.monotonic()
        self.recorded.bytes_sent += len(data)
        await self._connection.write(data)


def fold(envelope: dict[str, Any], chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The chunks of a stream as the one object that a caller without `stream` gets."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    folded = envelope | {"object": "chat.completion"}
    finish = None
    for chunk in chunks:
        if chunk.get("usage"):
            folded["usage"] = chunk["usage"]
        for choice in chunk.get("choices") or []:
            finish = finish or choice.get("finish_reason")
            for name, value in (choice.get("delta") or {}).items():
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


# ---------------------------------------------------------------------------------------------------------------------
# The server


class Upstream:
    """`async with Upstream() as up:` listens on a port of its own until the block is left.

    A script that fails by its own fault (and a request that is not HTTP) fails the test when the block is left.
    """

    def __init__(self, script: Script | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host, self.port = host, port
        self.script: Script = answer(TEXT) if script is None else script
        self.models: dict[str, Script] = {}
        self.listed: list[str] = ["m"]
        """What `GET /v1/models` names, besides the registered models."""
        self.models_script: Script | None = None
        """What `GET /v1/models` does instead, where it must go wrong."""
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
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._connections: set[_Connection] = set()
        self._players: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._placeholder: socket.socket | None = None
        self._accepting = False
        self._numbers = 0
        self._connected = 0

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    @property
    def open_connections(self) -> int:
        return sum(1 for connection in self._connections if not connection.control)

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_listening()
        for connection in list(self._connections):
            connection.reset()
        for connection in list(self._connections):
            await connection.lost.wait()
        if self._players:
            await asyncio.wait(self._players)
        if self.errors and kind is None:
            raise self.errors[0]

    # -- what the test says

    def enqueue(self, *scripts: Script) -> None:
        """Each script is for one request, in order."""
        self._queue.extend(scripts)

    def open(self, name: str = "gate") -> None:
        """Let pass whoever stands at the gate, and whoever comes."""
        self._gates[name].set()

    def shut(self, name: str = "gate") -> None:
        """The gate holds again, and nobody has reached it."""
        self._gates[name].clear()
        self._reached[name].clear()

    async def reached(self, name: str = "gate", timeout: float = 5.0) -> None:
        """Wait until a script stands at the gate: all that comes before it has been written."""
        try:
            async with asyncio.timeout(timeout):
                await self._reached[name].wait()
        except TimeoutError:
            raise TimeoutError(f"no script reached the gate {name!r} within {timeout} s") from None

    async def next_request(self, timeout: float = 5.0) -> Recorded:
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
        self._accepting = True
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), sock=bound, backlog=4096
        )

    def drop_idle(self) -> None:
        """Close the connections that wait for another request, as servers do after a while."""
        for connection in list(self._connections):
            if connection.idle:
                connection.finish()

    def start_over(self) -> None:
        """Drop the scripts that nobody asked for, and shut every gate."""
        self._queue.clear()
        for name in self._gates:
            self.shut(name)

    @property
    def waiting(self) -> int:
        """How many scripts nobody has asked for yet."""
        return len(self._queue)

    def forget(self) -> None:
        """Drop the records, for long loads."""
        self.requests.clear()
        self.others.clear()
        self._arrived = asyncio.Queue()

    # -- inside

    def _bound_socket(self) -> socket.socket:
        """A socket that holds the port: without `listen` the kernel refuses connections to it."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else no TCP_NODELAY
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self.host, self.port))
        return sock

    def _stop_listening(self) -> None:
        self._accepting = False
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None

    def _script_for(self, request: Recorded) -> Script:
        match request.method, request.path.partition("?")[0]:
            case "POST", path if path in COMPLETIONS:
                return self._completion_script(request)
            case "GET", "/v1/models":
                return self.models_script or [Status(200, self._model_list())]
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

    def _model_list(self) -> dict[str, Any]:
        ids = list(dict.fromkeys([*self.listed, *self.models]))
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "u"} for name in ids]}

    def _record(self, request: Recorded) -> None:
        if request.path.startswith("/_control/"):
            return
        if request.method == "POST" and request.path.partition("?")[0] in COMPLETIONS:
            self.requests.append(request)
            self._arrived.put_nowait(request)
        else:
            self.others.append(request)


class _Connection(asyncio.Protocol):
    """One client connection: reads requests one after the other, and goes on reading while a script is played."""

    _transport: asyncio.Transport

    def __init__(self, up: Upstream) -> None:
        self.control = False
        self._up = up
        self._parser = _RequestParser()
        self._player: asyncio.Task[None] | None = None
        self._records: list[Recorded] = []
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._ended_by_us = False
        self.lost = asyncio.Event()
        up._connected += 1
        self._number = up._connected

    @property
    def idle(self) -> bool:
        return self._player is None

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._up._connections.add(self)
        if not self._up._accepting:
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
        self._up._connections.discard(self)
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

    def finish(self) -> None:
        self._ended_by_us = True
        self._transport.close()

    # -- inside

    def _mark_closed(self, by: Literal["client", "upstream"]) -> None:
        for recorded in self._records:
            recorded.mark_closed(by)

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

    def _answer(self, parsed: "_Parsed") -> None:
        self._up._numbers += 1
        recorded = Recorded(
            number=self._up._numbers,
            method=parsed.method,
            path=parsed.path,
            headers=parsed.headers,
            raw=parsed.body,
            connection=self._number,
            version=parsed.version,
        )
        self.control = self.control or recorded.path.startswith("/_control/")
        self._records.append(recorded)
        self._up._record(recorded)
        script = self._up._script_for(recorded)
        self._player = asyncio.get_running_loop().create_task(self._play(recorded, script))
        self._up._players.add(self._player)
        self._player.add_done_callback(self._played)

    async def _play(self, recorded: Recorded, script: Script) -> None:
        exchange = Exchange(self._up, self, recorded)
        await exchange.play(script)
        if not exchange.keep_alive and not exchange.over:
            self.finish()

    def _played(self, task: asyncio.Task[None]) -> None:
        self._up._players.discard(task)
        self._player = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._up.errors.append(error)
            self.reset()
        self._next()


@dataclass(frozen=True)
class _Parsed:
    method: str
    path: str
    version: str
    headers: HeaderMap
    body: bytes = b""


class _RequestParser:
    """Bytes in, whole requests out."""

    def __init__(self) -> None:
        self.wants_continue = False
        self._buffer = bytearray()
        self._head: _Parsed | None = None
        self._chunks: ChunkDecoder | None = None
        self._body = bytearray()
        self._length = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> _Parsed | None:
        """The next request, if all of it is here."""
        if self._head is None:
            self._read_head()
        if self._head is None or not self._read_body():
            return None
        request = replace(self._head, body=bytes(self._body))
        self._head, self._chunks = None, None
        self._body.clear()
        return request

    def _read_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        request_line, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        method, path, version = request_line.decode("latin-1").split(" ")
        headers = HeaderMap.parse(lines)
        self._head = _Parsed(method, path, version, headers)
        self._chunks = ChunkDecoder() if headers.get("transfer-encoding", "").lower() == "chunked" else None
        self._length = int(headers.get("content-length", "0"))
        self.wants_continue = headers.get("expect", "").lower() == "100-continue"

    def _read_body(self) -> bool:
        if self._chunks is None:
            if len(self._buffer) < self._length:
                return False
            self._body += self._buffer[: self._length]
            del self._buffer[: self._length]
            return True
        self._body += self._chunks.feed(bytes(self._buffer))
        self._buffer.clear()
        if self._chunks.done:
            self._buffer += self._chunks.rest
        return self._chunks.done


# ---------------------------------------------------------------------------------------------------------------------
# As a process


async def serve(host: str, port: int) -> None:
    """Run as a process, until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Upstream(host=host, port=port) as up:
        print(f"listening on {up.port}", flush=True)
        await stop.wait()
        up.errors.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description="The misbehaving upstream; scripts are chosen by the model's name.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve(options.host, options.port))


if __name__ == "__main__":
    main()
