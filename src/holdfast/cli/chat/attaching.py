"""Files that go with a message from the terminal: sent ahead, measured, and referred to by their hash."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Sequence
from typing import Any

import msgspec

from .. import show
from ..client import Api, CallFailed, Object
from ..screen import visible


async def attached(api: Api, paths: Sequence[str]) -> list[Object]:
    """Send files ahead, say what they are, and return them as parts of a message."""
    return [await _attached(api, pathlib.Path(path)) for path in paths]


def question_of(text: str, parts: list[Object]) -> str | list[Object]:
    """Return the content of a message. A model reads files before the question."""
    return [*parts, {"type": "text", "text": text}] if parts else text


async def _attached(api: Api, path: pathlib.Path) -> Object:
    try:
        data = await asyncio.to_thread(lambda: path.expanduser().read_bytes())
    except (OSError, RuntimeError) as error:  # an unknown user of `~user`
        raise CallFailed(f"Cannot read {visible(str(path))}: {getattr(error, 'strerror', error)}.") from None
    found = msgspec.convert(await api.call("POST", "/api/files", data, {"name": path.name}), _Found)
    facts = [f"{found.size:,} bytes", *found.facts()]
    show.note(f"{visible(found.name)}: {', '.join(facts)}")
    return {"type": "file", "file": {"filename": found.name, "file_data": f"holdfast-file:{found.sha256}"}}


class _Found(msgspec.Struct):
    """What the server has found in a file."""

    name: str
    size: int
    sha256: str
    tokens: int | None = None
    pages: int | None = None

    def facts(self) -> list[Any]:
        """Return its pages and tokens, if it has any."""
        pages = [] if self.pages is None else [show.plural(self.pages, "page")]
        return pages if self.tokens is None else [*pages, f"about {self.tokens:,} tokens"]
