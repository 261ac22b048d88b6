"""`kill -9` in the middle of an answer, and a restart."""

from __future__ import annotations

import asyncio
import time

from ..http import Broken
from ..reading import Reader, follow
from ..scripts import Tag
from . import Check, Lab, Seen

__all__ = ["CHECKS"]

LONG = "tokens-2000-20"
RECOVERY = 30.0
"""Seconds after a restart in which what a crash left must have been settled."""


async def _told(lab: Lab) -> Seen:
    """Kill the server under a reader, and see what the reader can know."""
    assert lab.judged is not None
    async with lab.begun(Tag(LONG), pieces=10) as (reply, reader):
        await lab.judged.kill()
        try:
            async with asyncio.timeout(lab.patience):
                await follow(reply, reader)
        finally:
            await lab.judged.start()
    answered = await _answers(lab)
    if not answered:
        return Seen(False, "after the restart it did not answer any more")
    told = "nothing was said, and the connection ended as if all were well" if reader.ending == "unsaid" else ""
    return Seen(reader.ending == "failure", told or f"told as {reader.ending} ({reader.words}); it answers again")


async def _answers(lab: Lab) -> bool:
    """Whether the server answers, for which it is given a while: the first answer may take its time."""
    deadline = time.monotonic() + RECOVERY + lab.patience
    while time.monotonic() < deadline:
        try:
            if (await lab.ask(Tag("completed"))).ending == "success":
                return True
        except TimeoutError:
            pass
        await asyncio.sleep(0.1)
    return False


async def _kept(lab: Lab) -> Seen:
    """Kill the server in the middle of an answer that it was to keep, and look for all that was seen."""
    assert lab.judged is not None
    async with lab.begun(Tag(LONG), keep=True, pieces=10) as (_, reader):
        await lab.judged.kill()
        await lab.judged.start()
    kept = await _settled(lab, reader)
    if kept is None:
        return Seen(False, "after the restart the answer was not there any more")
    told = f"{len(kept.text)} characters are there, {len(reader.text)} were seen; told as {kept.ending} ({kept.words})"
    return Seen(kept.text.startswith(reader.text) and kept.ending in ("failure", "stopped", "truncated"), told)


async def _settled(lab: Lab, reader: Reader) -> Reader | None:
    """Fetch an answer until it says how it ended, or for long enough."""
    deadline = time.monotonic() + RECOVERY
    found: Reader | None = None
    while time.monotonic() < deadline:
        try:
            found = await lab.wire.kept(reader)
        except Broken:
            pass
        else:
            if found.words.startswith("HTTP 404"):
                return None
            if found.ending != "unsaid":
                return found
        await asyncio.sleep(0.1)
    return found


CHECKS = [
    Check(
        "crash/told",
        "the server is killed: its reader sees a failure, and the restarted server answers",
        _told,
        frozenset({"process"}),
        alone=True,
    ),
    Check(
        "crash/kept",
        "the server is killed and restarted: what was seen is there, and is not told as success",
        _kept,
        frozenset({"process", "keep"}),
        alone=True,
    ),
]
