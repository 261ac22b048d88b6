"""What an upstream can do, one step at a time. A script is a list of steps."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .exchange import Exchange


def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return what a chunk has beside its envelope."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def as_json(value: Any) -> bytes:
    """Return JSON in UTF-8, so that characters can be split. A lone surrogate, which UTF-8 has not, is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def sliced(data: bytes, size: int) -> list[bytes]:
    """Return pieces of that many bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


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


class Step:
    """One thing that the upstream does."""

    async def play(self, out: Exchange) -> None:
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

    async def play(self, out: Exchange) -> None:
        await out.respond(self.code, error_body(self.code) if self.body is None else self.body, self.headers)


@dataclass(frozen=True)
class Headers(Step):
    """Status and headers now. Steps that need them send them by themselves where this step is left out.

    `framing` is "chunked", "close" (the body lasts until the connection ends) or a Content-Length, right or wrong.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: Literal["chunked", "close"] | int = "chunked"

    async def play(self, out: Exchange) -> None:
        await out.head(self.status, self.headers, self.framing)


@dataclass(frozen=True)
class Chunk(Step):
    """Any chunk. `id`, `object`, `created` and `model` are added where it does not have them itself."""

    data: dict[str, Any]

    async def play(self, out: Exchange) -> None:
        await out.chunk(self.data)


@dataclass(frozen=True)
class Role(Step):
    """The first chunk of an answer."""

    role: str = "assistant"

    async def play(self, out: Exchange) -> None:
        await out.chunk(choice({"role": self.role, "content": ""}))


@dataclass(frozen=True)
class Delta(Step):
    """Visible text."""

    text: str

    async def play(self, out: Exchange) -> None:
        await out.text(self.text)


@dataclass(frozen=True)
class ReasoningDelta(Step):
    """Reasoning in a field of its own."""

    text: str
    field: Literal["reasoning_content", "reasoning"] = "reasoning_content"

    async def play(self, out: Exchange) -> None:
        await out.chunk(choice({self.field: self.text}))


@dataclass(frozen=True)
class ToolDelta(Step):
    """A piece of a tool call. What is None is not sent."""

    index: int | None = 0
    id: str | None = None
    name: str | None = None
    arguments: str | None = None

    async def play(self, out: Exchange) -> None:
        function = {"name": self.name, "arguments": self.arguments}
        call = {
            "index": self.index,
            "id": self.id,
            "type": "function" if self.id is not None else None,
            "function": {name: value for name, value in function.items() if value is not None},
        }
        await out.chunk(choice({"tool_calls": [{name: value for name, value in call.items() if value is not None}]}))


@dataclass(frozen=True)
class Finish(Step):
    """The chunk that says why."""

    reason: str = "stop"

    async def play(self, out: Exchange) -> None:
        await out.chunk(choice({}, self.reason))


@dataclass(frozen=True)
class UsageChunk(Step):
    """Usage in a chunk without choices: always, or only if the caller asked for it."""

    prompt: int = 3
    completion: int = 5
    if_asked: bool = False

    async def play(self, out: Exchange) -> None:
        if self.if_asked and not out.recorded.wants_usage:
            return
        total = self.prompt + self.completion
        usage = {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total}
        await out.chunk({"choices": [], "usage": usage})


@dataclass(frozen=True)
class Done(Step):
    """`[DONE]`."""

    async def play(self, out: Exchange) -> None:
        await out.event(b"[DONE]")


@dataclass(frozen=True)
class InBandError(Step):
    """A data frame `{"error": …}` inside a stream that began with 200."""

    error: dict[str, Any] = field(default_factory=lambda: error_body(500)["error"])

    async def play(self, out: Exchange) -> None:
        await out.error(self.error, None)


@dataclass(frozen=True)
class EventError(Step):
    """The same as an `event: error` frame."""

    error: dict[str, Any] = field(default_factory=lambda: error_body(500)["error"])

    async def play(self, out: Exchange) -> None:
        await out.error(self.error, "error")


@dataclass(frozen=True)
class Raw(Step):
    """These bytes of body, in one write (and one HTTP chunk)."""

    data: bytes

    async def play(self, out: Exchange) -> None:
        await out.body(self.data)


@dataclass(frozen=True)
class Split(Step):
    """These bytes of body in separate writes, split at one offset or at several."""

    data: bytes
    at: int | tuple[int, ...]
    every: float = 0.0

    async def play(self, out: Exchange) -> None:
        cuts = [0, *((self.at,) if isinstance(self.at, int) else self.at), len(self.data)]
        await out.pieces([self.data[a:b] for a, b in itertools.pairwise(cuts)], self.every)


@dataclass(frozen=True)
class Slices(Step):
    """These bytes of body in separate writes of `size` bytes, `every` seconds apart."""

    data: bytes
    size: int = 1
    every: float = 0.0

    async def play(self, out: Exchange) -> None:
        await out.pieces(sliced(self.data, self.size), self.every)


@dataclass(frozen=True)
class Wire(Step):
    """These bytes on the socket, outside of any framing: for broken HTTP. The connection ends with the script."""

    data: bytes

    async def play(self, out: Exchange) -> None:
        await out.wire(self.data)


@dataclass(frozen=True)
class Style(Step):
    """How the SSE frames that follow are written."""

    newline: str = "\n"
    space: bool = True
    slice: int | None = None
    every: float = 0.0

    async def play(self, out: Exchange) -> None:
        out.style = self

    def frame(self, data: bytes, event: str | None = None) -> bytes:
        colon, end = (b": " if self.space else b":"), self.newline.encode()
        head = b"event" + colon + event.encode() + end if event else b""
        return head + b"data" + colon + data + end + end


@dataclass(frozen=True)
class Pause(Step):
    """Nothing for a while."""

    seconds: float

    async def play(self, out: Exchange) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True)
class Gate(Step):
    """Nothing until the test calls `up.open(name)`. `await up.reached(name)` tells it that a script stands here."""

    name: str = "gate"

    async def play(self, out: Exchange) -> None:
        await out.gate(self.name)


@dataclass(frozen=True)
class Hang(Step):
    """Silence until the client leaves."""

    async def play(self, out: Exchange) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Cut(Step):
    """The connection is reset (RST)."""

    async def play(self, out: Exchange) -> None:
        await out.cut()


@dataclass(frozen=True)
class Eof(Step):
    """The connection is closed (FIN): after the proper last chunk, or, not clean, without it."""

    clean: bool = True

    async def play(self, out: Exchange) -> None:
        await out.eof(self.clean)


@dataclass(frozen=True)
class Repeat(Step):
    """One step n times, `every` seconds apart."""

    n: int
    step: Step
    every: float = 0.0

    async def play(self, out: Exchange) -> None:
        pace = Pace(self.every)
        for _ in range(self.n):
            await self.step.play(out)
            await pace.next()


@dataclass(frozen=True)
class Tokens(Step):
    """n numbered deltas `t0 `, `t1 `, …, `every` seconds apart, each with `pad` more characters."""

    n: int
    every: float = 0.0
    pad: int = 0

    async def play(self, out: Exchange) -> None:
        pace = Pace(self.every)
        for number in range(self.n):
            await out.text(f"t{number} {'x' * self.pad}")
            await pace.next()


class Pace:
    """Waits for the next beat. Late once is not late for ever: beats are counted from the start."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._next = time.monotonic()

    async def next(self) -> None:
        if self._every:
            self._next += self._every
            await asyncio.sleep(max(0.0, self._next - time.monotonic()))
