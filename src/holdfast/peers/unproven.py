"""Connections of whoever: they take bounded room, and do not keep out those that can prove who they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

MOST_UNPROVEN = 100
"""Maximum number of connections that have not proven yet that they have the cluster key."""


class Unproven:
    """Connections that have not proven yet that they have the cluster key.

    One more than the maximum ends the oldest of the address that has most of them. Another node proves itself within
    milliseconds, so that a flood ends its own connections, and not the node's.
    """

    def __init__(self) -> None:
        self._of_address: dict[str, dict[asyncio.Timeout, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_address.values()))

    @contextmanager
    def place(self, address: str, limit: asyncio.Timeout) -> Iterator[None]:
        """Count a connection for as long as the block lasts. Its `limit` may be made to end at once."""
        if len(self) >= MOST_UNPROVEN:
            self._end_one()
        self._of_address.setdefault(address, {})[limit] = None
        try:
            yield
        finally:
            self._remove(address, limit)

    def _end_one(self) -> None:
        address, crowd = max(self._of_address.items(), key=lambda each: len(each[1]))
        oldest = next(iter(crowd))
        oldest.reschedule(asyncio.get_running_loop().time())
        self._remove(address, oldest)

    def _remove(self, address: str, limit: asyncio.Timeout) -> None:
        crowd = self._of_address.get(address, {})
        crowd.pop(limit, None)
        if not crowd:
            self._of_address.pop(address, None)
