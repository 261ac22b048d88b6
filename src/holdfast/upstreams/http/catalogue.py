"""The models of an upstream: requested when needed, and cached."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

__all__ = ["Catalogue", "model_names"]

MODELS_RETRY = 10.0
"""Maximum seconds between a failed request and the next one."""
READ_AGAIN = 3.0
"""Seconds after a read during which a missing name does not cause another read."""
MODELS_WAIT = 2.0
"""Maximum seconds that a caller waits for the first list. The request may take longer."""


class Catalogue:
    """The models of an upstream, requested by one task for all callers, and cached."""

    def __init__(
        self,
        look_up: Callable[[], Awaitable[list[str] | None]],
        timeout: float,
        fresh: float,
        again: float = READ_AGAIN,
    ) -> None:
        self._look_up = look_up
        self._timeout = timeout
        self._fresh = fresh
        self._again = again
        self._names: list[str] | None = None
        self._due = 0.0
        self._read_at = -math.inf
        self._is_read = False  # the last request returned a list
        self._task: asyncio.Task[None] | None = None

    async def names(self) -> list[str]:
        """Return the cached list at once, or wait a little for the first one. A due refresh runs in the background."""
        self._renew_if_due()
        if self._names is None and self._task is not None:
            await asyncio.wait({self._task}, timeout=MODELS_WAIT)
        return list(self._names or ())

    async def has(self, listed: Callable[[list[str]], bool]) -> bool | None:
        """Return the result of `listed` for the list, which is read again if that is False; None without a list."""
        if self._names is None and self._read_at > -math.inf:
            self._renew_if_due()
            return None  # it could not be read: a request need not wait for another try
        if not await self.names() or listed(self._names or []):
            return True if self._names else None
        if time.monotonic() - self._read_at >= self._again:
            self._task = self._task or asyncio.create_task(self._renew())
            await asyncio.wait({self._task})
        return listed(self._names or []) if self._is_read and self._names else None

    def _renew_if_due(self) -> None:
        if self._task is None and time.monotonic() >= self._due:
            self._task = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        names = None
        try:
            async with asyncio.timeout(self._timeout):
                names = await self._look_up()
        except TimeoutError:
            pass  # the cached list stays
        finally:
            self._task = None
        self._due = time.monotonic() + (min(MODELS_RETRY, self._fresh) if names is None else self._fresh)
        self._read_at, self._is_read = time.monotonic(), names is not None
        self._names = self._names if names is None else names

    async def close(self) -> None:
        """Cancel a request in progress."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


def model_names(value: Any) -> list[str] | None:
    """Return the ids in a list of models, each once; None if there is no list."""
    match value:
        case {"data": listed} | {"models": listed}:
            pass
        case listed:
            pass
    if not isinstance(listed, list):
        return None
    ids = [id for entry in listed if isinstance(entry, dict) for id in _names_of(entry)[:1]]
    return list(dict.fromkeys(id for id in ids if isinstance(id, str)))


def _names_of(entry: Mapping[str, Any]) -> list[Any]:
    return [entry[name] for name in ("id", "name") if entry.get(name)]
