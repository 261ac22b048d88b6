"""A server is killed at each named step of an occurrence, where its database holds it: the run is there once.

A trigger of the database does not return at the step that must not be reached, so nothing depends on a moment.
"""

import asyncio
import json
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_schedules import REPORT, history, occurred, soon
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

FOR_EVER = """
CREATE VIEW for_ever AS WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted)
SELECT count(*) FROM counted
"""
STEPS = {
    "is decided": (
        "UPDATE ON documents",
        "NEW.kind = 'schedule' AND CAST(NEW.body AS TEXT) LIKE '%\"decided_at\"%'",
        [],
    ),
    "has its run": ("INSERT ON runs", "1", ["begun"]),
    "is marked as started": (
        "UPDATE ON documents",
        "NEW.kind = 'schedule' AND CAST(NEW.body AS TEXT) LIKE '%\"started\"%'",
        ["begun", "running"],
    ),
    "is settled": ("UPDATE ON runs", "NEW.status = 'settled'", ["started", "running"]),
}
"""Before what the server is held, and what is stored by then: the occurrence, and its run."""


@contextmanager
def database(folder: Path):
    with closing(sqlite3.connect(folder / "holdfast.db", timeout=LONG, isolation_level=None)) as db:
        yield db


def hold(folder: Path, event: str, condition: str) -> None:
    """Let the database never come to an end of what comes next."""
    with database(folder) as db:
        db.execute(FOR_EVER)
        db.execute(f"CREATE TRIGGER held BEFORE {event} WHEN {condition} BEGIN SELECT * FROM for_ever; END")


def let_go(folder: Path) -> list[str]:
    """Take the trigger away; what is stored of the occurrence and its run."""
    with database(folder) as db:
        db.execute("DROP TRIGGER held")
        db.execute("DROP VIEW for_ever")
        (schedule,) = db.execute("SELECT body FROM documents WHERE kind = 'schedule'").fetchone()
        runs = [status for (status,) in db.execute("SELECT status FROM runs")]
    return [*(one.get("state", "begun") for one in json.loads(schedule)["history"]), *runs]


def is_held(folder: Path) -> bool:
    """Whether a transaction of the server goes on and on."""
    with closing(sqlite3.connect(folder / "holdfast.db", timeout=1.0, isolation_level=None)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        db.execute("ROLLBACK")
        return False


async def settled(client: Any, id: str) -> None:
    """Wait until the occurrence has its run, and that has ended; there is no other."""
    [one] = await occurred(client, id)
    await Native(client).settled(one["run"]["id"])
    runs = (await Native(client).get("/api/runs"))["runs"]
    assert ["started"] == [each["state"] for each in await history(client, id)]
    assert [one["run"]["id"]] == [run["id"] for run in runs]


@requirement("schedules.once")
@pytest.mark.parametrize("step", STEPS)
async def test_a_server_that_is_killed_before_an_occurrence_gets_on_has_its_run_once(tmp_path: Path, step: str):
    """Whatever is stored by then, the restart finds the run, or starts it."""
    event, condition, stored = STEPS[step]
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], nodes=1) as server:
        hold(tmp_path, event, condition)
        async with server.client() as client:
            made = await (await client.post("/api/schedules", {**REPORT, "when": soon()})).json()
        async with asyncio.timeout(LONG):
            while not await asyncio.to_thread(is_held, tmp_path):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)
        await server.kill9()
        assert stored == let_go(tmp_path)
        await server.restart()
        async with server.client() as client:
            await settled(client, made["id"])
        await server.kill9()  # after the last step, too
        await server.restart()
        async with server.client() as client:
            await settled(client, made["id"])
