"""Opens the store that a URL names."""

from __future__ import annotations

import re
from typing import Any

from . import Store
from .memory import MemoryStore
from .sqlite import SqliteStore

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?=:)")  # two letters and more: C:\holdfast is a path


def open_store(url: str, **options: Any) -> Store:
    """Open a store: `memory:`, or `sqlite:PATH` (or just the path), where PATH is a file or a folder for one.

    This waits for the disk: call it before the event loop runs, or with `asyncio.to_thread`.
    """
    found = _SCHEME.match(url)
    scheme = found.group() if found else "sqlite"
    path = url[found.end() + 1 :] if found else url
    if scheme == "memory" and not path:
        return MemoryStore(**options)
    if scheme == "sqlite" and path:
        return SqliteStore(path, **options)
    raise ValueError(f"there is no store for {url!r}: use memory:, sqlite:PATH, or the path of a folder")
