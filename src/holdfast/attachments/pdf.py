"""PDFs: their text, or their pages as pictures, read in a child process with limits of time, memory and output."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections import OrderedDict
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ..concurrency.limited_child import kill_child, limited, start_limited
from .kinds import BadFile

MOST_PAGES = 1000
"""Maximum number of pages of a PDF that is read as text."""
MOST_PICTURES = 50
"""Maximum number of pages that are shown as pictures."""
MOST_TEXT = 10_000_000
"""Maximum number of characters of a PDF."""

_MOST_BASE64 = 40_000_000
_MEMORY = 1 << 29
_SECONDS = 30  # of processor time
_LONGEST_WAIT = 90.0  # seconds for the same on a busy machine
_AT_ONCE = 2
_KEPT = 32_000_000  # characters of texts and pictures that were read before
_PROGRAM = limited(
    "import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n",
    memory=_MEMORY,
    seconds=_SECONDS,
)
_CHILD = str(Path(__file__).with_name("pdf_child.py"))

How = Literal["text", "pictures"]


class _Read(msgspec.Struct, frozen=True):
    """What the child has found."""

    pages: int = 0
    read: list[str] | None = None
    why: str = ""


class Pdf(NamedTuple):
    """A PDF that was read: its pages as texts, or as PNG pictures in base64."""

    pages: tuple[str, ...]

    @property
    def has_text(self) -> bool:
        """Whether there is a text on any page. A scan has none."""
        return any(self.pages)

    @property
    def text(self) -> str:
        """The whole text, with the numbers of the pages."""
        if len(self.pages) == 1:
            return self.pages[0]
        return "\n\n".join(f"[Page {number}]\n{page}" for number, page in enumerate(self.pages, 1))


class Pdfs:
    """Reads PDFs. What was read is kept for the next turn, up to a bound."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._read: OrderedDict[tuple[bytes, How], Pdf] = OrderedDict()
        self._kept = 0

    async def text(self, name: str, data: bytes) -> Pdf:
        """Return the texts of the pages, or raise `BadFile`."""
        return await self._pdf(name, data, "text")

    async def pictures(self, name: str, data: bytes) -> Pdf:
        """Return the pages as pictures, or raise `BadFile`."""
        return await self._pdf(name, data, "pictures")

    async def _pdf(self, name: str, data: bytes, how: How) -> Pdf:
        key = (await asyncio.to_thread(lambda: hashlib.sha256(data).digest()), how)
        async with self._turns:
            if (known := self._read.get(key)) is not None:
                self._read.move_to_end(key)
                return known
            found = _checked(name, await _ask_child(data, how), how)
        self._keep(key, found)
        return found

    def _keep(self, key: tuple[bytes, How], pdf: Pdf) -> None:
        if key in self._read:
            return
        self._read[key] = pdf
        self._kept += _size(pdf)
        while self._kept > _KEPT and len(self._read) > 1:
            self._kept -= _size(self._read.popitem(last=False)[1])


def _size(pdf: Pdf) -> int:
    return sum(map(len, pdf.pages))


async def _ask_child(data: bytes, how: How) -> _Read:
    if not (packages := _packages()):
        return _Read(why="missing")
    most, length = (MOST_PAGES, MOST_TEXT) if how == "text" else (MOST_PICTURES, _MOST_BASE64)
    child = await start_limited(_PROGRAM, _CHILD, packages, how, str(most), str(length))
    try:
        async with asyncio.timeout(_LONGEST_WAIT):
            output, _ = await child.communicate(data)
        return msgspec.json.decode(output, type=_Read) if child.returncode == 0 else _Read(why="limits")
    except (TimeoutError, ConnectionError, msgspec.DecodeError):
        return _Read(why="limits")
    finally:
        await kill_child(child)


def _packages() -> str:
    """Return the folder of the package that reads PDFs, for the child; empty if it is not installed."""
    spec = importlib.util.find_spec("pypdfium2")
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parents[1])


def _checked(name: str, read: _Read, how: How) -> Pdf:
    if read.read is not None:
        return Pdf(tuple(read.read))
    if read.why == "missing":
        raise BadFile(name, "is a PDF, and this server cannot read any. Install: pip install pypdfium2.", status=415)
    if read.why == "encrypted":
        raise BadFile(name, "is encrypted: it opens with a password only. Save a copy without one.")
    if read.why == "pages" and how == "pictures":
        raise BadFile(
            name, f"has {read.pages:,} pages. As pictures a model gets {MOST_PICTURES} at most: attach a part."
        )
    if read.why == "pages":
        raise BadFile(name, f"has {read.pages:,} pages. {MOST_PAGES:,} are the limit: attach a part of it.")
    if read.why == "long":
        raise BadFile(name, "has more text or larger pictures than a model could read. Attach a part of it.")
    if read.why == "limits":
        raise BadFile(name, "takes too much time or memory to read. Save it again, or attach a part of it.")
    raise BadFile(name, "is damaged: it cannot be read as a PDF. Save it again.")
