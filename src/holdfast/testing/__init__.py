"""Scripted sources for tests.

run = await engine.start(script("Hello", Pause(0.1), " world"))

The contracts of every store and every provider are in `holdfast_lab.contracts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final, TypeAlias

import msgspec

from ..events import Yielded

__all__ = ["HANG", "Pause", "Step", "script"]


class Pause(msgspec.Struct, frozen=True):
    """A step of a script: wait."""

    seconds: float


HANG: Final = Pause(float("inf"))
"""A step of a script: never return, as a silent upstream does."""

Step: TypeAlias = Yielded | Sequence[Yielded] | Pause | BaseException


async def script(*steps: Step, ignore_cancel: bool = False) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
    """A scripted source: yields strings and events, pauses, hangs, and raises exceptions.

    With `ignore_cancel` it ignores the first cancel, as badly behaved sources do; a second one ends it, so that a test
    can end.
    """
    for step in steps:
        if isinstance(step, BaseException):
            raise step
        if not isinstance(step, Pause):
            yield step
            continue
        try:
            await _pause(step.seconds)
        except asyncio.CancelledError:
            if not ignore_cancel:
                raise
            ignore_cancel = False
            await _pause(step.seconds)


async def _pause(seconds: float) -> None:
    if seconds == float("inf"):
        await asyncio.get_running_loop().create_future()
    else:
        await asyncio.sleep(seconds)
