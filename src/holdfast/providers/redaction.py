"""Other people's error messages, made fit to show.

Upstreams quote the key they were called with, whole, cut or masked, and people paste keys into URLs and headers. So
nothing that an upstream says is shown before it went through `redact`: rather a word too many is lost than a key shown.

Cost: linear in the text and in the secrets; of a longer text only the first `_LOOKED_AT` characters are looked at.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

__all__ = ["LONGEST", "REDACTED", "redact"]

REDACTED = "[redacted]"
LONGEST = 500
"""Characters that are left of a message."""

_LOOKED_AT = 8 * LONGEST
_PIECE = 8  # this many characters of a secret in a row are worth hiding; fewer occur by chance
_TELLING = 2  # characters beside a mask that make `sk***yz` a form of the secret
_SHORTEST = 4  # a shorter "secret" is a placeholder: hidden where it stands as a word, not inside every other word

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
    """Return one line of at most `LONGEST` characters, without control characters and without anything secret.

    `secrets` are hidden wherever they occur, in pieces and masked forms too; so is whatever looks like a key.
    """
    line = _one_line(text[:_LOOKED_AT])
    known = sorted({secret.strip() for secret in secrets} - {""}, key=len, reverse=True)
    line = _MASKED.sub(lambda found: REDACTED if _hints_at(known, found[1], found[2]) else found[0], line)
    for secret in known:
        line = _without(line, secret)
    for pattern, instead in _LOOKS_SECRET:
        line = pattern.sub(instead, line)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _one_line(text: str) -> str:
    """Drop what steers a terminal or hides text (Unicode's category C), after making line ends and tabs spaces."""
    return "".join(char for char in " ".join(text.split()) if not unicodedata.category(char).startswith("C"))


def _without(line: str, secret: str) -> str:
    if len(secret) < _SHORTEST:
        return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REDACTED, line)
    if len(secret) < _PIECE:
        return line.replace(secret, REDACTED)
    return _without_pieces(line, secret)


def _without_pieces(line: str, secret: str) -> str:
    """Hide the secret and every longer piece of it: a key that was cut at its front or end is still most of the key."""
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
    """Tell whether what stands around a mask is the front or the end of a secret, or of a key by its looks."""
    return bool(_MASKED_KEY.match(before)) or any(
        (len(before) >= _TELLING and secret.startswith(before)) or (len(after) >= _TELLING and secret.endswith(after))
        for secret in secrets
    )
