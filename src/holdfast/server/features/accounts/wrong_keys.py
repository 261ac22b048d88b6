"""Wrong keys: counted for each address, logged without the key, and answered slowly when there are many."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict

from .people.client_addresses import place_of

logger = logging.getLogger(__name__)

WINDOW = 60.0
"""Length in seconds of the window in which the wrong keys of an address are counted."""
FREE = 10
"""Number of wrong keys of an address in that window that are answered without a delay."""
DELAY = 1.0
"""Delay of each further answer, in seconds."""
MOST_ADDRESSES = 1024
MOST_LINES = 60
"""Maximum number of log lines in that window, for all addresses."""


class WrongKeys:
    """Counts the wrong keys of each address. Costs a short list for each of at most a thousand addresses.

    Valid keys never wait, so that an attacker behind a proxy does not slow down its other users. The status stays 401:
    clients repeat a request after a 429.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lines: tuple[float, int] = (0.0, 0)

    async def seen(self, address: str) -> None:
        """Count a wrong key, and wait if its address has sent many."""
        if self._count(place_of(address)) > FREE:
            await asyncio.sleep(DELAY)

    def _count(self, place: str) -> int:
        now = time.monotonic()
        began, count = self._counts.pop(place, (now, 0))
        if now - began > WINDOW:
            began, count = now, 0
        self._counts[place] = began, count + 1
        if len(self._counts) > MOST_ADDRESSES:
            self._counts.popitem(last=False)
        self._log(place, count + 1, now)
        return count + 1

    def _log(self, place: str, count: int, now: float) -> None:
        """Log the first wrong key of an address, the tenth, the hundredth and so on."""
        if str(count).strip("0") != "1":
            return
        began, lines = self._lines
        if now - began > WINDOW:
            began, lines = now, 0
        self._lines = began, lines + 1
        if lines < MOST_LINES:
            slowed = f", answered after {DELAY:g} s each" if count > FREE else ""
            logger.warning("wrong keys from %s: %d within a minute%s", place, count, slowed)
        elif lines == MOST_LINES:
            logger.warning("wrong keys from more addresses than are logged in a minute")
