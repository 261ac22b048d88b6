"""Readers that come back, that are several, and that are slow."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from ..http import Broken
from ..reading import Reader, follow
from ..scripts import Tag
from . import Check, Lab, Seen

__all__ = ["CHECKS"]

PIECES = 150
RUN = f"tokens-{PIECES}-10"
WHOLE = "".join(f"t{number} " for number in range(PIECES))
FLOOD, EACH, STALLED = 128, 64, 3
"""An answer of 8 MB, in pieces of 64 kB: more than the buffers between two sockets hold. And how many never read it."""


def difference(told: str, whole: str = WHOLE) -> str | None:
    """Say what is wrong with a text of numbered pieces: what is missing, what came twice."""
    if told == whole:
        return None
    words, expected = told.split(), whole.split()
    missing = [word for word in expected if word not in set(words)]
    twice = sorted({word for word in words if words.count(word) > 1}, key=words.index)
    parts = [f"{len(missing)} pieces missing, from {missing[0]}"] if missing else []
    parts += [f"{len(twice)} pieces twice, from {twice[0]}"] if twice else []
    return " and ".join(parts) or "the pieces came in another order"


async def _random_reconnects(lab: Lab) -> Seen:
    """Leave after a random number of pieces, and come back with the cursor, until the answer has ended."""
    draw = random.Random(8)
    reader, connections = lab.wire.reader(), 0
    async with asyncio.timeout(lab.patience + PIECES * 0.01):
        reply = await lab.wire.start(Tag(RUN).prompt, keep=True)
        while reader.ending == "unsaid" and connections < 200:
            connections += 1
            enough = len(reader.seen) + draw.randint(1, 25)
            await follow(reply, reader, lambda reader, enough=enough: len(reader.seen) >= enough)  # type: ignore[misc]
            reply.leave()
            if reader.ending == "unsaid":
                reader.again()
                reply = await lab.wire.again(reader)
    return _complete(reader, f"over {connections} connections")


def _complete(reader: Reader, how: str) -> Seen:
    wrong = difference(reader.text)
    if wrong is None and reader.ending == "success":
        return Seen(True, f"all {PIECES} pieces once, in order, {how}")
    return Seen(False, f"{wrong or 'all pieces'}, told as {reader.ending} ({reader.words}), {how}")


async def _many_readers(lab: Lab) -> Seen:
    """The one who started it, two who join in the middle, and one who comes after the end."""
    async with lab.begun(Tag(RUN), keep=True) as (reply, first):
        async with asyncio.timeout(lab.patience + PIECES * 0.01):
            joined = await asyncio.gather(
                _from_start(lab, first.run), _from_start(lab, first.run), follow(reply, first)
            )
            late = await _from_start(lab, first.run)
    readers = {"the first": first, "the second": joined[0], "the third": joined[1], "the late one": late}
    wrong = [f"{who}: {said}" for who, reader in readers.items() if (said := difference(reader.text))]
    if wrong:
        return Seen(False, "; ".join(wrong))
    endings = {reader.ending for reader in readers.values()}
    return Seen(endings == {"success"}, f"four readers, the same {PIECES} pieces, told as {', '.join(sorted(endings))}")


async def _from_start(lab: Lab, run: str) -> Reader:
    reader = lab.wire.reader()
    reader.run = run
    try:
        reply = await lab.wire.again(reader)
        await follow(reply, reader)
        reply.leave()
    except Broken as broken:
        reader.broke(str(broken))
    return reader


async def _slow_reader(lab: Lab) -> Seen:
    """Some clients never read; the others must not wait for them."""
    before = await _time_of_others(lab)
    if before is None:
        return Seen(None, "answers did not come to their end even before")
    memory = await lab.judged.memory() if lab.judged else 0.0
    tags = [Tag(f"flood-{FLOOD}-{EACH}") for _ in range(STALLED)]
    stalled = [await lab.wire.start(tag.prompt) for tag in tags]
    try:
        await _quiet(lab, tags)
        grown = (await lab.judged.memory() - memory) / 1e6 if lab.judged else None
        during = await _time_of_others(lab)
    finally:
        for reply in stalled:
            reply.leave()
    if during is None:
        return Seen(False, "the other answers did not come to their end")
    figures: dict[str, float] = {"before_ms": round(before * 1000), "during_ms": round(during * 1000)}
    figures |= {} if grown is None else {"memory_mb": round(grown, 1)}
    cost = "" if grown is None else f"; {STALLED} that never read cost {grown:.0f} MB"
    what = f"other answers took {during * 1000:.0f} ms, and {before * 1000:.0f} ms before{cost}"
    return Seen(during < before + lab.patience / 4, what, figures)


async def _quiet(lab: Lab, tags: Sequence[Tag]) -> None:
    """Wait until the upstream cannot write any more, or has written all: then the readers that stall are in the way."""
    deadline = time.monotonic() + lab.patience
    sent = -1
    while time.monotonic() < deadline:
        now = sum(request.bytes_sent for tag in tags for request in lab.upstream.tagged[tag.token])
        if now == sent:
            return
        sent = now
        await asyncio.sleep(0.3)


async def _time_of_others(lab: Lab) -> float | None:
    began = time.monotonic()
    try:
        told = await asyncio.gather(*(lab.ask(Tag("tokens-20-10")) for _ in range(min(4, lab.at_once))))
    except TimeoutError:
        return None
    return time.monotonic() - began if all(reader.ending == "success" for reader in told) else None


CHECKS = [
    Check(
        "resume/reconnects",
        "a reader that is cut off again and again misses nothing and sees nothing twice",
        _random_reconnects,
        frozenset({"resume"}),
    ),
    Check(
        "resume/readers",
        "all readers of an answer see the same, whenever they come",
        _many_readers,
        frozenset({"resume"}),
    ),
    Check("slow/readers", "clients that never read do not slow the others", _slow_reader, alone=True),
]
