"""Output filter for terminals: text of models, titles, names and errors may contain escape codes."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from typing import Any

_CONTROLS = frozenset({*range(0x20), *range(0x7F, 0xA0)} - {ord("\t"), ord("\n")})
_TURNING = frozenset({*range(0x202A, 0x202F), *range(0x2066, 0x206A)})
"""Characters that change the writing direction, so that a text looks different from its contents."""
_REMOVED = dict.fromkeys(_CONTROLS | _TURNING)
_ESCAPED = {code: f"\\u{code:04x}" for code in _CONTROLS | _TURNING}
_LINES = {ord(character): " " for character in "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"}
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(code) for code in range(0xFE00, 0xFE10)}
"""Characters that count as printable but are invisible."""
_MARKED = re.compile("[\U000e0100-\U000e01ef]")


def safe(text: str) -> str:
    """Return a text without control characters and changes of the writing direction."""
    return text if text.isprintable() else text.translate(_REMOVED)


def flat(text: str) -> str:
    """Return a text as one line without control characters."""
    return safe(text.translate(_LINES))


def safe_json(text: str) -> str:
    """Return JSON with control characters escaped. Its meaning is unchanged."""
    return text.translate(_ESCAPED)


def visible(text: str) -> str:
    r"""Return a text in which every character is visible: invisible ones as `\u200b`. Line ends stay."""
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character == "\n" or (character.isprintable() and character not in _BLANK and not _MARKED.match(character)):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class Screen:
    """A terminal as a text stream that removes control characters.

    It has no `buffer`: nothing can be written past it.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self.unfiltered = stream
        """The unfiltered stream, for output of ours with colours."""

    def write(self, text: str) -> int:
        """Write a text without control characters."""
        self.unfiltered.write(safe(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "detach"):
            raise AttributeError(name)
        return getattr(self.unfiltered, name)


def guard() -> None:
    """Filter everything that this process prints on a terminal by a `Screen`: answers, errors, log, tracebacks.

    A character that the terminal's encoding lacks becomes a question mark. It would end the output otherwise.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
            if name != "stdin" and stream.isatty():
                setattr(sys, name, Screen(stream))


def unfiltered(stream: Any) -> Any:
    """Return the stream behind a `Screen`, or the stream itself."""
    return stream.unfiltered if isinstance(stream, Screen) else stream
