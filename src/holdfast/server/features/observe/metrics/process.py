"""Measures this process: delays of the event loop, and pauses by the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from time import perf_counter
from typing import Any

EVERY = 0.25
"""Seconds between two measurements of the event loop."""


async def measured_process(lag: Callable[[float], None], pause: Callable[[int, float], None]) -> None:
    """Report each delay of a timer, and each pause with the generation that was collected, until cancelled."""
    watch = _GcWatch(pause)
    gc.callbacks.append(watch)
    try:
        while True:
            due = perf_counter() + EVERY  # uvloop's clock counts milliseconds
            await asyncio.sleep(EVERY)
            lag(max(0.0, perf_counter() - due))
    finally:
        gc.callbacks.remove(watch)


class _GcWatch:
    """Called by Python before and after each collection."""

    def __init__(self, pause: Callable[[int, float], None]) -> None:
        self._pause = pause
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = perf_counter()
        elif self._began:
            self._pause(info["generation"], perf_counter() - self._began)
