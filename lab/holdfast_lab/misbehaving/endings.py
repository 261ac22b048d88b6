"""Scripts: whole answers, every way in which an answer can end, and other odd things that upstreams do."""

from __future__ import annotations

import gzip
import json
from typing import Any

from .steps import (
    Chunk,
    Cut,
    Delta,
    Done,
    Eof,
    EventError,
    Finish,
    Hang,
    Headers,
    InBandError,
    Raw,
    ReasoningDelta,
    Repeat,
    Role,
    Script,
    Status,
    Step,
    Style,
    Tokens,
    ToolDelta,
    UsageChunk,
    Wire,
    as_json,
    choice,
    error_body,
)

TEXT = "Héllo wörld 🌊"
"""The visible text of every ending that shows text."""
REASONING = "I wonder."
"""The reasoning of the endings that have some."""


def answer(*texts: str, finish: str = "stop") -> list[Step]:
    """A faultless answer."""
    deltas = [Delta(text) for text in texts]
    return [Headers(), Role(), *deltas, Finish(finish), UsageChunk(3, len(texts)), Done()]


def calling(*calls: tuple[str, Any], text: str = "", prefix: str = "call") -> list[Step]:
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
    return Style(newline=newline).frame(data.encode() if isinstance(data, str) else as_json(data))


def text_chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    """A text chunk as a whole, with fixed id and model, for the scripts that write their own bytes."""
    return {"id": "chatcmpl-u", "object": "chat.completion.chunk", "created": 0, "model": "m"} | choice(
        {"content": text}, finish
    )


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
