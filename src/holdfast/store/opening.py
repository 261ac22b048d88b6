"""Opens the store that a URL names."""

from __future__ import annotations

from typing import Any

from . import Store
from .memory import MemoryStore


async def open_store(url: str, **options: Any) -> Store:
    """Open a store: `memory:`, or `sqlite:PATH` (or just the path), where PATH is a file or a folder for one."""
    scheme, colon, _path = url.partition(":")
    if scheme == "memory" and colon:
        return MemoryStore()
    raise ValueError(f"there is no store for {url!r}: use memory:, sqlite:PATH or a path")
