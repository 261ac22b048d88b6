"""What a file is, by its bytes. Neither its name nor what a client calls it counts.

A text is UTF-8, or UTF-16 with a byte order mark. Other encodings cannot be told apart for certain, so they are refused
rather than guessed.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import BadRequest

TEXT = "text/plain"
PDF = "application/pdf"
PICTURES: Mapping[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
"""The first bytes of a picture of each type. SVG is a text, which can contain scripts."""
_WEBP = "image/webp"
"""Sound and video can begin with the same four bytes."""
ENDINGS: Mapping[str, str] = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    PDF: ".pdf",
    TEXT: ".txt",
}
"""The ending of a name for each type."""
LONGEST_NAME = 200

_BASE64 = ";base64,"
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_NOT_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Control characters that texts lack. Form feeds, and the escapes of a coloured log, are none."""
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Control characters, and those that change how the rest of a name is shown."""
_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a ZIP archive or an Office document. Save the document as PDF or text, or unpack the archive"),
    (b"\xd0\xcf\x11\xe0", "an old Office document. Save it as PDF or text"),
    (b"\x1f\x8b", "a compressed file. Unpack it"),
    (b"7z\xbc\xaf", "a compressed file. Unpack it"),
    (b"Rar!", "a compressed file. Unpack it"),
    (b"{\\rtf", "an RTF document. Save it as PDF or text"),
)


class BadFile(BadRequest):
    """A file that no model can be given. The message names it, and says what to do."""

    code = "bad_file"

    def __init__(self, name: str, why: str, *, status: int = 400) -> None:
        super().__init__(f"“{clean_name(name)}” {why}", param="file", status=status)


class Inline(NamedTuple):
    """The content of a `data:` URL."""

    type: str
    data: bytes


def type_of(data: bytes) -> str | None:
    """Return the media type of a file; None if it is none that is taken."""
    for type, beginnings in PICTURES.items():
        if data.startswith(beginnings) and (type != _WEBP or data[8:12] == b"WEBP"):
            return type
    if data.startswith(b"%PDF-"):
        return PDF
    return None if text_in_file(data) is None else TEXT


def text_in_file(data: bytes) -> str | None:
    """Return the text of a file, with line feeds alone; None if it is no text in UTF-8 or UTF-16."""
    if data.startswith(tuple(beginning for beginning, _ in _REFUSED)):
        return None
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if _NOT_TEXT.search(text) else text.replace("\r\n", "\n").replace("\r", "\n")


def refuse_unknown_kind(name: str, data: bytes) -> None:
    """Refuse a file that is no text, no PDF and no picture."""
    if not data:
        raise BadFile(name, "is empty.")
    if type_of(data) is not None:
        return
    for beginning, what in _REFUSED:
        if data.startswith(beginning):
            raise BadFile(name, f"is {what}.", status=415)
    if b"\0" in data:
        raise BadFile(name, "is no text, PDF, PNG, JPEG, GIF or WebP. Send what it says as text.", status=415)
    raise BadFile(name, "is not a text in UTF-8 or UTF-16. Save it as UTF-8, so that no letter is misread.", status=415)


def clean_name(name: str) -> str:
    """Return a file's name without folders, and without characters that hide or reorder others."""
    last = re.split(r"[/\\]", name)[-1]
    clean = " ".join(_NOT_IN_NAMES.sub("", last).split())
    if len(clean) > LONGEST_NAME:
        stem, dot, ending = clean.rpartition(".")
        keeps_ending = bool(dot) and len(ending) < 12
        clean = f"{stem[: LONGEST_NAME - 13]}….{ending}" if keeps_ending else f"{clean[: LONGEST_NAME - 1]}…"
    return clean if clean.strip(".") else "file"


def read_inline(url: str) -> Inline | None:
    """Return the content of a `data:` URL in base64; None for any other URL."""
    type, found, text = url.removeprefix("data:").partition(_BASE64)
    if not found or not url.startswith("data:"):
        return None
    try:
        return Inline(type, base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None


def picture_url(url: str) -> str | None:
    """Return the URL of a picture with the type that its bytes have; None if it is no picture that can be shown."""
    if url.startswith(("https://", "http://")):
        return url
    if (found := read_inline(url)) is None:
        return None
    type = type_of(found.data)
    return inline_url(type, found.data) if type is not None and type in PICTURES else None


def inline_url(type: str, data: bytes) -> str:
    """Return a file as a `data:` URL."""
    return f"data:{type}{_BASE64}{base64.b64encode(data).decode('ascii')}"
