"""A server is killed at each named step of an occurrence, where its database holds it: the run is there once.

A trigger of the database does not return at the step that must not be reached, so nothing depends on a moment. What
has begun goes on in the next process on SQLite, and in another one on PostgreSQL.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from tests.acceptance.test_schedules import REPORT, history, occurred, soon
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.postgres import Postgres
from tests.support.server import Server, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

FOR_EVER = """
CREATE VIEW for_ever AS WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted)
SELECT count(*) FROM counted
"""
LOCK = 77
WAITS = f"""
CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared({LOCK}); RETURN NEW; END $$
"""
WAITING = f"""
FROM pg_locks JOIN pg_database ON oid = database
WHERE datname = current_database() AND locktype = 'advisory' AND objid = {LOCK} AND NOT granted
"""
STEPS = {
    "is decided": ("UPDATE ON documents", "NEW.kind = 'schedule' AND {body} LIKE '%\"decided_at\"%'", [[]]),
    "has its run": ("INSERT ON runs", "NEW.n IS NOT NULL", [["begun"]]),
    "is marked as started": (
        "UPDATE ON documents",
        "NEW.kind = 'schedule' AND {body} LIKE '%\"started\"%'",
        [["begun", "running"], ["begun", "settled"]],
    ),
    "is settled": ("UPDATE ON runs", "NEW.status = 'settled'", [["started", "running"], ["begun", "running"]]),
}
"""Before what the server is held, and what may be stored by then: the occurrence, and its run."""


class Held(NamedTuple):
    """A database that never comes to an end of a step."""

    holds: Callable[[], Awaitable[bool]]
    """Whether a transaction of the server goes on and on."""
    stored: Callable[[], Awaitable[list[str]]]
    let_go: Callable[[], Awaitable[None]]


@asynccontextmanager
async def sqlite_held(folder: Path, event: str, condition: str) -> AsyncIterator[Held]:
    def opened(timeout: float = LONG) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(folder / "holdfast.db", timeout=timeout, isolation_level=None))

    def is_locked() -> bool:
        with opened(timeout=1.0) as db:  # longer than any other transaction takes
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            db.execute("ROLLBACK")
            return False

    async def holds() -> bool:
        return await asyncio.to_thread(is_locked)

    async def stored() -> list[str]:
        with opened() as db:
            (schedule,) = db.execute("SELECT body FROM documents WHERE kind = 'schedule'").fetchone()
            return states(schedule, [status for (status,) in db.execute("SELECT status FROM runs")])

    async def let_go() -> None:
        with opened() as db:
            db.execute("DROP TRIGGER held")
            db.execute("DROP VIEW for_ever")

    with opened() as db:
        db.execute(FOR_EVER)
        when = condition.format(body="CAST(NEW.body AS TEXT)")
        db.execute(f"CREATE TRIGGER held BEFORE {event} WHEN {when} BEGIN SELECT * FROM for_ever; END")
    yield Held(holds, stored, let_go)


@asynccontextmanager
async def postgresql_held(url: str, event: str, condition: str) -> AsyncIterator[Held]:
    async def holds() -> bool:
        return bool(await db.fetch(f"SELECT pid {WAITING}"))

    async def stored() -> list[str]:
        schedule = await db.fetchval("SELECT body FROM documents WHERE kind = 'schedule'")
        return states(schedule, [row["status"] for row in await db.fetch("SELECT status FROM runs")])

    async def let_go() -> None:
        await db.fetch(f"SELECT pg_terminate_backend(pid) {WAITING}")  # it would see only later that its client is gone
        await db.execute("SELECT pg_advisory_unlock($1)", LOCK)

    db = await asyncpg.connect(url)
    try:
        await db.execute("SELECT pg_advisory_lock($1)", LOCK)
        await db.execute(WAITS)
        when = condition.format(body="convert_from(NEW.body, 'UTF8')")
        await db.execute(f"CREATE TRIGGER held BEFORE {event} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION held()")
        yield Held(holds, stored, let_go)
    finally:
        await db.close()


def states(schedule: bytes, runs: list[str]) -> list[str]:
    """What is stored of an occurrence and its run."""
    return [*(one.get("state", "begun") for one in json.loads(schedule)["history"]), *runs]


async def settled(server: Server, id: str) -> None:
    """Wait until the occurrence has its run, and that has ended; there is no other."""
    async with server.client() as client:
        [one] = await occurred(client, id)
        await Native(client).settled(one["run"]["id"])
        runs = (await Native(client).get("/api/runs"))["runs"]
        assert ["started"] == [each["state"] for each in await history(client, id)]
        assert [one["run"]["id"]] == [run["id"] for run in runs]


@requirement("schedules.once")
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_a_server_that_is_killed_before_an_occurrence_gets_on_has_its_run_once(
    tmp_path: Path, postgres: Postgres, store: str
):
    """Whatever is stored by then, the next start, or another server, finds the run, or starts it."""

    async def killed(step: str, up: Upstream) -> None:
        event, condition, expected = STEPS[step]
        folder = tmp_path / step.replace(" ", "_")
        url = "" if store == "sqlite" else postgres.url(await postgres.new_database())
        async with AsyncExitStack() as stack:

            async def served(name: str) -> Server:
                env = {"HOLDFAST_STORE": url} if url else {}
                of_it: dict[str, Any] = {"env": env, "nodes": 1}
                return await stack.enter_async_context(
                    Server(folder / name, [provider(up.base_url, models=None)], **of_it)
                )

            one = await served("one")
            database = postgresql_held(url, event, condition) if url else sqlite_held(one.data, event, condition)
            held = await stack.enter_async_context(database)
            async with one.client() as client:
                made = await (await client.post("/api/schedules", {**REPORT, "when": soon()})).json()
            async with asyncio.timeout(LONG):
                while not (await held.holds() and await held.stored() in expected):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
            other = await served("two") if url else one
            await one.kill9()
            assert await held.stored() in expected, step
            await held.let_go()
            if other is one:
                await one.restart()
            await settled(other, made["id"])
            await other.kill9()  # after the last step, too
            await one.restart()
            await settled(one, made["id"])

    async with Upstream() as up:
        await asyncio.gather(*(killed(step, up) for step in STEPS))
