"""Closing a store, and opening it again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from holdfast.errors import (
    HoldfastError,
    SessionNotFound,
)
from holdfast.events import (
    Text,
)
from holdfast.store import Append

from .case import Case, Checks

CHECKS = Checks()


@CHECKS.add
async def everything_is_there_after_a_restart(case: Case) -> None:
    """A store is what outlives the process."""
    await case.session(title="kept", params={"a": [1]})
    run = await case.start("r1", case.user("a"), idempotency=case.key("k"))
    await case.append(run, 1, Text("x"), Text("y"))
    await case.settle(run, seq=3, message=case.answer(run))
    await case.start("r2", case.user("b"))
    await case.start("r3", case.user("c"), if_busy="queue")
    before = await case.everything()
    await case.reopen()

    assert before == await case.everything()
    assert [case.id("s")] == [session.id for session in await case.store.list_sessions(case.owner, query="kept")]


@CHECKS.add
async def closing_finishes_what_was_asked_for(case: Case) -> None:
    """A write in progress when the store closes takes effect. Closing twice is harmless."""
    writes = [asyncio.ensure_future(case.session(f"s{n}")) for n in range(20)]
    await asyncio.sleep(0)  # so that each write has begun
    await case.store.close()
    await asyncio.gather(*writes)
    await case.reopen()

    assert 20 == len(await case.store.list_sessions(case.owner))


@CHECKS.add
async def a_caller_who_stops_waiting_breaks_nothing(case: Case) -> None:
    """The write of a cancelled caller takes effect as a whole, and others continue."""
    await case.session()
    run = await case.start("r", case.user("a"))
    waiting = [asyncio.ensure_future(case.append(run, 1, Text("a"))) for _ in range(5)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert await case.append(run, 2, Text("b"))
    assert [Text("a"), Text("b")] == await case.store.read_log(run.id, 0)


@CHECKS.add
async def a_refusal_spoils_nobody_elses_write(case: Case) -> None:
    """Concurrent writes may share a commit, but the error of one does not affect the others."""
    await case.session()
    work: list[Awaitable[Any]] = []
    for n in range(10):
        work.append(case.session(f"s{n}"))
        work.append(case.start(f"r{n}", case.user("a"), session="gone"))
        work.append(case.start(f"ok{n}", session=None))
        work.append(case.store.append(case.id("node_id"), [Append(case.id("gone"), 1, 1, [Text("x")])]))
    results = await asyncio.gather(*work, return_exceptions=True)

    assert 10 == sum(isinstance(result, SessionNotFound) for result in results)
    assert 10 == sum(isinstance(result, HoldfastError) for result in results)
    assert 11 == len(await case.store.list_sessions(case.owner))
    assert 10 == len(await case.store.list_runs(owner=case.owner))
