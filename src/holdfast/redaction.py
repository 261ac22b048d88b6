"""Error messages of upstreams without secrets.

Upstreams quote the key of a request, whole, cut or masked, and users paste keys into URLs and headers. So every message
of an upstream passes `redact` before it is shown: better to lose a word than to show a key.

Cost: linear in the text and in the secrets; of a longer text only the first `_LOOKED_AT` characters are read.
"""

from __future__ import annotations

import re
import traceback
import unicodedata
from collections.abc import Iterable

__all__ = ["LONGEST", "REDACTED", "hide_link", "redact", "redacted_traceback"]

REDACTED = "[redacted]"
LONGEST = 500
"""Maximum length of a message, in characters."""

LONGEST_TRACEBACK = 20_000
"""Maximum length of a traceback, in characters: its end, which names the error."""

_LOOKED_AT = 8 * LONGEST
_PIECE = 8  # characters of a secret in a row that are hidden; fewer occur by chance
_TELLING = 2  # characters beside a mask that make `sk***yz` a form of the secret
_SHORTEST = 4  # a shorter "secret" is a placeholder: hidden as a whole word, not inside of other words

_WORDS = re.compile(r"[a-z]+(?:[-_][a-z]+)*")  # "no-key-required": its pieces are words of every other message

_MASKED = re.compile(r"([\w-]{0,64})(?:\*{2,}|•{2,}|…+|\.{3,})([\w-]{0,64})")
_MASKED_KEY = re.compile(r"(?:sk|pk|rk|gsk|xai|hf|key)[-_]", re.IGNORECASE)

_LOOKS_SECRET: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(bearer)\s+[^\s\"',;]{4,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"\b(basic)\s+(?=[a-z+/]*[\d=])[\w+/=]{8,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|glpat|xoxb)[-_][\w*.-]{4,}", re.IGNORECASE), REDACTED),
    (re.compile(r"\bAIza[\w-]{16,}"), REDACTED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"), REDACTED),
    (re.compile(r"://[^\s/@]{1,256}@"), f"://{REDACTED}@"),
    (
        re.compile(r"([\w-]{0,32}(?:key|token|secret|password|passwd|signature|sig)\"?=\"?)[^\s\"'&,;)]+", re.I),
        rf"\1{REDACTED}",
    ),
    (
        re.compile(r"((?:api[-_ ]?key|token|secret|password|authorization)[\"']?\s?:\s?[\"']?)[^\s\"',;)]{12,}", re.I),
        rf"\1{REDACTED}",
    ),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return one line of at most `LONGEST` characters, without control characters and secrets.

    `secrets` are hidden everywhere, in pieces and masked forms too; so is what looks like a key.
    """
    line = _one_line(text[:_LOOKED_AT])
    known = sorted({secret.strip() for secret in secrets} - {""}, key=len, reverse=True)
    line = _MASKED.sub(lambda found: REDACTED if _hints_at(known, found[1], found[2]) else found[0], line)
    for secret in known:
        line = _without(line, secret)
    line = _without_keys(line)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def redacted_traceback(error: BaseException) -> str:
    """Return the traceback of an error for the log, without control characters and without what looks like a key."""
    lines = "".join(traceback.format_exception(error))[-LONGEST_TRACEBACK:].splitlines()
    return "\n".join(_without_keys(_printable(line)) for line in lines)


def _without_keys(line: str) -> str:
    for pattern, instead in _LOOKS_SECRET:
        line = pattern.sub(instead, line)
    return line


def _one_line(text: str) -> str:
    """Replace line ends and tabs by spaces, and drop control characters (Unicode's category C)."""
    return _printable(" ".join(text.split()))


def _printable(line: str) -> str:
    return "".join(char for char in line if not unicodedata.category(char).startswith("C"))


def _without(line: str, secret: str) -> str:
    if len(secret) < _SHORTEST:
        return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REDACTED, line)
    if len(secret) < _PIECE or _WORDS.fullmatch(secret):
        return line.replace(secret, REDACTED)
    return _without_pieces(line, secret)


def _without_pieces(line: str, secret: str) -> str:
    """Hide the secret and every long piece of it: a key that was cut is still most of the key."""
    pieces = {secret[at : at + _PIECE] for at in range(len(secret) - _PIECE + 1)}
    kept: list[str] = []
    shown_from = at = 0
    while at + _PIECE <= len(line):
        if line[at : at + _PIECE] not in pieces:
            at += 1
            continue
        kept += line[shown_from:at], REDACTED
        while line[at : at + _PIECE] in pieces:
            at += 1
        shown_from = at = at + _PIECE - 1
    return "".join(kept) + line[shown_from:]


def _hints_at(secrets: Iterable[str], before: str, after: str) -> bool:
    """Return whether the text around a mask is the beginning or the end of a secret, or looks like a key."""
    return bool(_MASKED_KEY.match(before)) or any(
        (len(before) >= _TELLING and secret.startswith(before)) or (len(after) >= _TELLING and secret.endswith(after))
        for secret in secrets
    )


_LINK = re.compile(r"(/shared/|/triggers/[^/?#\s]+/call/)[^/?#\s]+")


def hide_link(path: str) -> str:
    """Return a path without the token of a link or of a trigger, which is as good as a password."""
    return _LINK.sub(rf"\1{REDACTED}", path)
