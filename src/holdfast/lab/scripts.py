"""What the lab's upstream can do: every way in which an answer goes on and ends, as data.

A script is a list of steps. Which one is played for a request is said by a tag in the prompt (`tagged`), not by the
model's name: servers rewrite names, and none rewrites what the user says.
"""

from __future__ import annotations

import re
import secrets
from typing import Final, Literal

import msgspec

__all__ = ["ENDINGS", "TEXT", "WORDS", "Ending", "Script", "Step", "Tag", "TextRule", "script_named", "tagged"]

TEXT: Final = "Héllo wörld 🌊, said the sea."
"""The visible text of every ending that shows text."""

Word = Literal["success", "truncated", "stopped", "failure", "unsaid"]
WORDS: Final[frozenset[str]] = frozenset({"success", "truncated", "stopped", "failure", "unsaid"})
"""How an answer can end for its client; `unsaid` is an end about which nothing was said."""


# Steps.


class Say(msgspec.Struct, frozen=True):
    """Visible text."""

    text: str


class Tokens(msgspec.Struct, frozen=True):
    """Numbered pieces of text, `t0 `, `t1 `, …: what is missing or comes twice can be told. `pad` makes them large."""

    n: int
    every: float = 0.0
    pad: int = 0


class Call(msgspec.Struct, frozen=True):
    """A piece of a tool call; the first has a name."""

    arguments: str
    name: str | None = None


class Finish(msgspec.Struct, frozen=True):
    """The chunk that says why."""

    reason: str = "stop"


class Done(msgspec.Struct, frozen=True):
    """`[DONE]`."""


class Error(msgspec.Struct, frozen=True):
    """An error inside of an answer that began with 200, as a plain frame or as `event: error`."""

    event: bool = False


class Garbage(msgspec.Struct, frozen=True):
    """A frame whose JSON is cut off: what it said is lost."""


class Status(msgspec.Struct, frozen=True):
    """A whole answer that is no stream."""

    code: int
    html: bool = False


class Pause(msgspec.Struct, frozen=True):
    """Nothing for a while."""

    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """Silence until the client leaves."""


class Close(msgspec.Struct, frozen=True):
    """The connection ends: reset, closed inside of the HTTP framing, or closed after a proper last chunk."""

    how: Literal["reset", "unclean", "clean"] = "clean"


Step = Say | Tokens | Call | Finish | Done | Error | Garbage | Status | Pause | Hang | Close
Script = tuple[Step, ...]

_SAID: Script = (Say(TEXT[:3]), Say(TEXT[3:12]), Say(TEXT[12:]))
_SETTLE = Pause(0.2)  # what was said has been read by then, so that a reset takes nothing with it
_CALL: Script = (Call("", name="add"), Call('{"a": 1, '))


# Endings: what each script is, and what a client may be told of it.

TextRule = Literal["all", "some", "none"]


class Ending(msgspec.Struct, frozen=True):
    """One way to end, and what may be told of it. `text`: all of what was said, a beginning of it, or none."""

    what: str
    script: Script
    may_be: frozenset[str]
    text: TextRule = "some"
    tools: bool = False
    json: bool = True
    """Whether it is something else when the answer was not asked for as a stream."""
    waits: bool = False
    """Whether only a limit on silence ends it: a server may have none, or a very long one."""


def _done(what: str, *script: Step, text: TextRule = "all", tools: bool = False, may_be: str = "success") -> Ending:
    return Ending(what, tuple(script), frozenset(may_be.split()), text, tools)


def _failed(
    what: str, *script: Step, text: TextRule = "some", tools: bool = False, json: bool = True, waits: bool = False
) -> Ending:
    return Ending(what, tuple(script), frozenset({"failure"}), text, tools, json, waits)


ENDINGS: Final[dict[str, Ending]] = {
    "completed": _done("a whole answer", *_SAID, Finish(), Done()),
    "no-done": _done("a whole answer whose [DONE] was forgotten", *_SAID, Finish()),
    "done-no-finish": _done("[DONE] without a finish reason", *_SAID, Done(), may_be="success failure unsaid"),
    "empty": _done("a finish reason and no text", Finish(), Done(), may_be="success failure", text="none"),
    "tool-call": _done("a call of a tool", *_CALL, Call('"b": 2}'), Finish("tool_calls"), Done(), tools=True),
    "length": _done("cut off at a length", *_SAID, Finish("length"), Done(), may_be="truncated"),
    "filter": _done("cut off by a filter", *_SAID, Finish("content_filter"), Done(), may_be="truncated"),
    "cut": _failed("the connection is reset in the middle", *_SAID, _SETTLE, Close("reset")),
    "unclean": _failed("the connection is closed in the middle", *_SAID, _SETTLE, Close("unclean")),
    "eof": _failed("the stream ends, and nobody says why", *_SAID, Close(), json=False),
    "error": _failed("an error in the middle", *_SAID, Error()),
    "error-event": _failed("an `event: error` in the middle", *_SAID, Error(event=True), json=False),
    "garbage": _failed("a frame in the middle that is no JSON", *_SAID, Garbage(), Finish(), Done()),
    "tool-cut": _failed("the stream ends inside of a tool call", *_CALL, Close(), tools=True, json=False),
    "nothing": _failed("200, and an empty body", Close(), text="none", json=False),
    "400": _failed("HTTP 400", Status(400), text="none"),
    "401": _failed("HTTP 401", Status(401), text="none"),
    "404": _failed("HTTP 404", Status(404), text="none"),
    "429": _failed("HTTP 429", Status(429), text="none"),
    "500": _failed("HTTP 500", Status(500), text="none"),
    "html": _failed("200, and a page to sign in", Status(200, html=True), text="none"),
    "stall": _failed("silence in the middle", *_SAID, Hang(), json=False, waits=True),
    "silence": _failed("silence from the start", Hang(), text="none", waits=True),
}
"""Every ending by its name. A refused connection is no script: the upstream stops listening for it."""

_NAMED: Final[dict[str, Script]] = {
    "hold": (Tokens(3), Hang()),
    "mute": (Hang(),),
}
_COUNTED = re.compile(r"(tokens|flood)-(\d+)-(\d+)")


def script_named(name: str) -> Script | None:
    """Return the script of a name: an ending, `hold`, `mute`, `tokens-<n>-<ms>` or `flood-<n>-<kB each>`."""
    if name in ENDINGS:
        return ENDINGS[name].script
    if found := _COUNTED.fullmatch(name):
        n, size = int(found[2]), int(found[3])
        pieces = Tokens(n, size / 1000) if found[1] == "tokens" else Tokens(n, pad=size * 1000)
        return (pieces, Finish(), Done())
    return _NAMED.get(name)


# Tags: how a prompt says which script is meant.


class Tag(msgspec.Struct, frozen=True):
    """The script that a request is for, and a word of its own by which its requests are known."""

    script: str
    token: str = msgspec.field(default_factory=lambda: secrets.token_hex(6))

    @property
    def prompt(self) -> str:
        """What the user says."""
        return f"Please answer. [lab:{self.script}:{self.token}]"


_TAG = re.compile(rb"\[lab:([a-z0-9-]+):([0-9a-f]{12})\]")


def tagged(body: bytes) -> Tag | None:
    """Return the tag of a request: the last, since a server may send what was said before."""
    found = _TAG.findall(body)
    return Tag(found[-1][0].decode(), found[-1][1].decode()) if found else None
