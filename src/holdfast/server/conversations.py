"""Names that clients give to runs: the newest run under a name is meant, and it replaces the one before.

A name is kept as idempotency keys, one for each run that was started under it: `name 1`, `name 2`, ... So it lasts as
long as its runs, and of two requests that start the same number only one does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request

from ..errors import BadRequest
from ..run import Run
from ..store import Idempotency, RunRecord
from .context import Parts, check_name, fresh_run_id
from .runs import stop_within

CONVERSATION = "conversation"
"""Where a run's request says under which name it was started."""

Start = Callable[[RunRecord, Idempotency | None], Awaitable[Run]]


def named_in(request: Request) -> str | None:
    """Return the name that a request's header gives to its run; None where it gives none."""
    name = request.headers.get("x-conversation-id")
    if not name:
        return None
    if "idempotency-key" in request.headers:
        raise BadRequest("Send X-Conversation-Id or an Idempotency-Key, not both.", param="Idempotency-Key")
    return check_name(name, "X-Conversation-Id")


async def start(parts: Parts, name: str, record: RunRecord, begin: Start) -> Run:
    """Start a run under a name, and stop the one that had it."""
    record.request[CONVERSATION] = name
    number, before = await _newest(parts, record.owner, name)
    while True:
        number += 1
        run = await begin(record, _key(record.owner, name, number))
        if run.id == record.id:
            break
        before, record = run.record, msgspec.structs.replace(record, id=fresh_run_id())  # another was quicker
    if before is not None and before.settlement is None:
        await stop_within(await parts.engine.open(before.id), by="replaced")
    return run


async def find(parts: Parts, owner: str, name: str) -> Run | None:
    """Return the newest run of a name; None where there is none, or its log is no longer whole."""
    _, record = await _newest(parts, owner, name)
    if record is None:
        return None
    run = await parts.engine.open(record.id)
    return run if run.log.oldest == 1 else None


async def _newest(parts: Parts, owner: str, name: str) -> tuple[int, RunRecord | None]:
    """Return the number of the newest run under a name, and its record: in steps that double, then halve."""
    low, high, newest = 0, 1, None
    while (found := await parts.store.find_repeated(_key(owner, name, high))) is not None:
        low, high, newest = high, high * 2, found
    while high - low > 1:
        middle = (low + high) // 2
        found = await parts.store.find_repeated(_key(owner, name, middle))
        if found is None:
            high = middle
        else:
            low, newest = middle, found
    return low, newest


def _key(owner: str, name: str, number: int) -> Idempotency:
    """Return the key of one run under a name. No client can send a key with a line break in it."""
    return Idempotency(owner, f"conversation\n{number}\n{name}", CONVERSATION)
