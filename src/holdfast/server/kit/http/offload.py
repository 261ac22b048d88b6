"""Threads for work whose duration depends on the client.

They are separate from the event loop's default threads, which write settings and watch processes: a stop never waits
for this work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Offload:
    """Two threads, started at first use. Further work is queued."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, "holdfast-offload")

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """End the threads. Work that has not begun is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
