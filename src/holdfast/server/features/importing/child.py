"""The child process that reads an export: a JSON file, or a ZIP with some. It writes one line of JSON for each chat.

It has limits of memory and of time, gets the export as its standard input, and the name of `formats.py`.
`zips.py` reads a ZIP.
"""

from __future__ import annotations

import base64
import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

LARGEST_JSON = 400 * 1024 * 1024
LARGEST_FILE = 20 * 1024 * 1024
LARGEST_CHAT = 60 * 1024 * 1024
MOST_NAMES = 200_000
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"
_ASSET = re.compile("file[-_][A-Za-z0-9]+")
"""The id of a file, with which its name begins: file-ID-name.png, file_ID.dat."""


class ExportRefused(Exception):
    """The export, or a part of it, is not read; the text says why."""


_ZIPS = runpy.run_path(str(Path(__file__).with_name("zips.py")))
BoundedZip, ZipRefused = _ZIPS["BoundedZip"], _ZIPS["ZipRefused"]
_REFUSED = (ExportRefused, ZipRefused)


class ExportArchive:
    """A ZIP. The limits count what is really in it, not what it says."""

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = BoundedZip(file)
        self.names: list[str] = self._zip.names
        if len(self.names) > MOST_NAMES:
            raise ExportRefused(f"The ZIP has more than {MOST_NAMES} files.")
        self._assets: dict[str, str] = {}
        for name in self.names:
            last = name.rpartition("/")[2]
            self._assets.setdefault(last, name)
            if found := _ASSET.match(last):
                self._assets.setdefault(found[0], name)

    def read(self, name: str, most: int) -> bytes:
        """Return a file of the archive."""
        data: bytes = self._zip.read(name, most)
        return data

    def find(self, id: str, name: str) -> tuple[str, str] | None:
        """Return name and base64 of a file that a message refers to."""
        entry = self._assets.get(id) or self._assets.get(name)
        if not entry:
            return None
        try:
            data = self.read(entry, LARGEST_FILE)
        except ZipRefused:
            return None
        return name or entry.rpartition("/")[2], base64.b64encode(data).decode("ascii")


def parsed_entries(data: bytes, name: str) -> Iterator[Any]:
    """Yield the entries of a JSON list, one at a time, or the one object."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ExportRefused(f"{name[:200]} is no export: it is not text in UTF-8.") from None
    at = _after_space(text, 0)
    if text[at : at + 1] != "[":
        yield _decoded(text, at, name)[0]
        return
    at = _after_space(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = _decoded(text, at, name)
        yield value
        at = _after_space(text, at)
        if text[at : at + 1] == ",":
            at = _after_space(text, at + 1)
        elif text[at : at + 1] != "]":
            raise ExportRefused(f"{name[:200]} is not valid JSON, or it is not complete.")


def _decoded(text: str, at: int, name: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise ExportRefused(f"{name[:200]} is not valid JSON, or it is not complete.") from None


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def tell(**fields: Any) -> None:
    """Write a line."""
    _write(_line(fields))


def _line(fields: dict[str, Any]) -> bytes:
    """Return a line. Halves of characters, which no store takes, become question marks."""
    return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def read_export(formats: str) -> None:
    """Read the export, and write what is in it."""
    read_chat, file = runpy.run_path(formats)["read_chat"], sys.stdin.buffer
    is_zip = file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    file.seek(0)
    try:
        archive = ExportArchive(file) if is_zip else None
        for name, data in _files(file, archive):
            _tell_chats(name, data, read_chat, archive.find if archive else lambda id, name: None)
        tell(kind="end")
    except _REFUSED as refused:
        tell(kind="failed", why=str(refused))
    except MemoryError:
        tell(kind="failed", why="The export needs too much memory to be read.")


def _files(file: IO[bytes], archive: ExportArchive | None) -> Iterator[tuple[str, bytes]]:
    if archive is None:
        data = file.read(LARGEST_JSON + 1)
        if len(data) > LARGEST_JSON:
            raise ExportRefused(f"The file is larger than {LARGEST_JSON >> 20} MB.")
        yield "", data
        return
    for name in archive.names:
        if name.lower().endswith(".json") and "__MACOSX" not in name:
            yield name, archive.read(name, LARGEST_JSON)


def _tell_chats(name: str, data: bytes, read_chat: Any, find: Any) -> None:
    """Write the chats of a file. What is wrong with the file is told, and the others are read."""
    try:
        for number, value in enumerate(parsed_entries(data, name or "The file"), 1):
            _tell_chat(name, number, value, read_chat, find)
    except _REFUSED as refused:
        if not name:
            raise
        tell(kind="refused", title=name[-200:], why=str(refused))


def _tell_chat(name: str, number: int, value: Any, read_chat: Any, find: Any) -> None:
    title = value.get("title") if isinstance(value, dict) else None
    shown = title[:200] if isinstance(title, str) and title else f"{name[-150:]} {number}".strip()
    try:
        chat = read_chat(value, find)
        if chat is None:
            return tell(kind="other")
        line = _line({"kind": "chat", "chat": chat})
        if len(line) > LARGEST_CHAT:
            raise ValueError("it is too large")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        tell(kind="refused", title=shown, why=str(error) if isinstance(error, ValueError) else "it is not valid")
    else:
        _write(line)


if __name__ == "__main__":
    read_export(sys.argv[1])
