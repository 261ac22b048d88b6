"""Opens the store that a URL names."""

from __future__ import annotations

import asyncio
import importlib
import re
from typing import Any

from ...errors import HoldfastError, how_to_install
from .. import Store
from ..memory import MemoryStore
from ..place import is_postgres
from ..rows.migrations import Migration
from ..sqlite import SqliteStore
from ..sqlite.file import locate, pending

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?=:)")  # two letters and more: C:\holdfast is a path


class StoreNotInstalled(HoldfastError):
    """The package that a store needs is not installed."""

    code = "store_not_installed"
    status = 503
    message = f"A store on PostgreSQL needs asyncpg. Install it: {how_to_install('postgres')}."


def open_store(url: str, **options: Any) -> Store:
    """Open a store: `memory:`, `postgresql://user@host:port/dbname`, or `sqlite:PATH` (or just the path).

    PATH is a file or a folder for one.

    This waits for the disk: call it before the event loop runs, or with `asyncio.to_thread`.
    """
    found = _SCHEME.match(url)
    scheme = found.group() if found else "sqlite"
    path = url[found.end() + 1 :] if found else url
    if scheme == "memory" and not path:
        return MemoryStore(**options)
    if scheme == "sqlite" and path.startswith("//"):
        raise ValueError("write sqlite:./data (relative) or sqlite:/srv/data (absolute), without //")
    if url.strip() in ("", "memory", "sqlite", "postgres", "postgresql"):
        raise ValueError(f"{url!r} names no place: use memory:, sqlite:PATH, postgresql://…, or the path of a folder")
    if scheme == "sqlite" and path:
        return SqliteStore(path, **options)
    if is_postgres(url):
        return _postgres(url, **options)
    raise ValueError(
        f"{scheme}: is no kind of store: use memory:, sqlite:PATH, postgresql://…, or the path of a folder"
    )


def check_installed(url: str) -> None:
    """Raise an error if the package that a store needs is not installed. Nothing is opened."""
    if is_postgres(url):
        _postgres_module()


def pending_steps(url: str) -> list[Migration]:
    """Return the steps of the schema that the database of a store does not have yet. Nothing is changed.

    A database of a newer version is refused. This waits for the disk or the network.
    """
    if is_postgres(url):
        steps: list[Migration] = asyncio.run(_postgres_module("schema").pending_in_postgres(url))
        return steps
    return pending(locate(url.removeprefix("sqlite:")))


def _postgres(url: str, **options: Any) -> Store:
    store: Store = _postgres_module().PostgresStore(url, **options)
    return store


def _postgres_module(name: str = "") -> Any:
    """Import a module of the store on PostgreSQL: only now, since asyncpg comes with an extra."""
    try:
        return importlib.import_module(f"holdfast.store.postgres.{name}".rstrip("."))
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreNotInstalled from error


async def disconnect(store: Store) -> None:
    """Close connections that belong to the running event loop, which ends while the store stays open.

    Not every store has such connections.
    """
    if (close := getattr(store, "disconnect", None)) is not None:
        await close()
