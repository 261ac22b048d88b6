"""Leaving and stopping: how long the upstream is still paid for, and what is left of the answer."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from ..http import Broken
from ..reading import Reader, follow
from ..scripts import TEXT, Tag
from . import Check, Lab, Seen

__all__ = ["CHECKS"]

LONG = "tokens-400-100"
"""An answer that takes longer than anybody waits here, and is no load."""
TOGETHER = 2
"""Measured at the same time: a time that is taken from a busy server tells of its load."""


async def _measured(lab: Lab, once: Callable[[Lab], Awaitable[float | None]]) -> Seen:
    """Measure some times, and judge by the worst. None is an upstream that was never closed."""
    found: list[float | None] = []
    while len(found) < lab.samples:
        share = min(TOGETHER, lab.samples - len(found))
        try:
            found += await asyncio.gather(*(once(lab) for _ in range(share)))
        except TimeoutError:
            return Seen(None, f"no answer was under way within {lab.patience:g} s")
        if None in found:
            break
    return _latency(found, lab.limit, lab.open)


def _latency(found: Sequence[float | None], limit: float, waited: float) -> Seen:
    closed = [seconds for seconds in found if seconds is not None]
    if len(closed) < len(found):
        never = len(found) - len(closed)
        return Seen(False, f"the upstream was still open {waited:g} s later ({never} of {len(found)} times)")
    middle, worst = statistics.median(closed), max(closed)
    figures = {"p50_ms": round(middle * 1000, 1), "max_ms": round(worst * 1000, 1)}
    what = f"closed after {middle * 1000:.0f} ms, at most {worst * 1000:.0f} ms"
    return Seen(worst <= limit, what, figures)


# Leaving.


async def _leave_mid_stream(lab: Lab) -> float | None:
    tag = Tag(LONG)
    async with lab.begun(tag):
        left = time.monotonic()
    return await _closed_since(lab, tag, left)


async def _leave_in_silence(lab: Lab) -> float | None:
    tag = Tag("hold")
    async with lab.begun(tag, pieces=1):
        left = time.monotonic()
    return await _closed_since(lab, tag, left)


async def _leave_before_headers(lab: Lab) -> float | None:
    return await _leave_while_waiting(lab, stream=True)


async def _leave_json(lab: Lab) -> float | None:
    return await _leave_while_waiting(lab, stream=False)


async def _leave_while_waiting(lab: Lab, *, stream: bool) -> float | None:
    """Leave while the upstream has said nothing at all."""
    tag = Tag("mute")
    asking = asyncio.ensure_future(lab.ask(tag, stream=stream))
    try:
        await lab.upstream.seen(tag, lab.patience)
    finally:
        asking.cancel()
        left = time.monotonic()
        await asyncio.gather(asking, return_exceptions=True)
    return await _closed_since(lab, tag, left)


async def _closed_since(lab: Lab, tag: Tag, since: float) -> float | None:
    closed = await lab.upstream.all_left(tag, lab.open)
    return None if closed is None else max(0.0, closed - since)


def _latency_check(id: str, promise: str, once: Callable[[Lab], Awaitable[float | None]], *needs: str) -> Check:
    async def look(lab: Lab) -> Seen:
        return await _measured(lab, once)

    return Check(id, promise, look, frozenset(needs), alone=True)


# Stopping.


async def _stop_mid_stream(lab: Lab) -> float | None:
    return await _stop(lab, Tag(LONG), pieces=3)


async def _stop_in_silence(lab: Lab) -> float | None:
    return await _stop(lab, Tag("hold"), pieces=1)


async def _stop(lab: Lab, tag: Tag, pieces: int) -> float | None:
    async with lab.begun(tag, keep=True, pieces=pieces) as (_, reader):
        asked = time.monotonic()
        await lab.wire.stop(reader)
        return await _closed_since(lab, tag, asked)


async def _stop_is_told(lab: Lab) -> Seen:
    """Who reads an answer that is stopped hears so, and what is kept is what was read."""
    async with lab.begun(Tag(LONG), keep=True) as (reply, reader):
        await lab.wire.stop(reader)
        async with asyncio.timeout(lab.patience):
            await follow(reply, reader)
    told = f"told as {reader.ending} ({reader.words})"
    return Seen(reader.ending == "stopped", told)


# What is kept.


async def _kept_after_stop(lab: Lab) -> Seen:
    async with lab.begun(Tag(LONG), keep=True) as (reply, reader):
        await lab.wire.stop(reader)
        async with asyncio.timeout(lab.patience):
            await follow(reply, reader)
    return await _kept(lab, reader, "stopped", reader.text)


async def _kept_after_cut(lab: Lab) -> Seen:
    reader = lab.wire.reader()
    async with asyncio.timeout(lab.patience):
        await follow(await lab.wire.start(Tag("cut").prompt, keep=True), reader)
    return await _kept(lab, reader, "failure", TEXT)


async def _kept(lab: Lab, reader: Reader, ending: str, text: str) -> Seen:
    try:
        kept = await lab.wire.kept(reader)
    except Broken as broken:
        return Seen(False, str(broken))
    told = f"{len(kept.text)} of {len(text)} characters, as {kept.ending} ({kept.words})"
    return Seen(kept.text == text and kept.ending == ending, told)


_WITHIN = "the upstream is closed within 1 s"

CHECKS = [
    _latency_check("leave/mid-stream", f"the client leaves while words come: {_WITHIN}", _leave_mid_stream, "leave"),
    _latency_check("leave/silence", f"the client leaves in a silence: {_WITHIN}", _leave_in_silence, "leave"),
    _latency_check("leave/mute", f"the client leaves before the first word: {_WITHIN}", _leave_before_headers, "leave"),
    _latency_check(
        "leave/json", f"the client of an answer without streaming leaves: {_WITHIN}", _leave_json, "leave", "json"
    ),
    _latency_check("stop/mid-stream", f"a stop while words come: {_WITHIN}", _stop_mid_stream, "stop"),
    _latency_check("stop/silence", f"a stop in a silence: {_WITHIN}", _stop_in_silence, "stop"),
    Check("stop/told", "a reader of a stopped answer hears that it was stopped", _stop_is_told, frozenset({"stop"})),
    Check(
        "keep/stop",
        "what was read of a stopped answer is kept, all of it, as stopped",
        _kept_after_stop,
        frozenset({"keep", "stop"}),
    ),
    Check(
        "keep/cut", "what an upstream said before it broke off is kept, as failed", _kept_after_cut, frozenset({"keep"})
    ),
]
