"""The endings that a server is judged by: the script of each, and what its client may receive.

The script of a request is named by a tag in the prompt (`tagged`), not by the model's name: servers rewrite names of
models, and none rewrites the prompt.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

import msgspec

from .misbehaving import endings as misbehaving
from .misbehaving.endings import TEXT
from .misbehaving.steps import (
    Delta,
    Done,
    Eof,
    Finish,
    Hang,
    Headers,
    Pause,
    Role,
    Script,
    Status,
    Step,
    Tokens,
    ToolDelta,
    UsageChunk,
)

__all__ = ["ENDINGS", "TEXT", "WORDS", "Ending", "Tag", "TextRule", "script_named", "tagged"]

WORDS: Final[frozenset[str]] = frozenset({"success", "truncated", "stopped", "failure", "unsaid"})
"""How an answer can end for its client; `unsaid` is an end about which nothing was said."""


_SETTLE = Pause(0.2)  # what was said has been read by then, so that a reset takes nothing with it
_CALL: Script = [
    Headers(),
    Role(),
    ToolDelta(id="call_lab", name="add", arguments=""),
    ToolDelta(arguments='{"a": 1, '),
]


# Endings: each script, and what a client may receive of it.

TextRule = Literal["all", "some", "none"]


class Ending(msgspec.Struct, frozen=True):
    """One way to end, and what a client may receive. `text`: all of the text, a beginning of it, or none."""

    what: str
    script: Script
    may_be: frozenset[str]
    text: TextRule = "some"
    tools: bool = False
    json: bool = True
    """Whether it is something else when the answer was not asked for as a stream."""
    waits: bool = False
    """Whether only a limit on silence ends it: a server may have none, or a very long one."""


def _done(what: str, script: Script, *, text: TextRule = "all", tools: bool = False, may_be: str = "success") -> Ending:
    return Ending(what, script, frozenset(may_be.split()), text, tools)


def _failed(
    what: str, script: Script, *, text: TextRule = "some", tools: bool = False, json: bool = True, waits: bool = False
) -> Ending:
    return Ending(what, script, frozenset({"failure"}), text, tools, json, waits)


def _settled(script: Script) -> Script:
    return [*script[:-1], _SETTLE, script[-1]]


def _as_asked(scripts: Mapping[str, Script]) -> dict[str, Script]:
    """Return scripts that send a usage only to those who ask: some servers break at a chunk without choices."""

    def asked(step: Step) -> Step:
        return replace(step, if_asked=True) if isinstance(step, UsageChunk) else step

    return {name: [asked(step) for step in script] for name, script in scripts.items()}


_OF = _as_asked(misbehaving.ENDINGS)
_ODD = _as_asked(misbehaving.ODDITIES)

ENDINGS: Final[dict[str, Ending]] = {
    "completed": _done("a whole answer", _OF["completed"]),
    "no-done": _done("a whole answer whose [DONE] was forgotten", _OF["completed-no-done"]),
    "done-no-finish": _done("[DONE] without a finish reason", _ODD["done-no-finish"], may_be="success failure unsaid"),
    "empty": _done("a finish reason and no text", _ODD["empty"], may_be="success failure", text="none"),
    "tool-call": _done("a call of a tool", _ODD["tool-call"], tools=True),
    "length": _done("cut off at a length", _OF["length"], may_be="truncated"),
    "filter": _done("cut off by a filter", _OF["content-filter"], may_be="truncated"),
    "cut": _failed("the connection is reset in the middle", _settled(_OF["cut"])),
    "unclean": _failed("the connection is closed in the middle", _settled(_OF["eof-unclean"])),
    "eof": _failed("the stream ends, and nobody says why", _OF["eof"], json=False),
    "error": _failed("an error in the middle", _OF["in-band-error"]),
    "error-event": _failed("an `event: error` in the middle", _OF["event-error"], json=False),
    "garbage": _failed("a frame in the middle that is no JSON", _OF["garbage-json"]),
    "tool-cut": _failed("the stream ends inside of a tool call", [*_CALL, Eof()], tools=True, json=False),
    "nothing": _failed("200, and an empty body", _ODD["nothing-at-all"], text="none", json=False),
    "400": _failed("HTTP 400", _OF["400"], text="none"),
    "401": _failed("HTTP 401", _OF["401"], text="none"),
    "404": _failed("HTTP 404", _OF["404"], text="none"),
    "429": _failed("HTTP 429", [Status(429)], text="none"),
    "500": _failed("HTTP 500", _OF["500"], text="none"),
    "html": _failed("200, and a page to sign in", _OF["html-200"], text="none"),
    "stall": _failed("silence in the middle", _OF["stall"], json=False, waits=True),
    "silence": _failed("silence from the start", _OF["silence"], text="none", waits=True),
}
"""Every ending by its name. A refused connection is no script: the upstream stops listening for it."""

_NAMED: Final[dict[str, Script]] = {
    "hold": [Headers(), Role(), Tokens(3), Hang()],
    "mute": [Hang()],
    "hello": [Headers(), Role(), Delta("Hello."), Finish(), Done()],
}
_COUNTED = re.compile(r"(tokens|flood)-(\d+)-(\d+)")


def script_named(name: str) -> Script | None:
    """Return the script of a name: an ending, `hold`, `mute`, `tokens-<n>-<ms>` or `flood-<n>-<kB each>`."""
    if name in ENDINGS:
        return ENDINGS[name].script
    if found := _COUNTED.fullmatch(name):
        n, size = int(found[2]), int(found[3])
        pieces = Tokens(n, size / 1000) if found[1] == "tokens" else Tokens(n, pad=size * 1000)
        return [Headers(), Role(), pieces, Finish(), Done()]
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
