"""Public tools for tests: scripted sources, and the contracts of every store and every provider.

run = await engine.start(script("Hello", Pause(0.1), " world"))

@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_my_store(check):
    await run_check(check, open_my_store)

@pytest.mark.parametrize("check", PROVIDER_CHECKS, ids=lambda check: check.__name__)
async def test_my_provider(check):
    await run_provider_check(check, open_my_upstream)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final, TypeAlias

import msgspec

from ..events import Yielded
from ..store.checks import STORE_CHECKS, check_store, run_check
from ..store.checks.case import Case, CaseCheck, OpenStore
from ..upstreams.checks import (
    PLAYED,
    PROVIDER_CHECKS,
    Ending,
    OpenUpstream,
    PlayedAnswer,
    ProviderCheck,
    UpstreamUnderTest,
    check_provider,
    run_provider_check,
)

__all__ = [
    "HANG",
    "PLAYED",
    "PROVIDER_CHECKS",
    "STORE_CHECKS",
    "Case",
    "CaseCheck",
    "Ending",
    "OpenStore",
    "OpenUpstream",
    "Pause",
    "PlayedAnswer",
    "ProviderCheck",
    "Step",
    "UpstreamUnderTest",
    "check_provider",
    "check_store",
    "run_check",
    "run_provider_check",
    "script",
]


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
