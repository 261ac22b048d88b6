"""All checks on all wires of one server, one after the other, and what they found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from fnmatch import fnmatchcase

from .checks import Check, Finding, Lab, Seen, crash, ends, readers, truth
from .http import Broken
from .process import NotStarted
from .scripts import Tag
from .servers import ServerFacts

__all__ = ["CHECKS", "judge", "trouble"]

LONGEST = 120.0
"""Seconds for a check that starts the server again, besides its patience."""
CHECKS: list[Check] = [*truth.CHECKS, *ends.CHECKS, *readers.CHECKS, *crash.CHECKS]


async def judge(lab: Lab, facts: ServerFacts, only: Sequence[str] = ()) -> AsyncGenerator[Finding]:
    """Yield what each check finds. `only` are patterns of ids; without one all are looked at."""
    chosen = [check for check in CHECKS if not only or any(fnmatchcase(check.id, pattern) for pattern in only)]
    together: list[Check] = []
    for check in chosen:
        if check.alone or len(together) == lab.at_once:
            for finding in await _all(lab, facts, together):
                yield finding
            together = []
        if check.alone:
            await lab.revive()
            yield await _find(lab, facts, check)
        else:
            together.append(check)
    for finding in await _all(lab, facts, together):
        yield finding


async def trouble(lab: Lab) -> str | None:
    """Say why nothing can be judged: the server does not answer, or not with the lab's upstream behind it."""
    tag = Tag("completed")
    try:
        told = await lab.ask(tag)
    except TimeoutError:
        return f"{lab.wire.http.url} did not answer within {lab.patience:g} s."
    if lab.upstream.tagged[tag.token]:
        return None
    said = f"It was told as {told.ending} ({told.words})." if told.words else ""
    return f"{lab.wire.http.url} did not ask the lab's upstream, {lab.upstream.base_url}. {said}".strip()


async def _all(lab: Lab, facts: ServerFacts, checks: Sequence[Check]) -> list[Finding]:
    return await asyncio.gather(*(_find(lab, facts, check) for check in checks))


async def _find(lab: Lab, facts: ServerFacts, check: Check) -> Finding:
    """Look, and judge. What is not promised is looked at all the same, where the wire has words for it."""
    missing = sorted(check.needs - lab.wire.can - ({"process"} if lab.judged else set()))
    if missing:
        return _finding(lab, check, Seen(None, ""), _why_missing(missing, lab))
    return _finding(lab, check, await _look(lab, check), facts.why_not(check.id))


def _why_missing(missing: Sequence[str], lab: Lab) -> str | None:
    wanted = [word for word in missing if word != "process"]
    return f"{lab.wire.name} has no words for it: {', '.join(wanted)}" if wanted else None


def _finding(lab: Lab, check: Check, seen: Seen, why_not: str | None) -> Finding:
    verdict = "not promised" if why_not else "not judged" if seen.held is None else "pass" if seen.held else "fail"
    what = seen.what or ("" if why_not else "the lab did not start the server: see --start")
    return Finding(check.id, lab.wire.name, check.promise, verdict, what, seen.figures, why_not or "")  # type: ignore[arg-type]


async def _look(lab: Lab, check: Check) -> Seen:
    try:
        async with asyncio.timeout(LONGEST + 4 * lab.patience):
            return await check.look(lab)
    except TimeoutError:
        return Seen(False, f"no end within {lab.patience:g} s")
    except (Broken, NotStarted) as broken:
        return Seen(False, str(broken))
